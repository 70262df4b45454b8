//! A crash at each of two thousand changes of files, and damage at every byte of the unsynced tail.
//!
//! `OTTLA_CRASH_POINTS` sets how many changes are looked at; the seed of a failure is in its text.
#![allow(clippy::expect_used, reason = "a test ends where its set-up does not work")]

mod place;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use bytes::BytesMut;
use ottla_protocol::record::{Batch, BatchHeader, Compression, batches, stamp};
use ottla_storage::check::{Known, Severity, check_log};
use ottla_storage::{
    FaultyFiles, Files, Incoming, Log, LogConfig, LogErrorKind, Moment, Opening, Origin, Survives,
};
use place::{Draft, NOW, TOPIC_ID};

const DIR: &str = "/data/orders-0";
/// Changes of files that one workload makes before the next begins with an empty log.
const ROUND: u64 = 250;
const PRODUCERS: i64 = 3;

fn config() -> LogConfig {
    LogConfig { segment_bytes: 1500, index_interval_bytes: 300, ..LogConfig::default() }
}

fn open(files: &FaultyFiles, opening: Opening) -> (Log, ottla_storage::OpenReport) {
    try_open(files, opening).expect("the log opens")
}

fn try_open(
    files: &FaultyFiles,
    opening: Opening,
) -> Result<(Log, ottla_storage::OpenReport), ottla_storage::LogError> {
    Log::open(Arc::new(files.clone()), Path::new(DIR), TOPIC_ID, config(), opening)
}

/// What must be true whenever the world ends.
#[derive(Debug, Default, Clone)]
struct Truth {
    /// All bytes that were ever written as the batch of an offset.
    written: BTreeMap<i64, Vec<Vec<u8>>>,
    /// The log's batches, as far as no call is about to take them away.
    stored: BTreeMap<i64, Vec<u8>>,
    /// Offset below which all is flushed.
    safe_end: i64,
    /// Closed, and nothing appended since: the marker of a clean stop may be there.
    clean: bool,
}

impl Truth {
    fn end(&self) -> i64 {
        self.stored.last_key_value().map_or(0, |(_, bytes)| header(bytes).next_offset())
    }

    fn truncate(&mut self, end: i64) {
        self.stored.retain(|_, bytes| header(bytes).next_offset() <= end);
        self.safe_end = self.safe_end.min(self.end());
    }
}

fn header(bytes: &[u8]) -> BatchHeader {
    Batch::parse(bytes).expect("a batch").header
}

/// Numbers by a seed.
struct Dice(u64);

impl Dice {
    fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % end
    }

    fn one_in(&mut self, count: u64) -> bool {
        self.below(count) == 0
    }
}

/// Appends, rolls, flushes, truncates, closes and opens a log, as a seed decides.
struct Workload {
    files: FaultyFiles,
    truth: Arc<Mutex<Truth>>,
    dice: Dice,
    log: Option<Log>,
    epoch: i32,
    sequences: [i32; 3],
}

impl Workload {
    fn new(files: &FaultyFiles, truth: &Arc<Mutex<Truth>>, seed: u64) -> Self {
        let (log, _) = open(files, Opening::clean(NOW));
        let (files, truth) = (files.clone(), Arc::clone(truth));
        Self { files, truth, dice: Dice(seed), log: Some(log), epoch: 0, sequences: [0; 3] }
    }

