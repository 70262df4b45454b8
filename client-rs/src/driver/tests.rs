//! Clients on the I/O thread: turns, jobs, panics, ends.

use std::collections::VecDeque;
use std::fs;
use std::io;
use std::ops::RangeInclusive;
use std::path::Path;
use std::pin::Pin;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context as TaskContext, Poll};
use std::time::{Duration, Instant};

use async_trait::async_trait;
use bytes::Bytes;
use ottla_protocol::frame::{RequestHeader, encode_response, split_frame};
use ottla_protocol::messages::api_versions_response::{ApiVersion, ApiVersionsResponse};
use ottla_protocol::messages::produce_request::{
    PartitionProduceData, ProduceRequest, TopicProduceData,
};
use ottla_protocol::messages::produce_response::ProduceResponse;
use ottla_protocol::{ApiKey, EncodeError, Reader, Records, Writer};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::clock;
use super::io_thread::start_over;
use super::start;
use super::transport::{Stream, Transport};
use crate::config::{Address, CommonConfig, Options};
use crate::error::{Error, ErrorKind};
use crate::state::guard::lock;
use crate::state::machine::{
    Body, Context, Frame, JobResult, Lane, Machine, Next, Reply, Request, Target,
};
use crate::state::parker::{Parker, Signal, Sleeper};
use crate::state::wake::Wake;

const LIMIT: Duration = Duration::from_mins(1);

/// What a test and its machine tell each other.
#[derive(Default)]
struct Shared {
    wake: Arc<Wake>,
    orders: Mutex<Vec<Order>>,
    turns: AtomicU32,
    jobs: Mutex<Vec<Option<u32>>>,
    failed: Mutex<Option<Error>>,
    told: Signal,
}

#[derive(Debug, Clone, Copy)]
enum Order {
    Panic,
    Work(u32),
    WorkThatPanics,
    End,
}

struct Obedient(Arc<Shared>);

impl Machine for Obedient {
    fn turn(&mut self, cx: &mut Context<'_>) -> Next {
        self.0.turns.fetch_add(1, Ordering::SeqCst);
        let orders = std::mem::take(&mut *lock(&self.0.orders));
        for order in orders {
            match order {
                Order::Panic => panic!("as it was told"),
                Order::Work(number) => cx.run(1, move || Box::new(number * 2)),
                Order::WorkThatPanics => cx.run(2, || panic!("as it was told")),
                Order::End => return Next::Ended,
            }
        }
        Next::Wait
    }

    fn handle_response(&mut self, _: u64, _: Reply, _: &mut Context<'_>) {}

    fn handle_job(&mut self, _: u64, result: Option<JobResult>, _: &mut Context<'_>) {
        let number = result.map(|result| *result.downcast::<u32>().expect("a number"));
        lock(&self.0.jobs).push(number);
        self.0.told.set();
    }

    fn fail(&mut self, error: &Error) {
        *lock(&self.0.failed) = Some(error.clone());
        self.0.told.set();
    }
}

fn client() -> (Arc<Shared>, super::ClientHandle) {
    let options = Options::new().set("bootstrap.servers", "127.0.0.1:1").unwrap();
    let config = CommonConfig::new(&options, false).unwrap();
    let shared = Arc::<Shared>::default();
    let own = Arc::clone(&shared);
    let wake = Arc::clone(&shared.wake);
    let handle = start(&config, wake, &Arc::default(), move |_| Obedient(own)).unwrap();
    (shared, handle)
}

impl Shared {
    fn order(&self, order: Order) {
        lock(&self.orders).push(order);
        self.wake.wake();
    }

