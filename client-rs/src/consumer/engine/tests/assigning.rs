//! Partitions that the program assigns itself.

use std::time::Duration;

use ottla_protocol::{ApiKey, ErrorCode};

use super::script::{Script, part};
use crate::consumer::face::{Command, Face, OneRecord};
use crate::error::{Error, ErrorKind};

/// Requests of a group, which who is in none has no use for.
fn of_group(script: &Script) -> Vec<&String> {
    let of_group =
        |seen: &&String| ["join", "leave", "commit"].iter().any(|it| seen.starts_with(it));
    script.seen.iter().filter(of_group).collect()
}

fn all(script: &mut Script) -> Vec<i64> {
    let mut all = Vec::new();
    loop {
        let some = script.offsets(1000);
        if some.is_empty() {
            return all;
        }
        all.extend(some);
    }
}

fn told(script: &Script) -> Error {
    let took = script.face.take(&OneRecord, Duration::ZERO, |_| ());
    took.map(|_| ()).expect_err("an error is due")
}

#[test]
fn without_a_group_reading_begins_by_the_policy_and_no_poll_is_ever_late() {
    for (policy, first) in [("earliest", 0), ("latest", 30)] {
        let mut script = Script::new(&[("group.id", ""), ("auto.offset.reset", policy)]);
        for _ in 0..3 {
            script.append(1, 10);
        }
        script.assign(&[1]);
        // max.poll.interval.ms is a member's.
        script.pass(Duration::from_mins(10));
        script.append(1, 5);
        script.release_held();
        script.run();
        assert_eq!(all(&mut script), (first..35).collect::<Vec<_>>(), "{policy}");
        script.face.command_close(script.now + Duration::from_secs(5));
        script.run();
        assert!(script.ended);
        assert_eq!(of_group(&script), Vec::<&String>::new());
        assert_eq!(script.face.stats().late_polls, 0);
    }
}

#[test]
fn without_a_policy_it_is_told_that_nothing_says_where_to_begin() {
    let mut script = Script::new(&[("group.id", ""), ("auto.offset.reset", "none")]);
    script.append(0, 10);
    script.assign(&[0]);
    let error = told(&script);
    assert_eq!((error.kind(), error.partition()), (ErrorKind::NoOffset, Some(0)));
    script.face.seek(&part(0), 4).unwrap();
    script.run();
    assert_eq!(all(&mut script), (4..10).collect::<Vec<_>>());
}

#[test]
fn with_a_group_reading_begins_at_its_commits_and_goes_there_without_a_member() {
    let mut script = Script::new(&[]);
    script.append(0, 30);
    script.committed.insert(0, 7);
    script.assign(&[0]);
    assert_eq!(script.offsets(10), (7..17).collect::<Vec<_>>());
    assert_eq!(script.offsets(10), (17..27).collect::<Vec<_>>());
    script.pass(Duration::from_mins(10));
    assert_eq!(script.committed[&0], 17, "what the second call gave is worked on");
    script.offsets(10);
    script.face.command_close(script.now + Duration::from_secs(5));
    script.run();
    assert!(script.ended && script.closed.wait(Duration::ZERO, "it").is_ok());
    assert_eq!(of_group(&script), ["commit 0:17", "commit 0:27"]);
}

#[test]
fn what_stays_is_read_on_and_of_what_goes_nothing_comes_any_more() {
    let mut script = Script::new(&[]);
    for partition in 0..3 {
        script.append(partition, 10);
    }
    script.assign(&[0, 1]);
    let first = script.take(4).unwrap();
    let (stays, goes) = if first.partition() == 0 { (0, 1) } else { (1, 0) };
    script.face.set_paused(&[part(stays)], true).unwrap();
    script.seen.clear();
    script.assign(&[stays, 2]);
    assert_eq!(script.face.partitions(), [part(stays), part(2)]);
    assert_eq!(script.face.position(&part(stays)), Some(4));
    assert_eq!(script.face.seek(&part(goes), 0).unwrap_err().kind(), ErrorKind::NotAssigned);
    let batch = script.take(1000).unwrap();
    assert_eq!((batch.partition(), batch.len()), (2, 10), "the other is paused still");
    assert!(script.take(1000).is_none());
    script.face.set_paused(&[part(stays)], false).unwrap();
    let batch = script.take(1000).unwrap();
    assert_eq!((batch.partition(), batch.base_offset(), batch.len()), (stays, 4, 6));
    let again = format!("{stays}:0");
    assert!(!script.seen.iter().any(|seen| seen.contains(&again)), "{:?}", script.seen);
    // Anew it is another reading, from the group's commit.
    script.assign(&[goes]);
    assert_eq!(all(&mut script), (0..10).collect::<Vec<_>>());
}