    fn truth(&self) -> std::sync::MutexGuard<'_, Truth> {
        self.truth.lock().expect("no check failed")
    }

    fn log(&mut self) -> &mut Log {
        self.log.as_mut().expect("open")
    }

    fn step(&mut self) {
        match self.dice.below(40) {
            0..24 => self.append(),
            24..35 => self.flush(),
            35..37 => self.truncate(),
            37 => self.epoch += 1,
            _ => self.close_and_open(),
        }
    }

    fn append(&mut self) {
        let mut next = self.truth().end();
        let (mut incoming, mut new) = (Vec::new(), Vec::new());
        for _ in 0..=self.dice.below(3) {
            let records = usize::try_from(1 + self.dice.below(3)).expect("small");
            let time = 1000 + i64::try_from(self.dice.below(997)).expect("small");
            let times = vec![time; records];
            let len = usize::try_from(self.dice.below(130)).expect("small");
            let mut draft = Draft::at(&times).value_len(len);
            if self.dice.one_in(4) {
                draft.compression = Compression::Lz4;
            }
            let id = i64::try_from(self.dice.below(4)).expect("small");
            if id < PRODUCERS {
                let sequence = &mut self.sequences[usize::try_from(id).expect("small")];
                draft = draft.producer(id, 0, *sequence);
                *sequence += i32::try_from(records).expect("small");
            }
            let bytes = draft.bytes();
            let mut stamped = bytes.to_vec();
            stamp(&mut stamped, next, self.epoch).expect("a batch");
            next = header(&stamped).next_offset();
            incoming.push(Incoming::parse(bytes, Origin::Client).expect("a batch"));
            new.push(stamped);
        }
        {
            let mut truth = self.truth();
            truth.clean = false;
            for bytes in &new {
                let base = header(bytes).base_offset;
                truth.written.entry(base).or_default().push(bytes.clone());
            }
        }
        let epoch = self.epoch;
        for outcome in self.log().append(incoming, epoch, NOW).expect("written") {
            assert!(!outcome.expect("passes").duplicate);
        }
        let mut truth = self.truth();
        truth.stored.extend(new.into_iter().map(|bytes| (header(&bytes).base_offset, bytes)));
    }

    fn flush(&mut self) {
        let reached = self.log().flush().expect("flushed");
        let mut truth = self.truth();
        assert_eq!(reached, truth.end());
        truth.safe_end = reached;
    }

    fn truncate(&mut self) {
        let end = self.truth().end();
        let back = i64::try_from(self.dice.below(25)).expect("small");
        let to = (end - back).max(0);
        {
            // From the call's begin on nothing of it is promised.
            let mut truth = self.truth();
            truth.clean = false;
            truth.truncate(to);
        }
        self.log().truncate_to(to, NOW).expect("truncated");
        let end = self.truth().end();
        let truncated = self.log().log_end();
        assert_eq!(truncated, end, "a batch goes whole");
        self.recount();
    }

    /// What the producers send next, after some of their batches are gone.
    fn recount(&mut self) {
        let mut sequences = [0; 3];
        for bytes in self.truth().stored.values() {
            let header = header(bytes);
            if header.has_producer() {
                let id = usize::try_from(header.producer_id).expect("small");
                sequences[id] = header.last_sequence() + 1;
            }
        }
        self.sequences = sequences;
    }

    fn close_and_open(&mut self) {
        let reached = self.log.take().expect("open").close().expect("closed");
        {
            let mut truth = self.truth();
            assert_eq!(reached, truth.end());
            truth.safe_end = reached;
            truth.clean = true;
        }
        let opening = Opening { recovery_point: reached, ..Opening::clean(NOW) };
        let (log, report) = open(&self.files, opening);
        assert_eq!((report.checked_segments, report.warnings), (0, Vec::new()));
        self.log = Some(log);
    }
}

fn is_log(name: &str) -> bool {
    name.rsplit_once('.').is_some_and(|(_, kind)| kind == "log")
}

/// The batches of all segments, as they lie in the files.
fn raw(files: &FaultyFiles) -> BTreeMap<i64, Vec<u8>> {
    let mut found = BTreeMap::new();
    for entry in files.list(Path::new(DIR)).expect("listed") {
        if is_log(&entry.name) {
            let bytes = files.read(&PathBuf::from(DIR).join(&entry.name)).expect("read");
            let mut whole = 0;
            for batch in batches(&bytes) {
                let batch = batch.expect("good batches only");
                batch.verify_crc().expect("good checksums only");
                whole += batch.bytes.len();
                found.insert(batch.header.base_offset, batch.bytes.to_vec());
            }
            assert_eq!(whole, bytes.len(), "nothing but whole batches in {}", entry.name);
        }
    }
    found
}

/// Leader epochs and their first offsets, as the batches tell.
fn epochs_of(stored: &BTreeMap<i64, Vec<u8>>) -> Vec<(i32, i64)> {
    let mut epochs: Vec<(i32, i64)> = Vec::new();
    for (&base, bytes) in stored {
        let epoch = header(bytes).partition_leader_epoch;
        if epochs.last().is_none_or(|last| last.0 < epoch) {
            epochs.push((epoch, base));
        }
    }
    epochs
}

