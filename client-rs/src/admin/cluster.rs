//! The cluster's brokers, and what is in their log folders.

use ottla_protocol::ApiKey;
use ottla_protocol::messages::describe_cluster_request::DescribeClusterRequest;
use ottla_protocol::messages::describe_cluster_response::{
    DescribeClusterBroker, DescribeClusterResponse,
};
use ottla_protocol::messages::describe_log_dirs_request::DescribeLogDirsRequest;
use ottla_protocol::messages::describe_log_dirs_response::{
    DescribeLogDirsResponse, DescribeLogDirsResult,
};

use super::ask::{Ask, Asked, Rows, outcome};
use super::{Admin, Call, Results};
use crate::error::Error;
use crate::record::TopicPartition;
use crate::state::admin::Route;
use crate::state::machine::{Answer, Body, body};

/// The first version that tells of fenced brokers (KIP-1073).
const FENCED_FROM: i16 = 2;
/// Kafka: `EndpointType.BROKER`.
const BROKERS: i8 = 1;

/// A broker.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Node {
    /// Its id.
    pub id: i32,
    /// The host by which clients reach it.
    pub host: String,
    /// The port.
    pub port: i32,
    /// Where it stands, if it was told.
    pub rack: Option<String>,
    /// Whether it is registered but kept from serving. Only told where asked for.
    pub is_fenced: bool,
}

/// The cluster.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct ClusterDescription {
    /// Its id.
    pub cluster_id: String,
    /// The id of the broker that takes what changes the cluster; `None` if there is none now.
    pub controller: Option<i32>,
    /// Its brokers, by id.
    pub nodes: Vec<Node>,
}

/// What can be said of a call that describes the cluster.
#[derive(Debug, Clone, Copy, Default)]
pub struct DescribeClusterOptions {
    include_fenced_brokers: bool,
}

impl<T: Clone> Call<T, DescribeClusterOptions> {
    /// Whether to tell of brokers too that are kept from serving. Default false.
    pub fn include_fenced_brokers(self, include: bool) -> Self {
        self.with(|options| options.include_fenced_brokers = include)
    }
}

/// A folder of logs.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct LogDirDescription {
    /// Its path on the broker.
    pub path: String,
    /// Bytes of its disk; `None` if that was not told.
    pub total_bytes: Option<i64>,
    /// Bytes that are free there; `None` if that was not told.
    pub usable_bytes: Option<i64>,
    /// Whether no new partition is put there (KIP-1066).
    pub is_cordoned: bool,
    /// Why it cannot be used; `None` if it can.
    pub error: Option<Error>,
    /// The partitions in it, by name.
    pub replicas: Vec<ReplicaInfo>,
}

/// A partition in a folder of logs.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct ReplicaInfo {
    /// Which partition.
    pub partition: TopicPartition,
    /// Bytes of its log.
    pub size: i64,
    /// Records that it lacks up to the high watermark, or to the replica it will take the place of.
    pub offset_lag: i64,
    /// Whether it is being moved here.
    pub is_future: bool,
}

impl Admin {
    /// The cluster's id, controller and brokers.
    pub fn describe_cluster(&self) -> Call<ClusterDescription, DescribeClusterOptions> {
        self.single(cluster)
    }

    /// The log folders of these brokers, with the partitions in each; of all brokers if none is
    /// named.
    pub fn describe_log_dirs(&self, brokers: &[i32]) -> Call<Results<i32, Vec<LogDirDescription>>> {
        let brokers = brokers.to_vec();
        self.each(move |()| log_dirs(&brokers))
    }
}

fn cluster(options: DescribeClusterOptions) -> Ask<(), ClusterDescription> {
    let build = move || {
        let served = ApiKey::DescribeCluster.served();
        let fenced = options.include_fenced_brokers;
        let first = if fenced { FENCED_FROM } else { *served.start() };
        body(ApiKey::DescribeCluster, first..=*served.end(), move |frame| {
            frame.put(&DescribeClusterRequest {
                include_cluster_authorized_operations: false,
                endpoint_type: BROKERS,
                include_fenced_brokers: fenced,
            })
        })
    };
    Ask::one(ApiKey::DescribeCluster, Route::Any, build, |answer, asked| {
        let response = answer.decode::<DescribeClusterResponse<'_>>()?;
        let described = outcome(response.error_code, response.error_message, || {
            let mut nodes: Vec<Node> = response.brokers.iter().map(Node::of).collect();
            nodes.sort_by_key(|node| node.id);
            ClusterDescription {
                cluster_id: response.cluster_id.to_owned(),
                controller: Some(response.controller_id).filter(|&id| id >= 0),
                nodes,
            }
        });
        Ok(asked.only(response.throttle_time_ms, described))
    })
}

impl Node {
    fn of(row: &DescribeClusterBroker<'_>) -> Self {
        Self {
            id: row.broker_id,
            host: row.host.to_owned(),
            port: row.port,
            rack: row.rack.map(str::to_owned),
            is_fenced: row.is_fenced,
        }
    }
}

fn log_dirs(brokers: &[i32]) -> Ask<i32, Vec<LogDirDescription>> {
    if brokers.is_empty() {
        return Ask::of_each_broker(ApiKey::DescribeLogDirs, all_logs, read_log_dirs);
    }
    let items = brokers.iter().map(|&broker| (broker, Route::Broker(broker)));
    Ask::new(ApiKey::DescribeLogDirs, items, |_, _| all_logs(), read_log_dirs)
}

fn all_logs() -> Box<dyn Body> {
    body(ApiKey::DescribeLogDirs, ApiKey::DescribeLogDirs.served(), |frame| {
        frame.put(&DescribeLogDirsRequest { topics: None })
    })
}

fn read_log_dirs(
    answer: &Answer,
    asked: &Asked<'_, i32>,
) -> Result<Rows<Vec<LogDirDescription>>, Error> {
    let response = answer.decode::<DescribeLogDirsResponse<'_>>()?;
    let described = outcome(response.error_code, None, || {
        response.results.iter().map(|row| LogDirDescription::of(row, answer)).collect()
    });
    Ok(asked.only(response.throttle_time_ms, described))
}

impl LogDirDescription {
    fn of(row: &DescribeLogDirsResult<'_>, answer: &Answer) -> Self {
        let mut replicas = Vec::new();
        for topic in &row.topics {
            replicas.extend(topic.partitions.iter().map(|row| ReplicaInfo {
                partition: TopicPartition::new(topic.name, row.partition_index),
                size: row.partition_size,
                offset_lag: row.offset_lag,
                is_future: row.is_future_key,
            }));
        }
        replicas.sort_by(|one, two| one.partition.cmp(&two.partition));
        let told = |bytes: i64| Some(bytes).filter(|&bytes| bytes >= 0);
        let error = row.error_code.is_error().then(|| {
            let error = Error::from_kafka(row.error_code, None).with_broker(&answer.broker);
            error.with_api(ApiKey::DescribeLogDirs)
        });
        Self {
            path: row.log_dir.to_owned(),
            total_bytes: told(row.total_bytes),
            usable_bytes: told(row.usable_bytes),
            is_cordoned: row.is_cordoned,
            error,
            replicas,
        }
    }
}
