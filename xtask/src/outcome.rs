//! What a part of a command came to: counts, a failure, or a tool that is not there.

use std::fmt;
use std::io;
use std::ops::AddAssign;
use std::process::ExitCode;
use std::time::{Duration, Instant};

/// Why a part could not go on.
#[derive(Debug)]
pub(crate) enum Stop {
    /// It went wrong; the text says what.
    Failed(String),
    /// It needs a program that this machine does not have.
    Missing {
        /// The program's name.
        tool: &'static str,
        /// The command that installs it.
        install: String,
    },
}

/// What most functions here return.
pub(crate) type Done<T = ()> = Result<T, Stop>;

impl fmt::Display for Stop {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Failed(why) => f.write_str(why),
            Self::Missing { tool, install } => {
                write!(f, "{tool} is not installed; install it with: {install}")
            }
        }
    }
}

impl From<String> for Stop {
    fn from(why: String) -> Self {
        Self::Failed(why)
    }
}

impl From<&str> for Stop {
    fn from(why: &str) -> Self {
        Self::Failed(why.to_owned())
    }
}

/// Says what was being done when the operating system refused.
pub(crate) trait Doing<T> {
    /// Turns the error into a failure that begins with `what`.
    fn doing(self, what: impl fmt::Display) -> Done<T>;
}

impl<T> Doing<T> for io::Result<T> {
    fn doing(self, what: impl fmt::Display) -> Done<T> {
        self.map_err(|error| Stop::Failed(format!("{what}: {error}")))
    }
}

/// How many tests passed, failed and were skipped.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Count {
    pub(crate) passed: u64,
    pub(crate) failed: u64,
    pub(crate) skipped: u64,
}

impl Count {
    /// One check that passed.
    pub(crate) const ONE: Self = Self { passed: 1, failed: 0, skipped: 0 };

    /// One check, passed or failed.
    pub(crate) fn check(name: &str, outcome: Result<(), String>) -> Self {
        match outcome {
            Ok(()) => {
                println!("ok      {name}");
                Self::ONE
            }
            Err(why) => {
                println!("FAILED  {name}: {why}");
                Self { failed: 1, ..Self::default() }
            }
        }
    }
}

impl AddAssign for Count {
    fn add_assign(&mut self, other: Self) {
        self.passed += other.passed;
        self.failed += other.failed;
        self.skipped += other.skipped;
    }
}

impl fmt::Display for Count {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} passed, {} failed", self.passed, self.failed)?;
        if self.skipped > 0 {
            write!(f, ", {} skipped", self.skipped)?;
        }
        Ok(())
    }
}

/// True where a missing tool is a failure: on the build machine, not on a developer's.
pub(crate) fn in_ci() -> bool {
    std::env::var("CI").is_ok_and(|value| value == "true")
}

struct Row {
    name: String,
    took: Duration,
    count: Count,
    note: String,
}

/// The parts of one command, in the order they ran.
pub(crate) struct Report {
    ci: bool,
    rows: Vec<Row>,
}

impl Report {
    pub(crate) fn new() -> Self {
        Self { ci: in_ci(), rows: Vec::new() }
    }

    /// Runs one part whose result is a number of tests. A part that ran no test has failed.
    pub(crate) fn tests(&mut self, name: &str, part: impl FnOnce() -> Done<Count>) {
        self.run(name, || {
            let count = part()?;
            if count == Count::default() {
                return Err("it ran no test".into());
            }
            Ok(count)
        });
    }

    /// Runs one part that is itself one check.
    pub(crate) fn step(&mut self, name: &str, part: impl FnOnce() -> Done) {
        self.run(name, || part().map(|()| Count::ONE));
    }

    fn run(&mut self, name: &str, part: impl FnOnce() -> Done<Count>) {
        println!("\n==== {name}");
        let start = Instant::now();
        let outcome = part();
        let took = start.elapsed();
        let (count, note) = self.judge(outcome);
        println!("==== {name}: {count} in {:.1} s{}", took.as_secs_f64(), dash(&note));
        self.rows.push(Row { name: name.to_owned(), took, count, note });
    }

    fn judge(&self, outcome: Done<Count>) -> (Count, String) {
        match outcome {
            Ok(count) => (count, String::new()),
            Err(stop @ Stop::Missing { .. }) if !self.ci => {
                (Count { skipped: 1, ..Count::default() }, stop.to_string())
            }
            Err(stop) => (Count { failed: 1, ..Count::default() }, stop.to_string()),
        }
    }

    /// Prints a line for each part, then the total alone on the last line.
    pub(crate) fn finish(self) -> ExitCode {
        println!("\n{:<24}{:>9}", "part", "seconds");
        let mut total = Count::default();
        for row in &self.rows {
            let seconds = row.took.as_secs_f64();
            println!("{:<24}{seconds:>9.1}  {}{}", row.name, row.count, dash(&row.note));
            total += row.count;
        }
        println!("{total}");
        if total.failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
    }
}

fn dash(note: &str) -> String {
    if note.is_empty() { String::new() } else { format!(" - {note}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(ci: bool) -> Report {
        Report { ci, rows: Vec::new() }
    }

    fn missing() -> Done<Count> {
        Err(Stop::Missing { tool: "kcat", install: "apt-get install kcat".to_owned() })
    }

    #[test]
    fn a_missing_tool_is_a_skip_for_a_developer_and_a_failure_in_ci() {
        assert_eq!(report(false).judge(missing()).0, Count { skipped: 1, ..Count::default() });
        assert_eq!(report(true).judge(missing()).0, Count { failed: 1, ..Count::default() });
        assert!(report(false).judge(missing()).1.contains("apt-get install kcat"));
    }

    #[test]
    fn a_part_that_ran_no_test_has_failed() {
        let mut report = report(false);
        report.tests("empty", || Ok(Count::default()));
        assert_eq!(report.rows[0].count.failed, 1);
    }

    #[test]
    fn the_total_names_skips_only_when_there_are_some() {
        let mut count = Count { passed: 3, failed: 0, skipped: 0 };
        assert_eq!(count.to_string(), "3 passed, 0 failed");
        count += Count { passed: 0, failed: 1, skipped: 2 };
        assert_eq!(count.to_string(), "3 passed, 1 failed, 2 skipped");
    }
}
