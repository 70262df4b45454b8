//! The embedding face: a broker in the caller's process.

use std::collections::HashSet;
use std::fmt;
use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, ToSocketAddrs};
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{self, Receiver};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use ottla_protocol::ErrorCode;
use tokio::runtime::Runtime;
use tokio::sync::watch;

use crate::config::{BrokerConfig, Settings, TopicConfig};
use crate::driver::clock::Clock;
use crate::driver::controller::{Controller, NewTopic};
use crate::driver::coordinator::{self, Coordinator};
use crate::driver::folder::{DataFolder, FolderError};
use crate::driver::partition::{Partition, PartitionSetup};
use crate::driver::quorum;
use crate::driver::signals::Blocked;
use crate::driver::writer::{ReadyList, STACK_BYTES, Writer};
use crate::node::{METADATA_TOPIC, Node, Phase, Topics};
use crate::server::budget::RequestBudget;
use crate::server::buffers::Buffers;
use crate::server::listener;

/// The deadline of a stop by [`Drop`].
const DROP_DEADLINE: Duration = Duration::from_secs(1);

/// How long [`Broker::create_topic`] waits for its topic.
const CREATE_DEADLINE: Duration = Duration::from_secs(30);

/// Kafka's id of the metadata log's topic: all zero but the last bit.
const METADATA_TOPIC_ID: ottla_protocol::Uuid =
    ottla_protocol::Uuid([0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1]);

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
        let clock = Clock;
        let settings = config.settings();
        // Before the folder is touched: a taken address must not cost it its clean state.
        let (listener, address) = bind(config.listen_address())?;
        let folder = DataFolder::open(config.data(), settings.node_id, clock)?;
        let folder = Arc::new(folder);
        let _blocked = Blocked::all().map_err(system)?;
        let ready = Arc::new(ReadyList::default());
        let (phase, watched) = watch::channel(Phase::Running);
        let node = Arc::new(new_node(settings, clock, folder, &ready, watched, address)?);
        let writer = Writer::start(ready, clock).map_err(system)?;
        match load(&node).and_then(|()| launch(&node, listener)) {
            Ok((runtime, served)) => {
                let running = Running { phase, runtime, served, writer };
                tracing::info!(%address, cluster = %node.cluster_id, "broker started");
                Ok(Self { address, node, running: Mutex::new(Some(running)) })
            }
            Err(error) => {
                if let Err(unclean) = close_logs(&node, writer) {
                    tracing::warn!(%unclean, "after a failed start");
                }
                node.folder.unlock();
                Err(error)
            }
        }
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

    /// Stops: answers what is open, flushes and closes the logs. A second call does nothing.
    ///
    /// Past the deadline connections are cut. An error if the next start will have to check the
    /// logs.
    pub fn stop(&self, deadline: Duration) -> Result<(), BrokerError> {
        let running = self.running.lock().unwrap_or_else(PoisonError::into_inner).take();
        let Some(running) = running else { return Ok(()) };
        let deadline = self.node.clock.now() + deadline;
        let stopped = stop(&self.node, running, deadline);
        self.node.folder.unlock();
        match &stopped {
            Ok(()) => tracing::info!(address = %self.address, "broker stopped"),
            Err(error) => tracing::warn!(address = %self.address, %error, "broker stopped"),
        }
        stopped
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

fn new_node(
    settings: Settings,
    clock: Clock,
    folder: Arc<DataFolder>,
    ready: &Arc<ReadyList>,
    phase: watch::Receiver<Phase>,
    listener: SocketAddr,
) -> Result<Node, BrokerError> {
    let segment_bytes = settings.metadata_segment_bytes.to_string();
    // The quorum's one voter is all the replicas that the log has.
    let own = [("segment.bytes", segment_bytes.as_str()), ("min.insync.replicas", "1")];
    let config = TopicConfig::resolve(&settings, own)
        .map_err(|error| BrokerError::System(error.to_string()))?;
    let epoch = quorum::elect(folder.files(), folder.dir(), settings.node_id)
        .map_err(BrokerError::Folder)?;
    let metadata_log = Partition::new(PartitionSetup {
        topic: METADATA_TOPIC.into(),
        topic_id: METADATA_TOPIC_ID,
        index: 0,
        leader_epoch: epoch,
        config: Arc::new(config),
        sync_each_turn: true,
        folder: folder.clone(),
        ready: ready.clone(),
    });
    Ok(Node {
        node_id: settings.node_id,
        cluster_id: folder.cluster_id().into(),
        listener,
        clock,
        topics: Topics::new(folder.clone(), ready.clone()),
        folder,
        metadata_log,
        controller: Controller::new(),
        coordinator: Coordinator::new(),
        requests: RequestBudget::new(settings.requests_bytes),
        buffers: Buffers::default(),
        phase,
        settings,
    })
}

/// Reads what the logs tell; after an unclean stop, all of them.
fn load(node: &Arc<Node>) -> Result<(), BrokerError> {
    node.controller.load(node).map_err(BrokerError::Folder)?;
    if !node.folder.is_clean() {
        check_logs(node);
    }
    node.coordinator.load(node);
    Ok(())
}

/// Opens every log that is there, and so checks it. A broken one is told and stays offline; the
/// others are served.
fn check_logs(node: &Node) {
    let there: HashSet<(String, i32)> = node.folder.partitions().into_iter().collect();
    for partition in all_partitions(node) {
        if there.contains(&(partition.topic().to_string(), partition.index()))
            && let Err(error) = partition.log()
        {
            let (topic, index) = (partition.topic(), partition.index());
            tracing::error!(%topic, index, %error, "the partition is offline");
        }
    }
}

fn all_partitions(node: &Node) -> Vec<Arc<Partition>> {
    let topics = node.topics.load();
    let mut all: Vec<_> = topics.iter().flat_map(|topic| topic.partitions.clone()).collect();
    all.push(node.metadata_log.clone());
    all
}

fn bind(address: &str) -> Result<(TcpListener, SocketAddr), BrokerError> {
    let bound = || {
        // A port alone is meant for all interfaces, as in Kafka's listeners.
        let resolved: Vec<SocketAddr> = if address.starts_with(':') {
            format!("0.0.0.0{address}").to_socket_addrs()?.collect()
        } else {
            address.to_socket_addrs()?.collect()
        };
        let listener = TcpListener::bind(resolved.as_slice())?;
        listener.set_nonblocking(true)?;
        let local = listener.local_addr()?;
        Ok((listener, local))
    };
    bound().map_err(|error: io::Error| BrokerError::Address {
        address: address.to_owned(),
        reason: error.to_string(),
    })
}

/// Starts the threads that serve.
fn launch(node: &Arc<Node>, listener: TcpListener) -> Result<(Runtime, Receiver<()>), BrokerError> {
    let threads = match node.settings.io_threads {
        0 => thread::available_parallelism().map_or(1, |cores| cores.get().min(4)),
        threads => threads,
    };
    let number = AtomicUsize::new(0);
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(threads)
        .max_blocking_threads(4)
        .thread_stack_size(STACK_BYTES)
        .thread_name_fn(move || format!("ottla-broker-{}", number.fetch_add(1, Ordering::Relaxed)))
        .enable_io()
        .enable_time()
        .build()
        .map_err(system)?;
    let (last, served) = mpsc::sync_channel(1);
    let serving = node.clone();
    runtime.spawn(async move {
        if let Err(error) = listener::serve(serving, listener).await {
            tracing::error!(%error, "the listener failed");
        }
        // Nobody asks when the broker is stopped past its deadline.
        let _late = last.send(()).is_err();
    });
    runtime.spawn(coordinator::run(node.clone()));
    Ok((runtime, served))
}

fn stop(node: &Arc<Node>, running: Running, deadline: Instant) -> Result<(), BrokerError> {
    let Running { phase, runtime, served, writer } = running;
    // Waiting fetches end, and connections take no new request.
    phase.send_replace(Phase::Stopping);
    node.coordinator.stop(node);
    let left = || deadline.saturating_duration_since(node.clock.now());
    let drained = served.recv_timeout(left()).is_ok();
    let closed = close_logs(node, writer).and_then(|()| {
        if drained {
            node.folder
                .write_marker(node.controller.broker_epoch())
                .map_err(|error| error.to_string())
        } else {
            Ok(false)
        }
    });
    end_runtime(runtime, left());
    match closed {
        Ok(true) => Ok(()),
        Ok(false) if !drained => {
            Err(BrokerError::Unclean("connections were open past the deadline".to_owned()))
        }
        Ok(false) => Err(BrokerError::Unclean("a write had failed before".to_owned())),
        Err(reason) => Err(BrokerError::Unclean(reason)),
    }
}

/// Writes what is in the inboxes, then closes all logs and writes the checkpoints.
fn close_logs(node: &Arc<Node>, writer: Writer) -> Result<(), String> {
    let partitions = all_partitions(node);
    for partition in &partitions {
        partition.refuse_work();
    }
    writer.finish();
    let mut closed = Vec::new();
    let mut failed = None;
    for partition in &partitions {
        match partition.close() {
            Ok(Some(log)) => closed.push((partition.topic().clone(), partition.index(), log)),
            Ok(None) => {}
            Err(error) => {
                let name = format!("{}-{}", partition.topic(), partition.index());
                failed = Some(format!("{name}: {error}"));
            }
        }
    }
    let written = node.folder.write_checkpoints(&closed).map_err(|error| error.to_string());
    failed.map_or(written, Err)
}

/// Ends the runtime's threads. From a thread of its own, since the caller's may belong to another
/// runtime, where waiting is not allowed.
fn end_runtime(runtime: Runtime, left: Duration) {
    let ending = thread::Builder::new()
        .name("ottla-broker-stop".into())
        .spawn(move || runtime.shutdown_timeout(left.max(Duration::from_millis(100))));
    match ending {
        Ok(ending) => {
            if ending.join().is_err() {
                tracing::error!("the runtime did not end in good order");
            }
        }
        Err(error) => tracing::error!(%error, "no thread to end the runtime"),
    }
}
