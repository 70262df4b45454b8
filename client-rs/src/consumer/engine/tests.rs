//! Tests of the machine, in virtual time.
