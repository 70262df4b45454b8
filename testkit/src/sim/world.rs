//! The simulated world: its broker, its disk, its weather, and who hears of what.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Duration;

use ottla_broker::BrokerConfig;
use ottla_broker::sim::{SimBroker, SimDisk, SimLink, SimRecord, SimRemains};
use ottla_protocol::Uuid;
use tokio::time::Instant;

use super::WALL_MS;
use super::clock;
use super::dice::Dice;
use super::flights::Flights;
use super::groups::Group;
use super::largest::Largest;
use super::network::Conn;
use super::plan::{FLEETING, Plan, SAFETY, topics};
use super::tap::{Place, place};
use super::trace::Trace;

/// Where clients find the broker.
pub(crate) const ADDRESS: &str = "10.0.0.1:9092";

/// Partitions of the topic that keeps committed offsets.
pub(crate) const OFFSETS_PARTITIONS: i32 = 2;

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

/// Most that happens at one moment: somebody that goes on for longer would never let time pass.
const STEPS_MAX: u64 = 1_000_000;

const FAIR: Weather =
    Weather { latency: (0, 3), requests_cut: None, answers_cut: None, mishaps: 0, errors: 0 };

/// Nothing of one client's arrives before then, one way or both.
#[derive(Debug, Clone, Copy)]
struct CutOff {
    requests: Option<Instant>,
    answers: Option<Instant>,
}

/// All that the tasks of a run share.
pub(crate) struct World {
    pub(crate) plan: Plan,
    pub(crate) dice: RefCell<Dice>,
    pub(crate) trace: RefCell<Trace>,
    pub(crate) weather: Cell<Weather>,
    pub(crate) conns: RefCell<BTreeMap<u64, Rc<Conn>>>,
    pub(crate) groups: Vec<Rc<Group>>,
    pub(crate) flights: Flights,
    pub(crate) largest: Largest,
    /// Clients that are cut off.
    cut_off: RefCell<BTreeMap<Rc<str>, CutOff>>,
    /// Clients whose process is gone.
    gone: RefCell<BTreeSet<Rc<str>>>,
    topic_ids: RefCell<BTreeMap<Uuid, &'static str>>,
    /// What topics of the name of [`FLEETING`] have left, one after the other.
    remains: RefCell<Vec<SimRemains>>,
    config: BrokerConfig,
    disk: SimDisk,
    broker: RefCell<Option<SimBroker>>,
    began: Instant,
    /// Brokers that were started.
    lives: Cell<u64>,
    next_conn: Cell<u64>,
    next_commit: Cell<u64>,
    /// A moment, and how much has happened in it.
    steps: Cell<(Instant, u64)>,
    faults: RefCell<Vec<String>>,
}

impl World {
    /// A world of a plan, without a broker yet.
    pub(crate) fn new(plan: Plan, verbose: bool) -> Result<Rc<Self>, String> {
        let mut config = BrokerConfig::new();
        let offsets_partitions = OFFSETS_PARTITIONS.to_string();
        let options = [
            ("advertised.listeners", "PLAINTEXT://10.0.0.1:9092"),
            ("offsets.topic.num.partitions", offsets_partitions.as_str()),
            ("auto.create.topics.enable", "false"),
        ];
        for (name, value) in options {
            config = config.set(name, value).map_err(|error| error.to_string())?;
        }
        let weather = Weather { mishaps: plan.mishaps, errors: plan.first_errors, ..FAIR };
        Ok(Rc::new(Self {
            dice: RefCell::new(Dice::new(plan.seed)),
            trace: RefCell::new(Trace::new(verbose)),
            weather: Cell::new(weather),
            conns: RefCell::default(),
            groups: plan.groups.iter().map(|plan| Rc::new(Group::new(plan.clone()))).collect(),
            flights: Flights::default(),
            largest: Largest::default(),
            cut_off: RefCell::default(),
            gone: RefCell::default(),
            topic_ids: RefCell::default(),
            remains: RefCell::default(),
            config,
            disk: SimDisk::default(),
            broker: RefCell::default(),
            began: clock::now(),
            lives: Cell::new(0),
            next_conn: Cell::new(1),
            next_commit: Cell::new(1),
            steps: Cell::new((clock::now(), 0)),
            faults: RefCell::default(),
            plan,
        }))
    }

    /// Since the beginning.
    pub(crate) fn age(&self) -> Duration {
        clock::now() - self.began
    }

