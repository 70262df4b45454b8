//! What senders see of the face, before and after a topic is known.

#![allow(clippy::disallowed_methods, reason = "tests start their virtual time somewhere")]

use std::collections::VecDeque;

use bytes::Bytes;
use ottla_protocol::record::{BatchHeader, BatchSeal, HEADER_LEN, RecordIter, crc, seal};

use super::batch::OpenBatch;
use super::*;
use crate::config::Options;
use crate::producer::partitioner::Cursor;
use crate::record::Header;

fn face(options: &str) -> Arc<Accumulator> {
    let options = Options::parse(&format!("bootstrap.servers=a:1;{options}")).unwrap();
    Accumulator::new(&ProducerConfig::new(&options).unwrap(), Arc::default())
}

fn topic(name: &str, partitions: i32) -> Arc<TopicFace> {
    let name: Arc<str> = name.into();
    let slots =
        (0..partitions).map(|number| Slot::new(usize::try_from(number).unwrap(), &name, number));
    let slots: Vec<_> = slots.collect();
    let leaders = vec![Some(1); slots.len()];
    TopicFace::new(&name, slots, leaders, Arc::new(Cursor::new(0)), |_| true)
}

fn send(face: &Accumulator, record: &Record<'_>) -> Result<(Arc<Completion>, Stamp), AppendError> {
    let moment = Moment { now_ms: 1000, clock: Instant::now };
    let mut token = None;
    let keep = &mut |batch: &Arc<Completion>, stamp| token = Some((Arc::clone(batch), stamp));
    face.append(record, moment, &mut None, keep)?;
    Ok(token.expect("a record that was taken has a place"))
}

fn refused(face: &Accumulator, record: &Record<'_>) -> ErrorKind {
    match send(face, record) {
        Err(AppendError::Failed(error)) => {
            assert_eq!(error.outcome(), Some(Outcome::NotSent));
            error.kind()
        }
        other => panic!("{other:?} instead of a refusal"),
    }
}

/// Values of the records in a partition's batches, in order.
fn values(topic: &TopicFace, partition: usize) -> Vec<String> {
    let mut taken = VecDeque::new();
    topic.slots[partition].take_all(&mut taken);
    taken.iter().flat_map(batch_values).collect()
}

fn batch_values(batch: &OpenBatch) -> Vec<String> {
    let body: Bytes =
        batch.chunks.iter().map(AsRef::as_ref).collect::<Vec<&[u8]>>().concat().into();
    let mut header = [0; HEADER_LEN];
    seal(&mut header, &BatchSeal::default(), &batch.span, body.len(), crc::of(&body)).unwrap();
    let header = BatchHeader::parse(&header).unwrap();
    let records = RecordIter::new(&header, &body);
    let value = |value: &[u8]| String::from_utf8(value.to_vec()).unwrap();
    records.map(|record| value(record.unwrap().value.unwrap())).collect()
}

#[test]
fn records_of_a_topic_not_known_yet_keep_their_order_with_later_ones() {
    let face = face("partitioner=round_robin");
    let mut tokens = Vec::new();
    for number in 0..100 {
        let value = number.to_string();
        tokens.push(send(&face, &Record::to("t").partition(number % 2).value(&value)).unwrap());
    }
    assert_eq!(face.staged().len(), 1);
    let topic = topic("t", 2);
    face.publish([Arc::clone(&topic)]);
    assert!(face.staged().is_empty());
    for number in 100..110 {
        let value = number.to_string();
        send(&face, &Record::to("t").partition(number % 2).value(&value)).unwrap();
    }
    for partition in 0..2_usize {
        let odd: Vec<String> =
            (0..110_usize).filter(|n| n % 2 == partition).map(|n| n.to_string()).collect();
        assert_eq!(values(&topic, partition), odd);
    }
    let unresolved = tokens.iter().all(|(batch, stamp)| batch.result(*stamp).is_none());
    assert!(unresolved, "tokens go on to the real batches");
}

