//! When a call is asked again, when it is over, and what its end tells.

use super::*;

#[test]
fn pauses_grow_and_the_deadline_ends_what_is_open_with_its_cause() {
    let mut trial = Trial::new();
    trial.begin(&[Route::Any]);
    let began = trial.now;
    let mut pauses = Vec::new();
    while !trial.is_finished() {
        for (_, token, _) in trial.turn() {
            trial.lose(token, ErrorKind::Disconnected, false);
        }
        if let Some(pause) = trial.next() {
            pauses.push(pause.as_millis());
            trial.now += pause;
        }
    }
    assert_eq!(trial.now - began, Duration::from_mins(1));
    assert!((80..=120).contains(&pauses[0]) && (160..=240).contains(&pauses[1]), "{pauses:?}");
    assert!(pauses.len() > 50 && pauses.iter().all(|&pause| pause <= 1200), "{pauses:?}");
    let error = trial.error();
    assert_eq!(error.kind(), ErrorKind::Timeout);
    assert!(error.to_string().contains(": lost"), "{error}");
    assert_eq!(error.hint(), None, "nothing was written");
}

#[test]
fn an_attempt_that_may_have_done_it_is_told_of_in_the_error() {
    let mut trial = Trial::new();
    trial.begin(&[Route::Any]);
    let (_, token, _) = trial.only();
    trial.lose(token, ErrorKind::Disconnected, true);
    trial.wait(200);
    let (_, token, _) = trial.only();
    trial.say(token, 0, &[(0, refused(ErrorCode::TOPIC_ALREADY_EXISTS))]);
    let error = trial.error();
    assert!(error.hint().is_some_and(|hint| hint.contains("may be done")), "{error}");
    assert_eq!(error.attempt(), Some(2));
}

/// Whether the last error says that what was asked may be done.
fn may_be_done(trial: &Trial) -> bool {
    trial.error().hint().is_some_and(|hint| hint.contains("may be done"))
}

#[test]
fn what_may_be_done_is_told_whichever_way_the_call_ends() {
    // Its answer never comes, and its time is over or the client is closed.
    for (written, closed) in [(true, false), (false, false), (true, true), (false, true)] {
        let mut trial = Trial::new();
        trial.begin(&[Route::Any]);
        let (_, token, _) = trial.only();
        if written {
            trial.calls.handle_begun(token);
        }
        if closed {
            trial.with(|calls, _| calls.fail(&Error::closed()));
        } else {
            trial.wait(60_000);
            trial.turn();
        }
        let kind = if closed { ErrorKind::Closed } else { ErrorKind::Timeout };
        assert_eq!(trial.error().kind(), kind);
        assert_eq!(may_be_done(&trial), written, "{}", trial.error());
    }
    // An answer names others only.
    let mut trial = Trial::new();
    trial.begin(&[Route::Any]);
    let (_, token, _) = trial.only();
    trial.say(token, 0, &[]);
    trial.wait(200);
    let (_, token, _) = trial.only();
    trial.say(token, 0, &[(0, refused(ErrorCode::TOPIC_ALREADY_EXISTS))]);
    assert!(may_be_done(&trial), "{}", trial.error());
    // Its leader may not be looked for any more.
    let mut trial = Trial::new();
    trial.begin(&[leader()]);
    trial.turn();
    trial.metadata(1, ErrorCode::NONE, 1);
    let (_, token, _) = trial.only();
    trial.lose(token, ErrorKind::Disconnected, true);
    trial.wait(2000);
    trial.metadata(1, ErrorCode::TOPIC_AUTHORIZATION_FAILED, 1);
    assert_eq!(trial.turn(), []);
    assert_eq!(trial.error().kind(), ErrorKind::Authorization);
    assert!(may_be_done(&trial), "{}", trial.error());
    // The group may not be looked for any more.
    let mut trial = Trial::new();
    trial.begin(&[of_group("a")]);
    let (_, token, _) = trial.only();
    trial.coordinator(token, &[("a", ErrorCode::NONE, 1)]);
    let (_, token, _) = trial.only();
    trial.lose(token, ErrorKind::Disconnected, true);
    trial.wait(200);
    let (_, token, _) = trial.only();
    trial.coordinator(token, &[("a", ErrorCode::GROUP_AUTHORIZATION_FAILED, -1)]);
    assert_eq!(trial.error().kind(), ErrorKind::Authorization);
    assert!(may_be_done(&trial), "{}", trial.error());
}

#[test]
fn a_broker_that_wants_quiet_is_left_alone_by_all_calls() {
    let mut trial = Trial::new();
    trial.begin(&[leader()]);
    trial.turn();
    assert!(trial.metadata(1, ErrorCode::NONE, 1));
    let (_, token, _) = trial.only();
    trial.say(token, 5000, &[(0, refused(ErrorCode::THROTTLING_QUOTA_EXCEEDED))]);
    trial.begin(&[Route::Broker(1), Route::Broker(2)]);
    assert_eq!(trial.only().0, Target::Node(2));
    trial.wait(4999);
    assert_eq!(trial.turn(), []);
    trial.wait(2);
    let to: Vec<Target> = trial.turn().iter().map(|went| went.0).collect();
    assert_eq!(to, [Target::Node(1), Target::Node(1)], "one for each call");
}

#[test]
fn an_api_that_the_broker_does_not_speak_is_asked_by_another_or_is_the_end() {
    let mut trial = Trial::new();
    trial.begin_as(&[Route::Any], false, true);
    let (_, token, api) = trial.only();
    assert_eq!(api, ApiKey::DescribeTopicPartitions);
    trial.lose(token, ErrorKind::UnsupportedVersion, false);
    let (_, token, api) = trial.only();
    assert_eq!(api, ApiKey::Metadata, "at once");
    trial.lose(token, ErrorKind::UnsupportedVersion, false);
    assert_eq!(trial.told(), [(0, Err(ErrorKind::UnsupportedVersion))]);
}

