//! Memory for large answers, which is used again when all have let go of what came in it.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, Weak};

use bytes::Bytes;

use crate::state::guard::lock;

/// Most bytes that wait for their next use.
const KEPT_BYTES_MAX: usize = 32 * 1024 * 1024;
/// Most bytes that are asked of the system for an answer before bytes have come to fill them; it
/// gives pages only as they are filled, so that a length alone takes none.
const AHEAD_BYTES_MAX: usize = 32 * 1024 * 1024;
/// Into so many steps each doubling of size is divided: a new buffer is at most an eighth larger
/// than its answer.
const STEPS: usize = 8;
/// A connection with so many small answers in a row needs nothing that is kept for large ones.
const SMALL_ANSWERS: u32 = 8;

/// The buffers of all connections of a client.
///
/// Fresh memory of the size of an answer costs more than a fifth of reading it: each page is asked
/// for and cleared by the kernel anew. So some is kept, as long as it takes no more than a limit
/// together with what is in use: by connections, by what is fetched ahead, by the program.
#[derive(Debug)]
pub(super) struct Store {
    kept: Mutex<Kept>,
    /// Bytes of all buffers in use. More only with `kept` locked; less at any time.
    used: Arc<AtomicUsize>,
    limit: usize,
}

#[derive(Debug, Default)]
struct Kept {
    /// The one that came back last is the last.
    buffers: Vec<Vec<u8>>,
    bytes: usize,
    /// Connections of which one of the last answers was large. With none, nothing is kept.
    busy: usize,
}

/// What one connection has of them.
#[derive(Debug)]
pub(super) struct Buffers {
    store: Arc<Store>,
    small_answers: u32,
    busy: bool,
}

/// A buffer in use. Dropped, it goes back if it may be kept.
#[derive(Debug)]
pub(super) struct Buffer {
    data: Vec<u8>,
    /// What the store counts for it.
    counted: usize,
    home: Weak<Store>,
    /// The store's count, which outlives it.
    used: Arc<AtomicUsize>,
}

impl Store {
    /// None yet. What is kept is dropped when it would take more than `limit` bytes together with
    /// what is in use; with zero nothing is. What is in use is counted in `used`.
    pub(super) fn new(limit: usize, used: Arc<AtomicUsize>) -> Arc<Self> {
        Arc::new(Self { kept: Mutex::default(), used, limit })
    }

    fn used(&self) -> usize {
        self.used.load(Ordering::Relaxed)
    }

    /// Counts bytes that are about to be used; what is kept makes room for them.
    fn count(&self, kept: &mut Kept, bytes: usize) {
        let used = self.used.fetch_add(bytes, Ordering::Relaxed).saturating_add(bytes);
        let over = kept.bytes.saturating_add(used).saturating_sub(self.limit);
        let mut gone = 0;
        let mut oldest = 0;
        while let Some(buffer) = kept.buffers.get(oldest).filter(|_| gone < over) {
            gone += buffer.capacity();
            oldest += 1;
        }
        kept.buffers.drain(..oldest);
        kept.bytes -= gone;
    }

    /// A connection's last answers were all small, or it has ended.
    fn leave(&self) {
        let kept = &mut *lock(&self.kept);
        kept.busy -= 1;
        if kept.busy == 0 {
            *kept = Kept::default();
        }
    }
}

impl Buffers {
    pub(super) const fn new(store: Arc<Store>) -> Self {
        Self { store, small_answers: 0, busy: false }
    }

    /// An empty buffer for so many bytes. It may have to grow for more than 32 MiB.
    pub(super) fn take(&mut self, size: usize) -> Buffer {
        self.small_answers = 0;
        let kept = &mut *lock(&self.store.kept);
        kept.busy += usize::from(!std::mem::replace(&mut self.busy, true));
        // A small answer shall not hold a large buffer. Of two that fit alike, the one that came
        // back last: it is the likeliest to be in the processor still.
        let fits = size..=size.saturating_mul(2);
        let fitting = kept.buffers.iter().enumerate().rev();
        let fitting = fitting.filter(|(_, buffer)| fits.contains(&buffer.capacity()));
        let fitting = fitting.min_by_key(|(_, buffer)| buffer.capacity()).map(|(at, _)| at);
        let data = fitting.map(|at| kept.buffers.remove(at));
        kept.bytes -= data.as_ref().map_or(0, Vec::capacity);
        // Answers differ in size; the next one shall fit too.
        let data = data.unwrap_or_else(|| Vec::with_capacity(rounded(size).min(AHEAD_BYTES_MAX)));
        let counted = data.capacity();
        self.store.count(kept, counted);
        let (home, used) = (Arc::downgrade(&self.store), Arc::clone(&self.store.used));
        Buffer { data, counted, home, used }
    }

