//! Who waits for a partition's high watermark: writes for their batches, fetches for anything new.

use std::collections::VecDeque;

/// Names a fetch that waits, so that it can stop waiting.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct FetchToken(u64);

/// The waiting writes and fetches of one partition; `P` and `F` are what the driver does with them.
#[derive(Debug)]
pub(crate) struct Waiting<P, F> {
    high_watermark: i64,
    /// In order of the offset that the high watermark must reach.
    produces: VecDeque<(i64, P)>,
    fetches: Vec<(FetchToken, F)>,
    woken: Vec<F>,
    next_token: u64,
    closed: bool,
}

impl<P, F> Waiting<P, F> {
    /// Nobody waits, and the high watermark is where it is.
    pub(crate) fn new(high_watermark: i64) -> Self {
        Self {
            high_watermark,
            produces: VecDeque::new(),
            fetches: Vec::new(),
            woken: Vec::new(),
            next_token: 0,
            closed: false,
        }
    }

    /// A write waits until the high watermark reaches `needs`.
    pub(crate) fn park_produce(&mut self, needs: i64, produce: P) {
        // A duplicate's offset lies before what already waits, so the place is searched from the
        // end, where it nearly always is.
        let after = self.produces.iter().rposition(|(other, _)| *other <= needs);
        self.produces.insert(after.map_or(0, |at| at + 1), (needs, produce));
    }

    /// A fetch that saw the high watermark at `seen` waits for it to rise.
    ///
    /// None if it has risen since, or nobody may wait any more: the fetch reads again instead.
    pub(crate) fn park_fetch(&mut self, seen: i64, fetch: F) -> Option<FetchToken> {
        if self.closed || self.high_watermark > seen {
            return None;
        }
        let token = FetchToken(self.next_token);
        self.next_token += 1;
        self.fetches.push((token, fetch));
        Some(token)
    }

    /// A fetch no longer waits; a token that was served already is nothing to do.
    pub(crate) fn forget_fetch(&mut self, token: FetchToken) {
        self.fetches.retain(|(other, _)| *other != token);
    }

    /// The high watermark rose, and everybody who waited for less can be polled.
    pub(crate) fn handle_high_watermark(&mut self, high_watermark: i64) {
        if high_watermark > self.high_watermark {
            self.high_watermark = high_watermark;
            self.woken.extend(self.fetches.drain(..).map(|(_, fetch)| fetch));
        }
    }

    /// The next write whose batches are committed.
    pub(crate) fn poll_produce(&mut self) -> Option<P> {
        let (needs, _) = self.produces.front()?;
        if *needs > self.high_watermark {
            return None;
        }
        self.produces.pop_front().map(|(_, produce)| produce)
    }

    /// The next fetch that should read again.
    pub(crate) fn poll_fetch(&mut self) -> Option<F> {
        self.woken.pop()
    }

    /// From now on no fetch waits: whoever reads again is told why.
    pub(crate) fn close_to_fetches(&mut self) {
        self.closed = true;
    }

    /// Everybody who waits, when the partition closes.
    pub(crate) fn take_all(&mut self) -> (Vec<P>, Vec<F>) {
        let produces = self.produces.drain(..).map(|(_, produce)| produce).collect();
        (produces, self.take_fetches())
    }

    /// All fetches that wait.
    pub(crate) fn take_fetches(&mut self) -> Vec<F> {
        self.woken.extend(self.fetches.drain(..).map(|(_, fetch)| fetch));
        self.woken.drain(..).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn write_is_ready_when_the_high_watermark_reaches_its_end() {
        let mut waiting = Waiting::<&str, ()>::new(0);
        waiting.park_produce(3, "first");
        waiting.park_produce(5, "second");
        waiting.handle_high_watermark(4);
        assert_eq!(waiting.poll_produce(), Some("first"));
        assert_eq!(waiting.poll_produce(), None);
        waiting.handle_high_watermark(5);
        assert_eq!(waiting.poll_produce(), Some("second"));
    }

    #[test]
    fn duplicate_of_a_committed_batch_does_not_wait_behind_newer_ones() {
        let mut waiting = Waiting::<&str, ()>::new(10);
        waiting.park_produce(12, "new");
        waiting.park_produce(8, "duplicate");
        assert_eq!(waiting.poll_produce(), Some("duplicate"));
        assert_eq!(waiting.poll_produce(), None);
    }

    #[test]
    fn fetch_that_missed_a_rise_is_not_parked() {
        let mut waiting = Waiting::<(), &str>::new(0);
        waiting.handle_high_watermark(1);
        assert_eq!(waiting.park_fetch(0, "late"), None);
        assert!(waiting.park_fetch(1, "in time").is_some());
        waiting.handle_high_watermark(1);
        assert_eq!(waiting.poll_fetch(), None, "no rise, no wake");
        waiting.handle_high_watermark(2);
        assert_eq!(waiting.poll_fetch(), Some("in time"));
    }

    #[test]
    fn forgotten_fetch_is_not_woken() {
        let mut waiting = Waiting::<(), &str>::new(0);
        let token = waiting.park_fetch(0, "gone");
        waiting.park_fetch(0, "stays");
        if let Some(token) = token {
            waiting.forget_fetch(token);
        }
        waiting.handle_high_watermark(1);
        assert_eq!(waiting.poll_fetch(), Some("stays"));
        assert_eq!(waiting.poll_fetch(), None);
    }

    #[test]
    fn fetch_that_comes_after_the_close_is_not_parked() {
        let mut waiting = Waiting::<(), &str>::new(0);
        assert!(waiting.park_fetch(0, "in time").is_some());
        waiting.close_to_fetches();
        assert_eq!(waiting.park_fetch(0, "late"), None, "nobody would wake it");
        assert_eq!(waiting.take_all().1, vec!["in time"]);
    }

    #[test]
    fn closing_gives_everybody_back() {
        let mut waiting = Waiting::<u8, u8>::new(0);
        waiting.park_produce(1, 1);
        waiting.park_fetch(0, 2);
        assert_eq!(waiting.take_all(), (vec![1], vec![2]));
        assert_eq!(waiting.take_all(), (vec![], vec![]));
    }
}
