//! Topics subscribed to by a pattern.

use std::time::Duration;

use regex::Regex;

use super::script::{Script, part};
use crate::consumer::face::Command;

fn matching(pattern: &str, topics: &[&str]) -> Script {
    let mut script = Script::new(&[
        ("partition.assignment.strategy", "cooperative-sticky"),
        ("metadata.max.age.ms", "60000"),
        ("auto.offset.reset", "latest"),
    ]);
    script.topics = topics.iter().map(ToString::to_string).collect();
    let regex = Box::new(Regex::new(pattern).unwrap());
    script.face.subscribe(Command::SubscribePattern(regex)).unwrap();
    script.run();
    script
}

#[test]
fn a_topic_that_comes_to_match_is_read_from_its_beginning_and_one_that_goes_is_left() {
    let mut script = matching("^(?:t|u.*)$", &["other"]);
    script.append(0, 10);
    assert_eq!(script.seen, Vec::<String>::new(), "nothing matches yet");
    script.topics = vec!["other".into(), "t".into()];
    script.pass(Duration::from_secs(61));
    assert_eq!(script.joined_for, ["t"]);
    assert_eq!(script.offsets(100), (0..10).collect::<Vec<_>>(), "none of it was ever skipped");
    script.topics.push("u-1".into());
    script.pass(Duration::from_secs(61));
    assert_eq!(script.joined_for, ["t", "u-1"]);
    assert_eq!(script.face.partitions(), [part(0)], "what is read goes on");
    script.take(100);
    script.topics = vec!["u-1".into()];
    script.share = vec![];
    script.pass(Duration::from_secs(61));
    assert_eq!(script.joined_for, ["u-1"], "it is gone");
    assert!(script.face.partitions().is_empty());
    script.topics.clear();
    script.pass(Duration::from_secs(61));
    assert_eq!(script.seen.last().unwrap(), "leave", "nothing is left to be read");
}

#[test]
fn a_topic_that_was_there_begins_by_the_policy() {
    let mut script = matching("^(?:t)$", &["t"]);
    script.append(0, 10);
    script.pass(Duration::from_secs(2));
    assert_eq!(script.offsets(100), (0..10).collect::<Vec<_>>(), "latest was 0 when it joined");
    let mut script = matching("^(?:t)$", &["u"]);
    script.face.subscribe(Command::Subscribe(vec!["t".into()])).unwrap();
    script.append(0, 10);
    script.run();
    assert_eq!(script.offsets(100), Vec::<i64>::new(), "the pattern holds no longer");
    script.topics.push("t".into());
    script.face.command_close(script.now + Duration::from_secs(5));
    script.run();
    assert!(script.ended);
}
