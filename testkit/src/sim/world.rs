//! The simulated world: its broker, its disk, its weather, and who hears of what.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Duration;

use ottla_broker::BrokerConfig;
use ottla_broker::sim::{SimBroker, SimDisk, SimLink};
use tokio::time::Instant;

use super::clock;
use super::dice::Dice;
use super::network::Conn;
use super::plan::{Plan, SAFETY};
use super::trace::Trace;

/// Where clients find the broker.
pub(crate) const ADDRESS: &str = "10.0.0.1:9092";

/// What the network and the broker are like now.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Weather {
    /// Least and most time on the way, in milliseconds.
    pub(crate) latency: (u64, u64),
    /// Nothing arrives at the broker before then.
    pub(crate) requests_cut: Option<Instant>,
    /// Nothing arrives at a client before then.
    pub(crate) answers_cut: Option<Instant>,
    /// Faults of single requests and answers, in a thousand.
    pub(crate) mishaps: u64,
    /// Answers that are an error, in a thousand.
    pub(crate) errors: u64,
}

const FAIR: Weather =
    Weather { latency: (0, 3), requests_cut: None, answers_cut: None, mishaps: 0, errors: 0 };

/// All that the tasks of a run share.
pub(crate) struct World {
    pub(crate) plan: Plan,
    pub(crate) dice: RefCell<Dice>,
    pub(crate) trace: RefCell<Trace>,
    pub(crate) weather: Cell<Weather>,
    pub(crate) conns: RefCell<BTreeMap<u64, Rc<Conn>>>,
    config: BrokerConfig,
    disk: SimDisk,
    broker: RefCell<Option<SimBroker>>,
    began: Instant,
    next_conn: Cell<u64>,
    faults: RefCell<Vec<String>>,
}

impl World {
    /// A world of a plan, without a broker yet.
    pub(crate) fn new(plan: Plan, verbose: bool) -> Result<Rc<Self>, String> {
        let mut config = BrokerConfig::new();
        let options = [
            ("advertised.listeners", "PLAINTEXT://10.0.0.1:9092"),
            ("offsets.topic.num.partitions", "2"),
            ("auto.create.topics.enable", "false"),
        ];
        for (name, value) in options {
            config = config.set(name, value).map_err(|error| error.to_string())?;
        }
        let weather = Weather { mishaps: plan.mishaps, ..FAIR };
        Ok(Rc::new(Self {
            dice: RefCell::new(Dice::new(plan.seed)),
            trace: RefCell::new(Trace::new(verbose)),
            weather: Cell::new(weather),
            conns: RefCell::default(),
            config,
            disk: SimDisk::default(),
            broker: RefCell::default(),
            began: clock::now(),
            next_conn: Cell::new(1),
            faults: RefCell::default(),
            plan,
        }))
    }

    /// Since the beginning.
    pub(crate) fn age(&self) -> Duration {
        clock::now() - self.began
    }

    /// When the world heals.
    pub(crate) fn heals_at(&self) -> Instant {
        self.began + SAFETY
    }

    /// Whether it has.
    pub(crate) fn is_healed(&self) -> bool {
        clock::now() >= self.heals_at()
    }

    /// The rule that was broken, for the end.
    pub(crate) fn finding(&self, what: impl Into<String>) {
        let what = format!("at {:.3} s: {}", self.age().as_secs_f64(), what.into());
        self.faults.borrow_mut().push(what);
    }

    /// All rules that were broken.
    pub(crate) fn findings(&self) -> Vec<String> {
        self.faults.borrow().clone()
    }

    pub(crate) fn sometimes(&self, what: &'static str) {
        self.trace.borrow_mut().sometimes(what);
    }

    pub(crate) fn event(&self, what: &str, number: u64, bytes: &[u8]) {
        self.trace.borrow_mut().event(self.age(), what, number, bytes);
    }

    pub(crate) fn fault(&self, what: &'static str, number: u64) {
        self.trace.borrow_mut().fault(self.age(), what, number);
    }

    /// Whether a thing that happens so many times in a thousand happens now.
    pub(crate) fn happens(&self, per_mille: u64) -> bool {
        !self.is_healed() && self.dice.borrow_mut().per_mille(per_mille)
    }

    /// Waits as long as something is on its way, through a cut if there is one.
    pub(crate) async fn travel(&self, to_broker: bool) {
        let (least, most) = self.weather.get().latency;
        let time = self.dice.borrow_mut().millis(least, most);
        clock::pause(time).await;
        loop {
            let weather = self.weather.get();
            let cut = if to_broker { weather.requests_cut } else { weather.answers_cut };
            let Some(at) = cut.filter(|at| *at > clock::now()) else { return };
            clock::until(at.min(self.heals_at())).await;
            if self.is_healed() {
                return;
            }
        }
    }

