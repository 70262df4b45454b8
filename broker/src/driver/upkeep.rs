//! What a broker does by itself in its data folder: old segments go, moved log starts and high
//! watermarks are noted, files that were set aside are removed.

use std::collections::HashSet;
use std::mem;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use ottla_storage::LogReader;
use tokio::sync::Notify;

use crate::driver::aside::aside;
use crate::driver::first::first;
use crate::driver::folder::Point;
use crate::driver::partition::{AppendError, Chore, Partition, StartAt, StartDone};
use crate::node::{Node, Topic};

/// So far ahead records may be dated without a warning: Kafka's default for what is taken.
const FUTURE_MS: i64 = 3_600_000;

/// What is to be done soon.
#[derive(Default)]
pub(crate) struct Upkeep {
    state: Mutex<State>,
    wake: Notify,
}

impl std::fmt::Debug for Upkeep {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("Upkeep").finish_non_exhaustive()
    }
}

#[derive(Default)]
struct State {
    /// Log starts that are to be made durable before anybody is told and anything is removed.
    moved: Vec<Moved>,
    /// Files that are set aside, to be removed.
    doomed: Vec<Doomed>,
    ended: bool,
}

struct Moved {
    partition: Arc<Partition>,
    start: i64,
    done: StartDone,
}

struct Doomed {
    at: Instant,
    files: Vec<PathBuf>,
}

impl Upkeep {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn note_moved(&self, moved: Moved) {
        {
            let mut state = self.state();
            if state.ended {
                drop(state);
                (moved.done)(Err(AppendError::Closed.into()));
                return;
            }
            state.moved.push(moved);
        }
        self.wake.notify_one();
    }

    fn note_doomed(&self, at: Option<Instant>, files: Vec<PathBuf>) {
        // Past the end of time is never; the next start removes them.
        let Some(at) = at.filter(|_| !files.is_empty()) else { return };
        self.state().doomed.push(Doomed { at, files });
        self.wake.notify_one();
    }

    /// The broker stops: nothing more is done. What waits is told so.
    pub(crate) fn end(&self) {
        let moved = {
            let mut state = self.state();
            state.ended = true;
            state.doomed.clear();
            mem::take(&mut state.moved)
        };
        for moved in moved {
            (moved.done)(Err(AppendError::Closed.into()));
        }
    }

    /// What is due at `now`, and when the next file is to be removed.
    fn take_due(&self, now: Instant) -> (Vec<Moved>, Vec<PathBuf>, Option<Instant>) {
        let mut state = self.state();
        let due = state.doomed.extract_if(.., |doomed| doomed.at <= now);
        let files = due.flat_map(|doomed| doomed.files).collect();
        let next = state.doomed.iter().map(|doomed| doomed.at).min();
        (mem::take(&mut state.moved), files, next)
    }
}

/// Moves a partition's log start up, and tells of it once it is noted for good: a crash from then
/// on does not bring the records below it back. Whole segments below it are removed later.
///
/// `done` gets the log start as it is then, or `OutOfRange` for an offset above the high watermark.
pub(crate) fn delete_records(
    node: &Arc<Node>,
    partition: &Arc<Partition>,
    to: StartAt,
    done: StartDone,
) {
    let (told, moved) = (node.clone(), partition.clone());
    let done = Box::new(move |outcome| match outcome {
        Ok(start) => told.upkeep.note_moved(Moved { partition: moved, start, done }),
        Err(error) => done(Err(error)),
    });
    partition.push_chore(Chore::Advance { to, done });
}

/// Runs until the broker stops. Nothing of it is done on this task's thread.
pub(crate) async fn run(node: Arc<Node>) {
    let settings = &node.settings;
    let start = node.clock.now();
    let mut retention = start.checked_add(settings.retention_check);
    let mut points = start.checked_add(settings.checkpoint_interval);
    let mut watermarks = start.checked_add(settings.high_watermark_interval);
    while !node.is_stopping() {
        let now = node.clock.now();
        let is_due = |at: Option<Instant>| at.is_some_and(|at| at <= now);
        let (moved, files, next_file) = node.upkeep.take_due(now);
        let turn = Turn {
            moved,
            files,
            look: is_due(retention),
            note: is_due(points),
            watermarks: is_due(watermarks),
        };
        if turn.is_empty() {
            let next = [retention, points, watermarks, next_file].into_iter().flatten().min();
            let woken = node.upkeep.wake.notified();
            match next {
                Some(at) => {
                    let slept = first(node.clock.sleep_until(at), woken);
                    let _either = first(slept, node.stopping()).await;
                }
                None => {
                    let _either = first(woken, node.stopping()).await;
                }
            }
            continue;
        }
        let (looked, noted, of_watermarks) = (turn.look, turn.note, turn.watermarks);
        let working = node.clone();
        let done = aside(move || turn.run(&working)).await;
        if let Err(error) = done {
            tracing::error!(%error, "the upkeep of the data folder panicked");
        }
        if looked {
            retention = node.clock.now().checked_add(settings.retention_check);
        }
        if noted {
            points = node.clock.now().checked_add(settings.checkpoint_interval);
        }
        if of_watermarks {
            watermarks = node.clock.now().checked_add(settings.high_watermark_interval);
        }
    }
}

