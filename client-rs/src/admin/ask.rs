//! What an admin call asks of brokers, and how their answers become results.

use std::borrow::Borrow;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use ottla_protocol::{ApiKey, ErrorCode, Uuid};

use super::{ConfigResource, Results};
use crate::error::{Error, ErrorKind};
use crate::promise::Promise;
use crate::record::TopicPartition;
use crate::state::admin::{Reading, Route, Routes, Verdict, Work};
use crate::state::machine::{Answer, Body};

/// What a broker refused, with its own words.
pub(super) type Refusal = (ErrorCode, Option<String>);

/// A value, unless there is a code.
pub(super) fn outcome<V>(
    code: ErrorCode,
    text: Option<&str>,
    value: impl FnOnce() -> V,
) -> Result<V, Refusal> {
    if code.is_none() { Ok(value()) } else { Err((code, text.map(str::to_owned))) }
}

/// What the items of a call go by.
pub(super) trait Key: Ord + Clone + fmt::Debug + Send + 'static {
    /// An error that says which item it is about.
    fn name_in(&self, error: Error) -> Error;
}

impl Key for String {
    fn name_in(&self, error: Error) -> Error {
        error
    }
}

impl Key for Uuid {
    fn name_in(&self, error: Error) -> Error {
        error
    }
}

impl Key for ConfigResource {
    fn name_in(&self, error: Error) -> Error {
        error
    }
}

impl Key for i32 {
    fn name_in(&self, error: Error) -> Error {
        error
    }
}

impl Key for () {
    fn name_in(&self, error: Error) -> Error {
        error
    }
}

impl Key for TopicPartition {
    fn name_in(&self, error: Error) -> Error {
        error.with_topic(&self.topic).with_partition(self.partition)
    }
}

/// The items of a request, as the reader of its answer names them.
pub(super) struct Asked<'a, K> {
    items: &'a [usize],
    places: &'a BTreeMap<K, usize>,
}

/// An answer, row by row.
pub(super) struct Rows<V> {
    throttle_ms: i32,
    rows: Vec<(usize, Result<V, Refusal>)>,
}

impl<V> Rows<V> {
    /// Of an answer that does not say what was asked: it is asked again.
    pub(super) const fn none(throttle_ms: i32) -> Self {
        Self { throttle_ms, rows: Vec::new() }
    }
}

impl<K: Ord> Asked<'_, K> {
    /// The rows of an answer by their keys. A key that was not asked about is passed over.
    pub(super) fn rows<Q, V>(
        &self,
        throttle_ms: i32,
        rows: impl IntoIterator<Item = (Q, Result<V, Refusal>)>,
    ) -> Rows<V>
    where
        K: Borrow<Q>,
        Q: Ord,
    {
        let place = |(key, row): (Q, _)| Some((*self.places.get(&key)?, row));
        Rows { throttle_ms, rows: rows.into_iter().filter_map(place).collect() }
    }

    /// The same for keys that the answer names by a text.
    pub(super) fn named<'q, V>(
        &self,
        throttle_ms: i32,
        rows: impl IntoIterator<Item = (&'q str, Result<V, Refusal>)>,
    ) -> Rows<V>
    where
        K: Borrow<str>,
    {
        let place = |(key, row): (&str, _)| Some((*self.places.get(key)?, row));
        Rows { throttle_ms, rows: rows.into_iter().filter_map(place).collect() }
    }

    /// One row, for the one item of a request.
    pub(super) fn only<V>(&self, throttle_ms: i32, row: Result<V, Refusal>) -> Rows<V> {
        Rows { throttle_ms, rows: self.items.first().map(|&at| (at, row)).into_iter().collect() }
    }

    /// The whole request was refused.
    pub(super) fn refused<V>(&self, throttle_ms: i32, refusal: &Refusal) -> Rows<V> {
        let rows = self.items.iter().map(|&at| (at, Err(refusal.clone())));
        Rows { throttle_ms, rows: rows.collect() }
    }
}

