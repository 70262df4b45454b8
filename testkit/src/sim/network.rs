//! Connections: bytes on their way between a client and the broker, and what happens to them.

use std::cell::{OnceCell, RefCell};
use std::collections::VecDeque;
use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use bytes::{Buf, BytesMut};
use ottla::sim::{Connecting, SimNetwork, SimStream};
use ottla_broker::sim::SimLink;
use ottla_protocol::ApiKey;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::task::AbortHandle;

use super::answers::Asked;
use super::clock;
use super::tap::{self, Said, Written};
use super::world::World;

/// Bytes of whole requests that a connection takes before any arrives.
const WINDOW: usize = 64 * 1024;

/// The network of a world.
pub(crate) struct Network(pub(crate) Rc<World>);

impl SimNetwork for Network {
    fn connect(&self, _host: &str, _port: u16, wait: Duration) -> Connecting {
        let world = Rc::clone(&self.0);
        Box::pin(async move {
            let opened = clock::within(wait, open(&world)).await;
            opened.unwrap_or_else(|| Err(io::ErrorKind::TimedOut.into()))
        })
    }
}

async fn open(world: &Rc<World>) -> io::Result<Box<dyn SimStream>> {
    world.travel(true, None).await;
    let Some((id, link)) = world.accept() else {
        world.sometimes("a connection is refused");
        return Err(io::ErrorKind::ConnectionRefused.into());
    };
    world.event("connects", id, &[]);
    let conn = Conn::begin(world, id, link);
    Ok(Box::new(End { conn, world: Rc::clone(world) }))
}

/// A connection between a client and the broker.
pub(crate) struct Conn {
    id: u64,
    /// As its first request names it.
    client: OnceCell<Rc<str>>,
    state: RefCell<State>,
    /// What is to come back, in order.
    expected: RefCell<VecDeque<Expected>>,
    /// The tasks that carry.
    carriers: RefCell<Vec<AbortHandle>>,
}

#[derive(Default)]
struct State {
    /// What the client has written and that is no whole request yet.
    partial: BytesMut,
    /// Takes whole requests on their way.
    requests: Option<UnboundedSender<Written>>,
    /// Bytes written that have not arrived.
    underway: usize,
    /// What has arrived at the client.
    arrived: BytesMut,
    ended: Option<io::ErrorKind>,
    /// The client has closed its end.
    closed: bool,
    reader: Option<Waker>,
    writer: Option<Waker>,
    awaiting: Option<Waker>,
}

/// An answer that is to come.
enum Expected {
    /// The broker's own, and to what.
    Own(Asked, Option<Said>),
    /// The broker's own, with errors in it.
    Altered(Asked),
    /// An error in the place of the broker's own.
    Replaced(Asked, Option<Said>, Vec<u8>),
    /// An error, of a request that has not come to the broker.
    Made(Vec<u8>),
}

impl Conn {
    fn begin(world: &Rc<World>, id: u64, link: SimLink) -> Rc<Self> {
        let SimLink { requests: to_broker, answers } = link;
        let (requests, underway) = unbounded_channel();
        let state = RefCell::new(State { requests: Some(requests), ..State::default() });
        let (expected, carriers) = (RefCell::default(), RefCell::default());
        let client = OnceCell::new();
        let conn = Rc::new(Self { id, client, state, expected, carriers });
        let there = carry_requests(Rc::clone(world), Rc::clone(&conn), underway, to_broker);
        let back = carry_answers(Rc::clone(world), Rc::clone(&conn), answers);
        let there = tokio::task::spawn_local(there).abort_handle();
        let back = tokio::task::spawn_local(back).abort_handle();
        *conn.carriers.borrow_mut() = vec![there, back];
        world.conns.borrow_mut().insert(id, Rc::clone(&conn));
        conn
    }

    /// Breaks it; what is on its way is lost.
    pub(crate) fn reset(&self, world: &World) {
        world.event("breaks", self.id, &[]);
        world.flights.lose(world, self.id);
        self.carriers.borrow().iter().for_each(AbortHandle::abort);
        world.conns.borrow_mut().remove(&self.id);
        self.end(io::ErrorKind::ConnectionReset);
    }