#[test]
fn a_staged_record_for_a_partition_that_is_not_there_fails_alone() {
    let face = face("");
    let good = send(&face, &Record::to("t").partition(1).value("a")).unwrap();
    let bad = send(&face, &Record::to("t").partition(2).value("b")).unwrap();
    face.publish([topic("t", 2)]);
    assert_eq!(face.take_unreported(None).count, 0, "its sender can see it");
    assert!(good.0.result(good.1).is_none());
    let error = bad.0.result(bad.1).unwrap().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidPartition);
}

/// By a fault of ours. Nothing is made up in the place of what was lost.
#[test]
fn staged_records_that_cannot_be_read_back_fail_with_those_behind_them() {
    let key = "a header's key";
    let headers = [Header { key, value: Some(b"1") }];
    // Where the header's key is, and a byte before it: its length.
    for (damage, cause) in [(0, "no text"), (1, "lengths do not fit")] {
        let face = face("");
        let tokens = ["a", "b", "c"].map(|value| {
            let record = Record::to("t").value(value);
            let record = if value == "b" { record.headers(&headers) } else { record };
            send(&face, &record).unwrap()
        });
        let mut staging = lock(&face.staging);
        let chunk = staging.topics.get_mut("t").and_then(|staged| staged.chunks.front_mut());
        let data = &mut chunk.unwrap().chunk.data;
        let at = data.windows(key.len()).position(|bytes| bytes == key.as_bytes()).unwrap();
        data[at - damage] = 0xfe;
        drop(staging);
        let topic = topic("t", 1);
        face.publish([Arc::clone(&topic)]);
        assert_eq!(values(&topic, 0), ["a"]);
        let results = tokens.map(|(batch, stamp)| batch.result(stamp));
        let [None, Some(Err(second)), Some(Err(third))] = results else { panic!("{results:?}") };
        for error in [second, third] {
            assert_eq!(
                (error.kind(), error.outcome()),
                (ErrorKind::Internal, Some(Outcome::NotSent))
            );
            assert!(error.to_string().contains(cause), "{error}");
        }
    }
}

#[test]
fn staged_records_stick_to_a_partition_for_a_batch() {
    let face = face("partitioner=sticky;batch.size=40000");
    let value = "v".repeat(1000);
    for _ in 0..200 {
        send(&face, &Record::to("t").value(&value)).unwrap();
    }
    let topic = topic("t", 1000);
    face.publish([Arc::clone(&topic)]);
    let mut batches = VecDeque::new();
    topic.slots.iter().for_each(|slot| slot.take_all(&mut batches));
    let records = batches.iter().map(|batch| batch.span.records_count);
    let mut records: Vec<i32> = records.collect();
    records.sort_unstable();
    // 61 bytes of header, and about 1,010 of each record.
    assert_eq!(records, [5, 39, 39, 39, 39, 39]);
}

#[test]
fn explicit_partitions_are_checked_against_the_topic() {
    let face = face("");
    assert_eq!(refused(&face, &Record::to("t").partition(-1)), ErrorKind::InvalidPartition);
    face.publish([topic("t", 3)]);
    assert!(send(&face, &Record::to("t").partition(2)).is_ok());
    assert_eq!(refused(&face, &Record::to("t").partition(3)), ErrorKind::InvalidPartition);
    assert_eq!(refused(&face, &Record::to("t").partition(-1)), ErrorKind::InvalidPartition);
}

#[test]
fn names_that_no_topic_can_have_are_refused_at_once() {
    let face = face("");
    let long = "x".repeat(250);
    for name in ["", ".", "..", "a/b", "ä", "a b", "a\n", long.as_str()] {
        assert_eq!(refused(&face, &Record::to(name)), ErrorKind::InvalidTopic, "{name:?}");
    }
    assert!(send(&face, &Record::to(&long[..249])).is_ok());
    assert!(send(&face, &Record::to("a.b_c-D9")).is_ok());
}

#[test]
fn a_record_of_the_largest_size_goes_and_one_byte_more_does_not() {
    let face = face("max.request.size=5000");
    face.publish([topic("t", 1)]);
    let value = [1; 6000];
    let fits = |len: usize| {
        let record = Record::to("t").key("key").value(&value[..len]);
        record_len_max(&record).unwrap() + HEADER_LEN <= 5000
    };
    let largest = (4800..5000).take_while(|&len| fits(len)).last().unwrap();
    assert!(send(&face, &Record::to("t").key("key").value(&value[..largest])).is_ok());
    let larger = Record::to("t").key("key").value(&value[..=largest]);
    assert_eq!(refused(&face, &larger), ErrorKind::RecordTooLarge);
}

