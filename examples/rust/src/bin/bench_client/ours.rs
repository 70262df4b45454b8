//! Our client, used as a program of a user's would.

use std::time::Duration;

use ottla::{Consumer, Producer, Record};

use crate::settings::{Settings, Values};
use crate::{Outcome, PATIENCE, Stretch, now};

/// Records between two looks at the clock.
const CHUNK: u64 = 1_000;

pub(crate) fn produce(settings: &Settings) -> Outcome {
    let producer = Producer::new(&settings.options()?)?;
    let mut values = settings.values()?;
    let warm = send_for(&producer, settings, &mut values, settings.time("warm")?)?;
    let stretch = Stretch::begin();
    let sent = send_for(&producer, settings, &mut values, settings.time("seconds")?)?;
    stretch.end(&format!("warm={warm} records={sent}"));
    producer.close(PATIENCE)?;
    Ok(())
}

/// Sends for so long and waits for all answers; how many records that were.
fn send_for(
    producer: &Producer,
    settings: &Settings,
    values: &mut Values,
    span: Duration,
) -> Outcome<u64> {
    let topic = settings.word("topic")?;
    let partitions: i32 = settings.number("partitions")?;
    let own = settings.word("spread")? == "own";
    let (mut sent, mut turn, end) = (0, 0, now() + span);
    while now() < end {
        for _ in 0..CHUNK {
            let mut record = Record::to(topic).value(values.next());
            if !own {
                record.partition = Some(turn);
                turn = if turn + 1 < partitions { turn + 1 } else { 0 };
            }
            producer.push(&record)?;
        }
        sent += CHUNK;
    }
    producer.flush(PATIENCE)?;
    Ok(sent)
}

/// Reads the whole topic once, in a new group: records, and bytes of their values.
pub(crate) fn read_all(settings: &Settings) -> Outcome<(u64, usize)> {
    let expected: u64 = settings.number("records")?;
    let group = format!("bench-{}-{:?}", std::process::id(), now());
    let consumer = Consumer::new(&settings.options()?.set("group.id", &group)?)?;
    consumer.subscribe(&[settings.word("topic")?])?;
    let (mut read, mut bytes) = (0, 0);
    while read < expected {
        let batch = consumer.poll_batch(PATIENCE)?.ok_or("the topic did not come in time")?;
        for record in batch.records() {
            bytes += record.value.map_or(0, <[u8]>::len);
        }
        read += u64::try_from(batch.len())?;
    }
    consumer.close(PATIENCE)?;
    Ok((read, bytes))
}
