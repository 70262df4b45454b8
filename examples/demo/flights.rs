//! The demo's program in Rust: sends flights, or reads them as a member of a group.
#![allow(clippy::print_stdout, reason = "its output is what the driver reads")]
#![allow(clippy::disallowed_methods, reason = "it times what it did")]

use std::collections::BTreeMap;
use std::error::Error;
use std::io::{BufRead, BufWriter, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use ottla::{Commit, Consumer, Header, Options, Producer, Record};

const LIMIT: Duration = Duration::from_secs(30);
/// How long a member waits for records before it looks whether it was asked to leave.
const WAIT: Duration = Duration::from_millis(200);
/// Records between two lines of progress.
const STRIDE: usize = 5_000;

type Outcome = Result<(), Box<dyn Error>>;

fn main() -> Outcome {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match words.as_slice() {
        ["produce", address, topic] => produce(address, topic),
        ["consume", address, topic, group] => consume(address, topic, group),
        _ => Err("usage: flights produce ADDRESS TOPIC | consume ADDRESS TOPIC GROUP".into()),
    }
}

fn produce(address: &str, topic: &str) -> Outcome {
    let producer = Producer::new(&Options::new().set("bootstrap.servers", address)?)?;
    let (mut records, mut bytes, mut begun) = (0, 0, None);
    for line in std::io::stdin().lock().lines() {
        let line = line?;
        begun.get_or_insert_with(Instant::now);
        let (number, rest) = line.split_once('\t').ok_or("a line without a key")?;
        let (key, value) = rest.split_once('\t').ok_or("a line without a value")?;
        let headers = [Header { key: "line", value: Some(number.as_bytes()) }];
        let mut record = Record::to(topic).value(value).headers(&headers);
        if !key.is_empty() {
            record = record.key(key);
        }
        // Fire and forget: what fails is told by the flush.
        producer.send(&record)?;
        records += 1;
        bytes += key.len() + value.len();
        if records % STRIDE == 0 {
            println!("sent\t{records}\t{bytes}");
        }
    }
    producer.flush(LIMIT)?;
    let millis = begun.map_or(0, |begun| begun.elapsed().as_millis());
    producer.close(LIMIT)?;
    println!("done\t{records}\t{bytes}\t{millis}");
    Ok(())
}

fn consume(address: &str, topic: &str, group: &str) -> Outcome {
    let options = Options::new()
        .set("bootstrap.servers", address)?
        .set("group.id", group)?
        .set("auto.offset.reset", "earliest")?
        .set("enable.auto.commit", "false")?;
    let consumer = Consumer::new(&options)?;
    consumer.subscribe(&[topic])?;
    let leave = asked_to_leave();
    let mut output = BufWriter::new(std::io::stdout());
    let mut counts: BTreeMap<String, usize> = BTreeMap::new();
    let (mut records, mut bytes, mut assigned) = (0, 0, 0);
    let (mut first, mut last) = (None, None);
    while !leave.load(Ordering::Relaxed) {
        let batch = consumer.poll_batch(WAIT)?;
        let now = consumer.assignment().len();
        if now != assigned {
            assigned = now;
            writeln!(output, "assigned\t{assigned}")?;
            output.flush()?;
        }
        let Some(batch) = batch else { continue };
        first.get_or_insert_with(Instant::now);
        for record in batch.records() {
            let (_, line) = record.headers.iter().next().ok_or("a record without its line")?;
            let line = std::str::from_utf8(line.unwrap_or_default())?;
            let key = std::str::from_utf8(record.key.unwrap_or_default())?;
            let value = std::str::from_utf8(record.value.unwrap_or_default())?;
            let place = (batch.partition(), record.offset);
            writeln!(output, "record\t{}\t{}\t{line}\t{key}\t{value}", place.0, place.1)?;
            records += 1;
            bytes += key.len() + value.len();
            if !key.is_empty() {
                *counts.entry(key.to_owned()).or_default() += 1;
            }
        }
        output.flush()?;
        consumer.commit(Commit::Batch(&batch), LIMIT)?;
        last = Some(Instant::now());
    }
    consumer.close(LIMIT)?;
    for (key, count) in counts {
        writeln!(output, "count\t{key}\t{count}")?;
    }
    let millis = first.zip(last).map_or(0, |(first, last)| (last - first).as_millis());
    writeln!(output, "left\t{records}\t{bytes}\t{millis}")?;
    output.flush()?;
    Ok(())
}

/// Set once the input has ended.
fn asked_to_leave() -> Arc<AtomicBool> {
    let asked = Arc::new(AtomicBool::new(false));
    let set = Arc::clone(&asked);
    thread::spawn(move || {
        // An input that breaks off has ended as well.
        drop(std::io::copy(&mut std::io::stdin().lock(), &mut std::io::sink()));
        set.store(true, Ordering::Relaxed);
    });
    asked
}
