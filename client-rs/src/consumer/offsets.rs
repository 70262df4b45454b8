//! Where partitions begin and end, which offset a time stands for, and how far reading is behind.

use std::collections::BTreeMap;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use super::face::Command;
use super::promise::{Promise, Promised};
use super::{Consumer, SLACK};
use crate::driver::clock;
use crate::error::{Error, ErrorKind};
use crate::record::{TopicPartition, check_partition};
use crate::state::fetcher::Start;
use crate::state::offsets::{FoundOffset, FoundOffsets};

/// What the errors of these calls say took too long.
const WHAT: &str = "looking offsets up";

/// The first record of a time or later.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct OffsetAndTimestamp {
    /// Its offset.
    pub offset: i64,
    /// Its time in ms since the epoch.
    pub timestamp: i64,
    /// Epoch of the leader that took it; −1 if unknown.
    pub leader_epoch: i32,
}

/// A partition with the first record of a time or later, if there is one.
pub type OffsetForTime = (TopicPartition, Option<OffsetAndTimestamp>);

impl Consumer {
    /// The offset of the first record of each of these partitions, in their order; that of the next
    /// one where there is none.
    ///
    /// They need not be assigned. Faults that may pass are tried again until the time is over;
    /// `Timeout` then names the last. `InvalidTopic` and `InvalidPartition` for what cannot be.
    /// Kafka: `beginningOffsets`.
    pub fn beginning_offsets(
        &self,
        partitions: &[TopicPartition],
        timeout: Duration,
    ) -> Result<Vec<(TopicPartition, i64)>, Error> {
        let found = self.look_up(&all(partitions, Start::Earliest), timeout)?;
        plain(partitions, &found)
    }

    /// The same for tasks, within `default.api.timeout.ms`.
    pub fn beginning_offsets_async(
        &self,
        partitions: &[TopicPartition],
    ) -> impl Future<Output = Result<Vec<(TopicPartition, i64)>, Error>> + Send + use<> {
        self.beginning_offsets_async_within(partitions, self.own.config.api_timeout)
    }

    /// The same within a time of the caller's.
    pub fn beginning_offsets_async_within(
        &self,
        partitions: &[TopicPartition],
        timeout: Duration,
    ) -> impl Future<Output = Result<Vec<(TopicPartition, i64)>, Error>> + Send + use<> {
        self.plain_async(partitions, Start::Earliest, timeout)
    }

    /// The offset behind the last record of each of these partitions, in their order: that of the
    /// next one to be written. Else as [`Self::beginning_offsets`]. Kafka: `endOffsets`.
    pub fn end_offsets(
        &self,
        partitions: &[TopicPartition],
        timeout: Duration,
    ) -> Result<Vec<(TopicPartition, i64)>, Error> {
        let found = self.look_up(&all(partitions, Start::Latest), timeout)?;
        plain(partitions, &found)
    }

    /// The same for tasks, within `default.api.timeout.ms`.
    pub fn end_offsets_async(
        &self,
        partitions: &[TopicPartition],
    ) -> impl Future<Output = Result<Vec<(TopicPartition, i64)>, Error>> + Send + use<> {
        self.end_offsets_async_within(partitions, self.own.config.api_timeout)
    }

    /// The same within a time of the caller's.
    pub fn end_offsets_async_within(
        &self,
        partitions: &[TopicPartition],
        timeout: Duration,
    ) -> impl Future<Output = Result<Vec<(TopicPartition, i64)>, Error>> + Send + use<> {
        self.plain_async(partitions, Start::Latest, timeout)
    }

    /// The first record of each of these partitions whose time, in ms since the epoch, is the one
    /// given or later; nothing where there is none. Else as [`Self::beginning_offsets`].
    ///
    /// `InvalidArgument` for a time before the epoch, and for two times of one partition. Kafka:
    /// `offsetsForTimes` (KIP-79).
    pub fn offsets_for_times(
        &self,
        times: &[(TopicPartition, i64)],
        timeout: Duration,
    ) -> Result<Vec<OffsetForTime>, Error> {
        let found = self.look_up(&by_time(times)?, timeout)?;
        Ok(timed(times, &found))
    }

    /// The same for tasks, within `default.api.timeout.ms`.
    pub fn offsets_for_times_async(
        &self,
        times: &[(TopicPartition, i64)],
    ) -> impl Future<Output = Result<Vec<OffsetForTime>, Error>> + Send + use<> {
        self.offsets_for_times_async_within(times, self.own.config.api_timeout)
    }

    /// The same within a time of the caller's.
    pub fn offsets_for_times_async_within(
        &self,
        times: &[(TopicPartition, i64)],
        timeout: Duration,
    ) -> impl Future<Output = Result<Vec<OffsetForTime>, Error>> + Send + use<> {
        let promise = by_time(times).and_then(|wanted| self.begin_offsets(&wanted, timeout));
        let times = times.to_vec();
        async move {
            let found = Promised(promise?).await?;
            Ok(timed(&times, &found))
        }
    }

    /// Goes on with a partition so many records before its end, or at its beginning if it has fewer;
    /// the offset at which that is.
    ///
    /// Compaction and transactions leave gaps: then so many offsets. `NotAssigned` if it is not
    /// this consumer's, and else as [`Self::beginning_offsets`], within `timeout` in all.
    pub fn seek_before_end(
        &self,
        partition: &TopicPartition,
        records: u64,
        timeout: Duration,
    ) -> Result<i64, Error> {
        let deadline = clock::after(timeout);
        let only = std::slice::from_ref(partition);
        let end = self.end_offsets(only, timeout)?;
        let left = deadline.saturating_duration_since(clock::now());
        let begin = self.beginning_offsets(only, left)?;
        self.seek_back(partition, records, [&begin, &end])
    }

