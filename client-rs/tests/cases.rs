//! The cases of `conformance/clients`: what a client does with what brokers do.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on ends here")]
#![allow(clippy::disallowed_methods, reason = "tests measure real time against a limit")]
#![allow(clippy::print_stdout, reason = "a case that fails shows its lines")]

mod patience;
mod sending;
mod stage;

use std::collections::BTreeMap;
use std::path::Path;
use std::time::{Duration, Instant};

use ottla::{Commit, Consumer, ErrorKind, Options, TopicPartition};
use patience::{LIMIT, within_limit};
use sending::Sending;
use stage::{Act, Headers, Stage, TOPIC, api, headers, pieces};

/// What passes is told no earlier.
const OBSTACLE: Duration = Duration::from_secs(1);

/// A case under way.
struct Case {
    began: Instant,
    stage: Stage,
    options: Vec<(String, String)>,
    consumer: Option<Consumer>,
    sending: Sending,
    /// Offsets given of each partition, and not looked at yet.
    given: BTreeMap<i32, Vec<i64>>,
    delivered: usize,
    /// Headers of records that were given.
    headers: BTreeMap<(i32, i64), Headers>,
}

fn part(text: &str) -> TopicPartition {
    TopicPartition::new(TOPIC, text.parse().unwrap_or_else(|_| panic!("no partition: {text}")))
}

/// `3..5,9` as 3, 4, 5, 9; `none` as nothing.
fn offsets(text: &str) -> Vec<i64> {
    if text == "none" {
        return Vec::new();
    }
    let range = |word: &str| {
        let (first, last) = word.split_once("..").unwrap_or((word, word));
        first.parse::<i64>().unwrap()..=last.parse::<i64>().unwrap()
    };
    text.split(',').flat_map(range).collect()
}

impl Case {
    fn new(brokers: i32) -> Self {
        let (began, options, consumer) = (Instant::now(), Vec::new(), None);
        let (stage, given) = (Stage::start(brokers), BTreeMap::new());
        let sending = Sending::default();
        let headers = BTreeMap::new();
        Self { began, stage, options, consumer, sending, given, delivered: 0, headers }
    }

    /// The client; it is made when a line first needs it.
    fn consumer(&mut self) -> Consumer {
        let (stage, options) = (&self.stage, &self.options);
        let consumer = self.consumer.get_or_insert_with(|| {
            let mut all = Options::new()
                .set("bootstrap.servers", &stage.bootstrap())
                .and_then(|all| all.set("group.id", "g"))
                .and_then(|all| all.set("auto.offset.reset", "earliest"))
                .and_then(|all| all.set("heartbeat.interval.ms", "20"))
                .unwrap();
            for (name, value) in options {
                all = all.set(name, value).unwrap();
            }
            Consumer::new(&all).unwrap()
        });
        consumer.clone()
    }

    /// The same; the group gives it its partitions, unless a line before has named them.
    fn reader(&mut self) -> Consumer {
        let begun = self.consumer.is_some();
        let consumer = self.consumer();
        if !begun {
            consumer.subscribe(&[TOPIC]).unwrap();
        }
        consumer
    }

    fn line(&mut self, line: &str) {
        let (word, rest) = line.split_once(' ').unwrap_or((line, ""));
        match word {
            "partitions" => self.stage.with(|world| {
                let count: i32 = rest.parse().unwrap();
                world.logs = (0..count).map(|at| (at, Vec::new())).collect();
                world.share = (0..count).collect();
            }),
            "option" => {
                let (name, value) = rest.split_once(' ').unwrap_or((rest, ""));
                self.options.push((name.into(), value.into()));
            }
            "log" | "record" | "start" | "committed" | "leader" => self.state(word, rest),
            "limit" => self.stage.with(|world| world.batch_max = rest.parse().unwrap()),
            "others" => self.stage.with(|world| world.others = rest.parse().unwrap()),
            "newest" => self.stage.with(|world| {
                let (key, version) = rest.split_once(' ').unwrap();
                world.newest.insert(api(key).into(), version.parse().unwrap());
            }),
            "elect" | "move" | "recreate" | "rebalance" | "gone" | "back" | "hold" | "go" => {
                self.event(word, rest);
            }
            "act" => self.act(rest),
            "expect" => self.expect(rest),
            _ if self.sending.line(&self.stage, &self.options, word, rest) => {}
            _ => self.client(word, rest),
        }
    }

