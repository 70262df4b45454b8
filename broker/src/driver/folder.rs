//! The data folder of a broker, or the memory that stands for one.

mod points;
mod room;

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::thread::{self, JoinHandle};

use ottla_protocol::Uuid;
use ottla_storage::folder::{folder_name, parse_folder_name};
use ottla_storage::{
    CleanShutdown, DirectoryLock, DiskFiles, Files, FlushJob, Log, LogConfig, LogError,
    LogErrorKind, MemoryFiles, MetaProperties, Opening,
};

use crate::driver::clock::{Clock, fill_random};
use crate::driver::partition::{AppendError, ClosedLog, Partition};
use crate::driver::writer::STACK_BYTES;

pub(crate) use self::points::Point;
use self::points::Points;
use self::room::{Reserve, Room};
use crate::config::Settings;

/// The folder's name where all is in memory.
const IN_MEMORY: &str = "/memory";

/// A log directory that this broker owns.
#[derive(Debug)]
pub(crate) struct DataFolder {
    files: Arc<dyn Files>,
    dir: PathBuf,
    properties: MetaProperties,
    /// The broker that had it last stopped in good order.
    clean: bool,
    /// What this start has brought into being.
    made: Made,
    points: Points,
    room: Room,
    flush_group: bool,
    failed: AtomicBool,
    /// Why nothing more may be appended to any log.
    unusable: OnceLock<Arc<str>>,
    clock: Clock,
    lock: Mutex<Option<DirectoryLock>>,
    same_boot: bool,
    /// Flushes in the background that may not have ended.
    flushes: Mutex<Vec<JoinHandle<()>>>,
}

/// What a start has brought into being and not made durable.
#[derive(Debug, Clone, Copy)]
struct Made {
    /// The folder itself.
    folder: bool,
    /// Its `meta.properties`.
    properties: bool,
}

/// What a log is trusted for when it is opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Trust {
    /// The marker of a clean stop: its batches are whole.
    Marker,
    /// Nothing: its last segment is always checked.
    Nothing,
}

/// Why a data folder cannot be used.
#[derive(Debug)]
pub(crate) enum FolderError {
    /// Another broker has it.
    InUse(PathBuf),
    /// It is another broker's, or it cannot be read or written.
    Unusable(String),
}

impl From<LogError> for FolderError {
    fn from(error: LogError) -> Self {
        match error.kind() {
            LogErrorKind::Locked => Self::InUse(error.path().to_owned()),
            _ => Self::Unusable(error.to_string()),
        }
    }
}

#[cfg(test)]
impl DataFolder {
    /// Takes a folder of files that a test has in its hands.
    pub(crate) fn on_files(files: Arc<dyn Files>, settings: &Settings) -> Self {
        Self::open_on(files, settings, Clock).unwrap()
    }
}

impl DataFolder {
    /// Takes a folder, or memory for none; an empty one is formatted.
    pub(crate) fn open(
        data: Option<&Path>,
        settings: &Settings,
        clock: Clock,
    ) -> Result<Self, FolderError> {
        let mut made = Made { folder: false, properties: false };
        let (files, dir, lock): (Arc<dyn Files>, _, _) = match data {
            None => (Arc::new(MemoryFiles::default()), PathBuf::from(IN_MEMORY), None),
            Some(dir) => {
                made.folder = !dir.exists();
                fs::create_dir_all(dir).map_err(|error| {
                    let what = "the data folder cannot be created";
                    FolderError::Unusable(format!("{}: {what}: {error}", dir.display()))
                })?;
                (Arc::new(DiskFiles::new()), dir.to_owned(), Some(DirectoryLock::acquire(dir)?))
            }
        };
        if lock.is_none() {
            files.create_dir_all(&dir).map_err(|error| FolderError::Unusable(error.to_string()))?;
        }
        Self::on(files, dir, lock, made, settings, clock)
    }

    /// Takes the folder that these files have, and formats it if it is empty.
    #[cfg(any(test, feature = "sim"))]
    pub(crate) fn open_on(
        files: Arc<dyn Files>,
        settings: &Settings,
        clock: Clock,
    ) -> Result<Self, FolderError> {
        let dir = PathBuf::from(IN_MEMORY);
        files.create_dir_all(&dir).map_err(|error| FolderError::Unusable(error.to_string()))?;
        let made = Made { folder: false, properties: false };
        Self::on(files, dir, None, made, settings, clock)
    }