    fn wait_told(&self) {
        let parker = Parker::current();
        while !self.told.watch(Sleeper::Thread(Arc::clone(&parker))) {
            assert!(parker.park(LIMIT), "nothing is told");
        }
    }
}

#[test]
fn a_panic_ends_its_client_alone_and_tells_those_who_wait() {
    let (victim, victim_handle) = client();
    let (other, other_handle) = client();
    victim.order(Order::Panic);
    victim.wait_told();
    let error = lock(&victim.failed).clone().expect("it is told");
    assert_eq!(error.kind(), ErrorKind::Internal);
    assert!(victim_handle.wait_ended(LIMIT));
    let turns = other.turns.load(Ordering::SeqCst);
    other.order(Order::Work(21));
    other.wait_told();
    assert_eq!(*lock(&other.jobs), [Some(42)]);
    assert!(other.turns.load(Ordering::SeqCst) > turns);
    other.order(Order::End);
    assert!(other_handle.wait_ended(LIMIT));
}

#[test]
fn work_that_panics_comes_back_without_a_result() {
    let (shared, handle) = client();
    shared.order(Order::WorkThatPanics);
    shared.wait_told();
    assert_eq!(*lock(&shared.jobs), [None]);
    assert!(lock(&shared.failed).is_none(), "the client lives");
    shared.order(Order::End);
    assert!(handle.wait_ended(LIMIT));
}

#[test]
fn clients_come_and_go() {
    for _ in 0..20 {
        let clients: Vec<_> = (0..3).map(|_| client()).collect();
        for (shared, handle) in clients {
            assert!(!handle.wait_ended(Duration::ZERO));
            shared.order(Order::End);
            assert!(handle.wait_ended(LIMIT));
            assert!(handle.wait_ended(LIMIT), "asked again");
        }
    }
}

/// Which signals a thread of this process has blocked, one bit each from signal 1 on.
fn blocked_signals(task: &Path) -> Option<u64> {
    let status = fs::read_to_string(task.join("status")).ok()?;
    let mask = status.lines().find_map(|line| line.strip_prefix("SigBlk:"))?;
    u64::from_str_radix(mask.trim(), 16).ok()
}

#[test]
fn signals_of_the_program_are_left_to_its_own_threads() {
    let own = Path::new("/proc/thread-self");
    let before = blocked_signals(own).unwrap();
    let (shared, handle) = client();
    // A thread for long work is started by the clients' thread.
    shared.order(Order::Work(21));
    shared.wait_told();
    assert_eq!(blocked_signals(own), Some(before), "the program's thread is as it was");
    let tasks: Vec<_> = fs::read_dir("/proc/self/task").unwrap().map(Result::unwrap).collect();
    for name in ["ottla-io", "ottla-work"] {
        let named = tasks.iter().filter(|task| {
            // Threads of other tests may end meanwhile.
            fs::read_to_string(task.path().join("comm")).is_ok_and(|comm| comm.trim() == name)
        });
        let masks: Vec<u64> = named.filter_map(|task| blocked_signals(&task.path())).collect();
        assert!(!masks.is_empty(), "no thread is called {name}");
        for mask in masks {
            let handled = [libc::SIGHUP, libc::SIGINT, libc::SIGQUIT, libc::SIGUSR1, libc::SIGALRM]
                .into_iter()
                .chain([libc::SIGTERM, libc::SIGCHLD, libc::SIGWINCH, libc::SIGUSR2]);
            for signal in handled {
                assert_ne!(mask & 1 << (signal - 1), 0, "{name} takes signal {signal}: {mask:x}");
            }
            for fault in [libc::SIGSEGV, libc::SIGABRT, libc::SIGPROF] {
                assert_eq!(mask & 1 << (fault - 1), 0, "{name} hides signal {fault}: {mask:x}");
            }
        }
    }
    shared.order(Order::End);
    assert!(handle.wait_ended(LIMIT));
}

/// A stream that answers all it is given at once, but takes nothing the first time it is asked to
/// take a large frame.
#[derive(Debug, Default)]
struct Eager {
    input: Vec<u8>,
    output: VecDeque<u8>,
    refused: bool,
}

impl AsyncWrite for Eager {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut TaskContext<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        if bytes.len() > MIB / 2 && !self.refused {
            self.refused = true;
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        self.input.extend_from_slice(bytes);
        self.answer();
        Poll::Ready(Ok(bytes.len()))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut TaskContext<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut TaskContext<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

impl AsyncRead for Eager {
    fn poll_read(
        mut self: Pin<&mut Self>,
        _: &mut TaskContext<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.output.is_empty() {
            // Answers come only for what is written, in a later poll of the same task.
            return Poll::Pending;
        }
        let count = buffer.remaining().min(self.output.len());
        let bytes: Vec<u8> = self.output.drain(..count).collect();
        buffer.put_slice(&bytes);
        Poll::Ready(Ok(()))
    }
}

impl Eager {
    fn answer(&mut self) {
        while let Ok(Some((frame, rest))) = split_frame(&self.input, 10 * MIB) {
            let head = RequestHeader::decode(&mut Reader::new(frame)).unwrap();
            let mut writer = Writer::new();
            let (version, id) = (head.api_version, head.correlation_id);
            if head.api_key == i16::from(ApiKey::ApiVersions) {
                let produce = ApiVersion { api_key: 0, min_version: 3, max_version: 13 };
                let rest = ApiVersionsResponse::default();
                let response = ApiVersionsResponse { api_keys: vec![produce], ..rest };
                encode_response(version, id, &response, &mut writer).unwrap();
            } else {
                encode_response(version, id, &ProduceResponse::default(), &mut writer).unwrap();
            }
            self.output.extend(writer.bytes());
            self.input = rest.to_vec();
        }
    }
}

#[derive(Debug)]
struct EagerTransport;

#[async_trait(?Send)]
impl Transport for EagerTransport {
    async fn connect(&self, _: &Address, _: bool, _: Duration) -> Result<Box<dyn Stream>, Error> {
        Ok(Box::new(Eager::default()))
    }
}

const MIB: usize = 1024 * 1024;

/// A request of a mebibyte.
#[derive(Debug)]
struct Large(Bytes);

impl Body for Large {
    fn key(&self) -> ApiKey {
        ApiKey::Produce
    }

