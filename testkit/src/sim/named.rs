//! Static members: places in a group that keep their names, whoever sits there (KIP-345).

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::time::Duration;

use ottla::{Error, ErrorKind, TopicPartition};
use ottla_protocol::ErrorCode;

use super::clock;
use super::groups::{Group, PROGRESS};
use super::members::{CLOSE, Member};
use super::tap::{Said, What};
use super::world::World;

/// A group in which nothing happens for so long has come to rest: all beats have come by then.
const REST: Duration = Duration::from_secs(4);
/// A member that comes back is there within this, which is less than any session.
const BACK: Duration = Duration::from_secs(5);
/// A group may share out anew for other reasons, but not each time.
const TRIES: u32 = 3;

/// What is known of a group's places and names.
#[derive(Default)]
pub(crate) struct Named {
    seats: RefCell<BTreeMap<usize, Seat>>,
    /// The place whose member is to go and come back.
    recalled: Cell<Option<usize>>,
    /// Members that go on beside a newer one of their name.
    older: Cell<usize>,
    /// By name, the words without a member id that have come to the coordinator, in their order.
    comers: RefCell<BTreeMap<String, Vec<Comer>>>,
    /// By member id, the numbers of joins that have come to the coordinator, in their order.
    joins: RefCell<BTreeMap<String, Vec<u64>>>,
}

/// A client that has come under a name.
struct Comer {
    client: String,
    number: u64,
    is_answered: bool,
    /// All that came before had their answers then.
    is_alone: bool,
}

/// What a place's member has, as it tells itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Seat {
    /// Which of the place's members that is.
    pub(crate) life: u64,
    /// Assignments so far.
    pub(crate) rebalances: u64,
    pub(crate) assignment: Vec<TopicPartition>,
}

impl Named {
    /// A client's word has come to the coordinator.
    pub(crate) fn arrives(&self, world: &World, client: &str, said: &Said) {
        let What::Join { number } = said.what else { return };
        world.tell(|| format!("{client} joins as {:?}, {:?}", said.member, said.instance));
        self.joins.borrow_mut().entry(said.member.clone()).or_default().push(number);
        if let ("", Some(name)) = (said.member.as_str(), &said.instance) {
            let mut comers = self.comers.borrow_mut();
            let comers = comers.entry(name.clone()).or_default();
            let is_alone = comers.iter().all(|comer| comer.is_answered);
            let client = client.to_owned();
            comers.push(Comer { client, number, is_answered: false, is_alone });
        }
    }

    /// The coordinator has answered a join.
    pub(crate) fn answered(&self, world: &World, said: &Said, number: u64, code: ErrorCode) {
        if code == ErrorCode::REBALANCE_IN_PROGRESS && !self.is_said_again(said, number) {
            // Who has lost its name, or its place, is told that.
            world.finding(format!("{} is told to join again, and has not itself", said.name()));
        }
        let mut comers = self.comers.borrow_mut();
        let comers = said.instance.as_ref().and_then(|name| comers.get_mut(name));
        for comer in comers.into_iter().flatten() {
            comer.is_answered |= comer.number == number;
        }
    }

    /// Whether another join of the same member has come since one came.
    fn is_said_again(&self, said: &Said, number: u64) -> bool {
        let joins = self.joins.borrow();
        let own = joins.get(&said.member).filter(|_| !said.member.is_empty());
        own.and_then(|own| own.iter().skip_while(|join| **join != number).nth(1)).is_some()
    }

    /// Whether something may have come under a client's name since it has: another client, or a
    /// word, also of its own, that was long on its way, as behind one that the coordinator held.
    pub(crate) fn is_followed(&self, name: &str, client: &str) -> bool {
        let comers = self.comers.borrow();
        let comers = comers.get(name).map(Vec::as_slice).unwrap_or_default();
        let mut since = comers.iter().skip_while(|comer| comer.client != client);
        since.next().is_some_and(|first| !first.is_alone) || since.next().is_some()
    }

