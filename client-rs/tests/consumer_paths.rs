//! What a group reads: all of it, also while members and the broker come and go.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on ends here")]
#![allow(clippy::disallowed_methods, reason = "tests measure real time, and print it")]

mod clients;
mod cluster;
mod elsewhere;
mod patience;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use clients::{group_of, member, member_options, producer, read_all};
use cluster::{Cluster, fresh};
use elsewhere::{BrokerElsewhere, Elsewhere};
use ottla::{Commit, Consumer, Producer, Record, TopicPartition};
use patience::{LIMIT, given_time, wait_until};

/// An option of the broker, for members that are soon taken for gone.
const SHORT_SESSIONS: (&str, &str) = ("group.min.session.timeout.ms", "100");
const QUICK: &[(&str, &str)] = &[("heartbeat.interval.ms", "50")];
const A_WHILE: Duration = Duration::from_millis(20);

/// Sends the numbers of a range, in turn to each of so many partitions.
fn send_numbers(producer: &Producer, topic: &str, partitions: u32, numbers: std::ops::Range<u32>) {
    for number in numbers {
        let partition = i32::try_from(number % partitions).unwrap();
        let value = number.to_be_bytes();
        let record = Record::to(topic).partition(partition).value(&value);
        drop(producer.send(&record).unwrap());
    }
}

fn send_and_close(bootstrap: &str, topic: &str, partitions: u32, numbers: std::ops::Range<u32>) {
    let producer = producer(bootstrap, &[]);
    send_numbers(&producer, topic, partitions, numbers);
    producer.close(LIMIT).unwrap();
}

fn number(value: Option<&[u8]>) -> usize {
    usize::try_from(u32::from_be_bytes(value.unwrap().try_into().unwrap())).unwrap()
}

/// How often each number was read, by all members.
struct Tally {
    counts: Vec<AtomicU32>,
    seen: AtomicUsize,
}

impl Tally {
    fn of(numbers: usize) -> Self {
        let counts = (0..numbers).map(|_| AtomicU32::new(0)).collect();
        Self { counts, seen: AtomicUsize::new(0) }
    }

    fn note(&self, value: Option<&[u8]>) {
        if self.counts[number(value)].fetch_add(1, Ordering::SeqCst) == 0 {
            self.seen.fetch_add(1, Ordering::SeqCst);
        }
    }

    fn is_complete(&self) -> bool {
        self.seen.load(Ordering::SeqCst) == self.counts.len()
    }

    fn read_twice(&self) -> usize {
        self.counts.iter().filter(|count| count.load(Ordering::SeqCst) > 1).count()
    }
}

/// Reads batches until the tally is complete or it has read enough; how many records it read.
fn read_on(consumer: &Consumer, tally: &Tally, enough: usize) -> usize {
    let deadline = Instant::now() + LIMIT;
    let mut own = 0;
    while !tally.is_complete() && own < enough {
        assert!(Instant::now() < deadline, "stuck at {}", tally.seen.load(Ordering::SeqCst));
        let Some(batch) = consumer.poll_batch(A_WHILE).unwrap() else { continue };
        batch.records().for_each(|record| tally.note(record.value));
        own += batch.len();
        // Its work is done, so it may be committed, also if the group is about to change.
        consumer.commit(Commit::Batch(&batch), LIMIT).ok();
    }
    own
}

#[test]
fn two_members_share_six_partitions_and_nothing_is_lost_or_doubled_when_one_leaves() {
    let (cluster, topic) = Cluster::with_topic(6);
    let bootstrap = cluster.bootstrap();
    let pairs = [QUICK[0], ("max.poll.records", "50"), ("enable.auto.commit", "false")];
    let (stays, leaves) = (member(&bootstrap, &topic, &pairs), member(&bootstrap, &topic, &pairs));
    wait_until("an even share", || {
        assert!(stays.poll(Duration::from_millis(1)).unwrap().is_none());
        assert!(leaves.poll(Duration::from_millis(1)).unwrap().is_none());
        stays.assignment().len() == 3 && leaves.assignment().len() == 3
    });
    let tally = Tally::of(12_000);
    thread::scope(|scope| {
        scope.spawn(|| {
            for part in 0..12 {
                send_and_close(&bootstrap, &topic, 6, part * 1_000..(part + 1) * 1_000);
            }
        });
        let leaver = scope.spawn(|| {
            let own = read_on(&leaves, &tally, 2_000);
            leaves.close(LIMIT).unwrap();
            own
        });
        let stayed = read_on(&stays, &tally, usize::MAX);
        let left = leaver.join().unwrap();
        println!("the one that stays read {stayed}, the one that leaves {left}");
        assert!(left >= 2_000);
    });
    assert_eq!(tally.read_twice(), 0);
    wait_until("all six", || {
        assert!(stays.poll(Duration::from_millis(1)).unwrap().is_none());
        stays.assignment().len() == 6
    });
    stays.close(LIMIT).unwrap();
}

