//! How a client fares: what the I/O thread notes, and what any thread reads of it.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use crate::error::Error;
use crate::events::{Event, Feed};
use crate::state::guard::lock;
use crate::state::metadata::Stray;

/// How a client fares. Cheap to ask for: some counters, and a lock that is held for a moment.
#[derive(Debug, Clone, Default)]
#[non_exhaustive]
pub struct Health {
    /// Brokers to which a connection is open, as `ID at HOST:PORT`; as `HOST:PORT` where the address
    /// is one of `bootstrap.servers` and its id is not known.
    pub connected: Vec<String>,
    /// Why the last connection that failed did so, whether it was open before or not; it stays until
    /// another fails.
    pub last_error: Option<LastError>,
    /// Connections that came about since the client was made.
    pub connects: u64,
    /// Attempts to open a connection that failed.
    pub connect_failures: u64,
    /// Connections that broke. Those that were closed since nobody used them are not counted.
    pub disconnects: u64,
    /// Requests that were put on a connection.
    pub requests: u64,
    /// Bytes of these requests.
    pub bytes_sent: u64,
    /// Bytes of answers.
    pub bytes_received: u64,
    /// Bytes of its buffer in use: `buffer.memory` or `fetch.buffer.memory`. An admin client has none.
    pub buffer_used: u64,
    /// Bytes of its buffer in all.
    pub buffer_max: u64,
    /// Consumers: how many partitions are its own now. `None` for other clients.
    pub assigned: Option<usize>,
}

impl Health {
    /// Whether a connection to any broker is open.
    pub const fn is_connected(&self) -> bool {
        !self.connected.is_empty()
    }
}

/// Why a connection failed, and when.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct LastError {
    /// What happened, with the broker and what a person can do about it.
    pub error: Error,
    /// How long ago.
    pub age: Duration,
}

/// What the I/O thread notes.
#[derive(Debug, Default)]
pub(crate) struct Vitals {
    connects: AtomicU64,
    connect_failures: AtomicU64,
    disconnects: AtomicU64,
    requests: AtomicU64,
    bytes_sent: AtomicU64,
    bytes_received: AtomicU64,
    throttled_ms: AtomicU64,
    /// Bytes of buffers that large answers lie in.
    answers: Arc<AtomicUsize>,
    told: Mutex<Told>,
    events: Arc<Feed>,
}

#[derive(Debug, Default)]
struct Told {
    /// Open connections of each broker.
    connected: BTreeMap<String, usize>,
    last_error: Option<(Error, Instant)>,
    /// Since when no connection is open and none can be opened.
    down_since: Option<Instant>,
}

fn count(counter: &AtomicU64, more: usize) {
    counter.fetch_add(u64::try_from(more).unwrap_or(0), Ordering::Relaxed);
}

impl Vitals {
    /// Of a client that tells its events there.
    pub(crate) fn new(events: &Arc<Feed>) -> Self {
        Self { events: Arc::clone(events), ..Self::default() }
    }

    pub(crate) fn note_connected(&self, broker: &str, now: Instant) {
        count(&self.connects, 1);
        let mut told = lock(&self.told);
        *told.connected.entry(broker.to_owned()).or_default() += 1;
        let down_since = told.down_since.take();
        drop(told);
        if let Some(since) = down_since {
            let after = now.saturating_duration_since(since);
            tracing::info!(broker, after_ms = after.as_millis(), "a broker is there again");
            self.events.tell(|| Event::BrokersUp { after });
        }
    }

    pub(crate) fn note_not_connected(&self, error: Error, now: Instant) {
        count(&self.connect_failures, 1);
        let mut told = lock(&self.told);
        let fresh = told.connected.is_empty() && told.down_since.is_none();
        if fresh {
            told.down_since = Some(now);
        }
        told.last_error = Some((error.clone(), now));
        drop(told);
        if fresh {
            tracing::warn!(%error, "no broker can be reached");
            self.events.tell(|| Event::BrokersDown { error });
        }
    }

    /// A connection ended; without an error it was closed.
    pub(crate) fn note_ended(&self, broker: &str, error: Option<Error>, now: Instant) {
        let mut told = lock(&self.told);
        if let Some(open) = told.connected.get_mut(broker) {
            *open -= 1;
            if *open == 0 {
                told.connected.remove(broker);
            }
        }
        if let Some(error) = error {
            count(&self.disconnects, 1);
            told.last_error = Some((error, now));
        }
    }

