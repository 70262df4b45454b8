//! Whom calls are for, when they are asked again, and when they are over.

#![allow(clippy::disallowed_methods, reason = "tests start their virtual time somewhere")]

mod ends;
mod routes;

use std::rc::Rc;
use std::sync::Mutex;

use bytes::Bytes;
use ottla_protocol::messages::find_coordinator_response::{Coordinator, FindCoordinatorResponse};
use ottla_protocol::messages::metadata_response::{
    MetadataResponse, MetadataResponseBroker, MetadataResponsePartition, MetadataResponseTopic,
};
use ottla_protocol::{Message, Writer};

use super::codes::UNKNOWN_MAX;
use super::*;
use crate::config::{CommonConfig, Options};
use crate::state::backoff::{Backoff, Random};
use crate::state::guard::lock;
use crate::state::machine::body;

/// What a broker says: how long to leave it alone, and something of each item.
type Said = Arc<Mutex<Vec<(i32, Vec<(usize, Verdict)>)>>>;
type Told = Arc<Mutex<Vec<(usize, Result<(), Error>)>>>;

/// A call whose answers are what the test says next.
#[derive(Debug)]
struct Script {
    routes: Vec<Route>,
    each_broker: bool,
    verdicts: Said,
    told: Told,
    finished: Arc<Mutex<bool>>,
    another: bool,
}

impl Work for Script {
    fn api(&self) -> ApiKey {
        if self.another { ApiKey::DescribeTopicPartitions } else { ApiKey::Metadata }
    }

    fn changes(&self) -> bool {
        true
    }

    fn routes(&mut self) -> Routes {
        if self.each_broker {
            return Routes::EachBroker;
        }
        let empty = |route: &Route| *route == Route::Coordinator("".into());
        let refused = || Error::new(ErrorKind::InvalidArgument, "no name");
        let route = |route| if empty(&route) { Err(refused()) } else { Ok(route) };
        Routes::Each(self.routes.iter().cloned().map(route).collect())
    }

    fn set_brokers(&mut self, brokers: &[i32]) {
        self.routes = brokers.iter().map(|&broker| Route::Broker(broker)).collect();
    }

    fn body(&self, _items: &[usize], _timeout_ms: i32) -> Box<dyn Body> {
        body(self.api(), 0..=1, |_| Ok(()))
    }

    fn read(&mut self, items: &[usize], _answer: &Answer) -> Result<Reading, Error> {
        let (throttle_ms, verdicts) = lock(&self.verdicts).remove(0);
        for (item, verdict) in &verdicts {
            if *verdict == Verdict::Done && items.contains(item) {
                lock(&self.told).push((*item, Ok(())));
            }
        }
        Ok(Reading { throttle_ms, items: verdicts })
    }

    fn fall_back(&mut self) -> bool {
        std::mem::replace(&mut self.another, false)
    }

    fn fail(&mut self, item: usize, error: Error) {
        lock(&self.told).push((item, Err(error)));
    }

    fn finish(self: Box<Self>, _fault: Option<Error>) {
        *lock(&self.finished) = true;
    }
}

/// A request that went out: for whom, its token, its API.
type Went = (Target, u64, ApiKey);

struct Trial {
    calls: Calls,
    metadata: Metadata,
    random: Random,
    now: Instant,
    verdicts: Said,
    told: Told,
    finished: Arc<Mutex<bool>>,
}

impl Trial {
    fn new() -> Self {
        let options = Options::new().set("bootstrap.servers", "a:1").unwrap();
        let config = CommonConfig::new(&options, false).unwrap();
        let pace = Pace::new(Backoff::new(config.retry_backoff), 7);
        Self {
            calls: Calls::new(pace, Duration::from_secs(30)),
            metadata: Metadata::new(&config),
            random: Random::new(1),
            now: Instant::now(),
            verdicts: Arc::default(),
            told: Arc::default(),
            finished: Arc::default(),
        }
    }

    fn begin(&mut self, routes: &[Route]) {
        self.begin_as(routes, false, false);
    }

    fn begin_as(&mut self, routes: &[Route], each_broker: bool, another: bool) {
        let script = Script {
            routes: routes.to_vec(),
            each_broker,
            verdicts: Arc::clone(&self.verdicts),
            told: Arc::clone(&self.told),
            finished: Arc::clone(&self.finished),
            another,
        };
        let deadline = self.now + Duration::from_mins(1);
        self.calls.push(Box::new(script), deadline, self.now);
    }

