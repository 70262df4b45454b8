//! A client on the I/O thread: its machine, its metadata, and the connections between which their
//! requests are shared out.

use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;
use std::sync::Arc;
use std::task::Poll;
use std::time::{Duration, Instant};

use super::broker::{self, Link, LinkKey, Peer};
use super::buffers::{Buffers, Store};
use super::clock::{self, Timer};
use super::long;
use super::transport::Transport;
use crate::config::{Address, CommonConfig};
use crate::error::{Error, ErrorKind};
use crate::health::Vitals;
use crate::state::backoff::{Backoff, Random};
use crate::state::hash::HashMap;
use crate::state::machine::{
    Context, Job, JobResult, Lane, LinkFault, Machine, Next, Reply, Request, Target,
};
use crate::state::metadata::Metadata;
use crate::state::wake::Wake;

/// Turns in one poll before the thread's other tasks get theirs.
const TURNS_MAX: usize = 16;

/// Who asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Owner {
    /// The client's metadata.
    Metadata,
    /// The client's machine.
    Machine,
}

/// A client.
pub(crate) struct Client {
    config: CommonConfig,
    transport: Box<dyn Transport>,
    wake: Arc<Wake>,
    vitals: Arc<Vitals>,
    buffers: Arc<Store>,
    inner: RefCell<Inner>,
    /// The machine panicked, or has ended.
    over: Cell<bool>,
    /// Brokers do not know what to do with whom we expect there.
    unchecked: Cell<bool>,
    #[cfg(feature = "sim")]
    rest: super::sim::Rest,
}

struct Inner {
    metadata: Metadata,
    machine: Box<dyn Machine>,
    random: Random,
    links: HashMap<LinkKey, Rc<Link>>,
    next_bootstrap: usize,
}

/// What came out of a call to the machines.
#[derive(Default)]
struct Out {
    requests: Vec<Request>,
    jobs: Vec<Job>,
    withdrawn: Vec<u64>,
}

impl Client {
    pub(crate) fn new(
        config: CommonConfig,
        transport: Box<dyn Transport>,
        wake: Arc<Wake>,
        machine: Box<dyn Machine>,
        mut random: Random,
        vitals: Arc<Vitals>,
    ) -> Rc<Self> {
        let next_bootstrap = random.below(config.bootstrap.len());
        let metadata = Metadata::new(&config);
        let links = HashMap::default();
        let inner = RefCell::new(Inner { metadata, machine, random, links, next_bootstrap });
        Rc::new(Self {
            buffers: Store::new(config.answer_bytes, vitals.answers()),
            config,
            transport,
            wake,
            vitals,
            inner,
            over: Cell::new(false),
            unchecked: Cell::new(false),
            #[cfg(feature = "sim")]
            rest: super::sim::Rest::default(),
        })
    }

    /// The client's task: turns until its machine ends.
    pub(crate) async fn run(self: Rc<Self>) {
        let mut timer = Timer::default();
        poll_fn(|cx| {
            for _ in 0..TURNS_MAX {
                self.see_turn(self.wake.begin());
                let Some((deadline, busy)) = self.turn() else { return Poll::Ready(()) };
                if !self.wake.park(cx.waker(), busy) {
                    continue;
                }
                if timer.poll(deadline, cx).is_pending() {
                    return Poll::Pending;
                }
            }
            cx.waker().wake_by_ref();
            Poll::Pending
        })
        .await;
        for link in self.inner.borrow_mut().links.values() {
            link.close();
        }
    }