    /// Whose it is, once that is known.
    pub(crate) fn client(&self) -> Option<Rc<str>> {
        self.client.get().cloned()
    }

    fn name(&self) -> Option<&str> {
        self.client.get().map(AsRef::as_ref)
    }

    /// Breaks it as the client sees it; what is on its way to the broker arrives there.
    pub(crate) fn reset_at_client(&self) {
        self.end(io::ErrorKind::ConnectionReset);
        self.state.borrow_mut().requests = None;
    }

    fn end(&self, kind: io::ErrorKind) {
        let mut state = self.state.borrow_mut();
        state.ended = Some(kind);
        let wakers = [state.reader.take(), state.writer.take()];
        drop(state);
        wakers.into_iter().flatten().for_each(Waker::wake);
    }

    fn expect(&self, answer: Expected) {
        self.expected.borrow_mut().push_back(answer);
        let waker = self.state.borrow_mut().awaiting.take();
        waker.into_iter().for_each(Waker::wake);
    }

    /// A request has arrived.
    fn arrive(&self, bytes: usize) {
        let mut state = self.state.borrow_mut();
        state.underway = state.underway.saturating_sub(bytes);
        let waker = state.writer.take();
        drop(state);
        waker.into_iter().for_each(Waker::wake);
    }

    /// Bytes of an answer have arrived.
    fn give(&self, bytes: &[u8]) {
        let mut state = self.state.borrow_mut();
        if state.ended.is_some() || state.closed {
            return;
        }
        state.arrived.extend_from_slice(bytes);
        let waker = state.reader.take();
        drop(state);
        waker.into_iter().for_each(Waker::wake);
    }
}

/// Carries requests to the broker, until there are no more.
async fn carry_requests(
    world: Rc<World>,
    conn: Rc<Conn>,
    mut underway: UnboundedReceiver<Written>,
    to_broker: UnboundedSender<BytesMut>,
) {
    while let Some(written) = underway.recv().await {
        world.travel(true, conn.name()).await;
        if conn.state.borrow().closed {
            world.sometimes("a request arrives after its client has given up");
            // No client can keep a commit from being undone by one that it gave up: there is an end
            // to that when the world has healed.
            if world.is_healed() && written.said.as_ref().is_some_and(Said::commits) {
                return conn.reset(&world);
            }
        }
        let mishaps = world.weather.get().mishaps;
        if world.happens(mishaps / 2) {
            world.fault("a connection breaks before a request arrives", conn.id);
            return conn.reset(&world);
        }
        conn.arrive(written.frame.len());
        let Some((expected, written)) = take_in(&world, &conn, written) else { continue };
        if let Some(expected) = expected {
            conn.expect(expected);
        }
        let Written { frame, asked, client, said } = written;
        if let (Some(client), Some(said)) = (&client, &said)
            && let Some(group) = world.group(&said.group)
        {
            group.arrives(&world, client, said);
        }
        world.event(asked.api.name(), conn.id, &frame);
        if to_broker.send(frame).is_err() {
            return;
        }
    }
}

/// What is to come back for a request that has arrived; none if it does not come to the broker.
fn take_in(world: &World, conn: &Conn, written: Written) -> Option<(Option<Expected>, Written)> {
    let Written { asked, .. } = written;
    let own =
        |written: &Written| asked.is_answered.then(|| Expected::Own(asked, written.said.clone()));
    if !world.happens(world.weather.get().errors) {
        return Some((own(&written), written));
    }
    let refused = asked.refused(&written.frame, &mut world.dice.borrow_mut());
    let done = world.dice.borrow_mut().flip();
    match refused {
        _ if done && asked.can_be_altered() => {
            world.fault("errors in the answer to what was done", conn.id);
            Some((Some(Expected::Altered(asked)), written))
        }
        None => Some((own(&written), written)),
        Some((code, bytes)) => {
            world.trace.borrow_mut().error(asked.api, code);
            if done {
                world.fault("errors in the answer to what was done", conn.id);
                let said = written.said.clone();
                return Some((Some(Expected::Replaced(asked, said, bytes)), written));
            }
            world.fault("an error, and nothing is done", conn.id);
            conn.expect(Expected::Made(bytes));
            None
        }
    }
}

