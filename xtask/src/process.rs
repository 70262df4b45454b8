//! Child processes that never outlive this one.
//!
//! Each child leads its own process group, and a small watchdog (`sh`, waiting on a pipe that only
//! this process holds) kills that group when this process ends, however it ends.

use std::ffi::OsStr;
use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process_group, waitid};

use crate::outcome::{Doing, Done, Stop};

/// How often a waiting loop looks again.
pub(crate) const LOOK_AGAIN: Duration = Duration::from_millis(10);
/// Longest a command may take unless it says otherwise.
const DEFAULT_LIMIT: Duration = Duration::from_mins(30);
/// Lines of a quiet command that are shown when it fails.
const SHOWN_LINES: usize = 200;

/// One command to run.
#[derive(Debug)]
pub(crate) struct Run {
    command: Command,
    shown: String,
    limit: Duration,
    show: Show,
}

/// What of a command's output is shown while it runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Show {
    /// All of it.
    All,
    /// Standard error alone; standard output is only read.
    Errors,
    /// Nothing, and both are read; if it fails, what they said.
    Nothing,
}

/// What a finished command left.
#[derive(Debug)]
pub(crate) struct Finished {
    /// Its lines: standard output, and of a quiet command standard error too.
    pub(crate) lines: Vec<String>,
    /// How it ended.
    pub(crate) status: ExitStatus,
    shown: String,
}

impl Run {
    pub(crate) fn new(program: impl AsRef<OsStr>) -> Self {
        let program = program.as_ref();
        let mut command = Command::new(program);
        command.stdin(Stdio::null()).process_group(0);
        let shown = program.to_string_lossy().into_owned();
        Self { command, shown, limit: DEFAULT_LIMIT, show: Show::All }
    }

    pub(crate) fn arg(mut self, arg: impl AsRef<OsStr>) -> Self {
        let arg = arg.as_ref();
        self.shown.push(' ');
        self.shown.push_str(&arg.to_string_lossy());
        self.command.arg(arg);
        self
    }

    pub(crate) fn args<A: AsRef<OsStr>>(self, args: impl IntoIterator<Item = A>) -> Self {
        args.into_iter().fold(self, Self::arg)
    }

    pub(crate) fn env(mut self, name: &str, value: impl AsRef<OsStr>) -> Self {
        self.command.env(name, value);
        self
    }

    pub(crate) fn dir(mut self, dir: &Path) -> Self {
        self.command.current_dir(dir);
        self
    }

    /// Feeds the command's standard input from a file.
    pub(crate) fn input(mut self, file: File) -> Self {
        self.command.stdin(file);
        self
    }

    /// Kills the command, and all it started, after this time. Default 30 min.
    pub(crate) fn limit(mut self, limit: Duration) -> Self {
        self.limit = limit;
        self
    }

    /// Shows its output only if it fails.
    pub(crate) fn quiet(mut self) -> Self {
        self.show = Show::Nothing;
        self
    }

    /// Reads its standard output without showing it; standard error is not among its lines.
    pub(crate) fn silent(mut self) -> Self {
        self.show = Show::Errors;
        self
    }

    /// Runs it to its end, whatever its status.
    pub(crate) fn finish(mut self) -> Done<Finished> {
        let show = self.show;
        if show == Show::All {
            println!("$ {}", self.shown);
        }
        self.command.stdout(Stdio::piped());
        self.command.stderr(if show == Show::Nothing { Stdio::piped() } else { Stdio::inherit() });
        let mut child = self.command.spawn().doing(format_args!("cannot run {}", self.shown))?;
        let group = Group::of(&child)?;
        let lines = Arc::new(Mutex::new(Vec::new()));
        let mut readers = Vec::new();
        let collect = |shown: bool| {
            let lines = Arc::clone(&lines);
            move |line: String| {
                if shown {
                    println!("{line}");
                }
                lines.lock().unwrap_or_else(PoisonError::into_inner).push(line);
            }
        };
        if let Some(out) = child.stdout.take() {
            readers.push(each_line(out, collect(show == Show::All)));
        }
        if let Some(err) = child.stderr.take() {
            readers.push(each_line(err, collect(false)));
        }
        let in_time = group.wait(self.limit)?;
        // Whatever the command left running would hold the pipes open, and outlive it.
        drop(group);
        let status = child.wait().doing("cannot wait for a child")?;
        for reader in readers {
            if reader.join().is_err() {
                return Err(format!("the output of {} could not be read", self.shown).into());
            }
        }
        let lines = std::mem::take(&mut *lines.lock().unwrap_or_else(PoisonError::into_inner));
        let finished = Finished { lines, status, shown: self.shown };
        if in_time {
            return Ok(finished);
        }
        finished.show_tail(show);
        Err(format!("{} did not end within {} s", finished.shown, self.limit.as_secs()).into())
    }

