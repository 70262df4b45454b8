//! Calls to the cluster's own affairs: whom each is for, when it is asked again, and when it is over.
//!
//! A call has items: topics, partitions, groups. Each goes to the broker that answers for it, those
//! for one broker in one request; each ends by itself, so that one's error hides no other's.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use ottla_protocol::{ApiKey, ErrorCode};

use super::hash::HashMap;
use super::machine::{Answer, Body, Context, Lane, LinkFault, Reply, Request, Target};
use super::metadata::Metadata;
use super::pace::{Pace, soonest};
use crate::error::{Error, ErrorKind};
use crate::record::TopicPartition;

pub(crate) mod codes;
mod coordinators;
mod items;
#[cfg(test)]
mod tests;

use coordinators::Coordinators;
use items::{Item, Place, State, timed_out};

/// Which broker answers for an item.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Route {
    /// Any.
    Any,
    /// The one that takes what changes the cluster.
    Controller,
    /// This one.
    Broker(i32),
    /// The leader of this partition.
    Leader(TopicPartition),
    /// The coordinator of this group.
    Coordinator(Arc<str>),
}

/// The items of a call.
#[derive(Debug)]
pub(crate) enum Routes {
    /// These. One that cannot be asked ends at once, with the reason, and keeps no other back.
    Each(Vec<Result<Route, Error>>),
    /// One for each broker of the cluster, once that is known.
    EachBroker,
}

/// What a broker said of an item.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// All that was asked.
    Done,
    /// A part; the rest is asked for at once.
    Partly,
    /// No, with what it said beside the code.
    Refused(ErrorCode, Option<String>),
}

/// An answer, item by item. One that it does not name is asked for again.
#[derive(Debug)]
pub(crate) struct Reading {
    /// How long the broker wants to be left alone (KIP-219).
    pub(crate) throttle_ms: i32,
    /// What it said of each.
    pub(crate) items: Vec<(usize, Verdict)>,
}

/// What a call asks, and where its results go.
pub(crate) trait Work: fmt::Debug + Send {
    /// The API asked.
    fn api(&self) -> ApiKey;

    /// Whether it changes anything, so that an attempt without an answer may have done so.
    fn changes(&self) -> bool;

    /// Its items. Asked for once.
    fn routes(&mut self) -> Routes;

    /// The brokers that became the items of [`Routes::EachBroker`], in order.
    fn set_brokers(&mut self, brokers: &[i32]) {
        debug_assert!(brokers.is_empty(), "only calls to each broker are told of them");
    }

    /// The request for some of its items, which rise; a broker that works on it gives up after `timeout_ms`.
    fn body(&self, items: &[usize], timeout_ms: i32) -> Box<dyn Body>;

    /// Reads the answer to that request, and keeps the results.
    fn read(&mut self, items: &[usize], answer: &Answer) -> Result<Reading, Error>;

    /// Whether it can be asked by another API, since the broker does not speak this one.
    fn fall_back(&mut self) -> bool {
        false
    }

    /// An item ended without a result.
    fn fail(&mut self, item: usize, error: Error);

    /// All items have ended: tells the one who asked. With a fault the call ended before its items
    /// were known.
    fn finish(self: Box<Self>, fault: Option<Error>);
}

/// What has been counted since the client was made.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct CallCounts {
    /// Calls that began.
    pub(crate) calls: u64,
    /// Requests that went out.
    pub(crate) requests: u64,
    /// Items that went into a further request.
    pub(crate) retries: u64,
}

#[derive(Debug)]
struct Call {
    work: Box<dyn Work>,
    /// `None` while the brokers are not known of which each is an item.
    items: Option<Vec<Item>>,
    begun: Instant,
    deadline: Instant,
}

/// A request on its way.
#[derive(Debug)]
enum Asked {
    Items { call: u64, items: Vec<usize>, node: Option<i32> },
    Coordinators,
}

/// The machine behind an admin client.
#[derive(Debug)]
pub(crate) struct Calls {
    pace: Pace,
    timeout: Duration,
    open: BTreeMap<u64, Call>,
    coordinators: Coordinators,
    asked: HashMap<u64, Asked>,
    /// Brokers that want to be left alone until then.
    quiet: HashMap<i32, Instant>,
    ids: u64,
    counts: CallCounts,
    /// Calls that are over and not told yet.
    over: Vec<(Box<dyn Work>, Option<Error>)>,
}

