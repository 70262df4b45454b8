//! The servers that are measured: ours and Apache Kafka, each on a data folder of its own.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use crate::interop::{Kafka, OurBroker, Profile, wait_until_it_answers};
use crate::outcome::Done;
use crate::process::{Run, Service};
use crate::workspace::{Scratch, Workspace, free_port};

const READY_LIMIT: Duration = Duration::from_mins(1);

/// What a server is started from.
#[derive(Clone, Debug)]
pub(super) enum Program {
    /// Our program, in its release build.
    Ours(PathBuf),
    /// The class path of Apache Kafka.
    Kafka(PathBuf),
}

impl Program {
    /// Both, ours first.
    pub(super) fn both(workspace: &Workspace) -> Done<[Self; 2]> {
        let ours = OurBroker::build(workspace, Profile::Release)?;
        Ok([Self::Ours(ours), Self::Kafka(Kafka::fetch(workspace)?)])
    }

    pub(super) fn name(&self) -> &'static str {
        match self {
            Self::Ours(_) => "ottla-broker",
            Self::Kafka(_) => "Apache Kafka 4.4.0",
        }
    }

    /// The name in a filter.
    pub(super) fn word(&self) -> &'static str {
        match self {
            Self::Ours(_) => "ottla",
            Self::Kafka(_) => "kafka",
        }
    }
}

/// A server's data folder and address, over all its lives.
#[derive(Debug)]
pub(super) struct Home {
    program: Program,
    scratch: Scratch,
    address: SocketAddr,
}

impl Home {
    /// An empty one.
    pub(super) fn new(workspace: &Workspace, program: &Program) -> Done<Self> {
        let scratch = workspace.scratch("bench")?;
        let address = match program {
            Program::Ours(_) => SocketAddr::from((Ipv4Addr::LOCALHOST, free_port()?)),
            Program::Kafka(classes) => Kafka::format(classes, scratch.path())?,
        };
        Ok(Self { program: program.clone(), scratch, address })
    }

    /// The same, of which Kafka has these settings too, as `name=value`.
    pub(super) fn with_settings(
        workspace: &Workspace,
        program: &Program,
        kafka: &[&str],
    ) -> Done<Self> {
        let home = Self::new(workspace, program)?;
        if matches!(program, Program::Kafka(_)) {
            Kafka::configure(home.scratch.path(), kafka)?;
        }
        Ok(home)
    }

    pub(super) fn name(&self) -> &'static str {
        self.program.name()
    }

    /// Starts the server; tells too how long it took from exec to the first answer.
    pub(super) fn start(&self) -> Done<(Server, Duration)> {
        let dir = self.scratch.path();
        match &self.program {
            Program::Ours(program) => {
                let run = Run::new(program).arg("--listen").arg(self.address.to_string());
                let run = run.arg("--data").arg(dir.join("data"));
                let begin = Instant::now();
                let mut service = run.start(&dir.join("broker.log"))?;
                wait_until_it_answers(&mut service, self.address, READY_LIMIT)?;
                Ok((Server::Ours(service, self.address), begin.elapsed()))
            }
            Program::Kafka(classes) => {
                let (kafka, took) = Kafka::launch(classes, dir, self.address)?;
                Ok((Server::Kafka(kafka), took))
            }
        }
    }
}

/// A running server. It ends when the value is dropped.
#[derive(Debug)]
pub(super) enum Server {
    Ours(Service, SocketAddr),
    Kafka(Kafka),
}

impl Server {
    pub(super) fn address(&self) -> String {
        match self {
            Self::Ours(_, address) => address.to_string(),
            Self::Kafka(kafka) => kafka.address(),
        }
    }

    pub(super) fn pid(&self) -> u32 {
        match self {
            Self::Ours(service, _) => service.pid(),
            Self::Kafka(kafka) => kafka.pid(),
        }
    }

    /// Stops it by SIGTERM; figures of a server that ended otherwise are none.
    pub(super) fn stop(self) -> Done {
        match self {
            Self::Ours(service, _) => {
                let status = service.stop(READY_LIMIT)?;
                if status.success() {
                    return Ok(());
                }
                Err(format!("the broker ended with {status} after SIGTERM").into())
            }
            Self::Kafka(kafka) => kafka.stop(),
        }
    }
}