    /// An answer came that needed no buffer of its own.
    pub(super) fn note_small(&mut self) {
        self.small_answers = self.small_answers.saturating_add(1);
        if self.small_answers == SMALL_ANSWERS {
            self.leave();
        }
    }

    fn leave(&mut self) {
        if std::mem::take(&mut self.busy) {
            self.store.leave();
        }
    }
}

impl Drop for Buffers {
    fn drop(&mut self) {
        self.leave();
    }
}

/// A size between this one and an eighth more.
fn rounded(size: usize) -> usize {
    let step = (size.next_power_of_two() / 2 / STEPS).max(1);
    size.checked_next_multiple_of(step).unwrap_or(size)
}

impl Buffer {
    /// What is in it.
    pub(super) fn data(&mut self) -> &mut Vec<u8> {
        &mut self.data
    }

    /// How many bytes are in it.
    pub(super) const fn len(&self) -> usize {
        self.data.len()
    }

    /// Grows, if it is full, by as much as it has, and no more than is missing.
    pub(super) fn grow(&mut self, missing: usize) {
        if self.data.capacity() > self.data.len() {
            return;
        }
        self.data.reserve_exact(missing.min(self.data.len()));
        let more = self.data.capacity().saturating_sub(self.counted);
        if let Some(home) = self.home.upgrade() {
            self.counted += more;
            home.count(&mut lock(&home.kept), more);
        }
    }

    /// What came in it, to be read by anybody.
    pub(super) fn lend(self) -> Bytes {
        Bytes::from_owner(self)
    }
}

