//! `cargo xtask bench`: figures to read, never a test. Each stands beside a peer's of the same run.

mod broker;
mod clients;
mod first;
mod idle;
mod load;
mod log;
mod server;
mod start;

use std::path::Path;

use crate::outcome::{Done, Stop};
use crate::workspace::{Workspace, read};

type Bench = fn(&Workspace) -> Done;

const BENCHES: &[(&str, Bench)] = &[
    ("start", start::run),
    ("idle", idle::run),
    ("first-group-record", first::run),
    ("broker", broker::run),
    ("log", log::run),
];

/// Those that take words of their own.
const CLIENTS: [&str; 3] = ["produce", "consume", "latency"];

/// Runs one benchmark by name.
pub(crate) fn run(workspace: &Workspace, name: &str, words: &[&str]) -> Done {
    if CLIENTS.contains(&name) {
        return clients::run(workspace, name, words);
    }
    if let Some(word) = words.first() {
        return Err(format!("{name} takes no {word}").into());
    }
    if let Some((_, bench)) = BENCHES.iter().find(|(known, _)| *known == name) {
        return bench(workspace);
    }
    let names: Vec<&str> = BENCHES.iter().map(|(known, _)| *known).chain(CLIENTS).collect();
    Err(format!("no benchmark called {name}; there are: {}", names.join(", ")).into())
}

/// Memory of a process in MiB: resident, each shared page divided by those that share it (PSS).
fn memory(pid: u32) -> Done<f64> {
    let rollup = read(Path::new(&format!("/proc/{pid}/smaps_rollup")))?;
    let line = rollup.lines().find_map(|line| line.strip_prefix("Pss:"));
    let kib: Option<u32> = line.and_then(|line| line.trim().split(' ').next()?.parse().ok());
    kib.map(|kib| f64::from(kib) / 1_024.0)
        .ok_or_else(|| Stop::from("the kernel tells no proportional size"))
}

/// CPU time, in ns, that a process has used so far, user's and kernel's.
fn cpu(pid: u32) -> Done<f64> {
    // `proc_pid_stat(5)`: 14 and 15, counted from 1; the name before them may hold spaces.
    let stat = read(Path::new(&format!("/proc/{pid}/stat")))?;
    let after_name = stat.rsplit(") ").next().unwrap_or_default();
    let fields: Vec<&str> = after_name.split(' ').collect();
    let ticks = |at: usize| fields.get(at).and_then(|field| field.parse::<u32>().ok());
    let (Some(user), Some(kernel)) = (ticks(11), ticks(12)) else {
        return Err("the kernel tells no CPU time".into());
    };
    // The unit that the kernel shows is always 1/100 s.
    Ok((f64::from(user) + f64::from(kernel)) * 10_000_000.0)
}

/// The figures of several runs.
#[derive(Debug, Default)]
struct Runs(Vec<f64>);

impl Runs {
    fn add(&mut self, figure: f64) {
        self.0.push(figure);
    }

    /// `median (least–greatest)`.
    fn shown(&self, decimals: usize) -> String {
        let mut sorted = self.0.clone();
        sorted.sort_by(f64::total_cmp);
        let (Some(least), Some(most), Some(median)) =
            (sorted.first(), sorted.last(), sorted.get(sorted.len() / 2))
        else {
            return "none".to_owned();
        };
        format!("{median:.decimals$} ({least:.decimals$}–{most:.decimals$})")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_are_shown_by_their_median_and_their_ends() {
        assert_eq!(Runs(vec![3.0, 1.0, 2.25]).shown(1), "2.2 (1.0–3.0)");
        assert_eq!(Runs::default().shown(0), "none");
    }

    #[test]
    fn this_process_has_used_memory_and_its_cpu_never_falls() {
        let pid = std::process::id();
        assert!(memory(pid).unwrap() > 0.1);
        let before = cpu(pid).unwrap();
        assert!(cpu(pid).unwrap() >= before);
    }
}