impl Calls {
    /// A machine without a call. A connection is closed when an answer takes longer than `timeout`.
    pub(crate) fn new(pace: Pace, timeout: Duration) -> Self {
        Self {
            coordinators: Coordinators::new(pace.clone()),
            pace,
            timeout,
            open: BTreeMap::new(),
            asked: HashMap::default(),
            quiet: HashMap::default(),
            ids: 0,
            counts: CallCounts::default(),
            over: Vec::new(),
        }
    }

    /// Begins a call, which ends at its deadline in any case.
    pub(crate) fn push(&mut self, mut work: Box<dyn Work>, deadline: Instant, now: Instant) {
        let items = match work.routes() {
            Routes::Each(routes) => {
                let mut items = Vec::with_capacity(routes.len());
                for (index, route) in routes.into_iter().enumerate() {
                    items.push(match route {
                        Ok(route) => Item::new(route, now),
                        Err(error) => {
                            work.fail(index, error.with_api(work.api()));
                            Item::refused(now)
                        }
                    });
                }
                Some(items)
            }
            Routes::EachBroker => None,
        };
        self.counts.calls += 1;
        let id = self.id();
        self.open.insert(id, Call { work, items, begun: now, deadline });
    }

    /// How many calls are open.
    pub(crate) fn open(&self) -> usize {
        self.open.len()
    }

    /// What has been counted.
    pub(crate) const fn counts(&self) -> CallCounts {
        self.counts
    }

    /// Ends what is over and sends what is due; when the next turn is.
    pub(crate) fn turn(&mut self, cx: &mut Context<'_>) -> Option<Instant> {
        self.quiet.retain(|_, until| *until > cx.now);
        let ids: Vec<u64> = self.open.keys().copied().collect();
        for id in ids {
            self.turn_call(id, cx);
        }
        let token = self.id();
        if let Some(body) = self.coordinators.poll_request(token, cx.now) {
            self.asked.insert(token, Asked::Coordinators);
            self.counts.requests += 1;
            cx.send(self.request(Target::Any, token, body));
        }
        let calls = self.open.values();
        let times = calls.flat_map(|call| {
            let retries = call.items.iter().flatten().map(Item::retry_at);
            retries.chain([Some(call.deadline)])
        });
        let others = self.quiet.values().copied().map(Some).chain([self.coordinators.retry_at()]);
        soonest(cx.now, times.chain(others))
    }

    /// All calls end now, for this reason.
    pub(crate) fn fail(&mut self, error: &Error) {
        for (_, call) in std::mem::take(&mut self.open) {
            let told = |item: Option<&Item>, _| {
                item.map_or_else(|| error.clone(), |item| item.warn(error.clone()))
            };
            self.over.push(call.end(told));
        }
    }

    /// Tells the results of the calls that are over; what was counted of them stands by then.
    pub(crate) fn finish(&mut self) {
        self.over.drain(..).for_each(|(work, fault)| work.finish(fault));
    }

    fn turn_call(&mut self, id: u64, cx: &mut Context<'_>) {
        let Some(mut call) = self.open.remove(&id) else { return };
        call.expand(cx);
        if call.deadline > cx.now && !call.is_over() {
            self.ask(id, &mut call, cx);
        }
        if call.is_over() {
            self.forget_topics(&call, cx.metadata);
            self.over.push((call.work, None));
        } else if call.deadline <= cx.now {
            self.forget_topics(&call, cx.metadata);
            let known = cx.metadata.last_error().cloned();
            let (begun, now) = (call.begun, cx.now);
            let over = call.end(|item, api| timed_out(item, api, known.as_ref(), now - begun));
            self.over.push(over);
        } else {
            self.open.insert(id, call);
        }
    }

