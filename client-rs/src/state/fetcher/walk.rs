//! Through the batches of an answer: which are shown, where to go on, and what is broken.

use std::collections::BTreeSet;

use bytes::Bytes;
use ottla_protocol::record::{Batch, BatchError, BatchHeader, ControlKind, ControlRecord, batches};

use super::FetchedPart;

/// No control batch that this client can make use of is larger.
const CONTROL_BYTES_MAX: usize = 64 * 1024;

/// What a partition's bytes came to.
#[derive(Debug)]
pub(super) struct Walk {
    /// The batches to show.
    pub(super) batches: Vec<Bytes>,
    /// Where the next fetch begins.
    pub(super) next: i64,
    /// Bytes of the batches to show.
    pub(super) bytes: usize,
    /// Epoch of the last batch; −1 if there was none.
    pub(super) epoch: i32,
    /// Bytes of the largest batch, and of the one for which there was no room.
    pub(super) largest: usize,
    pub(super) refused: Option<usize>,
    /// A damaged batch, after which nothing was looked at.
    pub(super) fault: Option<(i64, BatchError)>,
}

/// How an answer is read.
#[derive(Debug, Clone, Copy)]
pub(super) struct Rules {
    pub(super) check_crcs: bool,
    pub(super) read_committed: bool,
    /// Most bytes to keep.
    pub(super) room: usize,
    /// The first batch is kept however large it is.
    pub(super) alone: bool,
}

/// Walks through an answer for a fetch from `offset`.
///
/// The next fetch begins behind the last *batch*: compaction may have taken its last records away,
/// and a position counted from records would then ask for the same batch for ever.
pub(super) fn walk(answer: &FetchedPart, offset: i64, rules: Rules) -> Walk {
    let records = &answer.records;
    let mut found = Walk {
        batches: Vec::new(),
        next: offset,
        bytes: 0,
        epoch: -1,
        largest: 0,
        refused: None,
        fault: None,
    };
    let mut aborted = Aborted::new(if rules.read_committed { &answer.aborted } else { &[] });
    let mut at = 0;
    for batch in batches(records) {
        let checked = batch.and_then(|batch| {
            if rules.check_crcs {
                batch.verify_crc()?;
            }
            Ok(batch)
        });
        let batch = match checked {
            Ok(batch) => batch,
            Err(fault) => {
                found.fault = Some((base_offset(records, at).max(found.next), fault));
                return found;
            }
        };
        let len = batch.bytes.len();
        let wanted = batch.header.next_offset() > found.next;
        found.largest = found.largest.max(len);
        if aborted.shows(&batch) && wanted {
            let first = rules.alone && found.batches.is_empty();
            if found.bytes.saturating_add(len) > rules.room && !first {
                found.refused = Some(len);
                return found;
            }
            found.batches.push(records.slice(at..at + len));
            found.bytes += len;
        }
        if wanted {
            found.epoch = batch.header.partition_leader_epoch;
        }
        found.next = found.next.max(batch.header.next_offset());
        at += len;
    }
    if at == 0 && !records.is_empty() {
        // KIP-74: the first batch always comes whole.
        let fault = Batch::parse(records).err();
        found.fault = fault.map(|fault| (offset, fault));
    }
    found
}

/// How many records from `offset` on stand in some batches, as their headers tell.
///
/// Where compaction has thinned out the batch that holds the offset, all of that batch counts.
pub(super) fn records_from<'a>(
    offset: i64,
    batches: impl Iterator<Item = Result<Batch<'a>, BatchError>>,
) -> u64 {
    let count = |header: &BatchHeader| {
        let all = i64::from(header.records_count);
        let whole = all == header.next_offset().saturating_sub(header.base_offset);
        let before = offset.saturating_sub(header.base_offset).max(0);
        let hidden = header.attributes.is_control() || header.next_offset() <= offset;
        u64::try_from(all - if whole { before } else { 0 }).unwrap_or(0) * u64::from(!hidden)
    };
    batches.map_while(Result::ok).map(|batch| count(&batch.header)).sum()
}

/// The offset that stands at the front of a batch, however damaged the rest of it is.
fn base_offset(records: &Bytes, at: usize) -> i64 {
    let field = records.get(at..).and_then(|rest| rest.first_chunk::<8>());
    field.map_or(0, |field| i64::from_be_bytes(*field))
}

/// Follows which producers' transactions are known to be aborted (KIP-98).
struct Aborted {
    /// First offset and producer, in that order.
    begun: std::vec::IntoIter<(i64, i64)>,
    next: Option<(i64, i64)>,
    open: BTreeSet<i64>,
}

impl Aborted {
    fn new(aborted: &[(i64, i64)]) -> Self {
        let mut begun: Vec<(i64, i64)> =
            aborted.iter().map(|&(producer, first)| (first, producer)).collect();
        begun.sort_unstable();
        let mut begun = begun.into_iter();
        let next = begun.next();
        Self { begun, next, open: BTreeSet::new() }
    }

    /// Whether the application sees this batch. Control batches it never sees.
    fn shows(&mut self, batch: &Batch<'_>) -> bool {
        let header = &batch.header;
        while let Some((_, producer)) =
            self.next.filter(|(first, _)| *first <= header.last_offset())
        {
            self.open.insert(producer);
            self.next = self.begun.next();
        }
        if header.attributes.is_control() {
            if is_abort(batch) {
                self.open.remove(&header.producer_id);
            }
            return false;
        }
        !(header.attributes.is_transactional() && self.open.contains(&header.producer_id))
    }
}

fn is_abort(batch: &Batch<'_>) -> bool {
    let Ok(records) = batch.records(CONTROL_BYTES_MAX) else { return false };
    let first = records.iter().next();
    let key = first.and_then(Result::ok).and_then(|record| record.key);
    key.and_then(ControlRecord::parse).is_some_and(|control| control.kind == ControlKind::Abort)
}
