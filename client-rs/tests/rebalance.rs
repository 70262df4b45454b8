//! Consumers that are told of their partitions, and those with a fixed name.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on ends here")]
#![allow(clippy::disallowed_methods, reason = "tests wait in real time, up to a limit")]

mod clients;
mod cluster;
mod patience;

use std::collections::BTreeMap;
use std::future::Future;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};
use std::thread::{self, ThreadId};
use std::time::{Duration, Instant};

use clients::{member_options, producer};
use cluster::Cluster;
use ottla::{
    Commit, Consumer, ConsumerRecord, ErrorClass, ErrorKind, RebalanceListener, Record,
    TopicPartition,
};
use patience::{LIMIT, wait_until};

const SHORT: Duration = Duration::from_millis(5);

/// A topic of its own, and members of its group.
struct Scene {
    cluster: Cluster,
    topic: String,
}

impl Scene {
    fn new(partitions: i32) -> Self {
        let (cluster, topic) = Cluster::with_topic(partitions);
        Self { cluster, topic }
    }

    /// One that has not subscribed yet.
    fn consumer(&self, more: &[(&str, &str)]) -> Consumer {
        let set = [("heartbeat.interval.ms", "30"), ("enable.auto.commit", "false")];
        let set = [&set, more].concat();
        Consumer::new(&member_options(&self.cluster.bootstrap(), &self.topic, &set)).unwrap()
    }

    fn subscribe(&self, consumer: &Consumer) {
        consumer.subscribe(&[&self.topic]).unwrap();
    }

    fn produce(&self, partitions: i32, count: i32) {
        let producer = producer(&self.cluster.bootstrap(), &[]);
        for number in 0..count {
            let record = Record::to(&self.topic).value("v").partition(number % partitions);
            producer.send(&record).unwrap();
        }
        producer.close(LIMIT).unwrap();
    }
}

#[derive(Clone, Default)]
struct Diary(Arc<Mutex<Vec<(String, ThreadId)>>>);

impl Diary {
    fn write(&self, what: &str, partitions: &[TopicPartition]) {
        let numbers: Vec<i32> = partitions.iter().map(|at| at.partition).collect();
        let line = format!("{what} {numbers:?}");
        self.0.lock().unwrap().push((line, thread::current().id()));
    }

    fn lines(&self) -> Vec<String> {
        self.0.lock().unwrap().iter().map(|(line, _)| line.clone()).collect()
    }
}

/// Writes down what it is told, and commits what goes.
struct Commits(Diary);

impl RebalanceListener for Commits {
    fn on_assigned(&self, _: &Consumer, partitions: &[TopicPartition]) {
        self.0.write("assigned", partitions);
    }

    fn on_revoked(&self, consumer: &Consumer, partitions: &[TopicPartition]) {
        let result = consumer.commit(Commit::Finished, LIMIT);
        self.0.write(if result.is_ok() { "committed" } else { "not committed" }, partitions);
    }

    fn on_lost(&self, _: &Consumer, partitions: &[TopicPartition]) {
        self.0.write("lost", partitions);
    }
}

