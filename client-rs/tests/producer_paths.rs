//! A record's ways to the broker: every way of sending, and what comes between.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on ends here")]

mod clients;
mod cluster;
mod elsewhere;
mod patience;

use std::collections::{BTreeMap, BTreeSet};
use std::error::Error as _;
use std::sync::{Arc, Mutex, mpsc};
use std::task::{Context, Wake, Waker};
use std::thread;
use std::time::Duration;

use clients::{member, member_options, options, producer, read_all};
use cluster::{Cluster, fresh};
use elsewhere::{BrokerElsewhere, Elsewhere};
use ottla::{
    Completions, Consumer, Delivery, Error, ErrorKind, Header, Outcome, Producer, Record, Sent,
    TopicPartition,
};
use patience::{LIMIT, block_on, given_time, timed, wait_until, within_limit};

const TIME: i64 = 1_700_000_000_123;

fn check(delivery: &Delivery, topic: &str, partition: i32, offset: i64) {
    assert_eq!((&*delivery.topic, delivery.partition), (topic, partition));
    assert_eq!((delivery.offset, delivery.timestamp), (offset, TIME));
}

/// Sends records by every way, and waits for each by every way; what became of them, in order.
fn send_by_every_way(producer: &Producer, topic: &str) -> Vec<Delivery> {
    let record = Record::to(topic).key("k").value("v").partition(2).timestamp(TIME);
    let mut deliveries = Vec::new();
    let sent = producer.send(&record).unwrap();
    deliveries.push(sent.wait(LIMIT).unwrap());
    assert_eq!(sent.result().unwrap().unwrap(), deliveries[0], "it can be asked again");
    deliveries.push(block_on(producer.send(&record).unwrap()).0.unwrap());
    deliveries.push(producer.try_send(&record).unwrap().wait(LIMIT).unwrap());
    let many = producer.send_many(&[record; 3]);
    deliveries.extend(many.wait(LIMIT).into_iter().map(Result::unwrap));
    let many = producer.send_many(&[record; 3]);
    deliveries.extend(block_on(many).0.into_iter().map(Result::unwrap));
    let mut many = ottla::SentMany::default();
    assert_eq!(producer.try_send_many(&[record; 2], &mut many), 2);
    deliveries.extend(many.wait(LIMIT).into_iter().map(Result::unwrap));
    let (tell, told) = mpsc::channel();
    let queue = Completions::new(move || tell.send(()).unwrap());
    let sent = producer.send(&record).unwrap();
    sent.notify(&queue);
    told.recv_timeout(LIMIT).unwrap();
    let ended = queue.drain(1).pop().unwrap();
    assert_eq!(ended.batch_id(), sent.batch_id());
    deliveries.push(ended.result(sent.stamp()).unwrap().unwrap());
    // Nobody waits for this one, and it is delivered all the same.
    drop(producer.send(&record).unwrap());
    producer.flush(LIMIT).unwrap();
    deliveries
}

#[test]
fn every_way_of_sending_tells_topic_partition_offset_and_time() {
    for acks in ["all", "-1", "1", "0"] {
        for known in [false, true] {
            let (cluster, topic) = Cluster::with_topic(3);
            let producer = producer(&cluster.bootstrap(), &[("acks", acks)]);
            let mut first = 0;
            if known {
                let record = Record::to(&topic).partition(2).timestamp(TIME);
                producer.send(&record).unwrap().wait(LIMIT).unwrap();
                first = 1;
            }
            let deliveries = send_by_every_way(&producer, &topic);
            for (offset, delivery) in (first..).zip(&deliveries) {
                check(delivery, &topic, 2, if acks == "0" { -1 } else { offset });
            }
            producer.close(LIMIT).unwrap();
            // What asks for no acknowledgement may still be on its way into the log.
            let watcher = member_options(&cluster.bootstrap(), &topic, &[]);
            let (watcher, part) =
                (Consumer::new(&watcher).unwrap(), TopicPartition::new(&*topic, 2));
            wait_until("the last record", || {
                let ends = watcher.end_offsets(std::slice::from_ref(&part), LIMIT).unwrap();
                ends[0].1 == first + 13
            });
            watcher.close(LIMIT).unwrap();
            let count = read_all(&cluster.bootstrap(), &topic, 3, |partition, _, _, _| {
                assert_eq!(partition, 2);
            });
            assert_eq!(count, u64::try_from(first).unwrap() + 13, "acks={acks}");
            let stats = producer.stats();
            assert_eq!((stats.delivered, stats.failed), (count, 0));
        }
    }
}