#[test]
fn another_member_takes_over_from_one_that_was_killed() {
    let cluster = Cluster::start_with(&[SHORT_SESSIONS]);
    let topic = cluster.topic(2);
    let bootstrap = cluster.bootstrap();
    send_and_close(&bootstrap, &topic, 2, 0..100);
    let pairs = [QUICK[0], ("session.timeout.ms", "2000"), ("enable.auto.commit", "false")];
    let mut victim = Elsewhere::member(&member_options(&bootstrap, &topic, &pairs), &topic);
    for _ in 0..100 {
        victim.told();
    }
    // Its own session is as long as by default: it stays, however slow the machine.
    let heir = member(&bootstrap, &topic, &[pairs[0], pairs[2]]);
    // A rebalance needs the answer of a member that the group takes for alive.
    wait_until("a share for each", || {
        drop(heir.poll(A_WHILE).unwrap());
        heir.assignment().len() == 1
    });
    victim.kill();
    let killed = Instant::now();
    wait_until("all partitions", || {
        drop(heir.poll(A_WHILE).unwrap());
        heir.assignment().len() == 2
    });
    println!("taken over after {:?}, of session.timeout.ms=2000", killed.elapsed());
    // Nothing was ever committed, so what the other had read is read again.
    for partition in heir.assignment() {
        heir.seek(&partition, 0).unwrap();
    }
    let tally = Tally::of(100);
    wait_until("every record", || {
        if let Some(record) = heir.poll(A_WHILE).unwrap() {
            tally.note(record.value());
        }
        tally.is_complete()
    });
    heir.close(LIMIT).unwrap();
}

#[test]
fn a_partition_of_a_killed_member_is_read_on_from_what_was_committed() {
    let cluster = Cluster::start_with(&[SHORT_SESSIONS]);
    let topic = cluster.topic(1);
    let bootstrap = cluster.bootstrap();
    send_and_close(&bootstrap, &topic, 1, 0..100);
    let pairs = [
        QUICK[0],
        ("session.timeout.ms", "2000"),
        ("auto.commit.interval.ms", "10"),
        ("max.poll.records", "10"),
    ];
    let mut victim = Elsewhere::member(&member_options(&bootstrap, &topic, &pairs), &topic);
    let mut next = 0;
    while next < 100 {
        let offset: u32 = victim.told().parse().unwrap();
        // A slow machine may have let its session end: then it reads again what it had not committed.
        assert!(offset <= next, "{offset} in place of {next}");
        next = next.max(offset + 1);
    }
    // It asked for a record more: the hundredth is finished, and committed by and by.
    let (elsewhere, group) = (cluster.topic(1), group_of(&topic));
    let watcher = member(&bootstrap, &elsewhere, &[("group.id", &group)]);
    let part = TopicPartition::new(&*topic, 0);
    wait_until("the commit", || {
        watcher.committed(std::slice::from_ref(&part), LIMIT).unwrap()[0].1 == Some(100)
    });
    watcher.close(LIMIT).unwrap();
    victim.kill();
    send_and_close(&bootstrap, &topic, 1, 100..110);
    let heir = member(&bootstrap, &topic, &[]);
    for offset in 100..110 {
        assert_eq!(heir.poll(LIMIT).unwrap().unwrap().offset(), offset);
    }
    heir.close(LIMIT).unwrap();
}

