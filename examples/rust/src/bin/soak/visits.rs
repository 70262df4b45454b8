//! Those who come and go: topics that are made, read and deleted, and clients of each kind.

use std::time::Duration;

use ottla::{
    Admin, Consumer, Error, ErrorKind, NewTopic, Options, Producer, Record, TopicPartition,
};

use crate::ledger::TOPICS;
use crate::settings::Tamper;
use crate::watch::{Check, Phase};
use crate::{Outcome, Run, now, readers, writers};

const CALL: Duration = Duration::from_mins(1);
const SLACK: Duration = Duration::from_secs(15);
const CLOSE: Duration = Duration::from_secs(10);
/// Records of a topic that is soon deleted.
const RECORDS: u64 = 100;
const VISITED: &str = "visited";
/// Segments that go after three minutes, by when the checker has long read them. Of these topics
/// alone: the broker's own logs are not compacted yet, and would open a segment more each time.
const KEPT: [(&str, &str); 3] =
    [("segment.bytes", "8388608"), ("segment.ms", "20000"), ("retention.ms", "180000")];

/// Makes the topics of the run.
pub(crate) fn prepare(run: &Run) -> Outcome {
    let admin = admin(run)?;
    let names = TOPICS.iter().map(|&(name, partitions, _)| (name, partitions));
    let topics = names.chain([(VISITED, 2)]).map(|(name, partitions)| {
        let topic = NewTopic::new(name).partitions(partitions);
        KEPT.iter().fold(topic, |topic, &(name, value)| topic.config(name, value))
    });
    let topics: Vec<NewTopic> = topics.collect();
    admin.create_topics(&topics).timeout(CALL).wait()?.all()?;
    admin.close(CLOSE)?;
    Ok(())
}

fn admin(run: &Run) -> Result<Admin, Error> {
    let options = Options::new().set("bootstrap.servers", &run.address)?;
    Admin::new(&options.set("request.timeout.ms", "10000")?)
}

/// Makes topics, writes and reads them, and deletes them, one after the other.
pub(crate) fn topics(run: &Run) -> Outcome {
    let mut chance = run.settings.chance(50);
    let admin = admin(run)?;
    let mut number = 0;
    while run.watch.phase() == Phase::Load {
        number += 1;
        // A name comes again: what is known of the old topic must not be taken for the new one.
        let name = format!("short-lived-{}", number % 5);
        if let Err(error) = one_topic(run, &admin, &name) {
            run.watch.fault(Check::Topics, format!("{name}: {error}"));
        }
        run.watch.rest(chance.span(2_000, 20_000), Phase::Drain);
    }
    admin.close(CLOSE)?;
    Ok(())
}

fn one_topic(run: &Run, admin: &Admin, name: &str) -> Outcome {
    let watch = &run.watch;
    let new = [NewTopic::new(name)];
    let made = watch.call("create_topics", CALL + SLACK, || {
        admin.create_topics(&new).timeout(CALL).wait().and_then(ottla::Results::all)
    });
    // The answer to the attempt that made it may have been lost.
    allowing(made.map(drop), ErrorKind::AlreadyExists)?;
    let producer = Producer::new(&writers::options(&run.address)?)?;
    let listed = run.gauges.producer(&producer);
    let sent =
        (0..RECORDS).map(|number| producer.send(&Record::to(name).value(&number.to_be_bytes())));
    let sent: Vec<_> = watch.call("send", CALL * 2, || sent.collect::<Result<_, _>>())?;
    for sent in sent {
        watch.call("waiting for a delivery", CALL * 3, || sent.wait(CALL * 2))?;
    }
    let consumer = Consumer::new(&readers::options(&run.address)?.set("auto_commit", "false")?)?;
    let read_by = run.gauges.consumer(&consumer);
    consumer.assign(&[TopicPartition::new(name, 0)])?;
    let (mut read, begin) = (0, now());
    while read < RECORDS {
        if begin.elapsed() > CALL * 2 {
            return Err(format!("{read} of {RECORDS} records came").into());
        }
        match watch.call("poll", CALL, || consumer.poll(Duration::from_secs(1))) {
            Ok(Some(record)) if record.value() == Some(&read.to_be_bytes()) => read += 1,
            Ok(None) => {}
            Ok(Some(record)) => return Err(format!("not record {read}: {record:?}").into()),
            Err(error) if error.retriable() => {}
            Err(error) => return Err(error.into()),
        }
    }
    drop((listed, read_by));
    watch.call("closing a producer", CLOSE + SLACK, || producer.close(CLOSE))?;
    watch.call("closing a consumer", CLOSE + SLACK, || consumer.close(CLOSE))?;
    let gone = watch.call("delete_topics", CALL + SLACK, || {
        admin.delete_topics(&[name]).timeout(CALL).wait().and_then(ottla::Results::all)
    });
    allowing(gone.map(drop), ErrorKind::UnknownTopic)?;
    Ok(())
}

