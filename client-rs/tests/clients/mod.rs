//! Clients as the stories need them.

#![allow(dead_code, reason = "each story takes what it needs")]
#![allow(clippy::unwrap_used, reason = "a test that cannot go on ends here")]

use ottla::{Batch, Consumer, Options, Producer, Record};
use tokio::net::TcpSocket;

use crate::patience::LIMIT;

/// An address where nobody listens, nor ever will: it is taken for as long as this process lives.
pub(crate) fn nobody() -> String {
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let address = socket.local_addr().unwrap().to_string();
    std::mem::forget(socket);
    address
}

/// An address where nobody listens until a broker of the story's does, and what keeps it for that
/// one: the system gives it to no other.
pub(crate) fn reserved() -> (String, TcpSocket) {
    let socket = TcpSocket::new_v4().unwrap();
    socket.set_reuseaddr(true).unwrap();
    socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    (socket.local_addr().unwrap().to_string(), socket)
}

pub(crate) fn options(bootstrap: &str, more: &[(&str, &str)]) -> Options {
    let options = Options::new().set("bootstrap.servers", bootstrap).unwrap();
    more.iter().fold(options, |options, (name, value)| options.set(name, value).unwrap())
}

pub(crate) fn producer(bootstrap: &str, more: &[(&str, &str)]) -> Producer {
    Producer::new(&options(bootstrap, more)).unwrap()
}

/// Options of a member of a topic's own group, which reads from the beginning.
pub(crate) fn member_options(bootstrap: &str, topic: &str, more: &[(&str, &str)]) -> Options {
    let group = group_of(topic);
    let options = options(bootstrap, &[("group.id", &group), ("auto.offset.reset", "earliest")]);
    more.iter().fold(options, |options, (name, value)| options.set(name, value).unwrap())
}

/// The group of those who read a topic, unless they name another.
pub(crate) fn group_of(topic: &str) -> String {
    format!("readers of {topic}")
}

/// A member of a topic's own group, which reads from the beginning.
pub(crate) fn member(bootstrap: &str, topic: &str, more: &[(&str, &str)]) -> Consumer {
    let consumer = Consumer::new(&member_options(bootstrap, topic, more)).unwrap();
    consumer.subscribe(&[topic]).unwrap();
    consumer
}

/// The last record of a partition.
const END: &str = "the end";

/// Reads all that stands in a topic, and hands it on record by record as (partition, offset, key,
/// value), partition by partition in order; how many there were.
///
/// Nothing may be written to it any more: a last record is put behind the others.
pub(crate) fn read_all(
    bootstrap: &str,
    topic: &str,
    partitions: i32,
    mut each: impl FnMut(i32, i64, Option<&[u8]>, Option<&[u8]>),
) -> u64 {
    let closing = producer(bootstrap, &[]);
    for partition in 0..partitions {
        let end = Record::to(topic).partition(partition).key(END);
        closing.send(&end).unwrap().wait(LIMIT).unwrap();
    }
    closing.close(LIMIT).unwrap();
    let group = format!("reads all of {topic}");
    let consumer = member(bootstrap, topic, &[("group.id", &group)]);
    let (mut ends, mut count) = (0, 0);
    while ends < partitions {
        let batch: Batch = consumer.poll_batch(LIMIT).unwrap().unwrap();
        for record in batch.records() {
            if record.key == Some(END.as_bytes()) {
                ends += 1;
            } else {
                count += 1;
                each(batch.partition(), record.offset, record.key, record.value);
            }
        }
    }
    consumer.close(LIMIT).unwrap();
    count
}
