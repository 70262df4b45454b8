//! What befell a client, for programs that want to act on it.
//!
//! Nobody need ask: a client whose events nobody asked for keeps none, and pays one look at a flag
//! for each.

mod feed;
#[cfg(test)]
mod tests;

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

pub(crate) use self::feed::Feed;
use crate::driver::{self, clock};
use crate::error::Error;
use crate::process::Process;
use crate::record::TopicPartition;
use crate::state::fetcher::Start;
use crate::state::parker::{Parker, Sleeper};

/// Events kept until they are taken; what comes beyond is counted, and told by
/// [`Event::EventsLost`].
pub const EVENTS_MAX: usize = 10_000;

/// Something that befell a client.
///
/// What is told here is told nowhere instead: errors come out of the calls as ever, and each has its
/// log line.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum Event {
    /// Producers: records failed, and nobody holds a token of them. The next flush says so too.
    DeliveryFailed {
        /// Why, with topic, partition and outcome.
        error: Error,
        /// How many, of one batch.
        records: u64,
    },
    /// No connection is open, and an attempt to open one failed. Told once, until
    /// [`Event::BrokersUp`]: attempts go on by themselves.
    BrokersDown {
        /// Why the attempt failed, with a hint where a person can act.
        error: Error,
    },
    /// A connection is open again.
    BrokersUp {
        /// How long after [`Event::BrokersDown`].
        after: Duration,
    },
    /// A broker of another cluster, or another broker than was meant, answers under an address: it
    /// is left, and the cluster looked for anew at `bootstrap.servers` (KIP-1242).
    OtherCluster {
        /// Where, as `ID at HOST:PORT`.
        broker: String,
        /// The id of the cluster that is known.
        known: String,
        /// The id of the other one; `None` if the broker only said that it is not the one meant.
        found: Option<String>,
    },
    /// `bootstrap.servers` lead to another cluster than before, and the client goes on there.
    ClusterChanged {
        /// The id of the cluster before.
        known: String,
        /// The id of the cluster now.
        found: String,
    },
    /// Consumers: these partitions are this member's from now on.
    PartitionsAssigned {
        /// Those that it did not have before; it may be none.
        partitions: Vec<TopicPartition>,
        /// The group's generation.
        generation: i32,
    },
    /// Consumers: these were given up, after what was finished of them was committed.
    PartitionsRevoked {
        /// Those that went.
        partitions: Vec<TopicPartition>,
    },
    /// Consumers: the group took these away, and another member may have them already; nothing more
    /// of them is committed.
    PartitionsLost {
        /// Those that went.
        partitions: Vec<TopicPartition>,
    },
    /// Consumers: the program did not ask for records within `max.poll.interval.ms`, so the member
    /// leaves its group until it does.
    PollMissed {
        /// How long it did not ask until then.
        after: Duration,
        /// `max.poll.interval.ms`.
        limit: Duration,
    },
    /// Consumers: nothing came of a partition for 30 seconds, and it is fetched anew.
    PartitionStuck {
        /// Which.
        partition: TopicPartition,
        /// What it waited for, as far as that is known.
        reason: String,
    },
    /// Consumers: `auto.offset.reset` decides where a partition begins or goes on.
    OffsetReset {
        /// Which.
        partition: TopicPartition,
        /// The offset that is not in the log; `None` if none was committed.
        offset: Option<i64>,
        /// Where it begins.
        to: ResetTo,
    },
    /// Consumers: a log was cut short under a new leader (KIP-320).
    Truncated {
        /// Which.
        partition: TopicPartition,
        /// How far it had been fetched.
        offset: i64,
        /// Where the log parts from what was fetched.
        end: i64,
    },
    /// A topic was deleted, and another was created under its name (KIP-516).
    TopicRecreated {
        /// Its name; a consumer says it once for each of its partitions that it reads.
        topic: Arc<str>,
    },
    /// A broker asked to be left alone, and is (KIP-219).
    Throttled {
        /// Which, as `ID at HOST:PORT`.
        broker: String,
        /// For how long.
        time: Duration,
    },
    /// Producers: what the broker has of a partition's batches cannot be told, so they go on under
    /// another epoch (KIP-360).
    EpochBumped {
        /// Which.
        partition: TopicPartition,
        /// The producer id from now on.
        producer_id: i64,
        /// The epoch from now on.
        epoch: i16,
    },
    /// Events that came while [`EVENTS_MAX`] waited to be taken, and were not kept.
    EventsLost {
        /// How many.
        count: u64,
    },
}

/// Where `auto.offset.reset` has a partition begin.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum ResetTo {
    /// At its first record.
    Earliest,
    /// Behind its last record.
    Latest,
    /// At the first record of that time or later, in ms since the epoch (KIP-1106).
    Timestamp(i64),
}

impl From<Start> for ResetTo {
    fn from(start: Start) -> Self {
        match start {
            Start::Earliest => Self::Earliest,
            Start::Latest => Self::Latest,
            Start::Time(millis) => Self::Timestamp(millis),
        }
    }
}

/// A client's events, in the order in which they came.
///
/// They are kept from the first call that asks for them on, 10,000 at most, until the last of these
/// handles is dropped. Several handles share what comes: each event is given out once. They outlive
/// the client: what came before its end can still be taken.
pub struct Events {
    feed: Arc<Feed>,
    process: Process,
}

impl Events {
    pub(crate) fn of(feed: &Arc<Feed>, process: Process) -> Self {
        if process.is_current() {
            feed.open();
        }
        Self { feed: Arc::clone(feed), process }
    }

    /// The next event, if there is one. Never waits.
    pub fn try_next(&self) -> Option<Event> {
        self.feed.take(None).event.filter(|_| self.process.is_current())
    }

    /// The next event; nothing if the time is over before one comes, or the client has ended.
    ///
    /// `Forked` in a child of the process that made it.
    pub fn next(&self, timeout: Duration) -> Result<Option<Event>, Error> {
        self.process.check()?;
        driver::check_may_wait()?;
        let deadline = clock::now().checked_add(timeout);
        let parker = Parker::current();
        loop {
            let taken = self.feed.take(Some(Sleeper::Thread(Arc::clone(&parker))));
            if taken.event.is_some() || taken.over {
                return Ok(taken.event);
            }
            let left = deadline
                .map_or(timeout, |deadline| deadline.saturating_duration_since(clock::now()));
            if left.is_zero() {
                return Ok(None);
            }
            parker.park(left);
        }
    }

    /// The next event, for tasks; nothing only when the client has ended.
    ///
    /// Dropping the future loses no event.
    pub fn next_async(&self) -> NextEvent<'_> {
        NextEvent { events: self }
    }
}

impl Clone for Events {
    fn clone(&self) -> Self {
        Self::of(&self.feed, self.process)
    }
}

impl Drop for Events {
    fn drop(&mut self) {
        if self.process.is_current() {
            self.feed.shut();
        }
    }
}

impl fmt::Debug for Events {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Events").finish_non_exhaustive()
    }
}

/// A future of the next event.
#[derive(Debug)]
pub struct NextEvent<'a> {
    events: &'a Events,
}

impl Future for NextEvent<'_> {
    type Output = Result<Option<Event>, Error>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        self.events.process.check()?;
        let taken = self.events.feed.take(Some(Sleeper::Task(cx.waker().clone())));
        if taken.event.is_some() || taken.over {
            return Poll::Ready(Ok(taken.event));
        }
        Poll::Pending
    }
}
