//! What the fetcher makes of a partition's answer: one table of error codes.

use std::time::{Duration, Instant};

use ottla_protocol::record::batches;
use ottla_protocol::{ErrorCode, left_out};

use super::session::SessionAsk;
use super::walk::{self, Rules, walk};
use super::{
    FetchAnswer, FetchConfig, FetchEvent, FetchFault, FetchLane, Fetched, FetchedPart, Fetcher,
    InFlight, Place,
};
use crate::error::Error;
use crate::state::token::Token;

/// What to do about an error code.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Verdict {
    Good,
    /// Ask again after a pause, with fresh metadata.
    Refresh,
    /// Ask again after a pause.
    Later,
    OutOfRange,
    /// Tell the application, and ask again after a pause.
    Told,
}

pub(crate) const fn verdict(code: ErrorCode) -> Verdict {
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
    /// Takes the answer to the fetch with `token`.
    pub(crate) fn handle_fetch(
        &mut self,
        token: Token,
        answer: Result<FetchAnswer, Error>,
        now: Instant,
    ) {
        let Some(sent) = self.in_flight.remove(&token) else {
            // A stale answer: nothing is asked under this token any more.
            return;
        };
        self.reserved -= sent.reserved;
        if let Some(code) = self.note_lane(&sent, &answer, now) {
            return self.handle_failed(&sent, token, code);
        }
        for row in answer.map(|answer| answer.parts).unwrap_or_default() {
            self.handle_row(row, &sent, token, now);
        }
        let asked = sent.asked_by(token);
        for partition in sent.named.keys() {
            let part = self.parts.get_mut(partition);
            let Some(part) = part.filter(|part| part.asked == Some(asked)) else { continue };
            if SessionAsk::is_full(sent.session_epoch) {
                part.asked = None;
                part.pause(&mut self.pace, now);
            } else {
                // KIP-227: what a session does not mention has no news.
                (part.seen_at, part.urgent, part.cause) = (now, false, ErrorCode::NONE);
            }
            self.touch(partition);
        }
        let lanes = self.lanes.entry(sent.broker).or_default();
        if sent.lane == FetchLane::Main {
            lanes.seen_at = Some(now);
            lanes.answers += 1;
            // What is not to stand there any more can be taken out now.
            for partition in lanes.review.clone() {
                self.touch(&partition);
            }
        }
    }

    /// Nothing came of a fetch: its partitions are to be asked for anew.
    fn handle_failed(&mut self, sent: &InFlight, token: Token, code: ErrorCode) {
        let asked = sent.asked_by(token);
        let partitions = match sent.lane {
            FetchLane::Main => self.lanes.entry(sent.broker).or_default().session.partitions(),
            FetchLane::Spare => sent.named.keys().cloned().collect(),
        };
        for partition in partitions {
            let part = self.parts.get_mut(&partition);
            let Some(part) = part.filter(|part| part.asked == Some(asked)) else { continue };
            (part.asked, part.cause) = (None, code);
            part.replica.take_if(|(node, _)| *node == sent.broker);
            self.feed(&partition);
            self.touch(&partition);
        }
    }

    fn handle_row(&mut self, row: FetchedPart, sent: &InFlight, token: Token, now: Instant) {
        let partition = row.partition.clone();
        let told = || self.lanes.get(&sent.broker)?.session.offset_of(&partition);
        let told = if sent.lane == FetchLane::Main { told() } else { None };
        let Some(offset) = told.or_else(|| sent.named.get(&partition).copied()) else {
            // Nobody asked.
            return;
        };
        let asked = sent.asked_by(token);
        let part = self.parts.get_mut(&partition);
        let Some(part) =
            part.filter(|part| part.asked == Some(asked) || left_out("assignment_token"))
        else {
            // A stale answer: revoked, sought, or led by another since it was asked.
            let records = walk::records_from(offset, batches(&row.records));
            if records > 0 {
                self.events.push_back(FetchEvent::Dropped { records });
            }
            return;
        };
        part.asked = None;
        // Whatever it says: if there is no room again, that is found again.
        self.feed(&partition);
        self.handle_part(row, offset, sent.broker, now);
        self.touch(&partition);
    }

    /// What an answer says of the broker as a whole; the code, or none at all, if it failed.
    fn note_lane(
        &mut self,
        sent: &InFlight,
        answer: &Result<FetchAnswer, Error>,
        now: Instant,
    ) -> Option<ErrorCode> {
        let lanes = self.lanes.entry(sent.broker).or_default();
        match sent.lane {
            FetchLane::Main => lanes.main = None,
            FetchLane::Spare => lanes.spare = None,
        }
        let failed = match answer {
            Ok(answer) if answer.error.is_none() => None,
            Ok(answer) => Some(answer.error),
            Err(_) => Some(ErrorCode::NONE),
        };
        let Some(code) = failed else {
            if sent.lane == FetchLane::Main {
                let session = answer.as_ref().map_or(0, |answer| answer.session);
                lanes.session.handle_answer(sent.session_epoch, session);
            }
            lanes.attempt = 0;
            let throttle = answer.as_ref().map_or(Duration::ZERO, |answer| answer.throttle);
            lanes.retry_at = Some(now + throttle).filter(|_| !throttle.is_zero());
            return None;
        };
        let of_session = sent.lane == FetchLane::Main && lanes.session.handle_failure(code);
        // Said in full it is no fault; said twice it is.
        if !of_session || lanes.attempt > 0 {
            lanes.retry_at = Some(now + self.pace.delay(lanes.attempt));
        }
        lanes.attempt = lanes.attempt.saturating_add(1);
        if !of_session || code == ErrorCode::FETCH_SESSION_TOPIC_ID_ERROR {
            self.events.push_back(FetchEvent::Refresh);
        }
        failed
    }

    /// One partition of an answer that is not stale.
    fn handle_part(&mut self, answer: FetchedPart, offset: i64, broker: i32, now: Instant) {
        let Some(part) = self.parts.get_mut(&answer.partition) else { return };
        let code = answer.error;
        part.cause = code;
        let replica = part.replica.take_if(|(node, _)| *node == broker && code.is_error());
        match verdict(code) {
            Verdict::Good => {
                part.seen_at = now;
                if let Some(node) = answer.replica.filter(|&node| node != broker) {
                    // KIP-392: it has no records for who can read them nearer by.
                    part.replica = Some((node, now + self.config.replica_age));
                    if part.attempt > 0 {
                        part.pause(&mut self.pace, now);
                    }
                }
                self.handle_records(answer, offset, now);
            }
            Verdict::OutOfRange if replica.is_some() => {
                // KIP-392: a follower may lag behind, or keep less. Only the leader's word counts.
                part.attempt = part.attempt.saturating_add(1);
                part.urgent = true;
            }
            Verdict::OutOfRange => {
                // The owner decides by its policy where to go on.
                part.place = Place::Unknown;
                let (partition, position) = (answer.partition, part.position);
                self.events.push_back(FetchEvent::OutOfRange { partition, position, offset });
            }
            Verdict::Refresh => {
                part.pause(&mut self.pace, now);
                self.events.push_back(FetchEvent::Refresh);
            }
            Verdict::Later => part.pause(&mut self.pace, now),
            Verdict::Told => {
                part.pause(&mut self.pace, now);
                self.fault(answer, FetchFault::Code(code));
            }
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
        let room = self.free();
        // A batch that is more than the whole budget is read all the same, with nothing beside it.
        let alone = self.buffered + self.reserved == 0 || left_out("large_alone");
        let FetchConfig { check_crcs, read_committed, .. } = self.config;
        let found = walk(&answer, offset, Rules { check_crcs, read_committed, room, alone });
        self.batch_bytes_seen = self.batch_bytes_seen.max(found.largest);
        let partition = answer.partition.clone();
        let starves = found.refused.filter(|_| found.next == offset);
        let Some(part) = self.parts.get_mut(&partition) else { return };
        let (position, high_watermark) = (part.position, answer.high_watermark);
        part.place = Place::At(found.next);
        let end_before = part.end.replace(high_watermark);
        if found.next > offset {
            part.attempt = 0;
            // What is known to be there is not to wait behind a fetch that the broker holds.
            part.urgent |= found.next < high_watermark;
            part.read_epoch = found.epoch;
            part.buffered += found.bytes;
            self.buffered += found.bytes;
            self.events.push_back(FetchEvent::Data(Fetched {
                partition,
                position,
                batches: found.batches,
                start: offset,
                next: found.next,
                bytes: found.bytes,
                pinned: answer.pinned,
                high_watermark,
            }));
        } else if let Some(need) = starves {
            if !part.paused {
                self.starved.get_or_insert((partition, need));
            }
        } else if found.fault.is_none() {
            // Read up to the end: the main lane waits for more. But a replica is asked at once.
            let nearer = answer.replica.is_some();
            (part.urgent, part.attempt) = (nearer, if nearer { part.attempt } else { 0 });
            if end_before != Some(high_watermark) {
                self.events.push_back(FetchEvent::End { partition, position, high_watermark });
            }
        }
        if let Some((offset, cause)) = found.fault {
            if let Some(part) = self.parts.get_mut(&answer.partition) {
                part.pause(&mut self.pace, now);
            }
            self.fault(answer, FetchFault::Corrupt { offset, cause });
        }
    }
}
