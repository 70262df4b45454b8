//! What the brokers answer.

use std::sync::Mutex;
use std::thread;
use std::time::{Duration, Instant};

use ottla_protocol::frame::decode_request;
use ottla_protocol::messages::api_versions_response::{ApiVersion, ApiVersionsResponse};
use ottla_protocol::messages::fetch_response::{FetchableTopicResponse, PartitionData};
use ottla_protocol::messages::find_coordinator_response::{Coordinator, FindCoordinatorResponse};
use ottla_protocol::messages::list_offsets_response::{
    ListOffsetsPartitionResponse, ListOffsetsTopicResponse,
};
use ottla_protocol::messages::metadata_response::{
    MetadataResponse, MetadataResponseBroker, MetadataResponsePartition, MetadataResponseTopic,
};
use ottla_protocol::messages::offset_commit_response::{
    OffsetCommitResponsePartition, OffsetCommitResponseTopic,
};
use ottla_protocol::messages::offset_fetch_response::{
    OffsetFetchResponseGroup, OffsetFetchResponsePartitions, OffsetFetchResponseTopics,
};
use ottla_protocol::messages::offset_for_leader_epoch_response::{
    EpochEndOffset, OffsetForLeaderTopicResult,
};
use ottla_protocol::messages::{
    FetchRequest, FetchResponse, HeartbeatResponse, JoinGroupRequest, JoinGroupResponse,
    LeaveGroupResponse, ListOffsetsRequest, ListOffsetsResponse, MetadataRequest,
    OffsetCommitRequest, OffsetCommitResponse, OffsetFetchRequest, OffsetFetchResponse,
    OffsetForLeaderEpochRequest, OffsetForLeaderEpochResponse, SyncGroupRequest, SyncGroupResponse,
};
use ottla_protocol::{ApiKey, ErrorCode, Records, Uuid};

use super::produce::{name_producer, produce};
use super::{Act, TOPIC, World, encoded};

/// How long a fetch is held that finds nothing: short, so that a case is.
const HELD: Duration = Duration::from_millis(20);

/// The APIs that the brokers have, with their newest versions.
const APIS: [(ApiKey, i16); 14] = [
    (ApiKey::ApiVersions, 4),
    (ApiKey::Metadata, 12),
    (ApiKey::FindCoordinator, 4),
    (ApiKey::JoinGroup, 9),
    (ApiKey::SyncGroup, 5),
    (ApiKey::Heartbeat, 4),
    (ApiKey::LeaveGroup, 5),
    (ApiKey::OffsetCommit, 9),
    (ApiKey::OffsetFetch, 9),
    (ApiKey::ListOffsets, 7),
    (ApiKey::OffsetForLeaderEpoch, 4),
    (ApiKey::Fetch, 16),
    (ApiKey::InitProducerId, 4),
    (ApiKey::Produce, 13),
];

/// One request, and where it came to.
pub(super) struct Asked<'a> {
    pub(super) node: i32,
    pub(super) version: i16,
    pub(super) id: i32,
    pub(super) frame: &'a [u8],
    pub(super) act: Option<&'a Act>,
}

impl Asked<'_> {
    /// The time for which the broker asks to be left alone on this connection, in ms.
    fn throttle_ms(&self) -> i32 {
        let Some(Act::Throttle(throttle)) = self.act else { return 0 };
        i32::try_from(throttle.as_millis()).unwrap()
    }
}

/// What is answered: nothing at all, where no answer is waited for; none, where the connection is
/// to be closed.
pub(super) fn answer(
    world: &Mutex<World>,
    node: i32,
    key: ApiKey,
    frame: &[u8],
    act: Option<&Act>,
) -> Option<Vec<u8>> {
    let version = i16::from_be_bytes([frame[2], frame[3]]);
    let id = i32::from_be_bytes([frame[4], frame[5], frame[6], frame[7]]);
    let id = if matches!(act, Some(Act::Misdirect)) { id + 1_000 } else { id };
    let asked = Asked { node, version, id, frame, act };
    if key == ApiKey::Fetch {
        return Some(fetch(world, &asked));
    }
    let world = &mut *world.lock().unwrap();
    Some(match key {
        ApiKey::Produce => return produce(world, &asked),
        ApiKey::InitProducerId => name_producer(world, &asked),
        ApiKey::ApiVersions => hello(world, &asked),
        ApiKey::Metadata => metadata(world, &asked),
        ApiKey::FindCoordinator => coordinator(world, &asked),
        ApiKey::JoinGroup => join(world, &asked),
        ApiKey::SyncGroup => sync(world, &asked),
        ApiKey::Heartbeat => {
            let error_code =
                if world.rebalance { ErrorCode::REBALANCE_IN_PROGRESS } else { ErrorCode::NONE };
            let throttle_time_ms = asked.throttle_ms();
            encoded(version, id, &HeartbeatResponse { throttle_time_ms, error_code })
        }
        ApiKey::LeaveGroup => encoded(version, id, &LeaveGroupResponse::default()),
        ApiKey::OffsetCommit => commit(world, &asked),
        ApiKey::OffsetFetch => committed(world, &asked),
        ApiKey::ListOffsets => starts(world, &asked),
        ApiKey::OffsetForLeaderEpoch => epochs(world, &asked),
        other => panic!("{other} was not expected"),
    })
}

