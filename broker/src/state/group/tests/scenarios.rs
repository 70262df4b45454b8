//! What happens to groups over time.

use super::*;

#[test]
fn a_lone_member_works_after_two_requests_without_waiting() {
    let mut scene = Scene::new();
    let first = scene.join(Join { version: 4, ..NEW });
    assert_eq!(scene.said(first), "MEMBER_ID_REQUIRED");
    let id = scene.joined(first).member_id.clone();
    assert_eq!(*id, *"a-0");
    let second = scene.join(again("a", "a-0"));
    assert_eq!(scene.said(second), "a-0 leader in 1, told of 1");
    let sync = scene.sync(Sync { given: &["a-0=all"], ..sync("a-0", 1) });
    assert_eq!(scene.said(sync), "assigned all");
    assert_eq!(scene.log.len(), 1, "only the assignment needs a record");
}

#[test]
fn members_that_come_at_the_same_time_share_the_first_generation() {
    let mut scene = Scene::new();
    for client in ["a", "b"] {
        scene.join(Join { version: 4, ..new(client) });
    }
    let first = scene.join(again("a", "a-0"));
    assert_eq!(scene.said(first), "parked", "b has its id and is on its way");
    let second = scene.join(again("b", "b-0"));
    assert_eq!(scene.said(first), "a-0 leader in 1, told of 2");
    assert_eq!(scene.said(second), "b-0 follower in 1, told of 0");
}

#[test]
fn a_first_generation_does_not_wait_long_for_a_member_that_stays_away() {
    let mut scene = Scene::new();
    for client in ["a", "b"] {
        scene.join(Join { version: 4, ..new(client) });
    }
    let first = scene.join(again("a", "a-0"));
    scene.pass(49);
    assert_eq!(scene.said(first), "parked");
    scene.pass(1);
    assert_eq!(scene.said(first), "a-0 leader in 1, told of 1");
    let late = scene.join(again("b", "b-0"));
    assert_eq!(scene.said(late), "parked", "its id is still good");
}

#[test]
fn a_delayed_first_generation_takes_in_all_that_come_meanwhile() {
    let initial_delay = Duration::from_secs(3);
    let mut scene = Scene::with(GroupLimits { initial_delay, ..GroupLimits::default() });
    let first = scene.join(new("a"));
    scene.pass(2_000);
    let second = scene.join(new("b"));
    scene.pass(2_999);
    assert_eq!(scene.said(first), "parked");
    scene.pass(1);
    assert_eq!(scene.said(first), "a-0 leader in 1, told of 2");
    assert_eq!(scene.said(second), "b-0 follower in 1, told of 0");
}

#[test]
fn a_rebalance_ends_when_the_last_known_member_has_come_back() {
    let mut scene = scene(Start::Preparing);
    let a = scene.join(again("a", "a-0"));
    assert_eq!(scene.said(a), "parked");
    let b = scene.join(again("b", "b-0"));
    assert_eq!(scene.said(a), "a-0 leader in 3, told of 3");
    assert_eq!(scene.said(b), "b-0 follower in 3, told of 0");
    assert_eq!(scene.phase(), PhaseName::CompletingRebalance);
}

#[test]
fn members_that_do_not_come_back_in_time_are_put_out() {
    let mut scene = scene(Start::Preparing);
    let b = scene.join(again("b", "b-0"));
    // Heartbeats keep a's session, but not its place in the next generation.
    for _ in 0..11 {
        scene.pass(5_000);
        let beat = scene.heartbeat("a-0", None, 2);
        assert_eq!(scene.said(beat), "REBALANCE_IN_PROGRESS");
    }
    assert_eq!(scene.said(b), "parked");
    scene.pass(5_000);
    assert_eq!(scene.joined(b).generation, 3, "the rebalance timeout is over");
    assert_eq!(scene.joined(b).leader, Arc::from("b-0"), "one that came leads");
    let beat = scene.heartbeat("a-0", None, 3);
    assert_eq!(scene.said(beat), "UNKNOWN_MEMBER_ID");
}

#[test]
fn a_silent_member_is_put_out_when_its_session_ends() {
    let mut scene = scene(Start::Stable);
    scene.pass(9_999);
    let beat = scene.heartbeat("a-0", None, 2);
    assert_eq!(scene.said(beat), "NONE");
    scene.pass(1);
    assert_eq!(scene.phase(), PhaseName::PreparingRebalance, "b is out");
    let a = scene.join(again("a", "a-0"));
    assert_eq!(scene.said(a), "a-0 leader in 3, told of 1");
}

