//! One member of a classic group.

use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use ottla_protocol::ErrorCode;

use super::{Answer, Decision, JoinAnswer, MemberValue, SyncAnswer, Token, duration};

/// The name under which the coordinator knows a member.
pub(crate) type MemberId = Arc<str>;

/// A new member that waits for others is given up after this; its client has long given up itself.
///
/// Kafka: `newMemberJoinTimeoutMs`, not an option there either.
pub(super) const NEW_MEMBER_WAIT: Duration = Duration::from_mins(5);

/// One way in which a member can take part, with what the leader needs to know for it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Protocol {
    /// `range`, `cooperative-sticky`, …
    pub(crate) name: Arc<str>,
    /// The subscription, in the protocol's own form.
    pub(crate) metadata: Bytes,
}

/// One member.
#[derive(Debug)]
pub(super) struct Member {
    pub(super) instance_id: Option<Arc<str>>,
    pub(super) client_id: Arc<str>,
    pub(super) client_host: Arc<str>,
    pub(super) rebalance_timeout: Duration,
    pub(super) session_timeout: Duration,
    /// In the member's order of preference.
    pub(super) protocols: Vec<Protocol>,
    pub(super) assignment: Bytes,
    /// Its JoinGroup, while it waits for the others.
    pub(super) joining: Option<Token>,
    /// Its SyncGroup, while it waits for the leader's.
    pub(super) syncing: Option<Token>,
    /// No generation has included it yet.
    pub(super) is_new: bool,
    deadline: Option<Instant>,
}

impl Member {
    /// A member that has just sent its first JoinGroup.
    pub(super) fn joining(setup: MemberSetup<'_>, token: Token, now: Instant) -> Self {
        Self {
            instance_id: setup.instance_id.map(Arc::from),
            client_id: Arc::from(setup.client_id),
            client_host: Arc::from(setup.client_host),
            rebalance_timeout: duration(setup.rebalance_timeout_ms),
            session_timeout: duration(setup.session_timeout_ms),
            protocols: setup.protocols.to_vec(),
            assignment: Bytes::new(),
            joining: Some(token),
            syncing: None,
            is_new: true,
            deadline: now.checked_add(NEW_MEMBER_WAIT),
        }
    }

    /// A member as a record tells it; what is already known of it here is kept.
    pub(super) fn replayed(
        stored: &MemberValue,
        protocol: Option<&Arc<str>>,
        known: Option<Self>,
    ) -> Self {
        let (protocols, joining, syncing, deadline) = if let Some(known) = known {
            (known.protocols, known.joining, known.syncing, known.deadline)
        } else {
            let name = protocol.cloned().unwrap_or_else(|| Arc::from(""));
            let protocol = Protocol { name, metadata: stored.subscription.clone() };
            (vec![protocol], None, None, None)
        };
        Self {
            instance_id: stored.instance_id.clone(),
            client_id: stored.client_id.clone(),
            client_host: stored.client_host.clone(),
            rebalance_timeout: duration(stored.rebalance_timeout_ms),
            session_timeout: duration(stored.session_timeout_ms),
            protocols,
            assignment: stored.assignment.clone(),
            joining,
            syncing,
            is_new: false,
            deadline,
        }
    }

    /// What it holds of the group's bytes.
    pub(super) fn bytes(&self) -> usize {
        protocol_bytes(&self.protocols)
            + self.assignment.len()
            + self.client_id.len()
            + self.instance_id.as_ref().map_or(0, |instance| instance.len())
    }

    /// Its metadata for one protocol; empty if it does not know that one.
    pub(super) fn metadata(&self, protocol: &str) -> Bytes {
        let known = self.protocols.iter().find(|known| *known.name == *protocol);
        known.map_or_else(Bytes::new, |known| known.metadata.clone())
    }

    /// The first of its protocols that is among `candidates`.
    pub(super) fn vote(&self, candidates: &[Arc<str>]) -> Option<&Arc<str>> {
        self.protocols.iter().map(|protocol| &protocol.name).find(|name| candidates.contains(name))
    }

    /// The member is alive: its session begins anew.
    pub(super) fn touch(&mut self, now: Instant) {
        self.deadline = now.checked_add(self.session_timeout);
    }

    /// When its session ends. One that waits for us cannot prove itself alive, so it need not;
    /// but a new one is given up at last.
    pub(super) fn expires(&self) -> Option<Instant> {
        if !self.is_new && (self.joining.is_some() || self.syncing.is_some()) {
            return None;
        }
        self.deadline
    }

    /// Sends away whatever of it is parked.
    pub(super) fn answer_parked(&mut self, id: &MemberId, error: ErrorCode, out: &mut Decision) {
        if let Some(token) = self.joining.take() {
            out.answer(token, Answer::Join(JoinAnswer::refused(error, id.clone())));
        }
        if let Some(token) = self.syncing.take() {
            out.answer(token, Answer::Sync(SyncAnswer::refused(error)));
        }
    }
}

fn protocol_bytes(protocols: &[Protocol]) -> usize {
    protocols.iter().map(|protocol| protocol.name.len() + protocol.metadata.len()).sum()
}

impl MemberSetup<'_> {
    /// What it would hold of the group's bytes.
    pub(super) fn bytes(&self) -> usize {
        protocol_bytes(self.protocols) + self.client_id.len() + self.instance_id.map_or(0, str::len)
    }
}

/// What a JoinGroup says about its sender.
#[derive(Debug, Clone, Copy)]
pub(crate) struct MemberSetup<'a> {
    /// Its `group.instance.id`.
    pub(crate) instance_id: Option<&'a str>,
    /// The client's own name.
    pub(crate) client_id: &'a str,
    /// Where it comes from, in Kafka's form `/10.0.0.7`.
    pub(crate) client_host: &'a str,
    /// How long it may take to come back when the group is put together anew.
    pub(crate) rebalance_timeout_ms: i32,
    /// How long it may be silent.
    pub(crate) session_timeout_ms: i32,
    /// In its order of preference.
    pub(crate) protocols: &'a [Protocol],
}
