//! For how long a client goes on that can look up none of the names in its options (KIP-909).

use std::time::{Duration, Instant};

use crate::error::{Error, ErrorKind};

/// What is known of the names in `bootstrap.servers`.
#[derive(Debug)]
pub(super) enum Resolving {
    /// None of them was looked up yet.
    Tried {
        /// `bootstrap.resolve.timeout.ms`.
        limit: Duration,
        /// How many there are, of which one after the other is tried, and how often that failed.
        names: usize,
        failures: usize,
        /// When it failed for the first time.
        failing_since: Option<Instant>,
    },
    /// One was, or there is no limit.
    Done,
}

impl Resolving {
    pub(super) fn new(limit: Option<Duration>, names: usize) -> Self {
        let tried = |limit| Self::Tried { limit, names, failures: 0, failing_since: None };
        limit.map_or(Self::Done, tried)
    }

    /// Notes how a request fared; the client's end, if its time is over.
    pub(super) fn note(&mut self, fault: Option<&Error>, now: Instant) -> Option<Error> {
        let Self::Tried { limit, names, failures, failing_since } = self else { return None };
        // Whatever else went wrong, there was an address.
        let Some(fault) = fault.filter(|fault| fault.kind() == ErrorKind::Dns) else {
            *self = Self::Done;
            return None;
        };
        *failures = failures.saturating_add(1);
        let (limit, all_tried) = (*limit, *failures >= *names);
        let since = *failing_since.get_or_insert(now);
        (all_tried && now.duration_since(since) >= limit).then(|| {
            let text = format!(
                "no name in `bootstrap.servers` could be looked up for {} ms: \
                 `bootstrap.resolve.timeout.ms`",
                limit.as_millis()
            );
            let error = Error::new(ErrorKind::InvalidOption, text).with_source(fault.clone());
            error.with_hint("mend the names or their look-up, and make the client anew")
        })
    }
}
