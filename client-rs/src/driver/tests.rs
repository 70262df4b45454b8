//! Clients on the I/O thread: turns, jobs, panics, ends.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use super::start;
use crate::config::{CommonConfig, Options};
use crate::error::{Error, ErrorKind};
use crate::state::guard::lock;
use crate::state::machine::{Context, JobResult, Machine, Next, Reply};
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
    let handle = start(&config, Arc::clone(&shared.wake), move |_| Obedient(own)).unwrap();
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
