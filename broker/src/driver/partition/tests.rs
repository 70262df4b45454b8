//! A partition and its writer, without a network around them.

mod disk;
mod durable;

use std::future::Future as _;
use std::sync::mpsc::{self, Receiver};
use std::time::Duration;

use ottla_storage::Origin;

use super::*;
use crate::config::BrokerConfig;
use crate::driver::clock::Clock;
use crate::driver::own_batch::{Content, own_batch};
use crate::driver::writer::Writer;

struct Bench {
    folder: Arc<DataFolder>,
    ready: Arc<ReadyList>,
    partition: Arc<Partition>,
}

impl Bench {
    fn new() -> Self {
        let settings = BrokerConfig::new().settings();
        let config = TopicConfig::resolve(&settings, []).unwrap();
        let folder = Arc::new(DataFolder::open(None, &settings, Clock).unwrap());
        let ready = Arc::new(ReadyList::default());
        let partition = Partition::new(PartitionSetup {
            topic: "orders".into(),
            topic_id: Uuid([1; 16]),
            index: 0,
            leader_epoch: 0,
            config: Arc::new(config),
            is_metadata: false,
            folder: folder.clone(),
            ready: ready.clone(),
        });
        Self { folder, ready, partition }
    }

    fn push(&self, done: impl FnOnce(Outcome) + Send + 'static) {
        let record = (None, Some(&b"value"[..]));
        let batch = own_batch([record], Content::Records, Origin::Coordinator, 1000).unwrap();
        let done = Box::new(done);
        let submission = Submission { batches: vec![batch], acks: Acks::All, done };
        self.partition.push(submission).unwrap();
    }

    /// Pushes a batch; its offset comes, or why not.
    fn offset(&self) -> Receiver<Result<i64, AppendError>> {
        let (tell, told) = mpsc::channel();
        self.push(move |outcome| {
            let offset = outcome.map(|results| results[0].as_ref().unwrap().base_offset);
            tell.send(offset).unwrap();
        });
        told
    }
}

fn wait<T>(told: &Receiver<T>) -> T {
    told.recv_timeout(Duration::from_secs(30)).unwrap()
}

#[test]
fn start_is_settled_before_anything_is_appended() {
    let bench = Bench::new();
    let (tell, told) = mpsc::channel();
    let settled = tell.clone();
    let ready = bench.ready.clone();
    bench.ready.settle(move || settled.send(("settled", ready.is_settled())).unwrap());
    let ready = bench.ready.clone();
    bench.push(move |_outcome| tell.send(("appended", ready.is_settled())).unwrap());
    let writer = Writer::start(bench.ready.clone(), Clock).unwrap();
    assert_eq!(wait(&told), ("settled", false));
    assert_eq!(wait(&told), ("appended", true));
    writer.finish();
}

#[test]
fn folder_that_failed_takes_no_appends() {
    let bench = Bench::new();
    let writer = Writer::start(bench.ready.clone(), Clock).unwrap();
    assert_eq!(wait(&bench.offset()), Ok(0));
    bench.folder.fail("the disk is gone".into());
    let refused = wait(&bench.offset()).unwrap_err();
    assert!(refused.to_string().contains("the disk is gone"), "{refused}");
    assert!(bench.partition.log().is_err(), "and gives no reads");
    assert!(!bench.folder.write_marker(1).unwrap(), "and the next start checks the logs");
    writer.finish();
}

#[test]
fn who_panics_when_told_of_an_append_holds_up_nobody() {
    let bench = Bench::new();
    let first = bench.offset();
    bench.push(|_outcome| panic!("a test's panic"));
    let last = bench.offset();
    let writer = Writer::start(bench.ready.clone(), Clock).unwrap();
    assert_eq!(wait(&first), Ok(0));
    assert_eq!(wait(&last), Ok(2));
    assert_eq!(wait(&bench.offset()), Ok(3), "nor the appends that come later");
    writer.finish();
}

#[test]
fn partition_whose_turn_panicked_refuses_what_comes_and_what_waits() {
    let bench = Bench::new();
    let waiting = bench.offset();
    // As the writer does when a turn panics in its hands.
    assert!(bench.partition.handle_panic(), "there is work left to be refused");
    let writer = Writer::start(bench.ready.clone(), Clock).unwrap();
    for told in [waiting, bench.offset()] {
        assert!(matches!(wait(&told), Err(AppendError::Storage(_))));
    }
    writer.finish();
}

#[test]
fn options_that_are_set_hold_for_what_is_sent_after_them_also_in_one_turn() {
    let bench = Bench::new();
    let (tell, told) = mpsc::channel();
    bench.partition.log().unwrap();
    let settings = BrokerConfig::new().settings();
    let own = [("message.timestamp.type", "LogAppendTime")];
    bench.partition.configure(Arc::new(TopicConfig::resolve(&settings, own).unwrap()));
    bench.push(move |outcome| {
        let results = outcome.unwrap();
        tell.send(results[0].as_ref().unwrap().timestamp).unwrap();
    });
    // The writer finds both at once.
    let _end = bench.partition.turn(5_000);
    assert_eq!(wait(&told), 5_000, "the time of the append, not the record's");
}

#[test]
fn fetch_that_waits_on_a_partition_that_is_deleted_is_woken_at_once_and_nobody_waits_any_more() {
    let bench = Bench::new();
    bench.partition.log().unwrap();
    let wake = Arc::new(FetchWake::new());
    assert!(bench.partition.park_fetch(0, &wake).is_some());
    // There is no writer here that could do anything.
    bench.partition.delete();
    let mut context = std::task::Context::from_waker(std::task::Waker::noop());
    let woken = std::pin::pin!(wake.notified()).as_mut().poll(&mut context);
    assert!(woken.is_ready());
    assert!(bench.partition.park_fetch(0, &wake).is_none());
    assert_eq!(bench.partition.log().unwrap_err(), AppendError::Deleted);
}
