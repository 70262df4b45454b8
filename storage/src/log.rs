//! A partition's log: its owner appends, rolls, truncates and flushes; readers read beside it.

mod append;
mod flush;
mod locate;
mod read;
mod retain;
mod roll;
mod truncate;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use arc_swap::ArcSwap;
use ottla_protocol::Uuid;

use crate::config::LogConfig;
use crate::epochs::{EpochEntry, Epochs};
use crate::error::{LogError, LogErrorKind};
use crate::files::Files;
use crate::producers::{ActiveProducer, Producers};
use crate::recovery;
use crate::segment::{ActiveSegment, Segment};

pub use append::{Appended, Incoming, Origin, ReplicaAppended};
pub use flush::{FlushJob, Flushed};
pub use locate::{BatchPlace, Lookup, TimeLookup};
pub use read::{LogReader, ReadRange, TimedOffset};
pub use retain::Retention;

/// What is known about a log before it is opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Opening {
    /// Whether the directory has the marker of a clean shutdown: then batches are trusted.
    pub clean: bool,
    /// Whether the machine ran on since the log was last open: then at most the last write can be
    /// torn, and a bad batch with good ones after it is damage.
    pub same_boot: bool,
    /// Offset below which all was flushed; from its segment on batches are checked after a crash.
    pub recovery_point: i64,
    /// Least offset to read, where it was moved; 0 if not.
    pub log_start: i64,
    /// The time.
    pub now_ms: i64,
}

impl Opening {
    /// A log that was shut down cleanly, or is new.
    pub const fn clean(now_ms: i64) -> Self {
        Self { clean: true, same_boot: false, recovery_point: 0, log_start: 0, now_ms }
    }

    /// A log whose last owner crashed, of which nothing is known to be flushed.
    pub const fn unclean(now_ms: i64) -> Self {
        Self { clean: false, same_boot: false, recovery_point: 0, log_start: 0, now_ms }
    }
}

/// What opening a log came to.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct OpenReport {
    /// Whether the log did not exist before.
    pub created: bool,
    /// Segments whose batches were checked one by one.
    pub checked_segments: usize,
    /// Bytes cut off at the end, in the segment of the first bad batch and in those after it.
    pub truncated_bytes: u64,
    /// Segments removed because they came after a bad batch.
    pub removed_segments: usize,
    /// Segments whose indexes were built anew, not counting the checked ones.
    pub rebuilt_indexes: usize,
    /// What was found and mended, in words.
    pub warnings: Vec<String>,
}

impl OpenReport {
    pub(crate) fn warn(&mut self, dir: &Path, warning: String) {
        tracing::warn!(log = %dir.display(), "{warning}");
        self.warnings.push(warning);
    }
}

/// What readers see: replaced as a whole, once for each call that changed it.
#[derive(Debug)]
pub(crate) struct View {
    log_start: i64,
    log_end: i64,
    /// In order of their base offsets, the active one last; never empty.
    segments: Arc<Vec<Arc<Segment>>>,
    /// The active segment, how far it reaches, and its largest timestamp.
    active: Arc<Segment>,
    active_size: u64,
    active_largest: i64,
    epochs: Arc<Vec<EpochEntry>>,
}

/// A partition's log. One thread at a time owns it.
///
/// An error that [passes](LogError::is_passing) leaves it usable. After any other error of a write or a flush it
/// takes no more writes: what the disk holds is only known again after it was opened anew.
#[derive(Debug)]
#[expect(clippy::struct_field_names, reason = "log start and log end are the words for them")]
pub struct Log {
    files: Arc<dyn Files>,
    dir: PathBuf,
    topic_id: Uuid,
    config: LogConfig,
    segments: Arc<Vec<Arc<Segment>>>,
    active: ActiveSegment,
    epochs: Epochs,
    producers: Producers,
    log_start: i64,
    log_end: i64,
    recovery_point: i64,
    /// Whether names in the folder are yet to be flushed.
    unsynced_names: bool,
    /// Whether the folder's own name is.
    unsynced_folder: bool,
    /// Truncations since the log was opened.
    truncations: u64,
    /// Whether something happened that a clean close must write down.
    changed: bool,
    failed: Option<LogError>,
    view: Arc<ArcSwap<View>>,
}

/// The parts of a log as recovery found them.
#[derive(Debug)]
pub(crate) struct Loaded {
    /// All but the active one.
    pub(crate) sealed: Vec<Arc<Segment>>,
    pub(crate) active: ActiveSegment,
    pub(crate) epochs: Epochs,
    pub(crate) producers: Producers,
    pub(crate) log_start: i64,
    pub(crate) log_end: i64,
    pub(crate) changed: bool,
}

