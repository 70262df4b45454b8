//! `bench broker`: a server's CPU for each record that one and the same client writes and reads.

use super::load::Load;
use super::server::{Home, Program, Server};
use super::{Runs, cpu};
use crate::outcome::Done;
use crate::workspace::Workspace;

const PARTITIONS: u32 = 12;
const RECORD_BYTES: u32 = 100;
/// A cold Kafka takes several times the CPU.
const WARM_UP: u32 = 3_000_000;
const RECORDS: u32 = 3_000_000;
const RUNS: u32 = 5;

/// A server's figures.
#[derive(Debug, Default)]
struct Figures {
    produced: Runs,
    consumed: Runs,
    rate_in: Runs,
    rate_out: Runs,
}

pub(super) fn run(workspace: &Workspace) -> Done {
    let load = Load::new(workspace)?;
    let programs = Program::both(workspace)?;
    let mut measured = Vec::new();
    for program in &programs {
        let home = Home::new(workspace, program)?;
        let (server, _) = home.start()?;
        one_run(&load, &server, "warm-up", WARM_UP, &mut Figures::default())?;
        measured.push((home, server, Figures::default()));
    }
    for number in 0..RUNS {
        for (_, server, figures) in &mut measured {
            one_run(&load, server, &format!("run-{number}"), RECORDS, figures)?;
        }
    }
    println!(
        "\n{RUNS} runs of {RECORDS} records of {RECORD_BYTES} B, {PARTITIONS} partitions, acks=all, \
         no compression; librdkafka writes, then reads; median (least–greatest)"
    );
    println!(
        "{:<20}{:>20}{:>20}{:>24}{:>24}",
        "",
        "CPU in, ns/record",
        "CPU out, ns/record",
        "in, 1,000 records/s",
        "out, 1,000 records/s"
    );
    for (home, server, figures) in measured {
        server.stop()?;
        let Figures { produced, consumed, rate_in, rate_out } = figures;
        let (produced, consumed) = (produced.shown(0), consumed.shown(0));
        let (rate_in, rate_out) = (rate_in.shown(0), rate_out.shown(0));
        println!("{:<20}{produced:>20}{consumed:>20}{rate_in:>24}{rate_out:>24}", home.name());
    }
    Ok(())
}

fn one_run(load: &Load, server: &Server, topic: &str, records: u32, figures: &mut Figures) -> Done {
    let (address, pid) = (server.address(), server.pid());
    load.create(&address, topic, PARTITIONS)?;
    let begin = cpu(pid)?;
    let writing = load.produce(&address, topic, records, RECORD_BYTES)?;
    let written = cpu(pid)?;
    let reading = load.consume(&address, topic, records)?;
    let read = cpu(pid)?;
    let count = f64::from(records);
    figures.produced.add((written - begin) / count);
    figures.consumed.add((read - written) / count);
    figures.rate_in.add(count / writing / 1_000.0);
    figures.rate_out.add(count / reading / 1_000.0);
    Ok(())
}