#[test]
fn a_topic_with_the_brokers_time_tells_that() {
    let cluster = Cluster::start();
    let topic = cluster.topic_with(1, &[("message.timestamp.type", "LogAppendTime")]);
    let producer = producer(&cluster.bootstrap(), &[]);
    let record = Record::to(&topic).timestamp(TIME);
    let delivery = producer.send(&record).unwrap().wait(LIMIT).unwrap();
    assert!(delivery.timestamp > TIME, "{delivery:?}");
    producer.close(LIMIT).unwrap();
    let consumer = member(&cluster.bootstrap(), &topic, &[]);
    assert_eq!(consumer.poll(LIMIT).unwrap().unwrap().timestamp(), delivery.timestamp);
    consumer.close(LIMIT).unwrap();
}

#[test]
fn records_come_out_as_they_went_in_with_and_without_compression() {
    for (codec, level) in [
        ("none", ("linger.ms", "5")),
        ("gzip", ("compression.gzip.level", "1")),
        ("snappy", ("linger.ms", "5")),
        ("lz4", ("compression.lz4.level", "17")),
        ("zstd", ("compression.zstd.level", "-5")),
    ] {
        let (cluster, topic) = Cluster::with_topic(1);
        let pairs = [("compression.type", codec), level];
        let producer = producer(&cluster.bootstrap(), &pairs);
        let headers = [
            Header { key: "a", value: None },
            Header::new("a", b""),
            Header::new("b", &[0xff, 0]),
            Header::new("", b"nameless"),
        ];
        let thousand = vec![Header::new("h", b"v"); 1_000];
        let large = "all work and no play ".repeat(10_000);
        let random: Vec<u8> =
            (0..100_000_u32).map(|at| at.wrapping_mul(2_654_435_761).to_be_bytes()[1]).collect();
        let records = [
            Record::to(&topic),
            Record::to(&topic).key("").value("").headers(&headers),
            Record::to(&topic).key("k").value(&large).timestamp(0),
            Record::to(&topic).value(&random).headers(&thousand),
        ];
        for _ in 0..50 {
            drop(producer.send_many(&records));
        }
        producer.flush(LIMIT).unwrap();
        let stats = producer.stats();
        producer.close(LIMIT).unwrap();
        let consumer = member(&cluster.bootstrap(), &topic, &[]);
        for at in 0..200 {
            let (found, sent) = (consumer.poll(LIMIT).unwrap().unwrap(), records[at % 4]);
            assert_eq!(found.offset(), i64::try_from(at).unwrap());
            assert!((found.key(), found.value()) == (sent.key, sent.value), "{codec}, record {at}");
            let found_headers: Vec<_> = found.headers().iter().collect();
            let sent_headers: Vec<_> =
                sent.headers.iter().map(|header| (header.key.as_bytes(), header.value)).collect();
            assert_eq!(found_headers, sent_headers, "{codec}, record {at}");
            assert!(sent.timestamp.is_none_or(|time| time == found.timestamp()));
        }
        println!("{codec}: {} bytes of records, {} received", stats.bytes, consumer.stats().bytes);
        if codec != "none" {
            assert!(consumer.stats().bytes < stats.bytes, "it is compressed");
        }
        consumer.close(LIMIT).unwrap();
    }
}

