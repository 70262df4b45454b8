//! One classic consumer group: who is in it, which generation it has, and who waits for whom.
//!
//! A request is decided into records for the log and answers that go out once those records are
//! committed. What survives a restart is changed by [`Group::replay`] alone, in the running broker
//! just as when the log is read back; parked requests and deadlines are this process's own.
//!
//! The rules are those of Kafka's `ClassicGroup` and `GroupMetadataManager`.

mod join;
mod leave;
mod member;
mod rebalance;
mod sync;
#[cfg(test)]
mod tests;
mod view;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use ottla_protocol::{ErrorCode, left_out};

pub(crate) use self::join::JoinRequest;
pub(crate) use self::leave::{LeaveMember, LeaveRequest};
use self::member::Member;
pub(crate) use self::member::{MemberId, MemberSetup, Protocol};
pub(crate) use self::sync::SyncRequest;
pub(crate) use self::view::GroupView;

/// The moment a request is decided: one clock for deadlines, one for records.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Now {
    /// Monotonic.
    pub(crate) at: Instant,
    /// Milliseconds since the epoch.
    pub(crate) ms: i64,
}

/// A request that waits for its answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Token(pub(crate) u64);

/// What groups may ask for.
#[derive(Debug, Clone, Copy)]
pub(crate) struct GroupLimits {
    /// Kafka: `group.min.session.timeout.ms`.
    pub(crate) session_timeout_min_ms: i32,
    /// Kafka: `group.max.session.timeout.ms`.
    pub(crate) session_timeout_max_ms: i32,
    /// Kafka: `group.max.size`.
    pub(crate) members_max: usize,
    /// Bytes of a group's members, all that they brought and were given: `group.max.bytes`.
    pub(crate) bytes_max: usize,
    /// Kafka: `group.initial.rebalance.delay.ms`.
    pub(crate) initial_delay: Duration,
    /// Longest metadata string of a committed offset. Kafka: `offset.metadata.max.bytes`.
    pub(crate) offset_metadata_max: usize,
    /// How long offsets of an empty group are kept. Kafka: `offsets.retention.minutes`.
    pub(crate) offsets_retention_ms: i64,
    /// How many groups there may be: `max.groups`.
    pub(crate) groups_max: usize,
}

impl Default for GroupLimits {
    fn default() -> Self {
        Self {
            session_timeout_min_ms: 6_000,
            session_timeout_max_ms: 1_800_000,
            members_max: 10_000,
            bytes_max: 16 * 1024 * 1024,
            initial_delay: Duration::ZERO,
            offset_metadata_max: 4096,
            offsets_retention_ms: 7 * 24 * 3_600_000,
            groups_max: 100_000,
        }
    }
}

/// Where a group is in its life.
#[derive(Debug)]
enum Phase {
    /// Nobody is in it.
    Empty,
    /// Collects the joins of all members, until the deadline at most. While a first generation is
    /// delayed, each new member moves the deadline back, up to this last moment.
    Preparing { deadline: Instant, delayed_until: Option<Instant> },
    /// All members know the generation; the leader's assignment is awaited.
    Completing { unsynced: Unsynced },
    /// Everybody has an assignment to work on.
    Stable { unsynced: Option<Unsynced> },
}

/// Members that have not asked for their assignment of this generation yet.
#[derive(Debug)]
struct Unsynced {
    /// When those that still have not are put out of the group.
    deadline: Instant,
    members: BTreeSet<MemberId>,
}

/// The name of a phase, as Kafka's tools print it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PhaseName {
    /// See [`Phase::Empty`].
    Empty,
    /// See [`Phase::Preparing`].
    PreparingRebalance,
    /// See [`Phase::Completing`].
    CompletingRebalance,
    /// See [`Phase::Stable`].
    Stable,
}

