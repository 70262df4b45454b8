//! Work that is finished in any order: what of a partition is in the program's hands, and the text
//! in which a commit keeps what is finished behind its offset.

use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;
use std::sync::Arc;

use ottla_protocol::left_out;

/// How the text begins. The 1 is its version.
const TAG: &str = "ottla-finished-1:";

/// Longest text: what brokers take unless they are told otherwise (`offset.metadata.max.bytes`).
const TEXT_BYTES_MAX: usize = 4_096;

/// From so many stretches of unfinished offsets on nothing more should be given out: their text, of
/// eight bytes each or less in the common case, still fits.
const STRETCHES_MAX: usize = 512;

/// What of one partition was given out and is not finished.
///
/// A record is finished with all offsets up to the next record's, so that nothing is ever waited
/// for that is not in the log any more.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Unfinished {
    /// The position it began at: records read at an earlier one do not count any more.
    since: u64,
    /// Of what lies before it, all that is not open is finished.
    given_to: i64,
    /// Leader epoch of the last record before that; −1 if unknown.
    given_epoch: i32,
    /// Given out and not finished: where each stretch begins.
    open: BTreeMap<i64, Stretch>,
    /// How many offsets these are.
    open_len: i64,
    /// Finished by who read the partition before, and not come to yet; in order.
    ahead: VecDeque<Range<i64>>,
    /// The newest leader epoch of a finished record; −1 if unknown.
    epoch: i32,
    /// Where the log was cut short, and the position from which on others may stand behind that; both
    /// ascend.
    cuts: Vec<(u64, i64)>,
}

/// Offsets in a row that are not finished.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Stretch {
    end: i64,
    /// Leader epoch of the record before it; −1 if unknown.
    epoch_before: i32,
}

/// Where the work on a partition stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Standing {
    /// Nothing before it is unfinished.
    pub(crate) offset: i64,
    /// Leader epoch of the record before it; −1 if unknown.
    pub(crate) leader_epoch: i32,
    /// How many offsets behind it are finished.
    pub(crate) beyond: i64,
}

impl Unfinished {
    /// Reading begins at this offset, and nothing is given out yet.
    pub(crate) const fn new(since: u64, offset: i64) -> Self {
        Self {
            since,
            given_to: offset,
            given_epoch: -1,
            open: BTreeMap::new(),
            open_len: 0,
            ahead: VecDeque::new(),
            epoch: -1,
            cuts: Vec::new(),
        }
    }

    /// The same, with what is finished behind a committed offset by the text beside it; `None` if
    /// that is another's text.
    pub(crate) fn from_text(since: u64, (offset, epoch): (i64, i32), text: &str) -> Option<Self> {
        let (finished_epoch, pairs) = text.strip_prefix(TAG)?.split_once(':')?;
        let mut ahead = VecDeque::new();
        let mut at = offset;
        for pair in pairs.split(',') {
            let (skipped, finished) = pair.split_once('+')?;
            let start = at.checked_add_unsigned(skipped.parse().ok()?)?;
            at = start.checked_add_unsigned(finished.parse().ok()?)?;
            ahead.push_back(start..at);
        }
        let epoch_read = finished_epoch.parse().ok()?;
        let new = Self::new(since, offset);
        Some(Self { given_epoch: epoch, ahead, epoch: epoch_read, ..new })
    }

    /// Up to which offset records count that were read at this position.
    pub(crate) fn reach(&self, position: u64) -> i64 {
        let first = self.cuts.iter().find(|&&(from, _)| position < from);
        match first {
            _ if position < self.since => i64::MIN,
            Some(&(_, end)) => end,
            None => i64::MAX,
        }
    }

    /// The log ends at this offset, and what was given out behind it is gone: from this position on
    /// other records stand there. What is in hand before it stays unfinished. Nothing is done, and
    /// said so, if nothing was given out behind it.
    pub(crate) fn cut(&mut self, position: u64, end: i64) -> bool {
        if end >= self.given_to {
            return false;
        }
        let mut gone: i64 =
            self.open.split_off(&end).iter().map(|(start, stretch)| stretch.end - start).sum();
        if let Some(mut last) = self.open.last_entry().filter(|last| last.get().end > end) {
            gone += last.get().end - end;
            last.get_mut().end = end;
        }
        self.open_len -= gone;
        (self.given_to, self.given_epoch) = (end, -1);
        self.ahead.clear();
        self.cuts.retain(|&(_, before)| before < end);
        self.cuts.push((position, end));
        true
    }

    /// Whether so many stretches are unfinished that no more should be begun.
    pub(crate) fn is_scattered(&self) -> bool {
        self.open.len() >= STRETCHES_MAX
    }

    /// Up to where all is finished from this offset on, if a record there is. Its leader epoch tells
    /// whether it is the one that was finished: where a log was cut short stand others, of newer epochs.
    pub(crate) fn finished_until(&mut self, offset: i64, epoch: i32) -> Option<i64> {
        if offset < self.given_to {
            let before = self.open.range(..=offset).next_back();
            if before.is_some_and(|(_, stretch)| offset < stretch.end) {
                return None;
            }
            let after = self.open.range(offset..).next();
            return Some(after.map_or(self.given_to, |(&start, _)| start));
        }
        let mut near = self.ahead.iter().take_while(|range| range.start <= offset);
        let end = near.find(|range| offset < range.end)?.end;
        if epoch > self.epoch && !left_out("finished_epoch") {
            self.ahead.clear();
            return None;
        }
        Some(end)
    }

