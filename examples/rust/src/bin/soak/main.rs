//! Our client in use for hours, on a broker that is killed, ended, held and started again.
//!
//! `cargo xtask soak` builds and starts it. It starts the broker, and ends it. A line every half
//! minute tells how things stand, faults are told as they are found, and the end says what held.
#![allow(clippy::print_stdout, reason = "it prints what it finds")]

mod broker;
mod gauges;
mod groups;
mod growth;
mod ledger;
mod readers;
mod settings;
mod verdict;
mod visits;
mod watch;
mod writers;

use std::error::Error;
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use ottla_broker::StopSignals;

use broker::{Broker, Lives};
use gauges::Gauges;
use groups::Lag;
use ledger::Ledger;
use settings::Settings;
use verdict::Record;
use watch::{Check, Phase, Watch};

/// What each part gives.
type Outcome<T = ()> = Result<T, Box<dyn Error>>;

/// How often the buffers are looked at, and whether a call hangs.
const LOOK: Duration = Duration::from_millis(250);
/// How often the processes are looked at.
const SAMPLE: Duration = Duration::from_secs(2);
/// How often a line is printed.
const LINE: Duration = Duration::from_secs(30);
/// Longest that readers may take to the end of what was written.
const DRAIN: Duration = Duration::from_mins(4);
/// Longest that those who leave may take, with all that they close.
const LEAVE: Duration = Duration::from_mins(3);

/// What all threads of a run share.
#[derive(Debug)]
pub(crate) struct Run {
    settings: Settings,
    address: String,
    ledger: Ledger,
    watch: Watch,
    gauges: Gauges,
    lives: Lives,
    lag: Lag,
}

/// A thread of the run.
type Worker = (String, JoinHandle<()>);

fn main() -> Outcome {
    // Before any thread is started, so that the signals wait on all of them for this one.
    let signals = StopSignals::hold()?;
    let settings = Settings::new(std::env::args().skip(1))?;
    std::fs::create_dir_all(&settings.folder)?;
    let broker = Broker::new(&settings)?;
    let run = Arc::new(Run {
        address: broker.address(),
        settings,
        ledger: Ledger::new(),
        watch: Watch::new(),
        gauges: Gauges::default(),
        lives: Lives::default(),
        lag: Lag::default(),
    });
    let own = Arc::clone(&run);
    let soak = thread::Builder::new().name("soak".to_owned()).spawn(move || {
        // The first thread waits for signals, and threads that hang are not waited for at all.
        std::process::exit(match soak(&own, broker) {
            Ok(true) => 0,
            Ok(false) => 1,
            Err(error) => {
                println!("the soak could not run: {error}");
                1
            }
        });
    })?;
    signals.wait()?;
    println!("asked to end");
    run.watch.enter(Phase::Drain);
    soak.join().map_err(|_| "the soak's own thread panicked".into())
}

/// The whole run; whether all held.
fn soak(run: &Arc<Run>, mut broker: Broker) -> Outcome<bool> {
    println!("{}", run.settings.again());
    broker.start(&run.lives)?;
    visits::prepare(run)?;
    let mut record = Record::new(run)?;
    let crew = Crew::start(run, broker)?;
    if let Err(hung) = crew.work(run, &mut record) {
        // The broker ends with this process.
        run.watch.fault(Check::Calls, hung);
    }
    let held = record.verdict(run);
    verdict::tidy_up(run, held);
    Ok(held)
}

/// All threads of a run.
struct Crew {
    /// Those who are through when the load is.
    loading: Vec<Worker>,
    /// Those who stay until all is read.
    reading: Vec<Worker>,
    broker: JoinHandle<Broker>,
}

impl Crew {
    fn start(run: &Arc<Run>, mut broker: Broker) -> Outcome<Self> {
        let loading = vec![
            worker(run, "writer by token", |run| writers::awaited(run))?,
            worker(run, "writer by callback", writers::called)?,
            worker(run, "writer without either", |run| writers::pushed(run))?,
            worker(run, "writer of large records", |run| writers::large(run))?,
            worker(run, "topics", |run| visits::topics(run))?,
            worker(run, "clients", |run| visits::clients(run))?,
        ];
        let mut reading = vec![
            worker(run, "checker", |run| readers::check(run))?,
            worker(run, "groups", |run| groups::follow(run))?,
        ];
        for (number, habit) in (0..).zip(readers::MEMBERS) {
            let name = format!("member {number} of {}", habit.group);
            reading.push(worker(run, &name, move |run| readers::member(run, habit, number))?);
        }
        let own = Arc::clone(run);
        let broker = thread::Builder::new().name("broker".to_owned()).spawn(move || {
            broker::befall(&own, &mut broker);
            broker
        })?;
        Ok(Self { loading, reading, broker })
    }

