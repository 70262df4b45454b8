//! Members that finish records one by one, in any order, and what must hold of that.

use ottla::{ConsumerRecord, ErrorKind};

use super::groups::{Book, Group};
use super::members::Member;
use super::plan::FLEETING;
use super::tap::{Place, place};
use super::world::World;

impl Book {
    /// Whether all from one offset up to another is finished. Of a topic that is made anew the same
    /// offsets come again, and nothing is told.
    pub(crate) fn is_finished(&self, place: Place, from: i64, to: i64) -> bool {
        let done = self.acknowledged.get(&place);
        place.0 == FLEETING.0
            || (from..to).all(|offset| done.is_some_and(|done| done.contains(&offset)))
    }

    /// Whether all up to an offset is finished: from where its program went last, or from the last
    /// that somebody asked to commit.
    pub(crate) fn follows(&self, place: Place, offset: i64, went: i64) -> bool {
        let asked = self.asked.get(&place);
        let before = asked.and_then(|asked| asked.range(..=offset).next_back());
        self.is_finished(place, before.copied().unwrap_or(0).max(went), offset)
    }
}

impl Member {
    /// Whether reading may go on at an offset: those before it are finished.
    pub(crate) fn passes_over(&self, place: Place, from: i64, offset: i64) -> bool {
        let book = self.group.book.borrow();
        let passes =
            self.group.plan.is_explicit && from < offset && book.is_finished(place, from, offset);
        if passes && place.0 != FLEETING.0 {
            self.world.sometimes("finished records are passed over");
        }
        passes
    }

    /// Whether reading may begin there.
    pub(crate) fn begins_behind_finished(&self, place: Place, offset: i64) -> bool {
        let follows =
            self.group.plan.is_explicit && self.group.book.borrow().follows(place, offset, 0);
        if follows && place.0 != FLEETING.0 {
            self.world.sometimes("finished records are passed over");
        }
        follows
    }

    /// Finishes some of what is in its hands, in any order; once the world has healed, all of it.
    pub(crate) fn acknowledge(&mut self) {
        if self.hand.is_empty() {
            return;
        }
        let most = if self.is_calm { u64::MAX } else { self.world.dice.borrow_mut().between(0, 8) };
        for _ in 0..most {
            let Some(last) = self.hand.len().checked_sub(1) else { return };
            let last = u64::try_from(last).unwrap_or(0);
            let pick = self.world.dice.borrow_mut().between(0, last);
            let record = self.hand.swap_remove(usize::try_from(pick).unwrap_or(0));
            self.acknowledge_one(&record);
        }
    }

    fn acknowledge_one(&self, record: &ConsumerRecord) {
        let Some(place) = place(record.topic(), record.partition()) else { return };
        let mut book = self.group.book.borrow_mut();
        let fresh = book.acknowledged.entry(place).or_default().insert(record.offset());
        drop(book);
        match self.consumer.acknowledge(record) {
            Ok(()) => self.world.sometimes("a record is finished by itself"),
            Err(error) => {
                if fresh
                    && let Some(done) = self.group.book.borrow_mut().acknowledged.get_mut(&place)
                {
                    done.remove(&record.offset());
                }
                if error.kind() == ErrorKind::CommitFenced {
                    self.world.sometimes("a record is finished too late");
                } else {
                    self.must::<()>("acknowledge", Err(error));
                }
            }
        }
    }
}

/// What a commit says to be finished behind its offsets is.
pub(crate) fn check(world: &World, group: &Group, client: &str, texts: &[(Place, i64, String)]) {
    let book = group.book.borrow();
    for (place, offset, text) in texts {
        let pairs = text.splitn(3, ':').nth(2).unwrap_or_default();
        let mut at = *offset;
        for pair in pairs.split(',') {
            let pair = pair.split_once('+');
            let numbers =
                pair.and_then(|(skip, len)| Some((skip.parse().ok()?, len.parse().ok()?)));
            let Some((skip, len)): Option<(i64, i64)> = numbers else {
                world.finding(format!("{client} keeps {text} beside {offset} of {place:?}"));
                break;
            };
            let (from, to) = (at + skip, at + skip + len);
            if !book.is_finished(*place, from, to) {
                world.finding(format!(
                    "{client} says {from}..{to} of {place:?} finished: it is not"
                ));
            }
            at = to;
        }
        world.sometimes("a commit keeps what is finished behind it");
    }
}
