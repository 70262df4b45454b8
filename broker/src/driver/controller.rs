//! The controller of a cluster of one broker: decides about topics and producer ids, and keeps what
//! it decided in the metadata log.
//!
//! A decision is replayed at once, so that the next one builds on it, and is published and answered
//! when the log has it on disk. If the log refuses one, the controller reads the log again.

mod configs;
mod start;
#[cfg(test)]
mod tests;
mod topics;

use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use arc_swap::ArcSwap;
use ottla_protocol::ErrorCode;
use ottla_storage::{Incoming, LogReader, Origin};

use crate::driver::metadata_snapshot::usable;
use crate::driver::own_batch::{Content, own_batch};
use crate::driver::partition::{Acks, AppendError, Done, Outcome, Submission};
use crate::driver::replay::read_records;
use crate::node::Node;
use crate::state::metadata::{Image, MetadataRecord};
use crate::state::metadata_records::{decode, encode};
pub(crate) use crate::state::topics::{Refusal, TopicRequest};

pub(crate) use self::configs::{broker_options, check_broker_name};
use self::topics::TopicDone;
pub(crate) use self::topics::{Ask, Created, NewTopic};

/// Producer ids come in blocks of so many, each a record, so that none is ever given twice.
/// Kafka: `ProducerIdsBlock.PRODUCER_ID_BLOCK_SIZE`.
const ID_BLOCK: i64 = 1000;

/// Called with a producer id that nobody else has.
pub(crate) type IdDone = Box<dyn FnOnce(Result<i64, Refusal>) + Send>;

/// The controller.
pub(crate) struct Controller {
    state: Mutex<State>,
    /// What is on disk.
    published: ArcSwap<Image>,
    broker_epoch: AtomicI64,
}

#[derive(Default)]
struct State {
    /// Everything decided so far, on disk or not yet.
    image: Image,
    /// Rises when the image is read from the log again, so that what was decided before is known.
    life: u64,
    /// Producer ids that are ours to give.
    ids: Range<i64>,
    /// Who waits for the next block; somebody waiting means that one is asked for.
    waiting_for_ids: Vec<IdDone>,
    /// Who waits for the offsets topic, while it is being created.
    waiting_for_offsets: Option<Vec<TopicDone>>,
    /// Topics whose deletion is decided and not done: their folders may still be there.
    going: BTreeSet<Arc<str>>,
}

impl std::fmt::Debug for Controller {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("Controller").finish_non_exhaustive()
    }
}

impl Controller {
    /// A controller that knows nothing yet.
    pub(crate) fn new() -> Self {
        Self {
            state: Mutex::default(),
            published: ArcSwap::default(),
            broker_epoch: AtomicI64::new(-1),
        }
    }

    /// The offset of this broker's registration, which tells its lives apart; -1 before it.
    pub(crate) fn broker_epoch(&self) -> i64 {
        self.broker_epoch.load(Ordering::Acquire)
    }