    /// Up to where nothing is finished from this offset on.
    pub(crate) fn open_until(&self, offset: i64) -> i64 {
        let next = self.ahead.iter().find(|range| range.start > offset);
        next.map_or(i64::MAX, |range| range.start)
    }

    /// These are in the program's hands; between what was given out before and them nothing is. With
    /// the leader epochs of the record before them and of their last; −1 if unknown.
    pub(crate) fn give(&mut self, offsets: Range<i64>, (epoch_before, last_epoch): (i32, i32)) {
        if offsets.end <= self.given_to || offsets.is_empty() {
            // Given back, and given again; or offsets that do not ascend, as no log should have them.
            return;
        }
        let start = offsets.start.max(self.given_to);
        let last = self.open.last_entry().map(std::collections::btree_map::OccupiedEntry::into_mut);
        if let Some(stretch) = last.filter(|stretch| stretch.end == start) {
            stretch.end = offsets.end;
        } else {
            let known = if epoch_before >= 0 { epoch_before } else { self.given_epoch };
            self.open.insert(start, Stretch { end: offsets.end, epoch_before: known });
        }
        self.open_len += offsets.end - start;
        self.pass(offsets.end, last_epoch);
    }

    /// Reading has come to this offset, and nothing more is unfinished before it. With the leader
    /// epoch of the record before it; −1 if unknown.
    pub(crate) fn pass(&mut self, offset: i64, epoch: i32) {
        if offset <= self.given_to {
            return;
        }
        self.given_to = offset;
        if epoch >= 0 {
            self.given_epoch = epoch;
        }
        while self.ahead.front().is_some_and(|range| range.start < offset) {
            let Some(range) = self.ahead.pop_front() else { break };
            if range.end > offset {
                self.ahead.push_front(offset..range.end);
                break;
            }
        }
    }

    /// These are finished; with the leader epoch of their last record. Whether that was new.
    pub(crate) fn finish(&mut self, offsets: Range<i64>, epoch: i32) -> bool {
        if offsets.is_empty() {
            return false;
        }
        let first =
            self.open.range(..=offsets.start).next_back().map_or(offsets.start, |(&at, _)| at);
        let touched: Vec<(i64, Stretch)> = self
            .open
            .range(first..offsets.end)
            .filter(|(_, stretch)| stretch.end > offsets.start)
            .map(|(&start, &stretch)| (start, stretch))
            .collect();
        for &(start, Stretch { end, epoch_before }) in &touched {
            self.open.remove(&start);
            self.open_len -= end.min(offsets.end) - start.max(offsets.start);
            if start < offsets.start {
                self.open.insert(start, Stretch { end: offsets.start, epoch_before });
            }
            if end > offsets.end {
                self.open.insert(offsets.end, Stretch { end, epoch_before: epoch });
            }
        }
        if !touched.is_empty() {
            self.epoch = self.epoch.max(epoch);
        }
        !touched.is_empty()
    }

    /// Where the work stands: it never goes back, unless the log was cut short.
    pub(crate) fn standing(&self) -> Standing {
        let ahead: i64 = self.ahead.iter().map(|range| range.end - range.start).sum();
        let (offset, leader_epoch) = match self.open.first_key_value() {
            Some((&start, stretch)) if !left_out("lowest_unfinished") => {
                (start, stretch.epoch_before)
            }
            _ => (self.given_to, self.given_epoch),
        };
        let beyond = self.given_to - offset - self.open_len + ahead;
        Standing { offset, leader_epoch, beyond }
    }

    /// What a commit keeps beside that offset, for who reads on from it: the newest leader epoch of
    /// a finished record, then for each finished stretch how many offsets lie before it that are not,
    /// and how long it is. The first ones, if there are more than the text has room for.
    pub(crate) fn text(&self) -> Option<Arc<str>> {
        let mut at = self.standing().offset;
        let mut text = format!("{TAG}{}", self.epoch);
        let mut separator = ':';
        for range in self.finished() {
            let pair = format!("{separator}{}+{}", range.start - at, range.end - range.start);
            if text.len() + pair.len() > TEXT_BYTES_MAX {
                break;
            }
            text.push_str(&pair);
            (at, separator) = (range.end, ',');
        }
        (separator == ',').then(|| Arc::from(text))
    }

    /// The finished stretches behind the first unfinished offset.
    fn finished(&self) -> Vec<Range<i64>> {
        let mut found: Vec<Range<i64>> = Vec::with_capacity(self.open.len() + self.ahead.len());
        let starts = self.open.keys().skip(1).copied().chain([self.given_to]);
        let ends = self.open.values().map(|stretch| stretch.end);
        found.extend(
            ends.zip(starts).filter(|(end, start)| end < start).map(|(end, start)| end..start),
        );
        for range in &self.ahead {
            match found.last_mut().filter(|last| last.end == range.start) {
                Some(last) => last.end = range.end,
                None => found.push(range.clone()),
            }
        }
        found
    }
}

#[cfg(test)]
mod tests;