/// A classic group.
#[derive(Debug)]
pub(crate) struct Group {
    id: Arc<str>,
    protocol_type: Option<Arc<str>>,
    generation: i32,
    /// The protocol that this generation's members agreed on.
    protocol: Option<Arc<str>>,
    leader: Option<MemberId>,
    members: BTreeMap<MemberId, Member>,
    /// Which member holds each `group.instance.id`.
    instances: BTreeMap<Arc<str>, MemberId>,
    /// Ids given out with MEMBER_ID_REQUIRED, until when they are kept.
    pending: BTreeMap<MemberId, Instant>,
    phase: Phase,
    /// What the log holds of this group.
    stored: Option<GroupValue>,
    initial_delay: Duration,
}

/// A group as its record holds it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct GroupValue {
    /// `consumer`, `connect`, …; empty if there never was a member.
    pub(crate) protocol_type: Arc<str>,
    /// The generation.
    pub(crate) generation: i32,
    /// The agreed protocol; none without members.
    pub(crate) protocol: Option<Arc<str>>,
    /// The leader's id; none without members.
    pub(crate) leader: Option<MemberId>,
    /// When the group came into this state, ms since the epoch; -1 if an old record does not say.
    pub(crate) state_ms: i64,
    /// The members.
    pub(crate) members: Vec<MemberValue>,
}

/// A member as the group's record holds it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct MemberValue {
    /// Its id.
    pub(crate) id: MemberId,
    /// Its `group.instance.id`.
    pub(crate) instance_id: Option<Arc<str>>,
    /// The client's own name.
    pub(crate) client_id: Arc<str>,
    /// The address it came from, in Kafka's form `/10.0.0.7`.
    pub(crate) client_host: Arc<str>,
    /// Milliseconds.
    pub(crate) rebalance_timeout_ms: i32,
    /// Milliseconds.
    pub(crate) session_timeout_ms: i32,
    /// Its metadata for the agreed protocol.
    pub(crate) subscription: Bytes,
    /// What the leader gave it.
    pub(crate) assignment: Bytes,
}

/// What a group's request leads to.
#[derive(Debug, Default)]
pub(crate) struct Decision {
    /// To be appended, in this order; already replayed.
    pub(crate) groups: Vec<GroupValue>,
    /// To be sent once everything decided so far is committed.
    pub(crate) answers: Vec<(Token, Answer)>,
}

impl Decision {
    fn answer(&mut self, token: Token, answer: Answer) {
        self.answers.push((token, answer));
    }
}

/// An answer to one request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Answer {
    /// To JoinGroup.
    Join(JoinAnswer),
    /// To SyncGroup.
    Sync(SyncAnswer),
    /// To Heartbeat.
    Heartbeat(ErrorCode),
    /// To LeaveGroup: an error for the whole, or one code a member asked about.
    Leave(Result<Vec<LeaveOutcome>, ErrorCode>),
}

/// What became of one member that was to leave.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct LeaveOutcome {
    /// The member id as asked.
    pub(crate) member_id: Arc<str>,
    /// The instance id as asked.
    pub(crate) instance_id: Option<Arc<str>>,
    /// NONE if it is out.
    pub(crate) error: ErrorCode,
}

/// The answer to a JoinGroup.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct JoinAnswer {
    /// NONE if the member is in.
    pub(crate) error: ErrorCode,
    /// The generation, -1 with an error.
    pub(crate) generation: i32,
    /// `consumer`, …
    pub(crate) protocol_type: Option<Arc<str>>,
    /// The agreed protocol.
    pub(crate) protocol: Option<Arc<str>>,
    /// The leader's id.
    pub(crate) leader: Arc<str>,
    /// Whether the leader keeps the assignment that there is.
    pub(crate) skip_assignment: bool,
    /// The member's id, possibly a new one.
    pub(crate) member_id: MemberId,
    /// All members, for the leader alone.
    pub(crate) members: Vec<JoinedMember>,
}

impl JoinAnswer {
    /// The answer that only carries an error.
    pub(crate) fn refused(error: ErrorCode, member_id: MemberId) -> Self {
        Self {
            error,
            generation: -1,
            protocol_type: None,
            protocol: None,
            leader: Arc::from(""),
            skip_assignment: false,
            member_id,
            members: Vec::new(),
        }
    }
}