/// The error of an item that is named twice: of two answers neither would be the one.
pub(super) fn twice(key: &impl fmt::Debug) -> Error {
    Error::new(ErrorKind::InvalidArgument, format!("{key:?} is named twice in one call"))
}

type Build = Box<dyn Fn(&[usize], i32) -> Box<dyn Body> + Send>;
type Read<K, V> = Box<dyn Fn(&Answer, &Asked<'_, K>) -> Result<Rows<V>, Error> + Send>;
type Ended<K, V> = Result<Vec<(K, Result<V, Error>)>, Error>;
type Finish<K, V> = Box<dyn FnOnce(Ended<K, V>) + Send>;

/// A call in the making.
pub(super) struct Ask<K, V> {
    api: ApiKey,
    changes: bool,
    keys: Vec<K>,
    routes: Option<Routes>,
    /// For [`Routes::EachBroker`]: the key of a broker.
    of_broker: Option<fn(i32) -> K>,
    build: Build,
    read: Read<K, V>,
}

impl<K: Key, V: Clone + Send + fmt::Debug + 'static> Ask<K, V> {
    /// A call about these items. `build` makes the request for some of them, whose numbers are
    /// given with the time that the broker has; `read` reads its answer.
    pub(super) fn new(
        api: ApiKey,
        items: impl IntoIterator<Item = (K, Route)>,
        build: impl Fn(&[usize], i32) -> Box<dyn Body> + Send + 'static,
        read: impl Fn(&Answer, &Asked<'_, K>) -> Result<Rows<V>, Error> + Send + 'static,
    ) -> Self {
        let (keys, routes) = items.into_iter().unzip();
        let (build, read) = (Box::new(build), Box::new(read));
        let routes: Vec<Route> = routes;
        let routes = Some(Routes::Each(routes.into_iter().map(Ok).collect()));
        Self { api, changes: false, keys, routes, of_broker: None, build, read }
    }

    /// The same of a call that changes something.
    pub(super) fn changing(mut self) -> Self {
        self.changes = true;
        self
    }

    /// The same; items that do not pass the check are not asked, and end with what it says.
    pub(super) fn checked(mut self, check: impl Fn(&K) -> Result<(), Error>) -> Self {
        if let Some(Routes::Each(routes)) = &mut self.routes {
            for (key, route) in self.keys.iter().zip(routes) {
                if let Err(error) = check(key) {
                    *route = Err(error);
                }
            }
        }
        self
    }

    /// Ready to begin; the results come to the promise. Items that are named twice are refused, and
    /// only these.
    pub(super) fn into_work(self, promise: &Arc<Promise<Results<K, V>>>) -> Box<dyn Work> {
        let promise = Arc::clone(promise);
        self.work(Box::new(move |ended| promise.resolve(ended.map(Results))))
    }

    /// The same; the results come to the function.
    pub(super) fn into_work_with(
        self,
        finish: impl FnOnce(Ended<K, V>) + Send + 'static,
    ) -> Box<dyn Work> {
        self.work(Box::new(finish))
    }

    fn work(mut self, finish: Finish<K, V>) -> Box<dyn Work> {
        let mut places = BTreeMap::new();
        let mut refuse = |index: usize, key: &K| {
            if let Some(Routes::Each(routes)) = &mut self.routes
                && let Some(route) = routes.get_mut(index)
            {
                *route = Err(twice(key));
            }
        };
        for (index, key) in self.keys.iter().enumerate() {
            if let Some(first) = places.insert(key.clone(), index) {
                refuse(first, key);
                refuse(index, key);
            }
        }
        let results = self.keys.iter().map(|_| None).collect();
        Box::new(Working { ask: self, places, results, finish })
    }
}

impl<V: Clone + Send + fmt::Debug + 'static> Ask<(), V> {
    /// A call with one result.
    pub(super) fn one(
        api: ApiKey,
        route: Route,
        build: impl Fn() -> Box<dyn Body> + Send + 'static,
        read: impl Fn(&Answer, &Asked<'_, ()>) -> Result<Rows<V>, Error> + Send + 'static,
    ) -> Self {
        Self::new(api, [((), route)], move |_, _| build(), read)
    }

    /// Ready to begin; the result comes to the promise.
    pub(super) fn into_single(self, promise: &Arc<Promise<V>>) -> Box<dyn Work> {
        let promise = Arc::clone(promise);
        let missing = || Err(Error::new(ErrorKind::Internal, "the call ended without a result"));
        self.work(Box::new(move |ended| {
            let only = ended.map(|results| results.into_iter().next());
            promise.resolve(only.and_then(|only| only.map_or_else(missing, |((), result)| result)));
        }))
    }
}

impl<V: Clone + Send + fmt::Debug + 'static> Ask<i32, V> {
    /// A call to each broker, by its id.
    pub(super) fn of_each_broker(
        api: ApiKey,
        build: impl Fn() -> Box<dyn Body> + Send + 'static,
        read: impl Fn(&Answer, &Asked<'_, i32>) -> Result<Rows<V>, Error> + Send + 'static,
    ) -> Self {
        let ask = Self::new(api, [], move |_, _| build(), read);
        Self { routes: Some(Routes::EachBroker), of_broker: Some(|broker| broker), ..ask }
    }
}

/// A call at work.
struct Working<K, V> {
    ask: Ask<K, V>,
    places: BTreeMap<K, usize>,
    results: Vec<Option<Result<V, Error>>>,
    finish: Finish<K, V>,
}

impl<K: Key, V> fmt::Debug for Working<K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} of {:?}", self.ask.api, self.ask.keys)
    }
}

