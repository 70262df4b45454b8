//! Whom calls are for, when they are asked again, and when they are over.

#![allow(clippy::disallowed_methods, reason = "tests start their virtual time somewhere")]

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

#[test]
fn items_for_one_broker_share_a_request_and_end_one_by_one() {
    let mut trial = Trial::new();
    trial.begin(&[Route::Any, Route::Any, Route::Any]);
    let (to, token, _) = trial.only();
    assert_eq!(to, Target::Any);
    let some = [(0, Verdict::Done), (2, refused(ErrorCode::INVALID_CONFIG))];
    trial.say(token, 0, &some);
    assert_eq!(trial.told(), [(0, Ok(())), (2, Err(ErrorKind::InvalidRequest))]);
    assert!(!trial.is_finished(), "one item was not named: it is asked about again");
    trial.wait(200);
    let (_, token, _) = trial.only();
    trial.say(token, 0, &[(1, Verdict::Done)]);
    assert_eq!(trial.turn(), []);
    assert!(trial.is_finished());
    assert_eq!(trial.calls.counts().retries, 1);
}

#[test]
fn what_changes_the_cluster_goes_to_the_controller_and_follows_it() {
    let mut trial = Trial::new();
    trial.begin(&[Route::Controller]);
    assert_eq!(trial.turn(), [], "the controller is not known");
    assert!(trial.metadata(1, ErrorCode::NONE, 1));
    let (to, token, _) = trial.only();
    assert_eq!(to, Target::Node(1));
    trial.say(token, 0, &[(0, refused(ErrorCode::NOT_CONTROLLER))]);
    trial.wait(200);
    assert!(trial.metadata(2, ErrorCode::NONE, 1), "the controller is looked for anew");
    let (to, token, _) = trial.only();
    assert_eq!(to, Target::Node(2));
    trial.say(token, 0, &[(0, Verdict::Done)]);
    assert_eq!(trial.told(), [(0, Ok(()))]);
}

#[test]
fn without_a_named_controller_any_broker_is_asked() {
    let mut trial = Trial::new();
    trial.begin(&[Route::Controller]);
    trial.turn();
    assert!(trial.metadata(-1, ErrorCode::NONE, 1));
    assert_eq!(trial.only().0, Target::Any);
}

#[test]
fn a_moved_leader_is_found_anew_and_an_unknown_topic_believed_after_a_while() {
    let mut trial = Trial::new();
    trial.begin(&[leader()]);
    trial.turn();
    assert!(trial.metadata(1, ErrorCode::NONE, 1));
    let (to, token, _) = trial.only();
    assert_eq!(to, Target::Node(1));
    trial.say(token, 0, &[(0, refused(ErrorCode::NOT_LEADER_OR_FOLLOWER))]);
    trial.wait(200);
    assert!(trial.metadata(1, ErrorCode::NONE, 2));
    let (to, mut token, _) = trial.only();
    assert_eq!(to, Target::Node(2));
    for _ in 1..UNKNOWN_MAX {
        trial.say(token, 0, &[(0, refused(ErrorCode::UNKNOWN_TOPIC_OR_PARTITION))]);
        trial.wait(2000);
        assert!(trial.metadata(1, ErrorCode::NONE, 2));
        token = trial.only().1;
    }
    assert_eq!(trial.told(), []);
    trial.say(token, 0, &[(0, refused(ErrorCode::UNKNOWN_TOPIC_OR_PARTITION))]);
    assert_eq!(trial.told(), [(0, Err(ErrorKind::UnknownTopic))]);
}

