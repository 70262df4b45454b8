//! Groups and offsets of one shard: what runs is what the log says.
#![allow(clippy::disallowed_methods, reason = "a test's clock starts somewhere")]

use std::time::Duration;

use bytes::Bytes;
use ottla_protocol::Uuid;
use proptest::prelude::*;

use super::*;
use crate::state::group::{LeaveMember, MemberSetup, Protocol};
use crate::state::group_records::{decode, encode};

#[test]
fn a_group_is_found_where_kafka_looks_for_it() {
    // From Kafka's own `Utils.abs(id.hashCode()) % 50`.
    for (group, partition) in [("grp", 29), ("", 0), ("flights", 9), ("größe-π", 20)] {
        assert_eq!(partition_of(group, 50), partition, "{group}");
    }
    // Its hash is i32::MIN, which has no absolute value.
    assert_eq!(partition_of("polygenelubricants", 50), 0);
}

fn now() -> Now {
    Now { at: Instant::now(), ms: 1_700_000_000_000 }
}

fn commit(groups: &mut Groups, metadata: &str, now: Now) -> (Turn, Vec<ErrorCode>) {
    let offset = |index, metadata| CommitOffset {
        partition: PartitionName { topic: Arc::from("t"), index },
        topic_id: Uuid([7; 16]),
        offset: 42,
        leader_epoch: 3,
        metadata,
    };
    let request = CommitRequest {
        member_id: "",
        instance_id: None,
        generation: -1,
        retention_ms: None,
        offsets: vec![offset(0, metadata), offset(1, "")],
    };
    let (turn, result) = groups.commit("g", &request, now);
    (turn, result.unwrap())
}

#[test]
fn metadata_that_is_too_long_refuses_its_offset_alone() {
    let mut groups = Groups::new(GroupLimits::default());
    let (turn, codes) = commit(&mut groups, &"x".repeat(4096), now());
    assert_eq!(codes, [ErrorCode::NONE, ErrorCode::NONE]);
    assert_eq!(turn.records.len(), 2);
    let (turn, codes) = commit(&mut groups, &"x".repeat(4097), now());
    assert_eq!(codes, [ErrorCode::OFFSET_METADATA_TOO_LARGE, ErrorCode::NONE]);
    assert_eq!(turn.records.len(), 1);
}

#[test]
fn offsets_of_a_deleted_topic_go_with_it() {
    let mut groups = Groups::new(GroupLimits::default());
    commit(&mut groups, "", now());
    let turn = groups.forget_topic("t");
    assert_eq!(turn.records.len(), 2);
    assert!(!groups.offsets().has("g"));
    assert!(groups.forget_topic("t").records.is_empty());
}

#[test]
fn offsets_without_a_group_go_when_nobody_committed_for_the_retention() {
    let limits = GroupLimits { offsets_retention_ms: 1_000, ..GroupLimits::default() };
    let mut groups = Groups::new(limits);
    let start = now();
    commit(&mut groups, "", start);
    let later = |ms| Now { ms: start.ms + ms, ..start };
    assert!(groups.expire(later(999)).records.is_empty());
    assert_eq!(groups.expire(later(1_000)).records.len(), 2);
}

#[test]
fn an_empty_group_goes_with_its_last_offset() {
    let limits = GroupLimits { offsets_retention_ms: 1_000, ..GroupLimits::default() };
    let mut world = World::new(limits);
    world.step(&Op::Join { client: 0, version: 3, is_static: false, topics: 0 });
    world.step(&Op::Sync { client: 0 });
    world.step(&Op::Commit { client: 0, index: 0, offset: 5 });
    world.now.ms += 10_000;
    assert!(world.groups.expire(world.now).records.is_empty(), "it is at work");
    world.step(&Op::Leave { client: 0 });
    world.now.ms += 1_000;
    let turn = world.groups.expire(world.now);
    assert_eq!(turn.records.len(), 2, "the offset, then the group: {:?}", turn.records);
    assert!(matches!(turn.records[1], GroupRecord::Group { value: None, .. }));
    assert!(world.groups.stored().is_empty());
}

#[test]
fn an_empty_group_without_offsets_goes_after_the_retention() {
    let limits = GroupLimits { offsets_retention_ms: 1_000, ..GroupLimits::default() };
    let mut world = World::new(limits);
    world.step(&Op::Join { client: 0, version: 3, is_static: false, topics: 0 });
    world.step(&Op::Sync { client: 0 });
    world.now.ms += 10_000;
    world.step(&Op::Leave { client: 0 });
    world.now.ms += 999;
    assert!(world.groups.expire(world.now).records.is_empty(), "its members may come back");
    world.now.ms += 1;
    let turn = world.groups.expire(world.now);
    assert!(matches!(turn.records[..], [GroupRecord::Group { value: None, .. }]));
    assert!(world.groups.stored().is_empty());
}

