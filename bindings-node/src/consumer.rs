//! The consumer behind JavaScript's `Consumer`.

use std::sync::Arc;
use std::time::Duration;

use napi::bindgen_prelude::{Array, BigInt64Array, Env, External, Object};
use napi_derive::napi;
use ottla::{
    Batch, Commit, Consumer, Error, ErrorKind, OffsetAndMetadata, OffsetAndTimestamp,
    TopicPartition,
};

use crate::boundary::{as_millis, guard, millis};
use crate::config;
use crate::record;
use crate::signal::{Callback, Hold, Signal};
use crate::wait::{Answer, Waits};

/// Topics and partitions as JavaScript gives them, and offsets beside.
type Partitions = Vec<(String, i32)>;

/// What stands beside offsets: texts, and leader epochs (−1 for none).
type Beside = Vec<(String, i32)>;

#[napi(js_name = "NativeConsumer")]
#[derive(Debug)]
pub(crate) struct NativeConsumer {
    consumer: Consumer,
    signal: Arc<Signal>,
    waits: Waits,
}

#[napi]
impl NativeConsumer {
    /// A consumer of these options.
    #[napi(constructor)]
    pub fn new(
        env: &Env,
        options: Vec<(String, String)>,
        on_signal: Callback,
    ) -> napi::Result<Self> {
        guard(env, || {
            let consumer = Consumer::new(&config::options(&options)?)?;
            let signal = Signal::new(on_signal);
            let waits = Waits::new(Arc::clone(&signal));
            let bell = Arc::clone(&signal);
            consumer.on_ready(move || bell.raise());
            Ok(Self { consumer, signal, waits })
        })
    }

    /// Reads these topics from now on.
    #[napi]
    pub fn subscribe(&self, env: &Env, topics: Vec<String>) -> napi::Result<()> {
        guard(env, || {
            let topics: Vec<&str> = topics.iter().map(String::as_str).collect();
            Ok(self.consumer.subscribe(&topics)?)
        })
    }

    /// Reads the topics from now on whose names match.
    #[napi]
    pub fn subscribe_pattern(&self, env: &Env, pattern: String) -> napi::Result<()> {
        guard(env, || Ok(self.consumer.subscribe_pattern(&pattern)?))
    }

    /// Reads these partitions from now on.
    #[napi]
    pub fn assign(&self, env: &Env, partitions: Partitions) -> napi::Result<()> {
        guard(env, || Ok(self.consumer.assign(&named(partitions))?))
    }

    /// Leaves the group.
    #[napi]
    pub fn unsubscribe(&self, env: &Env) -> napi::Result<()> {
        guard(env, || Ok(self.consumer.unsubscribe()?))
    }

