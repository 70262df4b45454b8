//! Parts of a story that play in another process: this test program, started once more.

#![allow(dead_code, reason = "each story takes what it needs")]
#![allow(clippy::unwrap_used, reason = "a test that cannot go on ends here")]

use std::io::{self, BufRead as _, BufReader, Lines, Read as _, Write as _};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::{env, process, thread};

use ottla::{Consumer, Options, Producer, Record};
use ottla_broker::{Broker, BrokerConfig};
use rustix::process::{Pid, Signal, WaitOptions, kill_process, waitpid};
use tokio::net::TcpSocket;

use crate::cluster::{fresh, make_topic};
use crate::patience::{LIMIT, wait_until};

/// Which part the new process plays.
const PART: &str = "OTTLA_TEST_PART";
/// What it needs to know, one a line.
const WORDS: &str = "OTTLA_TEST_WORDS";
/// Where a broker of somebody else's will listen and the command that starts it, one word a line,
/// for stories that hold and kill their broker.
const SERVER: &str = "OTTLA_TEST_SERVER";
/// Where ours listens.
const LISTEN: &str = "127.0.0.1:0";
/// What marks a line as meant for us, among those of the test runner.
const TOLD: &str = "told: ";
/// The test that plays a part in the new process.
const STAGE: &str = "elsewhere::another_process_plays_its_part_and_ends_with_its_owner";

/// Another process. It ends when this is dropped, or when this process ends in any way.
pub(crate) struct Elsewhere {
    child: Child,
    lines: Lines<BufReader<ChildStdout>>,
}

impl Elsewhere {
    /// Runs a command, given as one word a line.
    fn run(command: &str) -> Self {
        let mut words = command.lines();
        let mut run = Command::new(words.next().unwrap());
        Self::of(run.args(words))
    }

    fn start(part: &str, words: &[String]) -> Self {
        let mut run = Command::new(env::current_exe().unwrap());
        run.args([STAGE, "--exact", "--nocapture"]);
        Self::of(run.env(PART, part).env(WORDS, words.join("\n")))
    }

    fn of(run: &mut Command) -> Self {
        let mut child = run.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        Self { child, lines }
    }

    /// A member of a group that tells the offset of each record it reads, and never commits.
    pub(crate) fn member(options: &Options, topic: &str) -> Self {
        let text: Vec<String> =
            options.iter().map(|(name, value)| format!("{name}={value}")).collect();
        Self::start("member", &[text.join(";"), topic.to_owned()])
    }

    /// A process that starts a producer, sends a record to a topic, and ends without a close.
    pub(crate) fn careless_producer(options: &Options, topic: &str) -> Self {
        let text: Vec<String> =
            options.iter().map(|(name, value)| format!("{name}={value}")).collect();
        Self::start("careless", &[text.join(";"), topic.to_owned()])
    }

    /// The next thing it says.
    pub(crate) fn told(&mut self) -> String {
        for line in self.lines.by_ref() {
            // The runner may have begun a line of its own before.
            if let Some((_, told)) = line.unwrap().split_once(TOLD) {
                return told.to_owned();
            }
        }
        panic!("the other process ended")
    }

    /// Ends it as by `kill -9`.
    pub(crate) fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// Holds it, as a machine that is busy with something else does; it does nothing from here on.
    pub(crate) fn hold(&self) {
        self.signal(Signal::STOP);
        // The signal alone lets its threads run for a moment more.
        let (_, status) = waitpid(Some(self.pid()), WaitOptions::UNTRACED).unwrap().unwrap();
        assert!(status.stopped(), "{status:?}");
    }

    /// Lets it go on.
    pub(crate) fn let_go(&self) {
        self.signal(Signal::CONT);
    }

    fn signal(&self, signal: Signal) {
        kill_process(self.pid(), signal).unwrap();
    }

    fn pid(&self) -> Pid {
        Pid::from_child(&self.child)
    }

    /// Asks it to end by itself, and waits until it has; whether it ended well.
    pub(crate) fn end(mut self) -> bool {
        drop(self.child.stdin.take());
        self.child.wait().unwrap().success()
    }
}

impl Drop for Elsewhere {
    fn drop(&mut self) {
        // It may have ended before.
        self.child.kill().ok();
        self.child.wait().ok();
    }
}

/// What a broker in another process is.
enum Origin {
    Ours {
        config: Vec<String>,
        folder: Option<PathBuf>,
    },
    /// Somebody else's. It has one folder and one address, so one story at a time takes its turn.
    Theirs {
        _turn: MutexGuard<'static, ()>,
    },
}

static TURN: Mutex<()> = Mutex::new(());

impl Origin {
    fn new(config: &[&str], folder: Option<PathBuf>) -> Self {
        if env::var_os(SERVER).is_some() {
            return Self::Theirs { _turn: TURN.lock().unwrap_or_else(PoisonError::into_inner) };
        }
        Self::Ours { config: config.iter().map(|&pair| pair.to_owned()).collect(), folder }
    }
}