fn hello(world: &mut World, asked: &Asked<'_>) -> Vec<u8> {
    let newest = |key: ApiKey, newest| world.newest.get(&key.into()).copied().unwrap_or(newest);
    let api_keys = APIS.map(|(key, max_version)| ApiVersion {
        api_key: key.into(),
        min_version: 0,
        max_version: newest(key, max_version),
    });
    let mut response = ApiVersionsResponse {
        api_keys: api_keys.to_vec(),
        throttle_time_ms: asked.throttle_ms(),
        ..Default::default()
    };
    if asked.version > newest(ApiKey::ApiVersions, APIS[0].1) {
        // As Kafka does: in version 0, with its own range alone.
        response.error_code = ErrorCode::UNSUPPORTED_VERSION;
        response.api_keys.truncate(1);
        return encoded(0, asked.id, &response);
    }
    encoded(asked.version, asked.id, &response)
}

fn metadata(world: &mut World, asked: &Asked<'_>) -> Vec<u8> {
    let (_, request) = decode_request::<MetadataRequest<'_>>(asked.frame).unwrap();
    let hosts: Vec<_> = world
        .addresses
        .iter()
        .filter(|(node, _)| !world.gone.contains(node) && !world.hidden.contains(node))
        .map(|(&node, address)| match asked.act {
            Some(Act::Address(host, port)) if node == asked.node => (node, host.clone(), *port),
            _ => (node, address.ip().to_string(), i32::from(address.port())),
        })
        .collect();
    let brokers = hosts.iter().map(|(node_id, host, port)| MetadataResponseBroker {
        node_id: *node_id,
        host,
        port: *port,
        ..Default::default()
    });
    let leaderless = matches!(asked.act, Some(Act::Leaderless));
    let partitions = world.logs.keys().map(|&partition_index| {
        let true_leader = *world.leaders.get(&partition_index).unwrap_or(&1);
        let told = world.told.get(&partition_index).copied();
        let (leader_id, leader_epoch) = told.unwrap_or((true_leader, world.epoch));
        MetadataResponsePartition {
            partition_index,
            leader_id: if leaderless { -1 } else { leader_id },
            leader_epoch,
            error_code: if leaderless { ErrorCode::LEADER_NOT_AVAILABLE } else { ErrorCode::NONE },
            ..Default::default()
        }
    });
    let partitions: Vec<_> = partitions.collect();
    let names = request.topics.iter().flatten().filter_map(|topic| topic.name);
    let mut names: Vec<&str> = names.collect();
    world.described.extend(names.iter().map(ToString::to_string));
    let others: Vec<String> = (0..world.others).map(|at| format!("other-{at}")).collect();
    if request.topics.is_none() {
        world.described.push("all topics".into());
        names.extend(others.iter().map(String::as_str).chain([TOPIC]));
    }
    if matches!(asked.act, Some(Act::Omit)) {
        names.retain(|name| *name != TOPIC);
    }
    let topics = names.iter().map(|&name| {
        let known = name == TOPIC || others.iter().any(|other| other == name);
        let code = ErrorCode::UNKNOWN_TOPIC_OR_PARTITION;
        MetadataResponseTopic {
            name: Some(name),
            topic_id: if known { Uuid([world.topic_id; 16]) } else { Uuid::ZERO },
            error_code: if known { ErrorCode::NONE } else { code },
            partitions: if known { partitions.clone() } else { Vec::new() },
            ..Default::default()
        }
    });
    let response = MetadataResponse {
        brokers: brokers.collect(),
        topics: topics.collect(),
        ..Default::default()
    };
    encoded(asked.version, asked.id, &response)
}

fn coordinator(world: &World, asked: &Asked<'_>) -> Vec<u8> {
    let address = world.addresses[&1];
    let (host, port) = (address.ip().to_string(), i32::from(address.port()));
    let row = Coordinator { key: "g", node_id: 1, host: &host, port, ..Default::default() };
    let response = FindCoordinatorResponse { coordinators: vec![row], ..Default::default() };
    encoded(asked.version, asked.id, &response)
}