    /// The next batch, if one is ready.
    #[napi]
    pub fn take<'env>(&self, env: &'env Env) -> napi::Result<Option<Object<'env>>> {
        guard(env, || {
            let batch = self.consumer.try_poll_batch()?;
            batch.map(|batch| record::taken(env, batch)).transpose()
        })
    }

    /// The same when the time of a call is over: fails if there is a reason why nothing came.
    #[napi]
    pub fn take_last<'env>(&self, env: &'env Env) -> napi::Result<Option<Object<'env>>> {
        guard(env, || {
            let batch = self.consumer.poll_batch(Duration::ZERO)?;
            batch.map(|batch| record::taken(env, batch)).transpose()
        })
    }

    /// How many records of the batch taken last are finished, and how many the program was given;
    /// whether it may be given more of it.
    #[napi]
    pub fn progress(
        &self,
        env: &Env,
        batch: &External<Batch>,
        finished: u32,
        given: u32,
    ) -> napi::Result<bool> {
        guard(env, || Ok(self.consumer.progress(batch, count(finished), count(given))))
    }

    /// Gives back what the program was not given of the batch taken last.
    #[napi]
    pub fn give_back(&self, env: &Env, batch: &External<Batch>, given: u32) -> napi::Result<()> {
        guard(env, || {
            self.consumer.give_back(batch, count(given));
            Ok(())
        })
    }

    /// Commits a batch up to so many of its records.
    #[napi]
    pub fn commit_batch(
        &self,
        env: &Env,
        batch: &External<Batch>,
        records: u32,
    ) -> napi::Result<u32> {
        guard(env, || {
            let call = with_commit(batch, records, |what| Ok(self.consumer.commit_async(what)))?;
            Ok(self.started(call))
        })
    }

    /// The same without waiting.
    #[napi]
    pub fn commit_batch_soon(
        &self,
        env: &Env,
        batch: &External<Batch>,
        records: u32,
    ) -> napi::Result<()> {
        guard(env, || Ok(with_commit(batch, records, |what| self.consumer.commit_soon(what))?))
    }

    /// The program has finished its work on these records of a batch.
    #[napi]
    pub fn acknowledge(
        &self,
        env: &Env,
        batch: &External<Batch>,
        from: u32,
        to: u32,
    ) -> napi::Result<()> {
        guard(env, || Ok(self.consumer.acknowledge_part(batch, count(from)..count(to))?))
    }

    /// Commits all that was given out so far.
    #[napi]
    pub fn commit_finished(&self, env: &Env) -> napi::Result<u32> {
        guard(env, || Ok(self.started(self.consumer.commit_async(Commit::Finished))))
    }

    /// The same without waiting.
    #[napi]
    pub fn commit_finished_soon(&self, env: &Env) -> napi::Result<()> {
        guard(env, || Ok(self.consumer.commit_soon(Commit::Finished)?))
    }

    /// Commits an offset for each of these partitions, and what stands beside it.
    #[napi]
    pub fn commit_offsets(
        &self,
        env: &Env,
        partitions: Partitions,
        offsets: BigInt64Array,
        beside: Beside,
    ) -> napi::Result<u32> {
        guard(env, || {
            let places = places(partitions, &offsets, beside);
            Ok(self.started(self.consumer.commit_async(Commit::OffsetsAndMetadata(&places))))
        })
    }

    /// The same without waiting.
    #[napi]
    pub fn commit_offsets_soon(
        &self,
        env: &Env,
        partitions: Partitions,
        offsets: BigInt64Array,
        beside: Beside,
    ) -> napi::Result<()> {
        guard(env, || {
            let places = places(partitions, &offsets, beside);
            Ok(self.consumer.commit_soon(Commit::OffsetsAndMetadata(&places))?)
        })
    }

    /// What the group has committed for these partitions.
    #[napi]
    pub fn committed(&self, env: &Env, partitions: Partitions) -> napi::Result<u32> {
        guard(env, || {
            let found = self.consumer.committed_async(&named(partitions));
            Ok(self.waits.start(async move {
                let offsets = found.await?.into_iter().map(|(_, offset)| offset.unwrap_or(-1));
                Ok(Answer::Offsets(offsets.collect()))
            }))
        })
    }

    /// The same with what stands beside it.
    #[napi]
    pub fn committed_with_metadata(
        &self,
        env: &Env,
        partitions: Partitions,
        timeout: f64,
    ) -> napi::Result<u32> {
        guard(env, || {
            let (which, timeout) = (named(partitions), millis(timeout));
            let found = self.consumer.committed_with_metadata_async_within(&which, timeout);
            Ok(self.waits.start(async move {
                let found = found.await?;
                let of = |(_, at): (TopicPartition, Option<OffsetAndMetadata>)| {
                    let at = at.unwrap_or_else(|| OffsetAndMetadata::new(-1));
                    (at.offset, (at.metadata, at.leader_epoch.unwrap_or(-1)))
                };
                let (offsets, beside) = found.into_iter().map(of).unzip();
                Ok(Answer::Metadata { offsets, beside })
            }))
        })
    }

    /// The offsets of the first records of these partitions, within so many milliseconds.
    #[napi]
    pub fn beginning_offsets(
        &self,
        env: &Env,
        partitions: Partitions,
        timeout: f64,
    ) -> napi::Result<u32> {
        guard(env, || {
            let (which, timeout) = (named(partitions), millis(timeout));
            let found = self.consumer.beginning_offsets_async_within(&which, timeout);
            Ok(self.looking(found, |(_, offset)| offset))
        })
    }

    /// The offsets behind their last ones.
    #[napi]
    pub fn end_offsets(
        &self,
        env: &Env,
        partitions: Partitions,
        timeout: f64,
    ) -> napi::Result<u32> {
        guard(env, || {
            let (which, timeout) = (named(partitions), millis(timeout));
            let found = self.consumer.end_offsets_async_within(&which, timeout);
            Ok(self.looking(found, |(_, offset)| offset))
        })
    }

    /// The first records of these times or later.
    #[napi]
    pub fn offsets_for_times(
        &self,
        env: &Env,
        partitions: Partitions,
        times: BigInt64Array,
        timeout: f64,
    ) -> napi::Result<u32> {
        guard(env, || {
            let (times, timeout) = (paired(partitions, &times), millis(timeout));
            let found = self.consumer.offsets_for_times_async_within(&times, timeout);
            Ok(self.waits.start(async move {
                let found = found.await?;
                let of = |(_, at): (TopicPartition, Option<OffsetAndTimestamp>)| {
                    at.map_or((-1, (-1, -1)), |at| (at.offset, (at.timestamp, at.leader_epoch)))
                };
                let (offsets, beside): (Vec<_>, Vec<_>) = found.into_iter().map(of).unzip();
                let (timestamps, epochs) = beside.into_iter().unzip();
                Ok(Answer::Times { offsets, timestamps, epochs })
            }))
        })
    }

    /// Goes on with a partition so many records before its end; gives the offset.
    #[napi]
    pub fn seek_before_end(
        &self,
        env: &Env,
        topic: String,
        partition: i32,
        records: BigInt64Array,
        timeout: f64,
    ) -> napi::Result<u32> {
        guard(env, || {
            let (which, timeout) = (TopicPartition::new(topic, partition), millis(timeout));
            let &[records] = &records[..] else {
                return Err(Error::new(ErrorKind::Internal, "a seek takes one number").into());
            };
            let records = records.max(0).unsigned_abs();
            let found = self.consumer.seek_before_end_async_within(&which, records, timeout);
            Ok(self.looking(async move { found.await.map(|offset| vec![offset]) }, |offset| offset))
        })
    }

    /// How far the next record of a partition is from its end; −1 while it is not known.
    #[napi]
    pub fn current_lag(
        &self,
        env: &Env,
        topic: String,
        partition: i32,
    ) -> napi::Result<BigInt64Array> {
        guard(env, || {
            let lag = self.consumer.current_lag(&TopicPartition::new(topic, partition));
            Ok(BigInt64Array::new(vec![lag.unwrap_or(-1)]))
        })
    }

    /// Tells that the program lives.
    #[napi]
    pub fn keep_alive(&self, env: &Env) -> napi::Result<()> {
        guard(env, || {
            self.consumer.keep_alive();
            Ok(())
        })
    }

    /// The offset of the next record of a partition; −1 while it is not known.
    #[napi]
    pub fn position(
        &self,
        env: &Env,
        topic: String,
        partition: i32,
    ) -> napi::Result<BigInt64Array> {
        guard(env, || {
            let position = self.consumer.position(&TopicPartition::new(topic, partition));
            Ok(BigInt64Array::new(vec![position.unwrap_or(-1)]))
        })
    }

    /// Goes on with a partition from an offset, the only one in `offset`.
    #[napi]
    pub fn seek(
        &self,
        env: &Env,
        topic: String,
        partition: i32,
        offset: BigInt64Array,
    ) -> napi::Result<()> {
        guard(env, || {
            let &[offset] = &offset[..] else {
                return Err(Error::new(ErrorKind::Internal, "a seek takes one offset").into());
            };
            Ok(self.consumer.seek(&TopicPartition::new(topic, partition), offset)?)
        })
    }

    /// Gives no records of these partitions.
    #[napi]
    pub fn pause(&self, env: &Env, partitions: Partitions) -> napi::Result<()> {
        guard(env, || Ok(self.consumer.pause(&named(partitions))?))
    }

    /// Gives records of these partitions again.
    #[napi]
    pub fn resume(&self, env: &Env, partitions: Partitions) -> napi::Result<()> {
        guard(env, || Ok(self.consumer.resume(&named(partitions))?))
    }

    /// The partitions that are this consumer's: topics and numbers in turn.
    #[napi]
    pub fn assignment(&self, env: &Env) -> napi::Result<Partitions> {
        guard(env, || {
            let partitions = self.consumer.assignment();
            Ok(partitions.into_iter().map(|own| (own.topic.to_string(), own.partition)).collect())
        })
    }

    /// How many milliseconds a call may take that is given no time.
    #[napi(getter)]
    pub fn api_timeout(&self) -> f64 {
        as_millis(self.consumer.api_timeout())
    }

    /// Commits what is finished, leaves the group and ends, within so many milliseconds.
    #[napi]
    pub fn close(&self, env: &Env, timeout: f64) -> napi::Result<u32> {
        guard(env, || Ok(self.started(self.consumer.close_async(millis(timeout)))))
    }

    /// Nobody waits for that call any more.
    #[napi]
    pub fn forget(&self, number: u32) {
        self.waits.forget(number);
    }

    /// Keeps the process alive, or no longer.
    #[napi]
    pub fn hold(&self, env: &Env, alive: bool) -> napi::Result<()> {
        self.signal.hold(env, if alive { Hold::Alive } else { Hold::Loose })
    }

    /// Which calls have ended, and how.
    #[napi]
    pub fn drain<'env>(&self, env: &'env Env) -> napi::Result<Option<Array<'env>>> {
        guard(env, || {
            self.signal.lower();
            self.waits.drain(env)
        })
    }
}