#[test]
fn a_group_whose_members_all_fall_silent_becomes_empty_and_says_so_in_the_log() {
    let mut scene = scene(Start::Stable);
    scene.pass(10_000);
    assert_eq!(scene.phase(), PhaseName::Empty);
    let Some(GroupRecord::Group { value: Some(value), .. }) = scene.log.last() else {
        panic!("no record of the group: {:?}", scene.log);
    };
    assert!(value.members.is_empty());
    assert_eq!((value.generation, &value.protocol, &value.leader), (3, &None, &None));
    assert_eq!(*value.protocol_type, *"consumer");
    assert_eq!(scene.groups.poll_timeout(), None, "nothing is left to wait for");
}

#[test]
fn a_member_that_waits_for_others_outlives_its_session() {
    let mut scene = scene(Start::Stable);
    let c = scene.join(Join { session_ms: 6_000, ..new("c") });
    let a = scene.join(again("a", "a-0"));
    for _ in 0..6 {
        scene.pass(9_000);
        scene.heartbeat("b-0", None, 2);
    }
    assert_eq!(scene.said(a), "parked");
    assert_eq!(scene.said(c), "parked");
    scene.join(again("b", "b-0"));
    assert_eq!(scene.joined(a).members.len(), 3);
}

#[test]
fn members_that_never_ask_for_their_assignment_are_put_out() {
    let mut scene = scene(Start::Completing);
    let given = &["a-0=p0", "b-0=p1"];
    scene.sync(Sync { given, ..sync("a-0", 2) });
    assert_eq!(scene.phase(), PhaseName::Stable);
    for _ in 0..12 {
        scene.pass(5_000);
        scene.heartbeat("a-0", None, 2);
        scene.heartbeat("b-0", None, 2);
    }
    assert_eq!(scene.phase(), PhaseName::PreparingRebalance);
    let beat = scene.heartbeat("b-0", None, 2);
    assert_eq!(scene.said(beat), "UNKNOWN_MEMBER_ID");
    let beat = scene.heartbeat("a-0", None, 2);
    assert_eq!(scene.said(beat), "REBALANCE_IN_PROGRESS");
}

#[test]
fn syncs_that_wait_are_sent_back_when_a_new_member_comes() {
    let mut scene = scene(Start::Completing);
    let sync = scene.sync(sync("b-0", 2));
    assert_eq!(scene.said(sync), "parked");
    scene.join(new("c"));
    assert_eq!(scene.said(sync), "REBALANCE_IN_PROGRESS");
}

#[test]
fn a_second_request_of_a_member_releases_its_first() {
    let mut scene = scene(Start::Preparing);
    let older = scene.join(again("a", "a-0"));
    let newer = scene.join(again("a", "a-0"));
    assert_eq!(scene.said(older), "REBALANCE_IN_PROGRESS");
    assert_eq!(scene.said(newer), "parked");
    let mut scene = super::scene(Start::Completing);
    let older = scene.sync(sync("b-0", 2));
    let newer = scene.sync(sync("b-0", 2));
    assert_eq!(scene.said(older), "REBALANCE_IN_PROGRESS");
    assert_eq!(scene.said(newer), "parked");
}

#[test]
fn an_id_that_is_not_used_is_forgotten_with_its_session() {
    let mut scene = Scene::new();
    scene.join(Join { version: 4, ..NEW });
    scene.pass(9_999);
    assert!(scene.groups.group(GROUP).is_some());
    scene.pass(1);
    assert!(scene.groups.group(GROUP).is_none(), "a group that never was leaves nothing");
    let token = scene.join(again("a", "a-0"));
    assert_eq!(scene.said(token), "UNKNOWN_MEMBER_ID");
}

#[test]
fn a_rebalance_waits_for_a_member_with_a_new_id_but_not_for_ever() {
    let mut scene = scene(Start::Stable);
    scene.join(Join { version: 4, ..new("c") });
    let a = scene.join(again("a", "a-0"));
    let b = scene.join(again("b", "b-0"));
    assert_eq!((scene.said(a).as_str(), scene.said(b).as_str()), ("parked", "parked"));
    scene.pass(10_000);
    assert_eq!(scene.joined(a).generation, 3);
}

