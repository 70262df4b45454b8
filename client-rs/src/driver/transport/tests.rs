//! Names whose addresses change, lead nowhere, or cannot be looked up.

#![allow(clippy::disallowed_methods, reason = "tests wait in real time, up to a limit")]

use std::collections::VecDeque;
use std::net::{Ipv4Addr, TcpListener};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::thread;

use rustix::net::sockopt::{socket_recv_buffer_size, socket_send_buffer_size};

use super::super::io_thread::start_over;
use super::*;
use crate::config::{CommonConfig, Options};
use crate::error::ErrorClass;
use crate::state::machine::{Context, Machine, Next, Reply};

const LIMIT: Duration = Duration::from_mins(1);

/// Answers as it was told, the last one ever after; nothing is no name.
#[derive(Debug, Clone, Default)]
struct Scripted {
    answers: Arc<Mutex<VecDeque<Vec<SocketAddr>>>>,
    asked: Arc<AtomicUsize>,
}

#[async_trait(?Send)]
impl Names for Scripted {
    async fn addresses(&self, host: &str, _: u16) -> io::Result<Vec<SocketAddr>> {
        assert_eq!(host, "broker.test");
        self.asked.fetch_add(1, Ordering::SeqCst);
        let mut answers = self.answers.lock().unwrap();
        let answer = if answers.len() > 1 { answers.pop_front() } else { answers.front().cloned() };
        let answer = answer.unwrap();
        if answer.is_empty() { Err(io::Error::other("no such name")) } else { Ok(answer) }
    }
}

fn names(answers: &[&[SocketAddr]]) -> Scripted {
    let names = Scripted::default();
    names.answers.lock().unwrap().extend(answers.iter().map(|answer| answer.to_vec()));
    names
}

fn listener() -> (TcpListener, SocketAddr) {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let address = listener.local_addr().unwrap();
    (listener, address)
}

fn tcp(names: impl Names + 'static) -> Tcp {
    Tcp { names: Box::new(names), sizes: (None, None) }
}

/// Nobody listens there.
fn dead() -> SocketAddr {
    listener().1
}

fn connect(tcp: &Tcp) -> Result<(), Error> {
    let to = Address { host: "broker.test".to_owned(), port: 9092 };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(tcp.connect(&to, true, LIMIT)).map(drop)
}

#[test]
fn a_broker_that_moved_under_its_name_is_found_at_the_next_connect() {
    let (first, second) = (listener(), listener());
    let names = names(&[&[first.1], &[second.1], &[dead(), second.1]]);
    let tcp = tcp(names.clone());
    for at in [&first.0, &second.0, &second.0] {
        connect(&tcp).unwrap();
        at.set_nonblocking(true).unwrap();
        at.accept().expect("it was connected to");
    }
    assert_eq!(names.asked.load(Ordering::SeqCst), 3, "each connect asks");
}

#[test]
fn a_name_that_leads_nowhere_is_told_from_one_that_cannot_be_looked_up() {
    let nowhere = tcp(names(&[&[dead(), dead()]]));
    let error = connect(&nowhere).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Connect);
    let unknown = tcp(names(&[&[]]));
    let error = connect(&unknown).unwrap_err();
    assert_eq!((error.kind(), error.class()), (ErrorKind::Dns, ErrorClass::Retriable));
    assert!(error.to_string().contains("no such name"), "{error}");
    let error = connect(&tcp(Empty)).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Dns, "a name with no address at all: {error}");
}

/// Knows the name, and no address of it.
#[derive(Debug)]
struct Empty;

#[async_trait(?Send)]
impl Names for Empty {
    async fn addresses(&self, _: &str, _: u16) -> io::Result<Vec<SocketAddr>> {
        Ok(Vec::new())
    }
}

/// Wants to know of a topic, and so connects.
struct Curious;

impl Machine for Curious {
    fn turn(&mut self, cx: &mut Context<'_>) -> Next {
        cx.metadata.want(&"t".into(), cx.now);
        Next::Wait
    }

    fn handle_response(&mut self, _: u64, _: Reply, _: &mut Context<'_>) {}

    fn fail(&mut self, error: &Error) {
        panic!("{error}");
    }
}

#[test]
fn a_resolver_that_fails_is_asked_again_until_it_answers() {
    let (listener, address) = listener();
    let names = names(&[&[], &[], &[dead()], &[], &[address]]);
    let options = "bootstrap.servers=broker.test:9092;reconnect.backoff.ms=2;retry.backoff.ms=2";
    let config = CommonConfig::new(&Options::parse(options).unwrap(), false).unwrap();
    let own = names.clone();
    let transport = move || -> Box<dyn Transport> { Box::new(tcp(own)) };
    let own = (Arc::default(), &Arc::default());
    let client = start_over(&config, own, transport, |_| Curious).unwrap();
    let (tell, told) = mpsc::channel();
    thread::spawn(move || tell.send(listener.accept().map(drop)));
    told.recv_timeout(LIMIT).expect("it connects at last").unwrap();
    assert_eq!(names.asked.load(Ordering::SeqCst), 5);
    drop(client);
}

/// Wants to know of a topic, and tells by what it is ended.
struct Ending(mpsc::Sender<Error>);

impl Machine for Ending {
    fn turn(&mut self, cx: &mut Context<'_>) -> Next {
        Curious.turn(cx)
    }

    fn handle_response(&mut self, _: u64, _: Reply, _: &mut Context<'_>) {}

    fn fail(&mut self, error: &Error) {
        self.0.send(error.clone()).unwrap();
    }
}

#[test]
fn a_client_whose_names_are_unknown_for_as_long_as_it_may_wait_ends_and_says_so() {
    let pairs = "bootstrap.servers=broker.test:9092;reconnect.backoff.ms=2;retry.backoff.ms=2";
    let options = Options::parse(&format!("{pairs};bootstrap.resolve.timeout.ms=1")).unwrap();
    let config = CommonConfig::new(&options, false).unwrap();
    let transport = || -> Box<dyn Transport> { Box::new(tcp(names(&[&[]]))) };
    let (tell, told) = mpsc::channel();
    let own = (Arc::default(), &Arc::default());
    let client = start_over(&config, own, transport, |_| Ending(tell)).unwrap();
    let error = told.recv_timeout(LIMIT).expect("it ends");
    assert_eq!((error.kind(), error.retriable()), (ErrorKind::InvalidOption, false));
    assert!(error.to_string().contains("no such name"), "{error}");
    drop(client);
}

#[test]
fn a_sockets_buffers_have_the_sizes_that_were_asked_for() {
    let (listener, address) = listener();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let sizes = |wanted| {
        let stream = runtime.block_on(open(address, wanted, LIMIT)).unwrap();
        let sizes = (socket_send_buffer_size(&stream), socket_recv_buffer_size(&stream));
        (sizes.0.unwrap(), sizes.1.unwrap())
    };
    let usual = sizes((None, None));
    // Linux keeps as much again for itself, and tells of both.
    assert_eq!(sizes((Some(20_000), Some(10_000))), (40_000, 20_000));
    assert_eq!(sizes((None, Some(10_000))), (usual.0, 20_000));
    drop(listener);
}
