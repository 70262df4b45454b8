//! What a partition's owner does beside appending: moving the log start, giving up old segments,
//! taking other options.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use ottla_protocol::ErrorCode;
use ottla_storage::{ActiveProducer, Log, LogError};

use super::{AppendError, Partition, locked};
use crate::config::TopicConfig;
use crate::driver::folder::Point;

/// Where a log is to begin.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum StartAt {
    /// At this offset.
    Offset(i64),
    /// At the high watermark: nothing that is there stays.
    HighWatermark,
}

/// Why a log start was not moved.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum StartError {
    /// The offset is negative, or above the high watermark.
    OutOfRange,
    /// The log cannot be changed.
    Log(AppendError),
}

impl StartError {
    /// Kafka's code for it.
    pub(crate) fn code(&self) -> ErrorCode {
        match self {
            Self::OutOfRange => ErrorCode::OFFSET_OUT_OF_RANGE,
            Self::Log(error) => error.code(),
        }
    }
}

impl From<AppendError> for StartError {
    fn from(error: AppendError) -> Self {
        Self::Log(error)
    }
}

/// Called with the log start as it is then; on the writer's thread, must be quick.
pub(crate) type StartDone = Box<dyn FnOnce(Result<i64, StartError>) + Send>;

/// Called with the files that are set aside; on the writer's thread, must be quick.
pub(crate) type DroppedDone = Box<dyn FnOnce(Vec<PathBuf>) + Send>;

/// Called with the producers of a log, by their ids; on the writer's thread, must be quick.
pub(crate) type ProducersDone = Box<dyn FnOnce(Result<Vec<ActiveProducer>, AppendError>) + Send>;

/// Something for the owner of a log to do.
pub(crate) enum Chore {
    /// Moves the log start up. Nothing is removed.
    Advance {
        /// To where; below the log start nothing happens.
        to: StartAt,
        /// Who is told.
        done: StartDone,
    },
    /// Gives up the segments below the log start, which must be noted for good before.
    DropDead {
        /// Who removes the files.
        done: DroppedDone,
    },
    /// Forgets producers that are idle for too long.
    ExpireProducers,
    /// Takes the options that the partition has now.
    Configure,
    /// Tells which producers are remembered.
    Producers {
        /// Who is told.
        done: ProducersDone,
    },
}

impl fmt::Debug for Chore {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(match self {
            Self::Advance { .. } => "Advance",
            Self::DropDead { .. } => "DropDead",
            Self::ExpireProducers => "ExpireProducers",
            Self::Configure => "Configure",
            Self::Producers { .. } => "Producers",
        })
    }
}

impl Chore {
    /// The partition is closed.
    pub(super) fn refuse(self) {
        match self {
            Self::Advance { done, .. } => done(Err(AppendError::Closed.into())),
            Self::DropDead { done } => done(Vec::new()),
            Self::Producers { done } => done(Err(AppendError::Closed)),
            Self::ExpireProducers | Self::Configure => {}
        }
    }
}

impl Partition {
    /// Hands something to the owner of the log.
    pub(crate) fn push_chore(self: &Arc<Self>, chore: Chore) {
        {
            let mut inbox = locked(&self.inbox);
            if inbox.closed {
                drop(inbox);
                chore.refuse();
                return;
            }
            inbox.chores.push(chore);
            if std::mem::replace(&mut inbox.scheduled, true) {
                return;
            }
        }
        self.setup.ready.push(self.clone());
    }

    /// The topic's options, as they are now.
    pub(crate) fn config(&self) -> Arc<TopicConfig> {
        self.config.load_full()
    }

    /// Whether the log was opened, or tried to be.
    pub(crate) fn is_open(&self) -> bool {
        self.opened.get().is_some()
    }

    /// Its records are of the future; true for the first who says so.
    pub(crate) fn note_future(&self) -> bool {
        !self.future_told.swap(true, Ordering::Relaxed)
    }

    /// Has other options from the next append on.
    pub(crate) fn configure(self: &Arc<Self>, config: Arc<TopicConfig>) {
        if **self.config.load() != *config {
            self.config.store(config);
            self.push_chore(Chore::Configure);
        }
    }

    /// Does what was handed over.
    pub(super) fn do_chores(&self, chores: Vec<Chore>, now_ms: i64) {
        for chore in chores {
            match chore {
                Chore::Advance { to, done } => done(self.advance(to)),
                Chore::DropDead { done } => {
                    let dropped = self.with_log(|log| log.drop_dead_segments(now_ms));
                    done(dropped.unwrap_or_else(|error| {
                        let (topic, partition) = (&self.setup.topic, self.setup.index);
                        tracing::warn!(%topic, partition, %error, "old segments stay until the next check");
                        Vec::new()
                    }));
                }
                Chore::ExpireProducers => {
                    let expired = self.with_log(|log| {
                        log.expire_producers(now_ms);
                        Ok(())
                    });
                    if let Err(error) = expired {
                        tracing::debug!(%error, "producers are not forgotten");
                    }
                }
                Chore::Configure => self.take_config(),
                Chore::Producers { done } => {
                    done(self.with_log(|log| Ok(log.active_producers())));
                }
            }
        }
    }

    fn advance(&self, to: StartAt) -> Result<i64, StartError> {
        // Opened first: only then the high watermark is known.
        self.log()?;
        let high_watermark = self.high_watermark();
        let offset = match to {
            StartAt::HighWatermark => high_watermark,
            StartAt::Offset(offset) if (0..=high_watermark).contains(&offset) => offset,
            StartAt::Offset(_) => return Err(StartError::OutOfRange),
        };
        let start = self.with_log(|log| log.advance_start(offset))?;
        self.setup.folder.note_point(Point::LogStart, &self.setup.topic, self.setup.index, start);
        Ok(start)
    }

    fn take_config(&self) {
        let config = self.config.load_full();
        locked(&self.machine).leader.set_min_in_sync(config.min_insync_replicas);
        // One that is not open takes them when it is opened.
        if self.opened.get().is_some()
            && let Err(error) = self.with_log(|log| {
                log.set_config(config.log.clone());
                Ok(())
            })
        {
            let (topic, partition) = (&self.setup.topic, self.setup.index);
            tracing::warn!(%topic, partition, %error, "a log does not take its topic's options");
        }
    }

    /// Does something with the log, which is opened if need be. A log that failed over it takes no
    /// more writes.
    fn with_log<T>(
        &self,
        act: impl FnOnce(&mut Log) -> Result<T, LogError>,
    ) -> Result<T, AppendError> {
        self.setup.folder.usable()?;
        self.log()?;
        let mut log = self.take_role()?;
        match act(&mut log) {
            Ok(outcome) => {
                self.give_role(log);
                Ok(outcome)
            }
            Err(error) if log.failure().is_none() => {
                self.give_role(log);
                Err(AppendError::Storage(error.to_string().into()))
            }
            Err(error) => Err(AppendError::Storage(self.fail_with(error.to_string()))),
        }
    }
}