#[test]
fn a_successor_fences_the_process_before_it() {
    let mut scene = scene(Start::Static);
    scene.join(Join { version: 9, fresh: "1", instance: Some("i"), ..NEW });
    let old = scene.heartbeat("i-0", Some("i"), 2);
    assert_eq!(scene.said(old), "FENCED_INSTANCE_ID");
    let new = scene.heartbeat("i-1", Some("i"), 2);
    assert_eq!(scene.said(new), "NONE");
    let sync = scene.sync(Sync { instance: Some("i"), ..sync("i-1", 2) });
    assert_eq!(scene.said(sync), "assigned p0", "it keeps the partitions");
    assert_eq!(scene.group().stored().unwrap().leader, Some(Arc::from("i-1")));
}

#[test]
fn a_successor_releases_the_join_that_its_predecessor_left_waiting() {
    let mut scene = scene(Start::Static);
    let old = scene.join(Join { member_id: "i-0", instance: Some("i"), version: 9, ..NEW });
    assert_eq!(scene.said(old), "parked");
    let new = scene.join(Join { version: 9, fresh: "1", instance: Some("i"), ..NEW });
    assert_eq!(scene.said(old), "FENCED_INSTANCE_ID");
    assert_eq!(scene.said(new), "parked");
    scene.join(again("b", "b-0"));
    assert_eq!(scene.said(new), "i-1 leader in 3, told of 2");
}

#[test]
fn an_absent_static_member_keeps_its_place_through_a_rebalance() {
    let mut scene = scene(Start::Static);
    scene.join(new("c"));
    let b = scene.join(again("b", "b-0"));
    for _ in 0..12 {
        scene.heartbeat("i-0", Some("i"), 2);
        scene.pass(5_000);
    }
    let joined = scene.joined(b);
    assert_eq!((joined.generation, &*joined.leader), (3, "b-0"));
    assert_eq!(joined.members.len(), 3, "i-0 is still one of the group");
}

#[test]
fn most_votes_choose_the_protocol_among_those_all_know() {
    let mut scene = Scene::new();
    let clients: [(&str, &[&str]); 3] = [
        ("a", &["x", "range", "sticky"]),
        ("b", &["sticky", "range"]),
        ("c", &["sticky", "range"]),
    ];
    let mut tokens = Vec::new();
    for (client, protocols) in clients {
        scene.join(Join { version: 4, protocols, ..new(client) });
    }
    for ((client, protocols), id) in clients.into_iter().zip(["a-0", "b-0", "c-0"]) {
        tokens.push(scene.join(Join { protocols, ..again(client, id) }));
    }
    let leader = scene.joined(tokens[0]);
    assert_eq!(leader.protocol.as_deref(), Some("sticky"));
    assert_eq!(leader.members.len(), 3);
}

#[test]
fn a_full_group_takes_nobody_in_but_keeps_its_own() {
    let mut scene = Scene::with(GroupLimits { members_max: 2, ..GroupLimits::default() });
    scene.join(Join { instance: Some("i"), ..NEW });
    scene.join(new("b"));
    scene.join(Join { member_id: "i-0", instance: Some("i"), version: 9, ..NEW });
    scene.sync(Sync { instance: Some("i"), ..sync("i-0", 2) });
    let third = scene.join(new("c"));
    assert_eq!(scene.said(third), "GROUP_MAX_SIZE_REACHED");
    let successor = scene.join(Join { version: 9, fresh: "1", instance: Some("i"), ..NEW });
    assert_eq!(scene.said(successor), "i-1 leader in 2, told of 2, skip");
    let b = scene.join(Join { topics: "u", ..again("b", "b-0") });
    assert_eq!(scene.said(b), "parked");
}

#[test]
fn ids_given_out_in_advance_are_bounded() {
    let mut scene = Scene::with(GroupLimits { members_max: 3, ..GroupLimits::default() });
    let names = ["p", "q", "r", "s"];
    let said = names.map(|client| {
        let token = scene.join(Join { version: 4, ..new(client) });
        scene.said(token)
    });
    assert_eq!(said[..3], ["MEMBER_ID_REQUIRED"; 3]);
    assert_eq!(said[3], "GROUP_MAX_SIZE_REACHED");
}

/// What a broker has that was started on a scene's log.
fn restarted(before: &Scene) -> Scene {
    let mut after = Scene::new();
    for record in &before.log {
        after.groups.replay(record);
    }
    after.groups.handle_loaded(after.now);
    after
}

