//! The simulator: clients and a broker, whole but for sockets and threads, on one thread and in a
//! time of their own. One seed decides everything that happens.
//!
//! For a minute the world is stormy: connections break at any point, requests and answers are late
//! or come twice, the broker is killed and comes back, or answers with errors. Then it heals, and
//! everybody must get through. At the end the logs are held against what was sent.

mod acknowledging;
mod answers;
mod checks;
mod clock;
mod committed;
mod dice;
mod flights;
mod groups;
mod largest;
mod listener;
mod many;
mod members;
mod mischief;
mod named;
mod network;
mod plan;
mod producers;
mod tap;
mod trace;
mod world;

use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet};
use std::panic;
use std::rc::Rc;
use std::time::Duration;

use tokio::runtime::Builder;
use tokio::task::{JoinHandle, LocalSet};

pub use self::many::run_many;

use self::groups::Group;
use self::network::Network;
use self::plan::{Plan, topics};
use self::producers::History;
use self::world::World;

/// The time on the wall when a run begins.
const WALL_MS: i64 = 1_767_225_600_000;

/// In the healed world everything has arrived after so long.
const UNDERWAY: Duration = Duration::from_secs(1);

/// Least of each in a run, or it tells nothing.
const RECORDS_LEAST: usize = 500;
const FAULTS_LEAST: u64 = 10;
const MILLIS_LEAST: u128 = 60_000;

/// What a set of runs must have seen, each at least once; and each of the errors in `answers`.
pub const SOMETIMES: &[&str] = &[
    "a batch's time is over on its way",
    "a commit arrives late",
    "a commit goes back as asked",
    "a commit is fenced",
    "a commit is made",
    "a commit keeps what is finished behind it",
    "a listener commits what goes",
    "a listener is told that partitions are lost",
    "a listener is told that partitions come",
    "a listener is told that partitions go",
    "a member asks what is committed",
    "a member closes",
    "a member commits an older offset",
    "a member crashes",
    "a member does not poll in time",
    "a member gives records back",
    "a member is at work in the storm",
    "a member is not told what is committed",
    "a member is told of an error",
    "a member is told that a commit came too late",
    "a member is told that a commit failed",
    "a member goes on in a topic that is made anew",
    "a member holds a batch that alone is larger than its budget",
    "a member leaves and comes back",
    "a member pauses a partition",
    "a member reads other topics",
    "a member resumes partitions",
    "a member seeks",
    "a member seeks before a place is known",
    "a newer member of a name comes beside an older one",
    "a static member comes back to its share",
    "a static member comes back, and nobody notices",
    "a static member is fenced",
    "a partition begins at what is committed",
    "a partition is kept over a rebalance",
    "a record is delivered",
    "a record is delivered again",
    "a record is finished by itself",
    "a record is finished too late",
    "finished records are passed over",
    "a record fails",
    "a connection breaks at the client alone",
    "a connection breaks before a request arrives",
    "a connection breaks before an answer arrives",
    "a connection breaks within a request",
    "a connection breaks within an answer",
    "a connection is refused",
    "a flush in the storm",
    "a record is lost, and may be",
    "a record is not stored",
    "a record is sent without acks",
    "a record is stored",
    "a record is stored, and its topic is deleted",
    "a record is stored, and may be",
    "a record stands twice, without idempotence",
    "a request arrives after its client has given up",
    "a send waits for room",
    "a topic is deleted and made anew",
    "a topic is gone for a while",
    "a write waits for room",
    "all connections break",
    "an answer comes late",
    "what is committed goes with its topic",
    "what is committed is told late",
    "an answer comes twice",
    "an error, and nothing is done",
    "answers do not arrive",
    "errors in the answer to what was done",
    "nothing arrives",
    "one client is cut off",
    "one client's answers do not arrive",
    "one client's requests do not arrive",
    "requests do not arrive",
    "the broker answers with errors",
    "the broker is killed",
    "the network is slow",
    "there is no room in time",
];

/// What a run came to.
#[derive(Debug)]
pub struct Outcome {
    /// The run's seed.
    pub seed: u64,
    /// A hash of all that happened.
    pub hash: u64,
    /// How much that was.
    pub events: u64,
    /// Faults made.
    pub faults: u64,
    /// Records sent.
    pub records: usize,
    /// Simulated milliseconds.
    pub millis: u128,
    /// How often what happened that some run must see.
    pub counts: BTreeMap<String, u64>,
    /// Rules that were broken.
    pub findings: Vec<String>,
}