impl NativeConsumer {
    fn started(&self, call: impl Future<Output = Result<(), Error>> + 'static) -> u32 {
        self.waits.start(async move { call.await.map(|()| Answer::Done) })
    }

    /// Starts a call that gives offsets.
    fn looking<T>(
        &self,
        call: impl Future<Output = Result<Vec<T>, Error>> + 'static,
        offset: impl Fn(T) -> i64 + 'static,
    ) -> u32 {
        self.waits.start(async move {
            Ok(Answer::Offsets(call.await?.into_iter().map(offset).collect()))
        })
    }
}

fn count(records: u32) -> usize {
    usize::try_from(records).unwrap_or(usize::MAX)
}

/// Makes a call that commits a batch up to so many of its records.
fn with_commit<T>(
    batch: &Batch,
    records: u32,
    call: impl FnOnce(Commit<'_>) -> Result<T, Error>,
) -> Result<T, Error> {
    let records = count(records);
    if records >= batch.len() {
        return call(Commit::Batch(batch));
    }
    let last = records.checked_sub(1).and_then(|last| batch.record(last));
    let last = last.ok_or_else(|| {
        Error::new(ErrorKind::InvalidArgument, "a commit takes one record at least")
    })?;
    call(Commit::Record(&last))
}

fn named(partitions: Partitions) -> Vec<TopicPartition> {
    partitions.into_iter().map(|(topic, number)| TopicPartition::new(topic, number)).collect()
}

fn paired(partitions: Partitions, offsets: &[i64]) -> Vec<(TopicPartition, i64)> {
    named(partitions).into_iter().zip(offsets.iter().copied()).collect()
}

fn places(
    partitions: Partitions,
    offsets: &[i64],
    beside: Beside,
) -> Vec<(TopicPartition, OffsetAndMetadata)> {
    let each = paired(partitions, offsets).into_iter().zip(beside);
    each.map(|((partition, offset), (metadata, epoch))| {
        let leader_epoch = Some(epoch).filter(|&epoch| epoch >= 0);
        (partition, OffsetAndMetadata { offset, leader_epoch, metadata })
    })
    .collect()
}