/// Kafka: what members read is known of consumers alone.
#[test]
fn no_offset_is_deleted_while_members_of_another_kind_are_in_the_group() {
    let mut world = World::new(GroupLimits::default());
    commit(&mut world.groups, "", now());
    let protocols = [Protocol { name: Arc::from("compatible"), metadata: Bytes::new() }];
    let request = JoinRequest {
        member_id: "",
        member: MemberSetup {
            instance_id: None,
            client_id: "c",
            client_host: "/127.0.0.1",
            rebalance_timeout_ms: 15_000,
            session_timeout_ms: 10_000,
            protocols: &protocols,
        },
        protocol_type: "connect",
        id_required: false,
        can_skip_assignment: false,
        fresh: "1",
    };
    let token = world.token(0);
    world.groups.join(token, "g", &request, world.now);
    let partitions = [PartitionName { topic: Arc::from("t"), index: 0 }];
    let refused = world.groups.delete_offsets("g", &partitions).err();
    assert_eq!(refused, Some(ErrorCode::NON_EMPTY_GROUP));
    assert!(world.groups.offsets().get("g", &partitions[0]).is_some());
}

/// One thing that happens to a shard.
#[derive(Debug, Clone)]
enum Op {
    Join { client: usize, version: i16, is_static: bool, topics: u8 },
    Sync { client: usize },
    Heartbeat { client: usize },
    Leave { client: usize },
    Commit { client: usize, index: i32, offset: i64 },
    Pass { ms: u64 },
    Expire,
}

fn op() -> impl Strategy<Value = Op> {
    let client = 0..4_usize;
    prop_oneof![
        4 => (client.clone(), 3..10_i16, any::<bool>(), 0..2_u8).prop_map(
            |(client, version, is_static, topics)| Op::Join { client, version, is_static, topics }
        ),
        4 => client.clone().prop_map(|client| Op::Sync { client }),
        1 => client.clone().prop_map(|client| Op::Heartbeat { client }),
        1 => client.clone().prop_map(|client| Op::Leave { client }),
        2 => (client, 0..3_i32, 0..100_i64)
            .prop_map(|(client, index, offset)| Op::Commit { client, index, offset }),
        2 => (0..20_000_u64).prop_map(|ms| Op::Pass { ms }),
        1 => Just(Op::Expire),
    ]
}

/// What a client believes.
#[derive(Debug, Default, Clone)]
struct Client {
    id: Arc<str>,
    generation: i32,
    leads: Vec<Arc<str>>,
    is_static: bool,
}

/// A shard, its log and four clients.
struct World {
    groups: Groups,
    log: Vec<GroupRecord>,
    now: Now,
    clients: Vec<Client>,
    asked: HashMap<Token, usize>,
    tokens: u64,
    drawn: u64,
}

const GROUP: &str = "g";

impl World {
    fn new(limits: GroupLimits) -> Self {
        Self {
            groups: Groups::new(limits),
            log: Vec::new(),
            now: now(),
            clients: vec![Client::default(); 4],
            asked: HashMap::default(),
            tokens: 0,
            drawn: 0,
        }
    }

    fn token(&mut self, client: usize) -> Token {
        self.tokens += 1;
        self.asked.insert(Token(self.tokens), client);
        Token(self.tokens)
    }

    fn take(&mut self, turn: Turn) {
        self.log.extend(turn.records);
        for (token, answer) in turn.answers {
            let client = self.asked.remove(&token).expect("answered once, and asked before");
            let client = &mut self.clients[client];
            let error = match &answer {
                Answer::Join(join) => join.error,
                Answer::Sync(sync) => sync.error,
                Answer::Heartbeat(error) => *error,
                Answer::Leave(_) => ErrorCode::NONE,
            };
            if let Answer::Join(join) = answer
                && (error == ErrorCode::NONE || error == ErrorCode::MEMBER_ID_REQUIRED)
            {
                client.id = join.member_id.clone();
                client.generation = join.generation;
                client.leads = join.members.into_iter().map(|member| member.id).collect();
            } else if error == ErrorCode::UNKNOWN_MEMBER_ID
                || error == ErrorCode::FENCED_INSTANCE_ID
            {
                client.id = Arc::from("");
            }
        }
    }