#[test]
fn keys_go_to_the_partitions_that_kafkas_own_client_chooses() {
    let (cluster, topic) = Cluster::with_topic(12);
    for partitioner in ["default", "key_hash"] {
        let producer = producer(&cluster.bootstrap(), &[("partitioner", partitioner)]);
        for _ in 0..2 {
            for (key, partition) in [("", 9), ("21", 0), ("abc", 3), ("kafka", 4), ("d26skop", 0)] {
                let sent = producer.send(&Record::to(&topic).key(key)).unwrap();
                assert_eq!(sent.wait(LIMIT).unwrap().partition, partition, "{key:?}");
            }
        }
        let named = Record::to(&topic).key("kafka").partition(11);
        assert_eq!(producer.send(&named).unwrap().wait(LIMIT).unwrap().partition, 11);
        producer.close(LIMIT).unwrap();
    }
}

#[test]
fn round_robin_gives_each_partition_the_same_number_of_records() {
    for (partitioner, key) in [("round_robin", Some("k")), ("round_robin", None), ("default", None)]
    {
        let (cluster, topic) = Cluster::with_topic(7);
        let producer = producer(&cluster.bootstrap(), &[("partitioner", partitioner)]);
        // The first ones wait for the topic to be known, and are dealt out then.
        let mut record = Record::to(&topic).value("v");
        record.key = key.map(str::as_bytes);
        let sent: Vec<Sent> = (0..700).map(|_| producer.send(&record).unwrap()).collect();
        let mut counts = [0; 7];
        for sent in sent {
            counts[usize::try_from(sent.wait(LIMIT).unwrap().partition).unwrap()] += 1;
        }
        assert_eq!(counts, [100; 7], "{partitioner} {key:?}");
        producer.close(LIMIT).unwrap();
    }
}

const KEYS: u32 = 20;

/// Sends records numbered by a range, keyed in turn by a few keys.
fn send_numbers(producer: &Producer, topic: &str, numbers: std::ops::Range<u32>) -> Vec<Sent> {
    numbers
        .map(|number| {
            let (key, value) = ((number % KEYS).to_be_bytes(), number.to_be_bytes());
            producer.send(&Record::to(topic).key(&key).value(&value)).unwrap()
        })
        .collect()
}

#[test]
fn records_keep_their_order_and_come_once_while_the_broker_is_killed_and_comes_back() {
    let folder = tempfile::tempdir().unwrap();
    let mut broker = BrokerElsewhere::on(folder.path(), &[]);
    let (bootstrap, topic) = (broker.bootstrap().to_owned(), broker.topic(4));
    let producer = producer(&bootstrap, &[("retry.backoff.ms", "10"), ("batch.size", "2000")]);
    let mut sent = Vec::new();
    for round in 0..4 {
        let first = round * 2_500;
        sent.extend(send_numbers(&producer, &topic, first..first + 1_250));
        // Once some have arrived, others are on their way.
        sent.last_chunk::<1_000>().unwrap()[0].wait(LIMIT).unwrap();
        let away = broker.kill();
        sent.extend(send_numbers(&producer, &topic, first + 1_250..first + 2_500));
        broker = away.back();
    }
    producer.flush(LIMIT).unwrap();
    let mut offsets: BTreeMap<i32, BTreeSet<i64>> = BTreeMap::new();
    let mut known = 0;
    for sent in &sent {
        let delivery = sent.result().unwrap().unwrap();
        // A batch that an earlier attempt has stored may have no offset to tell.
        if delivery.offset >= 0 {
            known += 1;
            assert!(offsets.entry(delivery.partition).or_default().insert(delivery.offset));
        }
    }
    let stats = producer.stats();
    println!("{known} of {} offsets known, {} retries", sent.len(), stats.retries);
    assert_eq!((stats.delivered, stats.failed), (10_000, 0));
    producer.close(LIMIT).unwrap();

    let mut next: BTreeMap<Vec<u8>, u32> =
        (0..KEYS).map(|key| (key.to_be_bytes().to_vec(), key)).collect();
    let count = read_all(&bootstrap, &topic, 4, |_, _, key, value| {
        let number = u32::from_be_bytes(value.unwrap().try_into().unwrap());
        let next = next.get_mut(key.unwrap()).unwrap();
        assert_eq!(number, *next, "the next of its key, and none twice");
        *next += KEYS;
    });
    assert_eq!(count, 10_000);
}

