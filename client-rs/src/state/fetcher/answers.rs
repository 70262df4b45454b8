//! What the fetcher makes of a partition's answer: one table of error codes.

use std::time::Instant;

use ottla_protocol::ErrorCode;

use super::walk::{Walk, walk};
use super::{FetchEvent, FetchFault, Fetched, FetchedPart, Fetcher, Place};

/// What to do about an error code.
enum Verdict {
    Good,
    /// Ask again after a pause, with fresh metadata.
    Refresh,
    /// Ask again after a pause.
    Later,
    OutOfRange,
    /// Tell the application, and ask again after a pause.
    Told,
}

const fn verdict(code: ErrorCode) -> Verdict {
    match code {
        ErrorCode::NONE => Verdict::Good,
        ErrorCode::OFFSET_OUT_OF_RANGE => Verdict::OutOfRange,
        // The broker knows a newer epoch than it has told: OFFSET_NOT_AVAILABLE passes (KIP-207).
        ErrorCode::OFFSET_NOT_AVAILABLE
        | ErrorCode::NOT_LEADER_OR_FOLLOWER
        | ErrorCode::REPLICA_NOT_AVAILABLE
        | ErrorCode::KAFKA_STORAGE_ERROR
        | ErrorCode::FENCED_LEADER_EPOCH
        | ErrorCode::UNKNOWN_TOPIC_OR_PARTITION
        | ErrorCode::UNKNOWN_TOPIC_ID
        | ErrorCode::INCONSISTENT_TOPIC_ID => Verdict::Refresh,
        ErrorCode::UNKNOWN_LEADER_EPOCH | ErrorCode::UNKNOWN_SERVER_ERROR => Verdict::Later,
        ErrorCode::CORRUPT_MESSAGE => Verdict::Told,
        code if code.is_retriable() => Verdict::Later,
        _ => Verdict::Told,
    }
}

impl Fetcher {
    /// One partition of an answer that is not stale.
    pub(super) fn handle_part(&mut self, answer: FetchedPart, offset: i64, now: Instant) {
        let code = answer.error;
        match verdict(code) {
            Verdict::Good => self.handle_records(answer, offset, now),
            Verdict::OutOfRange => {
                let partition = answer.partition;
                if let Some(part) = self.parts.get_mut(&partition) {
                    // The owner decides by its policy where to go on.
                    part.place = Place::Unknown;
                    let position = part.position;
                    self.events.push_back(FetchEvent::OutOfRange { partition, position, offset });
                }
            }
            Verdict::Refresh => {
                self.pause(&answer, now);
                self.events.push_back(FetchEvent::Refresh);
            }
            Verdict::Later => self.pause(&answer, now),
            Verdict::Told => {
                self.pause(&answer, now);
                self.fault(answer, FetchFault::Code(code));
            }
        }
    }

    fn pause(&mut self, answer: &FetchedPart, now: Instant) {
        if let Some(part) = self.parts.get_mut(&answer.partition) {
            part.retry_at = Some(now + self.pace.delay(part.attempt));
            part.attempt = part.attempt.saturating_add(1);
        }
    }

    fn fault(&mut self, answer: FetchedPart, fault: FetchFault) {
        let partition = answer.partition;
        if let Some(part) = self.parts.get(&partition) {
            let position = part.position;
            self.events.push_back(FetchEvent::Fault { partition, position, fault });
        }
    }

    fn handle_records(&mut self, answer: FetchedPart, offset: i64, now: Instant) {
        let read_committed = self.config.read_committed;
        let Walk { batches, next, bytes, fault } =
            walk(&answer, offset, self.config.check_crcs, read_committed);
        let Some(part) = self.parts.get_mut(&answer.partition) else { return };
        part.place = Place::At(next);
        if fault.is_none() {
            part.attempt = 0;
        }
        if next > offset {
            part.buffered += bytes;
            self.buffered += bytes;
            self.events.push_back(FetchEvent::Data(Fetched {
                partition: answer.partition.clone(),
                position: part.position,
                batches,
                start: offset,
                next,
                bytes,
                high_watermark: answer.high_watermark,
            }));
        } else if fault.is_none() {
            // Read up to the end: the main lane waits for more.
            part.urgent = false;
        }
        if let Some((offset, cause)) = fault {
            self.pause(&answer, now);
            self.fault(answer, FetchFault::Corrupt { offset, cause });
        }
    }
}
