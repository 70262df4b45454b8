//! Keys and values of other types than bytes, and memory that compressed records take.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on ends here")]

mod clients;
mod cluster;
mod patience;

use std::cell::Cell;
use std::error::Error as _;

use clients::{member, producer};
use cluster::Cluster;
use ottla::{BigEndian, ErrorKind, Header, Plain, Record};
use patience::LIMIT;

#[test]
fn fields_are_read_when_they_are_touched_and_their_bytes_stay() {
    let (cluster, t) = Cluster::with_topic(1);
    let producer = producer(&cluster.bootstrap(), &[]);
    let typed = producer.typed::<i64, str>(BigEndian, Plain);
    drop(typed.send(&Record::to(&t), Some(&-7), Some("two apples")).unwrap());
    drop(typed.send(&Record::to(&t), None, None).unwrap());
    drop(producer.send(&Record::to(&t).key("1").value(&[0xff, 0x00])).unwrap());
    producer.close(LIMIT).unwrap();
    let consumer = member(&cluster.bootstrap(), &t, &[]);
    let record = consumer.poll(LIMIT).unwrap().unwrap();
    assert_eq!(record.key_with::<i64>(&BigEndian).unwrap(), Some(-7));
    assert_eq!(record.value_with::<&str>(&Plain).unwrap(), Some("two apples"));
    let calls = Cell::new(0);
    let length = |topic: &str, bytes: &[u8]| {
        assert_eq!(topic, t);
        calls.set(calls.get() + 1);
        Ok::<_, std::convert::Infallible>(bytes.len())
    };
    assert_eq!(calls.get(), 0);
    assert_eq!(record.value_with(&length).unwrap(), Some(10));
    let null = consumer.poll(LIMIT).unwrap().unwrap();
    assert_eq!((null.key_with(&length).unwrap(), null.value_with(&length).unwrap()), (None, None));
    assert_eq!(calls.get(), 1, "null is no matter for deserializers");
    let bad = consumer.poll(LIMIT).unwrap().unwrap();
    let error = bad.value_with::<String>(&Plain).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Deserialization);
    assert_eq!((error.topic(), error.partition()), (Some(&*t), Some(0)));
    let place = format!("the value of the record at offset 2 of {t}-0");
    assert!(error.to_string().contains(&place), "{error}");
    assert!(error.source().unwrap().to_string().contains("utf-8"), "{error:?}");
    assert_eq!(bad.value(), Some([0xff, 0x00].as_slice()), "the bytes are there as they came");
    let error = bad.key_with::<i32>(&BigEndian).unwrap_err();
    assert!(error.to_string().contains("4 bytes was expected, and there are 1"), "{error}");
    consumer.close(LIMIT).unwrap();
}

/// vert-x3/vertx-kafka-client#313: a header without a value ended the consumer.
#[test]
fn headers_come_in_order_with_null_apart_from_empty_and_keys_more_than_once() {
    let (cluster, t) = Cluster::with_topic(1);
    let producer = producer(&cluster.bootstrap(), &[]);
    let bytes = [0xff, 0x00];
    let mut sent = vec![
        Header { key: "a", value: None },
        Header::new("a", b""),
        Header::new("b", &bytes),
        Header::new("", b"a key that is empty"),
    ];
    let names: Vec<String> = (0..996).map(|at| format!("h{}", at % 7)).collect();
    sent.extend(names.iter().map(|name| Header::new(name, name.as_bytes())));
    drop(producer.send(&Record::to(&t).headers(&sent)).unwrap());
    producer.close(LIMIT).unwrap();
    let consumer = member(&cluster.bootstrap(), &t, &[]);
    let record = consumer.poll(LIMIT).unwrap().unwrap();
    let came: Vec<_> = record.headers().iter().collect();
    let wanted: Vec<_> = sent.iter().map(|header| (header.key.as_bytes(), header.value)).collect();
    assert_eq!(came, wanted);
    assert_eq!(record.headers().last(b"a"), Some(Some(b"".as_slice())), "the last of that key");
    consumer.close(LIMIT).unwrap();
}

/// Compressed a thousandfold, much less than the budget is fetched, and much more comes out of it.
#[test]
fn decompressed_records_count_in_the_budget() {
    const BUDGET: usize = 8 * 1024 * 1024;
    let (cluster, t) = Cluster::with_topic(4);
    let producer = producer(&cluster.bootstrap(), &[("compression.type", "zstd")]);
    let value = vec![b'0'; 100_000];
    for number in 0..1_600 {
        drop(producer.send(&Record::to(&t).partition(number % 4).value(&value)).unwrap());
    }
    producer.close(LIMIT).unwrap();
    let budget = BUDGET.to_string();
    let consumer = member(&cluster.bootstrap(), &t, &[("fetch.buffer.memory", &budget)]);
    let (mut most, mut count) = (0, 0);
    while count < 1_600 {
        let record = consumer.poll(LIMIT).unwrap().unwrap();
        assert_eq!(record.value().map(<[u8]>::len), Some(value.len()));
        count += 1;
        // Partitions are left half read, so that each holds some of it decompressed.
        let all = consumer.assignment();
        consumer.pause(&all).unwrap();
        consumer.resume(&all).unwrap();
        most = most.max(consumer.stats().buffered);
    }
    println!("at most {most} bytes of {BUDGET}, for {} bytes", count * value.len());
    assert!(most > 100_000 && most <= BUDGET, "{most}");
    consumer.close(LIMIT).unwrap();
    assert_eq!(consumer.stats().buffered, 0);
}
