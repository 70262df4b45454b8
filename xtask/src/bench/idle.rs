//! `bench idle`: memory of a server that does nothing, fresh and after a million records.

use std::time::Duration;

use super::load::Load;
use super::memory;
use super::server::{Home, Program};
use crate::outcome::Done;
use crate::workspace::Workspace;

const IDLE: Duration = Duration::from_secs(10);
const PARTITIONS: u32 = 12;
const RECORDS: u32 = 1_000_000;
const RECORD_BYTES: u32 = 100;

pub(super) fn run(workspace: &Workspace) -> Done {
    let load = Load::new(workspace)?;
    let programs = Program::both(workspace)?;
    println!("\nmemory (PSS) after 10 s without work, MiB");
    println!("{:<22}{:>10}{:>44}", "", "fresh", "10⁶ records written and read, 100 B");
    for program in programs {
        let home = Home::new(workspace, &program)?;
        let (server, _) = home.start()?;
        std::thread::sleep(IDLE);
        let fresh = memory(server.pid())?;
        load.create(&server.address(), "used", PARTITIONS)?;
        load.produce(&server.address(), "used", RECORDS, RECORD_BYTES)?;
        load.consume(&server.address(), "used", RECORDS)?;
        std::thread::sleep(IDLE);
        let used = memory(server.pid())?;
        server.stop()?;
        println!("{:<22}{fresh:>10.1}{used:>44.1}", home.name());
    }
    Ok(())
}
