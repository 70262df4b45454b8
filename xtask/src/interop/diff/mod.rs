//! `cargo xtask interop diff`: the same conversations with our broker and with Apache Kafka, and
//! every field in which the answers differ.

mod asking;
mod batch;
mod bytes;
mod codec;
mod compare;
mod connection;
mod cursor;
mod evaluate;
mod normal;
mod report;
mod request;
mod run;
mod script;
mod value;

use std::net::{SocketAddr, ToSocketAddrs};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use asking::{Asking, record};
use codec::Spec;
use report::Findings;
use run::Peer;
use script::Conversation;
use value::{Path, Value};

use crate::outcome::{Count, Doing, Done, Stop};
use crate::workspace::{Workspace, files_ending, read};

use super::kafka::Kafka;
use super::ours::{OurBroker, Profile};

/// What both brokers are told, beside where they listen and keep their data.
const SETTINGS: &[&str] = &[
    "num.partitions=3",
    "group.initial.rebalance.delay.ms=0",
    // So that a conversation sees a session end.
    "group.min.session.timeout.ms=500",
];

/// Conversations that are held at a time: most of their time they wait.
const AT_A_TIME: usize = 8;

/// Groups that are asked about before, so that all of the offsets topic is there.
const WARM_GROUPS: i64 = 300;

/// What the developer asked for.
#[derive(Debug, Default)]
pub(crate) struct Options {
    /// Only conversations whose names hold this.
    only: Option<String>,
    /// A running Kafka, in place of one of our own.
    against: Option<SocketAddr>,
}

impl Options {
    pub(crate) fn parse(words: &[&str]) -> Done<Self> {
        let mut options = Self::default();
        let mut rest = words;
        loop {
            rest = match rest {
                [] => return Ok(options),
                ["--only", name, rest @ ..] => {
                    options.only = Some((*name).to_owned());
                    rest
                }
                ["--against", address, rest @ ..] => {
                    let mut found = address.to_socket_addrs().doing(address)?;
                    options.against = found.next();
                    rest
                }
                _ => return Err("interop diff [--only NAME] [--against HOST:PORT]".into()),
            };
        }
    }
}

/// One holding of a conversation: with `each`, there is one for each version.
struct Turn<'c> {
    conversation: &'c Conversation,
    version: Option<i16>,
}

/// Holds all conversations with both brokers and compares.
pub(crate) fn run(workspace: &Workspace, options: &Options) -> Done<Count> {
    let spec = Spec::read(workspace)?;
    let conversations = conversations(workspace)?;
    let wanted = |conversation: &&Conversation| {
        options.only.as_ref().is_none_or(|only| conversation.name.contains(only))
    };
    let chosen: Vec<&Conversation> = conversations.iter().filter(wanted).collect();
    if chosen.is_empty() {
        return Err("no conversation has such a name".into());
    }
    let turns = turns(&spec, &chosen)?;
    let program = OurBroker::build(workspace, Profile::Dev)?;
    let scratch = workspace.scratch("diff")?;
    let (our_dir, their_dir) = (scratch.path().join("ours"), scratch.path().join("theirs"));
    for dir in [&our_dir, &their_dir] {
        std::fs::create_dir_all(dir).doing("cannot make a folder")?;
    }
    let kafka = match options.against {
        Some(_) => None,
        None => Some(Kafka::start_with(&Kafka::fetch(workspace)?, &their_dir, SETTINGS)?.0),
    };
    let theirs = match (&kafka, options.against) {
        (Some(kafka), _) => address(&kafka.address())?,
        (None, against) => against.ok_or("no address")?,
    };
    let ours = OurBroker::start(&program, &our_dir, SETTINGS)?;
    let peers =
        [peer(&spec, "our broker", address(&ours.address())?)?, peer(&spec, "Kafka", theirs)?];
    let mut findings = Findings::default();
    hold_all(&spec, &peers, &turns, &mut findings)?;
    let whole = options.only.is_none();
    let listed = if whole { listed(&spec, &peers[0])? } else { Vec::new() };
    let count = findings.print(&chosen, &listed);
    ours.stop()?;
    if let Some(kafka) = kafka {
        kafka.stop()?;
    }
    Ok(count)
}

fn address(text: &str) -> Done<SocketAddr> {
    text.parse().map_err(|error| Stop::Failed(format!("{text}: {error}")))
}

/// All conversations, by file and line.
fn conversations(workspace: &Workspace) -> Done<Vec<Conversation>> {
    let folder = workspace.root.join("conformance/conversations");
    let mut all: Vec<Conversation> = Vec::new();
    for path in files_ending(&folder, &[".txt"])? {
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        all.extend(script::parse(&name, &read(&path)?)?);
    }
    let mut names: Vec<&str> = all.iter().map(|one| one.name.as_str()).collect();
    names.sort_unstable();
    match names.windows(2).find(|pair| pair[0] == pair[1]) {
        Some(pair) => Err(format!("two conversations are called {}", pair[0]).into()),
        None => Ok(all),
    }
}