    fn step(&mut self, op: &Op) {
        let turn = match op {
            Op::Join { client, version, is_static, topics } => {
                self.join(*client, *version, *is_static, *topics)
            }
            Op::Sync { client } => self.sync(*client),
            Op::Heartbeat { client } => {
                let token = self.token(*client);
                let one = self.clients[*client].clone();
                let instance = format!("i{client}");
                let instance = one.is_static.then_some(instance.as_str());
                self.groups.heartbeat(token, GROUP, (&one.id, instance), one.generation, self.now)
            }
            Op::Leave { client } => {
                let token = self.token(*client);
                let id = self.clients[*client].id.clone();
                let members = vec![LeaveMember { member_id: &id, instance_id: None }];
                self.groups.leave(token, GROUP, &LeaveRequest { members }, self.now)
            }
            Op::Commit { client, index, offset } => self.commit(*client, *index, *offset),
            Op::Pass { ms } => {
                self.now.at += Duration::from_millis(*ms);
                self.now.ms += i64::try_from(*ms).unwrap();
                self.groups.handle_timeout(self.now)
            }
            Op::Expire => self.groups.expire(self.now),
        };
        self.take(turn);
    }

    fn join(&mut self, client: usize, version: i16, is_static: bool, topics: u8) -> Turn {
        let token = self.token(client);
        self.drawn += 1;
        let instance = format!("i{client}");
        let one = &mut self.clients[client];
        one.is_static = is_static;
        let id = one.id.clone();
        let protocols =
            [Protocol { name: Arc::from("range"), metadata: Bytes::from(vec![topics]) }];
        let request = JoinRequest {
            member_id: &id,
            member: MemberSetup {
                instance_id: is_static.then_some(instance.as_str()),
                client_id: "c",
                client_host: "/127.0.0.1",
                rebalance_timeout_ms: 15_000,
                session_timeout_ms: 10_000,
                protocols: &protocols,
            },
            protocol_type: "consumer",
            id_required: version >= 4,
            can_skip_assignment: version >= 9,
            fresh: &self.drawn.to_string(),
        };
        self.groups.join(token, GROUP, &request, self.now)
    }

    fn sync(&mut self, client: usize) -> Turn {
        let token = self.token(client);
        let one = self.clients[client].clone();
        let given = one.leads.iter().map(|id| (&**id, Bytes::from(format!("for {id}"))));
        let request = SyncRequest {
            member_id: &one.id,
            instance_id: None,
            generation: one.generation,
            protocol_type: None,
            protocol: None,
            assignments: given.collect(),
        };
        self.groups.sync(token, GROUP, &request, self.now)
    }

    fn commit(&mut self, client: usize, index: i32, offset: i64) -> Turn {
        let one = self.clients[client].clone();
        let partition = PartitionName { topic: Arc::from("t"), index };
        let (topic_id, leader_epoch, metadata) = (Uuid::ZERO, -1, "m");
        let request = CommitRequest {
            member_id: &one.id,
            instance_id: None,
            generation: one.generation,
            retention_ms: None,
            offsets: vec![CommitOffset { partition, topic_id, offset, leader_epoch, metadata }],
        };
        self.groups.commit(GROUP, &request, self.now).0
    }

    /// The shard that the log alone would give.
    fn replayed(&self) -> Groups {
        let mut groups = Groups::new(GroupLimits::default());
        for record in &self.log {
            let raw = encode(record).unwrap();
            let read = decode(Some(&raw.key), raw.value.as_deref()).unwrap().unwrap();
            assert_eq!(&read, record);
            groups.replay(&read);
        }
        groups
    }
}

proptest! {
    #[test]
    fn the_log_replayed_is_the_shard_that_runs(ops in prop::collection::vec(op(), 1..80)) {
        let retention = GroupLimits { offsets_retention_ms: 60_000, ..GroupLimits::default() };
        let mut world = World::new(retention);
        for op in &ops {
            world.step(op);
            let replayed = world.replayed();
            prop_assert_eq!(replayed.stored(), world.groups.stored());
            prop_assert_eq!(replayed.offsets(), world.groups.offsets());
        }
        // Nothing is forgotten: what waits is answered when the shard goes.
        let answers = world.groups.abandon(ErrorCode::NOT_COORDINATOR);
        world.take(Turn { records: Vec::new(), answers });
        prop_assert!(world.asked.is_empty(), "never answered: {:?}", world.asked);
    }
}