    /// A turn begins, since the machines were `told` of something or since its time has come.
    #[cfg_attr(
        not(feature = "sim"),
        expect(clippy::unused_self, reason = "only the simulator looks for turns in vain")
    )]
    fn see_turn(&self, told: bool) {
        #[cfg(feature = "sim")]
        self.rest.see_turn(told, clock::now());
        #[cfg(not(feature = "sim"))]
        let _ = told;
    }

    /// One turn of all machines: when the next is due, and whether it comes soon in any case.
    /// `None` if there is none.
    fn turn(self: &Rc<Self>) -> Option<(Option<Instant>, bool)> {
        if self.over.get() {
            return None;
        }
        let mut metadata_request = None;
        let mut busy = false;
        let next = self.call(|machine, cx| {
            let next = machine.turn(cx);
            metadata_request = cx.metadata.poll_request(cx.now);
            busy = machine.is_busy();
            next
        })?;
        if let Some(request) = metadata_request {
            self.dispatch(Owner::Metadata, request);
        }
        let own = match next {
            Next::At(at) => Some(at),
            Next::Wait => None,
            Next::Ended => {
                self.over.set(true);
                return None;
            }
        };
        let metadata = self.inner.borrow().metadata.poll_timeout();
        Some((own.into_iter().chain(metadata).min(), busy))
    }

    /// The first bytes of a request were written.
    pub(crate) fn handle_begun(self: &Rc<Self>, owner: Owner, token: u64) {
        if owner == Owner::Machine {
            self.call(|machine, _| machine.handle_begun(token));
        }
    }

    /// What became of a request.
    pub(crate) fn handle_response(self: &Rc<Self>, owner: Owner, token: u64, reply: Reply) {
        let (mut told, mut end) = (false, None);
        self.call(|machine, cx| {
            end = cx.metadata.note_reply(&reply, cx.now);
            match owner {
                Owner::Machine => machine.handle_response(token, reply, cx),
                Owner::Metadata => {
                    let news = cx.metadata.handle_response(token, reply, cx.now, cx.random);
                    if let Some(stray) = cx.metadata.take_stray() {
                        self.vitals.note_stray(stray);
                    }
                    told = news;
                }
            }
        });
        if let Some(error) = end {
            tracing::error!(%error, "this client has no address of any broker");
            self.end_by(&error);
        }
        if told {
            self.inner.borrow_mut().let_go();
        }
        self.wake.wake();
    }

    /// Calls the machine, and sends out what came of it; `None` if it panicked, now or before.
    fn call<T>(
        self: &Rc<Self>,
        call: impl FnOnce(&mut dyn Machine, &mut Context<'_>) -> T,
    ) -> Option<T> {
        if self.over.get() {
            return None;
        }
        let mut out = Out::default();
        let result = catch_unwind(AssertUnwindSafe(|| {
            let inner = &mut *self.inner.borrow_mut();
            let mut cx = Context {
                now: clock::now(),
                now_ms: clock::now_ms(),
                metadata: &mut inner.metadata,
                random: &mut inner.random,
                requests: &mut out.requests,
                jobs: &mut out.jobs,
                withdrawn: &mut out.withdrawn,
            };
            call(&mut *inner.machine, &mut cx)
        }));
        let Ok(result) = result else {
            self.fail();
            return None;
        };
        #[cfg(feature = "sim")]
        if !(out.withdrawn.is_empty() && out.requests.is_empty() && out.jobs.is_empty()) {
            self.rest.see_work();
        }
        out.withdrawn.into_iter().for_each(|token| self.withdraw(Owner::Machine, token));
        out.requests.into_iter().for_each(|request| self.dispatch(Owner::Machine, request));
        out.jobs.into_iter().for_each(|job| self.start_job(job));
        Some(result)
    }

    /// The machine's state cannot be trusted any more: all who wait are told.
    pub(crate) fn fail(&self) {
        let text = "the client failed by a fault of its own; its log has the place";
        tracing::error!("a panic ended this client");
        self.end_by(&Error::new(ErrorKind::Internal, text));
    }

    /// All who wait are told this, and all who come later.
    fn end_by(&self, error: &Error) {
        self.over.set(true);
        self.wake.wake();
        let told = catch_unwind(AssertUnwindSafe(|| {
            self.inner.borrow_mut().machine.fail(error);
        }));
        if told.is_err() {
            tracing::error!("the panic's victims could not all be told");
        }
    }

    fn start_job(self: &Rc<Self>, job: Job) {
        let Job { token, work } = job;
        let work = elsewhere(work);
        let client = Rc::downgrade(self);
        tokio::task::spawn_local(async move {
            let result: Option<JobResult> = work.await;
            if let Some(client) = client.upgrade() {
                client.call(|machine, cx| machine.handle_job(token, result, cx));
                client.wake.wake();
            }
        });
    }

    /// Puts a request in the outbox of its connection; what has none comes back as a fault.
    fn dispatch(self: &Rc<Self>, owner: Owner, request: Request) {
        let lane = request.lane;
        match self.route(request.to) {
            Ok(peer) => self.link(LinkKey { peer, lane }).push(owner, request),
            Err(error) => {
                let (client, token) = (Rc::downgrade(self), request.token);
                let error = error.with_api(request.body.key());
                // Later, so that no machine is called while it is being asked.
                tokio::task::spawn_local(async move {
                    if let Some(client) = client.upgrade() {
                        let fault = LinkFault { error, written: false };
                        client.handle_response(owner, token, Err(fault));
                    }
                });
            }
        }
    }

    /// Takes a request back of which nothing is written. One that is about to come back as a fault
    /// is in no connection's hands.
    fn withdraw(&self, owner: Owner, token: u64) {
        let inner = self.inner.borrow();
        let found = inner.links.values().any(|link| link.withdraw(owner, token));
        tracing::debug!(token, found, "a request is taken back");
    }

    fn route(&self, to: Target) -> Result<Peer, Error> {
        let inner = &mut *self.inner.borrow_mut();
        match to {
            Target::Node(id) if inner.metadata.cluster().brokers.contains_key(&id) => {
                Ok(Peer::Node(id))
            }
            Target::Node(id) => {
                let text = format!("the cluster has no broker {id} now");
                Err(Error::new(ErrorKind::Connect, text))
            }
            Target::Any => Ok(inner.any_peer(&self.config)),
        }
    }

    fn link(self: &Rc<Self>, key: LinkKey) -> Rc<Link> {
        let inner = &mut *self.inner.borrow_mut();
        if let Some(link) = inner.links.get(&key) {
            return Rc::clone(link);
        }
        let link = Link::new(key);
        inner.links.insert(key, Rc::clone(&link));
        let task = tokio::task::spawn_local(broker::run(Rc::clone(&link), Rc::downgrade(self)));
        let client = Rc::downgrade(self);
        tokio::task::spawn_local(async move {
            let panicked = task.await.is_err_and(|error| error.is_panic());
            if let Some(client) = client.upgrade().filter(|_| panicked) {
                client.fail();
            }
        });
        link
    }

    /// A connection ended with nothing on it. So brokers say that they do not lead a partition any
    /// more to those who want no answer (`acks=0`): what is known of the cluster may be out of date.
    pub(crate) fn handle_quiet_end(&self, peer: Peer) {
        if matches!(peer, Peer::Node(_)) {
            self.inner.borrow_mut().metadata.request_refresh(clock::now());
            self.wake.wake();
        }
    }

    /// Where a peer listens.
    pub(crate) fn address_of(&self, peer: Peer) -> Result<Address, Error> {
        let address = match peer {
            Peer::Node(id) => self.inner.borrow().metadata.cluster().brokers.get(&id).cloned(),
            Peer::Bootstrap(index) => self.config.bootstrap.get(index).cloned(),
        };
        address.ok_or_else(|| Error::new(ErrorKind::Connect, "the cluster has no such broker now"))
    }

    /// A peer as errors and log lines name it.
    pub(crate) fn name_of(&self, peer: Peer) -> Rc<str> {
        let address = self.address_of(peer).map_or_else(|_| String::new(), |at| at.to_string());
        match peer {
            Peer::Node(id) if address.is_empty() => Rc::from(id.to_string()),
            Peer::Node(id) => Rc::from(format!("{id} at {address}")),
            Peer::Bootstrap(_) => Rc::from(address),
        }
    }

    /// Whom a connection expects at its other end, where the cluster has told (KIP-1242).
    pub(crate) fn expected(&self, peer: Peer) -> Option<(String, i32)> {
        let Peer::Node(id) = peer else { return None };
        let inner = self.inner.borrow();
        let known = inner.metadata.expected().filter(|_| !self.unchecked.get());
        known.map(|known| (known.to_owned(), id))
    }

    /// The cluster's brokers are too old to be told whom we expect; that is not tried each time.
    pub(crate) fn note_unchecked(&self) {
        self.unchecked.set(true);
    }

    /// A broker is not the one that was expected: the cluster is looked for anew.
    pub(crate) fn rebootstrap(&self) {
        self.unchecked.set(false);
        self.inner.borrow_mut().metadata.rebootstrap(clock::now());
        self.wake.wake();
    }

    /// Where it is noted how the client fares.
    pub(crate) fn vitals(&self) -> &Vitals {
        &self.vitals
    }

    /// The same, for who outlives the client.
    pub(crate) fn shared_vitals(&self) -> Arc<Vitals> {
        Arc::clone(&self.vitals)
    }

    /// Memory for a connection's large answers.
    pub(super) fn buffers(&self) -> Buffers {
        Buffers::new(Arc::clone(&self.buffers))
    }

    pub(crate) fn transport(&self) -> &dyn Transport {
        &*self.transport
    }

    pub(crate) fn client_id(&self) -> &str {
        &self.config.client_id
    }

    pub(crate) const fn request_timeout(&self) -> Duration {
        self.config.request_timeout
    }

    pub(crate) const fn max_idle(&self) -> Duration {
        self.config.connections_max_idle
    }

    /// How long to wait for a connection after so many failures (KIP-601).
    pub(crate) fn connect_timeout(&self, failures: u32) -> Duration {
        let backoff = Backoff::new(self.config.connect_timeout);
        backoff.pause(failures.saturating_add(1), &mut self.inner.borrow_mut().random)
    }

    /// How long to leave a broker alone after so many failures.
    pub(crate) fn reconnect_pause(&self, failures: u32) -> Duration {
        let backoff = Backoff::new(self.config.reconnect_backoff);
        backoff.pause(failures, &mut self.inner.borrow_mut().random)
    }
}