fn turns<'c>(spec: &Spec, chosen: &[&'c Conversation]) -> Done<Vec<Turn<'c>>> {
    let mut turns = Vec::new();
    for conversation in chosen {
        match &conversation.each {
            None => turns.push(Turn { conversation, version: None }),
            Some(api) => {
                let span = spec.request(api)?.versions;
                let versions = span.min..=span.max;
                turns.extend(versions.map(|at| Turn { conversation, version: Some(at) }));
            }
        }
    }
    Ok(turns)
}

/// Waits until a broker is ready, and learns its cluster's id.
fn peer(spec: &Spec, name: &'static str, address: SocketAddr) -> Done<Peer> {
    let mut peer = Peer { name, address, cluster: String::new() };
    let mut asking = Asking::open(spec, &peer)?;
    let nothing = record([("Topics", Value::List(Vec::new()))]);
    let broker = Path::parse("Brokers[0].NodeId")?;
    let answer = asking.until("Metadata", 12, &nothing, |answer| answer.at(&broker).is_some())?;
    if let Some(Value::Text(cluster)) = answer.field("ClusterId") {
        peer.cluster.clone_from(cluster);
    }
    Ok(peer)
}

/// Sees that coordinators and producer ids are there, which a broker makes when first asked.
fn warm(spec: &Spec, peer: &Peer) -> Result<(), String> {
    let mut asking = Asking::open(spec, peer)?;
    let keys = Value::List(vec![Value::text("warm")]);
    let key = record([("CoordinatorKeys", keys)]);
    let none = |path: &'static str| {
        move |answer: &Value| {
            Path::parse(path).is_ok_and(|path| answer.at(&path) == Some(&Value::text("NONE")))
        }
    };
    asking.until("FindCoordinator", 4, &key, none("Coordinators[0].ErrorCode"))?;
    let groups = (0..WARM_GROUPS).map(|at| {
        record([("GroupId", Value::Text(format!("warm-{at}"))), ("Topics", Value::Null)])
    });
    let groups = record([("Groups", Value::List(groups.collect()))]);
    let no_error = |answer: &Value| {
        let text = answer.to_string();
        !text.contains("COORDINATOR")
    };
    asking.until("OffsetFetch", 8, &groups, no_error)?;
    let plain =
        record([("TransactionalId", Value::Null), ("TransactionTimeoutMs", Value::Number(1000))]);
    asking.until("InitProducerId", 4, &plain, none("ErrorCode"))?;
    Ok(())
}

/// The APIs and versions that a broker lists and serves.
fn listed(spec: &Spec, peer: &Peer) -> Done<Vec<(String, i16)>> {
    let mut asking = Asking::open(spec, peer)?;
    let answer = asking.ask("ApiVersions", 0, &record([]))?;
    let Some(Value::List(rows)) = answer.field("ApiKeys") else {
        return Err("the broker lists nothing".into());
    };
    let mut listed = Vec::new();
    for row in rows {
        let number = |name| match row.field(name) {
            Some(Value::Number(number)) => i16::try_from(*number).unwrap_or_default(),
            _ => 0,
        };
        let name = spec.name(number("ApiKey"));
        // What is listed and not served has no definition (KAFKA-18659).
        let span = spec.request(&name)?.versions;
        let versions = number("MinVersion").max(span.min)..=number("MaxVersion");
        listed.extend(versions.map(|version| (name.clone(), version)));
    }
    Ok(listed)
}

fn hold_all(spec: &Spec, peers: &[Peer; 2], turns: &[Turn<'_>], findings: &mut Findings) -> Done {
    for turn in turns.iter().filter(|turn| turn.conversation.alone) {
        hold(spec, peers, turn, findings);
    }
    for peer in peers {
        warm(spec, peer).map_err(|why| format!("{}: {why}", peer.name))?;
    }
    let others: Vec<&Turn<'_>> = turns.iter().filter(|turn| !turn.conversation.alone).collect();
    let next = AtomicUsize::new(0);
    let shared = Mutex::new(findings);
    std::thread::scope(|scope| {
        for _ in 0..AT_A_TIME {
            scope.spawn(|| {
                while let Some(turn) = others.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let transcripts = both(spec, peers, turn);
                    if let Ok(mut findings) = shared.lock() {
                        findings.take(turn.conversation, turn.version, peers, &transcripts);
                    }
                }
            });
        }
    });
    Ok(())
}

fn hold(spec: &Spec, peers: &[Peer; 2], turn: &Turn<'_>, findings: &mut Findings) {
    let transcripts = both(spec, peers, turn);
    findings.take(turn.conversation, turn.version, peers, &transcripts);
}

fn both(spec: &Spec, peers: &[Peer; 2], turn: &Turn<'_>) -> [run::Transcript; 2] {
    peers.each_ref().map(|peer| run::run(spec, peer, turn.conversation, turn.version))
}
