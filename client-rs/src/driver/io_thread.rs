//! The one thread on which all clients of a process live, while there are any.

use std::cell::Cell;
use std::fmt;
use std::future::poll_fn;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::task::{Poll, Waker};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use tokio::runtime::{Builder, Runtime};
use tokio::task::LocalSet;

use super::client::Client;
use super::clock;
use super::long;
use super::signals::Blocked;
use super::transport::{Tcp, Transport};
use crate::config::CommonConfig;
use crate::error::{Error, ErrorKind};
use crate::events::Feed;
use crate::health::{Health, Vitals};
use crate::process::Process;
use crate::state::backoff::Random;
use crate::state::guard::lock;
use crate::state::machine::Machine;
use crate::state::wake::Wake;

const THREAD_NAME: &str = "ottla-io";
const STACK_BYTES: usize = 512 * 1024;
/// A thread for long work ends after so long without any.
const WORKER_IDLE: Duration = Duration::from_secs(10);
/// How long the end of the thread waits for work that cannot be broken off: a name being resolved.
const WORKER_PATIENCE: Duration = Duration::from_millis(200);

/// Something of which each process has its own: a child of a fork may find that of its parent locked,
/// by a thread that is not there to unlock it. The last of so many forks, one within the other, comes
/// to the place of the first.
type EachProcess<T> = [Mutex<Option<T>>; 64];

/// The thread, while it lives.
static RUNNING: EachProcess<Running> = [const { Mutex::new(None) }; 64];
/// The thread that has lost its last client and is about to end, and its process.
static ENDING: EachProcess<(Process, JoinHandle<()>)> = [const { Mutex::new(None) }; 64];

/// A process's own.
fn of<T>(each: &EachProcess<T>, process: Process) -> &Mutex<Option<T>> {
    &each[process.number() % each.len()]
}

struct Running {
    /// Threads do not survive a fork: in a child there is none, whatever stands here.
    process: Process,
    thread: JoinHandle<()>,
    inbox: Arc<Inbox>,
    clients: usize,
}

thread_local! {
    /// Whether this is the I/O thread.
    static ON_IO: Cell<bool> = const { Cell::new(false) };
}

type Arrival = Box<dyn FnOnce() + Send>;

/// What the thread is to begin.
#[derive(Default)]
struct Inbox {
    arrivals: Mutex<Vec<Arrival>>,
    stop: Mutex<bool>,
    wake: Wake,
}

/// Brings a machine to the I/O thread, which is started if there is none.
///
/// `build` makes the machine there, with numbers for its jitter. `wake` gives it a turn; `events` is
/// where its connections tell theirs.
pub(crate) fn start<M, F>(
    config: &CommonConfig,
    wake: Arc<Wake>,
    events: &Arc<Feed>,
    build: F,
) -> Result<ClientHandle, Error>
where
    M: Machine + 'static,
    F: FnOnce(&mut Random) -> M + Send + 'static,
{
    #[cfg(feature = "sim")]
    if super::sim::is_on() {
        return start_here(config, wake, events, build);
    }
    let sizes = config.socket_bytes;
    start_over(config, (wake, events), move || Box::new(Tcp::new(sizes)), build)
}

/// The same on this thread, which a simulator drives.
#[cfg(feature = "sim")]
fn start_here<M, F>(
    config: &CommonConfig,
    wake: Arc<Wake>,
    events: &Arc<Feed>,
    build: F,
) -> Result<ClientHandle, Error>
where
    M: Machine + 'static,
    F: FnOnce(&mut Random) -> M + Send + 'static,
{
    let handle = ClientHandle::new(events);
    let vitals = Arc::clone(&handle.vitals);
    let done = Arc::clone(&handle.done);
    let random = Random::new(seed()?);
    let client = live(config.clone(), super::sim::transport(), wake, build, random, vitals);
    tokio::task::spawn_local(async move {
        client.await;
        done.set();
    });
    Ok(handle)
}

