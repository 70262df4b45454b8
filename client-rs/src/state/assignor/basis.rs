//! By what a leader shared out: it tells static members so beside their shares, in bytes that
//! coordinators keep and other clients pass over.

use std::sync::Arc;

use ottla_protocol::record::crc;

use super::Layout;

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
    layout: u32,
    /// Whether the member was to give something up that another waits for.
    unsettled: bool,
}

impl Basis {
    /// That of a member of no topics, in a group that shares this out.
    pub(crate) fn new(layout: &Layout) -> Self {
        Self { topics: of_topics(&[]), layout: of_layout(layout), unsettled: false }
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

    /// Whether it was made by this.
    pub(crate) fn is_of_layout(self, layout: &Layout) -> bool {
        self.layout == of_layout(layout)
    }

    pub(super) fn to_bytes(self) -> Vec<u8> {
        let mut bytes = TAG.to_vec();
        bytes.push(if self.unsettled { UNSETTLED } else { 0 });
        bytes.extend_from_slice(&self.topics.to_be_bytes());
        bytes.extend_from_slice(&self.layout.to_be_bytes());
        bytes
    }

    /// Nothing if they are another client's, or of a form that is not known.
    pub(super) fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let rest = bytes.strip_prefix(TAG).filter(|_| bytes.len() == LEN)?;
        let (&flags, rest) = rest.split_first()?;
        let (topics, rest) = rest.split_first_chunk()?;
        let (layout, _) = rest.split_first_chunk()?;
        Some(Self {
            topics: u32::from_be_bytes(*topics),
            layout: u32::from_be_bytes(*layout),
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

/// Racks count only where they are minded: elsewhere it is as it was before leaders knew them.
fn of_layout(layout: &Layout) -> u32 {
    let mut crc = 0;
    for (topic, count) in layout.counts() {
        crc = crc::append(add(crc, topic), &count.to_be_bytes());
    }
    for (topic, racks) in layout.minded_racks() {
        crc = add(crc, topic);
        for racks in racks {
            crc = racks.iter().fold(crc, |crc, rack| add(crc, rack));
            crc = add(crc, "");
        }
    }
    crc
}

/// No name of a topic has a zero in it.
fn add(crc: u32, name: &str) -> u32 {
    crc::append(crc::append(crc, name.as_bytes()), &[0])
}
