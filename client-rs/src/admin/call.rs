//! A call, how it is waited for, and its results item by item.

use std::fmt;
use std::future::{Future, IntoFuture};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use super::Admin;
use crate::error::{Error, ErrorKind};
use crate::promise::{Promise, Promised};
use crate::state::admin::Work;

/// What a call waits beyond its time for the reason why it was not enough.
const SLACK: Duration = Duration::from_millis(50);

/// A call ready to begin, and where its result comes.
pub(super) type Begun<T> = (Box<dyn Work>, Arc<Promise<T>>);

type Begin<T, O> = Box<dyn FnOnce(O) -> Begun<T> + Send>;

/// A call of an [`Admin`]. It begins when it is sent, waited for or awaited.
///
/// Faults that may pass are tried again until its time is over; then each item that is still open
/// ends with `Timeout` and the last cause. `O` is what can be said of it beyond its time.
#[must_use = "a call begins when it is sent, waited for or awaited"]
pub struct Call<T, O = ()> {
    admin: Admin,
    timeout: Option<Duration>,
    options: O,
    begin: Begin<T, O>,
}

impl<T: Clone, O: Default> Call<T, O> {
    pub(super) fn new(admin: &Admin, begin: impl FnOnce(O) -> Begun<T> + Send + 'static) -> Self {
        let (options, begin) = (O::default(), Box::new(begin));
        Self { admin: admin.clone(), timeout: None, options, begin }
    }
}

impl<T: Clone, O> Call<T, O> {
    /// The same with this time for all of it, its retries included.
    ///
    /// Default: the option `default.api.timeout.ms`.
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = Some(timeout);
        self
    }

    pub(super) fn with(mut self, change: impl FnOnce(&mut O)) -> Self {
        change(&mut self.options);
        self
    }

    /// Begins it. Dropped, nobody waits for it; it goes on all the same.
    pub fn send(self) -> Pending<T> {
        let timeout = self.timeout.unwrap_or_else(|| self.admin.api_timeout());
        let (work, promise) = (self.begin)(self.options);
        if let Err(error) = self.admin.begin(work, timeout) {
            promise.resolve(Err(error));
        }
        Pending { promise: Promised(promise), timeout }
    }

    /// Begins it, and waits for its result.
    ///
    /// In a callback of a client's, which must not wait, it is refused.
    pub fn wait(self) -> Result<T, Error> {
        self.send().wait()
    }
}

impl<T: Clone, O> IntoFuture for Call<T, O> {
    type Output = Result<T, Error>;
    type IntoFuture = Pending<T>;

    fn into_future(self) -> Pending<T> {
        self.send()
    }
}

impl<T, O: fmt::Debug> fmt::Debug for Call<T, O> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Call")
            .field("timeout", &self.timeout)
            .field("options", &self.options)
            .finish_non_exhaustive()
    }
}

/// A call that was sent. As a future it gives the result, under any executor.
#[derive(Debug)]
pub struct Pending<T> {
    promise: Promised<T>,
    timeout: Duration,
}

impl<T: Clone> Pending<T> {
    /// Waits for the result. In a callback of a client's, which must not wait, it is refused.
    pub fn wait(&self) -> Result<T, Error> {
        self.promise.0.wait(self.timeout.saturating_add(SLACK), "the call")
    }
}

impl<T: Clone> Future for Pending<T> {
    type Output = Result<T, Error>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        Pin::new(&mut self.promise).poll(cx)
    }
}

/// What can be said of a call that changes something.
#[derive(Debug, Clone, Copy, Default)]
pub struct ChangeOptions {
    pub(super) validate_only: bool,
}

impl<T: Clone> Call<T, ChangeOptions> {
    /// Whether the cluster only checks what is asked, and changes nothing.
    ///
    /// Default false. Kafka: `validateOnly`.
    pub fn validate_only(self, only: bool) -> Self {
        self.with(|options| options.validate_only = only)
    }
}

/// The results of a call, item by item, in the order in which the items were named.
#[derive(Debug, Clone)]
pub struct Results<K, V>(pub(super) Vec<(K, Result<V, Error>)>);

impl<K: PartialEq, V> Results<K, V> {
    /// The result of an item; `InvalidArgument` if the call was not about it.
    pub fn get<Q>(&self, key: &Q) -> Result<&V, Error>
    where
        K: std::borrow::Borrow<Q>,
        Q: PartialEq + ?Sized,
    {
        let found = self.0.iter().find(|(known, _)| known.borrow() == key);
        let missing = || {
            let text = "the call was not about this item";
            Error::new(ErrorKind::InvalidArgument, text)
        };
        found.ok_or_else(missing)?.1.as_ref().map_err(Clone::clone)
    }
}

impl<K, V> Results<K, V> {
    /// All items with what came of each.
    pub fn iter(&self) -> impl Iterator<Item = (&K, &Result<V, Error>)> {
        self.0.iter().map(|(key, result)| (key, result))
    }

    /// How many items there are.
    pub const fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there is none.
    pub const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The values of all items, or the first error.
    pub fn all(self) -> Result<Vec<(K, V)>, Error> {
        self.0.into_iter().map(|(key, result)| Ok((key, result?))).collect()
    }
}

impl<K, V> IntoIterator for Results<K, V> {
    type Item = (K, Result<V, Error>);
    type IntoIter = std::vec::IntoIter<Self::Item>;

    fn into_iter(self) -> Self::IntoIter {
        self.0.into_iter()
    }
}
