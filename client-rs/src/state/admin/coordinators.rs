//! Where the coordinators of groups are: all that are missing are asked for by one request.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Instant;

use ottla_protocol::messages::find_coordinator_request::FindCoordinatorRequest;
use ottla_protocol::messages::find_coordinator_response::FindCoordinatorResponse;
use ottla_protocol::{ApiKey, ErrorCode};

use super::items::State;
use super::{Calls, Route};
use crate::error::{Error, ErrorKind};
use crate::state::machine::{Answer, Body, Context, Reply, body};
use crate::state::pace::{Pace, soonest};

/// Coordinators are asked for one kind of thing here: groups. Kafka: `CoordinatorType.GROUP`.
const KEY_TYPE_GROUP: i8 = 0;
/// The first version that asks about several at once (KIP-699).
const MANY_FROM: i16 = 4;
/// Groups of one request.
const GROUPS_MAX: usize = 1000;
/// Groups whose coordinators are kept in mind; past it all are forgotten, and found anew, but for those
/// that are being looked for.
const KNOWN_MAX: usize = 10_000;

#[derive(Debug, Default)]
struct Known {
    node: Option<i32>,
    asked: Option<u64>,
    retry_at: Option<Instant>,
    failures: u32,
    cause: Option<Error>,
}

/// Finds coordinators, forgets them when they are gone, and finds them again.
#[derive(Debug)]
pub(super) struct Coordinators {
    pace: Pace,
    groups: BTreeMap<Arc<str>, Known>,
    /// With so many groups those that are found are forgotten.
    forget_at: usize,
}

impl Coordinators {
    pub(super) const fn new(pace: Pace) -> Self {
        Self { pace, groups: BTreeMap::new(), forget_at: KNOWN_MAX }
    }

    /// The coordinator of a group, which is looked for if it is not known.
    pub(super) fn node(&mut self, group: &Arc<str>, now: Instant) -> Option<i32> {
        if self.groups.len() >= self.forget_at && !self.groups.contains_key(group) {
            self.groups.retain(|_, known| known.asked.is_some() || known.retry_at.is_some());
            // Of those that are left none can go yet: not each group more shall look at all of them.
            self.forget_at = KNOWN_MAX.max(self.groups.len() * 2);
        }
        let known = self.groups.entry(Arc::clone(group)).or_default();
        if known.node.is_none() && known.asked.is_none() {
            known.retry_at.get_or_insert(now);
        }
        known.node
    }

    /// Why the last question about a group failed.
    pub(super) fn cause(&self, group: &str) -> Option<&Error> {
        self.groups.get(group).and_then(|known| known.cause.as_ref())
    }

    /// The question to any broker, if one is due.
    pub(super) fn poll_request(&mut self, token: u64, now: Instant) -> Option<Box<dyn Body>> {
        let due = self.groups.iter_mut().filter(|(_, known)| {
            known.asked.is_none() && known.retry_at.is_some_and(|at| at <= now)
        });
        let mut groups = Vec::new();
        for (group, known) in due.take(GROUPS_MAX) {
            known.asked = Some(token);
            known.retry_at = None;
            groups.push(Arc::clone(group));
        }
        (!groups.is_empty()).then(|| question(groups))
    }

    /// When [`Self::poll_request`] will have something.
    pub(super) fn retry_at(&self) -> Option<Instant> {
        self.groups.values().filter_map(|known| known.retry_at).min()
    }

    /// Takes the answer; the groups that will have no coordinator, and why.
    pub(super) fn handle_answer(
        &mut self,
        token: u64,
        reply: Reply,
        cx: &mut Context<'_>,
    ) -> Vec<(Arc<str>, Error)> {
        let read = reply.map_err(|fault| fault.error).and_then(|answer| {
            let asked = self.groups.iter().find(|(_, known)| known.asked == Some(token));
            read(&answer, asked.map(|(group, _)| group), cx)
        });
        let mut refused = Vec::new();
        let (mut answers, fault) = match read {
            Ok((answers, missing)) => (answers, missing),
            Err(error) => (BTreeMap::new(), Some(error)),
        };
        for (group, known) in &mut self.groups {
            if known.asked != Some(token) {
                continue;
            }
            known.asked = None;
            match (answers.remove(&**group), &fault) {
                (Some(Ok(node)), _) => {
                    known.node = Some(node);
                    known.cause = None;
                }
                (Some(Err(error)), _) if !error.retriable() => {
                    refused.push((Arc::clone(group), error));
                }
                (None, Some(error)) if !error.retriable() => {
                    refused.push((Arc::clone(group), error.clone()));
                }
                // Only the first of them can be asked about in an old version: the others are next.
                (None, None) => known.retry_at = Some(cx.now),
                (answer, _) => {
                    known.cause = answer.and_then(Result::err).or_else(|| fault.clone());
                    known.retry_at = Some(cx.now + self.pace.delay(known.failures));
                    known.failures = known.failures.saturating_add(1);
                }
            }
        }
        refused
    }

