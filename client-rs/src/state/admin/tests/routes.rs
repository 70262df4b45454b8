//! Whom calls are for: leaders, coordinators, the controller, each broker.

use super::*;

#[test]
fn items_for_one_broker_share_a_request_and_end_one_by_one() {
    let mut trial = Trial::new();
    trial.begin(&[Route::Any, Route::Any, Route::Any]);
    let (to, token, _) = trial.only();
    assert_eq!(to, Target::Any);
    let some = [(0, Verdict::Done), (2, refused(ErrorCode::INVALID_CONFIG))];
    trial.say(token, 0, &some);
    assert_eq!(trial.told(), [(0, Ok(())), (2, Err(ErrorKind::InvalidRequest))]);
    assert!(!trial.is_finished(), "one item was not named: it is asked about again");
    trial.wait(200);
    let (_, token, _) = trial.only();
    trial.say(token, 0, &[(1, Verdict::Done)]);
    assert_eq!(trial.turn(), []);
    assert!(trial.is_finished());
    assert_eq!(trial.calls.counts().retries, 1);
}

#[test]
fn what_changes_the_cluster_goes_to_the_controller_and_follows_it() {
    let mut trial = Trial::new();
    trial.begin(&[Route::Controller]);
    assert_eq!(trial.turn(), [], "the controller is not known");
    assert!(trial.metadata(1, ErrorCode::NONE, 1));
    let (to, token, _) = trial.only();
    assert_eq!(to, Target::Node(1));
    trial.say(token, 0, &[(0, refused(ErrorCode::NOT_CONTROLLER))]);
    trial.wait(200);
    assert!(trial.metadata(2, ErrorCode::NONE, 1), "the controller is looked for anew");
    let (to, token, _) = trial.only();
    assert_eq!(to, Target::Node(2));
    trial.say(token, 0, &[(0, Verdict::Done)]);
    assert_eq!(trial.told(), [(0, Ok(()))]);
}

#[test]
fn without_a_named_controller_any_broker_is_asked() {
    let mut trial = Trial::new();
    trial.begin(&[Route::Controller]);
    trial.turn();
    assert!(trial.metadata(-1, ErrorCode::NONE, 1));
    assert_eq!(trial.only().0, Target::Any);
}

#[test]
fn a_moved_leader_is_found_anew_and_an_unknown_topic_believed_after_a_while() {
    let mut trial = Trial::new();
    trial.begin(&[leader()]);
    trial.turn();
    assert!(trial.metadata(1, ErrorCode::NONE, 1));
    let (to, token, _) = trial.only();
    assert_eq!(to, Target::Node(1));
    trial.say(token, 0, &[(0, refused(ErrorCode::NOT_LEADER_OR_FOLLOWER))]);
    trial.wait(200);
    assert!(trial.metadata(1, ErrorCode::NONE, 2));
    let (to, mut token, _) = trial.only();
    assert_eq!(to, Target::Node(2));
    for _ in 1..UNKNOWN_MAX {
        trial.say(token, 0, &[(0, refused(ErrorCode::UNKNOWN_TOPIC_OR_PARTITION))]);
        trial.wait(2000);
        assert!(trial.metadata(1, ErrorCode::NONE, 2));
        token = trial.only().1;
    }
    assert_eq!(trial.told(), []);
    trial.say(token, 0, &[(0, refused(ErrorCode::UNKNOWN_TOPIC_OR_PARTITION))]);
    assert_eq!(trial.told(), [(0, Err(ErrorKind::UnknownTopic))]);
}

#[test]
fn a_topic_that_the_metadata_does_not_know_ends_its_items_after_a_while() {
    let mut trial = Trial::new();
    trial.begin(&[leader()]);
    trial.turn();
    for _ in 0..UNKNOWN_MAX {
        assert_eq!(trial.told(), []);
        trial.metadata(1, ErrorCode::UNKNOWN_TOPIC_OR_PARTITION, 0);
        assert_eq!(trial.turn(), []);
        trial.wait(2000);
    }
    assert_eq!(trial.told(), [(0, Err(ErrorKind::UnknownTopic))]);
    assert!(trial.is_finished());
    trial.wait(2000);
    assert!(trial.metadata(1, ErrorCode::UNKNOWN_TOPIC_OR_PARTITION, 0));
    trial.wait(2000);
    assert!(trial.metadata.poll_request(trial.now).is_none(), "nobody asks about it any more");
}

