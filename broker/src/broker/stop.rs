//! How a broker ends: what is open is answered, the logs are closed, and the marker comes last.

use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use tokio::runtime::Runtime;

use super::{BrokerError, Running, all_partitions};
use crate::driver::signals::Blocked;
use crate::driver::writer::Writer;
use crate::node::{Node, Phase};

/// What a stop may take past its deadline, to say how it ended.
const GRACE: Duration = Duration::from_millis(100);

/// Stops within the deadline, or tells that it goes on without its caller.
///
/// On a thread of its own: a disk that hangs in a flush cannot be hurried, and the caller's thread
/// may belong to another runtime, where waiting for ours is not allowed.
pub(super) fn stop(
    node: &Arc<Node>,
    running: Running,
    deadline: Instant,
) -> Result<(), BrokerError> {
    let running = Arc::new(Mutex::new(Some(running)));
    let (tell, told) = mpsc::sync_channel(1);
    let (stopping, taken) = (node.clone(), running.clone());
    let take = |running: &Mutex<Option<Running>>| {
        running.lock().unwrap_or_else(PoisonError::into_inner).take()
    };
    // Without it a signal would still be handled somewhere: on that thread, too.
    let blocked = Blocked::all();
    let spawned = thread::Builder::new().name("ottla-broker-stop".into()).spawn(move || {
        if let Some(running) = take(&taken) {
            let stopped = stop_all(&stopping, running, deadline);
            // The caller may have given up.
            let _late = tell.send(stopped).is_err();
        }
    });
    drop(blocked);
    if let Err(error) = spawned {
        tracing::warn!(%error, "no thread for the stop, which takes its caller's");
        return take(&running).map_or(Ok(()), |running| stop_all(node, running, deadline));
    }
    let left = deadline.saturating_duration_since(node.clock.now());
    match told.recv_timeout(left + GRACE) {
        Ok(stopped) => stopped,
        Err(RecvTimeoutError::Timeout) => {
            let reason = "the disk is still busy past the deadline; the folder stays locked \
                          until it is done";
            Err(BrokerError::Unclean(reason.to_owned()))
        }
        Err(RecvTimeoutError::Disconnected) => {
            Err(BrokerError::Unclean("the stop broke off".to_owned()))
        }
    }
}

fn stop_all(node: &Arc<Node>, running: Running, deadline: Instant) -> Result<(), BrokerError> {
    let Running { phase, runtime, served, writer } = running;
    // Waiting fetches end, and connections take no new request.
    phase.send_replace(Phase::Stopping);
    node.coordinator.stop(node);
    let left = || deadline.saturating_duration_since(node.clock.now());
    let drained = served.recv_timeout(left()).is_ok();
    let closed = close_logs(node, writer, deadline).and_then(|()| {
        if drained {
            node.folder
                .write_marker(node.controller.broker_epoch())
                .map_err(|error| error.to_string())
        } else {
            Ok(false)
        }
    });
    end_runtime(runtime, left());
    let stopped = match closed {
        Ok(true) => Ok(()),
        Ok(false) if !drained => {
            Err(BrokerError::Unclean("connections were open past the deadline".to_owned()))
        }
        Ok(false) => Err(BrokerError::Unclean("a write had failed before".to_owned())),
        Err(reason) => Err(BrokerError::Unclean(reason)),
    };
    node.folder.unlock();
    let address = node.listener;
    let reads = node.reads.stats();
    tracing::debug!(%address, ?reads, "records were sent");
    match &stopped {
        Ok(()) => tracing::info!(%address, "broker stopped"),
        Err(error) => tracing::warn!(%address, %error, "broker stopped"),
    }
    stopped
}

/// Leaves the folder after a start that failed.
pub(super) fn give_up(node: &Node, writer: Writer) {
    let deadline = node.clock.now() + super::DROP_DEADLINE;
    if let Err(unclean) = close_logs(node, writer, deadline) {
        tracing::warn!(%unclean, "after a failed start");
    }
    node.folder.unlock();
}

/// Writes what is in the inboxes, then closes all logs and writes the checkpoints.
///
/// Past the deadline the other logs are left as they are: the next start checks them.
fn close_logs(node: &Node, writer: Writer, deadline: Instant) -> Result<(), String> {
    let partitions = all_partitions(node);
    for partition in &partitions {
        partition.refuse_work();
    }
    writer.finish();
    node.upkeep.end();
    let mut closed = Vec::new();
    let mut failed = None;
    for (at, partition) in partitions.iter().enumerate() {
        if node.clock.now() >= deadline {
            let left = partitions.len() - at;
            failed = Some(format!("the deadline passed with {left} logs yet to be closed"));
            break;
        }
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

/// Ends the runtime's threads.
fn end_runtime(runtime: Runtime, left: Duration) {
    if tokio::runtime::Handle::try_current().is_ok() {
        // No thread was to be had for the stop, and waiting is not allowed on this one.
        runtime.shutdown_background();
    } else {
        runtime.shutdown_timeout(left.max(GRACE));
    }
}