fn join(world: &mut World, asked: &Asked<'_>) -> Vec<u8> {
    let (_, request) = decode_request::<JoinGroupRequest<'_>>(asked.frame).unwrap();
    world.generation += 1;
    world.rebalance = false;
    let response = JoinGroupResponse {
        generation_id: world.generation,
        member_id: "m",
        leader: "another",
        protocol_type: Some("consumer"),
        protocol_name: request.protocols.last().map(|protocol| protocol.name),
        ..Default::default()
    };
    encoded(asked.version, asked.id, &response)
}

/// ConsumerProtocolAssignment in version 0: one topic, its partitions, nothing else.
fn sync(world: &World, asked: &Asked<'_>) -> Vec<u8> {
    let (_, request) = decode_request::<SyncGroupRequest<'_>>(asked.frame).unwrap();
    let mut bytes = vec![0, 0, 0, 0, 0, 1, 0, 1, b't'];
    bytes.extend(i32::try_from(world.share.len()).unwrap().to_be_bytes());
    bytes.extend(world.share.iter().flat_map(|partition| partition.to_be_bytes()));
    bytes.extend((-1_i32).to_be_bytes());
    let response = SyncGroupResponse {
        protocol_type: Some("consumer"),
        protocol_name: request.protocol_name,
        assignment: &bytes,
        ..Default::default()
    };
    encoded(asked.version, asked.id, &response)
}

fn commit(world: &mut World, asked: &Asked<'_>) -> Vec<u8> {
    let (_, request) = decode_request::<OffsetCommitRequest<'_>>(asked.frame).unwrap();
    let mut partitions = Vec::new();
    for row in request.topics.iter().flat_map(|topic| &topic.partitions) {
        world.committed.insert(row.partition_index, row.committed_offset);
        world.commits.push((row.partition_index, row.committed_offset));
        let (partition_index, error_code) = (row.partition_index, ErrorCode::NONE);
        partitions.push(OffsetCommitResponsePartition { partition_index, error_code });
    }
    let topics = vec![OffsetCommitResponseTopic { name: TOPIC, partitions, ..Default::default() }];
    let response = OffsetCommitResponse { throttle_time_ms: asked.throttle_ms(), topics };
    encoded(asked.version, asked.id, &response)
}

fn committed(world: &World, asked: &Asked<'_>) -> Vec<u8> {
    let (_, request) = decode_request::<OffsetFetchRequest<'_>>(asked.frame).unwrap();
    let rows = request.groups.iter().flat_map(|group| group.topics.iter().flatten());
    let partitions = rows.flat_map(|topic| &topic.partition_indexes).map(|&partition_index| {
        let committed_offset = world.committed.get(&partition_index).copied().unwrap_or(-1);
        OffsetFetchResponsePartitions {
            partition_index,
            committed_offset,
            committed_leader_epoch: -1,
            metadata: Some(""),
            ..Default::default()
        }
    });
    let partitions = partitions.collect();
    let topics = vec![OffsetFetchResponseTopics { name: TOPIC, partitions, ..Default::default() }];
    let groups = vec![OffsetFetchResponseGroup { group_id: "g", topics, ..Default::default() }];
    encoded(asked.version, asked.id, &OffsetFetchResponse { groups, ..Default::default() })
}

impl World {
    /// The time for which a broker asks to be left alone with this answer, in ms.
    pub(super) fn throttle(&mut self, asked: &Asked<'_>) -> i32 {
        let Some(Act::Throttle(throttle)) = asked.act else { return 0 };
        self.quiet_until.insert(asked.node, Instant::now() + *throttle);
        asked.throttle_ms()
    }

    pub(super) fn end(&self, partition: i32) -> i64 {
        self.logs[&partition].last().map_or(0, |(_, next, _)| *next)
    }

    pub(super) fn start(&self, partition: i32) -> i64 {
        self.starts.get(&partition).copied().unwrap_or(0)
    }
}

fn starts(world: &World, asked: &Asked<'_>) -> Vec<u8> {
    let (_, request) = decode_request::<ListOffsetsRequest<'_>>(asked.frame).unwrap();
    let rows = request.topics.iter().flat_map(|topic| &topic.partitions);
    let partitions = rows.map(|row| {
        let at = row.partition_index;
        let offset = if row.timestamp == -2 { world.start(at) } else { world.end(at) };
        let error_code = match asked.act {
            Some(Act::Refuse(code)) => *code,
            _ => ErrorCode::NONE,
        };
        ListOffsetsPartitionResponse {
            partition_index: at,
            error_code,
            offset: if error_code.is_none() { offset } else { -1 },
            ..Default::default()
        }
    });
    let topics = vec![ListOffsetsTopicResponse { name: TOPIC, partitions: partitions.collect() }];
    encoded(asked.version, asked.id, &ListOffsetsResponse { topics, ..Default::default() })
}

