//! Who may name whom, as one table: a word, where it is watched, where it may stand.

use super::Finding;
use super::source::Source;
use super::text::has_word;

struct Rule {
    /// A path or name, as code writes it.
    word: &'static str,
    /// The folders where it is watched.
    within: &'static [&'static str],
    /// The folders and files among them that may name it.
    allowed: &'static [&'static str],
    why: &'static str,
}

const PRODUCT: &[&str] = &[
    "protocol/src/",
    "storage/src/",
    "broker/src/",
    "client-rs/src/",
    "bindings-python/src/",
    "bindings-node/src/",
    "bindings-c/src/",
];
const BINDINGS: &[&str] = &["bindings-python/src/", "bindings-node/src/", "bindings-c/src/"];
const STATE: &[&str] = &["broker/src/state/", "client-rs/src/state/"];
/// `broker` starts and ends the runtime; `node.rs` holds the word that all its tasks watch.
const RUNTIME: &[&str] = &[
    "broker/src/driver/",
    "broker/src/server/",
    "broker/src/broker",
    "broker/src/node.rs",
    "client-rs/src/driver/",
];
/// Broker code outside `handlers/` that (de)serialises frames, or Kafka's own records.
const MESSAGES: &[&str] = &[
    "broker/src/handlers/",
    "broker/src/server/dispatch.rs",
    "broker/src/server/dispatch/",
    "broker/src/state/group_records.rs",
    "broker/src/state/metadata_records.rs",
];

const RULES: &[Rule] = &[
    Rule {
        word: "tokio",
        within: PRODUCT,
        allowed: RUNTIME,
        why: "the async runtime stands in driver/ and server/ alone",
    },
    Rule {
        word: "async_trait",
        within: PRODUCT,
        allowed: RUNTIME,
        why: "async traits stand in driver/ and server/ alone",
    },
    Rule {
        word: "memmap2",
        within: PRODUCT,
        allowed: &["storage/src/files/mapped.rs"],
        why: "only sealed index files are mapped",
    },
    Rule {
        word: "pyo3",
        within: PRODUCT,
        allowed: &["bindings-python/src/"],
        why: "Python stays in its binding",
    },
    Rule {
        word: "napi",
        within: PRODUCT,
        allowed: &["bindings-node/src/"],
        why: "Node stays in its binding",
    },
    Rule {
        word: "ottla::",
        within: &["protocol/src/", "storage/src/", "broker/src/"],
        allowed: &[],
        why: "the client is not known to what it talks to",
    },
    Rule {
        word: "ottla_storage",
        within: &["protocol/src/", "client-rs/src/"],
        allowed: &[],
        why: "only the broker keeps logs",
    },
    Rule {
        word: "ottla_storage",
        within: BINDINGS,
        allowed: &[],
        why: "a binding knows the client and the embedded broker",
    },
    Rule {
        word: "ottla_protocol",
        within: BINDINGS,
        allowed: &[],
        why: "a binding knows the client and the embedded broker",
    },
    Rule {
        word: "ottla_broker",
        within: &["protocol/src/", "storage/src/", "client-rs/src/"],
        allowed: &[],
        why: "only bindings start a broker",
    },
    Rule {
        word: "ottla_broker",
        within: BINDINGS,
        allowed: &[
            "bindings-python/src/broker.rs",
            "bindings-node/src/broker.rs",
            "bindings-c/src/broker.rs",
        ],
        why: "the embedded broker has one file in each binding",
    },
    Rule {
        word: "ottla_testkit",
        within: PRODUCT,
        allowed: &[],
        why: "the product does not know what it is held against",
    },
    Rule {
        word: "crate::driver",
        within: STATE,
        allowed: &[],
        why: "a machine does not know its driver",
    },
    Rule {
        word: "crate::server",
        within: STATE,
        allowed: &[],
        why: "a machine does not know its driver",
    },
    Rule { word: "Instant::now", within: STATE, allowed: &[], why: "time is an argument" },
    Rule { word: "SystemTime", within: STATE, allowed: &[], why: "time is an argument" },
    Rule { word: "getrandom", within: STATE, allowed: &[], why: "chance is an argument" },
    Rule { word: "std::thread", within: STATE, allowed: &[], why: "a machine starts nothing" },
    Rule { word: "std::fs", within: STATE, allowed: &[], why: "a machine does no I/O" },
    Rule { word: "std::net", within: STATE, allowed: &[], why: "a machine does no I/O" },
    Rule {
        word: "ottla_protocol::messages",
        within: &["broker/src/"],
        allowed: MESSAGES,
        why: "handlers/ translate messages; list a file that must (tidy/imports.rs)",
    },
    Rule {
        word: "ErrorCode",
        within: &["client-rs/src/driver/"],
        // Which version of ApiVersions to ask in is part of opening a connection (KIP-511).
        allowed: &["client-rs/src/driver/broker/handshake.rs"],
        why: "a driver holds no policy: what an error means is a machine's to say",
    },
];

pub(super) fn check(source: &Source) -> Vec<Finding> {
    let under = |list: &[&str]| list.iter().any(|prefix| source.path.starts_with(prefix));
    let rules: Vec<&Rule> =
        RULES.iter().filter(|rule| under(rule.within) && !under(rule.allowed)).collect();
    if rules.is_empty() {
        return Vec::new();
    }
    let mut findings: Vec<Finding> = Vec::new();
    let lines = source.shipped().map(|(number, line)| (number, line.to_owned()));
    // A nested `use` names a path that no single line shows.
    for (number, line) in lines.chain(source.uses()) {
        for rule in &rules {
            if has_word(&line, rule.word) {
                let finding =
                    Finding::new(source, number, format!("names `{}`: {}", rule.word, rule.why));
                if !findings.contains(&finding) {
                    findings.push(finding);
                }
            }
        }
    }
    findings
}
