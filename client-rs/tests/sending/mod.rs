//! A case's producer: what it sends, what became of it, and what the brokers have of it.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::thread;
use std::time::{Duration, Instant};

use ottla::{Error, ErrorKind, Header, Options, Outcome, Producer, Record, Sent};

use crate::offsets;
use crate::patience::LIMIT;
use crate::stage::{Stage, TOPIC, api, headers};

/// How long an expectation has to come true that no call of the client waits for.
const PATIENCE: Duration = Duration::from_mins(1);

/// The lines that are a producer's.
const LINES: [&str; 11] = [
    "send", "with", "forget", "push", "persist", "stored", "rejected", "possibly", "not-sent",
    "flush", "close",
];

#[derive(Debug, Default)]
pub(crate) struct Sending {
    producer: Option<Producer>,
    /// What was sent to each partition, and no line has told the outcome of.
    open: BTreeMap<i32, VecDeque<Result<Sent, Error>>>,
}

impl Sending {
    /// The client; it is made when a line first needs it.
    fn producer(&mut self, stage: &Stage, options: &[(String, String)]) -> Producer {
        let producer = self.producer.get_or_insert_with(|| {
            let mut all = Options::new()
                .set("bootstrap.servers", &stage.bootstrap())
                .and_then(|all| all.set("retry.backoff.ms", "5"))
                .unwrap();
            for (name, value) in options {
                all = all.set(name, value).unwrap();
            }
            Producer::new(&all).unwrap()
        });
        producer.clone()
    }

    /// Whether the line is a producer's; then it has been played.
    pub(crate) fn line(
        &mut self,
        stage: &Stage,
        options: &[(String, String)],
        word: &str,
        rest: &str,
    ) -> bool {
        if !LINES.contains(&word) {
            return false;
        }
        let producer = self.producer(stage, options);
        let (at, more) = rest.split_once(' ').unwrap_or((rest, ""));
        let to = |value: &str| {
            producer.send(&Record::to(TOPIC).partition(at.parse().unwrap()).value(value))
        };
        match word {
            "send" => {
                let sent = values(more).into_iter().map(|value| to(&value));
                self.open.entry(at.parse().unwrap()).or_default().extend(sent);
            }
            "with" => {
                let (value, more) = more.split_once(' ').unwrap();
                let headers = headers(more);
                let headers: Vec<Header<'_>> = headers.iter().map(header).collect();
                let record = Record::to(TOPIC).partition(at.parse().unwrap());
                let sent = producer.send(&record.value(value).headers(&headers));
                self.open.entry(at.parse().unwrap()).or_default().push_back(sent);
            }
            "forget" => values(more).iter().for_each(|value| drop(to(value).unwrap())),
            "push" => {
                let record = Record::to(TOPIC).partition(at.parse().unwrap());
                for value in values(more) {
                    producer.push(&record.value(&value)).unwrap();
                }
            }
            "persist" => persist(stage, at.parse().unwrap(), more, || to(more)),
            "stored" => {
                for offset in offsets(more) {
                    let delivery = self.outcome(at).unwrap();
                    assert_eq!(
                        (delivery.partition.to_string(), delivery.offset),
                        (at.into(), offset)
                    );
                }
            }
            "rejected" => self.failed(at, more, Outcome::Rejected),
            "possibly" => self.failed(at, more, Outcome::PossiblyPersisted),
            "not-sent" => self.failed(at, more, Outcome::NotSent),
            "flush" if rest.is_empty() => producer.flush(LIMIT).unwrap(),
            "flush" => is_kind(&producer.flush(LIMIT).unwrap_err(), rest),
            "close" => {
                let began = Instant::now();
                producer.close(Duration::from_millis(rest.parse().unwrap())).unwrap();
                assert!(began.elapsed() < LIMIT / 4, "a close has an end: {:?}", began.elapsed());
            }
            other => unreachable!("{other} is no producer's"),
        }
        true
    }

    /// What became of the next record of a partition.
    fn outcome(&mut self, at: &str) -> Result<ottla::Delivery, Error> {
        let open = self.open.get_mut(&at.parse().unwrap());
        let next = open.and_then(VecDeque::pop_front);
        next.unwrap_or_else(|| panic!("nothing else was sent to {at}"))
            .and_then(|sent| sent.wait(LIMIT))
    }