    /// The time on the wall.
    pub(crate) fn wall_ms(&self) -> i64 {
        WALL_MS + i64::try_from(self.age().as_millis()).unwrap_or(0)
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
        self.step(&what);
        self.faults.borrow_mut().push(what);
    }

    /// All rules that were broken.
    pub(crate) fn findings(&self) -> Vec<String> {
        self.faults.borrow().clone()
    }

    /// One more thing happens. Ends whoever does it if that never comes to an end.
    fn step(&self, what: &str) {
        let (now, (moment, steps)) = (clock::now(), self.steps.get());
        let steps = if moment == now { steps + 1 } else { 1 };
        self.steps.set((now, steps % STEPS_MAX));
        if steps == STEPS_MAX {
            self.finding(format!("time stands still: {steps} things happen, the last: {what}"));
            panic!("time stands still: {what}");
        }
    }

    pub(crate) fn sometimes(&self, what: &'static str) {
        self.step(what);
        self.trace.borrow_mut().sometimes(what);
    }

    pub(crate) fn event(&self, what: &str, number: u64, bytes: &[u8]) {
        self.step(what);
        self.trace.borrow_mut().event(self.age(), what, number, bytes);
    }

    pub(crate) fn tell(&self, what: impl FnOnce() -> String) {
        self.trace.borrow().tell(self.age(), what);
    }

    pub(crate) fn fault(&self, what: &'static str, number: u64) {
        self.trace.borrow_mut().fault(self.age(), what, number);
    }

    /// Whether a thing that happens so many times in a thousand happens now.
    pub(crate) fn happens(&self, per_mille: u64) -> bool {
        !self.is_healed() && self.dice.borrow_mut().per_mille(per_mille)
    }

    /// Waits as long as something of this client's is on its way, through a cut if there is one.
    pub(crate) async fn travel(&self, to_broker: bool, client: Option<&str>) {
        let (least, most) = self.weather.get().latency;
        let time = self.dice.borrow_mut().millis(least, most);
        clock::pause(time).await;
        loop {
            let weather = self.weather.get();
            let cut = if to_broker { weather.requests_cut } else { weather.answers_cut };
            let own = client.and_then(|client| self.cut_off.borrow().get(client).copied());
            let own = own.and_then(|cut| if to_broker { cut.requests } else { cut.answers });
            let until = cut.max(own).filter(|at| *at > clock::now());
            let Some(at) = until else { return };
            clock::until(at.min(self.heals_at())).await;
            if self.is_healed() {
                return;
            }
        }
    }

    /// A client's process is gone. What it has written arrives all the same, if `arrives`.
    pub(crate) fn crash(&self, client: &Rc<str>, arrives: bool) {
        self.gone.borrow_mut().insert(Rc::clone(client));
        let conns: Vec<Rc<Conn>> = self.conns.borrow().values().cloned().collect();
        for conn in conns.iter().filter(|conn| conn.client().as_ref() == Some(client)) {
            if arrives {
                conn.reset_at_client();
            } else {
                conn.reset(self);
            }
        }
    }

    /// Whether a client's process is gone.
    pub(crate) fn is_gone(&self, client: &str) -> bool {
        self.gone.borrow().contains(client)
    }

    /// A partition that is named by its topic's name or id.
    pub(crate) fn place_of(&self, name: &str, id: Uuid, partition: i32) -> Option<Place> {
        let name = if name.is_empty() { *self.topic_ids.borrow().get(&id)? } else { name };
        place(name, partition)
    }

    /// A number for a request that is written, in their order.
    pub(crate) fn next_commit(&self) -> u64 {
        let number = self.next_commit.get();
        self.next_commit.set(number + 1);
        number
    }

    /// The group of a name.
    pub(crate) fn group(&self, name: &str) -> Option<&Rc<Group>> {
        self.groups.iter().find(|group| group.plan.name == name)
    }

    /// Starts the broker on what the disk has.
    pub(crate) fn start_broker(&self) -> Result<(), String> {
        let address: SocketAddr = ADDRESS.parse().map_err(|error| format!("{ADDRESS}: {error}"))?;
        let broker = SimBroker::start(&self.config, &self.disk, address)
            .map_err(|error| format!("the broker does not start: {error}"))?;
        *self.broker.borrow_mut() = Some(broker);
        self.lives.set(self.lives.get() + 1);
        Ok(())
    }

