//! What a group answers in each of its states, request by request.
#![allow(clippy::disallowed_methods, reason = "a test's clock starts somewhere")]

mod rows;
mod scenarios;
mod table;

use std::collections::HashMap;

use super::*;
use crate::state::groups::{CommitOffset, CommitRequest, GroupRecord, Groups, Turn};
use crate::state::offsets::PartitionName;

/// The group of all these tests.
const GROUP: &str = "flights";

/// A shard of groups with a clock, a log and the answers given so far.
pub(crate) struct Scene {
    pub(crate) groups: Groups,
    pub(crate) now: Now,
    pub(crate) log: Vec<GroupRecord>,
    answers: HashMap<Token, Answer>,
    tokens: u64,
}

/// A JoinGroup, with what tests vary.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Join {
    pub(crate) member_id: &'static str,
    pub(crate) client: &'static str,
    pub(crate) instance: Option<&'static str>,
    pub(crate) version: i16,
    pub(crate) session_ms: i32,
    pub(crate) kind: &'static str,
    /// Names, most preferred first; the metadata of each is the client's name and `topics`.
    pub(crate) protocols: &'static [&'static str],
    pub(crate) topics: &'static str,
    pub(crate) fresh: &'static str,
}

/// A member's first JoinGroup, in a version that needs no second one.
pub(crate) const NEW: Join = Join {
    member_id: "",
    client: "a",
    instance: None,
    version: 3,
    session_ms: 10_000,
    kind: "consumer",
    protocols: &["range"],
    topics: "t",
    fresh: "0",
};

/// The first JoinGroup of a client.
pub(crate) const fn new(client: &'static str) -> Join {
    Join { client, ..NEW }
}

/// The JoinGroup of a client that has its id.
pub(crate) const fn again(client: &'static str, member_id: &'static str) -> Join {
    Join { client, member_id, version: 9, ..NEW }
}

impl Scene {
    pub(crate) fn new() -> Self {
        Self::with(GroupLimits::default())
    }

    pub(crate) fn with(limits: GroupLimits) -> Self {
        Self {
            groups: Groups::new(limits),
            now: Now { at: Instant::now(), ms: 1_700_000_000_000 },
            log: Vec::new(),
            answers: HashMap::new(),
            tokens: 0,
        }
    }

    pub(crate) fn token(&mut self) -> Token {
        self.tokens += 1;
        Token(self.tokens)
    }

    pub(crate) fn take(&mut self, turn: Turn) {
        self.log.extend(turn.records);
        for (token, answer) in turn.answers {
            let before = self.answers.insert(token, answer);
            assert_eq!(before, None, "{token:?} is answered twice");
        }
    }

    /// How many requests were asked and answered.
    pub(crate) fn counts(&self) -> (u64, usize) {
        (self.tokens, self.answers.len())
    }

    pub(crate) fn join(&mut self, join: Join) -> Token {
        let token = self.token();
        let metadata = Bytes::from(format!("{}:{}", join.client, join.topics));
        let protocols = join.protocols.iter();
        let protocols: Vec<_> = protocols
            .map(|name| Protocol { name: Arc::from(*name), metadata: metadata.clone() })
            .collect();
        let request = JoinRequest {
            member_id: join.member_id,
            member: MemberSetup {
                instance_id: join.instance,
                client_id: join.client,
                client_host: "/127.0.0.1",
                rebalance_timeout_ms: 60_000,
                session_timeout_ms: join.session_ms,
                protocols: &protocols,
            },
            protocol_type: join.kind,
            id_required: join.version >= 4,
            can_skip_assignment: join.version >= 9,
            fresh: join.fresh,
        };
        let turn = self.groups.join(token, GROUP, &request, self.now);
        self.take(turn);
        token
    }

    /// Asks for the assignment; `given` is the leader's, as `member=partitions`.
    pub(crate) fn sync(&mut self, sync: Sync) -> Token {
        let token = self.token();
        let assignments = sync.given.iter().filter_map(|pair| pair.split_once('='));
        let assignments = assignments.map(|(id, what)| (id, Bytes::from_static(what.as_bytes())));
        let request = SyncRequest {
            member_id: sync.member_id,
            instance_id: sync.instance,
            generation: sync.generation,
            protocol_type: sync.kind,
            protocol: sync.protocol,
            assignments: assignments.collect(),
        };
        let turn = self.groups.sync(token, GROUP, &request, self.now);
        self.take(turn);
        token
    }

    pub(crate) fn heartbeat(
        &mut self,
        member_id: &str,
        instance: Option<&str>,
        generation: i32,
    ) -> Token {
        let token = self.token();
        let member = (member_id, instance);
        let turn = self.groups.heartbeat(token, GROUP, member, generation, self.now);
        self.take(turn);
        token
    }

    pub(crate) fn leave(&mut self, members: &[(&str, Option<&str>)]) -> Token {
        let token = self.token();
        let members =
            members.iter().map(|&(member_id, instance_id)| LeaveMember { member_id, instance_id });
        let request = LeaveRequest { members: members.collect() };
        let turn = self.groups.leave(token, GROUP, &request, self.now);
        self.take(turn);
        token
    }

