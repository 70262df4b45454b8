//! Where records go that name no partition, and that keys go where others' clients put them.

#![allow(clippy::disallowed_methods, reason = "tests start their virtual time somewhere")]

use std::collections::BTreeSet;
use std::path::Path;
use std::time::Instant;

use super::*;
use crate::config::{Options, ProducerConfig};
use crate::state::accumulator::batch::{Manners, Room};
use crate::state::accumulator::memory::Memory;
use crate::state::accumulator::slot::{News, Opening};

const MIN: usize = 1000;
const MAX: usize = 5000;

/// A topic of twelve partitions, and how records are put there.
struct Topic {
    rules: Rules,
    slots: Vec<Arc<Slot>>,
    leaders: Vec<Option<i32>>,
    led: Vec<usize>,
    cursor: Cursor,
}

impl Topic {
    fn new(rule: Rule, keyless: Keyless, seed: u64) -> Self {
        let slot = |at: i32| Slot::new(usize::try_from(at).unwrap(), &"t".into(), at);
        let sticking = Sticking { bytes_min: MIN, bytes_max: MAX, adaptive: true };
        Self {
            rules: Rules { rule, keyless, sticking },
            slots: (0..12).map(slot).collect(),
            leaders: vec![Some(1); 12],
            led: Vec::new(),
            cursor: Cursor::new(seed),
        }
    }

    fn keyless(keyless: Keyless) -> Self {
        Self::new(Rule::Keyless(keyless), Keyless::RoundRobin, 7)
    }

    /// Has only these partitions led.
    fn lead(&mut self, led: &[usize]) {
        self.leaders = (0..12).map(|at| led.contains(&at).then_some(1)).collect();
        self.led = led.to_vec();
    }

    fn choose(&self, key: Option<&[u8]>) -> usize {
        let record = Record { key, ..Record::to("t") };
        let Self { slots, leaders, led, cursor, .. } = self;
        let chosen = self.rules.choose(&record, &Choice { leaders, led, slots, cursor });
        usize::try_from(chosen).unwrap()
    }

    fn counts(&self, records: usize) -> [usize; 12] {
        let mut counts = [0; 12];
        (0..records).for_each(|_| counts[self.choose(None)] += 1);
        counts
    }

    /// Puts a record into a partition, where it opens a batch.
    fn fill(&self, partition: usize) {
        let memory = Memory::new(1 << 20);
        let manners = Manners::Queue;
        let mut room = Room {
            memory: &memory,
            batch_bytes: 1000,
            check_from: usize::MAX,
            granted: &mut None,
            manners,
        };
        let opening = Opening { next_id: &|| 1, now: &Instant::now, list: &|| {}, stay: true };
        let record = (&Record::to("t").value("v"), 5);
        self.slots[partition]
            .append(record, &mut room, &opening, &mut |_, _| {}, &mut News::None)
            .unwrap();
    }

    /// How often each partition comes next when records cannot stay.
    fn switches(&self, times: usize) -> [usize; 12] {
        let mut counts = [0; 12];
        for _ in 0..times {
            counts[self.choose(None)] += 1;
            self.cursor.note_put(MAX);
        }
        counts
    }
}

fn bytes(hex: &str) -> Vec<u8> {
    let hex = hex.trim_start_matches('-');
    let byte = |at: usize| u8::from_str_radix(&hex[at..at + 2], 16).unwrap();
    (0..hex.len()).step_by(2).map(byte).collect()
}

#[test]
fn keys_may_be_left_out_of_the_choice() {
    let ignoring = "partitioner.ignore.keys=true";
    let crc32 = "partitioner=crc32;partitioner.ignore.keys=true";
    for (options, partitions) in [("acks=all", 1), (ignoring, 12), (crc32, 12)] {
        let set = Options::parse(&format!("bootstrap.servers=a:1;{options}")).unwrap();
        let rules = ProducerConfig::new(&set).unwrap().rules;
        let topic = Topic { rules, ..Topic::keyless(Keyless::Random) };
        let chosen: BTreeSet<usize> = (0..12).map(|_| topic.choose(Some(b"key"))).collect();
        assert_eq!(chosen.len(), partitions, "{options}");
    }
}

