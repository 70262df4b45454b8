//! The broker, a process of its own that ends with this one, and what befalls it.

use std::fs::{self, File, OpenOptions};
use std::net::{Ipv4Addr, TcpListener};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};

use crate::settings::Settings;
use crate::watch::{Check, Phase};
use crate::{Outcome, Run, now};

/// Longest a start may take, also after a kill.
const START_LIMIT: Duration = Duration::from_mins(1);
/// Longest it may take to end after SIGTERM.
const STOP_LIMIT: Duration = Duration::from_secs(20);
const LOOK_AGAIN: Duration = Duration::from_millis(20);

/// What is old goes soon, and producers that are gone are forgotten.
const OPTIONS: [&str; 8] = [
    "log.retention.check.interval.ms=5000",
    "log.segment.delete.delay.ms=1000",
    "auto.create.topics.enable=false",
    "producer.id.expiration.ms=60000",
    "offsets.topic.num.partitions=4",
    "offsets.topic.segment.bytes=8388608",
    "metadata.log.segment.bytes=8388608",
    "group.min.session.timeout.ms=1000",
];

/// The broker over all its lives: one folder, one port.
#[derive(Debug)]
pub(crate) struct Broker {
    program: PathBuf,
    folder: PathBuf,
    port: u16,
    life: Option<Life>,
}

/// One life, and a small `sh` that ends it if this process is gone.
#[derive(Debug)]
struct Life {
    child: Child,
    watchdog: Child,
}

/// What is counted of all lives.
#[derive(Debug, Default)]
pub(crate) struct Lives {
    /// Its process now; 0 while there is none.
    pid: AtomicU32,
    pub(crate) kills: AtomicU32,
    pub(crate) terms: AtomicU32,
    pub(crate) stops: AtomicU32,
}

impl Lives {
    pub(crate) fn pid(&self) -> Option<u32> {
        Some(self.pid.load(Ordering::Relaxed)).filter(|&pid| pid != 0)
    }

    /// How often something befell it.
    pub(crate) fn befallen(&self) -> u32 {
        [&self.kills, &self.terms, &self.stops]
            .map(|count| count.load(Ordering::Relaxed))
            .iter()
            .sum()
    }
}

impl Broker {
    pub(crate) fn new(settings: &Settings) -> Outcome<Self> {
        let (program, folder) = (settings.broker.clone(), settings.folder.clone());
        Ok(Self { program, folder, port: free_port(settings.seed)?, life: None })
    }

    pub(crate) fn address(&self) -> String {
        format!("{}:{}", Ipv4Addr::LOCALHOST, self.port)
    }

    /// Starts it on its folder, and waits until it serves.
    pub(crate) fn start(&mut self, lives: &Lives) -> Outcome {
        let ready = self.folder.join("ready");
        if ready.exists() {
            fs::remove_file(&ready)?;
        }
        let log = self.log()?;
        let mut command = Command::new(&self.program);
        command.args(["--listen", &self.address(), "--data"]).arg(self.folder.join("data"));
        command.arg("--ready-file").arg(&ready);
        command.args(OPTIONS.iter().flat_map(|option| ["-c", option]));
        command.env("OTTLA_LOG", "warn").stdin(Stdio::null());
        // Apart from the terminal's signals, which are for us.
        command.process_group(0).stdout(log.try_clone()?).stderr(log);
        let mut child = command.spawn()?;
        let watchdog = match watchdog(child.id()) {
            Ok(watchdog) => watchdog,
            Err(error) => {
                child.kill()?;
                return Err(format!("no watchdog: {error}").into());
            }
        };
        let life = self.life.insert(Life { child, watchdog });
        let begin = now();
        while !ready.is_file() {
            if let Some(status) = life.child.try_wait()? {
                return Err(format!("it ended with {status} as it was started").into());
            }
            if begin.elapsed() > START_LIMIT {
                return Err(format!("not ready within {} s", START_LIMIT.as_secs()).into());
            }
            std::thread::sleep(LOOK_AGAIN);
        }
        lives.pid.store(life.child.id(), Ordering::Relaxed);
        Ok(())
    }

    fn log(&self) -> Outcome<File> {
        Ok(OpenOptions::new().create(true).append(true).open(self.folder.join("broker.log"))?)
    }

    /// Ends it at once.
    pub(crate) fn kill(&mut self, lives: &Lives) -> Outcome {
        lives.pid.store(0, Ordering::Relaxed);
        let Some(mut life) = self.life.take() else { return Ok(()) };
        if let Some(status) = life.child.try_wait()? {
            life.end()?;
            return Err(format!("it had ended by itself, with {status}").into());
        }
        life.child.kill()?;
        life.child.wait()?;
        life.end()
    }

