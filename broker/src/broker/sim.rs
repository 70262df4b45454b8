//! A broker for the simulator: its machines, its handlers and its log on one thread, under the
//! runtime that the simulator drives.
//!
//! In the place of sockets stand channels of whole frames, in that of the writer's thread a task.
//! Left out is the upkeep of the folder, which nothing in a simulated minute asks for; a test may
//! begin with it.

use std::net::SocketAddr;
use std::sync::Arc;

use bytes::BytesMut;
use ottla_protocol::{ErrorCode, Uuid};
use ottla_storage::{LogReader, MemoryFiles};
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::JoinSet;

use super::BrokerError;
use super::start::{load, new_node, run_timers};
use crate::config::BrokerConfig;
use crate::driver::clock::Clock;
use crate::driver::controller::NewTopic;
use crate::driver::first::first;
use crate::driver::folder::DataFolder;
use crate::driver::partition::{AppendError, Partition};
use crate::driver::replay::read_records;
use crate::driver::upkeep;
use crate::driver::writer::ReadyList;
use crate::node::{Node, Phase};
use crate::server::connection::ConnectionInfo;
use crate::server::dispatch::dispatch;
use crate::server::hangup::Hangup;
use crate::server::inbound::Frame;
use crate::server::outbox::{Answer, Outbox, Piece};
use crate::state::topics::{Refusal, TopicKey};

/// Files in memory that outlive the broker which wrote them.
#[derive(Debug, Clone, Default)]
pub struct SimDisk(MemoryFiles);

/// A running broker. Dropped, it is as if its process were killed: the disk keeps what it wrote.
#[derive(Debug)]
pub struct SimBroker {
    node: Arc<Node>,
    tasks: JoinSet<()>,
    _phase: watch::Sender<Phase>,
}

/// The client's end of a connection, in whole frames. An end that is dropped is closed.
#[derive(Debug)]
pub struct SimLink {
    /// Takes requests, without their size field.
    pub requests: mpsc::UnboundedSender<BytesMut>,
    /// Gives answers with their size field, in the order of the requests.
    pub answers: mpsc::UnboundedReceiver<Vec<u8>>,
}

/// A topic that is deleted, with the logs that it had.
#[derive(Debug, Clone)]
pub struct SimRemains(Vec<(Arc<Partition>, LogReader)>);

impl SimRemains {
    /// All records of a partition that consumers could see before it was deleted, in order.
    pub fn records(&self, partition: i32) -> Result<Vec<SimRecord>, String> {
        let index = usize::try_from(partition).ok();
        let known = index.and_then(|index| self.0.get(index));
        let (partition, log) = known.ok_or("no such partition")?;
        records_of(log, partition.high_watermark())
    }
}

/// A record as a log keeps it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SimRecord {
    /// Its offset.
    pub offset: i64,
    /// The producer's id and epoch, as its batch has them.
    pub producer: (i64, i16),
    /// Its key.
    pub key: Option<Vec<u8>>,
    /// Its value.
    pub value: Option<Vec<u8>>,
}

impl SimBroker {
    /// Starts on a disk, as the broker that clients find at `address`.
    pub fn start(
        config: &BrokerConfig,
        disk: &SimDisk,
        address: SocketAddr,
    ) -> Result<Self, BrokerError> {
        let (clock, settings) = (Clock, config.settings());
        let folder = DataFolder::open_on(Arc::new(disk.0.clone()), &settings, clock)?;
        let ready = Arc::new(ReadyList::default());
        let (phase, watched) = watch::channel(Phase::Running);
        let node = new_node(settings, clock, Arc::new(folder), &ready, watched, address)?;
        let node = Arc::new(node);
        load(&node, &ready)?;
        let mut tasks = JoinSet::new();
        tasks.spawn(write(ready, clock));
        tasks.spawn(run_timers(node.clone()));
        Ok(Self { node, tasks, _phase: phase })
    }

    /// Has the broker look for old segments, note checkpoints and remove files from now on.
    pub fn keep_folder(&mut self) {
        self.tasks.spawn(upkeep::run(self.node.clone()));
    }

    /// Creates a topic; its partitions can be produced to when this returns.
    pub async fn create_topic(&self, name: &str, partitions: i32) -> Result<(), BrokerError> {
        let topic = NewTopic {
            name: name.to_owned(),
            partitions,
            replication_factor: -1,
            configs: Vec::new(),
        };
        let (created, outcome) = oneshot::channel();
        let done = Box::new(move |result| {
            // Who asked is gone, if it is not taken.
            let _gone = created.send(result).is_err();
        });
        self.node.controller.create_topic(&self.node, topic, done);
        match outcome.await {
            Ok(Ok(())) => Ok(()),
            Ok(Err(refused)) => {
                Err(BrokerError::Topic { code: refused.code.0, reason: refused.message })
            }
            Err(_gone) => Err(BrokerError::Stopped),
        }
    }

