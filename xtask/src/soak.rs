//! `cargo xtask soak`: our client in use for hours, on a broker that is killed and started again.

use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;
use std::process::{Command, ExitCode};
use std::time::Duration;

use crate::outcome::{Count, Done};
use crate::process::Run;
use crate::results;
use crate::workspace::Workspace;

/// What the test is told: so short that growth is not judged, which needs time. One seed, and so
/// the same faults each time; the rate is no burden to what runs beside it.
const SHORT: [&str; 4] = ["minutes=0.2", "rate=5000", "seed=1", "every=4"];
/// Longest the test may take. The program gives up before, and says what hangs.
const LIMIT: Duration = Duration::from_mins(15);

/// The program and the broker, built.
struct Stage {
    program: PathBuf,
    words: [String; 2],
}

impl Stage {
    fn build(workspace: &Workspace) -> Done<Self> {
        let build = workspace.cargo("build").args(["--release", "--package", "ottla-examples"]);
        let build = build.args(["--package", "ottla-broker"]);
        build.args(["--bin", "soak", "--bin", "ottla-broker"]).check()?;
        let release = workspace.target.join("release");
        let folder = workspace.cache("soak")?.join(std::process::id().to_string());
        let words = [
            format!("broker={}", release.join("ottla-broker").display()),
            format!("folder={}", folder.display()),
        ];
        Ok(Self { program: release.join("soak"), words })
    }
}

/// Runs it in this process's place, so that Ctrl-C is for the program, which ends in order.
pub(crate) fn run(workspace: &Workspace, words: &[&str]) -> Done<ExitCode> {
    let stage = Stage::build(workspace)?;
    let words = words.iter().map(|word| match word.parse::<f64>() {
        Ok(_) => format!("minutes={word}"),
        Err(_) => (*word).to_owned(),
    });
    let error = Command::new(&stage.program).args(stage.words).args(words).exec();
    Err(format!("cannot run {}: {error}", stage.program.display()).into())
}

/// Its own tests, and a short run.
pub(crate) fn test(workspace: &Workspace) -> Done<Count> {
    let tests = workspace.cargo("test").args(["--package", "ottla-examples", "--bins"]).finish()?;
    let mut total = results::settle(&tests, results::cargo_test)?;
    let stage = Stage::build(workspace)?;
    let run = Run::new(&stage.program).args(stage.words).args(SHORT).limit(LIMIT);
    total += results::settle(&run.finish()?, results::plain)?;
    Ok(total)
}
