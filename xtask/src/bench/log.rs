//! `bench log`: the ways in which a log's bytes could be written and sent, and what each costs.

use super::Runs;
use crate::outcome::{Done, Stop};
use crate::process::Run;
use crate::workspace::Workspace;

/// A way, and the figures of its runs.
#[derive(Debug)]
struct Way {
    /// Whether bytes are written or sent by it.
    what: String,
    name: String,
    /// MiB a second.
    rate: Runs,
    /// µs of CPU a MiB.
    cpu: Runs,
}

pub(super) fn run(workspace: &Workspace) -> Done {
    let build = ["--release", "--package", "ottla-storage", "--example", "log_ways"];
    workspace.cargo("build").args(build).check()?;
    let scratch = workspace.scratch("bench")?;
    let program = workspace.target.join("release/examples/log_ways");
    let lines = Run::new(&program).arg(scratch.path()).silent().check()?;
    let ways = ways(&lines)?;
    let runs = ways.first().map_or(0, |way| way.rate.0.len());
    println!("\n256 MiB, {runs} runs, the ways in turn; median (least–greatest)");
    for (what, title) in [
        ("write", "written to a new file, in the page cache"),
        ("send", "sent from the page cache to a socket on this machine"),
    ] {
        println!("\n{title:<54}{:>26}{:>26}", "MiB/s", "CPU, µs/MiB");
        for way in ways.iter().filter(|way| way.what == what) {
            println!("{:<54}{:>26}{:>26}", way.name, way.rate.shown(0), way.cpu.shown(0));
        }
    }
    Ok(())
}

/// What the program printed, by ways, in the order of their first runs.
fn ways(lines: &[String]) -> Done<Vec<Way>> {
    let mut ways: Vec<Way> = Vec::new();
    for line in lines {
        let words: Vec<&str> = line.split('\t').collect();
        let [what, name, rate, cpu] = words.as_slice() else {
            return Err(format!("not a run: {line:?}").into());
        };
        let figure = |text: &str| {
            let parsed = text.parse::<f64>();
            parsed.map_err(|error| Stop::Failed(format!("{line:?}: {error}")))
        };
        let (rate, cpu) = (figure(rate)?, figure(cpu)?);
        match ways.iter_mut().find(|way| way.what == *what && way.name == *name) {
            Some(way) => {
                way.rate.add(rate);
                way.cpu.add(cpu);
            }
            None => ways.push(Way {
                what: (*what).to_owned(),
                name: (*name).to_owned(),
                rate: Runs(vec![rate]),
                cpu: Runs(vec![cpu]),
            }),
        }
    }
    if ways.is_empty() {
        return Err("the program printed no run".into());
    }
    Ok(ways)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_of_one_way_come_together_and_a_line_that_is_none_is_an_error() {
        let line = |text: &str| text.to_owned();
        let lines = [line("write\ta\t1.0\t10"), line("send\ta\t2\t20"), line("write\ta\t3\t30")];
        let found = ways(&lines).unwrap();
        assert_eq!(found.len(), 2);
        assert_eq!(
            (found[0].rate.shown(0), found[0].cpu.shown(0)),
            ("3 (1–3)".into(), "30 (10–30)".into())
        );
        assert!(ways(&[line("write\ta\t1.0")]).is_err());
        assert!(ways(&[line("write\ta\tfast\t1")]).is_err());
        assert!(ways(&[]).is_err());
    }
}