    /// One more goes on beside a newer one of its name, or has ended.
    pub(crate) fn stays(&self, stays: bool) {
        let older = self.older.get();
        self.older.set(if stays { older + 1 } else { older.saturating_sub(1) });
    }

    /// What the member of a place has now.
    pub(crate) fn note(&self, place: usize, seat: Seat) {
        self.seats.borrow_mut().insert(place, seat);
    }

    /// Whether the member of a place is to go and come back; it is told once.
    pub(crate) fn is_recalled(&self, place: usize) -> bool {
        let recalled = self.recalled.get() == Some(place);
        if recalled {
            self.recalled.set(None);
        }
        recalled
    }

    /// What all have, when nothing has happened to them for a while; none if something always does.
    async fn rest(&self, members: usize) -> Option<BTreeMap<usize, Seat>> {
        let by = clock::now() + PROGRESS;
        let mut since = clock::now();
        let mut seats = self.seats.borrow().clone();
        while clock::now() < by {
            clock::pause(Duration::from_millis(100)).await;
            let all_in = seats.len() == members && seats.values().all(|seat| seat.rebalances > 0);
            if *self.seats.borrow() != seats || self.older.get() > 0 || !all_in {
                seats.clone_from(&self.seats.borrow());
                since = clock::now();
            } else if clock::now() - since >= REST {
                return Some(seats);
            }
        }
        None
    }
}

impl Member {
    /// Goes on beside a newer one of its name, until it is told so.
    pub(crate) async fn stay(mut self) {
        self.group.named.stays(true);
        let by = self.world.heals_at() + PROGRESS;
        while !self.is_fenced.get() && !self.group.is_done() {
            if clock::now() >= by {
                self.finding("is not fenced".to_owned());
                break;
            }
            if self.world.is_healed() {
                self.calm_down();
            }
            self.go_on().await;
        }
        self.close(CLOSE).await;
        self.group.named.stays(false);
    }

    /// Tells what it has.
    pub(crate) fn note(&self) {
        let (place, life) = self.seat;
        let (rebalances, assignment) = (self.rebalances(), self.consumer.assignment());
        self.group.named.note(place, Seat { life, rebalances, assignment });
    }

    /// Whether an error is that another member of its name has come, which must be so.
    pub(crate) fn fences(&self, error: &Error) -> bool {
        let Some(name) = &self.plan.instance else { return false };
        if error.kind() != ErrorKind::FencedInstance {
            return false;
        }
        self.world.sometimes("a static member is fenced");
        if !self.group.named.is_followed(name, &self.client) {
            self.finding(format!("is fenced, and nobody has come under its name: {error}"));
        }
        self.is_fenced.set(true);
        true
    }
}

/// In a group that has come to rest a static member that goes and comes back in time has what it
/// had, and the others do not notice.
pub(crate) async fn prove(world: &World, group: &Group) {
    let places = group.plan.members.iter().enumerate();
    let places = places.filter(|(_, plan)| plan.instance.is_some());
    let places: Vec<usize> = places.map(|(place, _)| place).collect();
    if places.is_empty() {
        return;
    }
    let place = world.dice.borrow_mut().pick(&places);
    let mut found = String::new();
    for _ in 0..TRIES {
        let Some(before) = group.named.rest(group.plan.members.len()).await else {
            return world.finding(format!("{} does not come to rest", group.plan.name));
        };
        group.named.recalled.set(Some(place));
        clock::pause(BACK).await;
        let Some(after) = group.named.rest(group.plan.members.len()).await else {
            return world.finding(format!("{} does not come to rest again", group.plan.name));
        };
        let same = |seat: &Seat, other: &Seat, at| {
            let (told, again) = (seat.rebalances == other.rebalances, seat.life < other.life);
            seat.assignment == other.assignment && if at == place { again } else { told }
        };
        if before.iter().zip(&after).all(|((&at, seat), (_, other))| same(seat, other, at)) {
            return world.sometimes("a static member comes back, and nobody notices");
        }
        found = format!("{before:?}, and then {after:?}");
    }
    world.finding(format!("{place} of {} comes back to {found}", group.plan.name));
}