    fn versions(&self) -> RangeInclusive<i16> {
        9..=9
    }

    fn encode(&self, frame: &mut Frame<'_>) -> Result<(), EncodeError> {
        let records = Records::Detached(self.0.len());
        let partition_data = vec![PartitionProduceData { index: 0, records }];
        let topic = TopicProduceData { name: "t", partition_data, ..TopicProduceData::default() };
        frame.put(&ProduceRequest { topic_data: vec![topic], ..ProduceRequest::default() })
    }

    fn detached(&self, _: usize) -> &[Bytes] {
        std::slice::from_ref(&self.0)
    }
}

/// Asks many large questions at once, and ends when all are answered.
struct Inquisitive {
    asked: bool,
    open: usize,
}

impl Machine for Inquisitive {
    fn turn(&mut self, cx: &mut Context<'_>) -> Next {
        if !self.asked {
            self.asked = true;
            for token in 0..20 {
                let body = Box::new(Large(Bytes::from(vec![0; MIB])));
                let timeout = LIMIT * 2;
                let (to, lane) = (Target::Any, Lane::Produce);
                cx.send(Request { to, lane, token, timeout, body });
                self.open += 1;
            }
        }
        if self.open == 0 { Next::Ended } else { Next::Wait }
    }

    fn handle_response(&mut self, _: u64, reply: Reply, _: &mut Context<'_>) {
        reply.expect("an answer");
        self.open -= 1;
    }

    fn fail(&mut self, _: &Error) {}
}

#[test]
fn requests_that_waited_for_room_go_out_when_all_before_them_are_answered_at_once() {
    let options = Options::new().set("bootstrap.servers", "127.0.0.1:1").unwrap();
    let config = CommonConfig::new(&options, false).unwrap();
    let machine = |_: &mut _| Inquisitive { asked: false, open: 0 };
    let transport = || -> Box<dyn Transport> { Box::new(EagerTransport) };
    let handle =
        start_over(&config, (Arc::default(), &Arc::default()), transport, machine).unwrap();
    assert!(handle.wait_ended(LIMIT), "a request was left behind");
}

/// How long each attempt to connect may take, and when it began.
type Attempts = Arc<Mutex<Vec<(Duration, Instant)>>>;

/// Connects to nobody.
#[derive(Debug)]
struct Refusing(Attempts);

#[async_trait(?Send)]
impl Transport for Refusing {
    async fn connect(
        &self,
        _: &Address,
        _: bool,
        wait: Duration,
    ) -> Result<Box<dyn Stream>, Error> {
        lock(&self.0).push((wait, clock::now()));
        Err(Error::new(ErrorKind::Connect, "nobody is there"))
    }
}

/// Asks again whenever an attempt failed, and ends after so many.
struct Insistent {
    left: u64,
    asked: bool,
}

impl Machine for Insistent {
    fn turn(&mut self, cx: &mut Context<'_>) -> Next {
        if self.left == 0 {
            return Next::Ended;
        }
        if !std::mem::replace(&mut self.asked, true) {
            let body = Box::new(Large(Bytes::new()));
            let (to, lane, token) = (Target::Any, Lane::Produce, self.left);
            cx.send(Request { to, lane, token, timeout: LIMIT, body });
        }
        Next::Wait
    }