#[test]
fn a_topic_that_the_metadata_does_not_know_ends_its_items_after_a_while() {
    let mut trial = Trial::new();
    trial.begin(&[leader()]);
    trial.turn();
    for _ in 0..UNKNOWN_MAX {
        assert_eq!(trial.told(), []);
        trial.metadata(1, ErrorCode::UNKNOWN_TOPIC_OR_PARTITION, 0);
        assert_eq!(trial.turn(), []);
        trial.wait(2000);
    }
    assert_eq!(trial.told(), [(0, Err(ErrorKind::UnknownTopic))]);
    assert!(trial.is_finished());
    trial.wait(2000);
    assert!(trial.metadata(1, ErrorCode::UNKNOWN_TOPIC_OR_PARTITION, 0));
    trial.wait(2000);
    assert!(trial.metadata.poll_request(trial.now).is_none(), "nobody asks about it any more");
}

#[test]
fn coordinators_of_many_groups_are_asked_for_at_once_and_found_again() {
    let mut trial = Trial::new();
    trial.begin(&[of_group("a"), of_group("b"), of_group("c")]);
    let (to, token, api) = trial.only();
    assert_eq!((to, api), (Target::Any, ApiKey::FindCoordinator));
    let load = ErrorCode::COORDINATOR_NOT_AVAILABLE;
    let rows = [("a", ErrorCode::NONE, 1), ("b", load, -1), ("c", ErrorCode::NONE, 1)];
    trial.coordinator(token, &rows);
    let (to, token, api) = trial.only();
    assert_eq!((to, api), (Target::Node(1), ApiKey::Metadata), "b waits for its own");
    let moved = refused(ErrorCode::NOT_COORDINATOR);
    trial.say(token, 0, &[(0, moved), (2, Verdict::Done)]);
    trial.wait(200);
    let (_, token, api) = trial.only();
    assert_eq!(api, ApiKey::FindCoordinator);
    trial.coordinator(token, &[("a", ErrorCode::NONE, 2), ("b", ErrorCode::NONE, 2)]);
    let (to, token, _) = trial.only();
    assert_eq!(to, Target::Node(2));
    trial.say(token, 0, &[(0, Verdict::Done), (1, Verdict::Done)]);
    trial.turn();
    assert!(trial.is_finished());
}

#[test]
fn a_group_that_an_answer_leaves_out_is_asked_about_again_after_a_pause() {
    let mut trial = Trial::new();
    trial.begin(&[of_group("a"), of_group("b")]);
    let (began, mut asked) = (trial.now, 0);
    while !trial.is_finished() {
        let went = trial.turn();
        for &(_, token, api) in &went {
            if api == ApiKey::FindCoordinator {
                asked += 1;
                assert!(asked < 100, "in a loop");
                trial.coordinator(token, &[("a", ErrorCode::NONE, 1)]);
            } else {
                trial.say(token, 0, &[(0, Verdict::Done)]);
            }
        }
        if went.is_empty() && !trial.is_finished() {
            let pause = trial.next().unwrap();
            trial.now += pause;
        }
    }
    assert_eq!(trial.now - began, Duration::from_mins(1));
    assert!(asked > 50, "{asked}");
    assert_eq!(trial.told(), [(0, Ok(())), (1, Err(ErrorKind::Timeout))]);
    let error = trial.error();
    assert!(error.to_string().contains("does not name all groups"), "{error}");
}

#[test]
fn a_group_that_nobody_will_coordinate_ends_at_once() {
    let mut trial = Trial::new();
    trial.begin(&[of_group("a"), of_group("b")]);
    let (_, token, _) = trial.only();
    let no = ErrorCode::GROUP_AUTHORIZATION_FAILED;
    trial.coordinator(token, &[("a", no, -1), ("b", ErrorCode::NONE, 1)]);
    assert_eq!(trial.told(), [(0, Err(ErrorKind::Authorization))]);
    assert_eq!(trial.only().0, Target::Node(1));
}

