//! The errors of a consumer: what the machines found, as the application is told.

use std::collections::BTreeSet;
use std::sync::Arc;

use ottla_protocol::ErrorCode;

use crate::consumer::batch;
use crate::error::{Error, ErrorKind};
use crate::record::TopicPartition;
use crate::state::cluster::Cluster;
use crate::state::commits::CommitFault;
use crate::state::fetcher::FetchFault;
use crate::state::lookups::LookupFault;
use crate::state::metadata::Metadata;

pub(in crate::consumer) fn commit(fault: CommitFault) -> Error {
    match fault {
        CommitFault::Lost(partitions) => fenced(&partitions),
        CommitFault::Code(code, partition) => commit_refused(code, &partition),
        CommitFault::TimedOut(cause) => timed_out("the commit", cause),
    }
}

/// The error of a commit for partitions that are another member's, or nobody's.
pub(in crate::consumer) fn fenced(partitions: &[TopicPartition]) -> Error {
    let names: Vec<String> = partitions.iter().map(ToString::to_string).collect();
    let text = format!("not committed, since no longer this consumer's: {}", names.join(", "));
    Error::new(ErrorKind::CommitFenced, text).with_partitions(partitions).with_hint(
        "whoever has them by now reads on from the last commit, or their topic was made anew",
    )
}

pub(super) fn commit_refused(code: ErrorCode, partition: &TopicPartition) -> Error {
    let error = at(Error::from_kafka(code, None), partition);
    match code {
        // A member that is told so joins anew; only who is none is refused for good.
        ErrorCode::UNKNOWN_MEMBER_ID | ErrorCode::ILLEGAL_GENERATION => error.with_hint(
            "the group has members, which share out its partitions: who assigns partitions itself \
             needs a group.id of its own",
        ),
        _ => error,
    }
}

pub(super) fn lookup(fault: LookupFault) -> Error {
    match fault {
        LookupFault::Code(code, Some(partition)) => at(Error::from_kafka(code, None), &partition),
        LookupFault::Code(code, None) => Error::from_kafka(code, None),
        LookupFault::TimedOut(cause) => timed_out("looking committed offsets up", cause),
    }
}

pub(super) fn fetch(partition: &TopicPartition, fault: FetchFault) -> Error {
    match fault {
        FetchFault::Corrupt { offset, cause } => batch::corrupt(partition, offset, cause),
        FetchFault::Code(code) => at(Error::from_kafka(code, None), partition),
    }
}

pub(super) fn no_offset(partition: &TopicPartition, group: &str) -> Error {
    let text = if group.is_empty() {
        format!("nothing tells where to begin {partition}")
    } else {
        format!("the group has no committed offset for {partition}")
    };
    at(Error::new(ErrorKind::NoOffset, text), partition)
        .with_hint("auto.offset.reset is none: seek to where it shall begin, or set it to earliest")
}

pub(super) fn out_of_range(partition: &TopicPartition, offset: i64) -> Error {
    let text = format!("offset {offset} of {partition} is not in the log");
    at(Error::new(ErrorKind::OffsetOutOfRange, text), partition)
        .with_hint("auto.offset.reset is none: seek to where it shall go on")
}

pub(super) fn data_lost(partition: &TopicPartition, end: i64, read: i64) -> Error {
    let last = read.saturating_sub(1);
    let text = format!(
        "records {end} to {last} of {partition} were read, and are gone: under its new leader the \
         log ended at {end}"
    );
    at(Error::new(ErrorKind::DataLost, text), partition)
        .with_hint("auto.offset.reset is none: seek to where it shall go on")
}

pub(super) fn recreated(partition: &TopicPartition, read: Option<i64>) -> Error {
    let read = read.map_or(String::new(), |read| format!("; it was read up to offset {read}"));
    let text = format!(
        "topic {} was deleted and another was created under its name{read}",
        partition.topic
    );
    at(Error::new(ErrorKind::DataLost, text), partition)
        .with_hint("auto.offset.reset is none: seek to where it shall go on")
}

pub(super) fn refused(code: ErrorCode, api: &'static str, group: &Arc<str>) -> Error {
    let text = format!("group {group} refuses this consumer at {api}");
    let error = Error::new(ErrorKind::from_kafka(code), text);
    let error = error.with_source(Error::from_kafka(code, None));
    match code {
        ErrorCode::FENCED_INSTANCE_ID => error.with_hint(
            "another consumer joined with the same group.instance.id and has taken this one's place",
        ),
        ErrorCode::INCONSISTENT_GROUP_PROTOCOL => error.with_hint(
            "no partition.assignment.strategy of this consumer is known to all members of the group",
        ),
        _ => error,
    }
}

/// Why the group's coordinator is not found.
pub(super) fn no_coordinator(cause: &Error, group: &Arc<str>) -> Error {
    let text = format!("the coordinator of group {group} cannot be found");
    Error::new(cause.kind(), text).with_source(cause.clone())
}

/// Why nobody can be asked now, if the metadata tell.
pub(super) fn unreachable(metadata: &Metadata) -> Option<Error> {
    metadata.last_error().filter(|_| metadata.cluster().brokers.is_empty()).cloned()
}

/// Why no partition can be got now, if the metadata tell.
pub(super) fn obstacle(metadata: &Metadata, topics: &[Arc<str>]) -> Option<Error> {
    let cluster = metadata.cluster();
    if cluster.brokers.is_empty() {
        return unreachable(metadata);
    }
    topics.iter().find_map(|topic| {
        let code = cluster.topics.get(topic)?.error;
        code.is_error().then(|| of_topic(code, topic))
    })
}

/// The first of these partitions that the cluster, as far as it is known, does not have.
pub(super) fn missing(cluster: &Cluster, assigned: &BTreeSet<TopicPartition>) -> Option<Error> {
    assigned.iter().find_map(|partition| {
        let known = cluster.topics.get(&partition.topic)?;
        if known.error.is_error() {
            let error = of_topic(known.error, &partition.topic);
            return Some(error.with_partition(partition.partition));
        }
        let (index, count) = (usize::try_from(partition.partition), known.partitions.len());
        let there = index.is_ok_and(|index| index < count);
        let text = format!("the cluster has no {partition}: the topic has {count} partitions");
        (!there).then(|| at(Error::new(ErrorKind::UnknownTopic, text), partition))
    })
}

/// What the metadata say of a topic.
fn of_topic(code: ErrorCode, topic: &Arc<str>) -> Error {
    let error = Error::from_kafka(code, None).with_topic(topic);
    match error.kind() {
        ErrorKind::UnknownTopic => error.with_hint(
            "is the name right? A consumer waits for a topic that does not exist, and makes none \
             unless allow.auto.create.topics is true",
        ),
        _ => error,
    }
}

fn at(error: Error, partition: &TopicPartition) -> Error {
    error.with_topic(&partition.topic).with_partition(partition.partition)
}

fn timed_out(what: &str, cause: Option<Error>) -> Error {
    let error = Error::new(ErrorKind::Timeout, format!("{what} took too long"));
    match cause {
        Some(cause) => error.with_source(cause),
        None => error,
    }
}
