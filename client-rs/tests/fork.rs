//! What a process that was made by a fork sees of its parent's clients.

#![allow(unsafe_code, reason = "a fork has no safe interface")]
#![allow(clippy::unwrap_used, reason = "a test that cannot go on ends here")]

mod clients;
mod cluster;
mod patience;

use std::pin::pin;
use std::task::{Context, Poll, Waker};

use clients::{nobody, options, producer};
use cluster::{Cluster, fresh};
use ottla::{
    Commit, Consumer, ConsumerStats, Error, ErrorKind, Outcome, Producer, Record, Sent,
    TopicPartition,
};
use patience::LIMIT;

/// Seconds after which the child ends by a signal, if a call of its hangs.
const CHILD_SECONDS: libc::c_uint = 100;

/// What the parent has made before the fork.
struct Parent {
    producer: Producer,
    consumer: Consumer,
    delivered: Sent,
    /// Of a producer whose broker does not answer.
    open: Sent,
    stuck: Producer,
    address: String,
    topic: String,
}

fn polled<T>(future: impl Future<Output = T>) -> Option<T> {
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(result) => Some(result),
        Poll::Pending => None,
    }
}

fn refused<T>(result: Result<T, Error>) -> bool {
    result.err().is_some_and(|error| error.kind() == ErrorKind::Forked)
}

fn not_sent<T>(result: Result<T, Error>) -> bool {
    let error = result.err();
    error.as_ref().and_then(Error::outcome) == Some(Outcome::NotSent)
        && error.is_some_and(|error| error.kind() == ErrorKind::Forked)
}

impl Parent {
    /// The number of the first call that does not do in the child what it should; 0 if all do.
    fn try_in_child(self) -> i32 {
        let topic = self.topic.as_str();
        let record = Record::to(topic).value("child");
        let (producer, consumer) = (&self.producer, &self.consumer);
        let part = TopicPartition::new(topic, 0);
        let parts = std::slice::from_ref(&part);
        let told = [
            not_sent(producer.send(&record)),
            not_sent(producer.try_send(&record)),
            producer.send_many(&[record]).wait(LIMIT).into_iter().all(not_sent),
            polled(producer.room(100)).is_some_and(refused),
            refused(producer.flush(LIMIT)),
            polled(producer.flush_async()).is_some_and(refused),
            refused(producer.close(LIMIT)),
            polled(producer.close_async(LIMIT)).is_some_and(refused),
            polled(producer.failure()).is_some_and(|error| error.kind() == ErrorKind::Forked),
            self.delivered.wait(LIMIT).is_ok_and(|delivery| delivery.offset == 0),
            refused(self.open.wait(LIMIT)),
            polled(self.open.clone()).is_some_and(refused),
            not_sent(self.stuck.send(&Record::to(topic).value(&vec![7; 20_000]))),
            refused(consumer.subscribe(&[topic])),
            refused(consumer.poll(LIMIT)),
            refused(consumer.try_poll_batch()),
            polled(consumer.next()).is_some_and(refused),
            refused(consumer.commit(Commit::Finished, LIMIT)),
            refused(consumer.committed(parts, LIMIT)),
            refused(consumer.seek(&part, 1)),
            consumer.position(&part).is_none() && consumer.current_lag(&part).is_none(),
            consumer.assignment().is_empty() && consumer.stats() == ConsumerStats::default(),
            refused(consumer.close(LIMIT)),
            polled(consumer.close_async(LIMIT)).is_some_and(refused),
        ];
        let (address, topic) = (self.address.clone(), self.topic.clone());
        drop(self);
        let own = clients::producer(&address, &[]);
        let offset = own.send(&Record::to(&topic)).and_then(|sent| sent.wait(LIMIT));
        let works = offset.is_ok_and(|delivery| delivery.offset == 1) && own.close(LIMIT).is_ok();
        let first_wrong = told.into_iter().chain([works]).position(|right| !right);
        first_wrong.map_or(0, |index| i32::try_from(index + 1).unwrap())
    }
}

#[test]
fn a_forked_child_is_told_at_once_and_disturbs_nothing() {
    let (cluster, topic) = Cluster::with_topic(1);
    let address = cluster.bootstrap();
    let producer = producer(&address, &[]);
    let delivered = producer.send(&Record::to(&topic).value("parent")).unwrap();
    delivered.wait(LIMIT).unwrap();
    let stuck = clients::producer(&nobody(), &[("buffer.memory", "32768")]);
    let open = stuck.send(&Record::to(&topic).value(&vec![7; 20_000])).unwrap();
    let consumer = Consumer::new(&options(&address, &[("group.id", &fresh("g"))])).unwrap();
    consumer.subscribe(&[&topic]).unwrap();
    // SAFETY: the child leaves alone what other threads may have locked, which is what is tested,
    // and ends without running anything of the parent's.
    let child = unsafe { libc::fork() };
    assert!(child >= 0);
    let parent = Parent { producer, consumer, delivered, open, stuck, address, topic };
    if child == 0 {
        // SAFETY: this only sets a timer, whose signal ends the process.
        unsafe { libc::alarm(CHILD_SECONDS) };
        let wrong = parent.try_in_child();
        // SAFETY: this ends the process at once.
        unsafe { libc::_exit(wrong) };
    }
    let mut status = -1;
    // SAFETY: `status` is valid for writes.
    assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
    assert!(libc::WIFEXITED(status), "the child hangs: {status}");
    assert_eq!(libc::WEXITSTATUS(status), 0, "the number of the call that went wrong");
    let Parent { producer, consumer, topic, .. } = &parent;
    let after = producer.send(&Record::to(topic).value("parent again")).unwrap();
    assert_eq!(after.wait(LIMIT).unwrap().offset, 2);
    producer.close(LIMIT).unwrap();
    consumer.close(LIMIT).unwrap();
}
