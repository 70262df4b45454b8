//! The line of calls that wait for room: who came first sends first, also when it needs room again.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

#[derive(Debug, Default)]
pub(super) struct Line(Rc<RefCell<Places>>);

#[derive(Debug, Default)]
struct Places {
    waiting: VecDeque<(u32, Option<Waker>)>,
    last: u32,
}

impl Line {
    /// Whether nobody waits.
    pub(super) fn is_empty(&self) -> bool {
        self.0.borrow().waiting.is_empty()
    }

    /// A place at the end.
    pub(super) fn join(&self) -> Ticket {
        let mut places = self.0.borrow_mut();
        places.last = places.last.wrapping_add(1);
        let number = places.last;
        places.waiting.push_back((number, None));
        Ticket { number, line: Rc::clone(&self.0) }
    }
}

/// A place in the line. Dropped, it is left.
#[derive(Debug)]
pub(super) struct Ticket {
    number: u32,
    line: Rc<RefCell<Places>>,
}

impl Ticket {
    pub(super) const fn number(&self) -> u32 {
        self.number
    }

    /// Ready when the place is the first.
    pub(super) fn reached(&self) -> Reached {
        Reached { number: self.number, line: Rc::clone(&self.line) }
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        let first = {
            let mut places = self.line.borrow_mut();
            // Nearly always it is the first that leaves.
            if places.waiting.front().is_some_and(|(number, _)| *number == self.number) {
                places.waiting.pop_front();
            } else {
                places.waiting.retain(|(number, _)| *number != self.number);
            }
            places.waiting.front_mut().and_then(|(_, waker)| waker.take())
        };
        if let Some(waker) = first {
            waker.wake();
        }
    }
}

#[derive(Debug)]
pub(super) struct Reached {
    number: u32,
    line: Rc<RefCell<Places>>,
}

impl Future for Reached {
    type Output = ();

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let mut places = self.line.borrow_mut();
        let place = places.waiting.iter().position(|(number, _)| *number == self.number);
        // A place that was left keeps nobody waiting.
        let Some(place) = place.filter(|&place| place > 0) else { return Poll::Ready(()) };
        if let Some((_, waker)) = places.waiting.get_mut(place) {
            *waker = Some(cx.waker().clone());
        }
        Poll::Pending
    }
}
