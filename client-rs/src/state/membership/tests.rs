//! Tests of the machine, in virtual time.

mod cooperative;
mod returning;

use super::*;
use crate::error::{Error, ErrorKind};
use crate::state::assignor::Assigned;
use crate::state::backoff::Backoff;
use crate::state::cluster::RackSet;

const BEAT: Duration = Duration::from_secs(3);
const POLL: Duration = Duration::from_mins(5);

struct Member1 {
    member: Membership,
    tokens: Tokens,
    now: Instant,
}

impl Member1 {
    fn new(instance_id: Option<&str>) -> Self {
        Self::with(instance_id, &[Strategy::Range])
    }

    #[allow(clippy::disallowed_methods, reason = "an origin for virtual time")]
    fn with(instance_id: Option<&str>, strategies: &[Strategy]) -> Self {
        let now = Instant::now();
        let config = MemberConfig {
            instance_id: instance_id.map(Arc::from),
            heartbeat_interval: BEAT,
            poll_interval: POLL,
            strategies: strategies.to_vec(),
        };
        let backoff = Backoff::new((Duration::from_millis(100), Duration::from_secs(1)));
        let member = Membership::new(config, Pace::new(backoff, 1), now);
        Self { member, tokens: Tokens::default(), now }
    }

    fn subscribed() -> Self {
        let mut one = Self::new(None);
        one.member.subscribe(vec!["t".into()], one.now);
        one
    }

    /// In the group, at this generation, with these partitions of `t`.
    fn stable(generation: i32, partitions: &[i32]) -> Self {
        let mut one = Self::subscribed();
        one.join_and_sync(generation, partitions);
        one
    }

    fn ask(&mut self) -> Option<(Token, MemberAsk)> {
        self.member.poll_request(&mut self.tokens, self.now)
    }

    fn pass(&mut self, time: Duration) {
        self.now += time;
        self.member.handle_timeout(self.now);
    }

    fn join_and_sync(&mut self, generation: i32, partitions: &[i32]) {
        let (token, ask) = self.ask().expect("a join is due");
        assert!(matches!(ask, MemberAsk::Join { .. }), "{ask:?}");
        self.member.handle_join(token, Ok(joined(ErrorCode::NONE, "m1", generation)), self.now);
        let (token, ask) = self.ask().expect("a sync is due");
        assert!(matches!(ask, MemberAsk::Sync { .. }), "{ask:?}");
        self.member.handle_sync(token, Ok(synced(ErrorCode::NONE, partitions)), self.now);
    }

    fn events(&mut self) -> Vec<MemberEvent> {
        let mut events: Vec<_> = std::iter::from_fn(|| self.member.poll_event()).collect();
        events.retain(|event| *event != MemberEvent::CoordinatorAlive);
        events
    }

    fn beat(&mut self, code: ErrorCode) {
        self.pass(BEAT);
        let (token, ask) = self.ask().expect("a beat is due");
        assert!(matches!(ask, MemberAsk::Heartbeat { .. }), "{ask:?}");
        self.member.handle_heartbeat(token, Ok(code), self.now);
    }
}

fn joined(error: ErrorCode, member_id: &str, generation: i32) -> JoinAnswer {
    let identity = Identity { member_id: member_id.into(), generation };
    JoinAnswer {
        error,
        identity,
        strategy: Strategy::Range,
        leader: "another".into(),
        skip_assignment: false,
        members: Vec::new(),
    }
}

fn synced(error: ErrorCode, partitions: &[i32]) -> SyncAnswer {
    let partitions = partitions.iter().map(|&index| TopicPartition::new("t", index)).collect();
    SyncAnswer { error, assigned: Assigned { partitions, basis: None } }
}

fn assigned(generation: i32, partitions: &[i32], follows: bool) -> MemberEvent {
    let partitions = synced(ErrorCode::NONE, partitions).assigned.partitions;
    MemberEvent::Assigned { generation, partitions, follows }
}

fn layout(rows: &[(&str, i32)]) -> Layout {
    let mut layout = Layout::new(false);
    for &(name, count) in rows {
        layout.insert(&name.into(), count, None);
    }
    layout
}