#[test]
fn only_finished_work_is_committed_by_itself() {
    let (cluster, topic) = Cluster::with_topic(1);
    let bootstrap = cluster.bootstrap();
    send_and_close(&bootstrap, &topic, 1, 0..100);
    let pairs = [("auto.commit.interval.ms", "5"), ("max.poll.records", "10")];
    let part = TopicPartition::new(&*topic, 0);
    for first in [0, 10, 20] {
        let consumer = member(&bootstrap, &topic, &pairs);
        let batch = consumer.poll_batch(LIMIT).unwrap().unwrap();
        assert_eq!((batch.base_offset(), batch.len()), (first, 10), "read again, or read on");
        let open = consumer.poll_batch(LIMIT).unwrap().unwrap();
        assert_eq!(open.base_offset(), first + 10);
        // The first is finished by the second poll; the second is open however long it takes.
        wait_until("the commit", || {
            let committed = consumer.committed(std::slice::from_ref(&part), LIMIT).unwrap()[0].1;
            assert!(committed.is_none_or(|offset| offset <= first + 10), "{committed:?}");
            committed == Some(first + 10)
        });
        if first == 20 {
            consumer.close(LIMIT).unwrap();
        }
        drop(consumer);
    }
    let consumer = member(&bootstrap, &topic, &pairs);
    assert_eq!(consumer.poll(LIMIT).unwrap().unwrap().offset(), 30);
    consumer.close(LIMIT).unwrap();
}

#[test]
fn commits_without_waiting_are_sent_one_at_a_time_and_the_newest_wins() {
    let broker = BrokerElsewhere::in_memory(&["offsets.topic.num.partitions=1"]);
    let (bootstrap, topic) = (broker.bootstrap(), broker.topic(1));
    send_and_close(bootstrap, &topic, 1, 0..1_000);
    let pairs = [("enable.auto.commit", "false")];
    let consumer = member(bootstrap, &topic, &pairs);
    let mut records = Vec::new();
    while records.len() < 1_000 {
        records.push(consumer.poll(LIMIT).unwrap().unwrap());
    }
    let key_of_commits = offset_key(&group_of(&topic), &topic);
    let commits = || {
        let mut count = 0;
        read_all_of_offsets(bootstrap, |key| count += u32::from(key == key_of_commits));
        count
    };
    assert_eq!(commits(), 0);
    broker.process().hold();
    for record in &records {
        consumer.commit_soon(Commit::Record(record)).unwrap();
    }
    broker.process().let_go();
    let part = TopicPartition::new(&*topic, 0);
    wait_until("the newest", || {
        consumer.committed(std::slice::from_ref(&part), LIMIT).unwrap()[0].1 == Some(1_000)
    });
    consumer.close(LIMIT).unwrap();
    let commits = commits();
    println!("1,000 commits without waiting were sent as {commits}");
    assert!((1..=2).contains(&commits), "{commits}");
}

/// Key of a committed offset as Kafka writes it: version, group, topic, partition.
fn offset_key(group: &str, topic: &str) -> Vec<u8> {
    let mut key = vec![0, 1];
    for text in [group, topic] {
        key.extend(u16::try_from(text.len()).unwrap().to_be_bytes());
        key.extend(text.as_bytes());
    }
    key.extend([0; 4]);
    key
}

/// Reads the keys in the log of committed offsets, up to a commit of its own.
fn read_all_of_offsets(bootstrap: &str, mut each: impl FnMut(&[u8])) {
    let group = fresh("reader of offsets");
    let pairs = [("group.id", group.as_str()), ("enable.auto.commit", "false")];
    let consumer = member(bootstrap, "__consumer_offsets", &pairs);
    let part = TopicPartition::new("__consumer_offsets", 0);
    let mut first = None;
    wait_until("the offsets' partition", || {
        first = consumer.poll(Duration::ZERO).unwrap();
        first.is_some() || consumer.position(&part) == Some(0)
    });
    let end = offset_key(&group, "__consumer_offsets");
    consumer.commit(Commit::Offsets(&[(part, 0)]), LIMIT).unwrap();
    loop {
        let next = || consumer.poll(LIMIT).unwrap().unwrap();
        let record = first.take().unwrap_or_else(next);
        let key = record.key().unwrap();
        if key == end {
            break;
        }
        each(key);
    }
    consumer.close(LIMIT).unwrap();
}

