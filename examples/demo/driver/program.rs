//! A program in one of the languages, as a process of its own.

use std::io::{BufRead, BufReader};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::mpsc::Sender;
use std::thread;

use crate::Failure;
use crate::deal::LANGUAGES;

/// What a program does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Verb {
    /// Sends flights.
    Produce,
    /// Reads flights as a member of the group.
    Consume,
}

/// One process.
#[derive(Debug)]
pub(crate) struct Program {
    /// Its language, as an index into [`LANGUAGES`].
    pub(crate) language: usize,
    /// What it does.
    pub(crate) verb: Verb,
    /// Its process id.
    pub(crate) pid: u32,
    child: Child,
}

/// A line that a program wrote, or the end of its output.
#[derive(Debug)]
pub(crate) struct Said {
    /// Which program, by its place in the order of starts.
    pub(crate) program: usize,
    /// The line's fields, or `None` at the end.
    pub(crate) line: Option<String>,
}

impl Program {
    /// Starts a program; what it writes goes to `said` under its number.
    pub(crate) fn start(
        number: usize,
        language: usize,
        verb: Verb,
        command: &[String],
        arguments: &[&str],
        said: Sender<Said>,
    ) -> Result<(Self, ChildStdin), Failure> {
        let (program, first) = command.split_first().ok_or("a program without a name")?;
        let word = if verb == Verb::Produce { "produce" } else { "consume" };
        let mut child = Command::new(program)
            .args(first)
            .arg(word)
            .args(arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .map_err(|error| format!("{program} does not start: {error}"))?;
        let input = child.stdin.take().ok_or("a program without an input")?;
        let output = child.stdout.take().ok_or("a program without an output")?;
        thread::Builder::new()
            .name(format!("read-{number}"))
            .spawn(move || read(number, output, &said))?;
        Ok((Self { language, verb, pid: child.id(), child }, input))
    }

    /// The name of its language.
    pub(crate) fn name(&self) -> &'static str {
        LANGUAGES[self.language]
    }

    /// Waits for its end, which its output has announced; an error unless it ended well.
    pub(crate) fn end(&mut self) -> Result<(), Failure> {
        let status = self.child.wait()?;
        if status.success() {
            return Ok(());
        }
        Err(format!("the {} program {:?} ended with {status}", self.name(), self.verb).into())
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        // Only after a failure is it still there; one that has ended meanwhile is no error.
        if matches!(self.child.try_wait(), Ok(None)) && self.child.kill().is_ok() {
            drop(self.child.wait());
        }
    }
}

fn read(program: usize, output: ChildStdout, said: &Sender<Said>) {
    for line in BufReader::new(output).lines() {
        // A line that cannot be read ends the output; a driver that has gone needs no more lines.
        let Ok(line) = line else { break };
        if said.send(Said { program, line: Some(line) }).is_err() {
            return;
        }
    }
    drop(said.send(Said { program, line: None }));
}