    /// Asks it to end, and waits for that.
    pub(crate) fn stop(&mut self, lives: &Lives) -> Outcome {
        lives.pid.store(0, Ordering::Relaxed);
        let Some(mut life) = self.life.take() else { return Ok(()) };
        signal(&life.child, Signal::TERM)?;
        let (begin, mut ended) = (now(), None);
        while ended.is_none() && begin.elapsed() < STOP_LIMIT {
            std::thread::sleep(LOOK_AGAIN);
            ended = life.child.try_wait()?;
        }
        if ended.is_none() {
            life.child.kill()?;
            life.child.wait()?;
        }
        life.end()?;
        match ended {
            Some(status) if ExitStatus::success(&status) => Ok(()),
            Some(status) => Err(format!("it ended with {status} after SIGTERM").into()),
            None => Err(format!("it did not end within {} s", STOP_LIMIT.as_secs()).into()),
        }
    }

    /// Tells whether it still runs.
    fn alive(&mut self) -> Outcome {
        let Some(life) = &mut self.life else { return Err("it does not run".into()) };
        match life.child.try_wait()? {
            None => Ok(()),
            Some(status) => Err(format!("it ended by itself, with {status}").into()),
        }
    }

    fn signal(&self, which: Signal) -> Outcome {
        self.life.as_ref().map_or(Ok(()), |life| signal(&life.child, which))
    }
}

impl Drop for Broker {
    fn drop(&mut self) {
        if let Err(error) = self.kill(&Lives::default()) {
            println!("the broker: {error}");
        }
    }
}

impl Life {
    fn end(&mut self) -> Outcome {
        self.watchdog.kill()?;
        self.watchdog.wait()?;
        Ok(())
    }
}

fn signal(child: &Child, which: Signal) -> Outcome {
    let pid = i32::try_from(child.id()).ok().and_then(Pid::from_raw).ok_or("no such process")?;
    Ok(kill_process(pid, which)?)
}

/// Kills that process when the pipe to us ends, as it does however we end.
fn watchdog(pid: u32) -> std::io::Result<Child> {
    Command::new("sh")
        .args(["-c", "read -r _; kill -s KILL \"$1\"", "watchdog"])
        .arg(pid.to_string())
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .process_group(0)
        .spawn()
}

/// A free port below those that the system gives to connections, one of which could else take it
/// while the broker is away.
fn free_port(seed: u64) -> Outcome<u16> {
    let first = 20_000 + seed % 10_000;
    let ports = (first..30_000).chain(20_000..first).filter_map(|port| u16::try_from(port).ok());
    let free = |port: &u16| TcpListener::bind((Ipv4Addr::LOCALHOST, *port)).is_ok();
    Ok(ports.into_iter().find(free).ok_or("no port is free")?)
}

/// Kills, ends and holds the broker, until the load is over. Then it is left running.
pub(crate) fn befall(run: &Run, broker: &mut Broker) {
    let mut chance = run.settings.chance(1_000);
    let every_ms = every_ms(run);
    let mut turn = chance.below(4);
    let mut pause = chance.span(every_ms / 2, every_ms * 3 / 2);
    while every_ms > 0 && run.watch.rest(pause, Phase::Drain) {
        pause = chance.span(every_ms / 2, every_ms * 3 / 2);
        // In turn, with some luck: each kind comes soon.
        turn = (turn + 1 + chance.below(2)) % 4;
        let done = match turn {
            0 | 2 => again(run, broker, chance.span(0, 3_000), Broker::kill, &run.lives.kills),
            1 => again(run, broker, chance.span(0, 3_000), Broker::stop, &run.lives.terms),
            // Up to beyond `request.timeout.ms`, so that clients also cut connections.
            _ => hold(run, broker, chance.span(500, 14_000)),
        };
        if let Err(error) = done {
            run.watch.fault(Check::Broker, error.to_string());
        }
    }
    while run.watch.rest(Duration::from_secs(1), Phase::Drain) {
        if let Err(error) = broker.alive() {
            run.watch.fault(Check::Broker, error.to_string());
            break;
        }
    }
}

/// Milliseconds between two faults: in a short run so few that one comes for sure.
fn every_ms(run: &Run) -> u64 {
    let every = run.settings.every.min(run.settings.minutes * 60.0 / 3.0);
    u64::try_from(Duration::from_secs_f64(every).as_millis()).unwrap_or(0)
}

/// Ends the broker in some way, and starts it again after a while.
fn again(
    run: &Run,
    broker: &mut Broker,
    away: Duration,
    end: fn(&mut Broker, &Lives) -> Outcome,
    count: &AtomicU32,
) -> Outcome {
    count.fetch_add(1, Ordering::Relaxed);
    let ended = end(broker, &run.lives);
    run.watch.rest(away, Phase::Drain);
    let started = run.watch.call("starting the broker", START_LIMIT, || broker.start(&run.lives));
    ended.and(started)
}

/// Holds it for so long: its connections stay, and nothing is answered.
fn hold(run: &Run, broker: &Broker, span: Duration) -> Outcome {
    run.lives.stops.fetch_add(1, Ordering::Relaxed);
    broker.signal(Signal::STOP)?;
    run.watch.rest(span, Phase::Drain);
    broker.signal(Signal::CONT)
}

/// Bytes of all files under a folder, as far as they can be seen.
pub(crate) fn size(folder: &Path) -> u64 {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    entries
        .filter_map(|entry| {
            let about = entry.metadata().ok()?;
            Some(if about.is_dir() { size(&entry.path()) } else { about.len() })
        })
        .sum()
}