fn allowing(result: Result<(), Error>, kind: ErrorKind) -> Result<(), Error> {
    match result {
        Err(error) if error.kind() == kind => Ok(()),
        other => other,
    }
}

/// Makes clients of each kind, uses them for a moment, and closes or drops them.
pub(crate) fn clients(run: &Run) -> Outcome {
    let mut chance = run.settings.chance(51);
    let (mut forgotten, mut turn) = (Vec::new(), 0_u64);
    while run.watch.phase() == Phase::Load {
        turn += 1;
        let closes = chance.percent(50);
        let visit = match turn % 4 {
            0 => visit_by_producer(run, closes),
            1 => visit_by_member(run, closes),
            2 => visit_by_admin(run, closes),
            _ => visit_by_nobody(run),
        };
        if let Err(error) = visit {
            run.watch.fault(Check::Calls, format!("a client that came and went: {error}"));
        }
        match run.settings.tamper {
            Some(Tamper::Connections) => std::mem::forget(connected(run)?),
            Some(Tamper::Memory) => forgotten.push(vec![1_u8; 1 << 20]),
            Some(Tamper::Hang) if turn == 5 => {
                run.watch.call("a wait without an end", SLACK, std::thread::park);
            }
            _ => {}
        }
        run.watch.rest(chance.span(200, 1_800), Phase::Drain);
    }
    Ok(())
}

/// A consumer with a connection.
fn connected(run: &Run) -> Outcome<Consumer> {
    let consumer = Consumer::new(&readers::options(&run.address)?)?;
    let place = TopicPartition::new(VISITED, 0);
    watched(run, "end_offsets", || consumer.end_offsets(&[place], CALL))?;
    Ok(consumer)
}

fn watched<T>(
    run: &Run,
    what: &'static str,
    body: impl FnOnce() -> Result<T, Error>,
) -> Outcome<T> {
    Ok(run.watch.call(what, CALL + SLACK, body)?)
}

/// A few records, awaited; one more, which a drop gives up.
fn visit_by_producer(run: &Run, closes: bool) -> Outcome {
    let producer = Producer::new(&writers::options(&run.address)?)?;
    let _listed = run.gauges.producer(&producer);
    for number in 0..5_u8 {
        let sent = producer.send(&Record::to(VISITED).value(&[number]))?;
        watched(run, "waiting for a delivery", || sent.wait(CALL))?;
    }
    producer.push(&Record::to(VISITED).value(b"given up"))?;
    if closes {
        watched(run, "closing a producer", || producer.close(CALL))?;
    }
    Ok(())
}

/// A member of a group of its own, for some polls.
fn visit_by_member(run: &Run, closes: bool) -> Outcome {
    let options = readers::options(&run.address)?.set("group.id", "visitors")?;
    let consumer = Consumer::new(&options.set("session.timeout.ms", "6000")?)?;
    let _listed = run.gauges.consumer(&consumer);
    consumer.subscribe(&[VISITED])?;
    for _ in 0..3 {
        let polled = run.watch.call("poll", CALL, || consumer.poll(Duration::from_millis(300)));
        match polled {
            Err(error) if !error.retriable() => return Err(error.into()),
            _ => {}
        }
    }
    if closes {
        let closed = run.watch.call("closing a consumer", CLOSE + SLACK, || consumer.close(CLOSE));
        match closed {
            Err(error) if !error.retriable() => return Err(error.into()),
            _ => {}
        }
    }
    Ok(())
}

fn visit_by_admin(run: &Run, closes: bool) -> Outcome {
    let admin = admin(run)?;
    watched(run, "describe_cluster", || admin.describe_cluster().timeout(CALL).wait())?;
    watched(run, "list_topics", || admin.list_topics().timeout(CALL).wait())?;
    if closes {
        watched(run, "closing an admin client", || admin.close(CLOSE))?;
    }
    Ok(())
}

/// Clients that are never used.
fn visit_by_nobody(run: &Run) -> Outcome {
    drop(Producer::new(&writers::options(&run.address)?)?);
    drop(Consumer::new(&readers::options(&run.address)?)?);
    drop(admin(run)?);
    Ok(())
}
