//! One connection to a broker: opened when there is something to ask, closed when idle or broken.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::future::poll_fn;
use std::ops::RangeInclusive;
use std::rc::{Rc, Weak};
use std::task::{Context, Poll, Waker};
use std::time::Instant;

use bytes::Bytes;
use ottla_protocol::session::Session;
use ottla_protocol::{ApiKey, Reader, Writer, frame};

use super::client::{Client, Owner};
use super::clock::{self, Timer};
use super::wire::Wire;
use crate::error::{Error, ErrorKind};
use crate::state::machine::{Answer, Frame, Lane, LinkFault, Request};

mod handshake;

/// Requests of one connection that are open at a time.
const IN_FLIGHT_MAX: usize = 64;

/// Whom a connection leads to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Peer {
    /// A broker of the cluster.
    Node(i32),
    /// One of the addresses in the options.
    Bootstrap(usize),
}

/// A connection's name among those of its client.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct LinkKey {
    pub(crate) peer: Peer,
    pub(crate) lane: Lane,
}

/// What its client sees of a connection.
#[derive(Debug)]
pub(crate) struct Link {
    pub(crate) key: LinkKey,
    outbox: RefCell<VecDeque<(Owner, Request)>>,
    /// The request that is encoded, while nothing of it is written.
    unbegun: Cell<Option<(Owner, u64)>>,
    /// That request was taken back.
    withdrawn: Cell<bool>,
    task: RefCell<Option<Waker>>,
    /// Requests in the outbox and on their way.
    load: Cell<usize>,
    /// Attempts to connect that failed since the last that did not.
    failures: Cell<u32>,
    ready: Cell<bool>,
    closed: Cell<bool>,
}

impl Link {
    pub(crate) fn new(key: LinkKey) -> Rc<Self> {
        Rc::new(Self {
            key,
            outbox: RefCell::default(),
            unbegun: Cell::default(),
            withdrawn: Cell::default(),
            task: RefCell::default(),
            load: Cell::default(),
            failures: Cell::default(),
            ready: Cell::default(),
            closed: Cell::default(),
        })
    }

    /// Whether it is open.
    pub(crate) const fn is_ready(&self) -> bool {
        self.ready.get()
    }

    /// Whether the last attempt to open it failed.
    pub(crate) const fn is_down(&self) -> bool {
        self.failures.get() > 0
    }

    /// Requests it has not answered.
    pub(crate) const fn load(&self) -> usize {
        self.load.get()
    }

    /// Puts a request in its outbox.
    pub(crate) fn push(&self, owner: Owner, request: Request) {
        self.outbox.borrow_mut().push_back((owner, request));
        self.load.set(self.load.get() + 1);
        self.wake();
    }

    /// Takes a request back, if it is here and nothing of it is written; whether it is.
    pub(crate) fn withdraw(&self, owner: Owner, token: u64) -> bool {
        let mut outbox = self.outbox.borrow_mut();
        let waits = outbox.iter().position(|(of, request)| (*of, request.token) == (owner, token));
        if let Some(request) = waits.and_then(|at| outbox.remove(at)) {
            drop((outbox, request));
            self.answered(1);
            return true;
        }
        drop(outbox);
        let unbegun = self.unbegun.get() == Some((owner, token));
        if unbegun {
            self.unbegun.set(None);
            self.withdrawn.set(true);
            self.wake();
        }
        unbegun
    }

    /// Ends it; requests without an answer are dropped.
    pub(crate) fn close(&self) {
        self.closed.set(true);
        self.wake();
    }

    fn wake(&self) {
        let task = self.task.borrow_mut().take();
        if let Some(task) = task {
            task.wake();
        }
    }

    /// Whether a request waits in its outbox.
    fn is_awaited(&self) -> bool {
        !self.outbox.borrow().is_empty()
    }

    fn watch(&self, cx: &Context<'_>) {
        *self.task.borrow_mut() = Some(cx.waker().clone());
    }

    fn answered(&self, count: usize) {
        self.load.set(self.load.get().saturating_sub(count));
    }

    /// Waits for a request; whether one came before the link was closed.
    async fn wanted(&self) -> bool {
        poll_fn(|cx| {
            self.watch(cx);
            if self.closed.get() {
                Poll::Ready(false)
            } else if self.is_awaited() {
                Poll::Ready(true)
            } else {
                Poll::Pending
            }
        })
        .await
    }

