//! `bench first-group-record`: from making a consumer to its first record, in a new group.

use super::Runs;
use super::load::{Load, milliseconds};
use super::server::{Home, Program};
use crate::outcome::Done;
use crate::process::Run;
use crate::workspace::Workspace;

const GROUPS: u32 = 21;
const WARM_UP: u32 = 5;

pub(super) fn run(workspace: &Workspace) -> Done {
    let load = Load::new(workspace)?;
    let programs = Program::both(workspace)?;
    let build = ["--release", "--package", "ottla-examples", "--bin", "first_record"];
    workspace.cargo("build").args(build).check()?;
    let ours = workspace.target.join("release/first_record");
    println!("\na new group's first record, ms: median (least–greatest) of {GROUPS} groups");
    println!("{:<22}{:>28}{:>28}", "", "our client", "librdkafka");
    for program in programs {
        let home = Home::new(workspace, &program)?;
        let (server, _) = home.start()?;
        let address = server.address();
        load.create(&address, "first", 1)?;
        load.produce(&address, "first", 1, 100)?;
        // Kafka's first groups wait for its offsets topic and a cold JVM.
        load.first(&address, "first", WARM_UP)?;
        let run = Run::new(&ours).arg(&address).arg("first").arg(GROUPS.to_string());
        let by_ours = Runs(milliseconds(&run.silent().check()?)?);
        let by_librdkafka = Runs(load.first(&address, "first", GROUPS)?);
        server.stop()?;
        let (by_ours, by_librdkafka) = (by_ours.shown(1), by_librdkafka.shown(1));
        println!("{:<22}{by_ours:>28}{by_librdkafka:>28}", home.name());
    }
    Ok(())
}
