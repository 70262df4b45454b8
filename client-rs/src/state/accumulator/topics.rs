//! The topics whose partitions are known, as senders look them up.

use std::cell::RefCell;
use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use arc_swap::ArcSwap;

use super::slot::Slot;
use crate::producer::partitioner::{Choice, Cursor, Rules};
use crate::record::Record;

/// A topic with its partitions. Replaced whole when something changes.
#[derive(Debug, Clone)]
pub(crate) struct TopicFace {
    pub(crate) name: Arc<str>,
    pub(crate) slots: Vec<Arc<Slot>>,
    /// Who leads each.
    pub(crate) leaders: Vec<Option<i32>>,
    /// Partitions for records without a key: those with a leader, or with one that is near; empty if
    /// that are all or none.
    pub(crate) led: Vec<usize>,
    pub(crate) cursor: Arc<Cursor>,
}

impl TopicFace {
    /// A topic with these partitions, and the cursor that it goes on with. Leaders that are near are
    /// preferred (KIP-1123).
    pub(crate) fn new(
        name: &Arc<str>,
        slots: Vec<Arc<Slot>>,
        leaders: Vec<Option<i32>>,
        cursor: Arc<Cursor>,
        is_near: impl Fn(i32) -> bool,
    ) -> Arc<Self> {
        debug_assert_eq!(slots.len(), leaders.len(), "both are of all partitions");
        let led_by = |counts: &dyn Fn(i32) -> bool| -> Vec<usize> {
            let numbered = leaders.iter().enumerate();
            numbered.filter(|(_, leader)| leader.is_some_and(counts)).map(|(at, _)| at).collect()
        };
        let near = led_by(&is_near);
        let led = if near.is_empty() { led_by(&|_| true) } else { near };
        let led = if led.len() == leaders.len() { Vec::new() } else { led };
        Arc::new(Self { name: Arc::clone(name), slots, leaders, led, cursor })
    }

    /// The partition for a record; its number, if there is none of it.
    #[inline]
    pub(crate) fn slot_for(&self, record: &Record<'_>, rules: &Rules) -> Result<&Arc<Slot>, i32> {
        let number = record.partition.unwrap_or_else(|| {
            let Self { slots, leaders, led, cursor, .. } = self;
            rules.choose(record, &Choice { leaders, led, slots, cursor })
        });
        usize::try_from(number).ok().and_then(|at| self.slots.get(at)).ok_or(number)
    }
}

/// Topics by name.
pub(crate) type Topics = HashMap<Arc<str>, Arc<TopicFace>, BuildHasherDefault<NameHasher>>;

#[cfg(test)]
thread_local! {
    /// Names that this thread has looked up.
    pub(super) static LOOKUPS: std::cell::Cell<u64> = const { std::cell::Cell::new(0) };
}

/// Hashes the names of a program's own topics: fast, and not made for names that others choose.
#[derive(Debug, Default, Clone, Copy)]
pub(crate) struct NameHasher(u64);

impl Hasher for NameHasher {
    #[inline]
    fn finish(&self) -> u64 {
        #[cfg(test)]
        LOOKUPS.set(LOOKUPS.get() + 1);
        // The table looks at the highest bits and at the lowest.
        self.0 ^ (self.0 >> 32)
    }

    #[inline]
    fn write(&mut self, bytes: &[u8]) {
        let (words, tail) = bytes.as_chunks::<8>();
        for word in words {
            self.add(u64::from_le_bytes(*word));
        }
        if !tail.is_empty() {
            let word = tail.iter().fold(0, |word, &byte| word << 8 | u64::from(byte));
            self.add(word);
        }
    }

    #[inline]
    fn write_u8(&mut self, byte: u8) {
        self.add(u64::from(byte));
    }
}

impl NameHasher {
    #[inline]
    const fn add(&mut self, word: u64) {
        self.0 = (self.0.rotate_left(5) ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    }
}

/// Which topic each thread looked up last, so that a run of records to one topic finds it at once.
#[derive(Debug)]
pub(crate) struct Recent {
    /// Differs from producer to producer, and from one state of the topics to the next.
    state: AtomicU64,
}

/// Numbers of all states of all producers.
static STATES: AtomicU64 = AtomicU64::new(1);

thread_local! {
    static LAST: RefCell<Option<(u64, Arc<TopicFace>)>> = const { RefCell::new(None) };
}

impl Default for Recent {
    fn default() -> Self {
        Self { state: AtomicU64::new(STATES.fetch_add(1, Ordering::Relaxed)) }
    }
}

impl Recent {
    /// The topics were replaced: what threads remember is looked up anew.
    pub(crate) fn changed(&self) {
        self.state.store(STATES.fetch_add(1, Ordering::Relaxed), Ordering::Release);
    }

    /// Does something with a topic, if it is known.
    #[inline]
    pub(crate) fn with<T>(
        &self,
        topics: &ArcSwap<Topics>,
        name: &str,
        mut act: impl FnMut(&TopicFace) -> T,
    ) -> Option<T> {
        let state = self.state.load(Ordering::Acquire);
        let found = LAST.try_with(|last| {
            // Taken already if waking somebody led here again: then it is looked up below.
            let mut last = last.try_borrow_mut().ok()?;
            if !last.as_ref().is_some_and(|(at, topic)| *at == state && *topic.name == *name) {
                *last = Some((state, Arc::clone(topics.load().get(name)?)));
            }
            last.as_ref().map(|(_, topic)| act(topic))
        });
        match found {
            Ok(Some(result)) => Some(result),
            _ => topics.load().get(name).map(|topic| act(topic)),
        }
    }
}
