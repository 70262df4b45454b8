//! How things stand from time to time, and what held at the end.

use std::fs;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::{Duration, Instant};

use crate::broker;
use crate::growth::{self, Sample};
use crate::watch::Check;
use crate::{Outcome, Run, now};

/// Longest that the checker may take to what was once acknowledged.
const PATIENCE: Duration = Duration::from_mins(1);
/// Longest that threads and connections of clients that were dropped may take to go.
const GO: Duration = Duration::from_secs(20);
/// What may be there of them beyond what was at the beginning: the standard library's own.
const FILES_LEFT: u64 = 4;
const THREADS_LEFT: u64 = 1;
const MIB: u64 = 1 << 20;
const UNSEEN: &str = "this process cannot be looked at";

/// What was seen over a run.
#[derive(Debug)]
pub(crate) struct Record {
    clients: Vec<Sample>,
    broker: Vec<Sample>,
    /// This process before the run's clients were made.
    before: Sample,
    /// What the checker has to come to, and since when.
    goal: Vec<u64>,
    since: Instant,
}

impl Record {
    pub(crate) fn new(run: &Run) -> Outcome<Self> {
        let before = here().ok_or(UNSEEN)?;
        let (clients, broker) = (Vec::new(), Vec::new());
        Ok(Self { clients, broker, before, goal: run.ledger.goal(), since: now() })
    }

    /// Takes a sample of both processes.
    pub(crate) fn sample(&mut self, run: &Run) {
        match here() {
            Some(sample) => self.clients.push(sample),
            None => run.watch.fault(Check::ClientGrowth, UNSEEN),
        }
        self.broker.extend(run.lives.pid().and_then(Sample::of));
    }

    /// Prints how things stand, and looks whether the checker gets on.
    pub(crate) fn line(&mut self, run: &Run) {
        let [sent, acked, read] = run.ledger.totals();
        let lives = &run.lives;
        let [kills, terms, stops] =
            [&lives.kills, &lives.terms, &lives.stops].map(|count| count.load(Ordering::Relaxed));
        let clients = self.clients.last().copied().unwrap_or_default();
        let broker = self.broker.last().copied().unwrap_or_default();
        let (produced, consumed) = run.gauges.most();
        println!(
            "{:>7} s  sent {sent} acked {acked} read {read}  lag {}  killed {kills} ended {terms} \
             held {stops}  clients {clients}, {} made  broker {broker}, disk {} MiB  most buffered \
             {produced} and {consumed} B",
            run.watch.elapsed().as_secs(),
            run.lag.read(),
            run.gauges.made(),
            broker::size(&run.settings.folder) / MIB,
        );
        match run.ledger.behind(&self.goal) {
            Some(_) if self.since.elapsed() < PATIENCE => return,
            Some(behind) => {
                let seconds = self.since.elapsed().as_secs();
                run.watch.fault(Check::Records, format!("{behind}, {seconds} s ago"));
            }
            None => {}
        }
        self.goal = run.ledger.goal();
        self.since = now();
    }

    /// Looks at what is left when all clients are gone.
    pub(crate) fn left(&self, run: &Run) {
        let begin = now();
        let before = self.before;
        loop {
            let Some(left) = here() else { return run.watch.fault(Check::Left, UNSEEN) };
            let gone = left.files <= before.files + FILES_LEFT
                && left.threads <= before.threads + THREADS_LEFT;
            if gone {
                return;
            }
            if begin.elapsed() > GO {
                let text = format!(
                    "{} fds and {} threads before, {} and {} after",
                    before.files, before.threads, left.files, left.threads
                );
                run.watch.fault(Check::Left, text);
                return;
            }
            thread::sleep(Duration::from_millis(100));
        }
    }

    /// Prints what held and what did not; whether all did.
    pub(crate) fn verdict(&self, run: &Run) -> bool {
        println!("\ngrowth: {}", growth::RULE);
        let (mut passed, mut failed) = (0, 0);
        for (check, name) in Check::ALL {
            let growth = match check {
                Check::ClientGrowth => Some(growth::judge(&self.clients)),
                Check::BrokerGrowth => Some(growth::judge(&self.broker)),
                _ => None,
            };
            let found = match (run.watch.found(check), growth) {
                (Some(wrong), _) => Err(wrong),
                (None, None) => Ok(String::new()),
                (None, Some(Some(judged))) => judged.map(|said| format!(": {said}")),
                (None, Some(None)) => {
                    println!("short   {name}: not judged in less than 5 minutes");
                    continue;
                }
            };
            match found {
                Ok(said) => {
                    passed += 1;
                    println!("ok      {name}{said}");
                }
                Err(why) => {
                    failed += 1;
                    println!("FAILED  {name}: {why}");
                }
            }
        }
        println!("again: {}", run.settings.again());
        println!("{passed} passed, {failed} failed");
        failed == 0
    }
}

/// What this process takes now.
fn here() -> Option<Sample> {
    Sample::of(std::process::id())
}

/// Removes the run's folder; what the broker said stays if something did not hold.
pub(crate) fn tidy_up(run: &Run, held: bool) {
    let folder = &run.settings.folder;
    let removed = fs::remove_dir_all(if held { folder.clone() } else { folder.join("data") });
    if let Err(error) = removed {
        println!("cannot remove {}: {error}", folder.display());
    }
    if !held {
        println!("what the broker said: {}", folder.join("broker.log").display());
    }
}
