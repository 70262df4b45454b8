//! The clock on the wall jumps (KAFKA-19888): groups, their coordinator and fetches that wait follow
//! the other clock.
#![allow(clippy::disallowed_methods, reason = "the time of a paused runtime is the test's")]
#![allow(clippy::expect_used, reason = "a test that cannot go on ends here")]

mod wire;

use std::time::Duration;

use ottla_broker::sim::{SimBroker, SimDisk, SimWorld};
use ottla_protocol::ErrorCode;
use ottla_protocol::messages::fetch_request::{FetchPartition, FetchTopic};
use ottla_protocol::messages::join_group_request::JoinGroupRequestProtocol;
use ottla_protocol::messages::offset_commit_request::{
    OffsetCommitRequestPartition, OffsetCommitRequestTopic,
};
use ottla_protocol::messages::sync_group_request::SyncGroupRequestAssignment;
use ottla_protocol::messages::{
    DescribeGroupsRequest, DescribeGroupsResponse, FetchRequest, FetchResponse,
    FindCoordinatorRequest, FindCoordinatorResponse, HeartbeatRequest, HeartbeatResponse,
    JoinGroupRequest, JoinGroupResponse, OffsetCommitRequest, OffsetCommitResponse,
    SyncGroupRequest, SyncGroupResponse,
};
use tokio::time::{Instant, sleep};
use wire::{EARLIEST, STORED, Wire, in_world, start};

const NOW: i64 = 1_700_000_000_000;
const GROUP: &str = "flights";
const SESSION_MS: i32 = 6_000;
const MINUTES_BACK: i64 = -600_000;
const HOUR_AHEAD: i64 = 3_600_000;

/// A member of the group, and what its life came to so far: each step, and how long it took.
struct Story {
    wire: Wire,
    member: String,
    generation: i32,
    begin: Instant,
    steps: Vec<(&'static str, ErrorCode, Duration)>,
}

impl Story {
    fn note(&mut self, what: &'static str, code: ErrorCode) {
        self.steps.push((what, code, self.begin.elapsed()));
        self.begin = Instant::now();
    }

