//! Each record of a batch is told its own time by every way there is to be told.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on ends here")]

mod patience;
mod scripted;

use std::sync::mpsc;

use ottla::{Completions, Delivery, ErrorKind, Options, Producer, Record, SentMany};
use patience::{LIMIT, within_limit};
use scripted::{Script, ScriptedBroker, TOPIC};

/// Rising, staying, and falling.
const TIMES: [i64; 8] = [5, 6, 9, 9, 9, 4, 0, 6];

fn records() -> [Record<'static>; 8] {
    TIMES.map(|time| Record::to(TOPIC).partition(0).value("v").timestamp(time))
}

fn offsets_and_times(deliveries: Vec<Delivery>) -> Vec<(i64, i64)> {
    deliveries.into_iter().map(|delivery| (delivery.offset, delivery.timestamp)).collect()
}

/// All records in one batch, which is stored as it is, or parted since it is too large.
fn told_by_every_way(batch_max: usize) {
    let broker = ScriptedBroker::start(Script::default());
    broker.stage(|stage| (stage.hidden, stage.batch_max) = (usize::MAX, batch_max));
    let text = format!("bootstrap.servers={};retry.backoff.ms=5", broker.bootstrap());
    let producer = Producer::new(&Options::parse(&text).unwrap()).unwrap();

    // Their topic is not known until all are sent.
    let one_by_one = records().map(|record| producer.send(&record).unwrap());
    // One that is refused stands between them.
    let mut rows = records().to_vec();
    rows.insert(3, Record::to(TOPIC).timestamp(-1));
    let many = producer.send_many(&rows);
    let mut tried = SentMany::default();
    assert_eq!(producer.try_send_many(&records(), &mut tried), TIMES.len());
    let (tell, told) = mpsc::channel();
    let callbacks = producer.callbacks(move |(), result| tell.send(result).unwrap()).unwrap();
    for record in records() {
        callbacks.send(&record, ()).unwrap();
    }
    let queue = Completions::new(|| {});
    let noted = records().map(|record| producer.send(&record).unwrap());
    for sent in &noted {
        sent.notify(&queue);
    }
    broker.stage(|stage| stage.hidden = 0);
    producer.flush(LIMIT).unwrap();

    let wanted = |first: i64| (first..).zip(TIMES).collect::<Vec<_>>();
    let found = one_by_one.iter().map(|sent| sent.wait(LIMIT).unwrap()).collect();
    assert_eq!(offsets_and_times(found), wanted(0));
    let mut found = many.wait(LIMIT);
    assert_eq!(found.remove(3).unwrap_err().kind(), ErrorKind::InvalidTimestamp);
    let found = found.into_iter().map(Result::unwrap).collect();
    assert_eq!(offsets_and_times(found), wanted(8));
    let of_row = |row| many.sent(row).unwrap().unwrap().result().unwrap().unwrap();
    let found = (0..9).filter(|&row| row != 3).map(of_row).collect();
    assert_eq!(offsets_and_times(found), wanted(8));
    let found = tried.wait(LIMIT).into_iter().map(Result::unwrap).collect();
    assert_eq!(offsets_and_times(found), wanted(16));
    callbacks.wait(LIMIT).unwrap();
    let found = told.try_iter().map(Result::unwrap).collect();
    assert_eq!(offsets_and_times(found), wanted(24));
    // The batch that they were sent in comes once at least, and knows where they have gone.
    let ended = queue.drain(usize::MAX).pop().unwrap();
    let found = noted.iter().map(|sent| ended.result(sent.stamp()).unwrap().unwrap()).collect();
    assert_eq!(offsets_and_times(found), wanted(32));
    let parted = batch_max < usize::MAX;
    assert_eq!(producer.stats().splits > 0, parted, "{:?}", producer.stats());
    producer.close(LIMIT).unwrap();
}

#[test]
fn each_record_of_a_batch_is_told_its_own_time_by_every_way() {
    within_limit(|| told_by_every_way(usize::MAX));
}

#[test]
fn each_record_of_a_batch_that_is_parted_is_told_its_own_time_by_every_way() {
    within_limit(|| told_by_every_way(150));
}