/// What is to be done now.
struct Turn {
    moved: Vec<Moved>,
    files: Vec<PathBuf>,
    /// Whether old segments are to be looked for.
    look: bool,
    /// Whether checkpoints are to be written.
    note: bool,
    /// Whether high watermarks are to be noted.
    watermarks: bool,
}

impl Turn {
    fn is_empty(&self) -> bool {
        let nothing_due = !self.look && !self.note && !self.watermarks;
        nothing_due && self.moved.is_empty() && self.files.is_empty()
    }

    fn run(self, node: &Arc<Node>) {
        let Self { moved, files, look, note, watermarks } = self;
        if watermarks {
            note_high_watermarks(node);
        }
        if !moved.is_empty() || note || watermarks {
            settle_moved(node, moved);
        }
        for file in files {
            remove(node, &file);
        }
        if look {
            look_at_all(node);
        }
    }
}

/// Notes up to where the records of each log in use are committed.
fn note_high_watermarks(node: &Node) {
    for topic in node.topics.load().iter() {
        for partition in topic.partitions.iter().filter(|partition| partition.is_open()) {
            // Of a log that is damaged or gone there is nothing to tell.
            if partition.log().is_ok() {
                let (name, index) = (&topic.name, partition.index());
                let reached = partition.high_watermark();
                node.folder.note_point(Point::HighWatermark, name, index, reached);
            }
        }
    }
}

/// Makes log starts durable; only then are their segments given up and those who wait told.
fn settle_moved(node: &Arc<Node>, moved: Vec<Moved>) {
    if let Err(error) = node.folder.write_points() {
        tracing::error!(%error, "checkpoints cannot be written");
        let why: Arc<str> = error.to_string().into();
        for moved in moved {
            (moved.done)(Err(AppendError::Storage(why.clone()).into()));
        }
        return;
    }
    for Moved { partition, start, done } in moved {
        drop_dead(node, &partition);
        done(Ok(start));
    }
}

fn drop_dead(node: &Arc<Node>, partition: &Arc<Partition>) {
    let (told, delay) = (node.clone(), partition.config().file_delete_delay);
    let done = Box::new(move |files: Vec<PathBuf>| {
        let at = told.clock.now().checked_add(delay);
        told.upkeep.note_doomed(at, files);
    });
    partition.push_chore(Chore::DropDead { done });
}

fn remove(node: &Node, file: &std::path::Path) {
    match node.folder.files().remove_file(file) {
        // Its topic was deleted meanwhile.
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
        Err(error) => {
            tracing::warn!(file = %file.display(), %error, "a file that was given up stays");
        }
        Ok(()) => tracing::debug!(file = %file.display(), "removed"),
    }
}

/// Looks for old segments in every log that there is, and opens those that nobody has used yet.
fn look_at_all(node: &Arc<Node>) {
    let there: HashSet<(String, i32)> = node.folder.partitions().into_iter().collect();
    for topic in node.topics.load().iter() {
        for partition in &topic.partitions {
            if node.is_stopping() {
                return;
            }
            // No folder comes into being for this.
            let known = || there.contains(&(topic.name.to_string(), partition.index()));
            if partition.is_open() || known() {
                look(node, topic, partition);
            }
        }
    }
}

fn look(node: &Arc<Node>, topic: &Topic, partition: &Arc<Partition>) {
    let Ok(log) = partition.log() else { return };
    partition.push_chore(Chore::ExpireProducers);
    let start = log.log_start();
    let limits = topic.config.retention;
    let high_watermark = partition.high_watermark();
    let target = limits
        .map_or(Ok(start), |limits| log.expired(&limits, high_watermark, node.clock.now_ms()));
    match target {
        Ok(target) if target > start => {
            let (name, index) = (topic.name.clone(), partition.index());
            let done = Box::new(move |outcome: Result<i64, _>| match outcome {
                Ok(start) => tracing::info!(topic = %name, partition = index, start,
                    "segments beyond retention.ms or retention.bytes go"),
                Err(error) => tracing::warn!(topic = %name, partition = index, ?error,
                    "segments beyond the retention stay until the next check"),
            });
            delete_records(node, partition, StartAt::Offset(target), done);
        }
        Ok(_) => {
            if limits.is_some_and(|limits| limits.ms.is_some()) {
                warn_of_future(node, partition, log);
            }
            // Left by a crash, or by a disk that was full.
            if log.has_dead_segments() {
                drop_dead(node, partition);
            }
        }
        Err(error) => {
            let (topic, index) = (&topic.name, partition.index());
            tracing::warn!(%topic, partition = index, %error, "the age of segments cannot be read");
        }
    }
}

/// Records of the future keep their segment longer than `retention.ms` says, for years if a producer
/// counts in another unit (KAFKA-6482): that is told once.
fn warn_of_future(node: &Node, partition: &Partition, log: &LogReader) {
    let Ok(Some(newest)) = log.oldest_segment_ms() else { return };
    let ahead = newest.saturating_sub(node.clock.now_ms());
    if ahead > FUTURE_MS && partition.note_future() {
        let (topic, index) = (partition.topic(), partition.index());
        tracing::warn!(%topic, partition = index, timestamp = newest, ahead_ms = ahead,
            "records are of the future, and stay so much longer than retention.ms says; \
             timestamps are in milliseconds (message.timestamp.after.max.ms)");
    }
}