impl Log {
    /// Opens the log of a folder, and makes the folder if it is not there.
    ///
    /// After a crash the batches from the recovery point on are checked and the log is cut at the
    /// first bad one. Kind `Foreign` if the folder is another topic's, `Damaged` if good batches
    /// follow a bad one that was flushed before: then nothing is changed.
    pub fn open(
        files: Arc<dyn Files>,
        dir: &Path,
        topic_id: Uuid,
        config: LogConfig,
        opening: Opening,
    ) -> Result<(Self, OpenReport), LogError> {
        let (loaded, report) = recovery::load(&files, dir, topic_id, &config, opening)?;
        let mut segments = loaded.sealed;
        segments.push(Arc::clone(loaded.active.shared()));
        let segments = Arc::new(segments);
        let view = View {
            log_start: loaded.log_start,
            log_end: loaded.log_end,
            active: Arc::clone(loaded.active.shared()),
            active_size: loaded.active.size(),
            active_largest: loaded.active.largest_timestamp(),
            segments: Arc::clone(&segments),
            epochs: Arc::clone(loaded.epochs.entries()),
        };
        let log = Self {
            files,
            dir: dir.to_owned(),
            topic_id,
            config,
            segments,
            active: loaded.active,
            epochs: loaded.epochs,
            producers: loaded.producers,
            log_start: loaded.log_start,
            log_end: loaded.log_end,
            recovery_point: opening.recovery_point.clamp(0, loaded.log_end),
            unsynced_names: loaded.changed || report.created,
            // Whoever made the folder may have crashed before it was flushed.
            unsynced_folder: report.created || !opening.clean,
            truncations: 0,
            changed: loaded.changed,
            failed: None,
            view: Arc::new(ArcSwap::from_pointee(view)),
        };
        Ok((log, report))
    }

    /// The log's folder.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// The id of the topic that the log is of.
    pub const fn topic_id(&self) -> Uuid {
        self.topic_id
    }

    /// The settings.
    pub const fn config(&self) -> &LogConfig {
        &self.config
    }

    /// Takes other settings from the next append on.
    pub fn set_config(&mut self, config: LogConfig) {
        self.config = config;
    }

    /// First offset that can be read. It may lie inside a batch.
    pub const fn log_start(&self) -> i64 {
        self.log_start
    }

    /// Offset of the next record.
    pub const fn log_end(&self) -> i64 {
        self.log_end
    }

    /// Offset below which all is flushed.
    pub const fn recovery_point(&self) -> i64 {
        self.recovery_point
    }

    /// Leader epochs and their first offsets, both rising.
    pub fn epochs(&self) -> &[EpochEntry] {
        self.epochs.entries()
    }

    /// Bytes in all segments, without indexes.
    pub fn size_bytes(&self) -> u64 {
        self.view.load().size_bytes()
    }

    /// Number of segments, the active one included.
    pub fn segment_count(&self) -> usize {
        self.segments.len()
    }

    /// The error that stopped writes, if one did.
    pub const fn failure(&self) -> Option<&LogError> {
        self.failed.as_ref()
    }

    /// A reader that follows this log as long as it lives, and can be cloned and shared.
    pub fn reader(&self) -> LogReader {
        LogReader::new(Arc::clone(&self.view), self.dir.as_path().into())
    }

    /// The producers that are remembered, by their ids.
    pub fn active_producers(&self) -> Vec<ActiveProducer> {
        self.producers.active()
    }

    /// Forgets producers that were idle for `producer.id.expiration.ms`. Kafka does so every
    /// 10 minutes (`producer.id.expiration.check.interval.ms`).
    pub fn expire_producers(&mut self, now_ms: i64) {
        self.producers.expire(now_ms, self.config.producer_id_expiration_ms);
    }

    /// Lets readers see what was done.
    fn publish(&self) {
        self.view.store(Arc::new(View {
            log_start: self.log_start,
            log_end: self.log_end,
            segments: Arc::clone(&self.segments),
            active: Arc::clone(self.active.shared()),
            active_size: self.active.size(),
            active_largest: self.active.largest_timestamp(),
            epochs: Arc::clone(self.epochs.entries()),
        }));
    }

    /// An error if the log takes no more writes.
    fn writable(&self) -> Result<(), LogError> {
        match &self.failed {
            None => Ok(()),
            Some(first) => {
                let what = format!("the log takes no more writes since: {first}");
                Err(LogError::new(LogErrorKind::Failed, &self.dir, what))
            }
        }
    }

    /// Stops writes for good, and gives the error on.
    fn fail(&mut self, error: LogError) -> LogError {
        tracing::error!(%error, "log failed and takes no more writes");
        self.failed.get_or_insert_with(|| error.clone());
        error
    }
}
