//! Asking after and changing what a cluster has: topics, partitions, options, groups, offsets.

mod ask;
mod call;
mod cluster;
mod configs;
mod engine;
mod features;
mod group_members;
mod group_offsets;
mod groups;
mod offsets;
mod partitions;
mod topics;

use std::fmt;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use crate::config::{AdminConfig, Options};
use crate::driver::{self, ClientHandle, clock};
use crate::error::Error;
use crate::events::{Events, Feed};
use crate::health::Health;
use crate::life::Life;
use crate::process::Process;
use crate::promise::{Promise, Promised};
use crate::state::admin::Work;
use crate::state::wake::Wake;

use ask::{Ask, Key};
use engine::{Engine, Face};

pub use call::{Call, ChangeOptions, Pending, Results};
pub use cluster::{
    ClusterDescription, DescribeClusterOptions, LogDirDescription, Node, ReplicaInfo,
};
pub use configs::{
    AlterConfigOp, ConfigEntry, ConfigResource, ConfigResourceType, ConfigSource, ConfigSynonym,
    ConfigType, DescribeConfigsOptions,
};
pub use features::{FeatureMetadata, FinalizedVersionRange, SupportedVersionRange};
pub use group_members::RemoveMembersOptions;
pub use group_offsets::{GroupOffsets, GroupOffsetsOptions};
pub use groups::{
    ClassicGroupDescription, GroupListing, GroupListings, ListGroupsOptions, MemberDescription,
};
pub use offsets::{
    EpochEndOffset, IsolationLevel, ListOffsetsOptions, ListOffsetsResultInfo, OffsetSpec,
};
pub use partitions::{DeletedRecords, NewPartitions, ProducerState};
pub use topics::{CreatedTopic, NewTopic, TopicDescription, TopicListing, TopicPartitionInfo};

/// How long a close in the background may take when the last handle was dropped.
const DROP_DEADLINE: Duration = Duration::from_secs(5);
/// What a close waits beyond its time for the machine's last turn.
const SLACK: Duration = Duration::from_millis(50);

/// Asks after and changes what a cluster has.
///
/// A handle: clones are the same client, for any number of threads and tasks. Each call gives a
/// [`Call`], which blocks by [`Call::wait`] and is awaited under any executor. Each topic, partition
/// or group of a call goes to the broker that answers for it and has a result of its own. Names are
/// those of Kafka's `AdminClient`.
///
/// ```no_run
/// use ottla::{Admin, NewTopic, Options};
///
/// let options = Options::new().set("bootstrap.servers", "localhost:9092")?;
/// let admin = Admin::new(&options)?;
/// let created = admin.create_topics(&[NewTopic::new("orders").partitions(3)]).wait()?;
/// println!("orders is {}", created.get("orders")?.topic_id);
/// for topic in admin.list_topics().wait()? {
///     println!("{}", topic.name);
/// }
/// # Ok::<(), ottla::Error>(())
/// ```
#[derive(Clone)]
pub struct Admin {
    own: Arc<Own>,
}

/// What the handles of one client share.
struct Own {
    config: AdminConfig,
    face: Arc<Face>,
    wake: Arc<Wake>,
    /// Resolved when the machine has ended.
    closed: Arc<Promise<()>>,
    life: Life,
    events: Arc<Feed>,
    /// The process it was made in: threads do not survive a fork.
    process: Process,
}

/// Some items of a call, for a request of their own.
fn pick<T: Clone>(all: &[T], items: &[usize]) -> Vec<T> {
    items.iter().filter_map(|&item| all.get(item).cloned()).collect()
}

/// Counts since an admin client was made.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct AdminStats {
    /// Calls that began.
    pub calls: u64,
    /// Calls that are open now.
    pub calls_open: usize,
    /// Requests of calls, and questions for coordinators; not those for metadata.
    pub requests: u64,
    /// Items that went into a further request.
    pub retries: u64,
    /// Milliseconds for which brokers asked to be left alone (KIP-219).
    pub throttled_ms: u64,
}

impl Admin {
    /// An admin client of these options. Nothing is connected before the first call.
    ///
    /// `InvalidOption` if an option is missing, or two contradict each other.
    pub fn new(options: &Options) -> Result<Self, Error> {
        let config = AdminConfig::new(options)?;
        Process::watch()?;
        let process = Process::current();
        let (closed, life) = (Promise::new(), Life::new(process));
        let (face, wake, events) = (Arc::default(), Arc::default(), Arc::default());
        Ok(Self { own: Arc::new(Own { config, face, wake, closed, life, events, process }) })
    }

