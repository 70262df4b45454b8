//! How a broker begins: its folder, its logs, and the threads that serve.
//!
//! Nothing here waits for a disk to flush. What a start writes is answered to nobody: it becomes
//! durable on the writer's thread, before the first append that somebody waits for.

use std::collections::HashSet;
use std::io;
use std::net::{SocketAddr, TcpListener, ToSocketAddrs};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{self, Receiver};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use tokio::runtime::Runtime;
use tokio::sync::watch;
use tokio::task::JoinSet;

use super::{Broker, BrokerError, Running, all_partitions, stop, system};
use crate::config::{BrokerConfig, Settings, TopicConfig};
use crate::driver::aside::enlist_thread;
use crate::driver::clock::Clock;
use crate::driver::controller::Controller;
use crate::driver::coordinator::{self, Coordinator};
use crate::driver::folder::DataFolder;
use crate::driver::partition::{Partition, PartitionSetup};
use crate::driver::quorum;
use crate::driver::signals::Blocked;
use crate::driver::upkeep::{self, Upkeep};
use crate::driver::writer::{ReadyList, STACK_BYTES, Writer};
use crate::node::{METADATA_TOPIC, Node, Phase, Topics};
use crate::server::budget::RequestBudget;
use crate::server::buffers::Buffers;
use crate::server::counts::ReadCounts;
use crate::server::listener;
use crate::server::outbox::HeldBytes;
use crate::state::fetch_sessions::FetchSessions;

/// Kafka's id of the metadata log's topic: all zero but the last bit.
const METADATA_TOPIC_ID: ottla_protocol::Uuid =
    ottla_protocol::Uuid([0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1]);

/// Wait before timers that panicked run again, since they may do so again.
const TIMERS_PAUSE: Duration = Duration::from_secs(1);

/// Starts a broker; it serves when this returns.
pub(super) fn start(config: &BrokerConfig) -> Result<Broker, BrokerError> {
    let clock = Clock;
    let settings = config.settings();
    // Before the folder is touched: a taken address must not cost it its clean state.
    let (listener, address) = bind(config.listen_address())?;
    let folder = DataFolder::open(config.data(), &settings, clock)?;
    let folder = Arc::new(folder);
    let _blocked = Blocked::all().map_err(system)?;
    let ready = Arc::new(ReadyList::default());
    let (phase, watched) = watch::channel(Phase::Running);
    let node = Arc::new(new_node(settings, clock, folder, &ready, watched, address)?);
    let writer = Writer::start(ready.clone(), clock).map_err(system)?;
    match load(&node, &ready).and_then(|()| launch(&node, listener)) {
        Ok((runtime, served)) => {
            let running = Running { phase, runtime, served, writer };
            tracing::info!(%address, cluster = %node.cluster_id, "broker started");
            Ok(Broker { address, node, running: Mutex::new(Some(running)) })
        }
        Err(error) => {
            stop::give_up(&node, writer);
            Err(error)
        }
    }
}

pub(super) fn new_node(
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
    let metadata_log = Partition::new(PartitionSetup {
        topic: METADATA_TOPIC.into(),
        topic_id: METADATA_TOPIC_ID,
        index: 0,
        leader_epoch: 0,
        config: Arc::new(config),
        is_metadata: true,
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
        fetch_sessions: Mutex::new(FetchSessions::new(settings.fetch_session_slots)),
        upkeep: Upkeep::default(),
        requests: RequestBudget::new(settings.requests_bytes),
        answers: HeldBytes::default(),
        reads: ReadCounts::default(),
        buffers: Buffers::default(),
        phase,
        settings,
    })
}

/// Reads what the logs tell; after an unclean stop, all of them.
pub(super) fn load(node: &Arc<Node>, ready: &ReadyList) -> Result<(), BrokerError> {
    elect(node).map_err(BrokerError::Folder)?;
    node.controller.load(node).map_err(BrokerError::Folder)?;
    let settling = node.clone();
    ready.settle(move || settle(&settling));
    if !node.folder.is_clean() {
        check_logs(node);
    }
    node.coordinator.load(node);
    Ok(())
}

/// Elects the quorum's one voter, in an epoch later than all that the folder tells of.
///
/// The vote alone does not do: it is written behind, and a process can end in between. No other
/// broker votes, so what counts is that no epoch is used twice, and the log keeps them all.
fn elect(node: &Node) -> Result<(), String> {
    let voted = quorum::voted_epoch(node.folder.files(), node.folder.dir())?;
    let log = node.metadata_log.log().map_err(|error| error.to_string())?;
    let last = log.latest_epoch().unwrap_or(0).max(voted);
    let epoch = last.checked_add(1).ok_or("the quorum's epochs are used up")?;
    node.metadata_log.lead(epoch);
    Ok(())
}

/// Makes durable what the start wrote: a power cut before this is over takes the folder back to
/// what it was before the start. On the writer's thread.
///
/// So whatever is appended later comes after the vote, after the new leader epochs of partitions
/// (KIP-320), and after the end of the marker of a clean stop (KAFKA-10471).
fn settle(node: &Node) {
    let settled = catch_unwind(AssertUnwindSafe(|| {
        let folder = &node.folder;
        folder.settle()?;
        let epoch = node.metadata_log.leader_epoch();
        quorum::store(folder.files(), folder.dir(), node.node_id, epoch)
            .map_err(|error| format!("{}: the vote: {error}", folder.dir().display()))?;
        node.metadata_log.settle().map_err(|error| error.to_string())
    }));
    match settled {
        Ok(Ok(())) => {}
        // A flush that failed is not tried again: the second may succeed with the data gone.
        Ok(Err(why)) => node.folder.fail(format!("the start cannot be made durable: {why}").into()),
        Err(_panic) => node.folder.fail("the writer panicked over what the start wrote".into()),
    }
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
        reason: format!("{error}{}", advice(error.kind())),
    })
}

/// What a person can do about an address that is not listened on.
const fn advice(kind: io::ErrorKind) -> &'static str {
    match kind {
        io::ErrorKind::InvalidInput => "; it takes HOST:PORT, such as 127.0.0.1:9092",
        io::ErrorKind::AddrInUse => {
            "; another program listens there: stop that one or name another port, 0 for a free one"
        }
        io::ErrorKind::AddrNotAvailable => "; no interface of this machine has that address",
        _ => "",
    }
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
        .on_thread_start(enlist_thread)
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
    runtime.spawn(run_timers(node.clone()));
    runtime.spawn(upkeep::run(node.clone()));
    Ok((runtime, served))
}

/// Runs the timers of the groups, again after a panic: without them no session would ever end.
pub(super) async fn run_timers(node: Arc<Node>) {
    let mut timers = JoinSet::new();
    while !node.is_stopping() {
        timers.spawn(coordinator::run(node.clone()));
        if let Some(Err(error)) = timers.join_next().await {
            tracing::error!(%error, "the timers of the groups panicked and are started again");
            node.clock.sleep_until(node.clock.now() + TIMERS_PAUSE).await;
        }
    }
}
