//! A client whose broker's address is another cluster's all at once.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on ends here")]

mod clients;
mod patience;

use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use std::{io, thread};

use clients::{options, producer};
use ottla::{Admin, Commit, Consumer, Event, Events, Outcome, Producer, Record, TopicPartition};
use ottla_broker::{Broker, BrokerConfig};
use patience::{LIMIT, wait_until, within_limit};

/// A cluster of its own, of one broker.
fn cluster(more: &[(&str, &str)]) -> Broker {
    let config = BrokerConfig::new().memory().listen("127.0.0.1:0");
    let pairs = [("num.partitions", "1")];
    let pairs = pairs.iter().chain(more);
    let set = |config: BrokerConfig, (name, value): &(&str, &str)| config.set(name, value).unwrap();
    Broker::start(pairs.fold(config, set)).unwrap()
}

/// An address that stays, at which one cluster can be after the other. It ends with the process.
struct Address {
    at: SocketAddr,
    leads_to: Arc<Mutex<Option<SocketAddr>>>,
}

impl Address {
    fn new() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let at = listener.local_addr().unwrap();
        let leads_to = Arc::<Mutex<Option<SocketAddr>>>::default();
        let known = Arc::clone(&leads_to);
        thread::spawn(move || {
            for client in listener.incoming().map_while(Result::ok) {
                let broker = *known.lock().unwrap();
                // Where nobody is, a connection ends.
                let Some(broker) = broker.and_then(|at| TcpStream::connect(at).ok()) else {
                    continue;
                };
                pass_on(client.try_clone().unwrap(), broker.try_clone().unwrap());
                pass_on(broker, client);
            }
        });
        Self { at, leads_to }
    }

    /// A new cluster, which is there from now on, and tells the address as its own.
    fn cluster(&self) -> Broker {
        let listener = format!("PLAINTEXT://{}", self.at);
        let broker = cluster(&[("advertised.listeners", &listener)]);
        *self.leads_to.lock().unwrap() = Some(broker.address());
        broker
    }

    /// The end of the cluster that was there; nobody is until the next.
    fn leave(&self, broker: Broker) {
        *self.leads_to.lock().unwrap() = None;
        broker.stop(LIMIT).unwrap();
    }
}

/// Brings what comes from one side to the other, until either ends.
fn pass_on(mut from: TcpStream, mut to: TcpStream) {
    thread::spawn(move || {
        // Whatever ends it ends both.
        let _ends = io::copy(&mut from, &mut to);
        for side in [from, to] {
            let _gone = side.shutdown(Shutdown::Both);
        }
    });
}

/// A producer that has a record stored, whose broker then makes room for another cluster's; and
/// what it tells. The address stays as it is.
fn moved(more: &[(&str, &str)]) -> (Producer, Events, Broker, Address) {
    let address = Address::new();
    let ours = address.cluster();
    let pairs = [("retry.backoff.ms", "5"), ("reconnect.backoff.ms", "5")];
    let pairs: Vec<_> = pairs.iter().chain(more).copied().collect();
    let producer = producer(&address.at.to_string(), &pairs);
    let events = producer.events();
    producer.send(&Record::to("orders").value("to us")).unwrap().wait(LIMIT).unwrap();
    address.leave(ours);
    let theirs = address.cluster();
    (producer, events, theirs, address)
}

/// What is told of clusters.
fn told(events: &Events) -> Event {
    loop {
        let event = events.next(LIMIT).unwrap().unwrap();
        if matches!(event, Event::OtherCluster { .. } | Event::ClusterChanged { .. }) {
            return event;
        }
    }
}

#[test]
fn another_cluster_under_a_brokers_address_is_noticed_before_anything_is_sent_to_it() {
    within_limit(|| {
        let (producer, events, theirs, address) = moved(&[]);
        let sent = producer.send(&Record::to("orders").value("to whom?")).unwrap();
        let known = match told(&events) {
            // By its answer to the first words of a connection, or by one about the cluster.
            Event::OtherCluster { broker, known, found } => {
                assert!(broker.ends_with(&address.at.to_string()), "{broker}");
                assert_ne!(found.as_ref(), Some(&known));
                known
            }
            other => panic!("{other:?}"),
        };
        // `bootstrap.servers` lead there too, so that is where the program wants to go.
        match told(&events) {
            Event::ClusterChanged { known: before, found } => {
                assert_eq!(before, known);
                assert_ne!(found, known);
            }
            other => panic!("{other:?}"),
        }
        assert_eq!(sent.wait(LIMIT).unwrap().offset, 0, "the first of that cluster");
        producer.close(LIMIT).unwrap();
        theirs.stop(LIMIT).unwrap();
    });
}

/// Each cluster counts its producers from 0 on.
#[test]
fn in_another_cluster_a_producer_does_not_go_on_under_an_id_that_is_another_producers() {
    within_limit(|| {
        let (moved, _, theirs, _) = moved(&[]);
        let native = producer(&theirs.bootstrap(), &[]);
        let record = Record::to("orders").value("one");
        native.send(&record).unwrap().wait(LIMIT).unwrap();
        for _ in 0..3 {
            moved.send(&record).unwrap().wait(LIMIT).unwrap();
            native.send(&record).unwrap().wait(LIMIT).unwrap();
        }
        let last = native.send(&record).unwrap().wait(LIMIT).unwrap();
        assert_eq!(last.offset, 7, "each once");
        assert_eq!(native.stats().epoch_bumps, 0, "nobody has written in its place");
        moved.close(LIMIT).unwrap();
        native.close(LIMIT).unwrap();
        theirs.stop(LIMIT).unwrap();
    });
}

