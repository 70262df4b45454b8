//! How a consumer fares.

use super::Consumer;
use crate::events::Events;
use crate::health::Health;

impl Consumer {
    /// What befalls the consumer, from now on. Nothing of it ends a poll.
    ///
    /// In a child of the process that made it there is nothing to tell.
    pub fn events(&self) -> Events {
        Events::of(&self.own.face.events, self.own.process)
    }

    /// How the consumer fares: its connections, its last error, its buffer, its partitions.
    ///
    /// Before the first call that needs the network nothing is told of connections; in a child of the
    /// process that made it nothing at all.
    pub fn health(&self) -> Health {
        if !self.own.process.is_current() {
            return Health::default();
        }
        let bytes = |count: usize| u64::try_from(count).unwrap_or(u64::MAX);
        let (buffered, partitions) = self.own.face.load();
        Health {
            buffer_used: bytes(buffered),
            buffer_max: bytes(self.own.config.memory_bytes),
            assigned: Some(partitions),
            ..self.own.life.health()
        }
    }
}