    /// What the metadata log says, as far as it is on disk.
    pub(crate) fn image(&self) -> Arc<Image> {
        self.published.load_full()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // Decisions are made on a copy of the image, so a panic leaves the image whole.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Gives a producer id, from a block that is on disk.
    pub(crate) fn producer_id(&self, node: &Arc<Node>, done: IdDone) {
        let mut state = self.state();
        if let Some(id) = state.ids.next() {
            drop(state);
            done(Ok(id));
            return;
        }
        state.waiting_for_ids.push(done);
        if state.waiting_for_ids.len() == 1 {
            self.ask_for_ids(node, state);
        }
    }

    fn ask_for_ids(&self, node: &Arc<Node>, state: MutexGuard<'_, State>) {
        let first = state.image.next_producer_id();
        let block = first..first.saturating_add(ID_BLOCK);
        let record = MetadataRecord::ProducerIds {
            broker_id: node.node_id,
            broker_epoch: self.broker_epoch(),
            next: block.end,
        };
        let told = node.clone();
        Self::append(node, state, vec![record], move |stored| {
            let block = stored.map(|_image| block);
            told.controller.take_ids(&told, block);
        });
    }

    /// Serves those who wait for ids, and asks for more if the block was not enough.
    fn take_ids(&self, node: &Arc<Node>, block: Result<Range<i64>, Refusal>) {
        let mut state = self.state();
        let mut waiting = std::mem::take(&mut state.waiting_for_ids);
        let mut served = Vec::new();
        match block {
            Ok(block) => {
                state.ids = block;
                let count = usize::try_from(ID_BLOCK).unwrap_or(usize::MAX).min(waiting.len());
                for done in waiting.drain(..count) {
                    served.extend(state.ids.next().map(|id| (done, Ok(id))));
                }
                state.waiting_for_ids = waiting;
            }
            Err(refusal) => {
                served.extend(waiting.into_iter().map(|done| (done, Err(refusal.clone()))));
            }
        }
        if state.waiting_for_ids.is_empty() {
            drop(state);
        } else {
            self.ask_for_ids(node, state);
        }
        for (done, id) in served {
            done(id);
        }
    }

    /// Replays records as decided and appends them. `then` runs with no lock held, on the writer's
    /// thread unless the log refuses at once, when they are on disk and published.
    fn append(
        node: &Arc<Node>,
        mut state: MutexGuard<'_, State>,
        records: Vec<MetadataRecord>,
        then: impl FnOnce(Result<&Image, Refusal>) + Send + 'static,
    ) {
        let mut image = state.image.clone();
        let batch = match replay_all(&mut image, &records)
            .and_then(|()| metadata_batch(&records, node.clock.now_ms()))
        {
            Ok(batch) => batch,
            Err(why) => {
                drop(state);
                then(Err(Refusal::new(ErrorCode::UNKNOWN_SERVER_ERROR, why)));
                return;
            }
        };
        let life = state.life;
        let snapshot = Arc::new(image.clone());
        state.image = image;
        let told = node.clone();
        let done: Done = Box::new(move |outcome| {
            let controller = &told.controller;
            match controller.settle(&told, life, snapshot, outcome) {
                Ok(image) => then(Ok(&image)),
                Err(why) => {
                    let message = format!("the metadata log cannot be written: {why}");
                    then(Err(Refusal::new(ErrorCode::KAFKA_STORAGE_ERROR, message)));
                }
            }
        });
        let submission = Submission { batches: vec![batch], acks: Acks::All, done };
        let pushed = node.metadata_log.push(submission);
        drop(state);
        if let Err(refused) = pushed {
            refused.finish();
        }
    }

    /// Publishes what the log has taken; reads the log again if what was decided is not what it has.
    fn settle(
        &self,
        node: &Arc<Node>,
        life: u64,
        snapshot: Arc<Image>,
        outcome: Outcome,
    ) -> Result<Arc<Image>, String> {
        let stored = stored(outcome);
        let mut state = self.state();
        if stored.is_ok() && state.life == life {
            self.published.store(snapshot.clone());
            return Ok(snapshot);
        }
        if let Err(why) = &stored {
            tracing::error!(%why, "the metadata log refused a decision");
        }
        state.life += 1;
        match read_image(node) {
            Ok(image) => {
                state.image = image.clone();
                self.published.store(Arc::new(image));
            }
            Err(why) => {
                tracing::error!(%why, "the metadata log cannot be read again");
                state.image = Image::clone(&self.published.load());
            }
        }
        drop(state);
        stored.map(|()| self.image())
    }
}

/// What the metadata log says to its end: from the newest snapshot on, if there is one.
fn read_image(node: &Node) -> Result<Image, String> {
    let reader = node.metadata_log.log().map_err(|error| error.to_string())?;
    let (mut image, from) = read_snapshot(node, reader)?;
    let from = from.max(reader.log_start());
    read_records(reader, from..reader.log_end(), |_batch, record| take(&mut image, record.value))?;
    Ok(image)
}

fn take(image: &mut Image, value: Option<&[u8]>) -> Result<(), String> {
    let record = decode(value).map_err(|error| error.to_string())?;
    image.replay(&record).map_err(|misfit| misfit.to_string())
}

/// What the newest snapshot says that can be read, and from where the log goes on; an empty image
/// where the log itself begins at 0.
fn read_snapshot(node: &Node, reader: &LogReader) -> Result<(Image, i64), String> {
    let files = node.folder.files();
    let log = reader.log_start()..=reader.log_end();
    let mut unread = Vec::new();
    for snapshot in usable(files, reader.dir(), &log)? {
        let mut image = Image::default();
        match snapshot.read(files, |record| take(&mut image, record.value)) {
            Ok(()) => return Ok((image, snapshot.end)),
            Err(why) => {
                tracing::warn!(%why, "a snapshot of the metadata log cannot be read");
                unread.push(why);
            }
        }
    }
    if reader.log_start() == 0 {
        return Ok((Image::default(), 0));
    }
    // Folders of topics that are not known would be set aside.
    let why = if unread.is_empty() { "there is none".to_owned() } else { unread.join("; ") };
    Err(format!(
        "{}: the log begins with offset {}, and what was before is in no snapshot that can be \
         read: {why}",
        reader.dir().display(),
        reader.log_start(),
    ))
}

fn replay_all(image: &mut Image, records: &[MetadataRecord]) -> Result<(), String> {
    let mut replayed = records.iter().map(|record| image.replay(record));
    replayed.try_for_each(|replayed| replayed.map_err(|misfit| misfit.to_string()))
}

/// Records of one decision as one batch, so that a crash leaves all of them or none.
fn metadata_batch(records: &[MetadataRecord], now_ms: i64) -> Result<Incoming, String> {
    let values: Result<Vec<_>, _> = records.iter().map(encode).collect();
    let values = values.map_err(|error| error.to_string())?;
    let records = values.iter().map(|value| (None, Some(value.as_slice())));
    let batch = own_batch(records, Content::Records, Origin::Raft, now_ms);
    batch.map_err(|error| error.to_string())
}

/// Whether all batches of a submission are stored.
fn stored(outcome: Outcome) -> Result<(), String> {
    let results = outcome.map_err(|error: AppendError| error.to_string())?;
    let mut results = results.into_iter();
    results.try_for_each(|result| match result {
        Ok(_place) => Ok(()),
        Err(rejected) => Err(rejected.message),
    })
}
