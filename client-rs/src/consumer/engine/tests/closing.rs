//! What is said before a consumer ends.

use std::time::Duration;

use super::script::Script;

/// One that has read ten records, of whose fetches the broker keeps session 77.
fn reading(group: &str) -> Script {
    let mut script = Script::new(&[("group.id", group)]);
    script.session = 77;
    script.append(0, 10);
    if group.is_empty() {
        script.assign(&[0]);
    } else {
        script.subscribe();
    }
    assert_eq!(script.offsets(10).len(), 10);
    script.seen.clear();
    script
}

#[test]
fn a_close_ends_the_sessions_that_brokers_keep_of_its_fetches() {
    for (group, said) in
        [("", vec!["end session 77"]), ("g", vec!["end session 77", "commit 0:0", "leave"])]
    {
        let mut script = reading(group);
        script.face.command_close(script.now + Duration::from_secs(5));
        script.run();
        assert!(script.ended && script.closed.wait(Duration::ZERO, "it").is_ok());
        assert_eq!(script.seen, said);
    }
}

#[test]
fn a_broker_that_does_not_answer_holds_up_no_close() {
    let mut script = reading("");
    script.face.command_close(script.now + Duration::from_secs(5));
    script.turn_alone();
    assert!(!script.ended);
    script.now += Duration::from_millis(100);
    script.turn_alone();
    assert!(script.ended && script.closed.wait(Duration::ZERO, "it").is_ok());
}

/// It has no place in the group that it knows of.
#[test]
fn a_close_whose_first_join_is_never_answered_ends_at_its_deadline_without_an_error() {
    let mut script = Script::new(&[("group.id", "g")]);
    script.holds_joins = true;
    script.subscribe();
    script.face.command_close(script.now + Duration::from_secs(2));
    script.run();
    assert!(!script.ended, "it waits for the name to say goodbye under");
    script.pass(Duration::from_secs(2));
    assert!(script.ended && script.closed.wait(Duration::ZERO, "it").is_ok());
}