#[test]
fn finished_work_of_partitions_that_go_is_committed_also_when_the_answer_is_late() {
    for lost in [false, true] {
        let mut script = Script::new(&[]);
        script.append(0, 10);
        script.assign(&[0]);
        let batch = script.take(10).unwrap();
        assert!(script.take(10).is_none(), "which finishes the work");
        script.face.assign([part(1)].into()).unwrap();
        if lost {
            script.lose_requests();
            script.pass(Duration::from_secs(2));
        }
        script.run();
        assert_eq!(script.committed[&0], 10, "lost: {lost}");
        assert_eq!(script.commit_refused(&batch), Some(ErrorKind::CommitFenced));
        assert_eq!(script.face.partitions(), [part(1)]);
    }
}

#[test]
fn a_group_with_members_refuses_commits_of_who_is_none_and_is_asked_once() {
    let mut script = Script::new(&[("enable.auto.commit", "false")]);
    script.append(0, 10);
    script.has_members = true;
    script.assign(&[0]);
    let batch = script.take(10).unwrap();
    assert_eq!(script.commit_refused(&batch), Some(ErrorKind::CommitFenced));
    script.pass(Duration::from_secs(30));
    assert_eq!(of_group(&script), ["commit 0:10 refused"]);
}

#[test]
fn who_leaves_a_group_may_assign_at_once_and_reads_on_behind_its_finished_work() {
    for listens in [false, true] {
        let mut script = Script::new(&[]);
        if listens {
            script.face.listen();
        }
        script.append(0, 30);
        script.append(1, 5);
        script.subscribe();
        assert_eq!(script.offsets(10).len(), 10);
        assert_eq!(script.offsets(10).len(), 10);
        let subscribed = script.face.assign([part(1)].into()).unwrap_err();
        assert_eq!(subscribed.kind(), ErrorKind::InvalidState);
        script.seen.clear();
        script.face.unsubscribe().unwrap();
        script.face.assign([part(0), part(1)].into()).unwrap();
        script.run();
        let mut read = all(&mut script);
        read.sort_unstable();
        let mut wanted: Vec<i64> = (10..30).chain(0..5).collect();
        wanted.sort_unstable();
        assert_eq!(read, wanted, "only what was finished is not read again: {:?}", script.seen);
        script.pass(Duration::from_mins(1));
        let of_group = of_group(&script);
        assert_eq!(of_group[..2], ["commit 0:10", "leave"], "{of_group:?}");
        assert!(!of_group.contains(&&"join".to_owned()), "{of_group:?}");
        assert_eq!((script.committed[&0], script.committed[&1]), (30, 5));
        let told = if listens { vec!["Assigned [0]", "Revoked [0]"] } else { vec![] };
        assert_eq!(script.told, told, "a listener hears of the group's partitions alone");
        let command = Command::Subscribe(vec!["t".into()]);
        assert_eq!(script.face.subscribe(command).unwrap_err().kind(), ErrorKind::InvalidState);
        // And back.
        script.face.unsubscribe().unwrap();
        script.face.subscribe(Command::Subscribe(vec!["t".into()])).unwrap();
        script.run();
        script.append(0, 2);
        script.release_held();
        script.run();
        assert_eq!(all(&mut script), [30, 31]);
    }
}

#[test]
fn what_was_finished_is_committed_before_the_group_is_left_however_soon_the_program_assigns() {
    let mut script = Script::new(&[]);
    script.append(0, 30);
    script.subscribe();
    assert_eq!(script.offsets(10), (0..10).collect::<Vec<_>>());
    assert_eq!(script.offsets(10), (10..20).collect::<Vec<_>>());
    script.seen.clear();
    script.face.unsubscribe().unwrap();
    script.turn_while(|face| face.assign([part(0)].into()).unwrap());
    script.run();
    assert_eq!(of_group(&script)[..2], ["commit 0:10", "leave"], "{:?}", script.seen);
    assert_eq!(all(&mut script), (10..30).collect::<Vec<_>>(), "{:?}", script.seen);
}

/// Where reading goes on, once `anew` chose it and the first commit of what was left met `code`.
fn goes_on(subscribed: bool, code: Option<ErrorCode>, anew: impl FnOnce(&Face)) -> Vec<i64> {
    let mut script = Script::new(&[]);
    script.append(0, 30);
    if subscribed {
        script.subscribe();
    } else {
        script.assign(&[0]);
    }
    assert_eq!(script.offsets(10).len() + script.offsets(10).len(), 20);
    script.refuse.extend(code.map(|code| (ApiKey::OffsetCommit, code)));
    script.face.unsubscribe().unwrap();
    if code.is_none() {
        script.lose_requests();
    }
    anew(&script.face);
    script.pass(Duration::from_secs(10));
    all(&mut script)
}