    pub(crate) fn commit(
        &mut self,
        member_id: &str,
        instance_id: Option<&str>,
        generation: i32,
    ) -> ErrorCode {
        let partition = PartitionName { topic: Arc::from("t"), index: 0 };
        let offset = CommitOffset {
            partition,
            topic_id: ottla_protocol::Uuid::ZERO,
            offset: 7,
            leader_epoch: -1,
            metadata: "",
        };
        let request = CommitRequest {
            member_id,
            instance_id,
            generation,
            retention_ms: None,
            offsets: vec![offset],
        };
        let (turn, result) = self.groups.commit(GROUP, &request, self.now);
        self.take(turn);
        result.map_or_else(|error| error, |codes| codes[0])
    }

    /// Lets time pass, doing all that becomes due on the way.
    pub(crate) fn pass(&mut self, ms: u64) {
        let end = self.now.at + Duration::from_millis(ms);
        loop {
            let due = self.groups.poll_timeout().filter(|due| *due <= end);
            let next = due.unwrap_or(end).max(self.now.at);
            let step = (next - self.now.at).as_millis();
            self.now = Now { at: next, ms: self.now.ms + i64::try_from(step).unwrap() };
            if due.is_none() {
                return;
            }
            let turn = self.groups.handle_timeout(self.now);
            self.take(turn);
            let again = self.groups.poll_timeout();
            assert!(again.is_none_or(|again| again > next), "a deadline is not done with");
        }
    }

    pub(crate) fn group(&self) -> &Group {
        self.groups.group(GROUP).expect("the group is there")
    }

    pub(crate) fn phase(&self) -> PhaseName {
        self.groups.group(GROUP).map_or(PhaseName::Empty, Group::phase)
    }

    /// The answer in a few words; `parked` if there is none yet.
    pub(crate) fn said(&self, token: Token) -> String {
        let Some(answer) = self.answers.get(&token) else { return "parked".to_owned() };
        match answer {
            Answer::Join(join) if join.error != ErrorCode::NONE => join.error.name().to_owned(),
            Answer::Join(join) => {
                let role = if *join.leader == *join.member_id { "leader" } else { "follower" };
                let skip = if join.skip_assignment { ", skip" } else { "" };
                let (id, count) = (&join.member_id, join.members.len());
                format!("{id} {role} in {}, told of {count}{skip}", join.generation)
            }
            Answer::Sync(sync) if sync.error != ErrorCode::NONE => sync.error.name().to_owned(),
            Answer::Sync(sync) => {
                format!("assigned {}", String::from_utf8_lossy(&sync.assignment))
            }
            Answer::Heartbeat(error) | Answer::Leave(Err(error)) => error.name().to_owned(),
            Answer::Leave(Ok(left)) => {
                let codes: Vec<_> = left.iter().map(|one| one.error.name()).collect();
                codes.join(" ")
            }
        }
    }

    pub(crate) fn joined(&self, token: Token) -> &JoinAnswer {
        match self.answers.get(&token) {
            Some(Answer::Join(join)) => join,
            other => panic!("no answer to a join: {other:?}"),
        }
    }
}

/// A SyncGroup, with what tests vary.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Sync {
    pub(crate) member_id: &'static str,
    pub(crate) instance: Option<&'static str>,
    pub(crate) generation: i32,
    pub(crate) kind: Option<&'static str>,
    pub(crate) protocol: Option<&'static str>,
    pub(crate) given: &'static [&'static str],
}

/// The SyncGroup of a member that does not lead.
pub(crate) const fn sync(member_id: &'static str, generation: i32) -> Sync {
    Sync {
        member_id,
        instance: None,
        generation,
        kind: Some("consumer"),
        protocol: Some("range"),
        given: &[],
    }
}

/// The states that the rows of the table begin in. Two members: `a-0` leads, `b-0` follows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Start {
    /// Nobody ever joined.
    Absent,
    /// Both have left again.
    Empty,
    /// Generation 2 ends: `c-0` has joined, the two have not come back yet.
    Preparing,
    /// Generation 2 has begun, nobody has synced.
    Completing,
    /// Generation 2 is at work.
    Stable,
    /// As stable, but the leader is static: `i-0` as instance `i`.
    Static,
}

pub(crate) fn scene(start: Start) -> Scene {
    let mut scene = Scene::new();
    if start == Start::Absent {
        return scene;
    }
    let (leader, first, second) = if start == Start::Static {
        let first = Join { instance: Some("i"), ..NEW };
        ("i-0", first, Join { member_id: "i-0", version: 9, ..first })
    } else {
        ("a-0", new("a"), again("a", "a-0"))
    };
    scene.join(first);
    scene.join(new("b"));
    scene.join(second);
    assert_eq!(scene.phase(), PhaseName::CompletingRebalance);
    if start == Start::Completing {
        return scene;
    }
    let given: &[_] =
        if start == Start::Static { &["i-0=p0", "b-0=p1"] } else { &["a-0=p0", "b-0=p1"] };
    scene.sync(Sync { given, ..sync(leader, 2) });
    scene.sync(sync("b-0", 2));
    assert_eq!(scene.phase(), PhaseName::Stable);
    match start {
        Start::Preparing => {
            scene.join(new("c"));
        }
        Start::Empty => {
            scene.leave(&[("a-0", None), ("b-0", None)]);
        }
        _ => {}
    }
    scene
}