#[test]
fn coordinators_of_many_groups_are_asked_for_at_once_and_found_again() {
    let mut trial = Trial::new();
    trial.begin(&[of_group("a"), of_group("b"), of_group("c")]);
    let (to, token, api) = trial.only();
    assert_eq!((to, api), (Target::Any, ApiKey::FindCoordinator));
    let load = ErrorCode::COORDINATOR_NOT_AVAILABLE;
    let rows = [("a", ErrorCode::NONE, 1), ("b", load, -1), ("c", ErrorCode::NONE, 1)];
    trial.coordinator(token, &rows);
    let (to, token, api) = trial.only();
    assert_eq!((to, api), (Target::Node(1), ApiKey::Metadata), "b waits for its own");
    let moved = refused(ErrorCode::NOT_COORDINATOR);
    trial.say(token, 0, &[(0, moved), (2, Verdict::Done)]);
    trial.wait(200);
    let (_, token, api) = trial.only();
    assert_eq!(api, ApiKey::FindCoordinator);
    trial.coordinator(token, &[("a", ErrorCode::NONE, 2), ("b", ErrorCode::NONE, 2)]);
    let (to, token, _) = trial.only();
    assert_eq!(to, Target::Node(2));
    trial.say(token, 0, &[(0, Verdict::Done), (1, Verdict::Done)]);
    trial.turn();
    assert!(trial.is_finished());
}

#[test]
fn a_group_that_an_answer_leaves_out_is_asked_about_again_after_a_pause() {
    let mut trial = Trial::new();
    trial.begin(&[of_group("a"), of_group("b")]);
    let (began, mut asked) = (trial.now, 0);
    while !trial.is_finished() {
        let went = trial.turn();
        for &(_, token, api) in &went {
            if api == ApiKey::FindCoordinator {
                asked += 1;
                assert!(asked < 100, "in a loop");
                trial.coordinator(token, &[("a", ErrorCode::NONE, 1)]);
            } else {
                trial.say(token, 0, &[(0, Verdict::Done)]);
            }
        }
        if went.is_empty() && !trial.is_finished() {
            let pause = trial.next().unwrap();
            trial.now += pause;
        }
    }
    assert_eq!(trial.now - began, Duration::from_mins(1));
    assert!(asked > 50, "{asked}");
    assert_eq!(trial.told(), [(0, Ok(())), (1, Err(ErrorKind::Timeout))]);
    let error = trial.error();
    assert!(error.to_string().contains("does not name all groups"), "{error}");
}

#[test]
fn a_group_that_nobody_will_coordinate_ends_at_once() {
    let mut trial = Trial::new();
    trial.begin(&[of_group("a"), of_group("b")]);
    let (_, token, _) = trial.only();
    let no = ErrorCode::GROUP_AUTHORIZATION_FAILED;
    trial.coordinator(token, &[("a", no, -1), ("b", ErrorCode::NONE, 1)]);
    assert_eq!(trial.told(), [(0, Err(ErrorKind::Authorization))]);
    assert_eq!(trial.only().0, Target::Node(1));
}

#[test]
fn each_broker_is_asked_once_those_of_now_are_known() {
    let mut trial = Trial::new();
    trial.begin_as(&[], true, false);
    assert_eq!(trial.turn(), []);
    assert!(trial.metadata(1, ErrorCode::NONE, 1));
    let went = trial.turn();
    let to: Vec<Target> = went.iter().map(|went| went.0).collect();
    assert_eq!(to, [Target::Node(1), Target::Node(2)]);
    trial.say(went[0].1, 0, &[(0, Verdict::Done)]);
    trial.lose(went[1].1, ErrorKind::Disconnected, true);
    trial.wait(60_000);
    trial.turn();
    assert_eq!(trial.told(), [(0, Ok(())), (1, Err(ErrorKind::Timeout))]);
    assert!(trial.is_finished());
}
