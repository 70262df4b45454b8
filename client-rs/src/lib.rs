//! A client for the Apache Kafka protocol.
//!
//! ```no_run
//! use std::time::Duration;
//! use ottla::{Options, Producer, Record};
//!
//! let options = Options::new().set("bootstrap.servers", "localhost:9092")?;
//! let producer = Producer::new(&options)?;
//! producer.push(&Record::to("orders").key("k").value("fire and forget"))?;
//! let sent = producer.send(&Record::to("orders").key("k").value("awaited"))?;
//! let delivery = sent.wait(Duration::from_secs(10))?;
//! println!("{}-{} at {}", delivery.topic, delivery.partition, delivery.offset);
//! producer.close(Duration::from_secs(5))?;
//! # Ok::<(), ottla::Error>(())
//! ```
//!
//! Clients bring their own thread; futures of theirs run under any executor.

mod admin;
mod config;
mod consumer;
mod driver;
mod error;
mod events;
mod health;
mod life;
pub mod log;
mod process;
mod producer;
mod promise;
mod record;
mod serial;
mod state;

/// For our own simulator alone.
#[cfg(feature = "sim")]
#[doc(hidden)]
pub mod sim {
    pub use crate::driver::sim::{Connecting, Entered, SimNetwork, SimStream, enter};
}

pub use admin::{
    Admin, AdminStats, AlterConfigOp, Call, ChangeOptions, ClassicGroupDescription,
    ClusterDescription, ConfigEntry, ConfigResource, ConfigResourceType, ConfigSource,
    ConfigSynonym, ConfigType, CreatedTopic, DeletedRecords, DescribeClusterOptions,
    DescribeConfigsOptions, EpochEndOffset, FeatureMetadata, FinalizedVersionRange, GroupListing,
    GroupListings, GroupOffsets, GroupOffsetsOptions, IsolationLevel, ListGroupsOptions,
    ListOffsetsOptions, ListOffsetsResultInfo, LogDirDescription, MemberDescription, NewPartitions,
    NewTopic, Node, OffsetSpec, Pending, ProducerState, RemoveMembersOptions, ReplicaInfo, Results,
    SupportedVersionRange, TopicDescription, TopicListing, TopicPartitionInfo,
};
pub use config::{OPTIONS, OptionRow, OptionScope, OptionType, Options};
pub use consumer::{
    Batch, Commit, Committed, CommittedWithMetadata, Consumer, ConsumerRecord, ConsumerStats,
    Deserializer, Headers, OffsetAndMetadata, OffsetAndTimestamp, OffsetForTime, Piece,
    RebalanceListener, RecordRow, RecordView,
};
pub use error::{Error, ErrorClass, ErrorKind, Outcome};
pub use events::{EVENTS_MAX, Event, Events, NextEvent, ResetTo};
pub use health::{Health, LastError};
pub use ottla_protocol::Uuid;
pub use process::Process;
pub use producer::{
    Callbacks, Close, Failure, Flush, Partitioner, Partitions, Producer, ProducerStats, Queued,
    Room, Sent, SentMany,
};
pub use record::{Delivery, Header, Record, TopicPartition};
pub use serial::{BigEndian, Plain, SerialError, Serializer, Typed};
pub use state::completion::{Completed, Completions, Stamp};