#[test]
fn a_broker_that_the_cluster_does_not_have_is_an_error() {
    let mut trial = Trial::new();
    trial.begin(&[Route::Broker(9)]);
    assert_eq!(trial.turn(), []);
    assert!(trial.metadata(1, ErrorCode::NONE, 1));
    trial.turn();
    assert_eq!(trial.told(), [(0, Err(ErrorKind::InvalidArgument))]);
}

#[test]
fn part_of_an_answer_is_followed_by_the_rest_without_a_pause() {
    let mut trial = Trial::new();
    trial.begin(&[Route::Any]);
    let (_, token, _) = trial.only();
    trial.say(token, 0, &[(0, Verdict::Partly)]);
    let (_, token, _) = trial.only();
    trial.say(token, 0, &[(0, Verdict::Done)]);
    assert_eq!(trial.told(), [(0, Ok(()))]);
}

#[test]
fn an_item_that_cannot_be_asked_ends_at_once_and_the_others_are_asked() {
    let mut trial = Trial::new();
    trial.begin(&[Route::Any, Route::Coordinator("".into()), Route::Any]);
    let (_, token, _) = trial.only();
    assert_eq!(trial.told(), [(1, Err(ErrorKind::InvalidArgument))]);
    trial.say(token, 0, &[(0, Verdict::Done), (2, Verdict::Done)]);
    trial.turn();
    assert_eq!(trial.told()[1..], [(0, Ok(())), (2, Ok(()))]);
    assert!(trial.is_finished());
}

/// A name that is longer than any message can carry, or one kind of question of many that an old
/// broker does not know.
#[test]
fn an_item_that_a_request_cannot_say_is_told_apart_from_those_that_it_can() {
    for kind in [ErrorKind::UnsupportedVersion, ErrorKind::Internal] {
        let mut trial = Trial::new();
        trial.begin(&vec![Route::Any; 100]);
        let (mut requests, mut went) = (0, Vec::new());
        loop {
            went.extend(trial.turn());
            let Some((_, token, _)) = went.pop() else { break };
            requests += 1;
            let asked = trial.asked(token);
            if asked.contains(&70) {
                trial.lose(token, kind, false);
            } else {
                let said: Vec<_> = asked.iter().map(|&item| (item, Verdict::Done)).collect();
                trial.say(token, 0, &said);
            }
        }
        assert!(requests <= 16, "{requests} requests: halves, not one by one");
        let (good, bad): (Vec<_>, Vec<_>) =
            trial.told().into_iter().partition(|(_, told)| told.is_ok());
        assert_eq!((good.len(), bad), (99, vec![(70, Err(kind))]));
        assert!(trial.is_finished());
    }
}

/// Metadata is asked for all topics together: a name that cannot be written would keep every other
/// from being found.
#[test]
fn no_leader_is_looked_for_of_a_topic_that_cannot_be() {
    let mut trial = Trial::new();
    let bad = [TopicPartition::new("", 0), TopicPartition::new("x".repeat(40_000), 0)];
    let bad = bad.map(Route::Leader);
    trial.begin(&[bad[0].clone(), leader(), bad[1].clone()]);
    trial.turn();
    let kind = ErrorKind::InvalidTopic;
    assert_eq!(trial.told(), [(0, Err(kind)), (2, Err(kind))]);
    assert!(trial.metadata(1, ErrorCode::NONE, 1));
    assert_eq!(trial.only().0, Target::Node(1));
}

#[test]
fn what_any_broker_is_asked_waits_too_for_as_long_as_the_answer_wants_quiet() {
    let mut trial = Trial::new();
    trial.begin(&[Route::Any]);
    let (_, token, _) = trial.only();
    trial.say(token, 3000, &[(0, refused(ErrorCode::THROTTLING_QUOTA_EXCEEDED))]);
    trial.wait(2000);
    assert_eq!(trial.turn(), []);
    trial.wait(1000);
    trial.only();
}

#[test]
fn a_change_that_a_broker_had_no_time_to_end_may_be_done() {
    let mut trial = Trial::new();
    trial.begin(&[Route::Any]);
    let (_, token, _) = trial.only();
    trial.say(token, 0, &[(0, refused(ErrorCode::REQUEST_TIMED_OUT))]);
    trial.wait(200);
    let (_, token, _) = trial.only();
    trial.say(token, 0, &[(0, refused(ErrorCode::TOPIC_ALREADY_EXISTS))]);
    assert!(may_be_done(&trial), "{}", trial.error());
}

#[test]
fn who_leads_nothing_is_believed_at_once_that_a_topic_is_unknown() {
    let mut trial = Trial::new();
    trial.begin(&[Route::Any]);
    let (_, token, _) = trial.only();
    trial.say(token, 0, &[(0, refused(ErrorCode::UNKNOWN_TOPIC_OR_PARTITION))]);
    assert_eq!(trial.told(), [(0, Err(ErrorKind::UnknownTopic))]);
}

#[test]
fn what_was_written_is_not_asked_again_by_halves() {
    let mut trial = Trial::new();
    trial.begin(&[Route::Any, Route::Any]);
    let (_, token, _) = trial.only();
    trial.lose(token, ErrorKind::Internal, true);
    let ended = [(0, Err(ErrorKind::Internal)), (1, Err(ErrorKind::Internal))];
    assert_eq!(trial.told(), ended);
}