    /// Runs it to its end and gives its lines; any status but success is a failure.
    pub(crate) fn check(self) -> Done<Vec<String>> {
        let show = self.show;
        let finished = self.finish()?;
        if finished.status.success() {
            return Ok(finished.lines);
        }
        finished.show_tail(show);
        Err(finished.failure())
    }

    /// Runs what goes on for ever until the lines of its standard output are `enough`, and kills it.
    /// One that ends before, or tells too little within its limit, is a failure with those lines.
    pub(crate) fn until(mut self, enough: impl Fn(&[String]) -> bool) -> Done {
        let end = Instant::now() + self.limit;
        self.command.stdout(Stdio::piped());
        let mut child = self.command.spawn().doing(format_args!("cannot run {}", self.shown))?;
        let group = Group::of(&child)?;
        let out = child.stdout.take().ok_or("a child without an output")?;
        let (told, line) = mpsc::channel();
        // The channel is closed once nobody asks any more.
        let reader = each_line(out, move |line| drop(told.send(line)));
        let mut lines = Vec::new();
        let mut outcome = Ok(());
        while outcome.is_ok() && !enough(&lines) {
            match line.recv_timeout(end.saturating_duration_since(Instant::now())) {
                Ok(line) => lines.push(line),
                Err(RecvTimeoutError::Timeout) => outcome = Err("told no more in time than"),
                Err(RecvTimeoutError::Disconnected) => outcome = Err("ended, and told only"),
            }
        }
        drop(group);
        child.wait().doing("cannot wait for a child")?;
        if reader.join().is_err() {
            return Err(format!("the output of {} could not be read", self.shown).into());
        }
        let shown = &self.shown;
        outcome.map_err(|what| format!("{shown} {what}:\n{}", lines.join("\n")).into())
    }

    /// Starts it to run beside us, its output in `log`.
    pub(crate) fn start(mut self, log: &Path) -> Done<Service> {
        let file = File::create(log).doing(format_args!("cannot write {}", log.display()))?;
        let twin = file.try_clone().doing("cannot share the log file")?;
        self.command.stdout(file).stderr(twin);
        let child = self.command.spawn().doing(format_args!("cannot run {}", self.shown))?;
        let group = Group::of(&child)?;
        Ok(Service { child, group: Some(group), shown: self.shown, log: log.to_owned() })
    }
}

impl Finished {
    /// The command.
    pub(crate) fn shown(&self) -> &str {
        &self.shown
    }

    /// The failure that names the command and its status.
    pub(crate) fn failure(&self) -> Stop {
        Stop::Failed(format!("{} ended with {}", self.shown, self.status))
    }

    fn show_tail(&self, show: Show) {
        if show == Show::Nothing {
            println!("$ {}", self.shown);
            for line in &self.lines[self.lines.len().saturating_sub(SHOWN_LINES)..] {
                println!("{line}");
            }
        }
    }
}

/// A process that runs beside us, until it is stopped or dropped.
#[derive(Debug)]
pub(crate) struct Service {
    child: Child,
    group: Option<Group>,
    shown: String,
    log: std::path::PathBuf,
}

impl Service {
    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// A failure if it has ended, with the last lines that it wrote.
    pub(crate) fn alive(&mut self) -> Done {
        match self.child.try_wait().doing("cannot ask for a child")? {
            None => Ok(()),
            Some(status) => {
                let text = self.output();
                let tail: Vec<&str> = text.lines().rev().take(20).collect();
                let tail: Vec<&str> = tail.into_iter().rev().collect();
                Err(format!("{} ended with {status}:\n{}", self.shown, tail.join("\n")).into())
            }
        }
    }

    /// All it has written so far.
    pub(crate) fn output(&self) -> String {
        std::fs::read(&self.log)
            .map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
            .unwrap_or_default()
    }

    /// Asks it to end (SIGTERM) and waits for that; past the limit it is killed, a failure.
    pub(crate) fn stop(self, limit: Duration) -> Done<ExitStatus> {
        if let Some(group) = &self.group {
            group.signal(Signal::TERM);
        }
        self.wait(limit)
    }

    /// Waits until it ends; past the limit it is killed, a failure.
    pub(crate) fn wait(mut self, limit: Duration) -> Done<ExitStatus> {
        let Some(group) = self.group.take() else {
            return Err(format!("{} was stopped before", self.shown).into());
        };
        let in_time = group.wait(limit)?;
        drop(group);
        let status = self.child.wait().doing("cannot wait for a child")?;
        if in_time {
            return Ok(status);
        }
        Err(format!("{} did not end within {} s", self.shown, limit.as_secs()).into())
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        drop(self.group.take());
        if let Err(error) = self.child.wait() {
            println!("cannot wait for {}: {error}", self.shown);
        }
    }
}