/// A member as the leader is told of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct JoinedMember {
    /// Its id.
    pub(crate) id: MemberId,
    /// Its `group.instance.id`.
    pub(crate) instance_id: Option<Arc<str>>,
    /// Its metadata for the agreed protocol.
    pub(crate) metadata: Bytes,
}

/// The answer to a SyncGroup.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct SyncAnswer {
    /// NONE if the assignment is there.
    pub(crate) error: ErrorCode,
    /// `consumer`, …
    pub(crate) protocol_type: Option<Arc<str>>,
    /// The agreed protocol.
    pub(crate) protocol: Option<Arc<str>>,
    /// What the leader gave this member.
    pub(crate) assignment: Bytes,
}

impl SyncAnswer {
    /// The answer that only carries an error.
    pub(crate) fn refused(error: ErrorCode) -> Self {
        Self { error, protocol_type: None, protocol: None, assignment: Bytes::new() }
    }
}

impl Group {
    /// A group that nobody has joined yet, which waits so long for company when the first one does.
    pub(crate) fn new(id: Arc<str>, initial_delay: Duration) -> Self {
        Self {
            id,
            protocol_type: None,
            generation: 0,
            protocol: None,
            leader: None,
            members: BTreeMap::new(),
            instances: BTreeMap::new(),
            pending: BTreeMap::new(),
            phase: Phase::Empty,
            stored: None,
            initial_delay,
        }
    }

    /// Where the group is in its life.
    pub(crate) fn phase(&self) -> PhaseName {
        match self.phase {
            Phase::Empty => PhaseName::Empty,
            Phase::Preparing { .. } => PhaseName::PreparingRebalance,
            Phase::Completing { .. } => PhaseName::CompletingRebalance,
            Phase::Stable { .. } => PhaseName::Stable,
        }
    }

    /// What the log holds of this group.
    pub(crate) fn stored(&self) -> Option<&GroupValue> {
        self.stored.as_ref()
    }

    /// Whether nothing would be lost by forgetting the group.
    pub(crate) fn is_forgettable(&self) -> bool {
        self.stored.is_none() && self.members.is_empty() && self.pending.is_empty()
    }

    /// Takes over what a record says. Members that are known keep their place and their timers.
    pub(crate) fn replay(&mut self, value: &GroupValue) {
        let mut members = BTreeMap::new();
        self.instances.clear();
        for stored in &value.members {
            let known = self.members.remove(&stored.id);
            if let Some(instance) = &stored.instance_id {
                self.instances.insert(instance.clone(), stored.id.clone());
            }
            let member = Member::replayed(stored, value.protocol.as_ref(), known);
            members.insert(stored.id.clone(), member);
        }
        self.members = members;
        self.protocol_type = Some(value.protocol_type.clone()).filter(|kind| !kind.is_empty());
        self.generation = value.generation;
        self.protocol.clone_from(&value.protocol);
        self.leader.clone_from(&value.leader);
        let unsynced = match std::mem::replace(&mut self.phase, Phase::Empty) {
            Phase::Completing { unsynced } | Phase::Stable { unsynced: Some(unsynced) } => {
                Some(unsynced).filter(|unsynced| !unsynced.members.is_empty())
            }
            _ => None,
        };
        if !self.members.is_empty() {
            self.phase = Phase::Stable { unsynced };
        }
        self.stored = Some(value.clone());
    }

    /// Starts the members' session timers after the log was read back.
    pub(crate) fn handle_loaded(&mut self, now: Now) {
        for member in self.members.values_mut() {
            member.touch(now.at);
        }
    }