    /// Counts since the client was made.
    pub fn stats(&self) -> AdminStats {
        self.own.face.stats(self.own.life.throttled_ms())
    }

    /// What befalls the client, from now on.
    ///
    /// In a child of the process that made it there is nothing to tell.
    pub fn events(&self) -> Events {
        Events::of(&self.own.events, self.own.process)
    }

    /// How the client fares: its connections, and its last error.
    ///
    /// Before the first call, and in a child of the process that made it, there is nothing to tell.
    pub fn health(&self) -> Health {
        self.own.life.health()
    }

    /// Takes no further call, lets those that are open end, and ends the client.
    ///
    /// What is open when the time is over ends with `Closed`. A second call does nothing. In a
    /// callback, which must not wait, it is refused: see [`Self::close_async`].
    pub fn close(&self, timeout: Duration) -> Result<(), Error> {
        self.own.process.check()?;
        driver::check_may_wait()?;
        let Some(handle) = self.own.begin_close(timeout) else { return Ok(()) };
        let result = self.own.closed.wait(timeout.saturating_add(SLACK), "closing the client");
        handle.wait_ended(SLACK);
        result
    }

    /// The same for tasks.
    pub fn close_async(
        &self,
        timeout: Duration,
    ) -> impl Future<Output = Result<(), Error>> + Send + use<> {
        if let Err(forked) = self.own.process.check() {
            return Promised(Promise::resolved(Err(forked)));
        }
        match self.own.begin_close(timeout) {
            Some(_) => Promised(Arc::clone(&self.own.closed)),
            None => Promised(Promise::resolved(Ok(()))),
        }
    }

    fn api_timeout(&self) -> Duration {
        self.own.config.api_timeout
    }

    /// Hands a call to the machine, which is started by the first.
    fn begin(&self, work: Box<dyn Work>, timeout: Duration) -> Result<(), Error> {
        self.own.start()?;
        let deadline = clock::after(timeout);
        self.own.face.push(work, deadline, self.own.config.calls_max)?;
        self.own.wake.wake();
        Ok(())
    }

    /// A call with a result for each of its items.
    fn each<K: Key, V: Clone + Send + fmt::Debug + 'static, O: Default>(
        &self,
        ask: impl FnOnce(O) -> Ask<K, V> + Send + 'static,
    ) -> Call<Results<K, V>, O> {
        Call::new(self, move |options| {
            let promise = Promise::new();
            (ask(options).into_work(&promise), promise)
        })
    }

    /// A call with one result.
    fn single<V: Clone + Send + fmt::Debug + 'static, O: Default>(
        &self,
        ask: impl FnOnce(O) -> Ask<(), V> + Send + 'static,
    ) -> Call<V, O> {
        Call::new(self, move |options| {
            let promise = Promise::new();
            (ask(options).into_single(&promise), promise)
        })
    }
}

impl fmt::Debug for Admin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Admin").field("stats", &self.stats()).finish_non_exhaustive()
    }
}

impl Own {
    /// Brings the machine to the I/O thread, the first time.
    fn start(&self) -> Result<(), Error> {
        self.life.begin(|| {
            let (config, face) = (self.config.clone(), Arc::clone(&self.face));
            let (closed, wake) = (Arc::clone(&self.closed), Arc::clone(&self.wake));
            driver::start(&self.config.common, wake, &self.events, move |random| {
                Engine::new(&config, face, closed, random)
            })
        })
    }

    /// Refuses all calls from now on and has the machine end; its handle, if there is a machine.
    fn begin_close(&self, timeout: Duration) -> Option<&ClientHandle> {
        let client = self.life.end();
        if client.is_some() {
            self.face.close(clock::after(timeout));
            self.wake.wake();
        } else {
            self.events.end();
        }
        client
    }
}

impl Drop for Own {
    fn drop(&mut self) {
        if !self.process.is_current() {
            // Left as it is: its locks may be held for ever.
            std::mem::forget(Arc::clone(&self.face));
        } else if !self.closed.is_resolved() {
            self.begin_close(DROP_DEADLINE);
        }
    }
}