    /// Sees the run through; an error says what hangs.
    fn work(self, run: &Run, record: &mut Record) -> Result<(), String> {
        load(run, record)?;
        run.watch.enter(Phase::Drain);
        println!("{:>7} s  nothing more is sent", run.watch.elapsed().as_secs());
        finish(run, self.loading)?;
        wait(run, "the broker's thread", LEAVE, || self.broker.is_finished())?;
        let mut broker = self.broker.join().map_err(|_| "the broker's thread panicked")?;
        drain(run)?;
        record.line(run);
        run.watch.enter(Phase::End);
        finish(run, self.reading)?;
        record.left(run);
        if let Err(error) = broker.stop(&run.lives) {
            run.watch.fault(Check::Broker, error.to_string());
        }
        Ok(())
    }
}

fn worker(
    run: &Arc<Run>,
    name: &str,
    work: impl FnOnce(&Arc<Run>) -> Outcome + Send + 'static,
) -> Outcome<Worker> {
    let run = Arc::clone(run);
    let spawned = thread::Builder::new().name(name.to_owned()).spawn(move || {
        if let Err(error) = work(&run) {
            let name = thread::current().name().unwrap_or_default().to_owned();
            run.watch.fault(Check::Calls, format!("{name}: {error}"));
        }
    });
    Ok((name.to_owned(), spawned?))
}

/// Looks at all while the load lasts.
fn load(run: &Run, record: &mut Record) -> Result<(), String> {
    let begin = now();
    let (mut sampled, mut told) = (begin, begin);
    while begin.elapsed() < run.settings.span() && run.watch.rest(LOOK, Phase::Drain) {
        run.gauges.look(&run.watch);
        run.watch.hung().map_or(Ok(()), Err)?;
        if sampled.elapsed() >= SAMPLE {
            record.sample(run);
            sampled = now();
        }
        if told.elapsed() >= LINE {
            record.line(run);
            told = now();
        }
    }
    let befallen = run.lives.befallen();
    let whole = begin.elapsed() >= run.settings.span();
    if whole && befallen == 0 && run.settings.every > 0.0 {
        run.watch.fault(Check::Broker, "nothing befell it");
    }
    Ok(())
}

/// Waits until all that was sent is read, by the checker and by the groups.
fn drain(run: &Run) -> Result<(), String> {
    // A look that began before the last record was sent says nothing.
    let looks = run.lag.looks() + 2;
    let read = || run.ledger.open().is_none() && run.lag.looks() >= looks && run.lag.read() == 0;
    if wait(run, "the readers", DRAIN, read)? {
        return Ok(());
    }
    if let Some(open) = run.ledger.open() {
        run.watch.fault(Check::Records, format!("at the end, {open}"));
    }
    if run.lag.read() > 0 {
        let seconds = DRAIN.as_secs();
        let text = format!("{} records behind {seconds} s after the last", run.lag.read());
        run.watch.fault(Check::Groups, text);
    }
    Ok(())
}

/// Waits for threads that are about to end.
fn finish(run: &Run, workers: Vec<Worker>) -> Result<(), String> {
    for (name, worker) in workers {
        if !wait(run, &name, LEAVE, || worker.is_finished())? {
            return Err(format!("{name} has not ended in {} s", LEAVE.as_secs()));
        }
        if worker.join().is_err() {
            run.watch.fault(Check::Calls, format!("{name} panicked"));
        }
    }
    Ok(())
}

/// Looks until something is so, or its time is over; whether it is. An error says what hangs.
fn wait(run: &Run, what: &str, limit: Duration, is_so: impl Fn() -> bool) -> Result<bool, String> {
    let begin = now();
    while !is_so() {
        run.gauges.look(&run.watch);
        run.watch.hung().map_or(Ok(()), |hung| Err(format!("{what}: {hung}")))?;
        if begin.elapsed() > limit {
            return Ok(false);
        }
        thread::sleep(LOOK);
    }
    Ok(true)
}

#[expect(clippy::disallowed_methods, reason = "a soak lasts for so long by the clock")]
fn now() -> Instant {
    Instant::now()
}