    /// Waits until the link is closed.
    async fn ended(&self) {
        poll_fn(|cx| {
            self.watch(cx);
            if self.closed.get() { Poll::Ready(()) } else { Poll::Pending }
        })
        .await;
    }
}

/// The task of a link: connects when there is a request, until the link is closed.
pub(crate) async fn run(link: Rc<Link>, client: Weak<Client>) {
    let mut retry_at = None;
    while link.wanted().await {
        if let Some(at) = retry_at.take() {
            until_closed(&link, clock::sleep_until(at)).await;
        }
        let Some(owner) = client.upgrade().filter(|_| !link.closed.get()) else { return };
        let opened = until_closed(&link, handshake::open(&link, &owner)).await;
        drop(owner);
        let fault = match opened {
            None => return,
            Some(Ok((wire, versions))) => {
                link.ready.set(true);
                let serving = Serving::new(&link, &client, wire, versions);
                serving.run().await
            }
            Some(Err(error)) => {
                link.failures.set(link.failures.get().saturating_add(1));
                Some(Fault { error, lost: Vec::new() })
            }
        };
        link.ready.set(false);
        let (Some(owner), false) = (client.upgrade(), link.closed.get()) else { return };
        let Some(fault) = fault else { continue };
        if link.is_down() {
            retry_at = Some(clock::now() + owner.reconnect_pause(link.failures.get()));
        }
        fail(&link, &owner, fault);
    }
}

/// A future's result, unless the link is closed before.
async fn until_closed<T>(link: &Link, future: impl Future<Output = T>) -> Option<T> {
    let mut future = std::pin::pin!(future);
    let mut ended = std::pin::pin!(link.ended());
    poll_fn(|cx| {
        if ended.as_mut().poll(cx).is_ready() {
            return Poll::Ready(None);
        }
        future.as_mut().poll(cx).map(Some)
    })
    .await
}

/// Why a connection ended, and the requests on it.
struct Fault {
    error: Error,
    lost: Vec<Lost>,
}

struct Lost {
    owner: Owner,
    token: u64,
    key: ApiKey,
    written: bool,
}

/// Tells all whose requests were on the connection, or waited for it.
fn fail(link: &Link, client: &Rc<Client>, fault: Fault) {
    let waiting = std::mem::take(&mut *link.outbox.borrow_mut());
    let waiting = waiting.into_iter().map(|(owner, request)| Lost {
        owner,
        token: request.token,
        key: request.body.key(),
        written: false,
    });
    let name = client.name_of(link.key.peer);
    let lost: Vec<Lost> = fault.lost.into_iter().chain(waiting).collect();
    link.answered(lost.len());
    let quiet = lost.is_empty();
    tracing::debug!(broker = %name, error = %fault.error, requests = lost.len(), quiet, "connection ended");
    for Lost { owner, token, key, written } in lost {
        let error = fault.error.clone().with_broker(&name).with_api(key);
        client.handle_response(owner, token, Err(LinkFault { error, written }));
    }
}

/// A request that was written, or is being.
struct Sent {
    owner: Owner,
    token: u64,
    /// Where its frame starts and ends, in bytes since the connection was opened.
    start: u64,
    end: u64,
    deadline: Instant,
}

type Versions = Vec<(ApiKey, RangeInclusive<i16>)>;

/// An open connection.
struct Serving<'a> {
    link: &'a Rc<Link>,
    client: &'a Weak<Client>,
    wire: Wire,
    versions: Versions,
    broker: Rc<str>,
    session: Session<Sent>,
    /// Requests that get no answer.
    unanswered: VecDeque<(ApiKey, Sent)>,
    /// Of the request that is encoded while nothing of it is written: where its frame starts, and
    /// whether it gets an answer.
    unbegun: Option<(u64, bool)>,
    idle_since: Instant,
    timer: Timer,
}