#[test]
fn without_memory_a_record_waits_and_leaves_no_trace() {
    let face = face("buffer.memory=32768");
    face.publish([topic("t", 3)]);
    for partition in 0..2 {
        send(&face, &Record::to("t").partition(partition).value("a")).unwrap();
    }
    let refused = send(&face, &Record::to("t").partition(2).value("a"));
    assert!(matches!(refused, Err(AppendError::Memory(16_384))), "{refused:?}");
    send(&face, &Record::to("t").partition(1).value("b")).expect("there is room in its chunk");
    let mut ready = Vec::new();
    face.take_ready(&mut ready);
    assert_eq!(ready.len(), 2);
    let mut taken = VecDeque::new();
    ready[0].take_all(&mut taken);
    taken.clear();
    send(&face, &Record::to("t").partition(2).value("a")).expect("memory was given back");
}

#[test]
fn a_sender_stands_behind_those_who_wait_for_memory() {
    let face = face("buffer.memory=49152");
    face.publish([topic("t", 3)]);
    send(&face, &Record::to("t").partition(0).value("a")).unwrap();
    let place = face.memory.queue(49_152, None);
    let behind = send(&face, &Record::to("t").partition(1).value("a"));
    assert!(matches!(behind, Err(AppendError::Memory(_))), "{behind:?}");
    drop(place);
    send(&face, &Record::to("t").partition(1).value("a")).unwrap();
}

#[test]
fn the_machine_hears_of_begun_and_of_full_batches_and_of_nothing_else() {
    let face = face("batch.size=1000");
    let topic = topic("t", 1);
    face.publish([Arc::clone(&topic)]);
    let value = [0; 100];
    let record = Record::to("t").value(&value);
    let mut ready = Vec::new();
    for _ in 0..5 {
        send(&face, &record).unwrap();
    }
    face.take_ready(&mut ready);
    assert_eq!(ready.len(), 1, "begun");
    let mut taken = VecDeque::new();
    assert!(topic.slots[0].take_full(&mut taken).is_some());
    for _ in 0..5 {
        send(&face, &record).unwrap();
    }
    ready.clear();
    face.take_ready(&mut ready);
    assert_eq!(ready.len(), 1, "full");
    topic.slots[0].take_full(&mut taken);
    assert_eq!(taken.len(), 1);
}

#[test]
fn a_closed_face_refuses_for_the_reason_it_was_closed_for() {
    let face = face("");
    face.publish([topic("t", 1)]);
    face.refuse(Some(&Error::new(ErrorKind::ProducerFenced, "another one took over")));
    face.refuse(Some(&Error::closed()));
    assert_eq!(refused(&face, &Record::to("t")), ErrorKind::ProducerFenced);
}

/// Whatever else is in use, so that they never wait for the room that they hold themselves.
/// Nobody would take it any more.
#[test]
fn a_slot_that_is_closed_takes_no_record() {
    let face = face("");
    let topic = topic("t", 1);
    face.publish([Arc::clone(&topic)]);
    topic.slots[0].close();
    assert_eq!(refused(&face, &Record::to("t").value("v")), ErrorKind::Closed);
    assert_eq!(values(&topic, 0), [""; 0]);
}

/// Nobody would end it any more.
#[test]
fn a_record_of_an_unknown_topic_is_refused_once_no_more_are_looked_for() {
    let face = face("");
    send(&face, &Record::to("t").value("v")).unwrap();
    face.close_staging();
    face.fail_staged("t", &Error::closed());
    assert_eq!(refused(&face, &Record::to("t").value("v")), ErrorKind::Closed);
    assert!(face.staged().is_empty());
}