/// A client's life. Two tasks, so that a panic of the inner one is counted out like an end.
async fn live<M: Machine + 'static>(
    config: CommonConfig,
    transport: Box<dyn Transport>,
    wake: Arc<Wake>,
    build: impl FnOnce(&mut Random) -> M + 'static,
    mut random: Random,
    vitals: Arc<Vitals>,
) {
    let seen = Arc::clone(&vitals);
    let over = tokio::task::spawn_local(async move {
        let machine = build(&mut random);
        let machine = Box::new(machine);
        Client::new(config, transport, wake, machine, random, vitals).run().await;
    })
    .await;
    if over.is_err() {
        tracing::error!("a client's task panicked");
    }
    seen.note_closed();
}

/// The same over another transport.
pub(crate) fn start_over<M, F, T>(
    config: &CommonConfig,
    (wake, events): (Arc<Wake>, &Arc<Feed>),
    transport: T,
    build: F,
) -> Result<ClientHandle, Error>
where
    M: Machine + 'static,
    F: FnOnce(&mut Random) -> M + Send + 'static,
    T: FnOnce() -> Box<dyn Transport> + Send + 'static,
{
    let handle = ClientHandle::new(events);
    let vitals = Arc::clone(&handle.vitals);
    let done = Arc::clone(&handle.done);
    let config = config.clone();
    let random = Random::new(seed()?);
    enter(Box::new(move || {
        tokio::task::spawn_local(async move {
            live(config, transport(), wake, build, random, vitals).await;
            leave();
            done.set();
        });
    }))?;
    Ok(handle)
}

/// Refuses calls that wait on the clients' own thread: what they wait for would never come.
pub(crate) fn check_may_wait() -> Result<(), Error> {
    if ON_IO.get() {
        let text = "a call that waits was made on the client's own thread, which must not be kept";
        return Err(Error::new(ErrorKind::InvalidState, text)
            .with_hint("do no more in a callback than to wake a thread of the program's"));
    }
    Ok(())
}

/// A number that no other client of any process begins with.
pub(crate) fn seed() -> Result<u64, Error> {
    #[cfg(feature = "sim")]
    if let Some(seed) = super::sim::seed() {
        return Ok(seed);
    }
    getrandom::u64().map_err(|error| {
        Error::new(ErrorKind::Internal, "the system gives no random numbers").with_source(error)
    })
}

/// Hands something to the thread.
fn enter(arrival: Arrival) -> Result<(), Error> {
    let mut running = lock(of(&RUNNING, Process::current()));
    if running.as_ref().is_some_and(|running| !running.process.is_current()) {
        // Left as it is: what it holds is the parent's, and may be locked for ever.
        std::mem::forget(running.take());
    }
    let thread = match &mut *running {
        Some(thread) => thread,
        none => none.insert(spawn()?),
    };
    thread.clients += 1;
    lock(&thread.inbox.arrivals).push(arrival);
    let inbox = Arc::clone(&thread.inbox);
    drop(running);
    inbox.wake.wake();
    Ok(())
}

/// Counts a client out; the last one ends the thread.
fn leave() {
    let mut running = lock(of(&RUNNING, Process::current()));
    let Some(thread) = &mut *running else { return };
    thread.clients -= 1;
    if thread.clients > 0 {
        return;
    }
    let ended = running.take();
    drop(running);
    if let Some(Running { process, thread, inbox, .. }) = ended {
        *lock(of(&ENDING, process)) = Some((process, thread));
        *lock(&inbox.stop) = true;
        inbox.wake.wake();
    }
}

/// Waits for a thread that is about to end, unless this is it.
fn join_ending() {
    let Some((process, thread)) = lock(of(&ENDING, Process::current())).take() else { return };
    if !process.is_current() {
        std::mem::forget(thread);
    } else if thread.thread().id() != thread::current().id() && thread.join().is_err() {
        tracing::error!("the client's thread panicked");
    }
}

fn spawn() -> Result<Running, Error> {
    let fault = |error: std::io::Error| {
        Error::new(ErrorKind::Internal, "the client's thread cannot be started").with_source(error)
    };
    let runtime = Builder::new_current_thread()
        .enable_io()
        .enable_time()
        .thread_name("ottla-work")
        .thread_stack_size(STACK_BYTES)
        .thread_keep_alive(WORKER_IDLE)
        .max_blocking_threads(long::threads_max())
        .build()
        .map_err(fault)?;
    let inbox = Arc::<Inbox>::default();
    let own = Arc::clone(&inbox);
    // Also those that it starts itself, for long work, have no signals of the program's.
    let blocked = Blocked::all().map_err(fault)?;
    let thread = thread::Builder::new()
        .name(THREAD_NAME.to_owned())
        .stack_size(STACK_BYTES)
        .spawn(move || serve(runtime, &own))
        .map_err(fault)?;
    drop(blocked);
    Ok(Running { process: Process::current(), thread, inbox, clients: 0 })
}

