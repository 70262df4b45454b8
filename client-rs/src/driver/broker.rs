//! One connection to a broker: opened when there is something to ask, closed when idle or broken.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::future::poll_fn;
use std::ops::RangeInclusive;
use std::rc::{Rc, Weak};
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use ottla_protocol::ApiKey;

use super::client::{Client, Owner};
use super::clock;
use crate::error::{Error, ErrorKind};
use crate::state::machine::{Lane, LinkFault, Request, Throttle};

mod handshake;
mod serving;

use self::serving::Serving;

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
        // As it is known now: when it has answered, the cluster may be looked for anew.
        let name = owner.name_of(link.key.peer);
        let vitals = owner.shared_vitals();
        let throttle = Rc::new(Throttle::new(Arc::clone(&vitals)));
        let opened = until_closed(&link, handshake::open(&link, &owner, &throttle)).await;
        drop(owner);
        let fault = match opened {
            None => return,
            Some(Ok((wire, versions))) => {
                link.ready.set(true);
                vitals.note_connected(&name, clock::now());
                let serving = Serving::new(&link, &client, wire, versions, throttle);
                let fault = serving.run().await;
                let error = fault.as_ref().map(|fault| fault.error.clone().with_broker(&name));
                vitals.note_ended(&name, error, clock::now());
                fault
            }
            Some(Err(error)) => {
                link.failures.set(link.failures.get().saturating_add(1));
                vitals.note_not_connected(error.clone().with_broker(&name), clock::now());
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
    if quiet {
        client.handle_quiet_end(link.key.peer);
    }
    tracing::debug!(broker = %name, error = %fault.error, requests = lost.len(), quiet, "connection ended");
    for Lost { owner, token, key, written } in lost {
        let error = fault.error.clone().with_broker(&name).with_api(key);
        client.handle_response(owner, token, Err(LinkFault { error, written }));
    }
}

type Versions = Vec<(ApiKey, RangeInclusive<i16>)>;

fn internal(text: &str, error: impl std::error::Error + Send + Sync + 'static) -> Error {
    Error::new(ErrorKind::Internal, text).with_source(error)
}
