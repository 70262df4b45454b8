//! What a group has done, as its members and the network tell, and what must hold of it at any time.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use ottla_broker::sim::SimRecord;
use ottla_protocol::ErrorCode;

use super::acknowledging;
use super::clock;
use super::committed;
use super::named::{self, Named};
use super::plan::{FLEETING, GroupPlan, topics};
use super::tap::{Place, Said, What};
use super::world::World;

/// Longest that a group reads nothing more while there is more.
pub(crate) const PROGRESS: Duration = Duration::from_mins(1);
/// When the last record is stored, the group has read and committed all within this, at a few records
/// a fetch too.
const CATCH_UP: Duration = Duration::from_mins(5);

/// A group.
pub(crate) struct Group {
    pub(crate) plan: GroupPlan,
    pub(crate) book: RefCell<Book>,
    pub(crate) named: Named,
    /// How many joins each client has written.
    joins: RefCell<BTreeMap<String, Arc<AtomicU64>>>,
    done: Cell<bool>,
}

/// What is known of a group.
#[derive(Default)]
pub(crate) struct Book {
    /// Values by their offsets, as some member was given them.
    pub(crate) delivered: BTreeMap<Place, BTreeMap<i64, Vec<u8>>>,
    /// The same of the topic that does not stay, whose offsets come again.
    pub(crate) fleeting: BTreeSet<(Place, i64, Vec<u8>)>,
    /// How far each client has finished, at most.
    finished: BTreeMap<(String, Place), i64>,
    /// Offsets that some member has asked to have committed.
    pub(crate) asked: BTreeMap<Place, BTreeSet<i64>>,
    /// Offsets to which a member has gone back.
    pub(crate) gone_back: BTreeMap<Place, Vec<i64>>,
    /// Commits that arrived behind later ones of their client.
    pub(crate) late: BTreeMap<Place, BTreeSet<i64>>,
    /// The number of the last commit of each client that has arrived.
    arrived: BTreeMap<String, u64>,
    /// What each member was given in a generation of one life of the broker: what is not agreed on
    /// when that ends is forgotten, and its number given again.
    shares: BTreeMap<(u64, i32, String), (String, Vec<Place>)>,
    /// Whose a partition is in such a generation.
    owners: BTreeMap<(u64, i32, Place), String>,
    /// Who has committed for a partition in such a generation.
    committers: BTreeMap<(u64, i32, Place), String>,
    /// Records that a member has finished by itself.
    pub(crate) acknowledged: BTreeMap<Place, BTreeSet<i64>>,
    /// Commits that a member was told are made.
    pub(crate) promised: BTreeMap<Place, BTreeSet<i64>>,
}

impl Book {
    /// Whether a record of the topic that does not stay was given to a member.
    pub(crate) fn is_given(&self, place: Place, record: &SimRecord) -> bool {
        let value = record.value.clone().unwrap_or_default();
        self.fleeting.contains(&(place, record.offset, value))
    }
}

impl Group {
    /// A group that has done nothing.
    pub(crate) fn new(plan: GroupPlan) -> Self {
        let (book, named, joins) = (RefCell::default(), Named::default(), RefCell::default());
        Self { plan, book, named, joins, done: Cell::new(false) }
    }

    /// Whether all is read, and the members are to end.
    pub(crate) fn is_done(&self) -> bool {
        self.done.get()
    }

    /// A client has finished what is before this offset.
    pub(crate) fn finish(&self, client: &str, place: Place, offset: i64) {
        let mut book = self.book.borrow_mut();
        let known = book.finished.entry((client.to_owned(), place)).or_default();
        *known = offset.max(*known);
    }

    /// Whether somebody has asked to have this offset committed.
    pub(crate) fn is_asked(&self, place: Place, offset: i64) -> bool {
        self.book.borrow().asked.get(&place).is_some_and(|asked| asked.contains(&offset))
    }

    /// The furthest offset that somebody has asked to have committed; 0 if there is none.
    pub(crate) fn last_asked(&self, place: Place) -> i64 {
        self.book.borrow().asked.get(&place).and_then(|asked| asked.last().copied()).unwrap_or(0)
    }

    /// How many joins a client has written, also from now on.
    pub(crate) fn joins(&self, client: &str) -> Arc<AtomicU64> {
        Arc::clone(self.joins.borrow_mut().entry(client.to_owned()).or_default())
    }

    /// A client has written something.
    pub(crate) fn writes(&self, world: &World, client: &str, said: &Said) {
        match &said.what {
            What::Join { .. } => {
                self.joins(client).fetch_add(1, Ordering::Relaxed);
            }
            What::Sync => {}
            What::Commit { rows, texts, .. } => {
                self.commits(world, client, rows);
                acknowledging::check(world, self, client, texts);
            }
        }
    }

    /// A client has written a commit.
    fn commits(&self, world: &World, client: &str, rows: &[(Place, i64)]) {
        let mut book = self.book.borrow_mut();
        for &(place, offset) in rows {
            let finished = book.finished.get(&(client.to_owned(), place)).copied();
            let went = finished.unwrap_or(0);
            let follows = self.plan.is_explicit && book.follows(place, offset, went);
            book.asked.entry(place).or_default().insert(offset);
            if went < offset && !follows {
                world.finding(format!(
                    "{client} commits {offset} of {place:?}, and has finished {finished:?}"
                ));
            }
        }
    }