    /// The next record of a partition failed so; the text of the error, or of its hint, says so.
    fn failed(&mut self, at: &str, rest: &str, outcome: Outcome) {
        let error = self.outcome(at).unwrap_err();
        assert_eq!(error.outcome(), Some(outcome), "{error:?}");
        let (kind, words) = rest.split_once(' ').unwrap_or((rest, ""));
        is_kind(&error, kind);
        let text = error.to_string();
        assert!(text.contains(words), "{words} is not in: {text}");
    }

    /// So often batches were sent again.
    pub(crate) fn expect_retries(&self, count: &str) {
        let stats = self.producer.as_ref().unwrap().stats();
        assert_eq!(stats.retries.to_string(), count, "batches sent again");
    }

    /// Nothing is left that no line has looked at.
    pub(crate) fn end(&self) {
        let left = self.open.values().map(VecDeque::len).sum::<usize>();
        assert_eq!(left, 0, "records of which no line tells the outcome");
        if let Some(producer) = &self.producer {
            producer.close(LIMIT).unwrap();
            assert_eq!(producer.stats().memory_used, 0, "room that nothing gives back");
        }
    }
}

fn header((name, value): &(Vec<u8>, Option<Vec<u8>>)) -> Header<'_> {
    Header { key: std::str::from_utf8(name).unwrap(), value: value.as_deref() }
}

fn is_kind(error: &Error, name: &str) {
    let kind = ErrorKind::from_name(name).unwrap_or_else(|| panic!("no kind {name}"));
    assert_eq!(error.kind(), kind, "{error:?}");
}

/// Sends a value until the log ends with it, one after the other.
fn persist(stage: &Stage, at: i32, value: &str, mut send: impl FnMut() -> Result<Sent, Error>) {
    let stored = || stage.with(|world| world.values(at).last().is_some_and(|last| last == value));
    let deadline = Instant::now() + PATIENCE;
    while !stored() {
        assert!(Instant::now() < deadline, "{value} is never stored");
        match send().unwrap().wait(LIMIT) {
            Ok(delivery) => assert_eq!(delivery.offset, -1, "no answer tells an offset"),
            Err(error) => assert_eq!(error.outcome(), Some(Outcome::PossiblyPersisted)),
        }
        // Where the connection is gone already, it may never come.
        within(Duration::from_millis(100), stored);
    }
}

/// The values of a line: `a` itself; `0..9` the numbers; then `*100` fills each up with zeros in
/// front to so many bytes, and `~100` puts as many letters that hardly compress in its place.
fn values(text: &str) -> Vec<String> {
    text.split_whitespace().filter(|word| *word != "none").flat_map(values_of).collect()
}

fn values_of(word: &str) -> Vec<String> {
    let mark = word.find(['*', '~']);
    let (stem, fill) = word.split_at(mark.unwrap_or(word.len()));
    let numbers = stem.split_once("..").map(|_| offsets(stem));
    let names = numbers.map(|all| all.iter().map(ToString::to_string).collect());
    let names: Vec<String> = names.unwrap_or_else(|| vec![stem.into()]);
    let len = || fill[1..].parse::<usize>().unwrap();
    let filled = |name: String| match fill.chars().next() {
        None => name,
        Some('*') => format!("{name:0>width$}", width = len()),
        Some(_) => noise(name.parse().unwrap(), len()),
    };
    names.into_iter().map(filled).collect()
}

/// Letters that do not compress well.
fn noise(seed: u64, len: usize) -> String {
    let mut state = seed;
    let mut letter = || {
        state = state.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1);
        char::from(b'!' + u8::try_from(state >> 33 & 63).unwrap())
    };
    (0..len).map(|_| letter()).collect()
}

