//! Tests of the feed.

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
    let mut cx = Context::from_waker(std::task::Waker::noop());
    let ended = Pin::new(&mut events.next_async()).poll(&mut cx);
    assert!(matches!(ended, Poll::Ready(Ok(None))));
}