    /// Starts the broker on what the disk has.
    pub(crate) fn start_broker(&self) -> Result<(), String> {
        let address: SocketAddr = ADDRESS.parse().map_err(|error| format!("{ADDRESS}: {error}"))?;
        let broker = SimBroker::start(&self.config, &self.disk, address)
            .map_err(|error| format!("the broker does not start: {error}"))?;
        *self.broker.borrow_mut() = Some(broker);
        Ok(())
    }

    /// Kills the broker; the disk keeps what is written.
    pub(crate) fn kill_broker(&self) {
        self.note_panics();
        let killed = self.broker.borrow_mut().take();
        drop(killed);
        self.reset_all();
    }

    /// Breaks every connection.
    pub(crate) fn reset_all(&self) {
        let conns: Vec<Rc<Conn>> = self.conns.borrow().values().cloned().collect();
        for conn in conns {
            conn.reset(self);
        }
    }

    /// A connection to the broker, with its number; none if it does not run.
    pub(crate) fn accept(&self) -> Option<(u64, SimLink)> {
        let id = self.next_conn.get();
        self.next_conn.set(id + 1);
        let port = u16::try_from(1024 + id % 60_000).unwrap_or(1024);
        let peer = SocketAddr::from(([10, 0, 0, 2], port));
        let link = self.broker.borrow_mut().as_mut()?.accept(peer);
        Some((id, link))
    }

    /// Creates the topics.
    pub(crate) async fn create_topic(&self, name: &str, partitions: i32) -> Result<(), String> {
        let broker = self.broker.borrow_mut().take().ok_or("no broker")?;
        let created = broker.create_topic(name, partitions).await;
        *self.broker.borrow_mut() = Some(broker);
        created.map_err(|error| error.to_string())
    }

    /// Calls the broker, which must run.
    pub(crate) fn with_broker<T>(
        &self,
        call: impl FnOnce(&SimBroker) -> Result<T, String>,
    ) -> Result<T, String> {
        self.broker.borrow().as_ref().ok_or_else(|| "no broker".to_owned()).and_then(call)
    }

    /// A task of the broker's must not panic.
    pub(crate) fn note_panics(&self) {
        let panics = self.broker.borrow_mut().as_mut().map_or(0, SimBroker::panics);
        if panics > 0 {
            self.finding(format!("{panics} tasks of the broker panicked"));
        }
    }

    /// Makes one large fault after another until the world heals.
    pub(crate) async fn be_stormy(&self) -> Result<(), String> {
        while !self.is_healed() {
            let calm = self.dice.borrow_mut().millis(200, self.plan.calm_ms);
            clock::until((clock::now() + calm).min(self.heals_at())).await;
            if self.is_healed() {
                break;
            }
            let (what, time) = {
                let mut dice = self.dice.borrow_mut();
                let longest = dice.pick(&[300, 2000, 6000, 15_000]);
                (dice.between(0, 6), dice.millis(50, longest))
            };
            let end = (clock::now() + time).min(self.heals_at());
            self.storm(what, end).await?;
        }
        Ok(())
    }

    async fn storm(&self, what: u64, end: Instant) -> Result<(), String> {
        let before = self.weather.get();
        match what {
            0 => {
                self.fault("the broker is killed", 0);
                self.kill_broker();
                clock::until(end).await;
                self.start_broker()?;
                self.event("the broker starts", 0, &[]);
                return Ok(());
            }
            1 => {
                self.fault("all connections break", 0);
                self.reset_all();
                return Ok(());
            }
            2 => {
                self.fault("requests do not arrive", 0);
                self.weather.set(Weather { requests_cut: Some(end), ..before });
            }
            3 => {
                self.fault("answers do not arrive", 0);
                self.weather.set(Weather { answers_cut: Some(end), ..before });
            }
            4 => {
                self.fault("nothing arrives", 0);
                let cut = Some(end);
                self.weather.set(Weather { requests_cut: cut, answers_cut: cut, ..before });
            }
            5 => {
                self.fault("the network is slow", 0);
                self.weather.set(Weather { latency: (20, 900), ..before });
            }
            _ => {
                self.fault("the broker answers with errors", 0);
                self.weather.set(Weather { errors: self.plan.errors, ..before });
            }
        }
        clock::until(end).await;
        self.weather.set(before);
        Ok(())
    }

    /// Nothing bad happens from now on.
    pub(crate) fn heal(&self) {
        self.event("the world heals", 0, &[]);
        self.weather.set(FAIR);
    }
}
