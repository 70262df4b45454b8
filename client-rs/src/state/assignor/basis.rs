//! By what a leader shared out: it tells static members so beside their shares, in bytes that
//! coordinators keep and other clients pass over.

use std::collections::BTreeMap;
use std::sync::Arc;

use ottla_protocol::record::crc;

/// What the bytes begin with, so that another client's are not taken for them.
const TAG: &[u8; 5] = b"ottla";
/// Set while a partition that this member gives up is still to be handed on.
const UNSETTLED: u8 = 1;
const LEN: usize = TAG.len() + 1 + 4 + 4;

/// By what a static member's share was made (KIP-345).
///
/// A coordinator gives one that comes back the share that it had, and a leader is told to leave all
/// shares as they are (KIP-814). What has changed since, only this can tell.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Basis {
    topics: u32,
    counts: u32,
    /// Whether the member was to give something up that another waits for.
    unsettled: bool,
}

impl Basis {
    /// That of a member of no topics, in a group whose topics have so many partitions.
    pub(crate) fn new(counts: &BTreeMap<Arc<str>, i32>) -> Self {
        Self { topics: of_topics(&[]), counts: of_counts(counts), unsettled: false }
    }

    /// That of a member of these topics, which may have to give up what another waits for.
    pub(crate) fn of_member(self, topics: &[Arc<str>], unsettled: bool) -> Self {
        Self { topics: of_topics(topics), unsettled, ..self }
    }

    /// Whether the member was to give up what another waits for.
    pub(crate) const fn is_unsettled(self) -> bool {
        self.unsettled
    }

    /// Whether the share was made for a member of these topics.
    pub(crate) fn is_of_topics(self, topics: &[Arc<str>]) -> bool {
        self.topics == of_topics(topics)
    }

    /// Whether it was made by these counts of partitions.
    pub(crate) fn is_of_counts(self, counts: &BTreeMap<Arc<str>, i32>) -> bool {
        self.counts == of_counts(counts)
    }

    pub(super) fn to_bytes(self) -> Vec<u8> {
        let mut bytes = TAG.to_vec();
        bytes.push(if self.unsettled { UNSETTLED } else { 0 });
        bytes.extend_from_slice(&self.topics.to_be_bytes());
        bytes.extend_from_slice(&self.counts.to_be_bytes());
        bytes
    }

    /// Nothing if they are another client's, or of a form that is not known.
    pub(super) fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let rest = bytes.strip_prefix(TAG).filter(|_| bytes.len() == LEN)?;
        let (&flags, rest) = rest.split_first()?;
        let (topics, rest) = rest.split_first_chunk()?;
        let (counts, _) = rest.split_first_chunk()?;
        Some(Self {
            topics: u32::from_be_bytes(*topics),
            counts: u32::from_be_bytes(*counts),
            unsettled: flags & UNSETTLED != 0,
        })
    }
}

fn of_topics(topics: &[Arc<str>]) -> u32 {
    let mut sorted: Vec<&Arc<str>> = topics.iter().collect();
    sorted.sort();
    sorted.dedup();
    sorted.into_iter().fold(0, |crc, topic| add(crc, topic))
}

fn of_counts(counts: &BTreeMap<Arc<str>, i32>) -> u32 {
    let counts = counts.iter();
    counts.fold(0, |crc, (topic, count)| crc::append(add(crc, topic), &count.to_be_bytes()))
}

/// No topic's name has a zero in it.
fn add(crc: u32, topic: &str) -> u32 {
    crc::append(crc::append(crc, topic.as_bytes()), &[0])
}