#[test]
fn seeking_back_gives_the_same_records_again() {
    let (cluster, topic) = Cluster::with_topic(1);
    let bootstrap = cluster.bootstrap();
    send_and_close(&bootstrap, &topic, 1, 0..1_000);
    let consumer = member(&bootstrap, &topic, &[]);
    let part = TopicPartition::new(&*topic, 0);
    let five = || -> Vec<i64> {
        (0..5).map(|_| consumer.poll(LIMIT).unwrap().unwrap().offset()).collect()
    };
    for round in 0..20 {
        let first = round * 5;
        let expected: Vec<i64> = (first..first + 5).collect();
        assert_eq!(five(), expected);
        assert_eq!(consumer.position(&part), Some(first + 5));
        consumer.seek(&part, first).unwrap();
        assert_eq!(consumer.position(&part), Some(first));
        assert_eq!(five(), expected, "again");
    }
    consumer.close(LIMIT).unwrap();
}

#[test]
fn paused_partitions_keep_what_was_fetched() {
    let (cluster, topic) = Cluster::with_topic(10);
    let bootstrap = cluster.bootstrap();
    let producer = producer(&bootstrap, &[]);
    let value = vec![7; 1_000];
    for number in 0..20_000 {
        let record = Record::to(&topic).value(&value).partition(number % 10);
        drop(producer.send(&record).unwrap());
    }
    producer.close(LIMIT).unwrap();
    let consumer = member(&bootstrap, &topic, &[("max.poll.records", "20")]);
    let mut next = BTreeMap::new();
    let (mut count, mut round) = (0, 0);
    while count < 20_000 {
        let all = consumer.assignment();
        round += 1;
        let (paused, running): (Vec<_>, Vec<_>) =
            all.iter().cloned().partition(|part| (part.partition + round) % 10 < 7);
        consumer.pause(&paused).unwrap();
        consumer.resume(&running).unwrap();
        let Some(batch) = consumer.poll_batch(A_WHILE).unwrap() else { continue };
        assert!(!paused.contains(batch.topic_partition()), "{batch:?}");
        let next = next.entry(batch.partition()).or_insert(0);
        assert_eq!(batch.base_offset(), *next, "in order");
        *next = batch.next_offset();
        count += batch.len();
    }
    let stats = consumer.stats();
    println!("{count} records of 1,000 bytes, {} bytes received", stats.bytes);
    assert!(stats.bytes < 12 * 20_000 * 1_000 / 10, "{stats:?}");
    consumer.close(LIMIT).unwrap();
}

#[test]
fn the_first_record_comes_through_a_new_group() {
    let (cluster, topic) = Cluster::with_topic(1);
    let bootstrap = cluster.bootstrap();
    send_and_close(&bootstrap, &topic, 1, 0..1);
    for group in ["first", "second", "third"] {
        let own = fresh(group);
        let began = Instant::now();
        let consumer = member(&bootstrap, &topic, &[("group.id", &own)]);
        assert_eq!(consumer.poll(LIMIT).unwrap().unwrap().offset(), 0);
        println!("{group} group: first record after {:?}", began.elapsed());
        consumer.close(LIMIT).unwrap();
        println!("{group} group: closed after {:?}", began.elapsed());
    }
}

#[test]
fn a_member_that_did_not_poll_in_time_is_told_and_joins_again() {
    let (cluster, topic) = Cluster::with_topic(1);
    let bootstrap = cluster.bootstrap();
    send_and_close(&bootstrap, &topic, 1, 0..10);
    // No rebalance may take longer than that either, and a slow machine may take longer to join.
    let joined = |(_, first): &(Consumer, Option<_>)| first.is_some();
    let (consumer, first) = given_time(joined, |times| {
        let interval = (200 * times).to_string();
        let pairs =
            [QUICK[0], ("max.poll.interval.ms", &interval), ("enable.auto.commit", "false")];
        let consumer = member(&bootstrap, &topic, &pairs);
        let first = consumer.poll(LIMIT / 12).unwrap();
        (consumer, first)
    });
    assert_eq!(first.unwrap().offset(), 0);
    // It does not poll, so its partition goes to the other.
    let other = member(&bootstrap, &topic, &[QUICK[0], ("enable.auto.commit", "false")]);
    assert_eq!(other.poll(LIMIT).unwrap().unwrap().offset(), 0);
    other.close(LIMIT).unwrap();
    let mut told = Vec::new();
    let record = loop {
        match consumer.poll(LIMIT) {
            Ok(record) => break record.unwrap(),
            Err(error) => told.push(error),
        }
    };
    assert_eq!(record.offset(), 0, "nothing was committed");
    assert!(told.iter().all(|error| error.class() != ottla::ErrorClass::Fatal), "{told:?}");
    println!("told: {told:?}");
    consumer.close(LIMIT).unwrap();
}