impl<K: Key, V: Clone + Send + fmt::Debug + 'static> Work for Working<K, V> {
    fn api(&self) -> ApiKey {
        self.ask.api
    }

    fn changes(&self) -> bool {
        self.ask.changes
    }

    fn routes(&mut self) -> Routes {
        self.ask.routes.take().unwrap_or(Routes::Each(Vec::new()))
    }

    fn set_brokers(&mut self, brokers: &[i32]) {
        let Some(key) = self.ask.of_broker else { return };
        self.ask.keys = brokers.iter().map(|&broker| key(broker)).collect();
        self.results = brokers.iter().map(|_| None).collect();
        self.places = self.ask.keys.iter().cloned().zip(0..).collect();
    }

    fn body(&self, items: &[usize], timeout_ms: i32) -> Box<dyn Body> {
        (self.ask.build)(items, timeout_ms)
    }

    fn read(&mut self, items: &[usize], answer: &Answer) -> Result<Reading, Error> {
        let asked = Asked { items, places: &self.places };
        let Rows { throttle_ms, rows } = (self.ask.read)(answer, &asked)?;
        let mut verdicts = Vec::with_capacity(rows.len());
        let asked = |item: &usize| items.binary_search(item).is_ok();
        for (item, row) in rows.into_iter().filter(|(item, _)| asked(item)) {
            verdicts.push((
                item,
                match row {
                    Ok(value) => {
                        self.keep(item, Ok(value));
                        Verdict::Done
                    }
                    Err((code, text)) => Verdict::Refused(code, text),
                },
            ));
        }
        Ok(Reading { throttle_ms, items: verdicts })
    }

    fn fail(&mut self, item: usize, error: Error) {
        let error = match self.ask.keys.get(item) {
            Some(key) => key.name_in(error),
            None => error,
        };
        self.keep(item, Err(error));
    }

    fn finish(self: Box<Self>, fault: Option<Error>) {
        let Self { ask, results, finish, .. } = *self;
        let missing = || Err(Error::new(ErrorKind::Internal, "the call ended without a result"));
        let results = results.into_iter().map(|result| result.unwrap_or_else(missing));
        finish(match fault {
            Some(fault) => Err(fault),
            None => Ok(ask.keys.into_iter().zip(results).collect()),
        });
    }
}

impl<K, V> Working<K, V> {
    fn keep(&mut self, item: usize, result: Result<V, Error>) {
        if let Some(place) = self.results.get_mut(item) {
            *place = Some(result);
        }
    }
}