/// `t` in one partition, which stands in this rack.
fn in_rack(rack: &str, minds_racks: bool) -> Layout {
    let mut layout = Layout::new(minds_racks);
    let racks: RackSet = [rack.to_owned()].into();
    layout.insert(&"t".into(), 1, Some([racks].into()));
    layout
}

fn gone() -> Error {
    Error::new(ErrorKind::Disconnected, "the connection was lost")
}

#[test]
fn a_new_member_joins_twice_and_syncs_at_once() {
    let mut one = Member1::subscribed();
    let (token, ask) = one.ask().unwrap();
    let topics = vec![Arc::from("t")];
    let holdings = one.member.holdings();
    assert_eq!((&holdings.owned, holdings.generation), (&Vec::new(), NO_GENERATION));
    let member_id = String::new();
    let asked = topics.clone();
    assert_eq!(ask, MemberAsk::Join { member_id, topics: asked, holdings: holdings.clone() });
    assert_eq!(one.ask(), None, "one question at a time");
    let answer = joined(ErrorCode::MEMBER_ID_REQUIRED, "m1", -1);
    one.member.handle_join(token, Ok(answer), one.now);
    let (token, ask) = one.ask().expect("comes again without a pause");
    assert_eq!(ask, MemberAsk::Join { member_id: "m1".into(), topics, holdings });
    one.member.handle_join(token, Ok(joined(ErrorCode::NONE, "m1", 1)), one.now);
    let (token, ask) = one.ask().unwrap();
    let identity = Identity { member_id: "m1".into(), generation: 1 };
    let strategy = Strategy::Range;
    assert_eq!(ask, MemberAsk::Sync { identity: identity.clone(), strategy, shares: Vec::new() });
    assert_eq!(one.member.identity(), None, "nothing can be committed while the group moves");
    one.member.handle_sync(token, Ok(synced(ErrorCode::NONE, &[0, 1])), one.now);
    assert_eq!(one.events(), [assigned(1, &[0, 1], false)]);
    assert_eq!(one.member.identity(), Some(&identity));
    assert_eq!(one.member.poll_timeout(one.now), Some(one.now + BEAT));
}

#[test]
fn the_leader_shares_out_once_it_knows_the_partition_counts() {
    let mut one = Member1::subscribed();
    let (token, _) = one.ask().unwrap();
    let mut answer = joined(ErrorCode::NONE, "m1", 1);
    answer.leader = "m1".into();
    let member = |id: &str, topics: &[&str]| Member {
        id: id.into(),
        instance_id: None,
        topics: topics.iter().map(|topic| Arc::from(*topic)).collect(),
        owned: Vec::new(),
        generation: NO_GENERATION,
        rack: None,
    };
    answer.members = vec![member("m1", &["t"]), member("m2", &["t", "u"])];
    one.member.handle_join(token, Ok(answer), one.now);
    assert_eq!(one.ask(), None);
    assert!(one.member.wants_layout());
    assert_eq!(one.member.led_topics().unwrap(), [Arc::from("t"), Arc::from("u")]);
    one.member.handle_layout(layout(&[("t", 3)]), one.now);
    let (token, ask) = one.ask().unwrap();
    let MemberAsk::Sync { shares, .. } = ask else { panic!("{ask:?}") };
    assert_eq!(shares.len(), 2);
    assert_eq!(shares[0].topics[&Arc::from("t")], [0, 1]);
    assert_eq!(shares[1].topics[&Arc::from("t")], [2]);
    one.member.handle_sync(token, Ok(synced(ErrorCode::NONE, &[0, 1])), one.now);
    one.events();
    one.member.handle_layout(layout(&[("t", 3)]), one.now);
    assert_eq!(one.events(), [], "nothing has changed");
    one.member.handle_layout(layout(&[("t", 3), ("u", 1)]), one.now);
    assert_eq!(
        one.events(),
        [MemberEvent::Release(Which::All)],
        "a topic came to be: shared out anew"
    );
}