#[test]
fn a_static_member_that_was_named_is_known_after_a_restart_before_its_generation_is_stored() {
    let successor = Join { version: 9, fresh: "1", instance: Some("i"), ..NEW };
    for was_put_out in [false, true] {
        let mut before = scene(Start::Static);
        if was_put_out {
            before.pass(5_000);
            before.heartbeat("b-0", None, 2);
            before.pass(5_000);
        } else {
            before.join(new("c"));
        }
        let named = before.join(successor);
        let b = before.join(again("b", "b-0"));
        let generation = before.joined(b).generation;
        assert_eq!(before.joined(named).member_id, Arc::from("i-1"));
        assert_eq!(before.phase(), PhaseName::CompletingRebalance);
        let mut after = restarted(&before);
        let old = after.heartbeat("i-0", Some("i"), 2);
        assert_eq!(after.said(old), "FENCED_INSTANCE_ID");
        let new = after.heartbeat("i-1", Some("i"), generation);
        assert_eq!(after.said(new), "ILLEGAL_GENERATION");
        after.join(again("b", "b-0"));
        let new = after.join(Join { member_id: "i-1", topics: "u", ..successor });
        after.join(again("b", "b-0"));
        assert_eq!(after.said(new), "i-1 leader in 3, told of 2", "put out: {was_put_out}");
    }
}

#[test]
fn after_a_restart_members_go_on_where_the_log_says_they_were() {
    let before = scene(Start::Stable);
    let mut after = restarted(&before);
    let beat = after.heartbeat("b-0", None, 2);
    assert_eq!(after.said(beat), "NONE");
    let sync = after.sync(sync("b-0", 2));
    assert_eq!(after.said(sync), "assigned p1");
    after.pass(10_000);
    assert_eq!(after.phase(), PhaseName::Empty, "sessions run again");
}

#[test]
fn giving_a_shard_up_answers_all_that_wait() {
    let mut scene = scene(Start::Preparing);
    let a = scene.join(again("a", "a-0"));
    let answers = scene.groups.abandon(ErrorCode::NOT_COORDINATOR);
    assert_eq!(answers.len(), 2, "a and c");
    scene.take(Turn { records: Vec::new(), answers });
    assert_eq!(scene.said(a), "NOT_COORDINATOR");
    let (asked, answered) = scene.counts();
    assert_eq!(usize::try_from(asked).unwrap(), answered);
}

#[test]
fn the_generation_after_the_last_is_the_first() {
    let mut scene = scene(Start::Stable);
    let Some(GroupRecord::Group { value: Some(value), .. }) = scene.log.last().cloned() else {
        panic!("no record");
    };
    let value = GroupValue { generation: i32::MAX, ..value };
    scene.groups.replay(&GroupRecord::Group { group: Arc::from(GROUP), value: Some(value) });
    scene.join(again("a", "a-0"));
    let b = scene.join(again("b", "b-0"));
    assert_eq!(scene.said(b), "b-0 follower in 0, told of 0");
}

#[test]
fn a_member_offers_only_so_many_protocols() {
    const MANY: [&str; 65] = ["range"; 65];
    let mut scene = Scene::new();
    let token = scene.join(Join { protocols: &MANY, ..NEW });
    assert_eq!(scene.said(token), "INCONSISTENT_GROUP_PROTOCOL");
    let token = scene.join(Join { protocols: MANY.split_at(64).0, ..NEW });
    assert_eq!(scene.said(token), "a-0 leader in 1, told of 1");
}

#[test]
fn members_of_a_group_bring_along_only_so_many_bytes_together() {
    // Each has its name of 1, the protocol's of 5, and metadata of 3.
    let mut scene = Scene::with(GroupLimits { bytes_max: 18, ..GroupLimits::default() });
    scene.join(Join { version: 4, ..new("a") });
    scene.join(Join { version: 4, ..new("b") });
    scene.join(again("a", "a-0"));
    let second = scene.join(again("b", "b-0"));
    assert_eq!(scene.said(second), "b-0 follower in 1, told of 0");
    let third = scene.join(new("c"));
    assert_eq!(scene.said(third), "GROUP_MAX_SIZE_REACHED");
    let again = scene.join(again("b", "b-0"));
    assert_eq!(scene.said(again), "b-0 follower in 1, told of 0", "its own bytes count once");
}

#[test]
fn an_assignment_has_only_so_many_bytes() {
    let limits = GroupLimits { bytes_max: 9, ..GroupLimits::default() };
    let mut scene = Scene::with(limits);
    scene.join(NEW);
    let long = scene.sync(Sync { given: &["a-0=0123456789"], ..sync("a-0", 1) });
    assert_eq!(scene.said(long), "UNKNOWN_SERVER_ERROR");
    let short = scene.sync(Sync { given: &["a-0=012345678"], ..sync("a-0", 1) });
    assert_eq!(scene.said(short), "assigned 012345678");
}