/// `advertised.listeners` with an address at which another cluster's broker listens.
#[test]
fn records_do_not_go_to_another_cluster_whose_address_is_advertised() {
    within_limit(|| {
        let theirs = cluster(&[]);
        let advertised = format!("PLAINTEXT://{}", theirs.bootstrap());
        let ours = cluster(&[("advertised.listeners", &advertised)]);
        let pairs = [("linger.ms", "0"), ("retry.backoff.ms", "5"), ("reconnect.backoff.ms", "5")];
        let producer = producer(&ours.address().to_string(), &pairs);
        let events = producer.events();
        let sent = producer.send(&Record::to("orders").value("to us")).unwrap();
        match told(&events) {
            Event::OtherCluster { broker, found, .. } => {
                assert_eq!(broker, format!("1 at {}", theirs.bootstrap()));
                assert_eq!(found, None, "it only says that it is another");
            }
            other => panic!("{other:?}"),
        }
        let last = || producer.health().last_error.map(|last| last.error);
        wait_until("the error", || {
            last().is_some_and(|error| error.to_string().contains("answers under"))
        });
        let last = last().unwrap();
        assert_eq!(last.broker(), Some(&*format!("1 at {}", theirs.bootstrap())));
        assert!(last.hint().unwrap().contains("advertised.listeners"), "{last:?}");
        producer.close(Duration::ZERO).unwrap();
        let error = sent.wait(LIMIT).unwrap_err();
        assert_eq!(error.outcome(), Some(Outcome::NotSent));
        let admin = Admin::new(&options(&theirs.bootstrap(), &[])).unwrap();
        assert!(admin.list_topics().wait().unwrap().is_empty(), "nothing of it came there");
    });
}

#[test]
fn without_the_check_whoever_answers_is_taken() {
    whoever_answers_is_taken("metadata.cluster.check.enable", "false");
}

/// Kafka does not check then either: there is nowhere else to go.
#[test]
fn nor_does_a_client_check_that_never_looks_for_the_cluster_anew() {
    whoever_answers_is_taken("metadata.recovery.strategy", "none");
}

fn whoever_answers_is_taken(option: &'static str, value: &'static str) {
    within_limit(move || {
        let (producer, events, theirs, _) = moved(&[(option, value)]);
        let sent = producer.send(&Record::to("orders").value("to anyone")).unwrap();
        assert_eq!(sent.wait(LIMIT).unwrap().offset, 0);
        producer.close(LIMIT).unwrap();
        while let Some(event) = events.try_next() {
            let strange =
                matches!(event, Event::OtherCluster { .. } | Event::ClusterChanged { .. });
            assert!(!strange, "{event:?}");
        }
        theirs.stop(LIMIT).unwrap();
    });
}

/// What a group has committed in one cluster says nothing of another.
#[test]
fn a_consumer_whose_cluster_is_another_all_at_once_reads_that_one_from_its_beginning() {
    within_limit(|| {
        let address = Address::new();
        let ours = address.cluster();
        let bootstrap = address.at.to_string();
        let fill = |values: &[&str]| {
            let producer = producer(&bootstrap, &[]);
            for value in values {
                producer.send(&Record::to("orders").value(value)).unwrap().wait(LIMIT).unwrap();
            }
            producer.close(LIMIT).unwrap();
        };
        fill(&["a", "b", "c"]);
        let pairs = [
            ("group.id", "g"),
            ("auto.offset.reset", "earliest"),
            ("retry.backoff.ms", "5"),
            ("reconnect.backoff.ms", "5"),
        ];
        let consumer = Consumer::new(&options(&bootstrap, &pairs)).unwrap();
        let events = consumer.events();
        consumer.subscribe(&["orders"]).unwrap();
        let next = || loop {
            // Nobody may be there for a while, which is told and passes.
            match consumer.poll(LIMIT) {
                Ok(Some(record)) => {
                    return String::from_utf8(record.value().unwrap().into()).unwrap();
                }
                Ok(None) => panic!("no record came"),
                Err(error) => assert!(error.retriable(), "{error}"),
            }
        };
        for value in ["a", "b", "c"] {
            assert_eq!(next(), value);
        }
        consumer.commit(Commit::Finished, LIMIT).unwrap();
        address.leave(ours);
        let theirs = address.cluster();
        fill(&["x", "y"]);
        let part = TopicPartition::new("orders", 0);
        let parts = std::slice::from_ref(&part);
        let mut came = Vec::new();
        // Its group there has yet to learn of it: what it reads before then it reads again.
        loop {
            came.push(next());
            // Nothing is finished, and all is well, when the partition has just gone.
            let committed = consumer.commit(Commit::Finished, LIMIT);
            if came.last().is_some_and(|last| last == "y")
                && committed.is_ok()
                && consumer.committed(parts, LIMIT).unwrap() == [(part.clone(), Some(2))]
            {
                break;
            }
        }
        assert_eq!(came.first().unwrap(), "x");
        assert!(came.iter().all(|value| value == "x" || value == "y"), "{came:?}");
        assert!(matches!(told(&events), Event::OtherCluster { .. } | Event::ClusterChanged { .. }));
        consumer.close(LIMIT).unwrap();
        theirs.stop(LIMIT).unwrap();
    });
}