    /// A client's commit has come to the coordinator.
    pub(crate) fn arrives(&self, world: &World, client: &str, said: &Said) {
        self.named.arrives(world, client, said);
        let What::Commit { number, rows, .. } = &said.what else { return };
        let generation = said.generation;
        world.tell(|| format!("{client} commits {rows:?} in generation {generation}"));
        let mut book = self.book.borrow_mut();
        let last = book.arrived.entry(client.to_owned()).or_default();
        if *number >= *last {
            *last = *number;
            return;
        }
        world.sometimes("a commit arrives late");
        for &(place, offset) in rows {
            book.late.entry(place).or_default().insert(offset);
        }
    }

    /// A member has been given its share of a generation.
    pub(crate) fn shared_out(&self, world: &World, said: &Said, share: &[Place]) {
        let generation = u64::try_from(said.generation).unwrap_or(u64::MAX);
        world.event("a share of generation", generation, said.member.as_bytes());
        world.tell(|| format!("{} has {share:?}", said.member));
        let mut book = self.book.borrow_mut();
        let (life, name) = (world.life(), said.name());
        let first = || (said.member.clone(), share.to_vec());
        let key = (life, said.generation, name.to_owned());
        let (member, had) = book.shares.entry(key).or_insert_with(first);
        if *had != share {
            world.finding(format!(
                "{name} has {share:?} in generation {} of {}, and had {had:?} in it",
                said.generation, said.group
            ));
        } else if *member != said.member {
            world.sometimes("a static member comes back to its share");
        }
        for &place in share {
            let owner = book.owners.entry((life, said.generation, place));
            let owner = owner.or_insert_with(|| name.to_owned());
            if *owner != name {
                world.finding(format!(
                    "{place:?} is both {owner}'s and {name}'s in generation {} of {}",
                    said.generation, said.group
                ));
            }
        }
    }

    /// What the coordinator says to a commit.
    pub(crate) fn committed(&self, world: &World, said: &Said, place: Place, code: ErrorCode) {
        if code == ErrorCode::ILLEGAL_GENERATION || code == ErrorCode::UNKNOWN_MEMBER_ID {
            world.sometimes("a commit is fenced");
        }
        if code.is_error() {
            return;
        }
        world.sometimes("a commit is made");
        let mut book = self.book.borrow_mut();
        let key = (world.life(), said.generation, place);
        let owner = book.owners.get(&key).cloned();
        let name = said.name();
        let committer = book.committers.entry(key).or_insert_with(|| name.to_owned());
        let owner = owner.unwrap_or_else(|| committer.clone());
        if *committer != name || owner != name {
            world.finding(format!(
                "{place:?} is committed by {name} in generation {} of {}, and by {committer}, and \
                 is {owner}'s",
                said.generation, said.group
            ));
        }
    }

    /// The world has healed and nothing more is sent: all is read and committed in time.
    pub(crate) async fn prove(&self, world: &World) -> Result<(), String> {
        let end = clock::now() + CATCH_UP;
        let mut by = clock::now() + PROGRESS;
        let mut before = Vec::new();
        loop {
            let missing = self.missing(world)?;
            if missing.is_empty() {
                break;
            }
            if clock::now() >= by.min(end) {
                let (group, missing) = (&self.plan.name, missing.join(", "));
                world.finding(format!("{group} stands still: {missing}"));
                break;
            }
            if missing != before {
                by = clock::now() + PROGRESS;
                before = missing;
            }
            clock::pause(Duration::from_millis(100)).await;
        }
        named::prove(world, self).await;
        self.done.set(true);
        Ok(())
    }

    /// Partitions that are not read and committed up to their ends.
    fn missing(&self, world: &World) -> Result<Vec<String>, String> {
        let book = self.book.borrow();
        let mut missing = Vec::new();
        let places = topics().flat_map(|(topic, partitions)| {
            (0..partitions).map(move |partition| (topic, partition))
        });
        let mut ends = BTreeMap::new();
        for place @ (topic, partition) in places {
            let end = world.with_broker(|broker| broker.end(topic, partition))?;
            let read = if topic == FLEETING.0 {
                let log = world.with_broker(|broker| broker.records(topic, partition))?;
                log.iter().filter(|record| book.is_given(place, record)).count()
            } else {
                book.delivered.get(&place).map_or(0, BTreeMap::len)
            };
            if i64::try_from(read).is_ok_and(|read| read < end) {
                missing.push(format!("{topic}-{partition}: {read} read of {end}"));
            }
            ends.insert(place, end);
        }
        if !missing.is_empty() {
            return Ok(missing);
        }
        let commits = committed::commits(world, &self.plan.name)?;
        for (place @ (topic, partition), end) in ends {
            let last = commits.get(&place).and_then(|offsets| offsets.last()).copied();
            if end > 0 && last != Some(end) {
                missing.push(format!("{topic}-{partition}: {last:?} committed of {end}"));
            }
        }
        Ok(missing)
    }
}
