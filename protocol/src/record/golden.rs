//! Batches that Kafka itself wrote.
