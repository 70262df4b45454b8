//! Every codec both ways: our broker and client, kcat, and Apache Kafka's own tools and broker.
//!
//! kcat writes snappy as one raw block, Apache Kafka in the framing of its Java library.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::outcome::{Count, Doing, Done};
use crate::process::Run;
use crate::tools::{self, KCAT};
use crate::workspace::{Workspace, write};

use super::clients::Client;
use super::kafka::Kafka;
use super::kcat::{Kcat, flat, keyed_lines, same_records};
use super::ours::{OurBroker, Profile};

const CODECS: [&str; 5] = ["none", "gzip", "snappy", "lz4", "zstd"];
/// Codecs that are written at a level of their own too.
const LEVELS: [(&str, i32); 3] = [("gzip", 1), ("lz4", 12), ("zstd", 19)];
const RECORDS: usize = 1_000;
const LIMIT: Duration = Duration::from_mins(1);

pub(super) fn everywhere(workspace: &Workspace) -> Done<Count> {
    tools::need(&[&KCAT])?;
    let classes = Kafka::fetch(workspace)?;
    let program = OurBroker::build(workspace, Profile::Dev)?;
    let client = Client::build(workspace)?;
    let scratch = workspace.scratch("codecs")?;
    let mut total = Count::default();
    let ours = OurBroker::start(&program, scratch.path(), &["num.partitions=1"])?;
    let server = "our broker";
    let field = Field::new(server, ours.address(), &client, &classes, scratch.path());
    total += field.all_write_and_read();
    ours.stop()?;
    for codec in ["uncompressed", "gzip", "snappy", "lz4", "zstd"] {
        total += kept_in(&program, codec, &[], workspace.scratch(codec)?.path())?;
    }
    let level = ["compression.lz4.level=12"];
    total += kept_in(&program, "lz4", &level, workspace.scratch("lz4-level")?.path())?;
    let scratch = workspace.scratch("codecs-kafka")?;
    let (kafka, _) = Kafka::start_timed(&classes, scratch.path())?;
    let server = "Apache Kafka";
    let field = Field::new(server, kafka.address(), &client, &classes, scratch.path());
    total += field.all_write_and_read();
    total += field.recompressed_by_kafka();
    kafka.stop()?;
    Ok(total)
}

/// A server, and everybody who can write to it and read from it.
struct Field<'a> {
    server: &'a str,
    bootstrap: String,
    kcat: Kcat,
    ours: Client,
    classes: &'a Path,
    dir: PathBuf,
}

impl<'a> Field<'a> {
    fn new(
        server: &'a str,
        bootstrap: String,
        program: &Path,
        classes: &'a Path,
        dir: &Path,
    ) -> Self {
        Self {
            server,
            kcat: Kcat::new(bootstrap.clone()),
            ours: Client::new(program, &bootstrap, dir),
            bootstrap,
            classes,
            dir: dir.to_owned(),
        }
    }

    /// All three write each codec, ours at two levels, and each of them reads all of it.
    fn all_write_and_read(&self) -> Count {
        let mut total = Count::default();
        for codec in CODECS {
            let mut sent = Vec::new();
            let mut writes = |who: &str, write: &dyn Fn(&[String]) -> Done| {
                let lines = keyed_lines(&format!("{who}-{codec}"), RECORDS);
                let outcome = write(&lines).map(Ok);
                let name = format!("{who} writes {codec} to {}", self.server);
                sent.extend(lines);
                Count::check(&name, flat(outcome))
            };
            total +=
                writes("kcat", &|lines| self.kcat.produce(codec, lines, &self.dir, &["-z", codec]));
            let option = format!("compression.type={codec}");
            total += writes("our client", &|lines| self.ours.produce(codec, lines, &[&option]));
            total += writes("Java", &|lines| self.java_writes(codec, lines));
            if let Some((_, level)) = LEVELS.iter().find(|(leveled, _)| *leveled == codec) {
                let level = format!("compression.{codec}.level={level}");
                total += writes("our client, at a level,", &|lines| {
                    self.ours.produce(codec, lines, &[&option, &level])
                });
            }
            let count = sent.len();
            let reads = |who: &str, read: Done<Vec<String>>| {
                let name = format!("{who} reads all {codec} from {}", self.server);
                Count::check(&name, flat(read.map(|read| same_lines(&sent, &read))))
            };
            total += reads("kcat", self.kcat.consume(codec));
            total += reads("our client", self.ours.consume(codec, "ours", count));
            total += reads("Java", self.java_reads(codec, count));
        }
        total
    }

