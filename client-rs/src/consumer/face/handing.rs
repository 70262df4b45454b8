//! A batch whose taker hands its records on one by one, and tells how far that is.

use std::sync::Arc;

use super::{Current, Face, Inner};
use crate::consumer::batch::Shared;

impl Face {
    /// Notes how many records of the fetch given last are finished, and how many of it the program
    /// has been given; counts as a poll. Whether it may be given more of it.
    pub(in crate::consumer) fn progress(
        &self,
        shared: &Arc<Shared>,
        finished: usize,
        given: usize,
    ) -> bool {
        let mut inner = self.lock();
        inner.set_handed(shared, finished, given);
        inner.polls = inner.polls.wrapping_add(1);
        if std::mem::take(&mut inner.attentive) {
            self.wake.wake();
        }
        let part = inner.part(&shared.partition, shared.position);
        part.is_some_and(|part| part.lease == shared.lease && part.is_open())
    }

    /// Takes the records from `at` on back, which the program was not given, if they still count.
    pub(in crate::consumer) fn give_back(&self, shared: &Arc<Shared>, at: usize) {
        let mut inner = self.lock();
        inner.set_handed(shared, 0, at);
        inner.put_back(shared, at);
        Self::announce(inner);
        // What the machine waited for may be finished now.
        self.wake.wake();
    }
}

impl Inner {
    fn set_handed(&mut self, shared: &Arc<Shared>, finished: usize, given: usize) {
        let handed = self.handed.as_mut();
        if let Some(handed) = handed.filter(|handed| handed.shared.is_same(shared)) {
            let finished = finished.min(given);
            (handed.finished, handed.given) = (finished.max(handed.finished.min(given)), given);
        }
    }

    fn put_back(&mut self, shared: &Arc<Shared>, at: usize) {
        let same = |current: &&mut Current| current.shared.is_same(shared);
        // What was cut off the same fetch goes on from there.
        if let Some(current) = self.current.as_mut().filter(same) {
            current.at = at;
            return;
        }
        let decoded = Arc::clone(&self.decoded);
        let Some(part) = self.part(&shared.partition, shared.position) else { return };
        if part.lease != shared.lease || at >= shared.len() {
            return;
        }
        if let Some(current) = part.begun.front_mut().filter(same) {
            current.at = at;
        } else {
            let mut current = Current::new(Arc::clone(shared), at, &decoded);
            if part.rests() {
                current.let_go();
            }
            part.begun.push_front(current);
            self.let_go_of_handed(&shared.partition);
        }
        self.list(&shared.partition);
    }
}