#[test]
fn keys_go_where_kafka_librdkafka_and_sarama_put_them() {
    let mut keys = BTreeSet::new();
    let mut rows = 0;
    for file in ["kafka.txt", "librdkafka.txt", "sarama.txt"] {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../conformance/partitioners");
        let text = std::fs::read_to_string(path.join(file)).unwrap();
        for line in text.lines().filter(|line| !line.starts_with('#')) {
            let [rule, key, hash, partitions] = *line.split(' ').collect::<Vec<_>>() else {
                panic!("{line}")
            };
            let key = bytes(key);
            let (ours, raw) = match rule {
                "murmur2" | "murmur2_random" => (KeyHash::Murmur2, murmur2(&key)),
                "consistent_random" => (KeyHash::Crc32, crc32(&key)),
                // Sarama's file tells the hash with its sign.
                "hash" | "fnv1a_random" | "reference" => (KeyHash::Fnv1a, fnv1a(&key)),
                other => panic!("{other}"),
            };
            let rules = Topic::new(Rule::Hash(ours), Keyless::RoundRobin, 1).rules;
            let hash = u32::from_str_radix(hash, 16).ok();
            let signless = if ours == KeyHash::Fnv1a { hash.map(magnitude) } else { hash };
            assert!(signless.is_none_or(|hash| hash == raw), "{file}: {line}");
            let chosen = if rule == "reference" {
                // A rule that we have not, of the same hash: it only clears the sign.
                hash.map(|hash| hash & 0x7fff_ffff)
            } else {
                rules.hash_of(Some(&key))
            };
            let among = |count: u32| chosen.map(|hash| (hash % count).to_string());
            let each: Option<Vec<String>> =
                [3, 12, 1000, 0x7fff_ffff].map(among).into_iter().collect();
            let said = each.map_or_else(|| "keyless".to_owned(), |each| each.join(","));
            assert_eq!(said, partitions, "{file}: {line}");
            keys.insert(key);
            rows += 1;
        }
    }
    assert!((keys.len(), rows) >= (1_200, 7_200), "{} keys, {rows} rows", keys.len());
}

fn magnitude(hash: u32) -> u32 {
    hash.cast_signed().unsigned_abs()
}

#[test]
fn hashes_with_the_sign_bit_alone_have_a_place() {
    assert_eq!(murmur2(b"d26skop"), 0x8000_0000);
    assert_eq!(fnv1a(b"qqk42v"), 0x8000_0000);
    let place = |hash, key: &str| {
        Topic::new(Rule::Hash(hash), Keyless::RoundRobin, 1).choose(Some(key.as_bytes()))
    };
    assert_eq!(place(KeyHash::Murmur2, "d26skop"), 0);
    assert_eq!(place(KeyHash::Fnv1a, "qqk42v"), 8);
}

#[test]
fn an_empty_key_is_a_key_but_not_for_crc32() {
    for (hash, key) in
        [(KeyHash::Murmur2, Some(9)), (KeyHash::Fnv1a, Some(3)), (KeyHash::Crc32, None)]
    {
        let topic = Topic::new(Rule::Hash(hash), Keyless::RoundRobin, 1);
        let places: BTreeSet<usize> = (0..12).map(|_| topic.choose(Some(b""))).collect();
        match key {
            Some(place) => assert_eq!(places, [place].into(), "{hash:?}"),
            None => assert_eq!(places.len(), 12, "each in its turn"),
        }
    }
}

#[test]
fn hashes_count_partitions_without_a_leader_too() {
    let mut topic = Topic::new(Rule::Hash(KeyHash::Murmur2), Keyless::RoundRobin, 1);
    topic.lead(&[1, 2]);
    assert_eq!(topic.choose(Some(b"kafka")), 4);
}

#[test]
fn a_topic_without_partitions_is_no_division_by_zero() {
    let mut topic = Topic::new(Rule::Hash(KeyHash::Murmur2), Keyless::RoundRobin, 1);
    (topic.slots, topic.leaders) = (Vec::new(), Vec::new());
    assert_eq!(topic.choose(Some(b"kafka")), 0);
    for keyless in [Keyless::RoundRobin, Keyless::Random, Keyless::Sticky] {
        topic.rules.keyless = keyless;
        assert_eq!(topic.choose(None), 0);
    }
}

#[test]
fn round_robin_is_exact_and_skips_partitions_without_a_leader() {
    for key in [None, Some(b"k".as_slice())] {
        let mut topic = Topic::keyless(Keyless::RoundRobin);
        let mut counts = [0; 12];
        (0..120).for_each(|_| counts[topic.choose(key)] += 1);
        assert_eq!(counts, [10; 12]);
        topic.lead(&[3, 5, 7]);
        let counts = topic.counts(30);
        assert_eq!((counts[3], counts[5], counts[7]), (10, 10, 10));
    }
}

