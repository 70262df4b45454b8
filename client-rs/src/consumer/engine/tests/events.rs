//! What a consumer tells by events.

use std::time::Duration;

use ottla_protocol::{ApiKey, ErrorCode};

use super::script::{Script, part};
use crate::events::{Event, Events};
use crate::process::Process;

struct Watched {
    script: Script,
    events: Events,
}

/// A consumer that has not subscribed yet, and whose events are asked for.
fn watched(options: &[(&str, &str)]) -> Watched {
    let script = Script::new(options);
    let events = Events::of(&script.face.events, Process::current());
    Watched { script, events }
}

impl Watched {
    /// All events since the last call, in words.
    fn told(&self) -> Vec<String> {
        std::iter::from_fn(|| self.events.try_next()).map(|event| word(&event)).collect()
    }
}

fn word(event: &Event) -> String {
    let numbers = |parts: &[crate::TopicPartition]| {
        parts.iter().map(|part| part.partition.to_string()).collect::<Vec<_>>().join(" ")
    };
    match event {
        Event::PartitionsAssigned { partitions, generation } => {
            format!("assigned {} in {generation}", numbers(partitions))
        }
        Event::PartitionsRevoked { partitions } => format!("revoked {}", numbers(partitions)),
        Event::PartitionsLost { partitions } => format!("lost {}", numbers(partitions)),
        Event::PollMissed { after, limit } => {
            format!("no poll for {} s of {} s", after.as_secs(), limit.as_secs())
        }
        Event::PartitionStuck { partition, reason } => format!("{partition} stuck: {reason}"),
        Event::OffsetReset { partition, offset, to } => format!("{partition} {offset:?} {to:?}"),
        Event::Truncated { partition, offset, end } => format!("{partition} cut {offset} {end}"),
        Event::TopicRecreated { topic } => format!("{topic} anew"),
        other => panic!("{other:?}"),
    }
}

#[test]
fn partitions_that_come_go_and_are_lost_are_told_in_order() {
    let mut watched = watched(&[]);
    watched.script.subscribe();
    assert_eq!(watched.told(), ["assigned 0 in 1", "t-0 None Earliest"]);
    (watched.script.share, watched.script.rebalance) = (vec![1, 2], true);
    watched.script.pass(Duration::from_secs(4));
    let told = watched.told();
    assert_eq!(told[..2], ["revoked 0", "assigned 1 2 in 2"]);
    watched.script.forgotten = true;
    watched.script.pass(Duration::from_secs(4));
    let told = watched.told();
    assert_eq!(told[..2], ["lost 1 2", "assigned 1 2 in 3"]);
}

#[test]
fn a_program_that_does_not_poll_in_time_is_told_once_and_how_long_it_took() {
    let mut watched = watched(&[("max.poll.interval.ms", "60000")]);
    watched.script.append(0, 10);
    watched.script.subscribe();
    assert_eq!(watched.script.offsets(1).len(), 1);
    watched.told();
    watched.script.pass(Duration::from_mins(3));
    assert_eq!(watched.told(), ["no poll for 60 s of 60 s", "revoked 0"]);
    // It asks again, and is a member again.
    watched.script.offsets(1);
    watched.script.pass(Duration::from_secs(1));
    assert_eq!(watched.told()[0], "assigned 0 in 2");
}

#[test]
fn positions_that_do_not_hold_are_told_with_where_it_goes_on() {
    let mut watched = watched(&[]);
    for _ in 0..3 {
        watched.script.append(0, 10);
    }
    watched.script.committed.insert(0, 50);
    watched.script.subscribe();
    watched.script.pass(Duration::from_secs(3));
    assert_eq!(watched.told(), ["assigned 0 in 1", "t-0 Some(50) Earliest"]);
    while !watched.script.offsets(1000).is_empty() {}
    watched.script.elect(0, 20);
    watched.script.pass(Duration::from_secs(3));
    assert_eq!(watched.told(), ["t-0 cut 30 20"]);
    watched.script.recreate();
    watched.script.pass(Duration::from_secs(3));
    assert_eq!(watched.told(), ["t anew"]);
    assert_eq!(watched.script.face.position(&part(0)), Some(0));
}

#[test]
fn a_partition_that_gets_no_good_answer_for_long_is_told_with_the_reason() {
    let mut watched = watched(&[]);
    watched.script.append(0, 10);
    let refused = (ApiKey::Fetch, ErrorCode::NOT_LEADER_OR_FOLLOWER);
    watched.script.refuse.extend([refused; 1000]);
    watched.script.subscribe();
    watched.script.pass(Duration::from_secs(29));
    assert_eq!(watched.told(), ["assigned 0 in 1", "t-0 None Earliest"]);
    watched.script.pass(Duration::from_secs(3));
    let why = "broker 1 was asked for its records, and last answered NOT_LEADER_OR_FOLLOWER (6)";
    assert_eq!(watched.told(), [format!("t-0 stuck: {why}")]);
    assert_eq!(watched.script.face.stats().restarts, 1);
    watched.script.refuse.clear();
    watched.script.pass(Duration::from_secs(3));
    assert_eq!(watched.script.offsets(1000).len(), 10);
    watched.script.pass(Duration::from_mins(2));
    assert_eq!(watched.told(), Vec::<String>::new(), "read up to the end nothing is missing");
}
