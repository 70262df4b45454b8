//! The clients that live, and whether their buffers keep to their limits.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

use ottla::{Consumer, Producer};

use crate::watch::{Check, Watch};

/// A client that is looked at while it lives.
#[derive(Debug)]
enum Client {
    /// Records taken and not acknowledged are within `buffer.memory`.
    Producer(Producer),
    /// The same, of which deliveries may wait for their callbacks, which come on top of it.
    Called(Producer),
    Consumer(Consumer),
}

/// All clients that live.
#[derive(Debug, Default)]
pub(crate) struct Gauges {
    clients: Mutex<Vec<(u64, Client)>>,
    made: AtomicU64,
    /// Most bytes that any producer and any consumer held at a look.
    produced: AtomicU64,
    consumed: AtomicUsize,
}

/// A client in the list; it leaves it when this is dropped, before the client's own last handle.
#[derive(Debug)]
pub(crate) struct Listed<'a> {
    gauges: &'a Gauges,
    id: u64,
}

impl Drop for Listed<'_> {
    fn drop(&mut self) {
        let mut clients = self.gauges.clients.lock().unwrap_or_else(PoisonError::into_inner);
        clients.retain(|(id, _)| *id != self.id);
    }
}

impl Gauges {
    pub(crate) fn producer(&self, producer: &Producer) -> Listed<'_> {
        self.list(Client::Producer(producer.clone()))
    }

    pub(crate) fn called(&self, producer: &Producer) -> Listed<'_> {
        self.list(Client::Called(producer.clone()))
    }

    pub(crate) fn consumer(&self, consumer: &Consumer) -> Listed<'_> {
        self.list(Client::Consumer(consumer.clone()))
    }

    fn list(&self, client: Client) -> Listed<'_> {
        let id = self.made.fetch_add(1, Ordering::Relaxed);
        self.clients.lock().unwrap_or_else(PoisonError::into_inner).push((id, client));
        Listed { gauges: self, id }
    }

    /// How many clients were made so far.
    pub(crate) fn made(&self) -> u64 {
        self.made.load(Ordering::Relaxed)
    }

    /// Most bytes held so far: by a producer, by a consumer.
    pub(crate) fn most(&self) -> (u64, usize) {
        (self.produced.load(Ordering::Relaxed), self.consumed.load(Ordering::Relaxed))
    }

    /// Looks at all clients.
    pub(crate) fn look(&self, watch: &Watch) {
        let clients = self.clients.lock().unwrap_or_else(PoisonError::into_inner);
        for (_, client) in &*clients {
            match client {
                Client::Producer(producer) | Client::Called(producer) => {
                    let stats = producer.stats();
                    self.produced.fetch_max(stats.memory_used, Ordering::Relaxed);
                    let called = matches!(client, Client::Called(_));
                    let limit = stats.memory_max + if called { stats.memory_max / 8 } else { 0 };
                    if stats.memory_used > limit {
                        watch.fault(Check::Gauges, format!("over {limit} bytes: {stats:?}"));
                    }
                }
                Client::Consumer(consumer) => {
                    let stats = consumer.stats();
                    self.consumed.fetch_max(stats.buffered, Ordering::Relaxed);
                    if stats.buffered > stats.buffered_max {
                        watch.fault(Check::Gauges, format!("over its limit: {stats:?}"));
                    }
                }
            }
        }
    }
}