#[test]
fn a_listener_commits_what_it_is_about_to_lose_in_the_thread_that_polls() {
    for strategy in ["range", "cooperative-sticky"] {
        let scene = Scene::new(2);
        let diary = Diary::default();
        let set = [("partition.assignment.strategy", strategy)];
        let first = scene.consumer(&set);
        first.on_rebalance(Commits(diary.clone()));
        scene.subscribe(&first);
        scene.produce(2, 20);
        let mut read = 0;
        wait_until("all records", || {
            read += usize::from(first.poll(SHORT).unwrap().is_some());
            read == 20
        });
        let second = scene.consumer(&set);
        scene.subscribe(&second);
        // One poll is enough for all that happens meanwhile: it waits for records.
        let polling = thread::spawn({
            let first = first.clone();
            move || {
                (first.poll(LIMIT).unwrap().map(|record| record.offset()), thread::current().id())
            }
        });
        wait_until("a share for the second", || {
            assert!(second.poll(SHORT).unwrap().is_none(), "all was committed before");
            second.assignment().len() == 1 && first.assignment().len() == 1
        });
        scene.produce(2, 2);
        let (offset, poller) = polling.join().unwrap();
        assert_eq!(offset, Some(10), "{strategy}");
        let lines = diary.lines();
        let kept = first.assignment()[0].partition;
        let went = 1 - kept;
        if strategy == "range" {
            let wanted = ["assigned [0, 1]", "committed [0, 1]", &format!("assigned [{kept}]")]
                .map(String::from);
            assert_eq!(lines, wanted);
        } else {
            assert_eq!(lines, ["assigned [0, 1]".to_owned(), format!("committed [{went}]")]);
        }
        let told = diary.0.lock().unwrap().clone();
        assert!(told.iter().skip(1).all(|(_, thread)| *thread == poller), "{told:?}");
        second.close(LIMIT).unwrap();
        first.close(LIMIT).unwrap();
        let told = diary.0.lock().unwrap().clone();
        let (line, thread) = told.last().unwrap();
        assert!(line.starts_with("committed"), "{line}");
        assert_eq!(*thread, thread::current().id(), "who closes is told");
    }
}

struct Closes(Diary);

impl RebalanceListener for Closes {
    fn on_assigned(&self, consumer: &Consumer, partitions: &[TopicPartition]) {
        self.0.write("assigned", partitions);
        consumer.close(LIMIT).unwrap();
        self.0.write("closed", partitions);
    }

    fn on_revoked(&self, _: &Consumer, partitions: &[TopicPartition]) {
        self.0.write("revoked", partitions);
    }
}

#[test]
fn closing_from_inside_a_listener_ends_and_tells_nothing_more() {
    let scene = Scene::new(1);
    let diary = Diary::default();
    let consumer = scene.consumer(&[]);
    consumer.on_rebalance(Closes(diary.clone()));
    scene.subscribe(&consumer);
    let began = Instant::now();
    assert_eq!(consumer.poll(LIMIT).unwrap_err().kind(), ErrorKind::Closed);
    assert_eq!(diary.lines(), ["assigned [0]", "closed [0]"]);
    assert!(began.elapsed() < LIMIT, "it waited for itself");
}

struct Panics;

impl RebalanceListener for Panics {
    fn on_assigned(&self, _: &Consumer, _: &[TopicPartition]) {
        panic!("the listener failed");
    }
}

#[test]
fn a_listener_that_panics_holds_nothing_up() {
    let scene = Scene::new(1);
    scene.produce(1, 3);
    let consumer = scene.consumer(&[]);
    consumer.on_rebalance(Panics);
    scene.subscribe(&consumer);
    let polled = thread::spawn({
        let consumer = consumer.clone();
        move || consumer.poll(LIMIT).map(|record| record.is_some())
    });
    assert!(polled.join().is_err(), "it reached the thread that polled");
    assert_eq!(consumer.poll(LIMIT).unwrap().unwrap().offset(), 0);
    consumer.close(LIMIT).unwrap();
}

#[test]
fn a_consumer_whose_last_handle_goes_leaves_without_its_listener() {
    let scene = Scene::new(1);
    let diary = Diary::default();
    let first = scene.consumer(&[]);
    first.on_rebalance(Commits(diary.clone()));
    scene.subscribe(&first);
    wait_until("a partition", || {
        first.poll(SHORT).unwrap();
        !first.assignment().is_empty()
    });
    drop(first);
    let second = scene.consumer(&[]);
    scene.subscribe(&second);
    wait_until("its partition for another", || {
        second.poll(SHORT).unwrap();
        second.assignment().len() == 1
    });
    assert_eq!(diary.lines(), ["assigned [0]"]);
    second.close(LIMIT).unwrap();
}