#[test]
fn each_broker_is_asked_once_those_of_now_are_known() {
    let mut trial = Trial::new();
    trial.begin_as(&[], true, false);
    assert_eq!(trial.turn(), []);
    assert!(trial.metadata(1, ErrorCode::NONE, 1));
    let went = trial.turn();
    let to: Vec<Target> = went.iter().map(|went| went.0).collect();
    assert_eq!(to, [Target::Node(1), Target::Node(2)]);
    trial.say(went[0].1, 0, &[(0, Verdict::Done)]);
    trial.lose(went[1].1, ErrorKind::Disconnected, true);
    trial.wait(60_000);
    trial.turn();
    assert_eq!(trial.told(), [(0, Ok(())), (1, Err(ErrorKind::Timeout))]);
    assert!(trial.is_finished());
}

#[test]
fn pauses_grow_and_the_deadline_ends_what_is_open_with_its_cause() {
    let mut trial = Trial::new();
    trial.begin(&[Route::Any]);
    let began = trial.now;
    let mut pauses = Vec::new();
    while !trial.is_finished() {
        for (_, token, _) in trial.turn() {
            trial.lose(token, ErrorKind::Disconnected, false);
        }
        if let Some(pause) = trial.next() {
            pauses.push(pause.as_millis());
            trial.now += pause;
        }
    }
    assert_eq!(trial.now - began, Duration::from_mins(1));
    assert!((80..=120).contains(&pauses[0]) && (160..=240).contains(&pauses[1]), "{pauses:?}");
    assert!(pauses.len() > 50 && pauses.iter().all(|&pause| pause <= 1200), "{pauses:?}");
    let error = trial.error();
    assert_eq!(error.kind(), ErrorKind::Timeout);
    assert!(error.to_string().contains(": lost"), "{error}");
    assert_eq!(error.hint(), None, "nothing was written");
}

#[test]
fn an_attempt_that_may_have_done_it_is_told_of_in_the_error() {
    let mut trial = Trial::new();
    trial.begin(&[Route::Any]);
    let (_, token, _) = trial.only();
    trial.lose(token, ErrorKind::Disconnected, true);
    trial.wait(200);
    let (_, token, _) = trial.only();
    trial.say(token, 0, &[(0, refused(ErrorCode::TOPIC_ALREADY_EXISTS))]);
    let error = trial.error();
    assert!(error.hint().is_some_and(|hint| hint.contains("may be done")), "{error}");
    assert_eq!(error.attempt(), Some(2));
}

/// Whether the last error says that what was asked may be done.
fn may_be_done(trial: &Trial) -> bool {
    trial.error().hint().is_some_and(|hint| hint.contains("may be done"))
}

#[test]
fn what_may_be_done_is_told_whichever_way_the_call_ends() {
    // Its answer never comes, and its time is over or the client is closed.
    for (written, closed) in [(true, false), (false, false), (true, true), (false, true)] {
        let mut trial = Trial::new();
        trial.begin(&[Route::Any]);
        let (_, token, _) = trial.only();
        if written {
            trial.calls.handle_begun(token);
        }
        if closed {
            trial.with(|calls, _| calls.fail(&Error::closed()));
        } else {
            trial.wait(60_000);
            trial.turn();
        }
        let kind = if closed { ErrorKind::Closed } else { ErrorKind::Timeout };
        assert_eq!(trial.error().kind(), kind);
        assert_eq!(may_be_done(&trial), written, "{}", trial.error());
    }
    // An answer names others only.
    let mut trial = Trial::new();
    trial.begin(&[Route::Any]);
    let (_, token, _) = trial.only();
    trial.say(token, 0, &[]);
    trial.wait(200);
    let (_, token, _) = trial.only();
    trial.say(token, 0, &[(0, refused(ErrorCode::TOPIC_ALREADY_EXISTS))]);
    assert!(may_be_done(&trial), "{}", trial.error());
    // Its leader may not be looked for any more.
    let mut trial = Trial::new();
    trial.begin(&[leader()]);
    trial.turn();
    trial.metadata(1, ErrorCode::NONE, 1);
    let (_, token, _) = trial.only();
    trial.lose(token, ErrorKind::Disconnected, true);
    trial.wait(2000);
    trial.metadata(1, ErrorCode::TOPIC_AUTHORIZATION_FAILED, 1);
    assert_eq!(trial.turn(), []);
    assert_eq!(trial.error().kind(), ErrorKind::Authorization);
    assert!(may_be_done(&trial), "{}", trial.error());
    // The group may not be looked for any more.
    let mut trial = Trial::new();
    trial.begin(&[of_group("a")]);
    let (_, token, _) = trial.only();
    trial.coordinator(token, &[("a", ErrorCode::NONE, 1)]);
    let (_, token, _) = trial.only();
    trial.lose(token, ErrorKind::Disconnected, true);
    trial.wait(200);
    let (_, token, _) = trial.only();
    trial.coordinator(token, &[("a", ErrorCode::GROUP_AUTHORIZATION_FAILED, -1)]);
    assert_eq!(trial.error().kind(), ErrorKind::Authorization);
    assert!(may_be_done(&trial), "{}", trial.error());
}

