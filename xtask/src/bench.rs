//! `cargo xtask bench`: figures to read, never a test. Each stands beside a peer's of the same run.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::time::{Duration, Instant};

use crate::interop::{Kafka, OurBroker, Profile, wait_until_it_answers};
use crate::outcome::{Done, Stop};
use crate::process::Run;
use crate::workspace::{Workspace, free_port, read};

const OUR_RUNS: usize = 11;
const KAFKA_RUNS: usize = 3;
const READY_LIMIT: Duration = Duration::from_mins(1);
/// How long a server is left alone before its memory is read.
const IDLE: Duration = Duration::from_secs(3);

/// Runs one benchmark by name.
pub(crate) fn run(workspace: &Workspace, name: &str) -> Done {
    match name {
        "start" => start(workspace),
        _ => Err(format!("no benchmark called {name}; there is: start").into()),
    }
}

/// What one start of a server took.
#[derive(Clone, Copy, Debug)]
struct Figures {
    /// From exec to the first answer to ApiVersions.
    first_answer: Duration,
    /// Resident memory once idle.
    idle_kib: u64,
}

/// Time from exec to the first answer, and memory when idle: our broker and Apache Kafka.
fn start(workspace: &Workspace) -> Done {
    let program = OurBroker::build(workspace, Profile::Release)?;
    let classes = Kafka::fetch(workspace)?;
    let ours = (0..OUR_RUNS).map(|_| our_start(workspace, &program)).collect::<Done<Vec<_>>>()?;
    let kafka = (0..KAFKA_RUNS)
        .map(|_| {
            let scratch = workspace.scratch("kafka-start")?;
            let (kafka, first_answer) = Kafka::start_timed(&classes, scratch.path())?;
            let idle_kib = idle_memory(kafka.pid())?;
            kafka.stop()?;
            Ok(Figures { first_answer, idle_kib })
        })
        .collect::<Done<Vec<_>>>()?;
    println!("\n{:<22}{:>18}{:>16}{:>8}", "", "first answer, ms", "idle, MiB", "runs");
    for (name, figures) in [("ottla-broker", &ours), ("Apache Kafka 4.4.0", &kafka)] {
        let answer = median(figures.iter().map(|one| one.first_answer.as_secs_f64() * 1_000.0));
        let memory = median(figures.iter().map(|one| mebibytes(one.idle_kib)));
        println!("{name:<22}{answer:>18.1}{memory:>16.1}{:>8}", figures.len());
    }
    Ok(())
}

fn our_start(workspace: &Workspace, program: &Path) -> Done<Figures> {
    let scratch = workspace.scratch("start")?;
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, free_port()?));
    let run = Run::new(program).arg("--listen").arg(address.to_string());
    let run = run.arg("--data").arg(scratch.path().join("data"));
    let begin = Instant::now();
    let mut service = run.start(&scratch.path().join("broker.log"))?;
    wait_until_it_answers(&mut service, address, READY_LIMIT)?;
    let first_answer = begin.elapsed();
    let idle_kib = idle_memory(service.pid())?;
    service.stop(READY_LIMIT)?;
    Ok(Figures { first_answer, idle_kib })
}

fn idle_memory(pid: u32) -> Done<u64> {
    std::thread::sleep(IDLE);
    let status = read(Path::new(&format!("/proc/{pid}/status")))?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    line.and_then(|line| line.trim().split(' ').next()?.parse().ok())
        .ok_or_else(|| Stop::from("the kernel tells no resident size"))
}

fn mebibytes(kib: u64) -> f64 {
    u32::try_from(kib).map_or(f64::INFINITY, f64::from) / 1_024.0
}

fn median(values: impl Iterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}