#[test]
fn a_static_member_comes_back_to_its_partitions_without_a_rebalance() {
    let scene = Scene::new(2);
    let static_member = |name: &str| {
        let consumer = scene.consumer(&[("group.instance.id", name)]);
        scene.subscribe(&consumer);
        consumer
    };
    let (one, two) = (static_member("one"), static_member("two"));
    wait_until("an even share", || {
        one.poll(SHORT).unwrap();
        two.poll(SHORT).unwrap();
        one.assignment().len() == 1 && two.assignment().len() == 1
    });
    let (had, rebalances) = (one.assignment(), two.stats().rebalances);
    one.close(LIMIT).unwrap();
    let again = static_member("one");
    wait_until("its partition", || {
        again.poll(SHORT).unwrap();
        two.poll(SHORT).unwrap();
        !again.assignment().is_empty()
    });
    assert_eq!(again.assignment(), had);
    assert_eq!(two.stats().rebalances, rebalances, "nobody else noticed");
    again.close(LIMIT).unwrap();
    two.close(LIMIT).unwrap();
}

/// Static members of one group; who comes first leads it.
struct Static<'a> {
    scene: &'a Scene,
    members: Vec<Consumer>,
}

impl<'a> Static<'a> {
    /// Members of these names, each of which has a partition.
    fn start(scene: &'a Scene, names: &[&str], topics: &[&str], strategy: &str) -> Self {
        let mut all = Self { scene, members: Vec::new() };
        for name in names {
            all.comes(name, topics, strategy);
            all.wait("a share for each", |members| {
                members.iter().all(|member| !member.assignment().is_empty())
            });
        }
        all
    }

    fn comes(&mut self, name: &str, topics: &[&str], strategy: &str) {
        let set = [("group.instance.id", name), ("partition.assignment.strategy", strategy)];
        let set = [&set[..], &[("metadata.max.age.ms", "100")]].concat();
        let member = self.scene.consumer(&set);
        member.subscribe(topics).unwrap();
        self.members.push(member);
    }

    /// The member of that place goes, and keeps its name.
    fn goes(&mut self, place: usize) {
        self.members.remove(place).close(LIMIT).unwrap();
    }

    fn wait(&self, what: &str, done: impl Fn(&[Consumer]) -> bool) {
        wait_until(what, || {
            for member in &self.members {
                member.poll(SHORT).unwrap();
            }
            done(&self.members)
        });
    }

    /// How many partitions of a topic are somebody's.
    fn shared_out(members: &[Consumer], topic: &str) -> usize {
        let all = members.iter().flat_map(Consumer::assignment);
        all.filter(|at| &*at.topic == topic).count()
    }

    fn end(self) {
        for member in self.members {
            member.close(LIMIT).unwrap();
        }
    }
}

#[test]
fn a_static_leader_that_comes_back_notices_topics_that_came_meanwhile() {
    for strategy in ["range", "cooperative-sticky"] {
        let scene = Scene::new(2);
        let late = cluster::fresh("late");
        let topics = [&*scene.topic, &*late];
        let mut group = Static::start(&scene, &["one", "two"], &topics, strategy);
        group.goes(0);
        scene.cluster.make_topic(&late, 2);
        group.comes("one", &topics, strategy);
        group.wait("all partitions", |members| {
            Static::shared_out(members, &late) == 2
                && Static::shared_out(members, &scene.topic) == 2
        });
        group.end();
    }
}

#[test]
fn a_static_member_that_comes_back_reads_what_it_subscribes_to_now() {
    for (strategy, place) in [("range", 0), ("range", 1), ("cooperative-sticky", 1)] {
        let scene = Scene::new(2);
        let other = scene.cluster.topic(2);
        let names = ["one", "two"];
        let mut group = Static::start(&scene, &names, &[&scene.topic], strategy);
        group.goes(place);
        group.comes(names[place], &[&other], strategy);
        group.wait("one topic each", |members| {
            let count = |place: usize, topic| {
                let member = members.get(place..=place).unwrap_or_default();
                (Static::shared_out(member, topic), Static::shared_out(members, topic))
            };
            // Who has come back stands at the end.
            count(0, &scene.topic) == (2, 2) && count(1, &other) == (2, 2)
        });
        group.end();
    }
}