/// Opens what a crash left, twice, and holds it against the truth.
fn verify(crashed: &FaultyFiles, truth: &Truth, must_reach: i64, opening: Opening, what: &str) {
    let (log, report) = try_open(crashed, opening)
        .unwrap_or_else(|error| panic!("{what}: opens not: {error}; {truth:?}"));
    let stored = raw(crashed);
    let end = stored.last_key_value().map_or(0, |(_, bytes)| header(bytes).next_offset());
    assert_eq!(log.log_end(), end, "{what}: {report:?}");
    assert!(end >= must_reach, "{what}: ends with {end}, but {must_reach} was safe; {report:?}");
    let mut next = 0;
    for (&base, bytes) in &stored {
        assert_eq!(base, next, "{what}: no gaps");
        next = header(bytes).next_offset();
        let known = truth.written.get(&base).is_some_and(|all| all.contains(bytes));
        assert!(known, "{what}: nobody wrote the batch at {base}");
        if base < must_reach {
            assert_eq!(Some(bytes), truth.stored.get(&base), "{what}: offset {base}");
        }
    }
    let entries: Vec<_> = log.epochs().iter().map(|one| (one.epoch, one.start_offset)).collect();
    assert_eq!(entries, epochs_of(&stored), "{what}: {report:?}");
    drop(log);
    // Twice the same: what was mended is mended.
    let (mut log, again) = open(crashed, Opening { clean: false, ..opening });
    assert_eq!((log.log_end(), again.truncated_bytes), (end, 0), "{what}: {again:?}");
    assert_eq!(again.warnings, Vec::<String>::new(), "{what}");
    assert_eq!(raw(crashed), stored, "{what}: opened twice");
    producers(&mut log, &stored, what);
    log.close().expect("closed");
    let known = Known {
        clean: true,
        same_boot: true,
        recovery_point: end,
        log_start: 0,
        index_interval_bytes: Some(config().index_interval_bytes),
    };
    let checked = check_log(crashed, Path::new(DIR), known).expect("read");
    let damage: Vec<_> =
        checked.findings.iter().filter(|found| found.severity == Severity::Damage).collect();
    assert!(damage.is_empty(), "{what}: {damage:#?}");
}

/// Each producer's last batch is known as sent before, and its next one is taken.
fn producers(log: &mut Log, stored: &BTreeMap<i64, Vec<u8>>, what: &str) {
    for id in 0..PRODUCERS {
        let of = |bytes: &&Vec<u8>| header(bytes).producer_id == id;
        let Some(last) = stored.values().rev().find(of) else { continue };
        let mut again = BytesMut::from(&last[..]);
        stamp(&mut again, 0, 0).expect("a batch");
        let again = Incoming::parse(again, Origin::Client).expect("a batch");
        let next = Draft::of(1).producer(id, 0, header(last).last_sequence() + 1).incoming();
        let outcomes = log.append(vec![again, next], 99, NOW).expect("written");
        let [Ok(known), Ok(new)] = outcomes.as_slice() else { panic!("{what}: {outcomes:?}") };
        assert!(known.duplicate && !new.duplicate, "{what}: producer {id}");
        assert_eq!(known.base_offset, header(last).base_offset, "{what}: producer {id}");
    }
}

/// All ways in which the world can end at one moment.
fn crash(moment: &Moment<'_>, truth: &Truth, seed: u64, what: &str) {
    let unclean = Opening { recovery_point: truth.safe_end, ..Opening::unclean(NOW) };
    let same_boot = Opening { same_boot: true, ..unclean };
    let some = Survives::Some { seed };
    let lost = || format!("{what}, power cut");
    verify(&moment.crash(Survives::Flushed), truth, truth.safe_end, unclean, &lost());
    let torn = format!("{what}, power cut with some of it left, seed {seed}");
    // The checkpoint of recovery points may be old.
    let checked_whole =
        if seed.is_multiple_of(4) { Opening { recovery_point: 0, ..unclean } } else { unclean };
    verify(&moment.crash(some), truth, truth.safe_end, checked_whole, &torn);
    let killed = format!("{what}, killed inside, seed {seed}");
    verify(&moment.kill_inside(seed), truth, truth.end(), same_boot, &killed);
    if truth.clean {
        let clean = Opening { clean: true, ..unclean };
        let closed = format!("{what}, after a clean close");
        verify(&moment.crash(Survives::Flushed), truth, truth.end(), clean, &closed);
    }
}

/// Files with the folder of logs, and the truth about them.
fn begin() -> (FaultyFiles, Arc<Mutex<Truth>>) {
    let files = FaultyFiles::new();
    files.create_dir_all(Path::new("/data")).expect("made");
    files.flush_all();
    (files, Arc::default())
}

