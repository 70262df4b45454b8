//! Groups of several clients: ours, Kafka's own and librdkafka share the partitions of a topic.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use crate::dist::python::Venv;
use crate::outcome::{Count, Done, Stop};
use crate::process::{LOOK_AGAIN, Run, Service};
use crate::tools::{self, JDK};
use crate::workspace::{Workspace, files_ending, fresh_dir, read, write};

use super::clients::Client;
use super::kafka::Kafka;
use super::kcat::keyed_lines;
use super::ours::{OurBroker, Profile};

/// Longest that a group may take to share out anew, or to read what it was sent.
const LIMIT: Duration = Duration::from_mins(1);
const PARTITIONS: usize = 6;
const RECORDS: usize = 300;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Ours,
    Java,
    Librdkafka,
}

/// Strategies, and who knows them; the first leads the group.
const GROUPS: &[(&str, &[Kind])] = &[
    ("range", &[Kind::Ours, Kind::Java, Kind::Librdkafka]),
    ("roundrobin", &[Kind::Librdkafka, Kind::Ours, Kind::Java]),
    ("sticky", &[Kind::Ours, Kind::Java, Kind::Ours]),
    ("sticky", &[Kind::Java, Kind::Ours, Kind::Java]),
    ("cooperative-sticky", &[Kind::Ours, Kind::Java, Kind::Librdkafka]),
    ("cooperative-sticky", &[Kind::Java, Kind::Librdkafka, Kind::Ours]),
    ("cooperative-sticky", &[Kind::Librdkafka, Kind::Ours, Kind::Java]),
];

/// What the members' programs need.
struct Programs {
    ours: PathBuf,
    java: PathBuf,
    script: PathBuf,
    venv: Venv,
}

pub(super) fn on_either_broker(workspace: &Workspace) -> Done<Count> {
    tools::need(&[&JDK])?;
    let jars = Kafka::fetch(workspace)?;
    let scratch = workspace.scratch("groups")?;
    let dir = scratch.path();
    let programs = Programs {
        ours: Client::build(workspace)?,
        java: compiled(workspace, &jars, &dir.join("classes"))?,
        script: workspace.root.join("interop/confluent_member.py"),
        venv: super::confluent::environment(workspace)?,
    };
    let partitions = format!("num.partitions={PARTITIONS}");
    let ours = OurBroker::build(workspace, Profile::Dev)?;
    let ours = OurBroker::start(&ours, dir, &[&partitions])?;
    let mut total = all(&programs, &ours.address(), "our broker", dir);
    ours.stop()?;
    let home = dir.join("kafka");
    fresh_dir(&home)?;
    let (kafka, _) = Kafka::start_with(&jars, &home, &[&partitions])?;
    total += all(&programs, &kafka.address(), "Apache Kafka", dir);
    kafka.stop()?;
    Ok(total)
}

/// Compiles the Java member; gives the class path to run it with.
fn compiled(workspace: &Workspace, jars: &Path, classes: &Path) -> Done<PathBuf> {
    fresh_dir(classes)?;
    let sources = files_ending(&workspace.root.join("interop/groups"), &[".java"])?;
    let compile = Run::new("javac").args(["-encoding", "UTF-8", "-d"]).arg(classes);
    compile.arg("-cp").arg(jars).args(sources).quiet().check()?;
    let mut path = classes.as_os_str().to_owned();
    path.push(":");
    path.push(jars);
    Ok(PathBuf::from(path))
}

fn all(programs: &Programs, bootstrap: &str, broker: &str, dir: &Path) -> Count {
    let mut total = Count::default();
    for (number, (strategy, kinds)) in GROUPS.iter().enumerate() {
        let mut group = Group {
            programs,
            bootstrap,
            strategy,
            name: format!("group-{number}"),
            dir,
            seats: Vec::new(),
            gone: Vec::new(),
            sent: Vec::new(),
        };
        let outcome = group.run(kinds).map_err(|stop| stop.to_string());
        let name = format!("{kinds:?} share by {strategy} on {broker}");
        total += Count::check(&name, outcome);
    }
    total
}

/// One member, as a process.
struct Seat {
    kind: Kind,
    service: Service,
    log: PathBuf,
    stop: PathBuf,
}

impl Seat {
    /// Its partitions, as it told last.
    fn has(&self) -> BTreeSet<usize> {
        let output = self.service.output();
        let told = output.lines().rev().find_map(|line| line.strip_prefix("has"));
        told.unwrap_or_default().split_whitespace().filter_map(|word| word.parse().ok()).collect()
    }

    fn read(&self) -> Vec<String> {
        values(&self.service.output())
    }
}

/// The records that a member tells of.
fn values(output: &str) -> Vec<String> {
    output.lines().filter_map(|line| line.strip_prefix("read ")).map(str::to_owned).collect()
}

