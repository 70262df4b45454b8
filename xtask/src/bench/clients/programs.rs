//! The clients as programs: how each is built, and what it is told to do a row.

use std::path::PathBuf;

use super::plan::Plan;
use super::row::{Mode, Row};
use crate::interop::Kafka;
use crate::outcome::{Doing, Done, Stop};
use crate::process::Run;
use crate::tools::{self, CC, GO, JDK, MAKE};
use crate::workspace::{Workspace, copy_dir, fresh_dir, read, write};

/// A client that is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Client {
    Ours,
    /// librdkafka by `rd_kafka_produce`, or reading.
    Librdkafka,
    /// librdkafka by `rd_kafka_produce_batch`.
    LibrdkafkaBatch,
    FranzGo,
    Java,
    /// No client: the least that the protocol takes.
    Floor,
}

impl Client {
    const ALL: [Self; 6] = [
        Self::Ours,
        Self::Librdkafka,
        Self::LibrdkafkaBatch,
        Self::FranzGo,
        Self::Java,
        Self::Floor,
    ];

    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Ours => "ours",
            Self::Librdkafka => "librdkafka",
            Self::LibrdkafkaBatch => "librdkafka-batch",
            Self::FranzGo => "franz-go",
            Self::Java => "java",
            Self::Floor => "floor",
        }
    }

    /// Those of these names that can do the mode; without a name, all that can.
    pub(super) fn named(names: &[&str], mode: Mode) -> Done<Vec<Self>> {
        let known = |name: &&str| Self::ALL.iter().any(|client| client.name() == *name);
        if let Some(name) = names.iter().find(|name| !known(name)) {
            let all = Self::ALL.map(Self::name).join(", ");
            return Err(format!("no client called {name}; there are: {all}").into());
        }
        let wanted = |client: &Self| names.is_empty() || names.contains(&client.name());
        let can = |client: &Self| match client {
            Self::LibrdkafkaBatch => mode == Mode::Produce,
            Self::Floor => mode != Mode::Latency,
            _ => true,
        };
        Ok(Self::ALL.into_iter().filter(|client| wanted(client) && can(client)).collect())
    }

    /// Whether it can do a row: the floor has no choice of its own.
    pub(super) fn can(self, row: &Row) -> bool {
        self != Self::Floor || row.spread == "turn"
    }

    /// The words that tell it the row, and its options.
    pub(super) fn words(self, row: &Row) -> Vec<String> {
        let call = if self == Self::LibrdkafkaBatch { "batch" } else { "one" };
        let mut words = vec![
            format!("client={}", if self == Self::Floor { "floor" } else { "ours" }),
            format!("bytes={}", row.bytes),
            format!("partitions={}", row.partitions),
            format!("spread={}", row.spread),
            format!("call={call}"),
            "rate=1000".to_owned(),
        ];
        let options = self.options(row);
        words.extend(options.iter().map(|(name, value)| format!("option.{name}={value}")));
        words
    }

    /// The options that are set, in the client's own names; all others are its defaults.
    pub(super) fn options(self, row: &Row) -> Vec<(&'static str, String)> {
        let mut options = match row.mode {
            Mode::Consume => return self.reading(),
            Mode::Produce | Mode::Latency => self.writing(row),
        };
        options.push(("acks", row.acks.clone()));
        // Others wait for company even when nobody comes; they are told not to.
        let lingers = row.mode == Mode::Produce || self == Self::Ours;
        options.push(("linger.ms", if lingers { "5" } else { "0" }.to_owned()));
        options
    }

    fn reading(self) -> Vec<(&'static str, String)> {
        let mut options = match self {
            // They stall on small records without it.
            Self::Librdkafka | Self::LibrdkafkaBatch => {
                vec![("fetch.queue.backoff.ms", "5".to_owned())]
            }
            // It has functions for all that is needed.
            Self::FranzGo => return Vec::new(),
            Self::Ours | Self::Java | Self::Floor => Vec::new(),
        };
        options.push(("auto.offset.reset", "earliest".to_owned()));
        options.push(("enable.auto.commit", "false".to_owned()));
        options
    }

    fn writing(self, row: &Row) -> Vec<(&'static str, String)> {
        let codec = row.codec.clone();
        match self {
            Self::Ours | Self::Floor => {
                vec![("compression.type", codec), ("batch.size", "262144".to_owned())]
            }
            Self::Librdkafka | Self::LibrdkafkaBatch => vec![
                ("compression.codec", codec),
                // The others do so by themselves.
                ("enable.idempotence", (row.acks == "all").to_string()),
                ("queue.buffering.max.messages", "1000000".to_owned()),
            ],
            Self::FranzGo => {
                vec![("compression", codec), ("max.buffered.records", "200000".to_owned())]
            }
            Self::Java => vec![
                ("compression.type", codec),
                ("batch.size", "262144".to_owned()),
                ("buffer.memory", "67108864".to_owned()),
            ],
        }
    }
}

/// What is started for each client.
#[derive(Debug)]
pub(super) struct Programs {
    ours: PathBuf,
    librdkafka: PathBuf,
    franz_go: PathBuf,
    /// The class path.
    java: std::ffi::OsString,
}