impl Inner {
    /// Closes the connections to brokers that the cluster has no more, once nothing is on them: their
    /// ids may never come back.
    fn let_go(&mut self) {
        let brokers = &self.metadata.cluster().brokers;
        self.links.retain(|key, link| {
            let stays = match key.peer {
                Peer::Node(id) => brokers.contains_key(&id) || link.load() > 0,
                Peer::Bootstrap(_) => true,
            };
            if !stays {
                link.close();
            }
            stays
        });
    }

    /// An open connection if there is one, else a broker not known to be down, else an address from
    /// the options: when all brokers are gone, the cluster is looked for anew (KIP-899), unless
    /// `metadata.recovery.strategy` is none.
    fn any_peer(&mut self, config: &CommonConfig) -> Peer {
        let brokers = &self.metadata.cluster().brokers;
        let known = |peer| match peer {
            Peer::Node(id) => brokers.contains_key(&id),
            Peer::Bootstrap(_) => true,
        };
        let usable = |link: &&Rc<Link>| {
            link.is_ready() && link.key.lane == Lane::Rest && known(link.key.peer)
        };
        let open = self.links.values().filter(usable);
        if let Some(link) = open.min_by_key(|link| link.load()) {
            return link.key.peer;
        }
        let down = |peer| self.links.values().any(|link| link.key.peer == peer && link.is_down());
        let brokers = || self.metadata.cluster().brokers.keys().map(|&id| Peer::Node(id));
        let mut asked: Vec<Peer> = brokers().filter(|&peer| !down(peer)).collect();
        if asked.is_empty() && config.rebootstrap_after.is_none() {
            asked = brokers().collect();
        }
        if let Some(&peer) = asked.get(self.random.below(asked.len())) {
            return peer;
        }
        let index = self.next_bootstrap;
        self.next_bootstrap = (index + 1).checked_rem(config.bootstrap.len()).unwrap_or(0);
        Peer::Bootstrap(index)
    }
}

/// Has long work done on another thread; `None` if it panics. A simulator has no other thread.
fn elsewhere(
    work: Box<dyn FnOnce() -> JobResult + Send>,
) -> impl Future<Output = Option<JobResult>> {
    #[cfg(feature = "sim")]
    let work = if super::sim::is_on() { Err(work) } else { Ok(work) };
    #[cfg(not(feature = "sim"))]
    let work: Result<_, std::convert::Infallible> = Ok(work);
    async move {
        match work {
            Ok(work) => long::work(work).await,
            #[cfg(feature = "sim")]
            Err(work) => catch_unwind(AssertUnwindSafe(work)).ok(),
        }
    }
}