#[test]
fn racks_that_change_are_shared_out_by_anew_where_the_leader_stands_in_one() {
    for minds in [true, false] {
        let mut one = Member1::subscribed();
        let (token, _) = one.ask().unwrap();
        let mut answer = joined(ErrorCode::NONE, "m1", 1);
        answer.leader = "m1".into();
        one.member.handle_join(token, Ok(answer), one.now);
        one.member.handle_layout(in_rack("east", minds), one.now);
        let (token, _) = one.ask().unwrap();
        one.member.handle_sync(token, Ok(synced(ErrorCode::NONE, &[0])), one.now);
        one.events();
        one.member.handle_layout(in_rack("east", minds), one.now);
        assert_eq!(one.events(), []);
        one.member.handle_layout(in_rack("west", minds), one.now);
        assert_eq!(!one.events().is_empty(), minds);
    }
}

#[test]
fn a_leader_told_to_skip_the_assignment_sends_no_shares() {
    let mut one = Member1::new(Some("i1"));
    one.member.subscribe(vec!["t".into()], one.now);
    let (token, _) = one.ask().unwrap();
    let mut answer = joined(ErrorCode::NONE, "m1", 4);
    (answer.leader, answer.skip_assignment) = ("m1".into(), true);
    one.member.handle_join(token, Ok(answer), one.now);
    let (_, ask) = one.ask().unwrap();
    assert!(matches!(ask, MemberAsk::Sync { shares, .. } if shares.is_empty()));
}

#[test]
fn beats_come_at_their_interval_one_at_a_time() {
    let mut one = Member1::stable(1, &[0]);
    one.pass(Duration::from_millis(2999));
    assert_eq!(one.ask(), None);
    one.pass(Duration::from_millis(1));
    let (token, ask) = one.ask().unwrap();
    assert!(matches!(ask, MemberAsk::Heartbeat { .. }));
    one.pass(BEAT * 2);
    assert_eq!(one.ask(), None, "the last beat is not answered yet");
    one.member.handle_heartbeat(token, Ok(ErrorCode::NONE), one.now);
    assert!(one.ask().is_some());
}

#[test]
fn a_rebalance_waits_for_the_release_and_beats_meanwhile() {
    let mut one = Member1::stable(1, &[0, 1]);
    one.events();
    one.beat(ErrorCode::REBALANCE_IN_PROGRESS);
    assert_eq!(one.events(), [MemberEvent::Release(Which::All)]);
    assert!(one.member.identity().is_some(), "finished work can still be committed");
    one.beat(ErrorCode::REBALANCE_IN_PROGRESS);
    assert_eq!(one.events(), [], "asked again, of one who is about to");
    one.member.handle_released(one.now);
    one.join_and_sync(2, &[0]);
    assert_eq!(one.events(), [assigned(2, &[0], true)]);
}

#[test]
fn partitions_follow_only_into_the_very_next_generation() {
    let mut one = Member1::stable(1, &[0, 1]);
    one.beat(ErrorCode::REBALANCE_IN_PROGRESS);
    one.member.handle_released(one.now);
    let (token, _) = one.ask().unwrap();
    one.member.handle_join(token, Ok(joined(ErrorCode::NONE, "m1", 2)), one.now);
    let (token, _) = one.ask().unwrap();
    let answer = synced(ErrorCode::REBALANCE_IN_PROGRESS, &[]);
    one.member.handle_sync(token, Ok(answer), one.now);
    one.events();
    // Generation 2 may have gone to others whole.
    one.join_and_sync(3, &[0, 1]);
    assert_eq!(one.events(), [assigned(3, &[0, 1], false)]);
}

#[test]
fn a_member_the_group_forgot_drops_what_it_held() {
    for (code, member_id) in
        [(ErrorCode::UNKNOWN_MEMBER_ID, ""), (ErrorCode::ILLEGAL_GENERATION, "m1")]
    {
        let mut one = Member1::stable(1, &[0]);
        one.events();
        one.beat(code);
        assert_eq!(one.events(), [MemberEvent::Lost(Which::All)], "{code}");
        let (_, ask) = one.ask().expect("joins again at once");
        assert!(matches!(ask, MemberAsk::Join { member_id: id, .. } if id == member_id), "{code}");
    }
}