    /// Takes a folder of these files.
    fn on(
        files: Arc<dyn Files>,
        dir: PathBuf,
        lock: Option<DirectoryLock>,
        mut made: Made,
        settings: &Settings,
        clock: Clock,
    ) -> Result<Self, FolderError> {
        let (on_files, node_id) = (&*files, settings.node_id);
        let properties = match MetaProperties::read(on_files, &dir)? {
            Some(found) if found.node_id != node_id => {
                return Err(FolderError::Unusable(format!(
                    "{}: the data folder belongs to the broker with node.id {}, not {node_id}",
                    dir.display(),
                    found.node_id
                )));
            }
            Some(found) => found,
            None => {
                made.properties = true;
                format(on_files, &dir, node_id)?
            }
        };
        let clean = CleanShutdown::take(on_files, &dir)?.is_some();
        let points = Points::load(on_files, &dir);
        let same_boot = lock.as_ref().is_some_and(DirectoryLock::same_boot);
        Ok(Self {
            files,
            dir,
            properties,
            clean,
            made,
            points,
            room: Room::new(Reserve::of_option(settings.disk_reserve)),
            flush_group: settings.flush_group,
            failed: AtomicBool::new(false),
            unusable: OnceLock::new(),
            clock,
            lock: Mutex::new(lock),
            same_boot,
            flushes: Mutex::default(),
        })
    }

    /// The id of the broker that owns it.
    pub(crate) fn node_id(&self) -> i32 {
        self.properties.node_id
    }

    /// The id of the cluster that it belongs to.
    pub(crate) fn cluster_id(&self) -> &str {
        &self.properties.cluster_id
    }

    /// The id of the directory itself (KIP-858).
    pub(crate) fn directory_id(&self) -> Uuid {
        self.properties.directory_id
    }

    /// Whether the broker that had it last stopped in good order, so that no log needs a walk.
    pub(crate) fn is_clean(&self) -> bool {
        self.clean
    }

    /// Where its files are kept.
    pub(crate) fn files(&self) -> &dyn Files {
        &*self.files
    }

    /// Whether nothing is acknowledged before it is on the disk.
    pub(crate) fn flushes_group(&self) -> bool {
        self.flush_group
    }

    /// Whether the disk has room for so many more bytes of records.
    pub(crate) fn take_room(&self, bytes: u64) -> Result<(), AppendError> {
        self.room.take(&*self.files, &self.dir, bytes).map_err(AppendError::Full)
    }

    /// Its path.
    pub(crate) fn dir(&self) -> &Path {
        &self.dir
    }

    /// Bytes of the file system that it lies on, and how many of them are free; none in memory.
    pub(crate) fn space(&self) -> Option<(i64, i64)> {
        if self.lock.lock().unwrap_or_else(PoisonError::into_inner).is_none() {
            return None;
        }
        let found = rustix::fs::statvfs(&self.dir);
        let found = found.inspect_err(|error| {
            tracing::warn!(dir = %self.dir.display(), %error, "the file system's size is unknown");
        });
        let found = found.ok()?;
        let bytes = |blocks: u64| i64::try_from(blocks.saturating_mul(found.f_frsize));
        Some((bytes(found.f_blocks).ok()?, bytes(found.f_bavail).ok()?))
    }

    /// The partitions that have a folder in it.
    pub(crate) fn partitions(&self) -> Vec<(String, i32)> {
        let entries = self.files.list(&self.dir).unwrap_or_else(|error| {
            tracing::warn!(dir = %self.dir.display(), %error, "the data folder cannot be listed");
            Vec::new()
        });
        let folders = entries.iter().filter(|entry| entry.is_dir);
        let names = folders.filter_map(|entry| parse_folder_name(&entry.name));
        names.map(|(topic, index)| (topic.to_owned(), index)).collect()
    }