/// A child's process group and its watchdog. Dropping it kills the group.
#[derive(Debug)]
struct Group {
    pid: Pid,
    watchdog: Child,
}

impl Group {
    fn of(child: &Child) -> Done<Self> {
        let raw = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
        let pid = raw.ok_or_else(|| Stop::Failed("a child without a process id".to_owned()))?;
        // The pipe's other end is ours alone (close-on-exec), so the read ends when we do.
        let watchdog = Command::new("sh")
            .args(["-c", "read -r _; kill -s KILL -- \"-$1\"", "watchdog"])
            .arg(child.id().to_string())
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .process_group(0)
            .spawn();
        match watchdog {
            Ok(watchdog) => Ok(Self { pid, watchdog }),
            Err(error) => {
                kill_all(pid);
                Err(format!("cannot run sh: {error}").into())
            }
        }
    }

    fn signal(&self, signal: Signal) {
        if let Err(error) = kill_process_group(self.pid, signal)
            && error != rustix::io::Errno::SRCH
        {
            println!("cannot signal process group {}: {error}", self.pid);
        }
    }

    /// Waits for the group's leader to end, without reaping it (so its id stays ours to kill).
    fn wait(&self, limit: Duration) -> Done<bool> {
        let end = Instant::now() + limit;
        let look = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT | WaitIdOptions::NOHANG;
        loop {
            let seen = waitid(WaitId::Pid(self.pid), look)
                .map_err(std::io::Error::from)
                .doing("cannot wait for a child")?;
            if seen.is_some() {
                return Ok(true);
            }
            if Instant::now() >= end {
                return Ok(false);
            }
            std::thread::sleep(LOOK_AGAIN);
        }
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        self.signal(Signal::KILL);
        if let Err(error) = self.watchdog.kill().and_then(|()| self.watchdog.wait()) {
            println!("cannot end a watchdog: {error}");
        }
    }
}

fn kill_all(pid: Pid) {
    if let Err(error) = kill_process_group(pid, Signal::KILL) {
        println!("cannot kill process group {pid}: {error}");
    }
}

/// Reads lines until nobody can write any more, on a thread of its own.
fn each_line(
    from: impl Read + Send + 'static,
    mut take: impl FnMut(String) + Send + 'static,
) -> JoinHandle<()> {
    std::thread::spawn(move || {
        let mut from = BufReader::new(from);
        let mut line = Vec::new();
        // A pipe whose writers are gone reads as its end; an error is the same end.
        while from.read_until(b'\n', &mut line).is_ok_and(|read| read > 0) {
            take(String::from_utf8_lossy(&line).trim_end().to_owned());
            line.clear();
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sh(script: &str) -> Run {
        Run::new("sh").args(["-c", script]).quiet()
    }

    #[test]
    fn a_command_gives_its_lines_and_its_status() {
        assert_eq!(sh("echo one; echo two >&2").check().unwrap().len(), 2);
        let stop = sh("exit 3").check().unwrap_err().to_string();
        assert!(stop.contains("exit status: 3"), "{stop}");
    }

    #[test]
    fn a_command_past_its_limit_is_killed_with_its_children() {
        let stop = sh("sleep 600 & sleep 600").limit(Duration::from_millis(50)).check();
        assert!(stop.unwrap_err().to_string().contains("did not end within"));
    }

    #[test]
    fn what_a_command_leaves_running_is_killed_when_it_ends() {
        // The one left behind holds the pipe: were it not killed, this would never end.
        assert_eq!(sh("sleep infinity & echo begun").check().unwrap(), ["begun"]);
    }

    #[test]
    fn what_goes_on_for_ever_is_killed_when_it_has_told_enough() {
        let two = |lines: &[String]| lines.len() == 2;
        sh("echo one; echo two; sleep infinity").until(two).unwrap();
        let ended = sh("echo one").until(two).unwrap_err().to_string();
        assert!(ended.ends_with("ended, and told only:\none"), "{ended}");
        let late = sh("echo one; sleep infinity").limit(Duration::from_millis(50)).until(two);
        assert!(late.unwrap_err().to_string().contains("told no more in time than"));
    }

    #[test]
    fn the_watchdog_kills_the_group_when_this_process_is_gone() {
        let mut child = Command::new("sleep").arg("600").process_group(0).spawn().unwrap();
        let mut group = Group::of(&child).unwrap();
        // What the kernel does with our end of the pipe when we die.
        drop(group.watchdog.stdin.take());
        assert!(group.wait(Duration::from_mins(1)).unwrap());
        assert!(!child.wait().unwrap().success());
    }
}