#[test]
fn what_is_kept_over_a_rebalance_is_lost_when_the_group_forgets_the_member() {
    let mut one = Member1::stable(1, &[0]);
    one.beat(ErrorCode::REBALANCE_IN_PROGRESS);
    one.member.handle_released(one.now);
    one.events();
    let (token, _) = one.ask().unwrap();
    let answer = joined(ErrorCode::UNKNOWN_MEMBER_ID, "", -1);
    one.member.handle_join(token, Ok(answer), one.now);
    assert_eq!(one.events(), [MemberEvent::Lost(Which::All)]);
    one.join_and_sync(2, &[0]);
    assert_eq!(one.events(), [assigned(2, &[0], false)]);
}

#[test]
fn each_join_error_is_answered_by_its_row_of_the_table() {
    for (code, again, told) in [
        (ErrorCode::COORDINATOR_LOAD_IN_PROGRESS, Again::Later, Told::Nothing),
        (ErrorCode::REBALANCE_IN_PROGRESS, Again::Later, Told::Nothing),
        (ErrorCode::NOT_COORDINATOR, Again::Now, Told::CoordinatorLost),
        (ErrorCode::COORDINATOR_NOT_AVAILABLE, Again::Now, Told::CoordinatorLost),
        (ErrorCode::UNKNOWN_MEMBER_ID, Again::Now, Told::Nothing),
        (ErrorCode::GROUP_AUTHORIZATION_FAILED, Again::AtPoll, Told::Refused),
        (ErrorCode::GROUP_MAX_SIZE_REACHED, Again::AtPoll, Told::Refused),
        (ErrorCode::FENCED_INSTANCE_ID, Again::Never, Told::Refused),
        (ErrorCode::INCONSISTENT_GROUP_PROTOCOL, Again::Never, Told::Refused),
        (ErrorCode::INVALID_SESSION_TIMEOUT, Again::Never, Told::Refused),
        (ErrorCode::UNSUPPORTED_VERSION, Again::Never, Told::Refused),
    ] {
        let mut one = Member1::subscribed();
        let (token, _) = one.ask().unwrap();
        one.member.handle_join(token, Ok(joined(code, "", -1)), one.now);
        assert_eq!(one.told(), told, "{code}");
        assert_eq!(one.comes_again(), again, "{code}");
    }
    let mut one = Member1::subscribed();
    let (token, _) = one.ask().unwrap();
    one.member.handle_join(token, Err(gone()), one.now);
    assert_eq!((one.told(), one.comes_again()), (Told::CoordinatorLost, Again::Now));
}

#[test]
fn each_sync_error_is_answered_by_its_row_of_the_table() {
    for (code, again, told) in [
        (ErrorCode::REBALANCE_IN_PROGRESS, Again::Now, Told::Nothing),
        (ErrorCode::ILLEGAL_GENERATION, Again::Now, Told::Nothing),
        (ErrorCode::UNKNOWN_MEMBER_ID, Again::Now, Told::Nothing),
        (ErrorCode::NOT_COORDINATOR, Again::Now, Told::CoordinatorLost),
        (ErrorCode::FENCED_INSTANCE_ID, Again::Never, Told::Refused),
        (ErrorCode::GROUP_AUTHORIZATION_FAILED, Again::AtPoll, Told::Refused),
    ] {
        let mut one = Member1::subscribed();
        let (token, _) = one.ask().unwrap();
        one.member.handle_join(token, Ok(joined(ErrorCode::NONE, "m1", 1)), one.now);
        let (token, _) = one.ask().unwrap();
        one.member.handle_sync(token, Ok(synced(code, &[])), one.now);
        assert_eq!(one.told(), told, "{code}");
        assert_eq!(one.comes_again(), again, "{code}");
    }
}

#[derive(Debug, PartialEq, Eq)]
enum Again {
    Now,
    Later,
    AtPoll,
    Never,
}

#[derive(Debug, PartialEq, Eq)]
enum Told {
    Nothing,
    CoordinatorLost,
    Refused,
}

impl Member1 {
    fn told(&mut self) -> Told {
        let events = self.events();
        let refused = |event: &MemberEvent| matches!(event, MemberEvent::Refused { .. });
        if events.iter().any(refused) {
            Told::Refused
        } else if events.contains(&MemberEvent::CoordinatorLost) {
            Told::CoordinatorLost
        } else {
            assert_eq!(events, []);
            Told::Nothing
        }
    }

