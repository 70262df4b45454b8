//! The largest batch of a run, by which it is known how much a consumer may hold at most.

use std::cell::Cell;

use bytes::Bytes;
use ottla_protocol::frame::decode_request;
use ottla_protocol::messages::produce_request::ProduceRequest;
use ottla_protocol::record::DecodedBatch;

/// No batch of a run grows to more.
const DECODED_MAX: usize = 16 * 1024 * 1024;

/// The largest batch that was sent so far: as it stands in the log, and its records with their places.
#[derive(Default)]
pub(crate) struct Largest {
    bytes: Cell<usize>,
    decoded: Cell<usize>,
}

impl Largest {
    /// A client has written a Produce request.
    pub(crate) fn note(&self, frame: &[u8]) {
        let Ok((_, request)) = decode_request::<ProduceRequest<'_>>(frame) else { return };
        let data = request.topic_data.iter().flat_map(|topic| &topic.partition_data);
        for batch in data.filter_map(|data| data.records.bytes()) {
            self.bytes.set(self.bytes.get().max(batch.len()));
            let decoded = DecodedBatch::decode(&Bytes::copy_from_slice(batch), DECODED_MAX);
            if let Some(batch) = decoded.ok().and_then(|batch| batch.index().ok()) {
                self.decoded.set(self.decoded.get().max(batch.memory_bytes()));
            }
        }
    }

    /// Most that a consumer of this `fetch.buffer.memory` may hold, as it was fetched and decoded: a
    /// quarter is for decoded records, and either part may be taken by one batch that alone is larger.
    pub(crate) fn most(&self, budget: usize) -> (usize, usize) {
        let decoded = budget / 4;
        ((budget - decoded).max(self.bytes.get()), decoded.max(self.decoded.get()))
    }
}