    /// Sends the requests of a call that are due.
    fn ask(&mut self, id: u64, call: &mut Call, cx: &mut Context<'_>) {
        let mut due: Vec<(Target, Vec<usize>)> = Vec::new();
        let mut places: HashMap<(Option<i32>, u64), usize> = HashMap::default();
        let Call { items: Some(items), work, begun, deadline } = call else { return };
        let now = cx.now;
        for (index, item) in items.iter_mut().enumerate().filter(|(_, item)| item.is_due(now)) {
            let target = match item.place(*begun, &mut self.coordinators, cx) {
                Place::At(target) => target,
                Place::Unknown => continue,
                Place::Never(error) => {
                    item.state = State::Over;
                    let error = item.blame(error.with_api(work.api()), now - *begun);
                    work.fail(index, error);
                    continue;
                }
            };
            let node = if let Target::Node(node) = target { Some(node) } else { None };
            if node.is_some_and(|node| self.quiet.contains_key(&node)) {
                continue;
            }
            let place = *places.entry((node, item.apart)).or_insert_with(|| {
                due.push((target, Vec::new()));
                due.len() - 1
            });
            if let Some((_, items)) = due.get_mut(place) {
                items.push(index);
            }
        }
        for (target, indexes) in due {
            let token = self.id();
            let left = self.timeout.min(*deadline - cx.now).as_millis();
            let body = work.body(&indexes, i32::try_from(left).unwrap_or(i32::MAX));
            self.counts.requests += 1;
            for &index in &indexes {
                let Some(item) = items.get_mut(index) else { continue };
                self.counts.retries += u64::from(item.attempts > 0);
                item.attempts = item.attempts.saturating_add(1);
                item.state = State::Asked { begun: false };
            }
            let node = if let Target::Node(node) = target { Some(node) } else { None };
            self.asked.insert(token, Asked::Items { call: id, items: indexes, node });
            cx.send(self.request(target, token, body));
        }
    }

    /// The first bytes of a request were written: its broker may act on it.
    pub(crate) fn handle_begun(&mut self, token: u64) {
        let Some(Asked::Items { call, items, .. }) = self.asked.get(&token) else { return };
        let Some(call) = self.open.get_mut(call).filter(|call| call.work.changes()) else { return };
        for &index in items {
            if let Some(item) = call.items.as_mut().and_then(|items| items.get_mut(index)) {
                item.state = State::Asked { begun: true };
            }
        }
    }

    /// What became of a request.
    pub(crate) fn handle_response(&mut self, token: u64, reply: Reply, cx: &mut Context<'_>) {
        match self.asked.remove(&token) {
            Some(Asked::Coordinators) => {
                let told = self.coordinators.handle_answer(token, reply, cx);
                for (group, error) in told {
                    self.refuse_group(&group, &error, cx.now);
                }
            }
            Some(Asked::Items { call: id, items, node }) => {
                // A call whose time is over has told its results.
                let Some(mut call) = self.open.remove(&id) else { return };
                self.handle_reply(&mut call, &items, node, reply, cx);
                self.open.insert(id, call);
            }
            None => {}
        }
    }

    fn handle_reply(
        &mut self,
        call: &mut Call,
        asked: &[usize],
        node: Option<i32>,
        reply: Reply,
        cx: &mut Context<'_>,
    ) {
        let read = reply.and_then(|answer| {
            let read = call.work.read(asked, &answer);
            let read = read.map_err(|error| LinkFault { error, written: true });
            read.map(|reading| (reading, answer.broker))
        });
        let (reading, broker) = match read {
            Ok(read) => read,
            Err(fault) => return self.handle_fault(call, asked, &fault, cx),
        };
        let throttle = u64::try_from(reading.throttle_ms).unwrap_or(0);
        let quiet_until = cx.now + Duration::from_millis(throttle);
        if let Some(node) = node.filter(|_| throttle > 0) {
            self.quiet.insert(node, quiet_until);
        }
        let changes = call.work.changes();
        let mut named: HashMap<usize, Verdict> = reading.items.into_iter().collect();
        for &index in asked {
            let verdict = named.remove(&index);
            let Some(item) = call.items.as_mut().and_then(|items| items.get_mut(index)) else {
                continue;
            };
            let error = match verdict {
                Some(Verdict::Done) => {
                    item.state = State::Over;
                    self.coordinators.handle_alive(&item.route);
                    continue;
                }
                Some(Verdict::Partly) => {
                    item.state = State::Waiting { retry_at: quiet_until };
                    continue;
                }
                Some(Verdict::Refused(code, text)) => {
                    let error = Error::from_kafka_for_admin(code, text.as_deref());
                    let error = error.with_api(call.work.api()).with_broker(&broker);
                    if !self.may_help(item, code, changes, cx) {
                        item.state = State::Over;
                        call.work.fail(index, item.blame(error, cx.now - call.begun));
                        continue;
                    }
                    error
                }
                None => {
                    // Nor does it say that it was left alone.
                    item.begun |= changes;
                    let text = "the broker's answer does not name all that was asked";
                    Error::new(ErrorKind::Protocol, text).with_broker(&broker)
                }
            };
            item.again(error, quiet_until.max(cx.now + self.pace.delay(item.failures)));
        }
    }

