//! Records in memory of their own, for who keeps a few of many.

use std::ops::Range;
use std::sync::Arc;

use super::{Batch, Chunk, ConsumerRecord, Shared};

/// The number of what is no fetch; those of fetches begin with 1.
const NO_FETCH: u64 = 0;

impl Shared {
    /// Some of its records, in memory of their own.
    fn part(&self, records: Range<usize>) -> Self {
        let mut chunks: Vec<Chunk> = Vec::new();
        let (mut len, mut memory_bytes) = (0, 0);
        while let Some((chunk, place)) = self.place(records.start + len) {
            let left = records.len() - len;
            let part = chunk.records.part(place..place.saturating_add(left));
            if part.is_empty() {
                break;
            }
            memory_bytes += part.memory_bytes();
            let first = len;
            len += part.len();
            chunks.push(Chunk { first, skipped: 0, records: part });
        }
        let (next, through) = (self.mark(records.end).offset, self.reach_of(records.end));
        let pinned = memory_bytes;
        let partition = self.partition.clone();
        Self {
            partition,
            chunks,
            len,
            next,
            through,
            memory_bytes,
            pinned,
            number: NO_FETCH,
            ..*self
        }
    }
}

impl Batch {
    /// The same records in memory of their own, which holds nothing else of what was fetched.
    ///
    /// For who keeps a batch for long: it holds the whole answer it came in, which may be many
    /// times larger (`fetch.max.bytes`). Costs a copy of its bytes. It commits what the batch
    /// commits; for [`Consumer::progress`](crate::Consumer::progress) and
    /// [`Consumer::give_back`](crate::Consumer::give_back) it stands for no fetch.
    #[must_use]
    pub fn detached(&self) -> Self {
        let part = self.shared.part(self.from..self.to);
        let to = part.len;
        Self::new(Arc::new(part), 0, to)
    }
}

impl ConsumerRecord {
    /// The same record in memory of its own, which holds nothing else of what was fetched.
    ///
    /// For who keeps some records of many for long: each holds the whole answer it came in, 16 MiB
    /// and more (`fetch.max.bytes`). Costs a copy of its bytes. It commits what the record commits.
    #[must_use]
    pub fn detached(&self) -> Self {
        let part = self.shared.part(self.index..self.index + 1);
        Self { shared: Arc::new(part), index: 0 }
    }
}