    fn state(&self, word: &str, rest: &str) {
        let (at, rest) = rest.split_once(' ').unwrap();
        let at: i32 = at.parse().unwrap();
        self.stage.with(|world| match word {
            "log" => {
                let found = pieces(rest, world.epoch);
                world.logs.get_mut(&at).unwrap().extend(found);
            }
            "record" => world.append_with(at, &headers(rest)),
            "start" => drop(world.starts.insert(at, rest.parse().unwrap())),
            "committed" => {
                world.commits.retain(|(of, _)| *of != at);
                world.committed.insert(at, rest.parse().unwrap());
            }
            _ => drop(world.leaders.insert(at, rest.parse().unwrap())),
        });
    }

    fn event(&self, word: &str, rest: &str) {
        self.stage.with(|world| match word {
            // Another broker's log takes the place of this one, in a new epoch.
            "elect" => {
                let (at, end) = rest.split_once(' ').unwrap();
                let end: i64 = end.parse().unwrap();
                world.epoch += 1;
                let log = world.logs.get_mut(&at.parse().unwrap()).unwrap();
                log.retain(|(base, ..)| *base < end);
            }
            "move" => {
                let (at, to) = rest.split_once(' ').unwrap();
                let (to, told_by) = to.split_once(' ').unwrap_or((to, ""));
                world.lead(at.parse().unwrap(), to.parse().unwrap(), told_by);
            }
            "recreate" => world.recreate(),
            "rebalance" => {
                world.share = offsets(rest).iter().map(|&at| i32::try_from(at).unwrap()).collect();
                world.rebalance = true;
            }
            "gone" => world.gone.push(rest.parse().unwrap()),
            "back" => world.gone.retain(|node| node.to_string() != rest),
            "hold" => world.held.push(rest.parse().unwrap()),
            _ => world.held.retain(|node| node.to_string() != rest),
        });
    }

    /// `act API BROKER WHAT then WHAT…`, for the next requests of that API to that broker.
    fn act(&self, rest: &str) {
        let mut words = rest.splitn(3, ' ');
        let (key, node) = (api(words.next().unwrap()), words.next().unwrap().parse().unwrap());
        for act in words.next().unwrap().split(" then ") {
            self.stage.with(|world| world.act(key, node, Act::parse(act)));
        }
    }

    fn client(&mut self, word: &str, rest: &str) {
        let consumer = if word == "assign" { self.consumer() } else { self.reader() };
        let (at, rest) = rest.split_once(' ').unwrap_or((rest, ""));
        match word {
            "read" => self.read(at, &offsets(rest)),
            "error" => {
                let kind = ErrorKind::from_name(at).unwrap_or_else(|| panic!("no kind {at}"));
                let error = self.fault();
                assert_eq!(error.kind(), kind, "{error:?}");
                let text = error.to_string();
                assert!(text.contains(rest), "{rest} is not in: {text}");
            }
            "assigned" => {
                let wanted: Vec<_> = offsets(at).iter().map(|at| part(&at.to_string())).collect();
                self.until("that assignment", |_| consumer.assignment() == wanted);
                // What was given before of others was given rightly.
                self.given.retain(|at, _| wanted.contains(&TopicPartition::new(TOPIC, *at)));
            }
            "assign" => {
                let wanted: Vec<_> = offsets(at).iter().map(|at| part(&at.to_string())).collect();
                consumer.assign(&wanted).unwrap();
                self.given.retain(|at, _| wanted.contains(&TopicPartition::new(TOPIC, *at)));
            }
            "seek" => {
                consumer.seek(&part(at), rest.parse().unwrap()).unwrap();
                self.given.remove(&part(at).partition);
            }
            "before-end" => {
                consumer.seek_before_end(&part(at), rest.parse().unwrap(), LIMIT).unwrap();
                self.given.remove(&part(at).partition);
            }
            "commit" => consumer.commit(Commit::Finished, LIMIT).unwrap(),
            "headers" => {
                let (offset, wanted) = rest.split_once(' ').unwrap();
                let place = (part(at).partition, offset.parse().unwrap());
                assert_eq!(self.headers[&place], headers(wanted), "headers at {place:?}");
            }
            "pause" | "resume" => {
                let parts: Vec<_> = offsets(at).iter().map(|at| part(&at.to_string())).collect();
                let done =
                    if word == "pause" { consumer.pause(&parts) } else { consumer.resume(&parts) };
                done.unwrap();
            }
            other => panic!("no such line: {other}"),
        }
    }

