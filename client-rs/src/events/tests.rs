//! Tests of the feed.

use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Wake, Waker};
use std::thread;

use super::*;
use crate::error::ErrorKind;

const LIMIT: Duration = Duration::from_mins(2);

fn numbered(number: u64) -> Event {
    Event::DeliveryFailed { error: Error::new(ErrorKind::Timeout, "late"), records: number }
}

fn number(event: Option<Event>) -> Option<u64> {
    match event? {
        Event::DeliveryFailed { records, .. } => Some(records),
        other => panic!("{other:?}"),
    }
}

fn feed() -> (Arc<Feed>, Events) {
    let feed = Arc::<Feed>::default();
    let events = Events::of(&feed, Process::current());
    (feed, events)
}

#[test]
fn events_that_nobody_asked_for_are_not_even_made() {
    let feed = Arc::<Feed>::default();
    feed.tell(|| panic!("nobody wants it"));
    let events = Events::of(&feed, Process::current());
    assert!(events.try_next().is_none());
    feed.tell(|| numbered(1));
    let other = events.clone();
    drop(events);
    feed.tell(|| numbered(2));
    assert_eq!((number(other.try_next()), number(other.try_next())), (Some(1), Some(2)));
    feed.tell(|| numbered(3));
    drop(other);
    feed.tell(|| panic!("nobody wants it any more"));
    assert!(Events::of(&feed, Process::current()).try_next().is_none(), "what waited is gone");
}

#[test]
fn events_beyond_the_limit_are_counted_and_told_behind_those_that_were_kept() {
    let (feed, events) = feed();
    let limit = u64::try_from(EVENTS_MAX).unwrap();
    for at in 0..limit + 3 {
        feed.tell(|| numbered(at));
    }
    for at in 0..limit {
        assert_eq!(number(events.try_next()), Some(at));
    }
    assert!(matches!(events.try_next(), Some(Event::EventsLost { count: 3 })));
    assert!(events.try_next().is_none());
    feed.tell(|| numbered(7));
    assert_eq!(number(events.try_next()), Some(7));
    for at in 0..limit {
        feed.tell(|| numbered(at));
    }
    assert_eq!(number(events.try_next()), Some(0));
    // There is room for one, and for two again once another was taken.
    feed.tell(|| numbered(limit));
    feed.tell(|| numbered(limit + 1));
    assert_eq!(number(events.try_next()), Some(1));
    assert_eq!(number(events.try_next()), Some(2));
    feed.tell(|| numbered(limit + 2));
    for at in 3..=limit {
        assert_eq!(number(events.try_next()), Some(at));
    }
    assert!(matches!(events.try_next(), Some(Event::EventsLost { count: 1 })));
    assert_eq!(number(events.try_next()), Some(limit + 2));
    assert!(events.try_next().is_none());
}

#[test]
fn a_wait_ends_by_an_event_by_its_time_and_by_the_end_of_the_client() {
    let (feed, events) = feed();
    assert!(events.next(Duration::ZERO).unwrap().is_none());
    thread::scope(|scope| {
        let waiting = scope.spawn(|| number(events.next(LIMIT).unwrap()));
        feed.tell(|| numbered(1));
        assert_eq!(waiting.join().unwrap(), Some(1));
        let waiting = scope.spawn(|| events.next(LIMIT).unwrap().is_none());
        feed.end();
        assert!(waiting.join().unwrap(), "none will come");
    });
    let mut cx = Context::from_waker(Waker::noop());
    let ended = Pin::new(&mut events.next_async()).poll(&mut cx);
    assert!(matches!(ended, Poll::Ready(Ok(None))));
}

#[derive(Default)]
struct Woken(AtomicBool);

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Ordering::SeqCst);
    }
}

#[test]
fn waits_that_were_given_up_leave_nothing_behind_and_take_no_wake_from_others() {
    let (feed, events) = feed();
    let begin = |waker: &Waker| {
        let mut next = events.next_async();
        let polled = Pin::new(&mut next).poll(&mut Context::from_waker(waker));
        assert!(polled.is_pending());
        next
    };
    let woken = Arc::<Woken>::default();
    let waker = Waker::from(Arc::clone(&woken));
    let kept = begin(&waker);
    for _ in 0..1000 {
        drop(begin(&Waker::from(Arc::<Woken>::default())));
        drop(begin(&waker));
        assert!(events.next(Duration::from_nanos(1)).unwrap().is_none());
    }
    assert_eq!(feed.waiting(), 1, "the one that is not given up");
    feed.tell(|| numbered(1));
    assert!(woken.0.load(Ordering::SeqCst));
    drop(kept);
    assert_eq!(number(events.try_next()), Some(1));
}

#[test]
fn a_child_of_a_fork_touches_nothing_of_its_parents_feed() {
    let (feed, events) = feed();
    feed.tell(|| numbered(1));
    let in_child = Events { feed: Arc::clone(&feed), process: Process::another() };
    assert!(in_child.try_next().is_none());
    in_child.next(LIMIT).unwrap_err();
    drop(in_child);
    assert_eq!(number(events.try_next()), Some(1));
}