/// Carries answers to the client, until the broker closes its end.
async fn carry_answers(world: Rc<World>, conn: Rc<Conn>, mut answers: UnboundedReceiver<Vec<u8>>) {
    let mut early = VecDeque::new();
    loop {
        let Some(expected) = next_expected(&conn, &mut answers, &mut early).await else { break };
        let tells_committed =
            matches!(&expected, Expected::Own(asked, _) if asked.api == ApiKey::OffsetFetch);
        let bytes = match expected {
            Expected::Made(bytes) => bytes,
            own => {
                let given = match early.pop_front() {
                    Some(bytes) => Some(bytes),
                    None => answers.recv().await,
                };
                let Some(given) = given else { break };
                given_back(&world, own, given)
            }
        };
        world.event("answers", conn.id, &bytes);
        if tells_committed && world.happens(world.plan.mishaps * 10) {
            world.fault("what is committed is told late", conn.id);
            let time = world.dice.borrow_mut().millis(100, 3000);
            clock::until((clock::now() + time).min(world.heals_at())).await;
        }
        if !deliver(&world, &conn, &bytes).await {
            return;
        }
    }
    world.event("the broker closes", conn.id, &[]);
    world.conns.borrow_mut().remove(&conn.id);
    world.flights.lose(&world, conn.id);
    conn.end(io::ErrorKind::UnexpectedEof);
}

/// What becomes of the broker's answer.
fn given_back(world: &World, expected: Expected, given: Vec<u8>) -> Vec<u8> {
    match expected {
        Expected::Own(asked, said) => {
            if let Some(said) = said {
                tap::answered(world, &said, asked, &given);
            }
            given
        }
        Expected::Replaced(asked, said, bytes) => {
            if let Some(said) = said {
                tap::answered(world, &said, asked, &given);
            }
            bytes
        }
        Expected::Altered(asked) => {
            let altered = asked.altered(&given, &mut world.dice.borrow_mut());
            let Some((code, bytes)) = altered else { return given };
            if let Some(code) = code {
                world.trace.borrow_mut().error(asked.api, code);
            }
            bytes
        }
        Expected::Made(bytes) => bytes,
    }
}

/// The next answer to come; `None` if the broker has closed.
async fn next_expected(
    conn: &Conn,
    answers: &mut UnboundedReceiver<Vec<u8>>,
    early: &mut VecDeque<Vec<u8>>,
) -> Option<Expected> {
    poll_fn(|cx| {
        if let Some(expected) = conn.expected.borrow_mut().pop_front() {
            return Poll::Ready(Some(expected));
        }
        conn.state.borrow_mut().awaiting = Some(cx.waker().clone());
        loop {
            match answers.poll_recv(cx) {
                Poll::Ready(Some(bytes)) => early.push_back(bytes),
                Poll::Ready(None) => return Poll::Ready(None),
                Poll::Pending => return Poll::Pending,
            }
        }
    })
    .await
}

/// Brings an answer to the client; whether the connection goes on.
async fn deliver(world: &Rc<World>, conn: &Rc<Conn>, bytes: &[u8]) -> bool {
    world.travel(false, conn.name()).await;
    world.flights.land(world, conn.id, bytes);
    let mishaps = world.weather.get().mishaps;
    let what = if world.happens(mishaps) { world.dice.borrow_mut().between(0, 5) } else { 9 };
    match what {
        0 => {
            world.fault("a connection breaks before an answer arrives", conn.id);
            conn.reset(world);
            return false;
        }
        1 => {
            world.fault("a connection breaks within an answer", conn.id);
            conn.give(bytes.get(..bytes.len() / 2).unwrap_or_default());
            clock::pause(Duration::from_millis(1)).await;
            conn.reset(world);
            return false;
        }
        2 => {
            world.fault("an answer comes twice", conn.id);
            conn.give(bytes);
            conn.give(bytes);
        }
        3 => {
            world.fault("an answer comes late", conn.id);
            let time = world.dice.borrow_mut().millis(500, 15_000);
            clock::until((clock::now() + time).min(world.heals_at())).await;
            conn.give(bytes);
        }
        4 => {
            world.fault("a connection breaks at the client alone", conn.id);
            world.flights.lose(world, conn.id);
            conn.reset_at_client();
        }
        _ => {
            let (first, rest) = bytes.split_at(bytes.len() / 2);
            conn.give(first);
            if world.dice.borrow_mut().per_mille(50) {
                clock::pause(Duration::from_millis(1)).await;
            }
            conn.give(rest);
        }
    }
    true
}