    fn with<T>(&mut self, act: impl FnOnce(&mut Calls, &mut Context<'_>) -> T) -> (T, Vec<Went>) {
        let (mut requests, mut jobs, mut withdrawn) = (Vec::new(), Vec::new(), Vec::new());
        let mut cx = Context {
            now: self.now,
            now_ms: 0,
            metadata: &mut self.metadata,
            random: &mut self.random,
            requests: &mut requests,
            jobs: &mut jobs,
            withdrawn: &mut withdrawn,
        };
        let result = act(&mut self.calls, &mut cx);
        self.calls.finish();
        (result, requests.iter().map(|sent| (sent.to, sent.token, sent.body.key())).collect())
    }

    /// What goes out in a turn.
    fn turn(&mut self) -> Vec<Went> {
        self.with(Calls::turn).1
    }

    /// The one request of a turn.
    fn only(&mut self) -> Went {
        let went = self.turn();
        let [one] = went.as_slice() else { panic!("{went:?}") };
        *one
    }

    /// The items that a request is about.
    fn asked(&self, token: u64) -> Vec<usize> {
        match self.calls.asked.get(&token) {
            Some(Asked::Items { items, .. }) => items.clone(),
            other => panic!("{other:?}"),
        }
    }

    fn next(&mut self) -> Option<Duration> {
        let now = self.now;
        self.with(Calls::turn).0.map(|at| at - now)
    }

    fn wait(&mut self, millis: u64) {
        self.now += Duration::from_millis(millis);
    }

    fn reply(&mut self, token: u64, reply: Reply) {
        self.with(|calls, cx| calls.handle_response(token, reply, cx));
    }

    /// Answers a request with what is said of each item.
    fn say(&mut self, token: u64, throttle_ms: i32, verdicts: &[(usize, Verdict)]) {
        lock(&self.verdicts).push((throttle_ms, verdicts.to_vec()));
        self.reply(token, Ok(answer(&FindCoordinatorResponse::default(), 1)));
    }

    fn lose(&mut self, token: u64, kind: ErrorKind, written: bool) {
        let fault = LinkFault { error: Error::new(kind, "lost"), written };
        self.reply(token, Err(fault));
    }

    /// Answers the metadata request that is due, if one is.
    fn metadata(&mut self, controller: i32, topic: ErrorCode, leader: i32) -> bool {
        let Some(request) = self.metadata.poll_request(self.now) else { return false };
        let row = MetadataResponsePartition { leader_id: leader, ..Default::default() };
        let partitions = if topic.is_none() { vec![row] } else { Vec::new() };
        let topic = MetadataResponseTopic {
            error_code: topic,
            name: Some("t"),
            partitions,
            ..Default::default()
        };
        let broker =
            |node_id| MetadataResponseBroker { node_id, host: "b", port: 1, ..Default::default() };
        let response = MetadataResponse {
            brokers: vec![broker(1), broker(2)],
            controller_id: controller,
            topics: vec![topic],
            ..Default::default()
        };
        let reply = Ok(answer(&response, 12));
        self.metadata.handle_response(request.token, reply, self.now, &mut self.random);
        true
    }

    /// Answers the question for coordinators.
    fn coordinator(&mut self, token: u64, rows: &[(&str, ErrorCode, i32)]) {
        let rows = rows.iter().map(|&(key, error_code, node_id)| Coordinator {
            key,
            error_code,
            node_id,
            host: "b",
            port: 1,
            ..Default::default()
        });
        let response =
            FindCoordinatorResponse { coordinators: rows.collect(), ..Default::default() };
        self.reply(token, Ok(answer(&response, 4)));
    }

    fn told(&self) -> Vec<(usize, Result<(), ErrorKind>)> {
        let told = lock(&self.told);
        told.iter().map(|(item, result)| (*item, result.clone().map_err(|e| e.kind()))).collect()
    }

    fn error(&self) -> Error {
        lock(&self.told).last().unwrap().1.clone().unwrap_err()
    }

    fn is_finished(&self) -> bool {
        *lock(&self.finished)
    }
}

fn answer<'a, M: Message<'a>>(message: &M, version: i16) -> Answer {
    let mut writer = Writer::new();
    message.encode(&mut writer, version).unwrap();
    let body = Bytes::from(writer.into_bytes());
    Answer { version, body, broker: Rc::from("1 at b:1"), throttle: Rc::default() }
}

fn leader() -> Route {
    Route::Leader(TopicPartition::new("t", 0))
}

fn of_group(group: &str) -> Route {
    Route::Coordinator(Arc::from(group))
}

fn refused(code: ErrorCode) -> Verdict {
    Verdict::Refused(code, None)
}