impl Programs {
    /// Builds those that the plan needs.
    pub(super) fn build(workspace: &Workspace, plan: &Plan) -> Done<Self> {
        let needs = |clients: &[Client]| plan.clients().iter().any(|one| clients.contains(one));
        let build = ["--release", "--package", "ottla-examples", "--bin", "bench_client"];
        workspace.cargo("build").args(build).quiet().check()?;
        let ours = workspace.target.join("release/bench_client");
        // It fills the topics that are read, too.
        let fills = plan.mode == Mode::Consume;
        let mut programs = Self { ours, ..Self::none() };
        if fills || needs(&[Client::Librdkafka, Client::LibrdkafkaBatch]) {
            programs.librdkafka = librdkafka(workspace)?;
        }
        if needs(&[Client::FranzGo]) {
            programs.franz_go = franz_go(workspace)?;
        }
        if needs(&[Client::Java]) {
            programs.java = java(workspace)?;
        }
        Ok(programs)
    }

    fn none() -> Self {
        Self {
            ours: PathBuf::new(),
            librdkafka: PathBuf::new(),
            franz_go: PathBuf::new(),
            java: std::ffi::OsString::new(),
        }
    }

    /// The program of a client.
    pub(super) fn run(&self, client: Client) -> Done<Run> {
        let program = match client {
            Client::Ours | Client::Floor => &self.ours,
            Client::Librdkafka | Client::LibrdkafkaBatch => &self.librdkafka,
            Client::FranzGo => &self.franz_go,
            Client::Java => {
                let java = Run::new("java").args(["-Xmx1G", "-Xms1G", "-XX:+UseG1GC", "-cp"]);
                return Ok(java.arg(&self.java).arg("JavaClient"));
            }
        };
        if program.as_os_str().is_empty() {
            return Err(format!("{} was not built", client.name()).into());
        }
        Ok(Run::new(program))
    }
}

/// librdkafka from the sources that a crate holds, once for each version, and our program on it.
fn librdkafka(workspace: &Workspace) -> Done<PathBuf> {
    tools::need(&[&CC, &MAKE])?;
    let here = workspace.root.join("interop/bench/librdkafka");
    let list = workspace.cargo("metadata").args(["--format-version", "1", "--manifest-path"]);
    let listed = list.arg(here.join("Cargo.toml")).silent().check()?.join("\n");
    let listed: serde_json::Value =
        serde_json::from_str(&listed).map_err(|error| format!("cargo metadata: {error}"))?;
    let packages = listed["packages"].as_array().map(Vec::as_slice).unwrap_or_default();
    let manifest = packages.iter().find(|package| package["name"] == "rdkafka-sys");
    let manifest = manifest.and_then(|package| package["manifest_path"].as_str());
    let manifest = PathBuf::from(manifest.ok_or("cargo does not know rdkafka-sys")?);
    let home = workspace.cache("interop")?.join("librdkafka");
    let (sources, stamp) = (home.join("src"), home.join("built"));
    let wanted = manifest.to_string_lossy().into_owned();
    if !(stamp.is_file() && read(&stamp)? == wanted) {
        fresh_dir(&home)?;
        copy_dir(&manifest.with_file_name("librdkafka"), &home, &[])?;
        let without = ["ssl", "gssapi", "curl", "zstd", "zlib", "syslog"];
        let without = without.map(|part| format!("--disable-{part}"));
        Run::new("./configure").args(without).dir(&home).quiet().check()?;
        Run::new("make").args(["-C", "src", "-j2", "librdkafka.a"]).dir(&home).quiet().check()?;
        write(&stamp, wanted)?;
    }
    let program = home.join("bench_client");
    let compile =
        Run::new("cc").args(["-O2", "-Wall", "-Wextra", "-Werror", "-isystem"]).arg(&sources);
    let compile = compile.arg(here.join("client.c")).arg(sources.join("librdkafka.a"));
    compile.args(["-lpthread", "-lm", "-ldl", "-lrt", "-o"]).arg(&program).quiet().check()?;
    Ok(program)
}

fn franz_go(workspace: &Workspace) -> Done<PathBuf> {
    tools::need(&[&GO])?;
    let program = workspace.cache("interop")?.join("franz-go");
    let build = Run::new("go").args(["build", "-mod=readonly", "-o"]).arg(&program).arg(".");
    build.dir(&workspace.root.join("interop/bench/franz")).quiet().check()?;
    Ok(program)
}

/// The Java program's class path.
fn java(workspace: &Workspace) -> Done<std::ffi::OsString> {
    tools::need(&[&JDK])?;
    let jars = Kafka::fetch(workspace)?;
    let classes = workspace.cache("interop/java-client")?;
    let compile = Run::new("javac").args(["-encoding", "UTF-8", "-d"]).arg(&classes);
    let source = workspace.root.join("interop/bench/JavaClient.java");
    compile.arg("-cp").arg(&jars).arg(source).quiet().check()?;
    std::env::join_paths([classes, jars])
        .map_err(std::io::Error::other)
        .doing("a class path")
        .map_err(|stop| Stop::Failed(stop.to_string()))
}

#[cfg(test)]
mod tests {
    use super::super::plan::Plan;
    use super::*;

    #[test]
    fn all_clients_of_a_row_get_the_same_acks_and_the_same_linger() {
        let words = ["server=kafka", "bytes=100", "partitions=12", "codec=lz4", "acks=all"];
        let plan = Plan::new(Mode::Produce, &words).unwrap();
        let row = &plan.rows[0];
        for client in plan.clients_of(row) {
            let words = client.words(row);
            for wanted in ["option.acks=all", "option.linger.ms=5", "partitions=12"] {
                assert!(words.iter().any(|word| word == wanted), "{client:?}: {words:?}");
            }
            assert!(words.iter().any(|word| word.ends_with("=lz4")), "{client:?}: {words:?}");
        }
    }
}