    async fn find(&mut self) {
        let request = FindCoordinatorRequest { key: GROUP, ..FindCoordinatorRequest::default() };
        let answer = self.wire.call(3, &request).await;
        self.note("find", answer.decode::<FindCoordinatorResponse<'_>>().error_code);
    }

    async fn join(&mut self, what: &'static str) {
        let member = self.member.clone();
        let request = JoinGroupRequest {
            group_id: GROUP,
            session_timeout_ms: SESSION_MS,
            rebalance_timeout_ms: 60_000,
            member_id: &member,
            protocol_type: "consumer",
            protocols: vec![JoinGroupRequestProtocol { name: "range", metadata: b"all" }],
            ..JoinGroupRequest::default()
        };
        let answer = self.wire.call(7, &request).await;
        let response = answer.decode::<JoinGroupResponse<'_>>();
        response.member_id.clone_into(&mut self.member);
        self.generation = response.generation_id;
        self.note(what, response.error_code);
    }

    async fn sync(&mut self) {
        let member = self.member.clone();
        let request = SyncGroupRequest {
            group_id: GROUP,
            generation_id: self.generation,
            member_id: &member,
            protocol_type: Some("consumer"),
            protocol_name: Some("range"),
            assignments: vec![SyncGroupRequestAssignment { member_id: &member, assignment: b"x" }],
            ..SyncGroupRequest::default()
        };
        let answer = self.wire.call(5, &request).await;
        self.note("sync", answer.decode::<SyncGroupResponse<'_>>().error_code);
    }

    async fn heartbeat(&mut self) -> ErrorCode {
        let member = self.member.clone();
        let request = HeartbeatRequest {
            group_id: GROUP,
            generation_id: self.generation,
            member_id: &member,
            ..HeartbeatRequest::default()
        };
        let answer = self.wire.call(4, &request).await;
        let code = answer.decode::<HeartbeatResponse>().error_code;
        self.note("heartbeat", code);
        code
    }

    async fn commit(&mut self) {
        let member = self.member.clone();
        let partition = OffsetCommitRequestPartition { committed_offset: 1, ..Default::default() };
        let request = OffsetCommitRequest {
            group_id: GROUP,
            generation_id_or_member_epoch: self.generation,
            member_id: &member,
            topics: vec![OffsetCommitRequestTopic {
                name: "orders",
                partitions: vec![partition],
                ..OffsetCommitRequestTopic::default()
            }],
            ..OffsetCommitRequest::default()
        };
        let answer = self.wire.call(8, &request).await;
        let response = answer.decode::<OffsetCommitResponse<'_>>();
        self.note("commit", response.topics[0].partitions[0].error_code);
    }

    /// A fetch that waits half a second for what does not come; `moved` moves the clock meanwhile.
    async fn fetch(&mut self, moved: impl FnOnce()) {
        let request = FetchRequest {
            replica_id: -1,
            max_wait_ms: 500,
            min_bytes: 1,
            max_bytes: 1 << 20,
            topics: vec![FetchTopic {
                topic: "orders",
                partitions: vec![FetchPartition {
                    partition_max_bytes: 1 << 20,
                    ..FetchPartition::default()
                }],
                ..FetchTopic::default()
            }],
            ..FetchRequest::default()
        };
        self.wire.send(12, &request);
        sleep(Duration::from_millis(100)).await;
        moved();
        let answer = self.wire.receive(12).await;
        self.note("fetch", answer.decode::<FetchResponse<'_>>().error_code);
    }

    /// Waits until the group has lost its member, who sends no heartbeats any more.
    async fn expire(&mut self) {
        loop {
            let request =
                DescribeGroupsRequest { groups: vec![GROUP], ..DescribeGroupsRequest::default() };
            let answer = self.wire.call(5, &request).await;
            let response = answer.decode::<DescribeGroupsResponse<'_>>();
            if response.groups[0].group_state == "Empty" {
                self.note("expire", response.groups[0].error_code);
                return;
            }
            sleep(Duration::from_millis(100)).await;
        }
    }
}

/// A group's life, through a broker's restart; the clock on the wall jumps by `jump` at each step.
async fn life(world: SimWorld, jump: i64) -> Vec<(&'static str, ErrorCode, Duration)> {
    let disk = SimDisk::default();
    let options = &[("offsets.topic.num.partitions", "1")];
    let mut broker = start(&disk, options);
    let wire = Wire::connect(&mut broker);
    let (member, generation) = (String::new(), -1);
    let mut story = Story { wire, member, generation, begin: Instant::now(), steps: Vec::new() };
    story.wire.create("orders", &[]).await;
    story.note("create", ErrorCode::NONE);
    let jumps = |story: Story| {
        world.move_wall(jump);
        story
    };
    story.find().await;
    story = jumps(story);
    story.join("join without an id").await;
    story = jumps(story);
    story.join("join").await;
    story = jumps(story);
    story.sync().await;
    story = jumps(story);
    story.heartbeat().await;
    story = jumps(story);
    story.commit().await;
    story.fetch(|| world.move_wall(jump)).await;
    // The coordinator reads its groups back, on a clock that moves before and after.
    broker = restarted(broker, &disk, &world, jump, options);
    story.wire = Wire::connect(&mut broker);
    while story.heartbeat().await != ErrorCode::NONE {
        sleep(Duration::from_millis(10)).await;
    }
    story = jumps(story);
    sleep(Duration::from_secs(3)).await;
    story.heartbeat().await;
    story = jumps(story);
    story.expire().await;
    story.steps
}

fn restarted(
    broker: SimBroker,
    disk: &SimDisk,
    world: &SimWorld,
    jump: i64,
    options: &[(&str, &str)],
) -> SimBroker {
    drop(broker);
    world.move_wall(jump);
    let broker = start(disk, options);
    world.move_wall(jump);
    broker
}

#[test]
fn a_wall_clock_that_jumps_fails_nothing_and_makes_nobody_wait_longer() {
    let still = in_world(NOW, |world| life(world, 0));
    for (what, code, _) in &still {
        let wanted = match *what {
            "join without an id" => ErrorCode::MEMBER_ID_REQUIRED,
            _ => ErrorCode::NONE,
        };
        assert_eq!(*code, wanted, "{what}");
    }
    let took = |name| still.iter().rfind(|(what, _, _)| *what == name).map(|(_, _, took)| *took);
    assert_eq!(took("fetch"), Some(Duration::from_millis(500)));
    let expired = took("expire").expect("the last step");
    let session = Duration::from_millis(u64::try_from(SESSION_MS).expect("small"));
    assert!(expired >= session && expired < session + Duration::from_millis(200), "{expired:?}");
    for jump in [MINUTES_BACK, HOUR_AHEAD] {
        assert_eq!(in_world(NOW, |world| life(world, jump)), still, "by {jump} ms at each step");
    }
}

#[test]
fn times_of_records_and_their_retention_follow_the_clock_on_the_wall() {
    in_world(NOW, async |world| {
        let options =
            &[("log.segment.bytes", "1048576"), ("log.retention.check.interval.ms", "1000")];
        let mut broker = start(&SimDisk::default(), options);
        let mut wire = Wire::connect(&mut broker);
        let dated = ("message.timestamp.type", "LogAppendTime");
        wire.create("orders", &[dated, ("retention.ms", "1800000")]).await;
        assert_eq!(wire.produce("orders", &[1], b"a").await, STORED);
        world.move_wall(MINUTES_BACK);
        assert_eq!(wire.produce("orders", &[1], b"b").await, STORED);
        assert_eq!(wire.list("orders", 0).await, (0, NOW));
        sleep(Duration::from_secs(5)).await;
        assert_eq!(wire.list("orders", EARLIEST).await.0, 0, "a time to come is not old");
        world.move_wall(HOUR_AHEAD);
        sleep(Duration::from_secs(5)).await;
        assert_eq!(wire.list("orders", EARLIEST).await.0, 2, "all are of half an hour ago");
        assert_eq!(wire.produce("orders", &[1], b"c").await, STORED);
        let (offset, time) = wire.list("orders", 0).await;
        assert_eq!((offset, time >= NOW + MINUTES_BACK + HOUR_AHEAD), (2, true), "{time}");
    });
}