fn wanted_changes() -> u64 {
    let wanted = std::env::var("OTTLA_CRASH_POINTS").ok();
    wanted.map_or(2000, |wanted| wanted.parse().expect("a number"))
}

#[test]
fn whatever_was_synced_survives_a_crash_at_each_change_of_files() {
    let wanted = wanted_changes();
    let (mut looked_at, mut round) = (0, 0_u64);
    while looked_at < wanted {
        round += 1;
        let (files, truth) = begin();
        let changes = Arc::new(Mutex::new(0_u64));
        let (counted, known) = (Arc::clone(&changes), Arc::clone(&truth));
        files.watch(move |moment| {
            let mut count = counted.lock().expect("no check failed");
            *count += 1;
            let known = known.lock().expect("no check failed").clone();
            let what = format!("round {round}, change {count}");
            crash(moment, &known, round << 32 | *count, &what);
        });
        let mut workload = Workload::new(&files, &truth, round);
        while *changes.lock().expect("no check failed") < ROUND.min(wanted - looked_at) {
            workload.step();
        }
        looked_at += *changes.lock().expect("no check failed");
    }
    println!("{looked_at} changes of files in {round} rounds");
}

/// A log whose end is not flushed, as a crash found it.
fn unsynced(seed: u64) -> (FaultyFiles, Truth) {
    let (files, truth) = begin();
    let mut workload = Workload::new(&files, &truth, seed);
    for _ in 0..40 {
        workload.step();
    }
    workload.flush();
    for _ in 0..3 {
        workload.append();
    }
    let truth = truth.lock().expect("no check failed").clone();
    (files.crash(Survives::All), truth)
}

#[test]
fn recovery_that_crashes_is_no_worse_than_the_crash_before() {
    let mut looked_at = 0;
    for seed in 0..60 {
        let (files, truth) = unsynced(u64::try_from(seed).expect("small"));
        // A bad batch, with segments after it.
        let torn = files.crash(Survives::All);
        let places = tail(&files, &truth);
        let place = places.iter().filter(|place| place.is_covered()).nth(seed);
        damage_at(&torn, place.expect("a long tail"), |bytes, at| bytes[at] ^= 0xff);
        let opening = Opening { recovery_point: truth.safe_end, ..Opening::unclean(NOW) };
        let known = truth.clone();
        let count = Arc::new(Mutex::new(0_u64));
        let counted = Arc::clone(&count);
        torn.watch(move |moment| {
            let mut count = counted.lock().expect("no check failed");
            *count += 1;
            for again in 0..4 {
                let what = format!("seed {seed}, change {count} of the recovery, {again}");
                let left = moment.crash(Survives::Some { seed: *count << 8 | again });
                verify_damaged(&left, &known, opening, &what, true);
            }
        });
        drop(open(&torn, opening));
        looked_at += *count.lock().expect("no check failed");
    }
    assert!(looked_at > 200, "{looked_at} changes");
}

/// As [`verify`], where bytes of the unsynced tail are not those that anybody wrote.
fn verify_damaged(files: &FaultyFiles, truth: &Truth, opening: Opening, what: &str, covered: bool) {
    let (log, report) = open(files, opening);
    let stored = raw(files);
    for (base, bytes) in truth.stored.range(..truth.safe_end) {
        assert_eq!(stored.get(base), Some(bytes), "{what}: offset {base}; {report:?}");
    }
    let end = stored.last_key_value().map_or(0, |(_, bytes)| header(bytes).next_offset());
    assert_eq!(log.log_end(), end, "{what}");
    assert!(end >= truth.safe_end, "{what}: ends with {end}");
    // No checksum covers a batch's offset, so it may have become a later one.
    assert!(end <= truth.end() || !covered, "{what}: ends with {end}");
    let entries: Vec<_> = log.epochs().iter().map(|one| (one.epoch, one.start_offset)).collect();
    // Nor its epoch: then the newer word counts, and an older epoch may be forgotten over it.
    assert!(entries == epochs_of(&stored) || !covered, "{what}: {entries:?}");
    drop(log);
    let (mut log, again) = open(files, opening);
    let same: Vec<_> = log.epochs().iter().map(|one| (one.epoch, one.start_offset)).collect();
    assert_eq!(same, entries, "{what}");
    assert_eq!((log.log_end(), again.truncated_bytes), (end, 0), "{what}: {again:?}");
    assert_eq!(raw(files), stored, "{what}: opened twice");
    producers(&mut log, &stored, what);
}

