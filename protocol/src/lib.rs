//! The Apache Kafka wire protocol: bytes to types and back, without I/O.

pub mod record;