#[test]
fn a_broker_that_wants_quiet_is_left_alone_by_all_calls() {
    let mut trial = Trial::new();
    trial.begin(&[leader()]);
    trial.turn();
    assert!(trial.metadata(1, ErrorCode::NONE, 1));
    let (_, token, _) = trial.only();
    trial.say(token, 5000, &[(0, refused(ErrorCode::THROTTLING_QUOTA_EXCEEDED))]);
    trial.begin(&[Route::Broker(1), Route::Broker(2)]);
    assert_eq!(trial.only().0, Target::Node(2));
    trial.wait(4999);
    assert_eq!(trial.turn(), []);
    trial.wait(2);
    let to: Vec<Target> = trial.turn().iter().map(|went| went.0).collect();
    assert_eq!(to, [Target::Node(1), Target::Node(1)], "one for each call");
}

#[test]
fn an_api_that_the_broker_does_not_speak_is_asked_by_another_or_is_the_end() {
    let mut trial = Trial::new();
    trial.begin_as(&[Route::Any], false, true);
    let (_, token, api) = trial.only();
    assert_eq!(api, ApiKey::DescribeTopicPartitions);
    trial.lose(token, ErrorKind::UnsupportedVersion, false);
    let (_, token, api) = trial.only();
    assert_eq!(api, ApiKey::Metadata, "at once");
    trial.lose(token, ErrorKind::UnsupportedVersion, false);
    assert_eq!(trial.told(), [(0, Err(ErrorKind::UnsupportedVersion))]);
}

#[test]
fn a_broker_that_the_cluster_does_not_have_is_an_error() {
    let mut trial = Trial::new();
    trial.begin(&[Route::Broker(9)]);
    assert_eq!(trial.turn(), []);
    assert!(trial.metadata(1, ErrorCode::NONE, 1));
    trial.turn();
    assert_eq!(trial.told(), [(0, Err(ErrorKind::InvalidArgument))]);
}

#[test]
fn part_of_an_answer_is_followed_by_the_rest_without_a_pause() {
    let mut trial = Trial::new();
    trial.begin(&[Route::Any]);
    let (_, token, _) = trial.only();
    trial.say(token, 0, &[(0, Verdict::Partly)]);
    let (_, token, _) = trial.only();
    trial.say(token, 0, &[(0, Verdict::Done)]);
    assert_eq!(trial.told(), [(0, Ok(()))]);
}

#[test]
fn an_item_that_cannot_be_asked_ends_at_once_and_the_others_are_asked() {
    let mut trial = Trial::new();
    trial.begin(&[Route::Any, Route::Coordinator("".into()), Route::Any]);
    let (_, token, _) = trial.only();
    assert_eq!(trial.told(), [(1, Err(ErrorKind::InvalidArgument))]);
    trial.say(token, 0, &[(0, Verdict::Done), (2, Verdict::Done)]);
    trial.turn();
    assert_eq!(trial.told()[1..], [(0, Ok(())), (2, Ok(()))]);
    assert!(trial.is_finished());
}

