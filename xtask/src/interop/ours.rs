//! Our broker as a process of its own.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use crate::outcome::{Doing, Done, Stop};
use crate::process::{LOOK_AGAIN, Run, Service};
use crate::workspace::{Workspace, read};

const READY_LIMIT: Duration = Duration::from_secs(30);
const STOP_LIMIT: Duration = Duration::from_secs(15);

/// A running `ottla-broker`. It ends when the value is dropped.
#[derive(Debug)]
pub(crate) struct OurBroker {
    service: Service,
    address: SocketAddr,
}

/// Which build of the program to run.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Profile {
    Dev,
    Release,
}

impl OurBroker {
    /// Builds the program and gives its path.
    pub(crate) fn build(workspace: &Workspace, profile: Profile) -> Done<PathBuf> {
        let build = workspace.cargo("build").args(["--package", "ottla-broker", "--bins"]);
        let (build, folder) = match profile {
            Profile::Dev => (build, "debug"),
            Profile::Release => (build.arg("--release"), "release"),
        };
        build.check()?;
        Ok(workspace.target.join(folder).join("ottla-broker"))
    }

    /// Starts it on a free port with its data under `dir`, and waits until it serves.
    pub(crate) fn start(program: &Path, dir: &Path, options: &[&str]) -> Done<Self> {
        let ready = dir.join("ready");
        if ready.exists() {
            // Left by an earlier life, whose port it names.
            std::fs::remove_file(&ready).doing("cannot remove the old ready file")?;
        }
        let run = Run::new(program).args(["--listen", "127.0.0.1:0", "--data"]);
        let run = run.arg(dir.join("data")).arg("--ready-file").arg(&ready);
        let run = options.iter().fold(run, |run, option| run.args(["-c", option]));
        let mut service = run.start(&dir.join("broker.log"))?;
        let end = Instant::now() + READY_LIMIT;
        while !ready.is_file() {
            service.alive()?;
            if Instant::now() >= end {
                return Err(Stop::Failed(format!("the broker is not ready: {}", service.output())));
            }
            std::thread::sleep(LOOK_AGAIN);
        }
        let text = read(&ready)?;
        let address =
            text.trim().parse().map_err(|error| format!("ready file says {text:?}: {error}"))?;
        Ok(Self { service, address })
    }

    pub(crate) fn address(&self) -> String {
        self.address.to_string()
    }

    /// Stops it by SIGTERM; it must end with success.
    pub(crate) fn stop(self) -> Done {
        let status = self.service.stop(STOP_LIMIT)?;
        if status.success() {
            return Ok(());
        }
        Err(format!("the broker ended with {status} after SIGTERM").into())
    }
}
