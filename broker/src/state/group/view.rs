//! What a tool is shown of a group.

use std::collections::BTreeSet;
use std::sync::Arc;

use bytes::Bytes;

use super::{Group, MemberId, PhaseName};
use crate::state::group_records::subscribed_topics;

/// A group as a tool sees it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct GroupView {
    /// Where it is in its life.
    pub(crate) phase: PhaseName,
    /// `consumer`, …; empty if there never was a member.
    pub(crate) protocol_type: Arc<str>,
    /// The agreed protocol, of a stable group; else empty.
    pub(crate) protocol: Arc<str>,
    /// Its members.
    pub(crate) members: Vec<MemberView>,
}

/// A member as a tool sees it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct MemberView {
    /// Its id.
    pub(crate) id: MemberId,
    /// Its `group.instance.id`.
    pub(crate) instance_id: Option<Arc<str>>,
    /// The client's own name.
    pub(crate) client_id: Arc<str>,
    /// Where it comes from.
    pub(crate) client_host: Arc<str>,
    /// Its metadata for the agreed protocol, in a stable group.
    pub(crate) metadata: Bytes,
    /// What it was given.
    pub(crate) assignment: Bytes,
}

impl GroupView {
    /// A group that never had a member, but offsets.
    pub(crate) fn of_offsets_alone() -> Self {
        Self {
            phase: PhaseName::Empty,
            protocol_type: Arc::from(""),
            protocol: Arc::from(""),
            members: Vec::new(),
        }
    }
}

impl PhaseName {
    /// As Kafka's tools print it.
    pub(crate) fn text(self) -> &'static str {
        match self {
            Self::Empty => "Empty",
            Self::PreparingRebalance => "PreparingRebalance",
            Self::CompletingRebalance => "CompletingRebalance",
            Self::Stable => "Stable",
        }
    }
}

impl Group {
    /// What a tool is shown. Kafka: `ClassicGroup.describe`.
    pub(crate) fn view(&self) -> GroupView {
        let stable = self.phase() == PhaseName::Stable;
        let protocol = self.protocol.clone().filter(|_| stable).unwrap_or_else(|| Arc::from(""));
        let members = self.members.iter().map(|(id, member)| MemberView {
            id: id.clone(),
            instance_id: member.instance_id.clone(),
            client_id: member.client_id.clone(),
            client_host: member.client_host.clone(),
            // Until the members agree there is no one protocol whose metadata it would be.
            metadata: if stable { member.metadata(&protocol) } else { Bytes::new() },
            assignment: member.assignment.clone(),
        });
        GroupView {
            phase: self.phase(),
            protocol_type: self.protocol_type(),
            members: members.collect(),
            protocol,
        }
    }

    /// `consumer`, …; empty if there never was a member.
    pub(crate) fn protocol_type(&self) -> Arc<str> {
        self.protocol_type.clone().unwrap_or_else(|| Arc::from(""))
    }

    /// The topics that its members read; None if one's subscription cannot be read.
    pub(crate) fn subscribed(&self) -> Option<BTreeSet<Arc<str>>> {
        let protocol = self.protocol.as_deref();
        let mut topics = BTreeSet::new();
        for member in self.members.values() {
            // In a first generation that is not agreed on yet, whatever is offered counts.
            let offered =
                member.protocols.iter().filter(|one| protocol.is_none_or(|p| p == &*one.name));
            for one in offered {
                topics.extend(subscribed_topics(&one.metadata)?);
            }
        }
        Some(topics)
    }
}