/// The client's end.
struct End {
    conn: Rc<Conn>,
    world: Rc<World>,
}

impl End {
    /// A whole request was written; whether the connection goes on.
    fn write(&self, state: &mut State, frame: BytesMut) -> bool {
        let world = &self.world;
        let written = match tap::read(world, frame, world.next_commit()) {
            Ok(written) => written,
            Err(error) => {
                world.finding(format!("a request cannot be read: {error}"));
                return false;
            }
        };
        if let Some(client) = &written.client {
            if world.is_gone(client) {
                return false;
            }
            if written.asked.api == ApiKey::Produce {
                world.largest.note(&written.frame);
                if written.asked.is_answered {
                    world.flights.take_off(world, self.conn.id, client, &written.frame);
                }
            }
            self.conn.client.get_or_init(|| Rc::clone(client));
            let said = written.said.as_ref();
            if let Some((said, group)) =
                said.and_then(|said| Some((said, world.group(&said.group)?)))
            {
                group.writes(world, client, said);
            }
        }
        state.requests.as_ref().is_none_or(|requests| requests.send(written).is_ok())
    }
}

impl Drop for End {
    fn drop(&mut self) {
        self.world.event("closes", self.conn.id, &[]);
        self.world.flights.lose(&self.world, self.conn.id);
        let mut state = self.conn.state.borrow_mut();
        state.closed = true;
        // What is on its way arrives, and then the end of it.
        state.requests = None;
    }
}

impl AsyncRead for End {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let mut state = self.conn.state.borrow_mut();
        if !state.arrived.is_empty() && state.ended != Some(io::ErrorKind::ConnectionReset) {
            let count = into.remaining().min(state.arrived.len());
            into.put_slice(state.arrived.get(..count).unwrap_or_default());
            state.arrived.advance(count);
            return Poll::Ready(Ok(()));
        }
        match state.ended {
            Some(io::ErrorKind::UnexpectedEof) => Poll::Ready(Ok(())),
            Some(kind) => Poll::Ready(Err(kind.into())),
            None => {
                state.reader = Some(cx.waker().clone());
                Poll::Pending
            }
        }
    }
}

impl AsyncWrite for End {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let world = &self.world;
        let mut state = self.conn.state.borrow_mut();
        if state.ended.is_some() {
            return Poll::Ready(Err(io::ErrorKind::BrokenPipe.into()));
        }
        if state.underway.saturating_sub(state.partial.len()) >= WINDOW {
            world.sometimes("a write waits for room");
            state.writer = Some(cx.waker().clone());
            return Poll::Pending;
        }
        let count = if world.happens(100) { bytes.len().div_ceil(2) } else { bytes.len() };
        state.underway += count;
        state.partial.extend_from_slice(bytes.get(..count).unwrap_or_default());
        while let Some(frame) = take_frame(&mut state.partial) {
            // Its size field arrives with it.
            state.underway = state.underway.saturating_sub(4);
            if !self.write(&mut state, frame) {
                state.ended = Some(io::ErrorKind::ConnectionReset);
            }
        }
        let begun = !state.partial.is_empty();
        drop(state);
        if begun && world.happens(world.weather.get().mishaps) {
            world.fault("a connection breaks within a request", self.conn.id);
            self.conn.reset(world);
        }
        Poll::Ready(Ok(count))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

/// A whole request, without its size field.
fn take_frame(bytes: &mut BytesMut) -> Option<BytesMut> {
    let size = i32::from_be_bytes(*bytes.first_chunk::<4>()?);
    let size = usize::try_from(size).ok()?;
    if bytes.len() < size + 4 {
        return None;
    }
    bytes.advance(4);
    Some(bytes.split_to(size))
}
