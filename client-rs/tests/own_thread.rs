//! Calls from a callback, on the clients' own thread, where nothing may wait.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on ends here")]

mod clients;
mod cluster;
mod patience;

use std::sync::{Arc, Mutex, mpsc};
use std::thread;
use std::time::Duration;

use clients::{nobody, options, producer};
use cluster::{Cluster, fresh};
use ottla::{
    Completions, Consumer, Error, ErrorKind, Outcome, Partitioner, Partitions, Producer, Record,
};
use patience::{LIMIT, within_limit};

#[test]
fn a_call_that_would_have_to_wait_for_its_own_thread_is_refused() {
    within_limit(|| {
        let (cluster, topic) = Cluster::with_topic(1);
        let fine = producer(&cluster.bootstrap(), &[]);
        // Its records wait for their topic to be known longer than this may take.
        let pairs = [("buffer.memory", "32768"), ("max.block.ms", "600000")];
        let stuck = producer(&nobody(), &pairs);
        let large = vec![7; 16_000];
        let open = stuck.send(&Record::to(&topic).value(&large)).unwrap();
        while stuck.try_send(&Record::to(&topic).value(&large)).is_ok() {}
        let group = options(&cluster.bootstrap(), &[("group.id", &fresh("g"))]);
        let consumer = Consumer::new(&group).unwrap();
        consumer.subscribe(&[&topic]).unwrap();
        let (tell, told) = mpsc::channel::<Option<Vec<Option<Error>>>>();
        let clients = (fine.clone(), stuck.clone(), consumer.clone());
        let to = topic.clone();
        let here = thread::current().id();
        let calls = Mutex::new(Some((clients, large)));
        let queue = Completions::new(move || {
            // What has ended before it is asked about is signalled here, where it may wait.
            if thread::current().id() == here {
                return tell.send(None).unwrap();
            }
            let Some(((fine, stuck, consumer), large)) = calls.lock().unwrap().take() else {
                return;
            };
            let record = Record::to(&to).value(&large);
            let errors = vec![
                stuck.send(&record).err(),
                stuck.send_many(&[record]).wait(LIMIT).pop().unwrap().err(),
                open.wait(LIMIT).err(),
                stuck.flush(LIMIT).err(),
                stuck.close(LIMIT).err(),
                fine.flush(LIMIT).err(),
                consumer.poll(LIMIT).err(),
                consumer.close(LIMIT).err(),
            ];
            tell.send(Some(errors)).unwrap();
            // What need not wait works.
            fine.send(&Record::to(&to).value("from the callback")).unwrap();
        });
        let mut sends = 0;
        let errors = loop {
            let sent = fine.send(&Record::to(&topic).value("a")).unwrap();
            sends += 1;
            sent.notify(&queue);
            match told.recv_timeout(LIMIT).unwrap() {
                Some(errors) => break errors,
                None => drop(queue.drain(usize::MAX)),
            }
        };
        for (number, error) in errors.iter().enumerate() {
            let error = error.as_ref().unwrap();
            assert_eq!(error.kind(), ErrorKind::InvalidState, "call {number}: {error}");
        }
        for send in &errors[..2] {
            assert_eq!(send.as_ref().unwrap().outcome(), Some(Outcome::NotSent));
        }
        fine.flush(LIMIT).unwrap();
        assert_eq!(fine.stats().delivered, sends + 1, "its producer goes on");
        fine.close(LIMIT).unwrap();
        consumer.close(LIMIT).unwrap();
        drop(Arc::clone(&queue));
    });
}

/// A partitioner that keeps the thread on which it is called until it is told to go on.
struct Keeps {
    called: mpsc::Sender<()>,
    go_on: Mutex<mpsc::Receiver<()>>,
}

impl Partitioner for Keeps {
    fn partition(&self, _: &Record<'_>, _: &Partitions<'_>) -> i32 {
        self.called.send(()).unwrap();
        // Nobody tells it any more once the story has failed.
        self.go_on.lock().unwrap().recv_timeout(LIMIT).ok();
        0
    }
}

#[test]
fn a_close_that_the_programs_own_partitioner_holds_up_says_so() {
    within_limit(|| {
        let (cluster, topic) = Cluster::with_topic(1);
        let ((called, calls), (tell, go_on)) = (mpsc::channel(), mpsc::channel());
        let keeps = Keeps { called, go_on: Mutex::new(go_on) };
        let options = options(&cluster.bootstrap(), &[]);
        let producer = Producer::with_partitioner(&options, keeps).unwrap();
        // Its topic is not known yet, so its partition is chosen on the client's own thread.
        let sent = producer.send(&Record::to(&topic).value("a")).unwrap();
        calls.recv_timeout(LIMIT).unwrap();
        let error = producer.close(Duration::ZERO).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Timeout, "{error}");
        assert!(error.hint().is_some_and(|hint| hint.contains("partitioner")), "{error}");
        tell.send(()).unwrap();
        producer.close(LIMIT).unwrap();
        sent.wait(LIMIT).unwrap_err();
    });
}
