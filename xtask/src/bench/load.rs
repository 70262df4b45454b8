//! The load: librdkafka, by way of confluent-kafka for Python, the same for every server.

use std::path::PathBuf;

use crate::dist::python::Venv;
use crate::interop::confluent_environment;
use crate::outcome::{Done, Stop};
use crate::workspace::Workspace;

/// librdkafka as a program.
#[derive(Debug)]
pub(super) struct Load {
    environment: Venv,
    script: PathBuf,
}

impl Load {
    pub(super) fn new(workspace: &Workspace) -> Done<Self> {
        let environment = confluent_environment(workspace)?;
        Ok(Self { environment, script: workspace.root.join("interop/bench_client.py") })
    }

    pub(super) fn create(&self, address: &str, topic: &str, partitions: u32) -> Done {
        self.ask(address, &["create", topic, &partitions.to_string()]).map(|_| ())
    }

    pub(super) fn delete(&self, address: &str, topic: &str) -> Done {
        self.ask(address, &["delete", topic]).map(|_| ())
    }

    /// How many offsets of the topic the broker has given out.
    pub(super) fn stored(&self, address: &str, topic: &str) -> Done<u64> {
        let lines = self.ask(address, &["stored", topic])?;
        let count = lines.last().and_then(|line| line.parse().ok());
        count.ok_or_else(|| Stop::Failed(format!("not a count: {lines:?}")))
    }

    /// Sends records of this size without keys, acks=all. Gives the seconds it took.
    pub(super) fn produce(
        &self,
        address: &str,
        topic: &str,
        records: u32,
        bytes: u32,
    ) -> Done<f64> {
        let (count, size) = (records.to_string(), bytes.to_string());
        counted(records, &self.ask(address, &["produce", topic, &count, &size])?)
    }

    /// Reads that many records from the topic's beginning. Gives the seconds it took.
    pub(super) fn consume(&self, address: &str, topic: &str, records: u32) -> Done<f64> {
        counted(records, &self.ask(address, &["consume", topic, &records.to_string()])?)
    }

    /// Milliseconds from making a consumer to its first record, for so many new groups.
    pub(super) fn first(&self, address: &str, topic: &str, groups: u32) -> Done<Vec<f64>> {
        milliseconds(&self.ask(address, &["first", topic, &groups.to_string()])?)
    }

    fn ask(&self, address: &str, arguments: &[&str]) -> Done<Vec<String>> {
        let run = self.environment.run("python").arg(&self.script).arg(address);
        run.args(arguments).silent().check()
    }
}

/// Lines that are figures.
pub(super) fn milliseconds(lines: &[String]) -> Done<Vec<f64>> {
    let parsed = lines.iter().map(|line| line.parse::<f64>());
    parsed.collect::<Result<_, _>>().map_err(|error| Stop::Failed(format!("{lines:?}: {error}")))
}

/// A line of a count, which must be the one that was asked for, and seconds.
fn counted(records: u32, lines: &[String]) -> Done<f64> {
    let words: Vec<&str> = lines.iter().flat_map(|line| line.split(' ')).collect();
    match words.as_slice() {
        [count, seconds] if *count == records.to_string() => seconds
            .parse()
            .map_err(|error| Stop::Failed(format!("not a time, {seconds:?}: {error}"))),
        _ => Err(format!("expected {records} records, it said {lines:?}").into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_that_moved_another_count_of_records_is_no_figure() {
        assert!((counted(10, &["10 0.5".to_owned()]).unwrap() - 0.5).abs() < f64::EPSILON);
        assert!(counted(10, &["9 0.5".to_owned()]).is_err());
        assert!(counted(10, &[]).is_err());
    }
}
