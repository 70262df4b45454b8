//! The embedding face: a broker in the caller's process.

#[cfg(feature = "sim")]
pub(crate) mod sim;
mod start;
mod stop;

use std::fmt;
use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::mpsc::{self, Receiver};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use ottla_protocol::ErrorCode;
use tokio::runtime::Runtime;
use tokio::sync::watch;

use crate::config::BrokerConfig;
use crate::driver::controller::NewTopic;
use crate::driver::folder::FolderError;
use crate::driver::partition::Partition;
use crate::driver::writer::Writer;
use crate::node::{Node, Phase};
use crate::server::counts::ReadStats;

/// The longest deadline of a stop: as good as none, and no sum of times wraps.
const STOP_DEADLINE_MAX: Duration = Duration::from_hours(365 * 24);

/// The deadline of a stop by [`Drop`].
const DROP_DEADLINE: Duration = Duration::from_secs(1);

/// How long [`Broker::create_topic`] waits for its topic.
const CREATE_DEADLINE: Duration = Duration::from_secs(30);

/// Why a broker does not start, or does not do what it is asked.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum BrokerError {
    /// The data folder is in use by another broker, in this process or another.
    FolderInUse(PathBuf),
    /// The data folder cannot be used; the text says why.
    Folder(String),
    /// The address cannot be listened on.
    Address {
        /// The address.
        address: String,
        /// What the system said.
        reason: String,
    },
    /// The system gave no thread or no other resource.
    System(String),
    /// The topic cannot be created.
    Topic {
        /// Kafka's error code.
        code: i16,
        /// Why.
        reason: String,
    },
    /// The broker was stopped before.
    Stopped,
    /// The broker did not stop in good order; the next start will check its logs.
    Unclean(String),
}

impl fmt::Display for BrokerError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::FolderInUse(path) => write!(
                out,
                "the data folder {} is in use by another broker; stop that one or use another \
                 folder",
                path.display()
            ),
            Self::Folder(reason) | Self::System(reason) => out.write_str(reason),
            Self::Address { address, reason } => {
                write!(out, "cannot listen on {address}: {reason}")
            }
            Self::Topic { reason, .. } => write!(out, "the topic cannot be created: {reason}"),
            Self::Stopped => out.write_str("the broker is stopped"),
            Self::Unclean(reason) => write!(out, "the broker did not stop cleanly: {reason}"),
        }
    }
}

impl std::error::Error for BrokerError {}

impl From<FolderError> for BrokerError {
    fn from(error: FolderError) -> Self {
        match error {
            FolderError::InUse(path) => Self::FolderInUse(path),
            FolderError::Unusable(reason) => Self::Folder(reason),
        }
    }
}

/// A running broker. Dropped, it stops within a second.
#[derive(Debug)]
pub struct Broker {
    address: SocketAddr,
    node: Arc<Node>,
    running: Mutex<Option<Running>>,
}

/// What ends with a broker.
#[derive(Debug)]
struct Running {
    phase: watch::Sender<Phase>,
    runtime: Runtime,
    /// Ends when the last connection has ended.
    served: Receiver<()>,
    writer: Writer,
}

impl Broker {
    /// Starts a broker; it serves when this returns.
    ///
    /// An error if the data folder is in use or not ours, or if the address is taken.
    pub fn start(config: BrokerConfig) -> Result<Self, BrokerError> {
        start::start(&config)
    }

    /// The address that it listens on.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// `HOST:PORT` for clients of this machine: the value for `bootstrap.servers`.
    pub fn bootstrap(&self) -> String {
        let mut address = self.address;
        if address.ip().is_unspecified() {
            let loopback = match address {
                SocketAddr::V4(_) => Ipv4Addr::LOCALHOST.into(),
                SocketAddr::V6(_) => Ipv6Addr::LOCALHOST.into(),
            };
            address.set_ip(loopback);
        }
        address.to_string()
    }

    /// By which ways records went to clients so far.
    pub fn read_stats(&self) -> ReadStats {
        self.node.reads.stats()
    }

    /// The cluster's id, which a data folder keeps.
    pub fn cluster_id(&self) -> String {
        self.node.cluster_id.to_string()
    }

    /// Creates a topic; its partitions can be produced to when this returns.
    pub fn create_topic(&self, name: &str, partitions: i32) -> Result<(), BrokerError> {
        if self.node.is_stopping() {
            return Err(BrokerError::Stopped);
        }
        let topic = NewTopic {
            name: name.to_owned(),
            partitions,
            replication_factor: -1,
            configs: Vec::new(),
        };
        let (created, outcome) = mpsc::sync_channel(1);
        let done = Box::new(move |result| {
            // The caller may have given up.
            let _given_up = created.send(result).is_err();
        });
        self.node.controller.create_topic(&self.node, topic, done);
        match outcome.recv_timeout(CREATE_DEADLINE) {
            Ok(Ok(())) => Ok(()),
            Ok(Err(refused)) => {
                Err(BrokerError::Topic { code: refused.code.0, reason: refused.message })
            }
            Err(mpsc::RecvTimeoutError::Timeout) => {
                let seconds = CREATE_DEADLINE.as_secs();
                let reason = format!("it was not there after {seconds} s");
                Err(BrokerError::Topic { code: ErrorCode::REQUEST_TIMED_OUT.0, reason })
            }
            Err(mpsc::RecvTimeoutError::Disconnected) => Err(BrokerError::Stopped),
        }
    }

    /// What a face gives [`Broker::stop`] when its program names no time: 5 s.
    pub const STOP_DEADLINE: Duration = Duration::from_secs(5);

    /// Stops: answers what is open, flushes and closes the logs. A second call does nothing.
    ///
    /// Past the deadline connections are cut and logs are left as they are. An error if the next start will have to check the
    /// logs.
    pub fn stop(&self, deadline: Duration) -> Result<(), BrokerError> {
        let running = self.running.lock().unwrap_or_else(PoisonError::into_inner).take();
        let Some(running) = running else { return Ok(()) };
        let deadline = self.node.clock.now() + deadline.min(STOP_DEADLINE_MAX);
        stop::stop(&self.node, running, deadline)
    }
}

#[cfg(test)]
impl Broker {
    /// What is inside, for tests that break it.
    pub(crate) fn node(&self) -> &Arc<Node> {
        &self.node
    }
}

impl Drop for Broker {
    fn drop(&mut self) {
        // Told in the log; nobody is here to be told otherwise.
        let _unclean = self.stop(DROP_DEADLINE).is_err();
    }
}

fn system(error: io::Error) -> BrokerError {
    BrokerError::System(error.to_string())
}

fn all_partitions(node: &Node) -> Vec<Arc<Partition>> {
    let topics = node.topics.load();
    let mut all: Vec<_> = topics.iter().flat_map(|topic| topic.partitions.clone()).collect();
    all.push(node.metadata_log.clone());
    all
}