/// What the brokers have, and what came to them.
pub(crate) fn expect(stage: &Stage, what: &str, at: &str, rest: &str) {
    match what {
        "log" | "runs" => expect_log(stage, at, &values(rest), what == "runs"),
        "sequences" | "last-sequences" => {
            let found = came(stage, at, |came| {
                let header = came.header;
                let id = Some(header.producer_id).filter(|id| *id != 1);
                let id = id.map_or_else(String::new, |id| format!("{id}/"));
                format!("{id}{}:{}", header.producer_epoch, header.base_sequence)
            });
            let skip = if what == "sequences" { 0 } else { found.len() - rest.split(' ').count() };
            assert_eq!(found[skip..].join(" "), rest, "epochs and sequences of {at}: {found:?}");
        }
        "headers" => {
            let (offset, wanted) = rest.split_once(' ').unwrap();
            let (index, offset) = (at.parse().unwrap(), offset.parse().unwrap());
            let found = stage.with(|world| world.headers(index, offset));
            assert_eq!(found, headers(wanted), "headers at {offset} of {at}");
        }
        "commits" => {
            let (index, least): (i32, i64) = (at.parse().unwrap(), rest.parse().unwrap());
            let commits = stage.with(|world| world.commits.clone());
            let mine = commits.iter().filter(|(of, _)| *of == index).map(|(_, offset)| *offset);
            assert!(mine.clone().count() > 0, "nothing was committed of {at}");
            assert!(mine.clone().all(|offset| offset >= least), "{commits:?} of {at}");
        }
        "batches" => {
            let (least, most) = rest.split_once("..").unwrap_or((rest, rest));
            let bounds = least.parse::<usize>().unwrap()..=most.parse().unwrap();
            let count = || came(stage, at, |_| ()).len();
            in_time(|| count() >= *bounds.start());
            assert!(bounds.contains(&count()), "{} batches of {at} came", count());
        }
        "sent-to" => {
            let mut found = came(stage, at, |came| i64::from(came.node));
            found.dedup();
            assert_eq!(found, offsets(rest), "brokers that got batches of {at}");
        }
        "versions" => {
            let key = api(at);
            let versions: BTreeSet<i64> = stage.with(|world| {
                let of_key = world.asked.iter().filter(|(asked, ..)| *asked == key);
                of_key.map(|(_, version, _)| i64::from(*version)).collect()
            });
            assert_eq!(versions, offsets(rest).into_iter().collect(), "versions of {at}");
        }
        "unchanged" => {
            let changed = stage.with(|world| world.changed.clone());
            assert_eq!(changed, Vec::<String>::new(), "other bytes under the same sequence");
        }
        "done" => {
            let left = || stage.with(|world| world.acts_left(api(at)));
            in_time(|| left() == 0);
            assert_eq!(left(), 0, "acts for {at} that no request has met");
        }
        "heartbeats" => {
            assert!(in_time(|| stage.with(|world| world.beats) > 0), "none came meanwhile");
        }
        "told" => {
            let (told, most) = (stage.with(|world| world.told_bytes), at.parse().unwrap());
            assert!(told <= most, "{told} bytes of metadata");
        }
        other => panic!("no such expectation: {other}"),
    }
}

/// A partition's log holds these values; in `runs`, those that follow themselves count once.
fn expect_log(stage: &Stage, at: &str, wanted: &[String], runs: bool) {
    let found = || {
        let mut values = stage.with(|world| world.values(at.parse().unwrap()));
        if runs {
            values.dedup();
        }
        values
    };
    in_time(|| found() == wanted);
    assert_eq!(found(), wanted, "the log of {at}");
}

/// Waits until something holds, for as long as an expectation may take; whether it does.
fn in_time(holds: impl Fn() -> bool) -> bool {
    within(PATIENCE, holds)
}

fn within(time: Duration, holds: impl Fn() -> bool) -> bool {
    let deadline = Instant::now() + time;
    while !holds() {
        if Instant::now() >= deadline {
            return false;
        }
        thread::sleep(Duration::from_millis(1));
    }
    true
}

/// Of each batch of a partition that came.
fn came<T>(stage: &Stage, at: &str, of: impl Fn(&crate::stage::Came) -> T) -> Vec<T> {
    let at: i32 = at.parse().unwrap();
    stage.with(|world| world.came.iter().filter(|came| came.partition == at).map(of).collect())
}