    /// Moves a partition's folder out of the way, under a name that Kafka gives to such.
    pub(crate) fn set_aside(&self, topic: &str, partition: i32) {
        let name = folder_name(topic, partition);
        let moved = random_id().map_err(|error| format!("{error:?}")).and_then(|id| {
            let aside = self.dir.join(aside_name(topic, partition, &id.to_string()));
            let moved = self.files.rename(&self.dir.join(&name), &aside);
            moved.map(|()| aside).map_err(|error| error.to_string())
        });
        match moved {
            Ok(aside) => tracing::warn!(topic, partition, to = %aside.display(),
                "a folder that no topic has is set aside; it may be removed"),
            Err(error) => tracing::warn!(
                topic,
                partition,
                error,
                "a folder that no topic has stays where it is"
            ),
        }
    }

    /// Opens a partition's log, creating it if it is not there.
    pub(crate) fn open_log(
        &self,
        topic: &str,
        partition: i32,
        topic_id: Uuid,
        config: LogConfig,
        trust: Trust,
    ) -> Result<Log, LogError> {
        let dir = self.dir.join(folder_name(topic, partition));
        let there = self.files.exists(&dir).map_err(|error| LogError::of_file(&dir, error))?;
        // What is noted of a partition of that name that was deleted must not be taken for this
        // one's, also not after a crash.
        if !there && self.points.forget(topic, partition) {
            self.write_points()?;
        }
        let point = |point| self.points.get(point, topic, partition);
        let opening = Opening {
            clean: self.clean && trust == Trust::Marker,
            same_boot: self.same_boot,
            recovery_point: point(Point::Recovery),
            log_start: point(Point::LogStart),
            now_ms: self.clock.now_ms(),
        };
        let (log, report) = Log::open(self.files.clone(), &dir, topic_id, config, opening)?;
        tracing::debug!(topic, partition, ?report, "log opened");
        Ok(log)
    }

    /// Flushes on a thread of its own, and tells the partition what came of it.
    ///
    /// Rolls are rare, so that threads and checkpoints are few.
    pub(crate) fn flush_behind(self: &Arc<Self>, partition: &Arc<Partition>, job: FlushJob) {
        let (folder, flushed) = (self.clone(), partition.clone());
        let thread = thread::Builder::new()
            .name("ottla-disk".into())
            .stack_size(STACK_BYTES)
            .spawn(move || {
                let outcome = job.run();
                flushed.handle_flushed(outcome);
                if let Err(error) = folder.write_points() {
                    tracing::warn!(%error, "recovery points are not noted; a crash would check more");
                }
            });
        let mut flushes = self.flushes.lock().unwrap_or_else(PoisonError::into_inner);
        flushes.retain(|thread| !thread.is_finished());
        match thread {
            Ok(thread) => flushes.push(thread),
            // The next roll's flush covers this one's.
            Err(error) => tracing::warn!(%error, "no thread to flush a sealed segment"),
        }
    }

    /// Notes an offset of a partition for the next start; [`Self::write_points`] makes it durable.
    pub(crate) fn note_point(&self, point: Point, topic: &str, partition: i32, offset: i64) {
        self.points.note(point, topic, partition, offset);
    }

    /// Makes durable what is noted of partitions, if it has changed.
    pub(crate) fn write_points(&self) -> Result<(), LogError> {
        self.points.write(&*self.files, &self.dir)
    }

    /// Waits for flushes in the background.
    fn end_flushes(&self) {
        let threads = {
            let mut flushes = self.flushes.lock().unwrap_or_else(PoisonError::into_inner);
            std::mem::take(&mut *flushes)
        };
        for thread in threads {
            if thread.join().is_err() {
                tracing::error!("a flush in the background ended by a panic");
                self.note_failure();
            }
        }
    }

    /// Removes a partition's folder.
    pub(crate) fn remove_log(&self, topic: &str, partition: i32) {
        let dir = self.dir.join(folder_name(topic, partition));
        let removed = self
            .files
            .exists(&dir)
            .and_then(|there| if there { self.files.remove_dir_all(&dir) } else { Ok(()) });
        if let Err(error) = removed {
            tracing::warn!(dir = %dir.display(), %error, "a deleted partition's folder stays");
        }
        self.points.forget(topic, partition);
    }