/// A broker in another process: ours, or the one that the environment says how to start.
pub(crate) struct BrokerElsewhere {
    process: Elsewhere,
    address: String,
    // Behind the process, which must be gone before another has its turn.
    origin: Origin,
}

impl BrokerElsewhere {
    /// In memory, with these options; somebody else's has them by itself, and is on its folder.
    pub(crate) fn in_memory(config: &[&str]) -> Self {
        Self::start(LISTEN, Origin::new(config, None))
    }

    /// On a folder, with these options; somebody else's has them by itself, and a folder too.
    pub(crate) fn on(folder: &Path, config: &[&str]) -> Self {
        Self::start(LISTEN, Origin::new(config, Some(folder.to_owned())))
    }

    fn start(listen: &str, origin: Origin) -> Self {
        let (process, address) = match &origin {
            Origin::Ours { config, folder } => {
                let folder = folder.as_ref().map_or("", |folder| folder.to_str().unwrap());
                let mut words = vec![listen.to_owned(), folder.to_owned()];
                words.extend(config.iter().cloned());
                let mut process = Elsewhere::start("broker", &words);
                let address = process.told();
                (process, address)
            }
            Origin::Theirs { .. } => {
                let text = env::var(SERVER).unwrap();
                let (address, command) = text.split_once('\n').unwrap();
                let process = Elsewhere::run(command);
                wait_until("the broker", || TcpStream::connect(address).is_ok());
                (process, address.to_owned())
            }
        };
        Self { process, address, origin }
    }

    pub(crate) fn bootstrap(&self) -> &str {
        &self.address
    }

    /// Makes a topic of so many partitions that is this story's alone; its name.
    pub(crate) fn topic(&self, partitions: i32) -> String {
        let topic = fresh("orders");
        make_topic(&self.address, &topic, partitions, &[]);
        topic
    }

    pub(crate) fn process(&self) -> &Elsewhere {
        &self.process
    }

    /// Ends it as by `kill -9`; [`Away::back`] starts another on the same folder and port.
    pub(crate) fn kill(self) -> Away {
        self.process.kill();
        let place = TcpSocket::new_v4().unwrap();
        place.set_reuseaddr(true).unwrap();
        place.bind(self.address.parse().unwrap()).unwrap();
        Away { address: self.address, origin: self.origin, _place: place }
    }
}

/// A broker that was killed.
pub(crate) struct Away {
    address: String,
    origin: Origin,
    /// Keeps the port for it: the system gives it to no other. Nobody listens meanwhile.
    _place: TcpSocket,
}

impl Away {
    pub(crate) fn back(self) -> BrokerElsewhere {
        BrokerElsewhere::start(&self.address, self.origin)
    }
}

fn tell(text: &str) {
    let mut out = io::stdout().lock();
    writeln!(out, "{TOLD}{text}").and_then(|()| out.flush()).unwrap();
}

/// Ends this process when its owner lets go of it.
fn end_with_owner() {
    thread::spawn(|| {
        // An end or an error: the owner is gone either way.
        io::stdin().read_to_end(&mut Vec::new()).ok();
        process::exit(0);
    });
}

fn play(part: &str) -> ! {
    end_with_owner();
    let words = env::var(WORDS).unwrap();
    let words: Vec<&str> = words.split('\n').collect();
    match part {
        "broker" => play_broker(&words),
        "member" => play_member(words[0], words[1]),
        "careless" => play_careless_producer(words[0], words[1]),
        other => panic!("no such part: {other}"),
    }
}

fn play_broker(words: &[&str]) -> ! {
    let (listen, folder) = (words[0], words[1]);
    let mut config = BrokerConfig::new().listen(listen);
    config = if folder.is_empty() { config.memory() } else { config.data_dir(folder) };
    for pair in &words[2..] {
        let (name, value) = pair.split_once('=').unwrap();
        config = config.set(name, value).unwrap();
    }
    let broker = Broker::start(config).unwrap();
    tell(&broker.bootstrap());
    rest()
}

fn play_member(options: &str, topic: &str) -> ! {
    let consumer = Consumer::new(&Options::parse(options).unwrap()).unwrap();
    consumer.subscribe(&[topic]).unwrap();
    while let Some(record) = consumer.poll(LIMIT).unwrap() {
        tell(&record.offset().to_string());
    }
    rest()
}

fn play_careless_producer(options: &str, topic: &str) -> ! {
    let producer = Producer::new(&Options::parse(options).unwrap()).unwrap();
    drop(producer.send(&Record::to(topic).value("x")).unwrap());
    tell("sent");
    process::exit(0)
}

fn rest() -> ! {
    loop {
        thread::park();
    }
}

#[test]
fn another_process_plays_its_part_and_ends_with_its_owner() {
    if let Ok(part) = env::var(PART) {
        play(&part);
    }
    let ours = Origin::Ours { config: vec!["num.partitions=3".to_owned()], folder: None };
    let broker = BrokerElsewhere::start(LISTEN, ours);
    assert_ne!(broker.process.child.id(), process::id());
    TcpStream::connect(broker.bootstrap()).unwrap();
    assert!(broker.process.end(), "it is gone, and ended well");
}
