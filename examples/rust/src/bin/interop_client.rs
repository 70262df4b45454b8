//! Our client as a program: sends or reads `key:value` lines, for the interop suite.
//!
//! `interop_client HOST:PORT produce TOPIC [option=value …] < LINES` sends each line and prints how
//! many were delivered; `interop_client HOST:PORT consume TOPIC GROUP COUNT` reads that many as a
//! member of the group, commits them, and prints them; `interop_client HOST:PORT member GROUP TOPIC
//! STRATEGY STOP` prints `has 0 1 2` when its partitions change and `read VALUE` for each record, and
//! closes once the file STOP exists.
#![allow(clippy::print_stdout, reason = "printing is its purpose")]

use std::collections::HashSet;
use std::error::Error;
use std::io::BufRead;
use std::path::Path;
use std::time::Duration;

use ottla::{Commit, Consumer, Options, Producer, Record};

const LIMIT: Duration = Duration::from_secs(30);
/// After the last record expected: none may follow.
const QUIET: Duration = Duration::from_millis(300);

type Outcome = Result<(), Box<dyn Error>>;

fn main() -> Outcome {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match words.as_slice() {
        [bootstrap, "produce", topic, options @ ..] => produce(bootstrap, topic, options),
        [bootstrap, "consume", topic, group, count] => {
            consume(bootstrap, topic, group, count.parse()?)
        }
        [bootstrap, "member", group, topic, strategy, stop] => {
            member(bootstrap, group, topic, strategy, Path::new(stop))
        }
        _ => Err("usage: interop_client HOST:PORT produce TOPIC [option=value ...] | \
                  HOST:PORT consume TOPIC GROUP COUNT | \
                  HOST:PORT member GROUP TOPIC STRATEGY STOP"
            .into()),
    }
}

fn produce(bootstrap: &str, topic: &str, settings: &[&str]) -> Outcome {
    let options = Options::parse(&settings.join(";"))?.set("bootstrap.servers", bootstrap)?;
    let producer = Producer::new(&options)?;
    let mut sent = Vec::new();
    for line in std::io::stdin().lock().lines() {
        let line = line?;
        let (key, value) = line.split_once(':').ok_or("a line without a colon")?;
        sent.push(producer.send(&Record::to(topic).key(key).value(value))?);
    }
    let mut places = HashSet::new();
    for one in &sent {
        let delivery = one.wait(LIMIT)?;
        if !places.insert((delivery.partition, delivery.offset)) {
            return Err(format!("{delivery:?} was given twice").into());
        }
    }
    producer.close(LIMIT)?;
    println!("{} delivered", places.len());
    Ok(())
}

fn consume(bootstrap: &str, topic: &str, group: &str, count: usize) -> Outcome {
    let options = Options::new()
        .set("bootstrap.servers", bootstrap)?
        .set("group.id", group)?
        .set("auto.offset.reset", "earliest")?
        .set("enable.auto.commit", "false")?;
    let consumer = Consumer::new(&options)?;
    consumer.subscribe(&[topic])?;
    let mut read = 0;
    while read < count {
        let batch = consumer.poll_batch(LIMIT)?.ok_or("no batch came in time")?;
        for record in batch.records() {
            let key = String::from_utf8_lossy(record.key.unwrap_or_default());
            let value = String::from_utf8_lossy(record.value.unwrap_or_default());
            println!("{key}:{value}");
            read += 1;
        }
        consumer.commit(Commit::Batch(&batch), LIMIT)?;
    }
    if let Some(more) = consumer.poll_batch(QUIET)? {
        return Err(format!("{} records more than expected", more.len()).into());
    }
    consumer.close(LIMIT)?;
    Ok(())
}

fn member(bootstrap: &str, group: &str, topic: &str, strategy: &str, stop: &Path) -> Outcome {
    let options = Options::new()
        .set("bootstrap.servers", bootstrap)?
        .set("group.id", group)?
        .set("partition.assignment.strategy", strategy)?
        .set("auto.offset.reset", "earliest")?
        .set("heartbeat.interval.ms", "200")?
        .set("session.timeout.ms", "10000")?;
    let consumer = Consumer::new(&options)?;
    consumer.subscribe(&[topic])?;
    let mut before = None;
    while !stop.exists() {
        if let Some(batch) = consumer.poll_batch(Duration::from_millis(50))? {
            for record in batch.records() {
                println!("read {}", String::from_utf8_lossy(record.value.unwrap_or_default()));
            }
        }
        let has: Vec<String> =
            consumer.assignment().iter().map(|has| has.partition.to_string()).collect();
        if before.as_ref() != Some(&has) {
            println!("has {}", has.join(" "));
            before = Some(has);
        }
    }
    // All that was read is printed, and so finished.
    consumer.commit(Commit::Finished, LIMIT)?;
    consumer.close(LIMIT)?;
    Ok(())
}
