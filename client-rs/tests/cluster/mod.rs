//! The broker of a story: our own in this process, or the one that the environment names.

#![allow(dead_code, reason = "each story takes what it needs")]
#![allow(clippy::unwrap_used, reason = "a test that cannot go on ends here")]

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use ottla_broker::{Broker, BrokerConfig};

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

    pub(crate) fn bootstrap(&self) -> String {
        self.bootstrap.clone()
    }

    /// Whether it is our own.
    pub(crate) fn is_ours(&self) -> bool {
        self.broker.is_some()
    }
}

/// A name that no other story, nor an earlier run, has given to anything.
#[allow(clippy::disallowed_methods, reason = "a broker of somebody else's outlives the test")]
pub(crate) fn fresh(name: &str) -> String {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_nanos();
    format!("{name}-{since:x}-{}", COUNT.fetch_add(1, Ordering::Relaxed))
}