#[test]
fn close_returns_in_time_while_the_broker_is_away_and_tells_what_was_not_sent() {
    let broker = BrokerElsewhere::in_memory(&[]);
    let (topic, other) = (broker.topic(1), fresh("other"));
    let producer = producer(broker.bootstrap(), &[("linger.ms", "60000")]);
    producer.send(&Record::to(&topic)).unwrap().wait(LIMIT).unwrap();
    let away = broker.kill();
    let first = producer.send(&Record::to(&topic)).unwrap();
    // Behind one that has failed once no other is sent.
    wait_until("a failed attempt", || producer.stats().retries > 0);
    let held: Vec<Sent> =
        (0..10).map(|_| producer.send(&Record::to(&topic).key("k")).unwrap()).collect();
    for _ in 0..5 {
        drop(producer.send(&Record::to(&other)).unwrap());
    }
    let deadline = Duration::from_millis(300);
    let closing = producer.clone();
    let (closed, took) = timed(move || closing.close(deadline));
    println!("closed with a deadline of {deadline:?} in {took:?}");
    let error = closed.unwrap_err();
    assert_eq!((error.kind(), error.outcome()), (ErrorKind::Closed, Some(Outcome::NotSent)));
    assert!(error.to_string().contains('5'), "those that nobody holds are counted: {error}");
    for sent in held {
        let error = sent.result().unwrap().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Closed);
        assert_eq!((error.topic(), error.partition()), (Some(&*topic), Some(0)));
        assert_eq!(error.outcome(), Some(Outcome::NotSent), "{error:?}");
    }
    // It may have been written to a connection that was not yet known to be broken.
    assert_eq!(first.result().unwrap().unwrap_err().kind(), ErrorKind::Closed);
    let stats = producer.stats();
    assert_eq!((stats.failed, stats.memory_used), (16, 0));
    producer.close(deadline).unwrap();
    drop(away);
}

#[test]
fn what_was_written_and_not_answered_may_be_stored_when_the_producer_closes() {
    let broker = BrokerElsewhere::in_memory(&[]);
    // A close sends at once what waited for company, if there is time to.
    let both = |outcomes: &[Outcome; 2]| *outcomes == [Outcome::PossiblyPersisted; 2];
    let outcomes = given_time(both, |times| closed_unanswered(&broker, 300 * u64::from(times)));
    assert!(both(&outcomes), "{outcomes:?}");
}

/// A producer closes within this time while its broker is held; what became of a record that had
/// been written, and of one that waited for company.
fn closed_unanswered(broker: &BrokerElsewhere, ms: u64) -> [Outcome; 2] {
    let topic = broker.topic(1);
    let producer = producer(broker.bootstrap(), &[("linger.ms", "60000")]);
    producer.send(&Record::to(&topic)).unwrap().wait(LIMIT).unwrap();
    broker.process().hold();
    let requests = producer.stats().requests;
    let written = producer.send(&Record::to(&topic).value("written")).unwrap();
    wait_until("the request", || producer.stats().requests > requests);
    // Something is on its way, so this one waits for company.
    let waiting = producer.send(&Record::to(&topic).value("waiting")).unwrap();
    let closing = producer.clone();
    within_limit(move || closing.close(Duration::from_millis(ms))).unwrap();
    broker.process().let_go();
    let found = read_all(broker.bootstrap(), &topic, 1, |_, _, _, _| {});
    assert!((1..=3).contains(&found), "{found}");
    [written, waiting].map(|sent| sent.result().unwrap().unwrap_err().outcome().unwrap())
}