    fn comes_again(&mut self) -> Again {
        let joins = |ask: Option<(Token, MemberAsk)>| {
            ask.is_some_and(|(_, ask)| matches!(ask, MemberAsk::Join { .. }))
        };
        if joins(self.ask()) {
            return Again::Now;
        }
        let due = self.member.poll_timeout(self.now);
        self.pass(Duration::from_secs(2));
        if joins(self.ask()) {
            assert!(due.is_some_and(|due| due <= self.now), "the timer is set for it");
            return Again::Later;
        }
        self.member.handle_poll(self.now);
        self.pass(Duration::from_secs(2));
        if joins(self.ask()) { Again::AtPoll } else { Again::Never }
    }
}

#[test]
fn a_lost_coordinator_costs_no_generation() {
    let mut one = Member1::stable(1, &[0]);
    one.events();
    one.pass(BEAT);
    let (token, _) = one.ask().unwrap();
    one.member.handle_heartbeat(token, Err(gone()), one.now);
    assert_eq!(one.events(), [MemberEvent::CoordinatorLost]);
    assert!(one.member.identity().is_some());
    one.pass(Duration::from_millis(150));
    let (token, ask) = one.ask().expect("the beat is repeated well before its interval");
    assert!(matches!(ask, MemberAsk::Heartbeat { .. }));
    one.member.handle_heartbeat(token, Ok(ErrorCode::NOT_COORDINATOR), one.now);
    assert_eq!(one.events(), [MemberEvent::CoordinatorLost]);
}

#[test]
fn stale_answers_change_nothing() {
    let mut one = Member1::subscribed();
    let (old, _) = one.ask().unwrap();
    one.member.handle_join(old, Err(gone()), one.now);
    let (_, again) = one.ask().unwrap();
    one.member.handle_join(old, Ok(joined(ErrorCode::NONE, "m9", 9)), one.now);
    assert!(matches!(again, MemberAsk::Join { .. }) && one.ask().is_none(), "it waits on");
    let mut one = Member1::stable(1, &[0]);
    one.events();
    one.pass(BEAT);
    let (old, _) = one.ask().unwrap();
    one.member.handle_fenced(ErrorCode::ILLEGAL_GENERATION, 1, one.now);
    assert_eq!(one.events(), [MemberEvent::Lost(Which::All)]);
    one.join_and_sync(2, &[0]);
    one.events();
    one.member.handle_heartbeat(old, Ok(ErrorCode::UNKNOWN_MEMBER_ID), one.now);
    one.member.handle_fenced(ErrorCode::ILLEGAL_GENERATION, 1, one.now);
    one.member.handle_rebalance(1, one.now);
    one.member.handle_sync(old, Ok(synced(ErrorCode::NONE, &[7])), one.now);
    one.member.handle_leave(old, one.now);
    assert_eq!(one.events(), []);
    assert_eq!(one.member.identity().unwrap().generation, 2);
}

#[test]
fn leaving_commits_first_and_says_goodbye() {
    let mut one = Member1::stable(1, &[0]);
    one.events();
    one.member.subscribe(Vec::new(), one.now);
    assert_eq!(one.events(), [MemberEvent::Release(Which::All)]);
    assert_eq!(one.ask(), None);
    one.member.handle_released(one.now);
    let (token, ask) = one.ask().unwrap();
    assert_eq!(ask, MemberAsk::Leave { member_id: "m1".into() });
    assert!(!one.member.is_out());
    one.member.handle_leave(token, one.now);
    assert!(one.member.is_out());
}

#[test]
fn a_static_member_keeps_its_place_when_it_stops() {
    let mut one = Member1::new(Some("i1"));
    one.member.subscribe(vec!["t".into()], one.now);
    one.join_and_sync(1, &[0]);
    one.member.subscribe(Vec::new(), one.now);
    one.member.handle_released(one.now);
    assert_eq!(one.ask(), None);
    assert!(one.member.is_out());
}