    fn handle_fault(
        &mut self,
        call: &mut Call,
        asked: &[usize],
        fault: &LinkFault,
        cx: &mut Context<'_>,
    ) {
        let unspoken = fault.error.kind() == ErrorKind::UnsupportedVersion;
        let instead = unspoken && call.work.fall_back();
        // One item that this broker cannot be asked, or that cannot be written, keeps no other from
        // being asked: each half is tried by itself.
        let unsaid = unspoken || fault.error.kind() == ErrorKind::Internal;
        let halved = unsaid && !instead && !fault.written && asked.len() > 1;
        let (first, second) = (self.id(), self.id());
        for (at, &index) in asked.iter().enumerate() {
            let Some(item) = call.items.as_mut().and_then(|items| items.get_mut(index)) else {
                continue;
            };
            item.begun |= fault.written && call.work.changes();
            if halved {
                item.apart = if at < asked.len() / 2 { first } else { second };
            }
            if instead || halved {
                item.state = State::Waiting { retry_at: cx.now };
            } else if fault.error.retriable() {
                self.coordinators.handle_lost(&item.route, cx.now);
                cx.metadata.request_refresh(cx.now);
                item.again(fault.error.clone(), cx.now + self.pace.delay(item.failures));
            } else {
                item.state = State::Over;
                let error = item.blame(fault.error.clone(), cx.now - call.begun);
                call.work.fail(index, error);
            }
        }
    }

    /// The metadata asks no longer about topics of a call that no other call is about.
    fn forget_topics(&self, call: &Call, metadata: &mut Metadata) {
        let others: BTreeSet<&Arc<str>> = self.open.values().flat_map(Call::topics).collect();
        let own: BTreeSet<&Arc<str>> = call.topics().collect();
        own.difference(&others).for_each(|topic| metadata.unpin(topic));
    }

    fn request(&self, to: Target, token: u64, body: Box<dyn Body>) -> Request {
        Request { to, lane: Lane::Rest, token, timeout: self.timeout, body }
    }

    const fn id(&mut self) -> u64 {
        self.ids += 1;
        self.ids
    }
}

impl Call {
    /// Makes each broker an item, once those of now are known.
    fn expand(&mut self, cx: &mut Context<'_>) {
        if self.items.is_some() {
            return;
        }
        if cx.metadata.answered_at().is_none_or(|at| at < self.begun) {
            cx.metadata.request_refresh(self.begun);
            return;
        }
        let brokers: Vec<i32> = cx.metadata.cluster().brokers.keys().copied().collect();
        self.work.set_brokers(&brokers);
        let item = |&broker: &i32| Item::new(Route::Broker(broker), cx.now);
        self.items = Some(brokers.iter().map(item).collect());
    }

    fn is_over(&self) -> bool {
        let over = |item: &Item| matches!(item.state, State::Over);
        self.items.as_ref().is_some_and(|items| items.iter().all(over))
    }

    /// Ends it with an error for each item that is open.
    fn end(
        mut self,
        error: impl Fn(Option<&Item>, ApiKey) -> Error,
    ) -> (Box<dyn Work>, Option<Error>) {
        let api = self.work.api();
        for (index, item) in self.items.iter().flatten().enumerate() {
            if !matches!(item.state, State::Over) {
                self.work.fail(index, error(Some(item), api));
            }
        }
        let fault = self.items.is_none().then(|| error(None, api));
        (self.work, fault)
    }

    fn topics(&self) -> impl Iterator<Item = &Arc<str>> {
        self.items.iter().flatten().filter_map(|item| match &item.route {
            Route::Leader(partition) => Some(&partition.topic),
            _ => None,
        })
    }
}