/// Sends until there is no room any more; the records that were taken.
fn fill(producer: &Producer, topic: &str, value: &[u8]) -> (Vec<Sent>, Error) {
    let mut sent = Vec::new();
    loop {
        match producer.try_send(&Record::to(topic).value(value)) {
            Ok(taken) => sent.push(taken),
            Err(error) => return (sent, error),
        }
        let stats = producer.stats();
        assert!(stats.memory_used <= 1 << 20, "{stats:?}");
    }
}

#[test]
fn memory_stays_within_its_bound_and_frees_itself_when_the_broker_answers_again() {
    for known in [false, true] {
        let broker = BrokerElsewhere::in_memory(&[]);
        let topic = broker.topic(1);
        let pairs = [("buffer.memory", "1048576"), ("max.block.ms", "1000"), ("linger.ms", "0")];
        let producer = if known {
            let short_of_time = |times: u32| {
                let block = (1_000 * times).to_string();
                let producer =
                    producer(broker.bootstrap(), &[pairs[0], ("max.block.ms", &block), pairs[2]]);
                let first = producer.send(&Record::to(&topic)).unwrap().wait(LIMIT);
                (producer, first)
            };
            // Mostly a second is long enough for the topic to be known.
            let (producer, first) = given_time(|(_, first)| first.is_ok(), short_of_time);
            first.unwrap();
            producer
        } else {
            // Its records wait for their topic to be known, longer than a send waits for room.
            producer(broker.bootstrap(), &[pairs[0], ("max.block.ms", "60000"), pairs[2]])
        };
        broker.process().hold();
        let value = vec![7; 1_000];
        let (mut sent, error) = fill(&producer, &topic, &value);
        assert_eq!(
            (error.kind(), error.outcome()),
            (ErrorKind::BufferFull, Some(Outcome::NotSent))
        );
        assert!(error.retriable());
        assert!(error.hint().unwrap().contains("1048576"), "{error:?}");
        assert!(sent.len() > 500, "{} records of 1,000 bytes", sent.len());
        let record = Record::to(&topic).value(&value);
        if known {
            // Some room may be left over when a batch is sent.
            let (error, took) = loop {
                let waiting = producer.clone();
                let (to, own) = (topic.clone(), value.clone());
                let (waited, took) = timed(move || waiting.send(&Record::to(&to).value(&own)));
                match waited {
                    Ok(taken) => sent.push(taken),
                    Err(error) => break (error, took),
                }
            };
            println!("send waited {took:?} for room, of max.block.ms=1000");
            assert_eq!(error.kind(), ErrorKind::BufferFull);
            assert!(took >= Duration::from_secs(1));
            let error = loop {
                match block_on(producer.room(1_000)).0 {
                    Ok(()) => sent.extend(fill(&producer, &topic, &value).0),
                    Err(error) => break error,
                }
            };
            assert_eq!(error.kind(), ErrorKind::BufferFull);
        } else {
            let waiting = producer.clone();
            let (to, own) = (topic.clone(), value.clone());
            let sender = thread::spawn(move || waiting.send(&Record::to(&to).value(&own)));
            broker.process().let_go();
            sent.push(sender.join().unwrap().unwrap());
        }
        broker.process().let_go();
        let count = sent.len();
        for sent in sent {
            sent.wait(LIMIT).unwrap();
        }
        wait_until("room", || producer.stats().memory_used == 0);
        producer.send(&record).unwrap().wait(LIMIT).unwrap();
        producer.close(LIMIT).unwrap();
        let stats = producer.stats();
        let first = u64::from(known);
        assert_eq!(stats.delivered, first + u64::try_from(count).unwrap() + 1);
        assert_eq!(stats.failed, 0);
    }
}

/// Notes that it was woken.
struct Noted {
    place: usize,
    order: Mutex<mpsc::Sender<usize>>,
}

impl Wake for Noted {
    fn wake(self: Arc<Self>) {
        self.order.lock().unwrap().send(self.place).unwrap();
    }
}

