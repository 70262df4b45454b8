//! A client for the Apache Kafka protocol.