/// A way to damage a file at a byte.
type Damage = fn(&mut Vec<u8>, usize);

/// A byte of the unsynced tail.
#[derive(Debug, Clone)]
struct Place {
    path: PathBuf,
    at: usize,
    /// Bytes of its batch before it.
    within: usize,
}

impl Place {
    /// Whether the batch's checksum covers it, or its length and magic do.
    fn is_covered(&self) -> bool {
        (8..12).contains(&self.within) || self.within >= 16
    }
}

/// The unsynced bytes of the log, in order.
fn tail(files: &FaultyFiles, truth: &Truth) -> Vec<Place> {
    let mut places = Vec::new();
    let mut names: Vec<_> = files.list(Path::new(DIR)).expect("listed");
    names.sort_by(|a, b| a.name.cmp(&b.name));
    for entry in names.iter().filter(|entry| is_log(&entry.name)) {
        let path = PathBuf::from(DIR).join(&entry.name);
        let mut at = 0;
        for batch in batches(&files.read(&path).expect("read")) {
            let batch = batch.expect("good");
            if batch.header.base_offset >= truth.safe_end {
                let bytes = 0..batch.bytes.len();
                places.extend(bytes.map(|within| Place {
                    path: path.clone(),
                    at: at + within,
                    within,
                }));
            }
            at += batch.bytes.len();
        }
    }
    places
}

fn damage_at(files: &FaultyFiles, place: &Place, damage: impl Fn(&mut Vec<u8>, usize)) {
    let mut bytes = files.read(&place.path).expect("read");
    damage(&mut bytes, place.at);
    place::write(files, &place.path, &bytes);
    files.flush_all();
}

#[test]
fn damage_at_every_byte_of_the_unsynced_tail_costs_nothing_that_was_synced() {
    let (files, truth) = unsynced(7);
    let places = tail(&files, &truth);
    assert!(places.len() > 500, "{} bytes are not synced", places.len());
    let opening = Opening { recovery_point: truth.safe_end, ..Opening::unclean(NOW) };
    let ways: [(&str, Damage); 3] = [
        ("flipped", |bytes, at| bytes[at] ^= 0x41),
        ("zeros from there on", |bytes, at| bytes[at..].fill(0)),
        ("cut", Vec::truncate),
    ];
    for (way, damage) in ways {
        for (which, place) in places.iter().enumerate() {
            let damaged = files.crash(Survives::All);
            damage_at(&damaged, place, damage);
            let what = format!("byte {which} {way}, {place:?}");
            verify_damaged(&damaged, &truth, opening, &what, place.is_covered());
        }
    }
}

#[test]
fn damage_where_nothing_can_be_torn_cuts_nothing() {
    let (files, truth) = unsynced(3);
    let places = tail(&files, &truth);
    let last = truth.stored.last_key_value().expect("some").1.len();
    let opening = Opening { recovery_point: 0, same_boot: true, ..Opening::unclean(NOW) };
    let mut refused = 0;
    for place in &places[..places.len() - last] {
        let damaged = files.crash(Survives::All);
        damage_at(&damaged, place, |bytes, at| bytes[at] ^= 0x80);
        let before = files_of(&damaged);
        match try_open(&damaged, opening) {
            Err(error) => {
                assert_eq!(error.kind(), LogErrorKind::Damaged, "{error}");
                assert_eq!(files_of(&damaged), before, "{place:?}: nothing was cut");
                refused += 1;
            }
            // A batch's epoch is not under its checksum; its offset is not either, and only shows
            // if it is no longer below the next one's.
            Ok((_, report)) => {
                assert!(!place.is_covered(), "{place:?}: {report:?}");
                assert_eq!(report.truncated_bytes, 0, "{place:?}: {report:?}");
            }
        }
    }
    assert!(refused * 10 > (places.len() - last) * 9, "{refused} of {}", places.len() - last);
}

fn files_of(files: &FaultyFiles) -> BTreeMap<String, Vec<u8>> {
    let entries = files.list(Path::new(DIR)).expect("listed").into_iter();
    let logs = entries.filter(|entry| is_log(&entry.name));
    logs.map(|entry| {
        let bytes = files.read(&PathBuf::from(DIR).join(&entry.name)).expect("read");
        (entry.name, bytes)
    })
    .collect()
}