#[test]
fn leaving_during_a_join_does_not_wait_for_its_answer() {
    let mut one = Member1::stable(1, &[0]);
    one.beat(ErrorCode::REBALANCE_IN_PROGRESS);
    one.member.handle_released(one.now);
    let (join, _) = one.ask().unwrap();
    one.member.subscribe(Vec::new(), one.now);
    let (leave, ask) = one.ask().unwrap();
    assert_eq!(ask, MemberAsk::Leave { member_id: "m1".into() });
    one.member.handle_join(join, Ok(joined(ErrorCode::NONE, "m1", 2)), one.now);
    one.member.handle_leave(leave, one.now);
    assert!(one.member.is_out());
}

/// The coordinator holds a place for whom it has named, and all others would wait for its session
/// to end.
#[test]
fn leaving_in_the_middle_of_the_first_join_waits_for_the_name_to_say_goodbye_under() {
    for code in [ErrorCode::MEMBER_ID_REQUIRED, ErrorCode::NONE] {
        let mut one = Member1::subscribed();
        let (join, _) = one.ask().unwrap();
        one.member.subscribe(Vec::new(), one.now);
        assert!(!one.member.is_out() && one.ask().is_none());
        one.member.handle_join(join, Ok(joined(code, "m1", 1)), one.now);
        let (leave, ask) = one.ask().unwrap();
        assert_eq!(ask, MemberAsk::Leave { member_id: "m1".into() });
        one.member.handle_leave(leave, one.now);
        assert!(one.member.is_out());
        assert_eq!(one.events(), []);
    }
}

#[test]
fn leaving_in_the_middle_of_a_first_join_that_fails_is_done() {
    let refused = joined(ErrorCode::COORDINATOR_NOT_AVAILABLE, "", -1);
    for answer in [Err(gone()), Ok(refused)] {
        let mut one = Member1::subscribed();
        let (join, _) = one.ask().unwrap();
        one.member.subscribe(Vec::new(), one.now);
        one.member.handle_join(join, answer, one.now);
        assert!(one.member.is_out() && one.ask().is_none());
    }
    let mut one = Member1::new(Some("i1"));
    one.member.subscribe(vec!["t".into()], one.now);
    one.ask().unwrap();
    one.member.subscribe(Vec::new(), one.now);
    assert!(one.member.is_out(), "a static member keeps its place");
}

#[test]
fn a_change_of_topics_joins_again_also_in_the_middle_of_a_join() {
    let mut one = Member1::stable(1, &[0]);
    one.events();
    one.member.subscribe(vec!["u".into(), "t".into()], one.now);
    assert_eq!(one.events(), [MemberEvent::Release(Which::All)]);
    one.member.handle_released(one.now);
    let (token, ask) = one.ask().unwrap();
    let wanted = [Arc::from("t"), Arc::from("u")];
    assert!(matches!(ask, MemberAsk::Join { topics, .. } if topics == wanted));
    one.member.subscribe(vec!["v".into()], one.now);
    one.member.handle_join(token, Ok(joined(ErrorCode::NONE, "m1", 2)), one.now);
    let (token, _) = one.ask().unwrap();
    one.member.handle_sync(token, Ok(synced(ErrorCode::NONE, &[0])), one.now);
    assert_eq!(
        one.events().last(),
        Some(&MemberEvent::Release(Which::All)),
        "joined for the old topics"
    );
}

#[test]
fn subscribing_anew_while_leaving_joins_again() {
    let mut one = Member1::stable(1, &[0]);
    one.member.subscribe(Vec::new(), one.now);
    one.member.handle_released(one.now);
    let (token, _) = one.ask().unwrap();
    one.member.subscribe(vec!["t".into()], one.now);
    one.member.handle_leave(token, one.now);
    let (_, ask) = one.ask().unwrap();
    assert!(matches!(ask, MemberAsk::Join { member_id, .. } if member_id.is_empty()));
}