#[test]
fn records_whose_topic_becomes_known_take_no_more_than_they_took_before() {
    let headers = [Header::new("a", b""), Header { key: "", value: None }];
    let large = "x".repeat(3000);
    for (batch, partitions) in [(0, 1), (0, 50), (200, 7), (16_384, 1), (262_144, 50)] {
        let face = face(&format!("batch.size={batch};buffer.memory=65536"));
        let mut sent: Vec<Vec<String>> = vec![Vec::new(); 50];
        let mut tokens = Vec::new();
        for number in 0..i32::MAX {
            let value = match number % 20 {
                0 => format!("{number} {large}"),
                3 => String::new(),
                _ => number.to_string(),
            };
            let partition = number * 7 % partitions;
            let mut record = Record::to("t").partition(partition).value(&value);
            // A time far from that of the batch's first record takes longer to say.
            record.timestamp = Some(if number % 5 == 0 { 0 } else { i64::MAX });
            record.headers = if number % 3 == 0 { &headers } else { &[] };
            match send(&face, &record) {
                Ok(token) => tokens.push(token),
                Err(AppendError::Memory(_)) => break,
                Err(AppendError::Failed(error)) => panic!("{error}"),
            }
            sent[usize::try_from(partition).unwrap()].push(value);
        }
        let before = face.memory.used();
        assert!((49_152..=65_536).contains(&before), "{before}");
        let topic = topic("t", partitions);
        face.publish([Arc::clone(&topic)]);
        let after = face.memory.used();
        assert!(after <= before, "{after} after {before}, in batches of {batch}");
        assert!(tokens.iter().all(|(batch, stamp)| batch.result(*stamp).is_none()), "none failed");
        for (partition, slot) in topic.slots.iter().enumerate() {
            let mut taken = VecDeque::new();
            slot.take_all(&mut taken);
            for open in &taken {
                let len = HEADER_LEN + open.body_len;
                assert!(len <= batch || open.span.records_count == 1, "{len} of {batch}");
            }
            let values: Vec<String> = taken.iter().flat_map(batch_values).collect();
            assert_eq!(values, sent[partition]);
        }
        assert_eq!(face.memory.used(), 0);
    }
}

/// One that needs more than a whole chunk of the usual size.
#[test]
fn a_record_as_large_as_the_buffer_is_taken_before_its_topic_is_known() {
    let face = face("buffer.memory=40000");
    let value = vec![7; 39_900];
    send(&face, &Record::to("t").value(&value)).unwrap();
    face.publish([topic("t", 1)]);
    assert!(face.memory.used() <= 40_000);
}

#[test]
fn a_record_costs_one_lookup_at_most_however_many_topics_are_known() {
    let lookups = |topics: usize| {
        let face = face("");
        face.publish((0..topics).map(|number| topic(&format!("topic-{number}"), 1)));
        let before = topics::LOOKUPS.get();
        for _ in 0..100 {
            for name in ["topic-1", "topic-1", "topic-2"] {
                send(&face, &Record::to(name).value("v")).unwrap();
            }
        }
        topics::LOOKUPS.get() - before
    };
    // Two of three change the topic, and only then it is looked up.
    assert_eq!((lookups(10), lookups(10_000)), (200, 200));
}

/// Else a callback may come too late to be told: the machine ends what it finds, on another thread.
#[test]
fn a_record_of_an_unknown_topic_is_kept_before_anybody_can_end_it() {
    let face = face("");
    let moment = Moment { now_ms: 1000, clock: Instant::now };
    for topic in ["t", "t", "u"] {
        let mut kept = 0;
        let keep = &mut |batch: &Arc<Completion>, _| {
            kept += 1;
            assert!(face.staging.try_lock().is_err(), "the machine can take it");
            assert!(batch.outcome().is_none());
        };
        face.append(&Record::to(topic), moment, &mut None, keep).unwrap();
        assert_eq!(kept, 1);
    }
}

#[test]
fn a_time_before_the_epoch_is_refused_and_the_epoch_is_not() {
    let face = face("");
    for known in [false, true] {
        for time in [-1, i64::MIN] {
            let record = Record::to("t").timestamp(time);
            assert_eq!(refused(&face, &record), ErrorKind::InvalidTimestamp, "{known}");
        }
        assert!(send(&face, &Record::to("t").timestamp(0)).is_ok());
        face.publish([topic("t", 1)]);
    }
}