/// Each epoch ends where its last batch does.
fn epochs(world: &World, asked: &Asked<'_>) -> Vec<u8> {
    let (_, request) = decode_request::<OffsetForLeaderEpochRequest<'_>>(asked.frame).unwrap();
    let rows = request.topics.iter().flat_map(|topic| &topic.partitions);
    let partitions = rows.map(|row| {
        let of_epoch = |(_, next, bytes): &(i64, i64, Vec<u8>)| {
            let epoch = i32::from_be_bytes(bytes[12..16].try_into().unwrap());
            (epoch <= row.leader_epoch).then_some((epoch, *next))
        };
        let found = world.logs[&row.partition].iter().rev().find_map(of_epoch);
        let (leader_epoch, end_offset) = found.unwrap_or((-1, -1));
        EpochEndOffset { partition: row.partition, leader_epoch, end_offset, ..Default::default() }
    });
    let partitions = partitions.collect();
    let topics = vec![OffsetForLeaderTopicResult { topic: TOPIC, partitions }];
    encoded(asked.version, asked.id, &OffsetForLeaderEpochResponse { topics, ..Default::default() })
}

fn fetch(shared: &Mutex<World>, asked: &Asked<'_>) -> Vec<u8> {
    let (_, request) = decode_request::<FetchRequest<'_>>(asked.frame).unwrap();
    let wait = Duration::from_millis(u64::try_from(request.max_wait_ms).unwrap()).min(HELD);
    let deadline = Instant::now() + wait;
    loop {
        let mut world = shared.lock().unwrap();
        let rows: Vec<_> = request
            .topics
            .iter()
            .flat_map(|topic| topic.partitions.iter().map(|row| (topic.topic_id, row)))
            .map(|(id, row)| {
                let place = (row.partition, row.fetch_offset, row.current_leader_epoch);
                (place, world.read(asked, id, place))
            })
            .collect();
        let news =
            rows.iter().any(|(_, (code, _, records))| code.is_error() || !records.is_empty());
        if asked.act.is_some() || news || Instant::now() >= deadline {
            return fetched(&mut world, asked, &request, &rows);
        }
        drop(world);
        thread::park_timeout(Duration::from_millis(1));
    }
}

type Found = ((i32, i64, i32), (ErrorCode, Option<i32>, Vec<u8>));

fn fetched(
    world: &mut World,
    asked: &Asked<'_>,
    request: &FetchRequest<'_>,
    rows: &[Found],
) -> Vec<u8> {
    let mut partitions = Vec::new();
    for ((at, offset, _), (error_code, nearer, records)) in rows {
        if error_code.is_error() || nearer.is_some() || !records.is_empty() {
            world.fetched.push((asked.node, *at, *offset));
        }
        world.sent += records.len();
        partitions.push(PartitionData {
            partition_index: *at,
            error_code: *error_code,
            high_watermark: world.end(*at),
            preferred_read_replica: nearer.unwrap_or(-1),
            records: Records::Inline(records),
            ..Default::default()
        });
    }
    let topic_id = request.topics.first().map_or(Uuid::ZERO, |topic| topic.topic_id);
    let responses = vec![FetchableTopicResponse { topic: TOPIC, topic_id, partitions }];
    let throttle_time_ms = world.throttle(asked);
    let response = FetchResponse { throttle_time_ms, responses, ..Default::default() };
    encoded(asked.version, asked.id, &response)
}

impl World {
    /// What a fetch of a partition brings: one batch, the one that holds the offset.
    fn read(
        &self,
        asked: &Asked<'_>,
        topic_id: Uuid,
        (at, offset, epoch): (i32, i64, i32),
    ) -> (ErrorCode, Option<i32>, Vec<u8>) {
        match asked.act {
            Some(Act::Refuse(code)) => return (*code, None, Vec::new()),
            Some(Act::Nearer(node)) => return (ErrorCode::NONE, Some(*node), Vec::new()),
            Some(Act::Records(only, bytes)) if *only == at => {
                return (ErrorCode::NONE, None, bytes.clone());
            }
            _ => {}
        }
        let code = if topic_id != Uuid([self.topic_id; 16]) {
            ErrorCode::UNKNOWN_TOPIC_ID
        } else if epoch < self.epoch {
            ErrorCode::FENCED_LEADER_EPOCH
        } else if !(self.start(at)..=self.end(at)).contains(&offset) {
            ErrorCode::OFFSET_OUT_OF_RANGE
        } else {
            ErrorCode::NONE
        };
        let found = self.logs[&at].iter().find(|(_, next, _)| *next > offset);
        let records = found.filter(|_| code.is_none()).map(|(.., bytes)| bytes.clone());
        (code, None, records.unwrap_or_default())
    }
}
