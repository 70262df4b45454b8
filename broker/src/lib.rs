//! A broker that speaks the Apache Kafka protocol.
