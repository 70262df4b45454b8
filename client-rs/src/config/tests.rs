//! Names, values and contradictions of options.

use std::collections::BTreeSet;

use super::options::names_in;
use super::*;
use crate::error::{Error, ErrorKind};
use crate::state::assignor::Strategy;

fn refused(name: &str, value: &str) -> Error {
    let error = Options::new().set(name, value).expect_err("the option is refused");
    assert_eq!(error.kind(), ErrorKind::InvalidOption);
    error
}

fn set(pairs: &[(&str, &str)]) -> Options {
    let first = Options::new().set("bootstrap.servers", "localhost:9092").unwrap();
    pairs.iter().fold(first, |options, (name, value)| options.set(name, value).unwrap())
}

#[test]
fn names_are_unique_and_defaults_are_values_the_option_takes() {
    let mut names = BTreeSet::new();
    for row in OPTIONS {
        let own: BTreeSet<String> = names_in(row).into_iter().collect();
        for name in own {
            assert!(names.insert(name), "{} has a name twice", row.kafka);
        }
        assert!(row.doc.ends_with('.'), "{}", row.kafka);
        if let Some(default) = row.default {
            Options::new().set(row.kafka, default).unwrap();
        }
    }
}

#[test]
fn each_spelling_sets_the_same_option() {
    for name in ["max.block.ms", "max_block_ms", "maxBlockMs", "max_block", "maxBlock"] {
        let options = Options::new().set(name, "12").unwrap();
        assert_eq!(options.get("max.block.ms"), Some("12"), "{name}");
    }
    assert_eq!(set(&[("group", "g")]).get("group.id"), Some("g"));
    assert_eq!(set(&[("start", "earliest")]).get("auto.offset.reset"), Some("earliest"));
}

#[test]
fn an_unknown_name_is_refused_with_the_nearest() {
    for (name, nearest) in [
        ("linger.sm", "linger.ms"),
        ("bootstrap.server", "bootstrap.servers"),
        ("groupid", "group.id"),
        ("compresion", "compression.type"),
        ("enable_idempotency", "enable.idempotence"),
    ] {
        let error = refused(name, "1");
        assert_eq!(error.hint(), Some(format!("did you mean `{nearest}`?").as_str()), "{name}");
    }
}

#[test]
fn an_option_that_only_kafka_has_is_named_for_what_it_is() {
    for (name, reason) in [
        ("security.protocol", "TLS and SASL are not there yet"),
        ("saslJaasConfig", "TLS and SASL are not there yet"),
        ("ssl_truststore_location", "TLS and SASL are not there yet"),
        ("transactional.id", "transactions are not there yet"),
        ("value.deserializer", "keys and values are bytes here"),
        ("metric.reporters", "told by its log"),
        ("partitioner.class", "`partitioner` names one of the rules"),
    ] {
        let error = refused(name, "1");
        assert!(error.message().contains("option of Apache Kafka"), "{error}");
        assert!(error.hint().is_some_and(|hint| hint.contains(reason)), "{error}");
    }
    let error = refused("queue.buffering.max.messages", "1");
    assert_eq!(error.hint(), None, "no name that there is comes near: {error}");
}

#[test]
fn a_wrong_value_is_refused_with_what_is_taken() {
    let text = refused("linger.ms", "soon").to_string();
    assert_eq!(
        text,
        "`linger.ms` takes a whole number of milliseconds from 0 to 2147483647, not `soon`"
    );
    assert!(refused("acks", "2").to_string().contains("one of all, -1, 0, 1"));
    assert!(refused("enable.idempotence", "yes").to_string().contains("true or false"));
    let long = "x".repeat(32_768);
    assert!(refused("client.id", &long).to_string().contains("at most 32767 bytes"));
    assert_eq!(set(&[("client.id", &long[1..])]).get("client.id"), Some(&long[1..]));
    refused("linger.ms", "-1");
    refused("linger.ms", "2147483648");
    assert_eq!(set(&[("linger.ms", "2147483647")]).get("linger"), Some("2147483647"));
    refused("auto.offset.reset", "by_duration:1h");
    set(&[("auto.offset.reset", "by_duration:PT1H")]);
}

#[test]
fn one_text_holds_many_options() {
    let options = Options::parse("bootstrap.servers=a:1,b:2; linger.ms = 7\nacks=all;").unwrap();
    assert_eq!(options.get("linger.ms"), Some("7"));
    assert_eq!(options.get("bootstrap.servers"), Some("a:1,b:2"));
    assert!(Options::parse("linger.ms").is_err());
}

#[test]
fn addresses_are_host_and_port() {
    let parse = |text: &str| Address::parse(text).map(|address| address.to_string()).ok();
    assert_eq!(parse("localhost:9092").as_deref(), Some("localhost:9092"));
    assert_eq!(parse("[::1]:9092").as_deref(), Some("[::1]:9092"));
    assert_eq!(parse("PLAINTEXT://kafka:9092").as_deref(), Some("kafka:9092"));
    for bad in ["localhost", "localhost:", ":9092", "a:0", "a:65536", "a:x", "::1:9092", "a b:1"] {
        assert_eq!(parse(bad), None, "{bad}");
    }
    let missing = ProducerConfig::new(&Options::new()).expect_err("no broker to ask");
    assert!(missing.to_string().contains("bootstrap.servers"), "{missing}");
}

#[test]
fn acks_below_all_turn_idempotence_off_unless_it_was_asked_for() {
    assert!(ProducerConfig::new(&set(&[])).unwrap().idempotent);
    assert!(!ProducerConfig::new(&set(&[("acks", "1")])).unwrap().idempotent);
    ProducerConfig::new(&set(&[("acks", "1"), ("enable.idempotence", "true")]))
        .expect_err("a contradiction");
}

#[test]
fn contradictions_between_options_are_refused() {
    let config = |pairs: &[(&str, &str)]| ProducerConfig::new(&set(pairs));
    assert_eq!(config(&[("max.in.flight.requests.per.connection", "5")]).unwrap().in_flight_max, 5);
    config(&[("max.in.flight.requests.per.connection", "6")]).expect_err("brokers remember five");
    config(&[("max.in.flight.requests.per.connection", "6"), ("acks", "1")]).unwrap();
    config(&[("retries", "0")]).expect_err("idempotence needs retries");
    config(&[("delivery.timeout.ms", "30004")]).expect_err("KIP-91");
    config(&[("delivery.timeout.ms", "30005")]).unwrap();
    let long = config(&[("request.timeout.ms", "200000")]).unwrap();
    assert_eq!(long.delivery_timeout.as_millis(), 200_005, "an unset timeout is lengthened");
}

#[test]
fn strategies_are_a_list_in_order_of_preference() {
    let of = |text: &str| {
        let options = Options::new().set("bootstrap.servers", "b:1").unwrap();
        let options = options.set("partition.assignment.strategy", text).unwrap();
        ConsumerConfig::new(&options)
    };
    let found = of("roundrobin, cooperative-sticky").unwrap().strategies;
    assert_eq!(found, [Strategy::RoundRobin, Strategy::CooperativeSticky]);
    for (text, said) in [
        ("uniform", "takes some of range, roundrobin, sticky, cooperative-sticky, not `uniform`"),
        ("range,range", "has `range` twice"),
        (" , ", "names none"),
    ] {
        let error = of(text).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidOption);
        assert!(error.to_string().contains(said), "{error}");
    }
    let defaults = Options::new().set("bootstrap.servers", "b:1").unwrap();
    let found = ConsumerConfig::new(&defaults).unwrap().strategies;
    assert_eq!(found, [Strategy::CooperativeSticky]);
}
