//! Clients that find no broker: they wait, and do not spin (tulios/kafkajs#1402). In virtual time,
//! by the number of times that their thread is woken.
#![allow(clippy::disallowed_methods, reason = "the time of a paused runtime is the test's")]
#![allow(clippy::expect_used, reason = "a test that cannot go on ends here")]

use std::cell::{Cell, RefCell};
use std::future::{Future, poll_fn};
use std::io;
use std::pin::pin;
use std::rc::Rc;
use std::time::Duration;

use ottla::sim::{Connecting, SimNetwork, SimStream};
use ottla::{Admin, Consumer, Options, Producer, Record};
use tokio::io::{DuplexStream, duplex};
use tokio::task::LocalSet;
use tokio::time::sleep;

const LONG: Duration = Duration::from_mins(10);
const CLIENTS: u64 = 3;
/// A client waits a second between two attempts, `reconnect.backoff.max.ms`, a fifth more or less;
/// the first ones come sooner, and an admin call that is over is followed by no other.
const ATTEMPTS_MOST: u64 = CLIENTS * (600 * 5 / 4 + 10);
/// What an attempt may cost at most: its begin, its end, the end of its pause, each seen by the
/// connection's task and then by its client's.
const WAKES_AN_ATTEMPT: u64 = 6;
/// What it may cost that the clients' tasks end unfulfilled, at most.
const WAKES_OF_THE_ENDS: u64 = CLIENTS * 10;

#[derive(Debug, Clone, Copy, PartialEq)]
enum Peer {
    Refuses,
    NeverAnswersTheKnock,
    HangsUp,
    SaysNothing,
}

const PEERS: [Peer; 4] =
    [Peer::Refuses, Peer::NeverAnswersTheKnock, Peer::HangsUp, Peer::SaysNothing];

struct Away {
    peer: Peer,
    attempts: Cell<u64>,
    /// Ends of connections on which nothing is said.
    silent: RefCell<Vec<DuplexStream>>,
}

impl SimNetwork for Away {
    fn connect(&self, _host: &str, _port: u16, wait: Duration) -> Connecting {
        self.attempts.set(self.attempts.get() + 1);
        let peer = self.peer;
        let (ours, theirs) = duplex(1 << 16);
        if peer == Peer::SaysNothing {
            self.silent.borrow_mut().push(theirs);
        }
        Box::pin(async move {
            match peer {
                Peer::Refuses => Err(io::ErrorKind::ConnectionRefused.into()),
                Peer::NeverAnswersTheKnock => {
                    sleep(wait).await;
                    Err(io::ErrorKind::TimedOut.into())
                }
                Peer::HangsUp | Peer::SaysNothing => {
                    let stream: Box<dyn SimStream> = Box::new(ours);
                    Ok(stream)
                }
            }
        })
    }
}

fn options(more: &[(&str, &str)]) -> Options {
    let first = Options::new().set("bootstrap.servers", "10.0.0.1:9092").expect("an address");
    more.iter().fold(first, |all, (name, value)| all.set(name, value).expect("an option"))
}

/// For how long the clients want what they cannot have.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Patience {
    TenMinutes,
    /// After it everything they were asked for has failed.
    ASecond,
}

impl Patience {
    const fn producers(self) -> &'static [(&'static str, &'static str)] {
        match self {
            Self::TenMinutes => &[("delivery.timeout.ms", "3600000"), ("max.block.ms", "3600000")],
            Self::ASecond => &[
                ("delivery.timeout.ms", "1000"),
                ("request.timeout.ms", "500"),
                ("max.block.ms", "1000"),
            ],
        }
    }

    const fn members(self) -> &'static [(&'static str, &'static str)] {
        match self {
            Self::TenMinutes => &[("group.id", "g"), ("max.poll.interval.ms", "3600000")],
            Self::ASecond => &[("group.id", "g"), ("max.poll.interval.ms", "1000")],
        }
    }

    const fn calls(self) -> Duration {
        match self {
            Self::TenMinutes => LONG,
            Self::ASecond => Duration::from_secs(1),
        }
    }
}

/// Three clients that want something, ten minutes long.
async fn clients_that_want_something(network: Rc<Away>, patience: Patience) {
    let _clients = ottla::sim::enter(network, 7, 1_700_000_000_000);
    let producer = Producer::new(&options(patience.producers())).expect("a producer");
    let sent = producer.send(&Record::to("orders").value("v")).expect("there is room");
    let consumer = Consumer::new(&options(patience.members())).expect("a consumer");
    consumer.subscribe(&["orders"]).expect("a topic");
    let admin = Admin::new(&options(&[])).expect("an admin client");
    let call = admin.describe_cluster().timeout(patience.calls()).send();
    if patience == Patience::ASecond {
        sent.await.expect_err("nobody is there");
        call.await.expect_err("nobody is there");
        sleep(LONG).await;
    } else {
        sleep(LONG).await;
        drop((call, sent));
    }
}

/// Attempts to connect, and wakes of the thread.
fn ten_minutes(peer: Peer, patience: Patience) -> (u64, u64) {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .expect("a runtime");
    let network = Rc::new(Away { peer, attempts: Cell::new(0), silent: RefCell::default() });
    let local = LocalSet::new();
    let mut story =
        pin!(local.run_until(clients_that_want_something(Rc::clone(&network), patience)));
    let mut wakes = 0;
    runtime.block_on(poll_fn(|cx| {
        wakes += 1;
        // A client that spins lets no time pass, so that the story would not end.
        assert!(wakes < 1_000_000, "{peer:?}: it spins, after {} attempts", network.attempts.get());
        story.as_mut().poll(cx)
    }));
    (network.attempts.get(), wakes)
}

#[test]
fn clients_without_a_broker_sleep_between_their_attempts() {
    for peer in PEERS {
        let (attempts, wakes) = ten_minutes(peer, Patience::TenMinutes);
        println!("{peer:?}: {attempts} attempts, {wakes} wakes");
        assert!(attempts >= CLIENTS * 10, "{peer:?}: {attempts} attempts: they go on asking");
        assert!(attempts <= ATTEMPTS_MOST, "{peer:?}: {attempts} attempts");
        let most = attempts * WAKES_AN_ATTEMPT;
        assert!(wakes <= most, "{peer:?}: {wakes} wakes for {attempts} attempts");
    }
}

#[test]
fn clients_that_found_no_broker_in_time_sleep_afterwards() {
    for peer in PEERS {
        let (attempts, wakes) = ten_minutes(peer, Patience::ASecond);
        println!("{peer:?}: {attempts} attempts, {wakes} wakes");
        assert!(attempts <= ATTEMPTS_MOST, "{peer:?}: {attempts} attempts");
        let most = attempts * WAKES_AN_ATTEMPT + WAKES_OF_THE_ENDS;
        assert!(wakes <= most, "{peer:?}: {wakes} wakes for {attempts} attempts");
    }
}