impl AsRef<[u8]> for Buffer {
    fn as_ref(&self) -> &[u8] {
        &self.data
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        // Or somebody else is at it; or, in a child of a fork, nobody will ever unlock it.
        if let Some(home) = self.home.upgrade()
            && let Ok(mut kept) = home.kept.try_lock()
        {
            let bytes = kept.bytes.saturating_add(self.data.capacity());
            let others = home.used().saturating_sub(self.counted);
            let room = KEPT_BYTES_MAX.min(home.limit.saturating_sub(others));
            if kept.busy > 0 && bytes <= room {
                let mut data = std::mem::take(&mut self.data);
                data.clear();
                kept.bytes = bytes;
                kept.buffers.push(data);
            }
        }
        self.used.fetch_sub(self.counted, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: usize = 1024 * 1024;

    fn kept(store: &Store) -> usize {
        let kept = lock(&store.kept);
        assert_eq!(kept.bytes, kept.buffers.iter().map(Vec::capacity).sum::<usize>());
        kept.bytes
    }

    fn one(limit: usize) -> (Arc<Store>, Buffers) {
        let store = Store::new(limit, Arc::default());
        (Arc::clone(&store), Buffers::new(store))
    }

    #[test]
    fn a_buffer_comes_back_when_the_last_slice_of_it_is_gone() {
        let (store, mut buffers) = one(MIB);
        let mut buffer = buffers.take(100_000);
        buffer.data().extend_from_slice(b"record");
        let place = buffer.data().as_ptr();
        let whole = buffer.lend();
        let slice = whole.slice(1..3);
        drop(whole);
        assert_eq!((kept(&store), &slice[..]), (0, &b"ec"[..]));
        drop(slice);
        assert_eq!((kept(&store), store.used()), (rounded(100_000), 0));
        let mut again = buffers.take(90_000);
        assert_eq!((again.data().as_ptr(), again.len(), kept(&store)), (place, 0, 0));
    }

    #[test]
    fn connections_to_many_brokers_keep_no_more_than_one_alone() {
        let store = Store::new(48 * MIB, Arc::default());
        let mut brokers: Vec<_> = (0..10).map(|_| Buffers::new(Arc::clone(&store))).collect();
        let held = || kept(&store) + store.used();
        let places = || lock(&store.kept).buffers.iter().map(Vec::as_ptr).collect::<Vec<_>>();
        for round in 0..20 {
            let (before, mut again) = (places(), 0);
            // As much as a budget of 48 MiB lets be on its way at a time, of changing brokers.
            let mut answers: Vec<_> = (0..3)
                .map(|at| {
                    let broker = &mut brokers[(round * 3 + at) % 10];
                    let mut buffer = broker.take(16 * MIB - round * 4096);
                    assert!(held() <= 48 * MIB, "{} bytes", held());
                    again += usize::from(before.contains(&buffer.data().as_ptr()));
                    buffer.lend()
                })
                .collect();
            assert_eq!(again, before.len(), "what others' answers came in is used again");
            while answers.pop().is_some() {
                assert!(kept(&store) <= KEPT_BYTES_MAX && held() <= 48 * MIB);
            }
            assert_eq!(kept(&store), 32 * MIB, "two of three are kept");
        }
    }

    #[test]
    fn what_is_kept_makes_room_for_what_is_used() {
        let (store, mut buffers) = one(16 * MIB);
        let two = [buffers.take(4 * MIB), buffers.take(8 * MIB)];
        drop(two);
        assert_eq!(kept(&store), 12 * MIB);
        let small = buffers.take(MIB);
        assert_eq!((kept(&store), store.used()), (12 * MIB, MIB), "it holds no large buffer");
        let more = buffers.take(3 * MIB);
        assert_eq!((kept(&store), store.used()), (8 * MIB, 5 * MIB), "one of 4 MiB was there");
        let most = buffers.take(16 * MIB);
        assert_eq!((kept(&store), store.used()), (0, 21 * MIB), "a single answer may be larger");
        drop(small);
        assert_eq!(kept(&store), 0, "the program holds all that there may be");
        drop((more, most));
        assert_eq!((kept(&store), store.used()), (16 * MIB, 0));
    }

    #[test]
    fn a_buffer_that_grows_counts_what_it_takes() {
        let (store, mut buffers) = one(8 * MIB);
        drop([buffers.take(MIB), buffers.take(2 * MIB)]);
        let mut buffer = buffers.take(4 * MIB);
        assert_eq!((kept(&store), store.used()), (3 * MIB, 4 * MIB));
        buffer.grow(1);
        assert_eq!(store.used(), 4 * MIB, "it is not full");
        buffer.data().resize(4 * MIB, 0);
        buffer.grow(2 * MIB);
        assert_eq!((kept(&store), store.used()), (2 * MIB, 6 * MIB));
        drop(buffer);
        assert_eq!((kept(&store), store.used()), (8 * MIB, 0));
    }

    #[test]
    fn nothing_is_kept_once_no_connection_has_large_answers() {
        let (store, mut one) = one(8 * MIB);
        let mut other = Buffers::new(Arc::clone(&store));
        drop([one.take(MIB), other.take(2 * MIB)]);
        let late = one.take(3 * MIB);
        for _ in 0..SMALL_ANSWERS {
            one.note_small();
        }
        assert_eq!(kept(&store), 3 * MIB, "the other may have the next large one");
        drop(other);
        assert_eq!(kept(&store), 0);
        drop(late);
        assert_eq!((kept(&store), store.used()), (0, 0), "too late to be kept");
        drop(one.take(MIB));
        assert_eq!(kept(&store), MIB, "large ones come again");
        drop(one);
        assert_eq!(kept(&store), 0);
    }

    #[test]
    fn a_client_that_fetches_nothing_keeps_nothing() {
        let (store, mut buffers) = one(0);
        let buffer = buffers.take(MIB).lend();
        drop(buffer);
        assert_eq!((kept(&store), store.used()), (0, 0));
    }

    #[test]
    fn a_buffer_outlives_its_client() {
        let (store, mut buffers) = one(MIB);
        let mut buffer = buffers.take(1);
        buffer.data().push(7);
        let used = Arc::clone(&store.used);
        drop((buffers, store));
        let lent = buffer.lend();
        assert_eq!((&lent[..], used.load(Ordering::Relaxed)), (&[7][..], 1));
        drop(lent);
        assert_eq!(used.load(Ordering::Relaxed), 0);
    }

    #[test]
    fn a_length_alone_does_not_ask_for_all_of_it() {
        let (store, mut buffers) = one(MIB);
        let buffer = buffers.take(100 * MIB);
        assert_eq!(store.used(), AHEAD_BYTES_MAX);
        drop(buffer);
    }

    #[test]
    fn a_new_buffer_is_hardly_larger_than_its_answer() {
        for size in [1, 65_536, 65_537, 100_000, MIB + 1, 17 * MIB, usize::MAX / 2, usize::MAX / 4]
        {
            let rounded = rounded(size);
            assert!(rounded >= size && rounded - size <= size / STEPS, "{rounded} for {size}");
        }
    }
}