/// A name that is longer than any message can carry, or one kind of question of many that an old
/// broker does not know.
#[test]
fn an_item_that_a_request_cannot_say_is_told_apart_from_those_that_it_can() {
    for kind in [ErrorKind::UnsupportedVersion, ErrorKind::Internal] {
        let mut trial = Trial::new();
        trial.begin(&vec![Route::Any; 100]);
        let (mut requests, mut went) = (0, Vec::new());
        loop {
            went.extend(trial.turn());
            let Some((_, token, _)) = went.pop() else { break };
            requests += 1;
            let asked = trial.asked(token);
            if asked.contains(&70) {
                trial.lose(token, kind, false);
            } else {
                let said: Vec<_> = asked.iter().map(|&item| (item, Verdict::Done)).collect();
                trial.say(token, 0, &said);
            }
        }
        assert!(requests <= 16, "{requests} requests: halves, not one by one");
        let (good, bad): (Vec<_>, Vec<_>) =
            trial.told().into_iter().partition(|(_, told)| told.is_ok());
        assert_eq!((good.len(), bad), (99, vec![(70, Err(kind))]));
        assert!(trial.is_finished());
    }
}

/// Metadata is asked for all topics together: a name that cannot be written would keep every other
/// from being found.
#[test]
fn no_leader_is_looked_for_of_a_topic_that_cannot_be() {
    let mut trial = Trial::new();
    let bad = [TopicPartition::new("", 0), TopicPartition::new("x".repeat(40_000), 0)];
    let bad = bad.map(Route::Leader);
    trial.begin(&[bad[0].clone(), leader(), bad[1].clone()]);
    trial.turn();
    let kind = ErrorKind::InvalidTopic;
    assert_eq!(trial.told(), [(0, Err(kind)), (2, Err(kind))]);
    assert!(trial.metadata(1, ErrorCode::NONE, 1));
    assert_eq!(trial.only().0, Target::Node(1));
}

#[test]
fn what_any_broker_is_asked_waits_too_for_as_long_as_the_answer_wants_quiet() {
    let mut trial = Trial::new();
    trial.begin(&[Route::Any]);
    let (_, token, _) = trial.only();
    trial.say(token, 3000, &[(0, refused(ErrorCode::THROTTLING_QUOTA_EXCEEDED))]);
    trial.wait(2000);
    assert_eq!(trial.turn(), []);
    trial.wait(1000);
    trial.only();
}

#[test]
fn a_change_that_a_broker_had_no_time_to_end_may_be_done() {
    let mut trial = Trial::new();
    trial.begin(&[Route::Any]);
    let (_, token, _) = trial.only();
    trial.say(token, 0, &[(0, refused(ErrorCode::REQUEST_TIMED_OUT))]);
    trial.wait(200);
    let (_, token, _) = trial.only();
    trial.say(token, 0, &[(0, refused(ErrorCode::TOPIC_ALREADY_EXISTS))]);
    assert!(may_be_done(&trial), "{}", trial.error());
}

#[test]
fn who_leads_nothing_is_believed_at_once_that_a_topic_is_unknown() {
    let mut trial = Trial::new();
    trial.begin(&[Route::Any]);
    let (_, token, _) = trial.only();
    trial.say(token, 0, &[(0, refused(ErrorCode::UNKNOWN_TOPIC_OR_PARTITION))]);
    assert_eq!(trial.told(), [(0, Err(ErrorKind::UnknownTopic))]);
}

#[test]
fn what_was_written_is_not_asked_again_by_halves() {
    let mut trial = Trial::new();
    trial.begin(&[Route::Any, Route::Any]);
    let (_, token, _) = trial.only();
    trial.lose(token, ErrorKind::Internal, true);
    let ended = [(0, Err(ErrorKind::Internal)), (1, Err(ErrorKind::Internal))];
    assert_eq!(trial.told(), ended);
}