/// The thread's body: begins what arrives, until the last client is gone.
fn serve(runtime: Runtime, inbox: &Inbox) {
    ON_IO.set(true);
    let local = LocalSet::new();
    local.block_on(
        &runtime,
        poll_fn(|cx| {
            loop {
                inbox.wake.begin();
                let arrivals = std::mem::take(&mut *lock(&inbox.arrivals));
                for arrive in arrivals {
                    arrive();
                }
                if *lock(&inbox.stop) {
                    return Poll::Ready(());
                }
                if inbox.wake.park(cx.waker(), false) {
                    return Poll::Pending;
                }
            }
        }),
    );
    drop(local);
    runtime.shutdown_timeout(WORKER_PATIENCE);
}

/// Tells when a client has ended.
#[derive(Clone)]
pub(crate) struct ClientHandle {
    done: Arc<Done>,
    vitals: Arc<Vitals>,
}

#[derive(Default)]
struct Done {
    state: Mutex<DoneState>,
    changed: Condvar,
}

#[derive(Default)]
struct DoneState {
    done: bool,
    tasks: Vec<Waker>,
}

impl Done {
    fn set(&self) {
        let tasks = {
            let mut state = lock(&self.state);
            state.done = true;
            std::mem::take(&mut state.tasks)
        };
        self.changed.notify_all();
        tasks.into_iter().for_each(Waker::wake);
    }
}

impl ClientHandle {
    /// What is told of its connections.
    pub(crate) fn vitals(&self) -> Arc<Vitals> {
        Arc::clone(&self.vitals)
    }

    fn new(events: &Arc<Feed>) -> Self {
        Self { done: Arc::default(), vitals: Arc::new(Vitals::new(events)) }
    }

    /// How the client fares, as far as its connections tell.
    pub(crate) fn health(&self) -> Health {
        self.vitals.read(clock::now())
    }

    /// Milliseconds for which brokers wanted to be left alone (KIP-219).
    pub(crate) fn throttled_ms(&self) -> u64 {
        self.vitals.throttled_ms()
    }

    /// Bytes of buffers that large answers lie in, as long as anybody holds any of them.
    pub(crate) fn answer_bytes(&self) -> usize {
        self.vitals.answers().load(Ordering::Relaxed)
    }

    /// Waits until the client's machine has ended, which it must have been told; whether it has.
    ///
    /// After the last client of the process its thread is gone too.
    ///
    /// On that thread itself it does not wait.
    pub(crate) fn wait_ended(&self, timeout: Duration) -> bool {
        let timeout = if ON_IO.get() { Duration::ZERO } else { timeout };
        let state = lock(&self.done.state);
        let (state, _) = self
            .done
            .changed
            .wait_timeout_while(state, timeout, |state| !state.done)
            .unwrap_or_else(PoisonError::into_inner);
        let done = state.done;
        drop(state);
        if done {
            join_ending();
        }
        done
    }

    /// The same for a task.
    pub(crate) fn poll_ended(&self, waker: &Waker) -> Poll<()> {
        let mut state = lock(&self.done.state);
        if state.done {
            return Poll::Ready(());
        }
        if !state.tasks.iter().any(|task| task.will_wake(waker)) {
            state.tasks.push(waker.clone());
        }
        Poll::Pending
    }
}

impl fmt::Debug for ClientHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClientHandle")
            .field("ended", &lock(&self.done.state).done)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_child_of_a_fork_does_not_wait_for_what_its_parent_has_locked() {
        let (parent, child) = (Process::current(), Process::another());
        let parents = lock(of(&ENDING, parent));
        drop(of(&ENDING, child).try_lock().expect("its own is free"));
        drop(parents);
    }
}