    /// A write or flush failed: the next start must not trust the logs.
    pub(crate) fn note_failure(&self) {
        self.failed.store(true, Ordering::Release);
    }

    /// Makes durable what [`Self::open`] wrote, but for the names in the folder, which are flushed
    /// with those of the metadata log.
    pub(crate) fn settle(&self) -> Result<(), String> {
        if self.made.properties {
            MetaProperties::flush(&*self.files, &self.dir).map_err(|error| error.to_string())?;
        }
        let Some(above) = self.dir.parent().filter(|_| self.made.folder) else { return Ok(()) };
        // A path of one name lies in the working directory.
        let above = if above.as_os_str().is_empty() { Path::new(".") } else { above };
        self.files.sync_dir(above).map_err(|error| format!("{}: {error}", above.display()))
    }

    /// Nothing may be read or appended any more, in whatever log: what of it is on the disk is only
    /// known to the next start. A flush that failed is never tried again, since the second may
    /// succeed with the data gone.
    pub(crate) fn fail(&self, why: Arc<str>) {
        tracing::error!(dir = %self.dir.display(), %why,
            "the data folder failed: its partitions are offline until the broker is started anew");
        self.note_failure();
        // The first reason is the one that counts.
        let _first = self.unusable.set(why).is_ok();
    }

    /// An error if the folder failed.
    pub(crate) fn usable(&self) -> Result<(), AppendError> {
        self.unusable.get().map_or(Ok(()), |why| Err(AppendError::Storage(why.clone())))
    }

    /// Writes the checkpoints with what the closed logs had at their end.
    pub(crate) fn write_checkpoints(
        &self,
        closed: &[(Arc<str>, i32, ClosedLog)],
    ) -> Result<(), LogError> {
        self.end_flushes();
        for (topic, partition, log) in closed {
            self.points.note(Point::Recovery, topic, *partition, log.recovery_point);
            self.points.note(Point::LogStart, topic, *partition, log.log_start);
            self.points.note(Point::HighWatermark, topic, *partition, log.high_watermark);
        }
        self.points.write_all(&*self.files, &self.dir)
    }

    /// Writes the marker of a clean stop, unless a write or flush has failed (KAFKA-13773).
    pub(crate) fn write_marker(&self, broker_epoch: i64) -> Result<bool, LogError> {
        if self.failed.load(Ordering::Acquire) {
            return Ok(false);
        }
        CleanShutdown { broker_epoch }.write(&*self.files, &self.dir)?;
        Ok(true)
    }

    /// Lets the next broker have the folder.
    pub(crate) fn unlock(&self) {
        self.lock.lock().unwrap_or_else(PoisonError::into_inner).take();
    }
}

/// The most bytes that a name has on the file systems that there are.
const NAME_BYTES: usize = 255;

/// The name of a folder that no topic has: as in Kafka, so much of a long topic's name is left out
/// that it is no longer than a name may be.
fn aside_name(topic: &str, partition: i32, id: &str) -> String {
    let rest = format!("-{partition}.{id}-stray");
    let most = NAME_BYTES.saturating_sub(rest.len());
    let topic: String = topic.bytes().take(most).map(char::from).collect();
    format!("{topic}{rest}")
}

/// Makes a folder this broker's, with a new cluster around it.
fn format(files: &dyn Files, dir: &Path, node_id: i32) -> Result<MetaProperties, FolderError> {
    let properties = MetaProperties {
        cluster_id: random_id()?.to_string(),
        node_id,
        directory_id: random_id()?,
    };
    properties.write(files, dir)?;
    Ok(properties)
}

/// A random id that is none of Kafka's reserved ones and does not begin with a dash.
pub(crate) fn random_id() -> Result<Uuid, FolderError> {
    loop {
        let mut bytes = [0; 16];
        fill_random(&mut bytes)
            .map_err(|error| FolderError::Unusable(format!("no random bytes: {error}")))?;
        // A version 4 UUID, as Kafka makes them.
        bytes[6] = bytes[6] & 0x0f | 0x40;
        bytes[8] = bytes[8] & 0x3f | 0x80;
        let id = Uuid(bytes);
        // In a command line a leading dash would be an option.
        if !id.to_string().starts_with('-') {
            return Ok(id);
        }
    }
}