#[test]
fn a_second_consumer_of_the_same_instance_id_ends_the_first_with_the_reason() {
    let scene = Scene::new(1);
    let named = || {
        let consumer = scene.consumer(&[("group.instance.id", "one")]);
        scene.subscribe(&consumer);
        consumer
    };
    let diary = Diary::default();
    let first = scene.consumer(&[("group.instance.id", "one")]);
    first.on_rebalance(Commits(diary.clone()));
    scene.subscribe(&first);
    wait_until("its partition", || {
        first.poll(SHORT).unwrap();
        first.assignment().len() == 1
    });
    let second = named();
    let mut fault = None;
    wait_until("the end of the first", || {
        second.poll(SHORT).unwrap();
        fault = first.poll(SHORT).err();
        fault.is_some()
    });
    let fault = fault.unwrap();
    assert_eq!(fault.kind(), ErrorKind::FencedInstance);
    assert_eq!(fault.class(), ErrorClass::Fatal);
    assert_eq!(diary.lines().last().unwrap(), "lost [0]");
    assert!(fault.hint().unwrap().contains("group.instance.id"), "{fault:?}");
    wait_until("the partition for the second", || {
        second.poll(SHORT).unwrap();
        second.assignment().len() == 1
    });
    first.close(LIMIT).unwrap();
    second.close(LIMIT).unwrap();
}

/// Asks for a record as a task would that gives up at once; the future is dropped.
fn ask_once(consumer: &Consumer) -> Option<ConsumerRecord> {
    let mut future = pin!(consumer.next());
    match future.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(taken) => taken.unwrap(),
        Poll::Pending => None,
    }
}

#[test]
fn dropped_futures_lose_and_repeat_no_record_while_partitions_go_and_come_back() {
    const RECORDS: i32 = 3_000;
    let scene = Scene::new(2);
    // Under `range` all is given up at each rebalance, and most of it comes back.
    let set = [("enable.auto.commit", "true"), ("partition.assignment.strategy", "range")];
    let stays = scene.consumer(&set);
    scene.subscribe(&stays);
    // It leads the group from the start, so that it takes part in each generation of a guest's.
    wait_until("all partitions", || {
        assert!(ask_once(&stays).is_none(), "nothing is sent yet");
        stays.assignment().len() == 2
    });
    let sent = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            for _ in 0..30 {
                scene.produce(2, RECORDS / 30);
            }
            sent.store(true, Ordering::SeqCst);
        });
        let (mut read, mut rounds) = (BTreeMap::<(i32, i64), u32>::new(), 0);
        let mut guest: Option<Consumer> = None;
        let total = usize::try_from(RECORDS).unwrap();
        wait_until("all records, and some rebalances", || {
            for consumer in [Some(&stays), guest.as_ref()].into_iter().flatten() {
                if let Some(record) = ask_once(consumer) {
                    *read.entry((record.partition(), record.offset())).or_default() += 1;
                }
            }
            // A member comes, reads its share, and goes.
            match &guest {
                Some(there) if !there.assignment().is_empty() && read.len() > rounds * 200 => {
                    // Asked once more it has finished what it was given, and commits that.
                    // What went meanwhile cannot be paused, and need not be.
                    there.pause(&there.assignment()).ok();
                    while let Some(record) = ask_once(there) {
                        *read.entry((record.partition(), record.offset())).or_default() += 1;
                    }
                    there.close(LIMIT).unwrap();
                    (guest, rounds) = (None, rounds + 1);
                }
                None if rounds < 5 => {
                    let comes = scene.consumer(&set);
                    scene.subscribe(&comes);
                    guest = Some(comes);
                }
                _ => {}
            }
            sent.load(Ordering::SeqCst) && read.len() == total && rounds == 5
        });
        let twice = read.values().filter(|&&count| count > 1).count();
        assert_eq!(twice, 0, "records given twice");
    });
    // The first was its own, and each guest was in another; one may go and the next come in one.
    assert!(stays.stats().rebalances > 5, "{:?}", stays.stats());
    stays.close(LIMIT).unwrap();
}