    /// Brokers of another cluster were met.
    pub(crate) fn note_stray(&self, stray: Stray) {
        match stray {
            Stray::Left { broker, known, found } => {
                tracing::warn!(broker, known, found, "another cluster answers: it is left");
                let found = Some(found);
                self.events.tell(|| Event::OtherCluster { broker, known, found });
            }
            Stray::Moved { known, found } => {
                tracing::warn!(known, found, "`bootstrap.servers` lead to another cluster now");
                self.events.tell(|| Event::ClusterChanged { known, found });
            }
        }
    }

    /// A broker says that it is not the one that was meant.
    pub(crate) fn note_refused(&self, broker: &str, known: &str) {
        tracing::warn!(broker, known, "it is another broker, or of another cluster: it is left");
        self.events.tell(|| Event::OtherCluster {
            broker: broker.to_owned(),
            known: known.to_owned(),
            found: None,
        });
    }

    /// The client is closed, and with it all its connections.
    pub(crate) fn note_closed(&self) {
        lock(&self.told).connected.clear();
        self.events.end();
    }

    pub(crate) fn note_request(&self, bytes: u64) {
        count(&self.requests, 1);
        self.bytes_sent.fetch_add(bytes, Ordering::Relaxed);
    }

    pub(crate) fn note_answer(&self, bytes: usize) {
        count(&self.bytes_received, bytes);
    }

    /// A broker wants to be left alone for so long.
    pub(crate) fn note_throttled(&self, broker: &str, time: Duration) {
        let millis = u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
        self.throttled_ms.fetch_add(millis, Ordering::Relaxed);
        self.events.tell(|| Event::Throttled { broker: broker.to_owned(), time });
    }

    /// Where the bytes of buffers are counted that large answers lie in.
    pub(crate) fn answers(&self) -> Arc<AtomicUsize> {
        Arc::clone(&self.answers)
    }

    /// Milliseconds for which brokers wanted to be left alone.
    pub(crate) fn throttled_ms(&self) -> u64 {
        self.throttled_ms.load(Ordering::Relaxed)
    }

    /// Why no connection is open, if one was tried and failed.
    pub(crate) fn cut_off(&self) -> Option<Error> {
        let told = lock(&self.told);
        let last = told.last_error.as_ref().filter(|_| told.connected.is_empty());
        last.map(|(error, _)| error.clone())
    }

    pub(crate) fn read(&self, now: Instant) -> Health {
        let load = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let told = lock(&self.told);
        let (connected, last_error) =
            (told.connected.keys().cloned().collect(), told.last_error.clone());
        drop(told);
        Health {
            connected,
            last_error: last_error
                .map(|(error, at)| LastError { error, age: now.saturating_duration_since(at) }),
            connects: load(&self.connects),
            connect_failures: load(&self.connect_failures),
            disconnects: load(&self.disconnects),
            requests: load(&self.requests),
            bytes_sent: load(&self.bytes_sent),
            bytes_received: load(&self.bytes_received),
            ..Health::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::ErrorKind;

    #[test]
    #[allow(clippy::disallowed_methods, reason = "an origin for times that are made up")]
    fn a_connection_that_breaks_is_counted_and_its_error_kept_until_another() {
        let vitals = Vitals::default();
        let begin = Instant::now();
        let second = Duration::from_secs(1);
        let error = |kind| Error::new(kind, "gone");
        vitals.note_connected("1 at a:1", begin);
        vitals.note_connected("1 at a:1", begin);
        vitals.note_ended("1 at a:1", Some(error(ErrorKind::Disconnected)), begin + second);
        let health = vitals.read(begin + second * 3);
        assert!(health.is_connected(), "by the other one");
        assert_eq!((health.connects, health.disconnects, health.connect_failures), (2, 1, 0));
        let last = health.last_error.unwrap();
        assert_eq!((last.error.kind(), last.age), (ErrorKind::Disconnected, second * 2));
        vitals.note_ended("1 at a:1", None, begin + second * 3);
        let health = vitals.read(begin + second * 4);
        assert_eq!((health.is_connected(), health.disconnects), (false, 1), "it was closed");
        assert_eq!(health.last_error.unwrap().age, second * 3);
        vitals.note_not_connected(error(ErrorKind::Connect), begin + second * 5);
        let health = vitals.read(begin + second * 5);
        assert_eq!((health.disconnects, health.connect_failures), (1, 1));
        assert_eq!(health.last_error.unwrap().error.kind(), ErrorKind::Connect);
        vitals.note_connected("1 at a:1", begin + second * 6);
        vitals.note_closed();
        assert!(!vitals.read(begin + second * 6).is_connected());
    }
}