#[test]
fn a_late_poll_leaves_the_group_and_the_next_one_comes_back() {
    for joined_before in [true, false] {
        let mut one = Member1::subscribed();
        if joined_before {
            one.join_and_sync(1, &[0]);
            one.events();
        } else {
            // A first poll may be late as well; the member is known by then.
            let (token, _) = one.ask().unwrap();
            let answer = joined(ErrorCode::MEMBER_ID_REQUIRED, "m1", -1);
            one.member.handle_join(token, Ok(answer), one.now);
        }
        one.member.handle_app(App::Busy { since: one.now });
        one.pass(Duration::from_millis(299_999));
        assert_eq!(one.events(), []);
        let late = Duration::from_millis(7);
        one.pass(late);
        let after = POLL + Duration::from_millis(6);
        let mut events = vec![MemberEvent::PollMissed { after }];
        if joined_before {
            events.push(MemberEvent::Release(Which::All));
        }
        assert_eq!(one.events(), events);
        one.member.handle_released(one.now);
        let (token, ask) = one.ask().unwrap();
        assert_eq!(ask, MemberAsk::Leave { member_id: "m1".into() });
        one.member.handle_leave(token, one.now);
        one.pass(POLL * 3);
        assert_eq!((one.ask(), one.events()), (None, Vec::new()), "told once");
        one.member.handle_app(App::Waiting);
        one.member.handle_poll(one.now);
        one.join_and_sync(3, &[0]);
        assert_eq!(one.events(), [assigned(3, &[0], false)]);
    }
}

#[test]
fn who_waits_for_records_is_never_late() {
    let mut one = Member1::stable(1, &[0]);
    one.events();
    one.member.handle_app(App::Waiting);
    for _ in 0..400 {
        one.beat(ErrorCode::NONE);
    }
    assert_eq!(one.events(), []);
    assert!(one.member.identity().is_some());
}

#[test]
fn a_release_that_takes_longer_than_the_rebalance_may_is_a_loss() {
    let mut one = Member1::stable(1, &[0]);
    one.member.handle_app(App::Waiting);
    one.beat(ErrorCode::REBALANCE_IN_PROGRESS);
    one.events();
    one.pass(POLL);
    assert_eq!(one.events(), [MemberEvent::Lost(Which::All)]);
    one.join_and_sync(2, &[0]);
    assert_eq!(one.events(), [assigned(2, &[0], false)]);
}

#[test]
fn a_beat_that_is_not_heard_is_repeated_within_the_interval() {
    let mut one = Member1::stable(1, &[0]);
    let interval = Duration::from_millis(200);
    one.member.config.heartbeat_interval = interval;
    one.pass(BEAT);
    for _ in 0..6 {
        let (token, _) = one.ask().expect("a beat is due");
        one.member.handle_heartbeat(token, Err(gone()), one.now);
        one.pass(interval);
    }
}

#[test]
fn a_member_that_is_refused_again_and_again_asks_after_pauses_that_grow() {
    let mut one = Member1::subscribed();
    one.member.handle_app(App::Waiting);
    for pause in [0, 250, 500, 1_000, 1_200] {
        one.member.handle_poll(one.now);
        assert!(pause == 0 || one.ask().is_none(), "{pause}");
        one.pass(Duration::from_millis(pause));
        let (token, _) = one.ask().expect("a join is due");
        let answer = joined(ErrorCode::GROUP_MAX_SIZE_REACHED, "", -1);
        one.member.handle_join(token, Ok(answer), one.now);
        one.pass(POLL);
        assert_eq!(one.ask(), None, "not before a poll");
    }
}

#[test]
fn who_waits_for_records_when_a_late_member_has_left_is_a_member_again() {
    let mut one = Member1::stable(1, &[0]);
    one.pass(POLL);
    one.member.handle_released(one.now);
    let (token, ask) = one.ask().unwrap();
    assert_eq!(ask, MemberAsk::Leave { member_id: "m1".into() });
    // It asked while the goodbye was on its way.
    one.member.handle_app(App::Waiting);
    one.member.handle_poll(one.now);
    one.member.handle_leave(token, one.now);
    one.join_and_sync(2, &[0]);
}

#[test]
fn the_time_of_the_first_poll_counts_from_the_subscription() {
    let mut one = Member1::new(None);
    one.pass(POLL * 2);
    one.member.subscribe(vec!["t".into()], one.now);
    one.join_and_sync(1, &[0]);
    one.pass(POLL / 2);
    assert_eq!(one.events(), [assigned(1, &[0], false)]);
    one.pass(POLL / 2);
    assert!(matches!(one.events()[..], [MemberEvent::PollMissed { after: POLL }, _]));
}