    fn handle_response(&mut self, _: u64, _: Reply, _: &mut Context<'_>) {
        self.left -= 1;
        self.asked = false;
    }

    fn fail(&mut self, _: &Error) {}
}

fn config(pairs: &str) -> CommonConfig {
    let options = format!("bootstrap.servers=127.0.0.1:1;{pairs}");
    CommonConfig::new(&Options::parse(&options).unwrap(), false).unwrap()
}

#[test]
fn who_cannot_be_reached_is_given_more_time_and_left_alone_longer_each_time_up_to_a_limit() {
    let config = config(
        "socket.connection.setup.timeout.ms=1000;socket.connection.setup.timeout.max.ms=3000;\
         reconnect.backoff.ms=20;reconnect.backoff.max.ms=60",
    );
    let attempts = Attempts::default();
    let own = Arc::clone(&attempts);
    let transport = move || -> Box<dyn Transport> { Box::new(Refusing(own)) };
    let machine = |_: &mut _| Insistent { left: 5, asked: false };
    let handle =
        start_over(&config, (Arc::default(), &Arc::default()), transport, machine).unwrap();
    assert!(handle.wait_ended(LIMIT));
    let attempts = lock(&attempts).clone();
    assert_eq!(attempts.len(), 5);
    // A fifth off or on, and never sooner.
    for ((wait, _), whole) in attempts.iter().zip([1000, 2000, 3000, 3000, 3000]) {
        let wait = wait.as_millis();
        assert!((whole * 8 / 10..=whole * 12 / 10).contains(&wait), "{wait} ms, not {whole}");
    }
    for (two, whole) in attempts.windows(2).zip([20, 40, 60, 60]) {
        let pause = two[1].1 - two[0].1;
        assert!(pause >= Duration::from_millis(whole * 8 / 10), "{pause:?} of {whole} ms");
    }
    let health = handle.health();
    assert_eq!((health.connects, health.connect_failures), (0, 5));
}

/// An [`Eager`] stream that tells when it is closed.
#[derive(Debug)]
struct Told(Eager, Arc<Signal>);

impl Drop for Told {
    fn drop(&mut self) {
        self.1.set();
    }
}

impl AsyncWrite for Told {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut TaskContext<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.0).poll_write(cx, bytes)
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut TaskContext<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut TaskContext<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

impl AsyncRead for Told {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut TaskContext<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_read(cx, buffer)
    }
}

#[derive(Debug)]
struct TellingTransport(Arc<Signal>);

#[async_trait(?Send)]
impl Transport for TellingTransport {
    async fn connect(&self, _: &Address, _: bool, _: Duration) -> Result<Box<dyn Stream>, Error> {
        Ok(Box::new(Told(Eager::default(), Arc::clone(&self.0))))
    }
}

/// Asks once, and rests.
struct Resting {
    asked: bool,
}

impl Machine for Resting {
    fn turn(&mut self, cx: &mut Context<'_>) -> Next {
        if !std::mem::replace(&mut self.asked, true) {
            let body = Box::new(Large(Bytes::new()));
            let (to, lane) = (Target::Any, Lane::Produce);
            cx.send(Request { to, lane, token: 1, timeout: LIMIT, body });
        }
        Next::Wait
    }

    fn handle_response(&mut self, _: u64, reply: Reply, _: &mut Context<'_>) {
        reply.expect("an answer");
    }

    fn fail(&mut self, _: &Error) {}
}

#[test]
fn a_connection_that_is_not_used_for_its_time_is_closed_and_that_is_no_fault() {
    let closed = Arc::<Signal>::default();
    let own = Arc::clone(&closed);
    let transport = move || -> Box<dyn Transport> { Box::new(TellingTransport(own)) };
    let machine = |_: &mut _| Resting { asked: false };
    let own = (Arc::default(), &Arc::default());
    let config = config("connections.max.idle.ms=300");
    let began = clock::now();
    let handle = start_over(&config, own, transport, machine).unwrap();
    let parker = Parker::current();
    while !closed.watch(Sleeper::Thread(Arc::clone(&parker))) {
        assert!(parker.park(LIMIT), "it is never closed");
    }
    assert!(clock::now() - began >= Duration::from_millis(300), "it was closed too soon");
    let health = handle.health();
    assert_eq!((health.connects, health.disconnects), (1, 0));
    assert!(health.last_error.is_none(), "{:?}", health.last_error);
}
