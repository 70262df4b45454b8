//! What the application's threads and the consumer's machine share: ready records and wishes.

use std::collections::VecDeque;
use std::fmt;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Instant;

use ottla_protocol::left_out;
use regex::Regex;

use super::batch::Shared;
use super::promise::Promise;
use super::stats::ConsumerStats;
use crate::error::{Error, ErrorKind};
use crate::events::Feed;
use crate::record::TopicPartition;
use crate::state::commits::Mark;
use crate::state::fetcher::{Fetched, Start};
use crate::state::guard::lock;
use crate::state::hash::HashMap;
use crate::state::lookups::Committed;
use crate::state::membership::Which;
use crate::state::offsets::FoundOffsets;
use crate::state::parker::Sleeper;
use crate::state::wake::Wake;

mod acknowledging;
mod assigning;
mod finished;
mod handing;
mod part;
mod places;
mod rebalance;
mod shed;
mod supply;
mod take;
mod wishes;

pub(super) use assigning::Assigned;
use assigning::{Chooser, Wanted};
use finished::Finished;
use part::Part;
pub(super) use places::Renewed;
use rebalance::Rebalances;
pub(super) use rebalance::{Change, Rebalance};
pub(super) use take::{Look, OneRecord, Want, WholeBatch};

/// What the application asks the machine for.
#[derive(Debug)]
pub(super) enum Command {
    Subscribe(Vec<Arc<str>>),
    SubscribePattern(Box<Regex>),
    Assign(Assigned),
    Seek {
        partition: TopicPartition,
        position: u64,
        offset: i64,
    },
    SetPaused {
        partition: TopicPartition,
        paused: bool,
    },
    Commit {
        marks: Marks,
        deadline: Instant,
        promise: Option<Arc<Promise<()>>>,
    },
    Lookup {
        partitions: Vec<TopicPartition>,
        deadline: Instant,
        promise: Arc<Promise<CommittedOffsets>>,
    },
    Offsets {
        wanted: Vec<(TopicPartition, Start)>,
        deadline: Instant,
        promise: Arc<Promise<FoundOffsets>>,
    },
    Close {
        deadline: Instant,
    },
}

/// How many there were.
static FACES: AtomicU64 = AtomicU64::new(0);

/// Errors kept for the application to fetch; of more, the oldest go.
const FAULTS_MAX: usize = 16;

/// Where reading stands in some partitions.
pub(super) type Marks = Vec<(TopicPartition, Mark)>;

/// What is committed, partition by partition.
pub(super) type CommittedOffsets = HashMap<TopicPartition, Option<Committed>>;

/// Called when something comes to be ready.
pub(super) type Hook = Arc<dyn Fn() + Send + Sync>;

#[derive(Debug)]
enum Item {
    Data(Fetched),
    Fault(Error),
    /// Reading goes on from there, at that position, once all before it is given out.
    Place {
        position: u64,
        offset: i64,
    },
}

/// A batch that is being given out, record by record or in parts.
struct Current {
    shared: Arc<Shared>,
    /// The first record not given out yet.
    at: usize,
    /// What all batches that are being given out take; it counts this one until all of it was.
    decoded: Arc<AtomicUsize>,
}

impl Current {
    fn new(shared: Arc<Shared>, at: usize, decoded: &Arc<AtomicUsize>) -> Self {
        decoded.fetch_add(shared.memory_bytes(), Ordering::Relaxed);
        Self { shared, at, decoded: Arc::clone(decoded) }
    }

    /// Holds no whole answer for a part of it.
    fn let_go(&mut self) {
        if let Some(own) = self.shared.let_go() {
            *self = Self::new(Arc::new(own), self.at, &self.decoded);
        }
    }
}

impl Drop for Current {
    fn drop(&mut self) {
        self.decoded.fetch_sub(self.shared.memory_bytes(), Ordering::Relaxed);
    }
}

/// Most that is decompressed ahead at a time, however large the budget.
const DECODED_BYTES_MAX: usize = 32 * 1024 * 1024;

/// The part of the budget that is kept free for decompressed records, each with its place.
pub(super) fn decoded_share(budget: usize) -> usize {
    (budget / 4).min(2 * DECODED_BYTES_MAX)
}

/// The part of the budget that is left for what was fetched.
pub(super) fn fetched_share(budget: usize) -> usize {
    let decoded = if left_out("fetched_share") { 0 } else { decoded_share(budget) };
    (budget - decoded).max(1)
}

impl fmt::Debug for Current {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Current").field("at", &self.at).finish_non_exhaustive()
    }
}