    /// Deletes a topic; what it had can still be looked at.
    pub async fn delete_topic(&self, name: &str) -> Result<SimRemains, BrokerError> {
        let refused =
            |reason: String| BrokerError::Topic { code: ErrorCode::UNKNOWN_SERVER_ERROR.0, reason };
        let topic = self.node.topics.named(name).ok_or_else(|| refused("no such topic".into()))?;
        let log = |partition: &Arc<Partition>| Ok((partition.clone(), partition.log()?.clone()));
        let logs: Result<_, AppendError> = topic.partitions.iter().map(log).collect();
        let remains = SimRemains(logs.map_err(|error| refused(error.to_string()))?);
        let (deleted, outcome) = oneshot::channel();
        let done = Box::new(move |results| {
            // Who asked is gone, if it is not taken.
            let _gone = deleted.send(results).is_err();
        });
        self.node.controller.delete_topics(&self.node, &[TopicKey::Id(topic.id)], done);
        let results: Vec<Result<_, Refusal>> = outcome.await.map_err(|_| BrokerError::Stopped)?;
        match results.into_iter().find_map(Result::err) {
            None => Ok(remains),
            Some(refused) => {
                Err(BrokerError::Topic { code: refused.code.0, reason: refused.message })
            }
        }
    }

    /// Accepts a connection.
    pub fn accept(&mut self, peer: SocketAddr) -> SimLink {
        let (requests, inbound) = mpsc::unbounded_channel();
        let (outbound, answers) = mpsc::unbounded_channel();
        let info = ConnectionInfo { peer, local: self.node.listener };
        self.tasks.spawn(serve(self.node.clone(), info, inbound, outbound));
        SimLink { requests, answers }
    }

    /// The id of a topic.
    pub fn topic_id(&self, name: &str) -> Option<Uuid> {
        self.node.topics.named(name).map(|topic| topic.id)
    }

    /// The end of what consumers may see of a partition.
    pub fn end(&self, topic: &str, partition: i32) -> Result<i64, String> {
        let known = self.node.topics.named(topic).ok_or_else(|| format!("no topic {topic}"))?;
        Ok(known.partition(partition).ok_or("no such partition")?.high_watermark())
    }

    /// All records of a partition that consumers may see, in order.
    pub fn records(&self, topic: &str, partition: i32) -> Result<Vec<SimRecord>, String> {
        let known = self.node.topics.named(topic).ok_or_else(|| format!("no topic {topic}"))?;
        let partition = known.partition(partition).ok_or("no such partition")?;
        let log = partition.log().map_err(|error| error.to_string())?;
        records_of(log, partition.high_watermark())
    }

    /// How many tasks have ended that should run as long as the broker, or their connection.
    pub fn panics(&mut self) -> usize {
        let mut panics = 0;
        while let Some(ended) = self.tasks.try_join_next() {
            panics += usize::from(ended.is_err_and(|error| error.is_panic()));
        }
        panics
    }
}

fn records_of(log: &LogReader, end: i64) -> Result<Vec<SimRecord>, String> {
    let mut records = Vec::new();
    read_records(log, log.log_start()..end, |batch, record| {
        records.push(SimRecord {
            offset: record.offset,
            producer: (batch.producer_id, batch.producer_epoch),
            key: record.key.map(<[u8]>::to_vec),
            value: record.value.map(<[u8]>::to_vec),
        });
        Ok(())
    })?;
    Ok(records)
}

/// The writer's turns.
async fn write(ready: Arc<ReadyList>, clock: Clock) {
    loop {
        while ready.turn(clock) {}
        ready.woken.notified().await;
    }
}

/// Serves a connection until either side ends it.
async fn serve(
    node: Arc<Node>,
    info: ConnectionInfo,
    inbound: mpsc::UnboundedReceiver<BytesMut>,
    outbound: mpsc::UnboundedSender<Vec<u8>>,
) {
    let outbox = Arc::new(Outbox::new(node.answers.clone()));
    let sent = send(&outbox, &outbound);
    let _either = first(receive(&node, &info, inbound, &outbox, &outbound), sent).await;
    outbox.abandon();
}

async fn receive(
    node: &Arc<Node>,
    info: &ConnectionInfo,
    mut inbound: mpsc::UnboundedReceiver<BytesMut>,
    outbox: &Arc<Outbox>,
    outbound: &mpsc::UnboundedSender<Vec<u8>>,
) {
    let hangup = Hangup::of(outbound, node.clock);
    loop {
        outbox.room().await;
        let Some(bytes) = inbound.recv().await else { return };
        let size = bytes.len();
        let Some(mut charge) = node.requests.account(size) else { return };
        charge.reach(size).await;
        let frame = Frame { bytes, charge };
        if let Err(reason) = dispatch(node, info, frame, outbox, &hangup).await {
            tracing::warn!(reason, "connection closed");
            return;
        }
    }
}

async fn send(outbox: &Arc<Outbox>, outbound: &mpsc::UnboundedSender<Vec<u8>>) {
    loop {
        match outbox.poll_piece() {
            Piece::Answer(answer) => {
                let Some(whole) = whole(&answer) else { return };
                if outbound.send(whole).is_err() {
                    return;
                }
            }
            Piece::Close(reason) => {
                tracing::warn!(reason, "connection closed");
                return;
            }
            Piece::Waiting | Piece::Empty => outbox.ready().await,
        }
    }
}

/// An answer in one piece, with the records that it takes from files; none if these cannot be read.
fn whole(answer: &Answer) -> Option<Vec<u8>> {
    let mut whole = Vec::with_capacity(answer.bytes.len());
    let mut from = 0;
    for (at, range) in &answer.ranges {
        whole.extend_from_slice(answer.bytes.get(from..*at)?);
        whole.extend_from_slice(&range.read().ok()?);
        from = *at;
    }
    whole.extend_from_slice(answer.bytes.get(from..)?);
    Some(whole)
}