    fn java(&self, class: &str) -> Run {
        let java = Run::new("java").args(["-Xmx256M", "-Dlog4j2.level=OFF", "-cp"]);
        let java = java.arg(self.classes).arg(class).args(["--bootstrap-server", &self.bootstrap]);
        java.dir(&self.dir).quiet().limit(LIMIT)
    }

    fn java_writes(&self, codec: &str, lines: &[String]) -> Done {
        let file = self.dir.join(format!("{codec}.java"));
        write(&file, lines.join("\n") + "\n")?;
        let input = File::open(&file).doing(format_args!("cannot open {}", file.display()))?;
        let writing = self.java("org.apache.kafka.tools.ConsoleProducer");
        let writing = writing.args(["--topic", codec, "--compression-codec", codec]);
        let pairs = ["--reader-property", "parse.key=true", "--reader-property", "key.separator=:"];
        writing.args(pairs).input(input).check().map(|_| ())
    }

    fn java_reads(&self, topic: &str, count: usize) -> Done<Vec<String>> {
        let reading = self.java("org.apache.kafka.tools.consumer.ConsoleConsumer");
        let reading = reading.args(["--topic", topic, "--from-beginning", "--max-messages"]);
        let pairs = ["print.key=true", "key.separator=:"];
        let reading = reading.arg(count.to_string()).args(["--timeout-ms", "30000"]);
        let reading =
            pairs.iter().fold(reading, |run, pair| run.args(["--formatter-property", pair]));
        // The tool also tells how many it read.
        Ok(reading.check()?.into_iter().filter(|line| line.starts_with("key-")).collect())
    }

    /// Topics that Apache Kafka keeps in a codec of their own: it reads what we write, packs it
    /// anew, and we read that.
    fn recompressed_by_kafka(&self) -> Count {
        let mut total = Count::default();
        for (at, codec) in CODECS.iter().enumerate().skip(1) {
            let topic = format!("kept-{codec}");
            let option = format!("compression.type={}", CODECS[(at + 1) % CODECS.len()]);
            let creating = self.java("org.apache.kafka.tools.TopicCommand");
            let creating = creating.args(["--create", "--topic", &topic, "--partitions", "1"]);
            let kept = format!("compression.type={codec}");
            let created = creating.args(["--config", &kept]).check();
            let sent = keyed_lines(&topic, RECORDS);
            let read = created
                .and_then(|_| self.ours.produce(&topic, &sent, &[&option]))
                .and_then(|()| self.ours.consume(&topic, "ours", RECORDS));
            let name = format!("our client reads {codec} that Apache Kafka packed");
            total += Count::check(&name, flat(read.map(|read| same_records(&sent, &read))));
        }
        total
    }
}

/// The same lines, in any order: each writer has its own way from keys to partitions.
fn same_lines(sent: &[String], read: &[String]) -> Result<(), String> {
    let sorted = |lines: &[String]| {
        let mut lines = lines.to_vec();
        lines.sort();
        lines
    };
    same_records(&sorted(sent), &sorted(read))
}

/// Our broker keeps all batches in one codec, and kcat reads what it packed.
fn kept_in(program: &Path, codec: &str, level: &[&str], dir: &Path) -> Done<Count> {
    let option = format!("compression.type={codec}");
    let options = [&["num.partitions=1", option.as_str()], level].concat();
    let broker = OurBroker::start(program, dir, &options)?;
    let kcat = Kcat::new(broker.address());
    let mut total = Count::default();
    for sent_in in CODECS {
        let sent = keyed_lines(sent_in, RECORDS);
        let sending = kcat.produce(sent_in, &sent, dir, &["-z", sent_in]);
        let reading = sending.and_then(|()| kcat.consume(sent_in));
        let at = level.concat();
        let name = format!("kcat reads {codec} that our broker packed from {sent_in} {at}");
        total +=
            Count::check(name.trim_end(), flat(reading.map(|read| same_records(&sent, &read))));
    }
    broker.stop()?;
    Ok(total)
}
