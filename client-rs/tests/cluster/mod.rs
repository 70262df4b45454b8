//! The broker of a story: our own in this process, or the one that the environment names.

#![allow(dead_code, reason = "each story takes what it needs")]
#![allow(clippy::unwrap_used, reason = "a test that cannot go on ends here")]

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use ottla::{Admin, ErrorKind, NewTopic, OffsetSpec, TopicPartition};
use ottla_broker::{Broker, BrokerConfig};

use crate::clients::options;
use crate::patience::{LIMIT, wait_until};

/// Names a broker of somebody else's, `host:port`, for stories that need nothing of ours.
const ELSEWHERE: &str = "OTTLA_TEST_BOOTSTRAP";

/// A cluster of one broker.
pub(crate) struct Cluster {
    broker: Option<Broker>,
    bootstrap: String,
}

impl Cluster {
    pub(crate) fn start() -> Self {
        Self::start_with(&[])
    }

    /// The same with options that our own broker needs and others have by themselves.
    pub(crate) fn start_with(options: &[(&str, &str)]) -> Self {
        if let Ok(bootstrap) = std::env::var(ELSEWHERE) {
            return Self { broker: None, bootstrap };
        }
        let config = BrokerConfig::new().memory();
        let config =
            options.iter().fold(config, |config, (name, value)| config.set(name, value).unwrap());
        let broker = Broker::start(config).unwrap();
        Self { bootstrap: broker.bootstrap(), broker: Some(broker) }
    }

    /// One with a topic of so many partitions, and that topic's name.
    pub(crate) fn with_topic(partitions: i32) -> (Self, String) {
        let cluster = Self::start();
        let topic = cluster.topic(partitions);
        (cluster, topic)
    }

    pub(crate) fn bootstrap(&self) -> String {
        self.bootstrap.clone()
    }

    /// Whether it is our own.
    pub(crate) fn is_ours(&self) -> bool {
        self.broker.is_some()
    }

    /// Makes a topic of so many partitions that is this story's alone; its name.
    pub(crate) fn topic(&self, partitions: i32) -> String {
        self.topic_with(partitions, &[])
    }

    /// The same with options of the topic.
    pub(crate) fn topic_with(&self, partitions: i32, configs: &[(&str, &str)]) -> String {
        let topic = fresh("orders");
        make_topic(&self.bootstrap, &topic, partitions, configs);
        topic
    }

    /// Makes a topic of this name, which must be a fresh one.
    pub(crate) fn make_topic(&self, topic: &str, partitions: i32) {
        make_topic(&self.bootstrap, topic, partitions, &[]);
    }
}

/// Makes a topic, and waits until the leader of each partition serves it: a broker may tell of a
/// leader first, and what asks for no acknowledgement is lost then. Its records stay, however long
/// ago they say that they were written.
pub(crate) fn make_topic(bootstrap: &str, topic: &str, partitions: i32, configs: &[(&str, &str)]) {
    let admin = Admin::new(&options(bootstrap, &[])).unwrap();
    let new = NewTopic::new(topic).partitions(partitions).config("retention.ms", "-1");
    let new = configs.iter().fold(new, |new, (name, value)| new.config(*name, *value));
    admin.create_topics(&[new]).wait().unwrap().all().unwrap();
    let count = usize::try_from(partitions).unwrap();
    wait_until("the topic", || match admin.describe_topics(&[topic]).wait().unwrap().get(topic) {
        Ok(found) => {
            let led = found.partitions.iter().filter(|partition| partition.leader.is_some());
            led.count() == count
        }
        Err(error) => {
            assert_eq!(error.kind(), ErrorKind::UnknownTopic, "{error}");
            false
        }
    });
    let parts = (0..partitions).map(|number| TopicPartition::new(topic, number));
    let ends: Vec<_> = parts.map(|part| (part, OffsetSpec::Latest)).collect();
    admin.list_offsets(&ends).wait().unwrap().all().unwrap();
    admin.close(LIMIT).unwrap();
}

/// A name that no other story, nor an earlier run, has given to anything.
#[allow(clippy::disallowed_methods, reason = "a broker of somebody else's outlives the test")]
pub(crate) fn fresh(name: &str) -> String {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_nanos();
    format!("{name}-{since:x}-{}", COUNT.fetch_add(1, Ordering::Relaxed))
}