#[test]
fn producers_of_different_seeds_begin_at_different_partitions() {
    let firsts: BTreeSet<usize> = (0..100).map(|seed| Cursor::new(seed).next(12)).collect();
    assert_eq!(firsts.len(), 12);
}

#[test]
fn random_reaches_all_partitions_about_equally() {
    let counts = Topic::keyless(Keyless::Random).counts(12_000);
    assert!(counts.iter().all(|count| (800..1200).contains(count)), "{counts:?}");
}

#[test]
fn records_stick_to_a_partition_until_its_batch_is_taken_and_they_are_enough() {
    let topic = Topic::keyless(Keyless::Sticky);
    let first = topic.choose(None);
    topic.cursor.note_put(MIN - 1);
    assert_eq!(topic.choose(None), first, "too few for another, though its batch was taken");
    topic.fill(first);
    topic.cursor.note_put(MIN);
    assert_eq!(topic.choose(None), first, "its batch is open");
    topic.slots[first].take_all(&mut std::collections::VecDeque::new());
    let next: BTreeSet<usize> = (0..50)
        .map(|_| {
            topic.cursor.note_put(MIN);
            topic.choose(None)
        })
        .collect();
    assert!(next.len() > 6, "{next:?}");
}

#[test]
fn records_leave_a_partition_at_the_most_bytes_though_its_batch_is_open() {
    let topic = Topic::keyless(Keyless::Sticky);
    for partition in 0..12 {
        topic.fill(partition);
    }
    let first = topic.choose(None);
    topic.cursor.note_put(MAX - 1);
    assert_eq!(topic.choose(None), first);
    assert!(topic.switches(50).iter().filter(|&&count| count > 0).count() > 6);
}

#[test]
fn records_leave_a_partition_that_loses_its_leader() {
    let mut topic = Topic::keyless(Keyless::Sticky);
    let first = topic.choose(None);
    let rest: Vec<usize> = (0..12).filter(|&at| at != first).collect();
    topic.lead(&rest);
    assert_ne!(topic.choose(None), first);
}

#[test]
fn shorter_queues_are_chosen_more_often_by_their_distance_to_the_longest() {
    let topic = Topic::keyless(Keyless::Sticky);
    // Weights 1, 9 and ten times 10.
    topic.slots[0].tell_waiting(9);
    topic.slots[1].tell_waiting(1);
    let counts = topic.switches(10_900);
    assert!((60..150).contains(&counts[0]), "{counts:?}");
    assert!((760..1050).contains(&counts[1]), "{counts:?}");
    assert!(counts[2..].iter().all(|count| (850..1150).contains(count)), "{counts:?}");
}

#[test]
fn queues_of_one_length_and_a_choice_that_is_not_adaptive_are_uniform() {
    let mut topic = Topic::keyless(Keyless::Sticky);
    for adaptive in [true, false] {
        topic.rules.sticking.adaptive = adaptive;
        let counts = topic.switches(12_000);
        assert!(counts.iter().all(|count| (850..1150).contains(count)), "{counts:?}");
        topic.slots[0].tell_waiting(1_000);
    }
}

#[test]
fn partitions_of_a_broker_that_takes_nothing_are_left_out_unless_all_are_so() {
    let topic = Topic::keyless(Keyless::Sticky);
    (0..9).for_each(|at| topic.slots[at].tell_away(true));
    let counts = topic.switches(3_000);
    assert_eq!(counts[..9], [0; 9]);
    assert!(counts[9..].iter().all(|count| (850..1150).contains(count)), "{counts:?}");
    (9..12).for_each(|at| topic.slots[at].tell_away(true));
    assert!(topic.switches(1_200).iter().all(|&count| count > 0));
}

#[test]
fn a_partitioner_of_the_programs_own_is_given_the_record_and_the_partitions() {
    struct Last;
    impl Partitioner for Last {
        fn partition(&self, record: &Record<'_>, topic: &Partitions<'_>) -> i32 {
            assert_eq!((record.topic, record.key), ("t", Some(b"k".as_slice())));
            assert_eq!((topic.count(), topic.leader(3), topic.leader(4)), (12, Some(1), None));
            assert_eq!((topic.leader(-1), topic.leader(12)), (None, None));
            topic.led().last().unwrap()
        }
    }
    let mut topic = Topic::new(Rule::Own(Own(Arc::new(Last))), Keyless::RoundRobin, 1);
    topic.lead(&[3, 7]);
    assert_eq!(topic.choose(Some(b"k")), 7);
}