/// Whether the next batch may be begun though others, which are not given out, take all the room
/// that there is for decoded records.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum Begin {
    #[default]
    No,
    /// The machine is asked to give these up.
    Asked,
    /// It has given up what it could.
    Yes,
}

/// What the last poll gave: not finished before the next.
struct Handed {
    shared: Arc<Shared>,
    /// Records before it are finished.
    finished: usize,
    /// Records before it were given out.
    given: usize,
}

#[derive(Default)]
struct Inner {
    ids: u64,
    chooser: Chooser,
    wanted: Wanted,
    parts: HashMap<TopicPartition, Part>,
    ready: VecDeque<TopicPartition>,
    faults: VecDeque<Error>,
    /// What every call is answered with from now on.
    ended: Option<Error>,
    /// The machine does nothing more.
    over: bool,
    /// What keeps the consumer from getting any partitions.
    obstacle: Option<Error>,
    current: Option<Current>,
    handed: Option<Handed>,
    finished: Finished,
    commands: Vec<Command>,
    consumed: Vec<(TopicPartition, u64, usize)>,
    rebalances: Rebalances,
    refill_below: usize,
    buffered: usize,
    /// Memory of what is decoded and not given out yet.
    decoded: Arc<AtomicUsize>,
    budget: usize,
    polls: u64,
    /// Signs of life that are no polls.
    signs: u64,
    /// Whether there is room for the next batch's records.
    begin: Begin,
    /// The machine waits for the application to ask.
    attentive: bool,
    waits: u64,
    sleepers: Vec<(u64, Sleeper)>,
    on_ready: Option<Hook>,
    /// The hook was called, and nothing was found missing since.
    signalled: bool,
    /// A call is to return without records.
    woken: bool,
    stats: ConsumerStats,
}

/// The consumer's shared face.
pub(super) struct Face {
    inner: Mutex<Inner>,
    wake: Arc<Wake>,
    pub(super) events: Arc<Feed>,
}

/// What the machine finds at its turn.
#[derive(Debug)]
pub(super) struct Drained {
    pub(super) commands: Vec<Command>,
    pub(super) consumed: Vec<(TopicPartition, u64, usize)>,
    pub(super) polls: u64,
    /// Signs of life that are no polls.
    pub(super) signs: u64,
    /// The application waits for records.
    pub(super) waiting: bool,
    /// It has records to take, and partitions that give none hold the room for them.
    pub(super) crowded: bool,
}

impl Face {
    pub(super) fn new(wake: Arc<Wake>, budget: usize) -> Self {
        // Leases of all consumers differ: what another one has read is known by them.
        let ids = FACES.fetch_add(1, Ordering::Relaxed) << 40;
        let inner = Inner { ids, budget, refill_below: budget / 2, ..Inner::default() };
        Self { inner: Mutex::new(inner), wake, events: Arc::default() }
    }

    /// One whose program says of each record when it is finished: no poll does.
    pub(super) fn explicit(wake: Arc<Wake>, budget: usize) -> Self {
        let face = Self::new(wake, budget);
        face.lock().finished = Finished::explicit();
        face
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        lock(&self.inner)
    }

    /// A number not given before: of a lease, or of a position.
    pub(super) fn id(&self) -> u64 {
        self.lock().id()
    }

    /// All that the application has asked for or done since the last turn.
    pub(super) fn drain(&self) -> Drained {
        let mut inner = self.lock();
        let idle = inner.on_ready.is_some() && !inner.signalled;
        Drained {
            commands: std::mem::take(&mut inner.commands),
            consumed: std::mem::take(&mut inner.consumed),
            polls: inner.polls,
            signs: inner.signs,
            crowded: inner.begin == Begin::Asked,
            waiting: !inner.sleepers.is_empty() || (idle && !inner.is_busy()),
        }
    }

    /// Asks to be woken at the application's next call; how many there were.
    pub(super) fn attend(&self) -> u64 {
        let mut inner = self.lock();
        inner.attentive = true;
        inner.polls
    }

    /// Asks the same if what was given out last is of these and not finished; whether it is so.
    pub(super) fn attend_busy(&self, which: &Which) -> bool {
        let mut inner = self.lock();
        let handed = inner.handed.as_ref();
        let theirs = handed.is_some_and(|handed| which.contains(&handed.shared.partition));
        let busy = theirs && inner.is_busy();
        inner.attentive |= busy;
        busy
    }

    pub(super) fn set_refill_below(&self, bytes: usize) {
        self.lock().refill_below = bytes;
    }

