//! `bench produce`, `consume` and `latency`: our client beside others, one after the other in one run.

mod plan;
mod programs;
mod report;
mod row;

use std::path::PathBuf;
use std::time::Duration;

use super::load::Load;
use super::server::{Home, Program, Server};
use crate::outcome::Done;
use crate::workspace::{Scratch, Workspace, write};

use plan::Plan;
use programs::Programs;
use report::{Measured, Report};
use row::{Mode, Row};

/// A cold Kafka takes several times the CPU.
const WARM_UP: u32 = 3_000_000;
const WARM_UP_PARTITIONS: u32 = 12;
const WARM_UP_BYTES: u32 = 100;
/// Different values in a file of them.
const VALUES: usize = 10_000;
/// Deleted topics leave the disk at once, lest runs to come pay for them.
const KAFKA: &[&str] = &["log.segment.delete.delay.ms=0", "log.retention.ms=-1"];

/// Measures what the words ask for; without any, everything.
pub(super) fn run(workspace: &Workspace, mode: &str, words: &[&str]) -> Done {
    let plan = Plan::new(Mode::new(mode)?, words)?;
    println!("{plan}");
    let programs = Programs::build(workspace, &plan)?;
    let mut report = Report::new(&plan);
    for program in Program::both(workspace)? {
        let at = program.word();
        let rows: Vec<&Row> = plan.rows.iter().filter(|row| row.server == at).collect();
        if rows.is_empty() {
            continue;
        }
        let bench = Bench::start(workspace, &plan, &programs, &program)?;
        for row in rows {
            let measured = bench.measure(row)?;
            report.add(row, measured)?;
        }
        bench.server.stop()?;
    }
    report.finish()
}

/// A warm server and what loads it.
struct Bench<'a> {
    plan: &'a Plan,
    programs: &'a Programs,
    load: Load,
    server: Server,
    scratch: Scratch,
    /// Holds the server's data.
    _home: Home,
}

impl<'a> Bench<'a> {
    fn start(
        workspace: &Workspace,
        plan: &'a Plan,
        programs: &'a Programs,
        program: &Program,
    ) -> Done<Self> {
        let load = Load::new(workspace)?;
        let home = Home::with_settings(workspace, program, KAFKA)?;
        let (server, _) = home.start()?;
        let scratch = workspace.scratch("values")?;
        let bench = Self { plan, programs, load, server, scratch, _home: home };
        let address = bench.server.address();
        bench.load.create(&address, "warm-up", WARM_UP_PARTITIONS)?;
        bench.load.produce(&address, "warm-up", WARM_UP, WARM_UP_BYTES)?;
        bench.load.consume(&address, "warm-up", WARM_UP)?;
        bench.load.delete(&address, "warm-up")?;
        Ok(bench)
    }

    /// All runs of a row: the clients in turn, run by run.
    fn measure(&self, row: &Row) -> Done<Vec<Measured>> {
        let mut measured: Vec<Measured> =
            self.plan.clients_of(row).map(|client| Measured::of(client, row)).collect();
        let filled = if row.mode == Mode::Consume { Some(self.fill(row)?) } else { None };
        let unmeasured = row.mode.rounds_before();
        for number in 0..unmeasured + self.plan.runs {
            for one in &mut measured {
                let said = match filled {
                    Some(records) => self.consume(one, row, records)?,
                    None => self.produce(one, row, number)?,
                };
                if number >= unmeasured {
                    one.runs.push(said);
                }
            }
        }
        if filled.is_some() {
            self.load.delete(&self.server.address(), &row.topic("filled"))?;
        }
        Ok(measured)
    }

    /// One run that writes, into a topic of its own; the broker must have got as many records.
    fn produce(&self, client: &Measured, row: &Row, number: u32) -> Done<report::Run> {
        let address = self.server.address();
        let topic = row.topic(&format!("{}-{number}", client.name()));
        self.load.create(&address, &topic, row.partitions)?;
        let said = self.ask(client, row, &topic, 0)?;
        let stored = self.load.stored(&address, &topic)?;
        self.load.delete(&address, &topic)?;
        said.confirmed(stored)
    }

    /// One run that reads; each pass must have got all that the values came to.
    fn consume(&self, client: &Measured, row: &Row, records: u64) -> Done<report::Run> {
        let said = self.ask(client, row, &row.topic("filled"), records)?;
        said.read_whole(records, row.bytes)
    }

    fn ask(&self, client: &Measured, row: &Row, topic: &str, records: u64) -> Done<report::Run> {
        let run = self.programs.run(client.client)?.arg(row.mode.name());
        let words = [
            format!("address={}", self.server.address()),
            format!("topic={topic}"),
            format!("records={records}"),
            format!("values={}", self.values(row)?.display()),
            format!("warm={}", self.plan.warm.as_secs_f64()),
            format!("seconds={}", self.plan.span.as_secs_f64()),
        ];
        let limit = Duration::from_mins(5);
        let lines = run.args(words).args(&client.words).limit(limit).silent().check()?;
        report::Run::parse(&lines)
    }

    /// A topic to read, filled by librdkafka as a program of a user's would; how many records.
    fn fill(&self, row: &Row) -> Done<u64> {
        let address = self.server.address();
        let topic = row.topic("filled");
        self.load.create(&address, &topic, row.partitions)?;
        let writer = Measured::writer(row);
        let run = self.programs.run(writer.client)?.arg(Mode::Produce.name());
        let words = [
            format!("address={address}"),
            format!("topic={topic}"),
            format!("values={}", self.values(row)?.display()),
            "warm=0".to_owned(),
            format!("seconds={}", self.plan.fill.as_secs_f64()),
        ];
        let lines = run.args(words).args(&writer.words).silent().check()?;
        let stored = self.load.stored(&address, &topic)?;
        report::Run::parse(&lines)?.confirmed(stored)?;
        Ok(stored)
    }

    /// A file of values of this size: text as JSON's, which compresses to about a third.
    fn values(&self, row: &Row) -> Done<PathBuf> {
        let path = self.scratch.path().join(row.bytes.to_string());
        if !path.is_file() {
            let values: Vec<u8> = (0..VALUES).flat_map(|at| row::value(at, row.bytes)).collect();
            write(&path, values)?;
        }
        Ok(path)
    }
}