    /// Takes what comes until `enough`.
    fn until(&mut self, what: &str, mut enough: impl FnMut(&mut Self) -> bool) {
        let (consumer, deadline) = (self.reader(), Instant::now() + LIMIT);
        while !enough(self) {
            assert!(Instant::now() < deadline, "{what} never came: {:?}", self.given);
            let polled = consumer.poll(Duration::from_millis(5));
            if polled.as_ref().is_err_and(|error| self.may_be_told(error)) {
                continue;
            }
            if let Some(record) = polled.unwrap() {
                let text = std::str::from_utf8(record.value().unwrap()).unwrap();
                assert_eq!(text, record.offset().to_string(), "the record is another's");
                self.delivered += text.len();
                let own = |(name, value): (&[u8], Option<&[u8]>)| {
                    (name.to_vec(), value.map(<[u8]>::to_vec))
                };
                let headers = record.headers().iter().map(own).collect();
                self.headers.insert((record.partition(), record.offset()), headers);
                self.given.entry(record.partition()).or_default().push(record.offset());
            }
        }
    }

    /// Whether an error may be told in passing: one of what stands in the way of all reading, once
    /// it has for so long.
    fn may_be_told(&self, error: &ottla::Error) -> bool {
        let passes = error.retriable() && error.kind() != ErrorKind::CorruptBatch;
        passes && self.began.elapsed() >= OBSTACLE
    }

    /// These offsets of a partition come next, and in this order.
    fn read(&mut self, at: &str, wanted: &[i64]) {
        let index = part(at).partition;
        self.until(&format!("{wanted:?} of {at}"), |case| {
            case.given.get(&index).map_or(0, Vec::len) >= wanted.len()
        });
        let given = self.given.entry(index).or_default();
        let first: Vec<i64> = given.drain(..wanted.len()).collect();
        assert_eq!(first, wanted, "of partition {at}");
    }

    fn fault(&mut self) -> ottla::Error {
        let (consumer, deadline) = (self.reader(), Instant::now() + LIMIT);
        loop {
            assert!(Instant::now() < deadline, "no error came");
            match consumer.poll(Duration::from_millis(5)) {
                Ok(None) => {}
                Ok(Some(record)) => panic!("a record came in place of an error: {record:?}"),
                Err(error) => return error,
            }
        }
    }

