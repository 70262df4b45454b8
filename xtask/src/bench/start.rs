//! `bench start`: from exec to the first answer, on an empty folder and on a full one.

use super::Runs;
use super::load::Load;
use super::server::{Home, Program};
use crate::outcome::Done;
use crate::workspace::Workspace;

const OUR_RUNS: usize = 11;
const KAFKA_RUNS: usize = 3;
const PARTITIONS: u32 = 100;
/// With `RECORD_BYTES` each: 1 GiB.
const RECORDS: u32 = 1_048_576;
const RECORD_BYTES: u32 = 1_024;

pub(super) fn run(workspace: &Workspace) -> Done {
    let load = Load::new(workspace)?;
    let programs = Program::both(workspace)?;
    println!("\nexec to the first answer to ApiVersions, ms: median (least–greatest)");
    println!("{:<22}{:>28}{:>36}", "", "empty folder", "100 partitions and 1 GiB");
    for program in programs {
        let runs = if matches!(program, Program::Ours(_)) { OUR_RUNS } else { KAFKA_RUNS };
        let mut fresh = Runs::default();
        for _ in 0..runs {
            let home = Home::new(workspace, &program)?;
            let (server, took) = home.start()?;
            fresh.add(took.as_secs_f64() * 1_000.0);
            server.stop()?;
        }
        let home = filled(workspace, &program, &load)?;
        let mut full = Runs::default();
        for _ in 0..runs {
            let (server, took) = home.start()?;
            full.add(took.as_secs_f64() * 1_000.0);
            server.stop()?;
        }
        println!("{:<22}{:>28}{:>36}", home.name(), fresh.shown(1), full.shown(1));
    }
    Ok(())
}

/// A folder that a server filled and closed.
fn filled(workspace: &Workspace, program: &Program, load: &Load) -> Done<Home> {
    let home = Home::new(workspace, program)?;
    let (server, _) = home.start()?;
    load.create(&server.address(), "filled", PARTITIONS)?;
    load.produce(&server.address(), "filled", RECORDS, RECORD_BYTES)?;
    server.stop()?;
    Ok(home)
}