impl<'a> Serving<'a> {
    fn new(link: &'a Rc<Link>, client: &'a Weak<Client>, wire: Wire, versions: Versions) -> Self {
        let broker = client.upgrade().map_or_else(|| Rc::from(""), |c| c.name_of(link.key.peer));
        Self {
            link,
            client,
            wire,
            versions,
            broker,
            session: Session::new(IN_FLIGHT_MAX),
            unanswered: VecDeque::new(),
            unbegun: None,
            idle_since: clock::now(),
            timer: Timer::default(),
        }
    }

    /// Until the connection breaks; `None` if it was closed for being idle.
    async fn run(mut self) -> Option<Fault> {
        let ended = poll_fn(|cx| self.poll(cx)).await;
        self.link.unbegun.set(None);
        self.link.withdrawn.set(false);
        let error = ended.err()?;
        // A broker that answered something before it went away is tried again at once.
        let written = self.wire.written();
        let lost = self
            .session
            .handle_closed()
            .map(|open| (open.key, open.token))
            .chain(self.unanswered.drain(..))
            .map(|(key, sent)| Lost {
                owner: sent.owner,
                token: sent.token,
                key,
                written: sent.start < written,
            });
        Some(Fault { error, lost: lost.collect() })
    }

    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Error>> {
        self.link.watch(cx);
        let Some(client) = self.client.upgrade().filter(|_| !self.link.closed.get()) else {
            return Poll::Ready(Ok(()));
        };
        loop {
            let now = clock::now();
            self.take_requests(&client, now);
            self.take_back();
            if let Poll::Ready(Err(error)) = self.wire.poll_flush(cx) {
                return Poll::Ready(Err(error));
            }
            self.tell_begun(&client);
            self.finish_unanswered(&client);
            loop {
                match self.wire.poll_frame(cx) {
                    Poll::Ready(Ok(frame)) => {
                        self.idle_since = now;
                        if let Err(error) = self.handle_frame(&client, frame) {
                            return Poll::Ready(Err(error));
                        }
                    }
                    Poll::Ready(Err(error)) => return Poll::Ready(Err(error)),
                    Poll::Pending => break,
                }
            }
            // What was written and answered may have made room for what waits: nothing else would
            // bring this task back to it.
            if !(self.has_room() && self.link.is_awaited()) {
                return self.poll_deadline(&client, now, cx);
            }
        }
    }

    /// Whether a further request may be encoded: not behind one that is still being written. Until
    /// its turn comes it is in the outbox, where it can be taken back.
    fn has_room(&self) -> bool {
        !self.session.is_full() && self.wire.queued() == 0
    }

    /// Lets go of the encoded request, if it was taken back.
    fn take_back(&mut self) {
        if !self.link.withdrawn.take() {
            return;
        }
        let Some((_, answered)) = self.unbegun.take() else { return };
        self.wire.take_back();
        if answered {
            self.session.cancel_youngest();
        } else {
            self.unanswered.pop_back();
        }
        self.link.answered(1);
    }

    /// Tells the owner of the encoded request once some of it is written.
    fn tell_begun(&mut self, client: &Rc<Client>) {
        if self.unbegun.is_some_and(|(start, _)| start < self.wire.written()) {
            self.unbegun = None;
            if let Some((owner, token)) = self.link.unbegun.take() {
                client.handle_begun(owner, token);
            }
        }
    }

    /// Encodes what waits, as far as the connection has room.
    fn take_requests(&mut self, client: &Rc<Client>, now: Instant) {
        while self.has_room() {
            let Some((owner, request)) = self.link.outbox.borrow_mut().pop_front() else { return };
            let token = request.token;
            self.idle_since = now;
            if let Err(error) = self.encode(client, owner, request, now) {
                self.link.answered(1);
                let error = error.with_broker(&self.broker);
                client.handle_response(owner, token, Err(LinkFault { error, written: false }));
            }
        }
    }