    /// The same for tasks, within `default.api.timeout.ms`.
    pub fn seek_before_end_async(
        &self,
        partition: &TopicPartition,
        records: u64,
    ) -> impl Future<Output = Result<i64, Error>> + Send + use<> {
        self.seek_before_end_async_within(partition, records, self.own.config.api_timeout)
    }

    /// The same within a time of the caller's.
    pub fn seek_before_end_async_within(
        &self,
        partition: &TopicPartition,
        records: u64,
        timeout: Duration,
    ) -> impl Future<Output = Result<i64, Error>> + Send + use<> {
        let only = std::slice::from_ref(partition);
        let begin = self.plain_async(only, Start::Earliest, timeout);
        let end = self.plain_async(only, Start::Latest, timeout);
        let (consumer, partition) = (self.clone(), partition.clone());
        async move {
            let (begin, end) = (begin.await?, end.await?);
            consumer.seek_back(&partition, records, [&begin, &end])
        }
    }

    fn seek_back(
        &self,
        partition: &TopicPartition,
        records: u64,
        [begin, end]: [&[(TopicPartition, i64)]; 2],
    ) -> Result<i64, Error> {
        let of = |rows: &[(TopicPartition, i64)]| rows.first().map_or(0, |(_, offset)| *offset);
        let back = i64::try_from(records).unwrap_or(i64::MAX);
        let offset = of(end).saturating_sub(back).max(of(begin));
        self.seek(partition, offset)?;
        Ok(offset)
    }

    /// How many offsets lie between the next record to be given of a partition and its end, as the
    /// last answers told; `None` while that is not known, or the partition is not assigned.
    ///
    /// It asks nobody. Kafka: `currentLag` (KIP-695).
    pub fn current_lag(&self, partition: &TopicPartition) -> Option<i64> {
        self.own.live()?.lag(partition)
    }

    fn look_up(
        &self,
        wanted: &[(TopicPartition, Start)],
        timeout: Duration,
    ) -> Result<FoundOffsets, Error> {
        let promise = self.begin_offsets(wanted, timeout)?;
        promise.wait(timeout.saturating_add(SLACK), WHAT)
    }

    fn plain_async(
        &self,
        partitions: &[TopicPartition],
        start: Start,
        timeout: Duration,
    ) -> impl Future<Output = Result<Vec<(TopicPartition, i64)>, Error>> + Send + use<> {
        let promise = self.begin_offsets(&all(partitions, start), timeout);
        let partitions = partitions.to_vec();
        async move {
            let found = Promised(promise?).await?;
            plain(&partitions, &found)
        }
    }

    fn begin_offsets(
        &self,
        wanted: &[(TopicPartition, Start)],
        timeout: Duration,
    ) -> Result<Arc<Promise<FoundOffsets>>, Error> {
        wanted.iter().try_for_each(|(partition, _)| check_partition(partition))?;
        let promise = Promise::new();
        let deadline = clock::after(timeout);
        let (wanted, known) = (wanted.to_vec(), Arc::clone(&promise));
        self.command(Command::Offsets { wanted, deadline, promise: known })?;
        Ok(promise)
    }
}

fn all(partitions: &[TopicPartition], start: Start) -> Vec<(TopicPartition, Start)> {
    partitions.iter().map(|partition| (partition.clone(), start)).collect()
}

fn by_time(times: &[(TopicPartition, i64)]) -> Result<Vec<(TopicPartition, Start)>, Error> {
    if let Some((partition, millis)) = times.iter().find(|(_, millis)| *millis < 0) {
        let text = format!("{millis} is no time to look for in {partition}: the least is 0");
        return Err(Error::new(ErrorKind::InvalidArgument, text));
    }
    let mut named = BTreeMap::new();
    for (partition, millis) in times {
        if named.insert(partition, millis).is_some_and(|other| other != millis) {
            let text = format!("{partition} is asked for at two times: a call has one answer");
            return Err(Error::new(ErrorKind::InvalidArgument, text));
        }
    }
    Ok(times.iter().map(|(partition, millis)| (partition.clone(), Start::Time(*millis))).collect())
}

fn plain(
    partitions: &[TopicPartition],
    found: &FoundOffsets,
) -> Result<Vec<(TopicPartition, i64)>, Error> {
    let untold = |partition: &TopicPartition| {
        Error::new(ErrorKind::Protocol, format!("the broker tells no offset of {partition}"))
    };
    let offset = |partition: &TopicPartition| {
        let found = found.get(partition).copied().flatten().ok_or_else(|| untold(partition))?;
        Ok((partition.clone(), found.offset))
    };
    partitions.iter().map(offset).collect()
}

fn timed(times: &[(TopicPartition, i64)], found: &FoundOffsets) -> Vec<OffsetForTime> {
    let of = |partition: &TopicPartition| {
        let FoundOffset { offset, timestamp, epoch } = found.get(partition).copied().flatten()?;
        Some(OffsetAndTimestamp { offset, timestamp, leader_epoch: epoch })
    };
    times.iter().map(|(partition, _)| (partition.clone(), of(partition))).collect()
}