struct Group<'a> {
    programs: &'a Programs,
    bootstrap: &'a str,
    strategy: &'a str,
    name: String,
    dir: &'a Path,
    seats: Vec<Seat>,
    /// What those who left have read.
    gone: Vec<String>,
    sent: Vec<String>,
}

impl Group<'_> {
    /// Members come one by one, and the first, which leads, goes; records are sent all the while.
    fn run(&mut self, kinds: &[Kind]) -> Done {
        self.send()?;
        for &kind in kinds {
            let before: Vec<_> = self.seats.iter().map(Seat::has).collect();
            self.join(kind)?;
            self.settle()?;
            self.send()?;
            let after: Vec<_> = self.seats.iter().map(Seat::has).collect();
            let kept = |(before, after): (&BTreeSet<_>, &BTreeSet<_>)| after.is_subset(before);
            self.sticks(before.iter().zip(&after).all(kept), &before, &after)?;
        }
        let before: Vec<_> = self.seats.iter().skip(1).map(Seat::has).collect();
        self.leave(0)?;
        self.settle()?;
        self.send()?;
        let after: Vec<_> = self.seats.iter().map(Seat::has).collect();
        let kept = |(before, after): (&BTreeSet<_>, &BTreeSet<_>)| before.is_subset(after);
        self.sticks(before.iter().zip(&after).all(kept), &before, &after)?;
        self.await_records()?;
        while !self.seats.is_empty() {
            self.leave(0)?;
        }
        Ok(())
    }

    fn sticks(&self, kept: bool, before: &[BTreeSet<usize>], after: &[BTreeSet<usize>]) -> Done {
        if kept || !self.strategy.ends_with("sticky") {
            return Ok(());
        }
        Err(format!("more moved than had to: {before:?}, then {after:?}").into())
    }

    fn send(&mut self) -> Done {
        let lines = keyed_lines(&format!("{}-{}", self.name, self.sent.len()), RECORDS);
        let client = Client::new(&self.programs.ours, self.bootstrap, self.dir);
        client.produce(&self.name, &lines, &[])?;
        let values = lines.iter().filter_map(|line| line.split_once(':'));
        self.sent.extend(values.map(|(_, value)| value.to_owned()));
        Ok(())
    }

    fn join(&mut self, kind: Kind) -> Done {
        let name = format!("{}-{}", self.name, self.seats.len());
        let stop = self.dir.join(format!("{name}.stop"));
        if stop.exists() {
            std::fs::remove_file(&stop).map_err(|error| Stop::Failed(error.to_string()))?;
        }
        let Programs { ours, java, script, venv } = self.programs;
        let run = match kind {
            Kind::Ours => Run::new(ours).args([self.bootstrap, "member"]),
            Kind::Java => {
                let java = Run::new("java").args(["-Xmx128m", "-cp"]).arg(java);
                java.args(["Member", self.bootstrap])
            }
            Kind::Librdkafka => venv.run("python").arg(script).arg(self.bootstrap),
        };
        let run = run.args([&self.name, &self.name]).arg(self.strategy).arg(&stop);
        let log = self.dir.join(format!("{name}.log"));
        let service = run.start(&log)?;
        self.seats.push(Seat { kind, service, log, stop });
        Ok(())
    }

    /// Waits until every partition has one reader, and all have as many.
    fn settle(&mut self) -> Done {
        let each = PARTITIONS / self.seats.len();
        self.wait("an even share", |group| {
            let shares: Vec<_> = group.seats.iter().map(Seat::has).collect();
            let all: BTreeSet<usize> = shares.iter().flatten().copied().collect();
            all.len() == PARTITIONS && shares.iter().all(|share| share.len() == each)
        })
    }

    fn await_records(&mut self) -> Done {
        self.wait("every record", |group| {
            let read: BTreeSet<String> =
                group.seats.iter().flat_map(Seat::read).chain(group.gone.clone()).collect();
            group.sent.iter().all(|value| read.contains(value))
        })
    }

    /// Has one close, which must succeed.
    fn leave(&mut self, place: usize) -> Done {
        let seat = self.seats.remove(place);
        write(&seat.stop, "")?;
        let status = seat.service.wait(LIMIT)?;
        let output = read(&seat.log)?;
        if !status.success() {
            return Err(format!("{:?} ended with {status}:\n{output}", seat.kind).into());
        }
        self.gone.extend(values(&output));
        Ok(())
    }

    fn wait(&mut self, what: &str, done: impl Fn(&Self) -> bool) -> Done {
        let end = Instant::now() + LIMIT;
        while !done(self) {
            for seat in &mut self.seats {
                seat.service.alive()?;
            }
            if Instant::now() >= end {
                let shares: Vec<_> =
                    self.seats.iter().map(|seat| (seat.kind, seat.has())).collect();
                let told = format!("{what} did not come about: {shares:?}");
                return Err(Stop::Failed(told));
            }
            std::thread::sleep(LOOK_AGAIN);
        }
        Ok(())
    }
}