#[test]
fn reading_goes_on_when_the_broker_was_killed_and_came_back() {
    let folder = tempfile::tempdir().unwrap();
    let mut broker = BrokerElsewhere::on(folder.path(), &["group.min.session.timeout.ms=100"]);
    let (bootstrap, topic) = (broker.bootstrap().to_owned(), broker.topic(3));
    let producer = producer(&bootstrap, &[("retry.backoff.ms", "10")]);
    send_numbers(&producer, &topic, 3, 0..300);
    producer.flush(LIMIT).unwrap();
    let tally = Tally::of(3_000);
    let pairs = [QUICK[0], ("session.timeout.ms", "2000"), ("auto.commit.interval.ms", "10")];
    let consumer = member(&bootstrap, &topic, &pairs);
    let over = AtomicBool::new(false);
    let (broker, faults) = thread::scope(|scope| {
        let reader = scope.spawn(|| {
            let (mut faults, deadline) = (Vec::new(), Instant::now() + LIMIT);
            while !over.load(Ordering::SeqCst) && Instant::now() < deadline {
                match consumer.poll(A_WHILE) {
                    Ok(Some(record)) => tally.note(record.value()),
                    Ok(None) => {}
                    Err(error) => faults.push(error),
                }
            }
            faults
        });
        let seen = |count| {
            wait_until("all that was sent", || tally.seen.load(Ordering::SeqCst) >= count);
        };
        seen(300);
        for round in 1..4 {
            send_numbers(&producer, &topic, 3, round * 750 - 450..round * 750);
            let away = broker.kill();
            send_numbers(&producer, &topic, 3, round * 750..round * 750 + 300);
            broker = away.back();
            producer.flush(LIMIT).unwrap();
            seen(usize::try_from(round).unwrap() * 750 + 300);
        }
        send_numbers(&producer, &topic, 3, 2_550..3_000);
        seen(3_000);
        over.store(true, Ordering::SeqCst);
        (broker, reader.join().unwrap())
    });
    println!(
        "{} of 3,000 records were read twice; {} faults told",
        tally.read_twice(),
        faults.len()
    );
    for fault in &faults {
        assert_ne!(fault.class(), ottla::ErrorClass::Fatal, "{fault:?}");
    }
    producer.close(LIMIT).unwrap();
    consumer.close(LIMIT).unwrap();
    assert_eq!(read_all(broker.bootstrap(), &topic, 3, |_, _, _, _| {}), 3_000);
}

#[test]
fn a_fetch_of_much_more_than_its_bytes_is_read_whole_and_in_order() {
    let (cluster, topic) = Cluster::with_topic(1);
    let pairs = [("compression.type", "gzip"), ("max.request.size", "20000000")];
    let producer = producer(&cluster.bootstrap(), &pairs);
    let large = vec![b'0'; 9_000_000];
    for at in 0..10 {
        let key = at.to_string();
        drop(producer.send(&Record::to(&topic).key(&key).value(&large)).unwrap());
    }
    producer.close(LIMIT).unwrap();
    let consumer = member(&cluster.bootstrap(), &topic, &[]);
    let mut keys = Vec::new();
    while keys.len() < 10 {
        let batch = consumer.poll_batch(LIMIT).unwrap().expect("more");
        assert!(batch.len() <= 4, "{} records of 9 MB at a time", batch.len());
        for record in batch.records() {
            assert_eq!(record.value.map(<[u8]>::len), Some(large.len()));
            keys.push(String::from_utf8(record.key.unwrap().to_vec()).unwrap());
        }
    }
    assert_eq!(keys, (0..10).map(|at| at.to_string()).collect::<Vec<_>>());
    consumer.close(LIMIT).unwrap();
}
