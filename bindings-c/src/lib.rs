//! Ottla for C.