#[test]
fn who_finds_no_room_while_the_broker_is_away_is_told_why_there_is_none() {
    let broker = BrokerElsewhere::in_memory(&[]);
    let (bootstrap, topic) = (broker.bootstrap().to_owned(), broker.topic(1));
    // Mostly the first time is long enough for the topic to be known.
    let known = |times: u32| {
        let block = (300 * times).to_string();
        let pairs = [("buffer.memory", "65536"), ("max.block.ms", &*block)];
        let producer = producer(&bootstrap, &pairs);
        let first = producer.send(&Record::to(&topic)).unwrap().wait(LIMIT);
        (producer, first)
    };
    let (producer, first) = given_time(|(_, first)| first.is_ok(), known);
    first.unwrap();
    let away = broker.kill();
    wait_until("the loss of the connection", || {
        let health = producer.health();
        !health.is_connected() && health.last_error.is_some()
    });
    let value = vec![7; 1_000];
    let record = Record::to(&topic).value(&value);
    let mut sent = Vec::new();
    let by_thread = loop {
        match producer.send(&record) {
            Ok(taken) => sent.push(taken),
            Err(error) => break error,
        }
    };
    let by_task = loop {
        match block_on(producer.room(1_000)).0 {
            Ok(()) => sent.extend(fill(&producer, &topic, &value).0),
            Err(error) => break error,
        }
    };
    for error in [by_thread, by_task] {
        assert_eq!(error.kind(), ErrorKind::BufferFull);
        assert!(error.hint().unwrap().contains("of 65536 bytes"), "{error}");
        assert!(error.source().is_some() && error.to_string().contains(&bootstrap), "{error}");
    }
    producer.close(Duration::ZERO).unwrap();
    assert!(sent.iter().all(|sent| matches!(sent.result(), Some(Err(_)))), "all have ended");
    drop(away);
}

#[test]
fn those_who_wait_for_room_get_it_in_the_order_they_came() {
    let broker = BrokerElsewhere::in_memory(&[]);
    let topic = broker.topic(1);
    let producer = producer(broker.bootstrap(), &[("buffer.memory", "65536")]);
    producer.send(&Record::to(&topic)).unwrap().wait(LIMIT).unwrap();
    broker.process().hold();
    let value = vec![7; 16_000];
    let fill = || while producer.try_send(&Record::to(&topic).value(&value)).is_ok() {};
    fill();
    let (tell, told) = mpsc::channel();
    let mut waiting: Vec<_> = (0..4)
        .map(|place| {
            let order = Mutex::new(tell.clone());
            let waker = Waker::from(Arc::new(Noted { place, order }));
            let mut room = Box::pin(producer.room(16_000));
            // It takes its place by being asked once.
            while room.as_mut().poll(&mut Context::from_waker(&waker)).is_ready() {
                // Some may be left over when a batch is sent.
                assert_eq!(place, 0, "others wait for it");
                fill();
                room = Box::pin(producer.room(16_000));
            }
            (room, waker)
        })
        .collect();
    let refused = producer.try_send(&Record::to(&topic).value(&value)).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::BufferFull);
    broker.process().let_go();
    let order: Vec<usize> = (0..4).map(|_| told.recv_timeout(LIMIT).unwrap()).collect();
    assert_eq!(order, [0, 1, 2, 3]);
    for (room, waker) in &mut waiting {
        assert!(room.as_mut().poll(&mut Context::from_waker(waker)).is_ready());
        drop(producer.try_send(&Record::to(&topic).value(&value)).unwrap());
    }
    producer.close(LIMIT).unwrap();
}

#[test]
fn a_process_that_ends_without_a_close_ends() {
    let (cluster, topic) = Cluster::with_topic(1);
    let mut careless = Elsewhere::careless_producer(&options(&cluster.bootstrap(), &[]), &topic);
    assert_eq!(careless.told(), "sent");
    assert!(careless.end());
}