    fn encode(
        &mut self,
        client: &Client,
        owner: Owner,
        request: Request,
        now: Instant,
    ) -> Result<(), Error> {
        let Request { body, token, timeout, .. } = request;
        let key = body.key();
        let version = self.version_for(key, body.versions())?;
        let deadline = now + timeout;
        let start = self.wire.accepted();
        let sent = Sent { owner, token, start, end: u64::MAX, deadline };
        let correlation_id = if body.is_answered() {
            let begun = self.session.begin(key, version, sent);
            begun.map_err(|error| internal("no room for a request", error))?
        } else {
            let id = self.session.begin_unanswered();
            self.unanswered.push_back((key, sent));
            id
        };
        let mut writer = Writer::with_capacity(256);
        let client_id = Some(client.client_id());
        let mut frame = Frame { version, correlation_id, client_id, writer: &mut writer };
        if let Err(error) = body.encode(&mut frame) {
            if body.is_answered() {
                self.session.cancel_youngest();
            } else {
                self.unanswered.pop_back();
            }
            return Err(internal("a request cannot be written", error).with_api(key));
        }
        self.wire.push(writer, &*body);
        self.unbegun = Some((start, body.is_answered()));
        self.link.unbegun.set(Some((owner, token)));
        if let Some((_, sent)) = self.unanswered.back_mut().filter(|_| !body.is_answered()) {
            sent.end = self.wire.accepted();
        }
        Ok(())
    }

    /// The highest version that both sides have.
    fn version_for(&self, key: ApiKey, ours: RangeInclusive<i16>) -> Result<i16, Error> {
        let theirs = self.versions.iter().find(|(known, _)| *known == key).map(|(_, range)| range);
        let best = theirs.and_then(|theirs| {
            let best = *theirs.end().min(ours.end());
            (best >= *theirs.start().max(ours.start())).then_some(best)
        });
        best.ok_or_else(|| {
            let theirs = theirs.map_or_else(
                || "does not have it".to_owned(),
                |range| format!("has {} to {}", range.start(), range.end()),
            );
            let text = format!(
                "this client speaks {key} in versions {} to {}, and the broker {theirs}",
                ours.start(),
                ours.end()
            );
            Error::new(ErrorKind::UnsupportedVersion, text).with_api(key)
        })
    }

    /// Ends the requests without an answer that are written whole.
    fn finish_unanswered(&mut self, client: &Rc<Client>) {
        while self.unanswered.front().is_some_and(|(_, sent)| sent.end <= self.wire.written()) {
            let Some((_, sent)) = self.unanswered.pop_front() else { return };
            self.link.answered(1);
            let answer = Answer { version: 0, body: Bytes::new(), broker: Rc::clone(&self.broker) };
            client.handle_response(sent.owner, sent.token, Ok(answer));
        }
    }

    fn handle_frame(&mut self, client: &Rc<Client>, frame: Bytes) -> Result<(), Error> {
        let garbled = |error| {
            Error::new(ErrorKind::Protocol, "the broker's answer cannot be read").with_source(error)
        };
        let (key, version) =
            self.session.oldest().map_or((ApiKey::ApiVersions, 0), |open| (open.key, open.version));
        let mut reader = Reader::new(&frame);
        let id = frame::decode_response_header(&mut reader, key, version).map_err(garbled)?;
        let body = frame.slice(reader.position()..);
        let open = self.session.handle_response(id).map_err(|error| {
            let text = "the broker's answers do not fit the requests";
            Error::new(ErrorKind::Protocol, text).with_source(error)
        })?;
        self.link.failures.set(0);
        self.link.answered(1);
        let answer = Answer { version, body, broker: Rc::clone(&self.broker) };
        client.handle_response(open.token.owner, open.token.token, Ok(answer));
        Ok(())
    }

    /// Waits for the first request to be overdue, or for the connection to have been idle too long.
    fn poll_deadline(
        &mut self,
        client: &Client,
        now: Instant,
        cx: &mut Context<'_>,
    ) -> Poll<Result<(), Error>> {
        let open = self.session.iter().map(|open| open.token.deadline);
        let open = open.chain(self.unanswered.iter().map(|(_, sent)| sent.deadline)).min();
        let deadline = open.unwrap_or_else(|| self.idle_since + client.max_idle());
        if deadline > now && self.timer.poll(Some(deadline), cx).is_pending() {
            return Poll::Pending;
        }
        if open.is_none() {
            return Poll::Ready(Ok(()));
        }
        let text = "the broker did not answer within the request timeout";
        Poll::Ready(Err(Error::new(ErrorKind::RequestTimeout, text)))
    }
}

fn internal(text: &str, error: impl std::error::Error + Send + Sync + 'static) -> Error {
    Error::new(ErrorKind::Internal, text).with_source(error)
}