    /// Wakes who waits if something is ready.
    fn announce(mut inner: MutexGuard<'_, Inner>) {
        if !inner.has_something() {
            return;
        }
        let sleepers = std::mem::take(&mut inner.sleepers);
        let hook = if inner.signalled { None } else { inner.on_ready.clone() };
        inner.signalled |= hook.is_some();
        drop(inner);
        for (_, sleeper) in sleepers {
            sleeper.wake();
        }
        if let Some(hook) = hook {
            hook();
        }
    }
}

impl Inner {
    const fn id(&mut self) -> u64 {
        self.ids += 1;
        self.ids
    }

    /// A partition at that position, if that still counts.
    fn part(&mut self, partition: &TopicPartition, position: u64) -> Option<&mut Part> {
        self.parts.get_mut(partition).filter(|part| part.is_at(position))
    }

    fn has_something(&self) -> bool {
        let waiting = !self.ready.is_empty() || !self.faults.is_empty() || self.current.is_some();
        waiting || self.ended.is_some() || self.woken || self.rebalances.is_ready()
    }

    /// Why a wish is refused. Of a close, what is told of it may still commit what goes.
    fn refusal(&self) -> Option<&Error> {
        let closing = |end: &&Error| end.kind() == ErrorKind::Closed && !self.over;
        let may = self.rebalances.is_running_here();
        self.ended.as_ref().filter(|end| !(may && closing(end)))
    }

    fn is_busy(&self) -> bool {
        self.handed.as_ref().is_some_and(|handed| handed.finished < handed.given)
    }

    /// Puts a partition on the ready list, if it has something and may give it.
    fn list(&mut self, partition: &TopicPartition) {
        if let Some(part) = self.parts.get_mut(partition)
            && part.is_open()
            && part.has_items()
            && !part.listed
        {
            part.listed = true;
            self.ready.push_back(partition.clone());
        }
    }

    /// Puts a partition that was taken from the ready list back to its front.
    fn list_first(&mut self, partition: &TopicPartition) {
        if let Some(part) = self.parts.get_mut(partition) {
            part.listed = true;
            self.ready.push_front(partition.clone());
        }
    }

    /// Drops what is ready of these, and what of them was given out and is not finished.
    fn drop_ready(&mut self, partitions: &[TopicPartition]) {
        self.note_finished();
        let mut listed = false;
        for partition in partitions {
            listed |= self.drop_ready_of(partition);
        }
        if listed {
            let parts = &self.parts;
            self.ready.retain(|at| parts.get(at).is_some_and(|part| part.listed));
        }
    }

    /// Whether it stood in the ready list, from which it is still to be taken.
    fn drop_ready_of(&mut self, partition: &TopicPartition) -> bool {
        self.stats.dropped_records += self.ready_of(partition);
        if self.current.as_ref().is_some_and(|current| current.shared.partition == *partition) {
            self.current = None;
        }
        if self.handed.as_ref().is_some_and(|handed| handed.shared.partition == *partition) {
            self.handed = None;
        }
        if let Some(part) = self.parts.get_mut(partition) {
            part.begun.clear();
            part.items.clear();
            self.buffered -= part.buffered;
            part.buffered = 0;
        }
        let part = self.parts.get_mut(partition);
        part.is_some_and(|part| std::mem::replace(&mut part.listed, false))
    }

    /// Puts the batch that is being given out back to its partition, if it is of one of these.
    fn put_back_current(&mut self, which: impl Fn(&TopicPartition) -> bool) {
        if let Some(current) = self.current.take_if(|current| which(&current.shared.partition)) {
            let partition = current.shared.partition.clone();
            let part = self.parts.get_mut(&partition);
            if let Some(part) = part.filter(|_| current.at < current.shared.len()) {
                part.begun.push_front(current);
            }
        }
    }

    /// Has a partition give out nothing more if it rests, and go on if it does not.
    fn rest(&mut self, partition: &TopicPartition) {
        let Some(rests) = self.parts.get(partition).map(Part::rests) else { return };
        if rests {
            self.put_back_current(|other| other == partition);
            if let Some(part) = self.parts.get_mut(partition) {
                part.let_go();
            }
        }
        self.let_go_of_handed(partition);
        self.list(partition);
        self.commands.push(Command::SetPaused { partition: partition.clone(), paused: rests });
    }

    /// What was given out last is known by the copy of it that is kept, if there is one.
    fn let_go_of_handed(&mut self, partition: &TopicPartition) {
        let mut begun = self.parts.get(partition).into_iter().flat_map(|part| &part.begun);
        let Some(handed) = &mut self.handed else { return };
        if let Some(kept) = begun.find(|current| current.shared.is_same(&handed.shared)) {
            handed.shared = Arc::clone(&kept.shared);
        }
    }
}