    fn expect(&mut self, rest: &str) {
        let (what, rest) = rest.split_once(' ').unwrap_or((rest, ""));
        let (at, rest) = rest.split_once(' ').unwrap_or((rest, ""));
        match what {
            // Offsets at which a partition was asked of any broker and got something.
            "fetched" => {
                let index = part(at).partition;
                let found: Vec<i64> = self.stage.with(|world| {
                    let mine = world.fetched.iter().filter(|(_, at, _)| *at == index);
                    mine.map(|(.., offset)| *offset).collect()
                });
                assert_eq!(found, offsets(rest), "fetches of {at}");
            }
            // The brokers that were asked, in order.
            "asked" => {
                let index = part(at).partition;
                let found: Vec<i64> = self.stage.with(|world| {
                    let mine = world.fetched.iter().filter(|(_, at, _)| *at == index);
                    mine.map(|(node, ..)| i64::from(*node)).collect()
                });
                assert_eq!(found, offsets(rest), "brokers asked for {at}");
            }
            "position" => {
                let (consumer, offset) = (self.consumer(), rest.parse().unwrap());
                self.until(&format!("position {offset} of {at}"), |_| {
                    consumer.position(&part(at)) == Some(offset)
                });
                self.nothing_given();
            }
            "committed" => {
                let found = self.stage.with(|world| world.committed[&part(at).partition]);
                assert_eq!(found.to_string(), rest, "committed of {at}");
            }
            "resets" => {
                let resets = self.consumer().stats().resets;
                assert_eq!(resets.to_string(), at, "positions that did not hold");
            }
            "retries" => self.sending.expect_retries(at),
            "members" => {
                let joins = self.stage.with(|world| world.generation);
                assert_eq!(joins.to_string(), at, "times that the group was joined");
            }
            "patience" => {
                let impatient = self.stage.with(|world| world.impatient.clone());
                assert_eq!(impatient, Vec::<String>::new());
            }
            "described" => {
                let others = self.stage.with(|world| {
                    let all = world.described.iter().filter(|name| *name != TOPIC);
                    all.cloned().collect::<Vec<_>>()
                });
                assert_eq!(others, Vec::<String>::new(), "topics that nobody uses");
            }
            // Bytes sent in all by the brokers: so many times what stands in their logs at most.
            "sent" => self.stage.with(|world| {
                let logs = world.logs.values().flatten().map(|(.., bytes)| bytes.len());
                let (sent, logged) = (world.sent, logs.sum::<usize>());
                let most = logged * at.parse::<usize>().unwrap() / 100;
                assert!(sent <= most, "{sent} bytes were fetched of {logged}");
            }),
            other => sending::expect(&self.stage, other, at, rest),
        }
    }

    fn nothing_given(&self) {
        let left = self.given.values().filter(|given| !given.is_empty()).count();
        assert_eq!(left, 0, "records that no line reads: {:?}", self.given);
    }
}

/// Runs a file's cases; how many there were.
fn run(file: &str) -> usize {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../conformance/clients");
    let text = std::fs::read_to_string(folder.join(file)).unwrap();
    let mut count = 0;
    for case in text.split("\ncase ").skip(1) {
        let (name, lines) = case.split_once('\n').unwrap();
        println!("{file}: {name}");
        count += 1;
        let lines: Vec<&str> = lines
            .lines()
            .map(str::trim)
            .filter(|line| !line.is_empty() && !line.starts_with('#'))
            .collect();
        let brokers = lines.iter().find_map(|line| line.strip_prefix("brokers "));
        let mut under_way = Case::new(brokers.map_or(1, |count| count.parse().unwrap()));
        under_way.line("partitions 1");
        for line in lines.iter().filter(|line| !line.starts_with("brokers ")) {
            println!("  {line}");
            under_way.line(line);
        }
        under_way.nothing_given();
        under_way.sending.end();
        if let Some(consumer) = &under_way.consumer {
            consumer.close(LIMIT).unwrap();
        }
    }
    count
}

macro_rules! files {
    ($($name:ident $count:literal,)+) => {
        $(#[test]
        fn $name() {
            within_limit(|| {
                assert_eq!(run(concat!(stringify!($name), ".txt")), $count, "cases of the file");
            });
        })+

        #[test]
        fn every_file_of_cases_is_run() {
            let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../conformance/clients");
            let files = std::fs::read_dir(folder).unwrap().map(|file| file.unwrap().file_name());
            let files = files.filter_map(|name| name.to_str()?.strip_suffix(".txt").map(str::to_owned));
            let mut files: Vec<String> = files.collect();
            files.sort_unstable();
            assert_eq!(files, [$(stringify!($name)),+]);
        }
    };
}

files! {
    assigned 8,
    leaders 12,
    malformed 11,
    order 14,
    outcomes 14,
    positions 16,
    records 3,
    replicas 3,
}