#[test]
fn what_was_left_is_committed_before_it_is_asked_where_to_begin_anew() {
    let topic = || Command::Subscribe(vec!["t".into()]);
    let behind: Vec<i64> = (10..30).collect();
    let codes = [
        None,
        Some(ErrorCode::COORDINATOR_LOAD_IN_PROGRESS),
        Some(ErrorCode::NOT_COORDINATOR),
        Some(ErrorCode::REQUEST_TIMED_OUT),
    ];
    for (subscribed, code) in [false, true].into_iter().flat_map(|it| codes.map(|code| (it, code)))
    {
        let assigned = goes_on(subscribed, code, |face| face.assign([part(0)].into()).unwrap());
        assert_eq!(assigned, behind, "assigned, subscribed before: {subscribed}, {code:?}");
        let joined = goes_on(subscribed, code, |face| face.subscribe(topic()).unwrap());
        assert_eq!(joined, behind, "subscribed, subscribed before: {subscribed}, {code:?}");
    }
}

#[test]
fn what_was_left_and_cannot_be_committed_keeps_nobody_from_reading_for_ever() {
    let mut script = Script::new(&[("request.timeout.ms", "1000")]);
    script.append(0, 30);
    script.assign(&[0]);
    assert_eq!(script.offsets(10).len() + script.offsets(10).len(), 20);
    let endless = (0..1000).map(|_| (ApiKey::OffsetCommit, ErrorCode::REQUEST_TIMED_OUT));
    script.refuse.extend(endless);
    script.face.unsubscribe().unwrap();
    script.assign(&[0]);
    assert!(script.take(10).is_none(), "{:?}", script.seen);
    script.pass(Duration::from_secs(3));
    assert_eq!(script.offsets(30), (0..30).collect::<Vec<_>>(), "nothing was committed");
}

#[test]
fn a_partition_that_does_not_exist_is_told_and_read_from_its_beginning_when_it_comes() {
    let mut script = Script::new(&[("group.id", ""), ("auto.offset.reset", "latest")]);
    script.append(0, 5);
    script.assign(&[0, 7]);
    script.pass(Duration::from_secs(2));
    let error = told(&script);
    assert_eq!((error.kind(), error.topic()), (ErrorKind::UnknownTopic, Some("t")));
    assert_eq!(error.partition(), Some(7));
    assert!(error.to_string().contains("has 4 partitions"), "{error}");
    script.append(0, 3);
    script.release_held();
    script.run();
    assert_eq!(all(&mut script), [5, 6, 7], "the other is read meanwhile");
    for partition in 4..8 {
        script.logs.insert(partition, Vec::new());
    }
    script.append(7, 3);
    script.pass(Duration::from_secs(5));
    assert_eq!(all(&mut script), [0, 1, 2], "none of its records was ever skipped");
    assert!(script.face.take(&OneRecord, Duration::ZERO, |_| ()).unwrap().is_none());
}

#[test]
fn what_was_assigned_is_read_under_a_new_leader_and_when_the_topic_is_made_anew() {
    let mut script = Script::new(&[("group.id", "")]);
    for _ in 0..3 {
        script.append(0, 10);
    }
    script.assign(&[0]);
    assert_eq!(all(&mut script).len(), 30);
    script.elect(0, 20);
    script.append(0, 5);
    script.pass(Duration::from_secs(3));
    assert_eq!(all(&mut script), [20, 21, 22, 23, 24]);
    script.recreate();
    script.append(0, 4);
    script.pass(Duration::from_secs(3));
    assert_eq!(all(&mut script), [0, 1, 2, 3]);
    assert_eq!(script.face.stats().resets, 2);
}

/// Whoever subscribes to other topics works on those from then on, whether or not the group knows.
#[test]
fn what_is_subscribed_to_no_longer_is_not_given_out_though_it_is_ready() {
    let others: [fn() -> Command; 2] = [
        || Command::Subscribe(vec!["u".into()]),
        || Command::SubscribePattern(Box::new(regex::Regex::new("^(?:u.*)$").unwrap())),
    ];
    for other in others {
        let mut script = Script::reading(&[]);
        script.append(0, 30);
        script.release_held();
        script.run();
        assert_eq!(script.offsets(5), (0..5).collect::<Vec<_>>());
        script.face.subscribe(other()).unwrap();
        assert!(script.face.take(&OneRecord, Duration::ZERO, |_| ()).unwrap().is_none());
        assert!(script.face.take(&OneRecord, Duration::ZERO, |_| ()).unwrap().is_none());
        script.pass(Duration::from_secs(3));
        assert!(script.take(30).is_none(), "{:?}", script.seen);
    }
}

#[test]
fn who_comes_back_to_a_topic_before_the_group_knows_reads_it_on() {
    let mut script = Script::reading(&[]);
    script.append(0, 30);
    script.release_held();
    script.run();
    assert_eq!(script.offsets(5), (0..5).collect::<Vec<_>>());
    for topic in ["u", "t"] {
        script.face.subscribe(Command::Subscribe(vec![topic.into()])).unwrap();
    }
    // The next poll finishes what is in hand, which the group waits for.
    assert_eq!(script.offsets(30), Vec::<i64>::new());
    script.pass(Duration::from_secs(3));
    assert_eq!(script.offsets(30), (5..30).collect::<Vec<_>>());
}