/// What a set of runs should have seen and has not.
pub fn unseen(counts: &BTreeMap<String, u64>) -> Vec<String> {
    points().filter(|what| !counts.contains_key(what)).collect()
}

/// What a set of runs has seen, and nobody said that it must be.
pub fn unlisted(counts: &BTreeMap<String, u64>) -> Vec<String> {
    let listed: BTreeSet<String> = points().collect();
    counts.keys().filter(|&what| !listed.contains(what)).cloned().collect()
}

fn points() -> impl Iterator<Item = String> {
    SOMETIMES.iter().map(|what| (*what).to_owned()).chain(answers::all())
}

thread_local! {
    /// Panics of this thread, counted by [`count_panics`].
    static PANICS: Cell<u64> = const { Cell::new(0) };
}

/// Counts panics from now on, also those that somebody catches.
pub fn count_panics() {
    let before = panic::take_hook();
    panic::set_hook(Box::new(move |info| {
        PANICS.set(PANICS.get() + 1);
        before(info);
    }));
}

/// Runs a seed; with `verbose` each event is printed. An error if it cannot be run.
pub fn run(seed: u64, verbose: bool) -> Result<Outcome, String> {
    let panics = PANICS.get();
    let runtime = Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .map_err(|error| error.to_string())?;
    let local = LocalSet::new();
    let history = History::default();
    let run = local.block_on(&runtime, whole(seed, verbose, Rc::clone(&history)));
    drop(local);
    drop(runtime);
    let mut outcome = run?;
    if PANICS.get() > panics {
        outcome.findings.push("something panicked".to_owned());
    }
    Ok(outcome)
}

async fn whole(seed: u64, verbose: bool, history: History) -> Result<Outcome, String> {
    let world = World::new(Plan::of(seed), verbose)?;
    let network = Rc::new(Network(Rc::clone(&world)));
    let _brokers = ottla_broker::sim::enter(seed, WALL_MS);
    let _clients = ottla::sim::enter(network, seed, WALL_MS);
    world.start_broker()?;
    for (name, partitions) in topics() {
        world.create_topic(name, partitions).await?;
    }
    let mut lives = Vec::new();
    for (index, plan) in world.plan.producers.iter().enumerate() {
        let life = producers::live(Rc::clone(&world), index, plan.clone(), Rc::clone(&history));
        lives.push(tokio::task::spawn_local(life));
    }
    let groups: Vec<Rc<Group>> = world.groups.clone();
    let mut members = Vec::new();
    for group in &groups {
        for (seat, plan) in group.plan.members.iter().enumerate() {
            let life = members::live(Rc::clone(&world), Rc::clone(group), seat, plan.clone());
            members.push(tokio::task::spawn_local(life));
        }
    }
    world.be_stormy().await?;
    world.heal();
    all_end(&world, lives).await;
    // What was sent without asking for an answer may still be on its way.
    clock::pause(UNDERWAY).await;
    for group in &groups {
        group.prove(&world).await?;
    }
    all_end(&world, members).await;
    world.note_panics();
    checks::check(&world, &history.borrow())?;
    for group in &groups {
        committed::check(&world, group)?;
    }
    Ok(sum_up(&world, history.borrow().len()))
}

/// Waits for all of these, and notes those that did not end well.
async fn all_end(world: &World, lives: Vec<JoinHandle<Result<(), String>>>) {
    for life in lives {
        match life.await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => world.finding(error),
            Err(error) => world.finding(error.to_string()),
        }
    }
}

fn sum_up(world: &World, records: usize) -> Outcome {
    let millis = world.age().as_millis();
    let trace = world.trace.take();
    let mut findings = world.findings();
    if records < RECORDS_LEAST {
        findings.push(format!("only {records} records were sent"));
    }
    if millis < MILLIS_LEAST {
        findings.push(format!("only {millis} ms were simulated"));
    }
    if trace.faults() < FAULTS_LEAST {
        findings.push(format!("only {} faults were made", trace.faults()));
    }
    Outcome {
        seed: world.plan.seed,
        hash: trace.hash(),
        events: trace.events(),
        faults: trace.faults(),
        records,
        millis,
        counts: trace.into_counts(),
        findings,
    }
}
