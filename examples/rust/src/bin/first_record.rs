//! How long a new group takes to its first record: `first_record HOST:PORT TOPIC GROUPS`.
//!
//! Prints, a line a group, the milliseconds from making the consumer to the first record.
#![allow(clippy::print_stdout, reason = "it prints what it measured")]

use std::error::Error;
use std::time::{Duration, Instant};

use ottla::{Consumer, Options};

const LIMIT: Duration = Duration::from_mins(1);

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [address, topic, groups] = arguments.as_slice() else {
        return Err("usage: first_record HOST:PORT TOPIC GROUPS".into());
    };
    let options = Options::new().set("bootstrap.servers", address)?.set("start", "earliest")?;
    let options = options.set("auto_commit", "false")?;
    for number in 0..groups.parse::<u32>()? {
        let group = format!("first-record-{}-{number}", std::process::id());
        let begin = now();
        let consumer = Consumer::new(&options.clone().set("group", &group)?)?;
        consumer.subscribe(&[topic])?;
        consumer.poll(LIMIT)?.ok_or("no record came")?;
        println!("{:.3}", begin.elapsed().as_secs_f64() * 1_000.0);
        consumer.close(LIMIT)?;
    }
    Ok(())
}

#[expect(clippy::disallowed_methods, reason = "a stopwatch needs the clock")]
fn now() -> Instant {
    Instant::now()
}