    /// When [`Group::handle_timeout`] has something to do, if nothing else happens.
    pub(crate) fn poll_timeout(&self) -> Option<Instant> {
        let phase = match &self.phase {
            Phase::Preparing { deadline, .. } => Some(*deadline),
            Phase::Completing { unsynced } | Phase::Stable { unsynced: Some(unsynced) } => {
                Some(unsynced.deadline)
            }
            Phase::Empty | Phase::Stable { unsynced: None } => None,
        };
        let members = self.members.values().filter_map(Member::expires);
        members.chain(self.pending.values().copied()).chain(phase).min()
    }

    /// Gives up all parked requests, because the group is no longer served here.
    pub(crate) fn abandon(&mut self, error: ErrorCode, out: &mut Decision) {
        for (id, member) in &mut self.members {
            member.answer_parked(id, error, out);
        }
    }

    /// Appends what the group now is and takes it over.
    fn store(&mut self, value: GroupValue, out: &mut Decision) {
        self.replay(&value);
        out.groups.push(value);
    }

    /// The group as a record, with each member's assignment as `assigned` tells it.
    fn value(&self, now: Now, assigned: impl Fn(&MemberId, &Member) -> Bytes) -> GroupValue {
        let protocol = self.protocol.as_deref().unwrap_or("");
        let members = self.members.iter().map(|(id, member)| MemberValue {
            id: id.clone(),
            instance_id: member.instance_id.clone(),
            client_id: member.client_id.clone(),
            client_host: member.client_host.clone(),
            rebalance_timeout_ms: millis(member.rebalance_timeout),
            session_timeout_ms: millis(member.session_timeout),
            subscription: member.metadata(protocol),
            assignment: assigned(id, member),
        });
        GroupValue {
            protocol_type: self.protocol_type.clone().unwrap_or_else(|| Arc::from("")),
            generation: self.generation,
            protocol: self.protocol.clone(),
            leader: self.leader.clone(),
            state_ms: now.ms,
            members: members.collect(),
        }
    }

    /// Whether a request comes from a member of this group, under its present id.
    fn check_member(&self, member_id: &str, instance_id: Option<&str>) -> Result<(), ErrorCode> {
        if let Some(instance) = instance_id {
            // KIP-345: of two processes with one instance id, the older one is told to stop.
            let Some(holder) = self.instances.get(instance) else {
                return Err(ErrorCode::UNKNOWN_MEMBER_ID);
            };
            if **holder != *member_id && !left_out("fenced_instance") {
                return Err(ErrorCode::FENCED_INSTANCE_ID);
            }
        }
        if self.members.contains_key(member_id) {
            Ok(())
        } else {
            Err(ErrorCode::UNKNOWN_MEMBER_ID)
        }
    }

    /// Whether a member may commit offsets now; a member that may has shown that it is alive.
    ///
    /// A generation below zero without a member is a commit without group use: allowed while
    /// nobody is in the group.
    pub(crate) fn check_commit(
        &mut self,
        member_id: &str,
        instance_id: Option<&str>,
        generation: i32,
        now: Now,
    ) -> Result<(), ErrorCode> {
        let empty = matches!(self.phase, Phase::Empty);
        if generation < 0 && empty {
            return Ok(());
        }
        if generation < 0 && member_id.is_empty() && instance_id.is_none() {
            return Err(ErrorCode::UNKNOWN_MEMBER_ID);
        }
        self.check_member(member_id, instance_id)?;
        if generation != self.generation {
            return Err(ErrorCode::ILLEGAL_GENERATION);
        }
        if matches!(self.phase, Phase::Completing { .. }) {
            return Err(ErrorCode::REBALANCE_IN_PROGRESS);
        }
        if let Some(member) = self.members.get_mut(member_id) {
            member.touch(now.at);
        }
        Ok(())
    }
}

/// A duration as the wire and the records carry it.
fn millis(duration: Duration) -> i32 {
    i32::try_from(duration.as_millis()).unwrap_or(i32::MAX)
}

/// A duration from the wire; a negative one is none at all.
fn duration(ms: i32) -> Duration {
    Duration::from_millis(u64::try_from(ms).unwrap_or(0))
}