    /// The coordinator did not answer, or said that it is none.
    pub(super) fn handle_lost(&mut self, route: &Route, now: Instant) {
        let Route::Coordinator(group) = route else { return };
        if let Some(known) = self.groups.get_mut(group).filter(|known| known.node.is_some()) {
            known.node = None;
            known.retry_at = soonest(now, [known.retry_at]).or(Some(now));
        }
    }

    /// The coordinator answered as one.
    pub(super) fn handle_alive(&mut self, route: &Route) {
        let Route::Coordinator(group) = route else { return };
        if let Some(known) = self.groups.get_mut(group) {
            known.failures = 0;
        }
    }
}

impl Calls {
    /// Ends all that waits for a coordinator that nobody will ever be.
    pub(super) fn refuse_group(&mut self, group: &str, error: &Error, now: Instant) {
        for call in self.open.values_mut() {
            let items = call.items.iter_mut().flatten().enumerate();
            let waiting = items.filter(|(_, item)| {
                let of_group = matches!(&item.route, Route::Coordinator(own) if **own == *group);
                of_group && matches!(item.state, State::Waiting { .. })
            });
            for (index, item) in waiting {
                item.state = State::Over;
                call.work.fail(index, item.blame(error.clone(), now - call.begun));
            }
        }
    }
}

fn question(groups: Vec<Arc<str>>) -> Box<dyn Body> {
    body(ApiKey::FindCoordinator, ApiKey::FindCoordinator.served(), move |frame| {
        let mut request = FindCoordinatorRequest {
            key_type: KEY_TYPE_GROUP,
            ..FindCoordinatorRequest::default()
        };
        if frame.version >= MANY_FROM {
            request.coordinator_keys = groups.iter().map(|group| &**group).collect();
        } else {
            request.key = groups.first().map_or("", |group| group);
        }
        frame.put(&request)
    })
}

/// What the answers say by group.
type Answers = BTreeMap<String, Result<i32, Error>>;

/// The answers by group, and what to think of a group that they leave out; `first` is the group that
/// an old version asks about.
fn read(
    answer: &Answer,
    first: Option<&Arc<str>>,
    cx: &mut Context<'_>,
) -> Result<(Answers, Option<Error>), Error> {
    let response = answer.decode::<FindCoordinatorResponse<'_>>()?;
    let mut take = |code: ErrorCode, text: Option<&str>, node: i32, host: &str, port: i32| {
        if code.is_none() {
            cx.metadata.learn_broker(node, host, port);
            return Ok(node);
        }
        let error = Error::from_kafka(code, text).with_api(ApiKey::FindCoordinator);
        Err(error.with_broker(&answer.broker))
    };
    if answer.version < MANY_FROM {
        let found = take(
            response.error_code,
            response.error_message,
            response.node_id,
            response.host,
            response.port,
        );
        let answers = first.map(|group| (group.to_string(), found)).into_iter().collect();
        return Ok((answers, None));
    }
    let rows = response.coordinators.iter().map(|row| {
        let found = take(row.error_code, row.error_message, row.node_id, row.host, row.port);
        (row.key.to_owned(), found)
    });
    let text = "the broker's answer does not name all groups that were asked about";
    let missing = Error::new(ErrorKind::Protocol, text).with_api(ApiKey::FindCoordinator);
    Ok((rows.collect(), Some(missing.with_broker(&answer.broker))))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::disallowed_methods, reason = "an origin for times that are made up")]

    use super::*;
    use crate::state::backoff::Backoff;

    #[test]
    fn groups_that_are_looked_for_are_not_looked_through_for_each_one_more() {
        let now = Instant::now();
        let pace = Pace::new(Backoff::new(Default::default()), 7);
        let mut coordinators = Coordinators::new(pace);
        let group = |number: usize| Arc::<str>::from(number.to_string());
        for number in 0..=KNOWN_MAX {
            assert_eq!(coordinators.node(&group(number), now), None);
        }
        assert_eq!(coordinators.groups.len(), KNOWN_MAX + 1, "all are waited for");
        assert_eq!(coordinators.forget_at, 2 * KNOWN_MAX, "the next look is far");
        for number in KNOWN_MAX..2 * KNOWN_MAX {
            coordinators.node(&group(number), now);
        }
        for known in coordinators.groups.values_mut() {
            *known = Known { node: Some(1), ..Known::default() };
        }
        coordinators.node(&group(2 * KNOWN_MAX), now);
        assert_eq!((coordinators.groups.len(), coordinators.forget_at), (1, KNOWN_MAX));
    }
}
