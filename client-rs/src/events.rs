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
use self::feed::Taken;
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
    /// A broker asked to be left alone, in an answer about whatever, and is (KIP-219).
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
    ///
    /// In a child of the process that made it there is nothing to tell.
    pub fn try_next(&self) -> Option<Event> {
        // Looked at first: the feed's lock may be held for ever in a child.
        if self.process.is_current() { self.feed.take(None).event } else { None }
    }

    /// The next event; nothing if the time is over before one comes, or the client has ended.
    ///
    /// `Forked` in a child of the process that made it.
    pub fn next(&self, timeout: Duration) -> Result<Option<Event>, Error> {
        self.process.check()?;
        driver::check_may_wait()?;
        let deadline = clock::after(timeout);
        let (parker, mut place) = (Parker::current(), Place::of(self));
        loop {
            let taken = place.take(Sleeper::Thread(Arc::clone(&parker)));
            if taken.event.is_some() || taken.over {
                return Ok(taken.event);
            }
            let left = deadline.saturating_duration_since(clock::now());
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
        NextEvent { place: Place::of(self) }
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

/// Whoever waits for an event, in its place among those who do. Dropped, it gives the place up.
#[derive(Debug)]
struct Place<'a> {
    events: &'a Events,
    /// 0 before it waits.
    ticket: u64,
}

impl<'a> Place<'a> {
    const fn of(events: &'a Events) -> Self {
        Self { events, ticket: 0 }
    }

    /// The next event; if there is none, the sleeper is woken when one comes, or the client ends.
    fn take(&mut self, sleeper: Sleeper) -> Taken {
        self.events.feed.take(Some((&mut self.ticket, sleeper)))
    }
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        if self.ticket > 0 && self.events.process.is_current() {
            self.events.feed.forget(self.ticket);
        }
    }
}

/// A future of the next event.
#[derive(Debug)]
pub struct NextEvent<'a> {
    place: Place<'a>,
}

impl Future for NextEvent<'_> {
    type Output = Result<Option<Event>, Error>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        self.place.events.process.check()?;
        let taken = self.place.take(Sleeper::Task(cx.waker().clone()));
        if taken.event.is_some() || taken.over {
            return Poll::Ready(Ok(taken.event));
        }
        Poll::Pending
    }
}