    /// Which of its lives the broker is in.
    pub(crate) const fn life(&self) -> u64 {
        self.lives.get()
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

    /// Creates a topic.
    pub(crate) async fn create_topic(&self, name: &str, partitions: i32) -> Result<(), String> {
        let broker = self.broker.borrow_mut().take().ok_or("no broker")?;
        let created = broker.create_topic(name, partitions).await;
        let id = broker.topic_id(name);
        *self.broker.borrow_mut() = Some(broker);
        created.map_err(|error| error.to_string())?;
        let id = id.ok_or("no such topic")?;
        let known = topics().find(|(topic, _)| *topic == name).map(|(topic, _)| topic);
        self.topic_ids.borrow_mut().extend(known.map(|topic| (id, topic)));
        Ok(())
    }

    /// Deletes the topic that does not stay, and makes it anew: at once, or when the time is over.
    async fn make_anew(&self, end: Instant) -> Result<(), String> {
        self.fault("a topic is deleted and made anew", 0);
        let (name, partitions) = FLEETING;
        let broker = self.broker.borrow_mut().take().ok_or("no broker")?;
        let deleted = broker.delete_topic(name).await;
        *self.broker.borrow_mut() = Some(broker);
        let remains = deleted.map_err(|error| format!("{name} is not deleted: {error}"))?;
        self.remains.borrow_mut().push(remains);
        if self.dice.borrow_mut().flip() {
            self.sometimes("a topic is gone for a while");
            clock::until(end).await;
        }
        self.create_topic(name, partitions).await?;
        self.event("a topic is made anew", 0, &[]);
        Ok(())
    }

    /// Whether a partition's topic has ever been made anew.
    pub(crate) fn is_anew(&self, place: Place) -> bool {
        place.0 == FLEETING.0 && !self.remains.borrow().is_empty()
    }

    /// The logs of all partitions that ever had this name, the present one last.
    pub(crate) fn logs(&self, topic: &str, partition: i32) -> Result<Vec<Vec<SimRecord>>, String> {
        let mut logs = Vec::new();
        if topic == FLEETING.0 {
            for remains in self.remains.borrow().iter() {
                logs.push(remains.records(partition)?);
            }
        }
        logs.push(self.with_broker(|broker| broker.records(topic, partition))?);
        Ok(logs)
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
        let begun = self.dice.borrow_mut().millis(0, 3000);
        clock::pause(begun).await;
        self.weather.set(Weather { errors: 0, ..self.weather.get() });
        while !self.is_healed() {
            let calm = self.dice.borrow_mut().millis(200, self.plan.calm_ms);
            clock::until((clock::now() + calm).min(self.heals_at())).await;
            if self.is_healed() {
                break;
            }
            let (what, time) = {
                let mut dice = self.dice.borrow_mut();
                let longest = dice.pick(&[300, 2000, 6000, 15_000]);
                (dice.between(0, 10), dice.millis(50, longest))
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
            6 | 7 => {
                self.cut_one_off(end);
                // Meanwhile others are as unhappy.
                return Ok(());
            }
            8 | 9 => return self.make_anew(end).await,
            _ => {
                self.fault("the broker answers with errors", 0);
                self.weather.set(Weather { errors: self.plan.errors, ..before });
            }
        }
        clock::until(end).await;
        self.weather.set(before);
        Ok(())
    }

    /// Cuts one of the clients off that have a connection.
    fn cut_one_off(&self, end: Instant) {
        let conns = self.conns.borrow();
        let clients: BTreeSet<Rc<str>> = conns.values().filter_map(|conn| conn.client()).collect();
        let clients: Vec<Rc<str>> = clients.into_iter().collect();
        if clients.is_empty() {
            return;
        }
        let mut dice = self.dice.borrow_mut();
        let numbers: Vec<usize> = (0..clients.len()).collect();
        let (number, way) = (dice.pick(&numbers), dice.between(0, 3));
        drop(dice);
        let Some(client) = clients.get(number) else { return };
        let (what, cut) = match way {
            0 => {
                let cut = CutOff { requests: Some(end), answers: None };
                ("one client's requests do not arrive", cut)
            }
            1 => {
                let cut = CutOff { requests: None, answers: Some(end) };
                ("one client's answers do not arrive", cut)
            }
            _ => ("one client is cut off", CutOff { requests: Some(end), answers: Some(end) }),
        };
        self.fault(what, u64::try_from(number).unwrap_or(0));
        self.cut_off.borrow_mut().insert(Rc::clone(client), cut);
    }

    /// Nothing bad happens from now on.
    pub(crate) fn heal(&self) {
        self.event("the world heals", 0, &[]);
        self.weather.set(FAIR);
    }
}
