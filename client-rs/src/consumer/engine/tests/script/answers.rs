//! What the broker of a few lines answers.

use std::sync::Arc;

use bytes::Bytes;
use ottla_protocol::messages::fetch_response::{FetchableTopicResponse, PartitionData};
use ottla_protocol::messages::join_group_response::JoinGroupResponseMember;
use ottla_protocol::messages::list_offsets_response::{
    ListOffsetsPartitionResponse, ListOffsetsTopicResponse,
};
use ottla_protocol::messages::metadata_response::{
    MetadataResponseBroker, MetadataResponsePartition, MetadataResponseTopic,
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
use ottla_protocol::messages::sync_group_request::SyncGroupRequestAssignment;
use ottla_protocol::messages::{
    ConsumerProtocolSubscription, FetchRequest, FetchResponse, FindCoordinatorResponse,
    HeartbeatResponse, JoinGroupRequest, JoinGroupResponse, LeaveGroupResponse, ListOffsetsRequest,
    ListOffsetsResponse, MetadataRequest, MetadataResponse, OffsetCommitRequest,
    OffsetCommitResponse, OffsetFetchRequest, OffsetFetchResponse, OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse, SyncGroupRequest, SyncGroupResponse, find_coordinator_response,
};
use ottla_protocol::{ApiKey, ErrorCode, Message, Reader, Records, Uuid, Writer, frame};

use super::{Asked, NODE, Script};
use crate::state::assignor::{self, NO_GENERATION, Share, Strategy, Subscription};
use crate::state::machine::{Lane, Request};

impl Script {
    pub(super) fn answer(
        &mut self,
        key: ApiKey,
        version: i16,
        bytes: &[u8],
        request: &Request,
    ) -> Option<Bytes> {
        Some(match key {
            ApiKey::Metadata => self.metadata_answer(bytes, version),
            ApiKey::FindCoordinator => coordinator_answer(self.take_refusal(key), version),
            ApiKey::JoinGroup => self.join_answer(bytes, version),
            ApiKey::SyncGroup => self.sync_answer(bytes, version),
            ApiKey::Heartbeat => {
                let refusal = self.take_refusal(key);
                let error_code = if refusal.is_error() { refusal } else { self.group_error() };
                body(&HeartbeatResponse { error_code, ..Default::default() }, version)
            }
            ApiKey::LeaveGroup => {
                self.seen.push("leave".into());
                body(&LeaveGroupResponse::default(), version)
            }
            ApiKey::OffsetCommit => self.commit_answer(bytes, version),
            ApiKey::OffsetFetch => self.lookup_answer(bytes, version),
            ApiKey::ListOffsets => self.starts_answer(bytes, version),
            ApiKey::OffsetForLeaderEpoch => self.epochs_answer(bytes, version),
            ApiKey::Fetch => return self.fetch_answer(bytes, version, request),
            other => panic!("{other} is not in the script"),
        })
    }

    fn metadata_answer(&mut self, bytes: &[u8], version: i16) -> Bytes {
        let refusal = self.take_refusal(ApiKey::Metadata);
        let (_, request) = frame::decode_request::<MetadataRequest<'_>>(bytes).unwrap();
        let row = |partition_index: i32| MetadataResponsePartition {
            partition_index,
            leader_id: NODE,
            leader_epoch: self.epoch,
            replica_nodes: vec![NODE, replica(partition_index)],
            ..Default::default()
        };
        let others = self.topics.iter().map(|name| Some(name.as_str()));
        let asked: Vec<Option<&str>> = match &request.topics {
            Some(topics) => topics.iter().map(|topic| topic.name).collect(),
            None => others.collect(),
        };
        let topics = asked.into_iter().map(|name| {
            let there = name == Some("t");
            let error_code = if there { refusal } else { ErrorCode::UNKNOWN_TOPIC_OR_PARTITION };
            let known = error_code.is_none();
            MetadataResponseTopic {
                name,
                topic_id: if known { self.topic_id } else { Uuid::ZERO },
                error_code,
                partitions: if known {
                    self.logs.keys().map(|&at| row(at)).collect()
                } else {
                    vec![]
                },
                ..Default::default()
            }
        });
        let broker =
            |node_id, rack| MetadataResponseBroker { node_id, host: "127.0.0.1", port: 1, rack };
        let racks = (0..).zip(&self.racks);
        let replicas = racks.map(|(number, &rack)| broker(replica(number), Some(rack)));
        let brokers = std::iter::once(broker(NODE, None)).chain(replicas).collect();
        body(&MetadataResponse { brokers, topics: topics.collect(), ..Default::default() }, version)
    }

    fn take_refusal(&mut self, key: ApiKey) -> ErrorCode {
        let at = self.refuse.iter().position(|(of, _)| *of == key);
        at.and_then(|at| self.refuse.remove(at)).map_or(ErrorCode::NONE, |(_, code)| code)
    }

    fn group_error(&self) -> ErrorCode {
        match (self.forgotten, self.rebalance) {
            (true, _) => ErrorCode::UNKNOWN_MEMBER_ID,
            (_, true) => ErrorCode::REBALANCE_IN_PROGRESS,
            _ => ErrorCode::NONE,
        }
    }

    fn join_answer(&mut self, bytes: &[u8], version: i16) -> Bytes {
        let (_, request) = frame::decode_request::<JoinGroupRequest<'_>>(bytes).unwrap();
        self.seen.push("join".into());
        let metadata = request.protocols.first().map_or(&[][..], |protocol| protocol.metadata);
        self.joined_from = rack_of(metadata);
        let told = assignor::decode_subscription(Strategy::Range, metadata).unwrap();
        self.joined_for = told.topics.iter().map(ToString::to_string).collect();
        let error_code = self.take_refusal(ApiKey::JoinGroup);
        if error_code.is_error() {
            return body(&JoinGroupResponse { error_code, ..Default::default() }, version);
        }
        self.generation += 1;
        (self.rebalance, self.forgotten) = (false, false);
        let topics = [Arc::from("t")];
        let told: Vec<Vec<u8>> =
            self.members.iter().map(|(_, rack)| subscription(&topics, rack)).collect();
        let members = self.members.iter().zip(&told);
        let answer = JoinGroupResponse {
            generation_id: self.generation,
            member_id: "m",
            leader: if self.members.is_empty() { "another" } else { "m" },
            members: members
                .map(|(&(member_id, _), metadata)| JoinGroupResponseMember {
                    member_id,
                    metadata,
                    ..Default::default()
                })
                .collect(),
            protocol_type: Some("consumer"),
            protocol_name: request.protocols.first().map(|protocol| protocol.name),
            ..Default::default()
        };
        body(&answer, version)
    }

    fn sync_answer(&mut self, bytes: &[u8], version: i16) -> Bytes {
        let (_, request) = frame::decode_request::<SyncGroupRequest<'_>>(bytes).unwrap();
        let share = |one: &SyncGroupRequestAssignment<'_>| {
            let given = assignor::decode_assignment(one.assignment).unwrap().partitions;
            let numbers: Vec<i32> = given.iter().map(|given| given.partition).collect();
            format!("{}:{numbers:?}", one.member_id)
        };
        self.shared = request.assignments.iter().map(share).collect();
        let error_code = self.take_refusal(ApiKey::SyncGroup);
        if error_code.is_error() {
            return body(&SyncGroupResponse { error_code, ..Default::default() }, version);
        }
        let topics = [(Arc::from("t"), self.share.clone())].into();
        let share = Share { member_id: "m".into(), topics, basis: None };
        let mut assignment = assignor::encode_assignment(&share).unwrap();
        if self.garbled {
            assignment.truncate(5);
        }
        let answer = SyncGroupResponse {
            protocol_type: Some("consumer"),
            protocol_name: Some("range"),
            assignment: &assignment,
            ..Default::default()
        };
        body(&answer, version)
    }

    fn commit_answer(&mut self, bytes: &[u8], version: i16) -> Bytes {
        let (_, request) = frame::decode_request::<OffsetCommitRequest<'_>>(bytes).unwrap();
        let mut error_code =
            if self.forgotten { ErrorCode::UNKNOWN_MEMBER_ID } else { ErrorCode::NONE };
        // As in Kafka: who names no generation may commit while the group has no members.
        let outside = request.generation_id_or_member_epoch == -1 && !self.has_members;
        if !outside && request.generation_id_or_member_epoch != self.generation {
            error_code = ErrorCode::ILLEGAL_GENERATION;
        }
        let refusal = self.take_refusal(ApiKey::OffsetCommit);
        if refusal.is_error() {
            error_code = refusal;
        }
        let mut partitions = Vec::new();
        for row in request.topics.iter().flat_map(|topic| &topic.partitions) {
            let (partition_index, offset) = (row.partition_index, row.committed_offset);
            let text = row.committed_metadata.unwrap_or_default();
            if error_code.is_none() && text.len() > self.text_bytes_max {
                error_code = ErrorCode::OFFSET_METADATA_TOO_LARGE;
            }
            if error_code.is_none() {
                self.committed.insert(partition_index, offset);
                self.texts.insert(partition_index, text.to_owned());
            }
            let result = if error_code.is_none() { "" } else { " refused" };
            self.seen.push(format!("commit {partition_index}:{offset}{result}"));
            partitions.push(OffsetCommitResponsePartition { partition_index, error_code });
        }
        let topics = vec![OffsetCommitResponseTopic {
            name: if version < 10 { "t" } else { "" },
            topic_id: if version < 10 { Uuid::ZERO } else { self.topic_id },
            partitions,
        }];
        body(&OffsetCommitResponse { topics, ..Default::default() }, version)
    }

    fn lookup_answer(&mut self, bytes: &[u8], version: i16) -> Bytes {
        let (_, request) = frame::decode_request::<OffsetFetchRequest<'_>>(bytes).unwrap();
        let asked = request.groups.iter().flat_map(|group| group.topics.iter().flatten());
        let texts = self.texts.clone();
        let partitions = asked.flat_map(|topic| &topic.partition_indexes).map(|&partition_index| {
            OffsetFetchResponsePartitions {
                partition_index,
                committed_offset: self.committed.get(&partition_index).copied().unwrap_or(-1),
                metadata: Some(texts.get(&partition_index).map_or("", String::as_str)),
                ..Default::default()
            }
        });
        let topics = vec![OffsetFetchResponseTopics {
            name: if version < 10 { "t" } else { "" },
            topic_id: if version < 10 { Uuid::ZERO } else { self.topic_id },
            partitions: partitions.collect(),
        }];
        let error_code = self.take_refusal(ApiKey::OffsetFetch);
        let untold = self.untold > 0;
        self.untold = self.untold.saturating_sub(1);
        let topics = if error_code.is_error() || untold { Vec::new() } else { topics };
        let group = OffsetFetchResponseGroup { group_id: "g", topics, error_code };
        let groups = vec![group];
        body(&OffsetFetchResponse { groups, ..Default::default() }, version)
    }

    fn starts_answer(&mut self, bytes: &[u8], version: i16) -> Bytes {
        let (_, request) = frame::decode_request::<ListOffsetsRequest<'_>>(bytes).unwrap();
        let rows = request.topics.iter().flat_map(|topic| &topic.partitions).map(|row| {
            let end = self.logs[&row.partition_index].last().map_or(0, |(_, next, _)| *next);
            let start = self.log_starts.get(&row.partition_index).copied().unwrap_or(0);
            let offset = if row.timestamp == -2 { start } else { end };
            ListOffsetsPartitionResponse {
                partition_index: row.partition_index,
                offset,
                ..Default::default()
            }
        });
        let topics = vec![ListOffsetsTopicResponse { name: "t", partitions: rows.collect() }];
        body(&ListOffsetsResponse { topics, ..Default::default() }, version)
    }

    /// Each epoch ends where its last batch does.
    fn epochs_answer(&mut self, bytes: &[u8], version: i16) -> Bytes {
        let (_, request) = frame::decode_request::<OffsetForLeaderEpochRequest<'_>>(bytes).unwrap();
        let rows = request.topics.iter().flat_map(|topic| &topic.partitions).map(|row| {
            self.seen.push(format!("epoch {}:{}", row.partition, row.leader_epoch));
            let of_epoch = |(_, next, bytes): &(i64, i64, Bytes)| {
                let epoch = i32::from_be_bytes(bytes[12..16].try_into().unwrap());
                (epoch <= row.leader_epoch).then_some((epoch, *next))
            };
            let log = &self.logs[&row.partition];
            let (leader_epoch, end_offset) =
                log.iter().rev().find_map(of_epoch).unwrap_or((-1, -1));
            EpochEndOffset {
                partition: row.partition,
                leader_epoch,
                end_offset,
                ..Default::default()
            }
        });
        let topics = vec![OffsetForLeaderTopicResult { topic: "t", partitions: rows.collect() }];
        body(&OffsetForLeaderEpochResponse { topics, ..Default::default() }, version)
    }

    fn fetch_answer(&mut self, bytes: &[u8], version: i16, request: &Request) -> Option<Bytes> {
        let (_, fetch) = frame::decode_request::<FetchRequest<'_>>(bytes).unwrap();
        if fetch.session_epoch == -1 && fetch.session_id != 0 {
            self.seen.push(format!("end session {}", fetch.session_id));
            return Some(body(&FetchResponse::default(), version));
        }
        let rows = fetch.topics.iter().flat_map(|topic| &topic.partitions);
        let rows = rows.map(|row| (row.partition, row.fetch_offset, row.current_leader_epoch));
        let topic_id = fetch.topics.first().map_or(Uuid::ZERO, |topic| topic.topic_id);
        let asked = Asked { topic_id, rows: rows.collect() };
        let lane = if request.lane == Lane::Fetch { "" } else { " spare" };
        let rows = asked.rows.iter().map(|(at, offset, _)| format!("{at}:{offset}"));
        self.seen.push(format!("fetch {}{lane}", rows.collect::<Vec<_>>().join(" ")));
        let error_code = self.take_refusal(ApiKey::Fetch);
        if error_code.is_error() {
            return Some(body(&FetchResponse { error_code, ..Default::default() }, version));
        }
        if fetch.max_wait_ms > 0 && !self.has_news(&asked) {
            self.held.push((request.token, version, asked));
            return None;
        }
        Some(self.records(&asked, version))
    }

    fn has_news(&self, asked: &Asked) -> bool {
        asked.rows.iter().any(|&(at, offset, epoch)| {
            self.logs[&at].last().is_some_and(|(_, next, _)| *next > offset)
                || self.refusal(asked.topic_id, at, offset, epoch).is_error()
        })
    }

    fn refusal(&self, topic_id: Uuid, partition: i32, offset: i64, epoch: i32) -> ErrorCode {
        match () {
            () if topic_id != self.topic_id => ErrorCode::UNKNOWN_TOPIC_ID,
            () if epoch < self.epoch => ErrorCode::FENCED_LEADER_EPOCH,
            () if self.is_out(partition, offset) => ErrorCode::OFFSET_OUT_OF_RANGE,
            () => ErrorCode::NONE,
        }
    }

    fn is_out(&self, partition: i32, offset: i64) -> bool {
        let end = self.logs[&partition].last().map_or(0, |(_, next, _)| *next);
        let start = self.log_starts.get(&partition).copied().unwrap_or(0);
        !(start..=end).contains(&offset)
    }

    /// One batch a partition, the one that holds the offset.
    pub(super) fn records(&self, asked: &Asked, version: i16) -> Bytes {
        let mut partitions = Vec::new();
        for &(partition_index, offset, epoch) in &asked.rows {
            let log = &self.logs[&partition_index];
            let found = log.iter().find(|(_, next, _)| *next > offset);
            let error_code = self.refusal(asked.topic_id, partition_index, offset, epoch);
            partitions.push(PartitionData {
                partition_index,
                error_code,
                high_watermark: log.last().map_or(0, |(_, next, _)| *next),
                records: match found {
                    Some((.., bytes)) if error_code.is_none() => Records::Inline(bytes),
                    _ => Records::Inline(&[]),
                },
                ..Default::default()
            });
        }
        let responses = vec![FetchableTopicResponse {
            topic_id: asked.topic_id,
            partitions,
            ..Default::default()
        }];
        let throttle_time_ms = i32::try_from(self.throttle.as_millis()).unwrap();
        let session_id = self.session;
        let rest = FetchResponse::default();
        body(&FetchResponse { throttle_time_ms, session_id, responses, ..rest }, version)
    }
}

/// Where a member says that it stands (KIP-881).
/// The broker of a partition's replica.
const fn replica(partition: i32) -> i32 {
    10 + partition
}

fn subscription(topics: &[Arc<str>], rack: &str) -> Vec<u8> {
    let told = Subscription {
        topics,
        owned: &[],
        generation: NO_GENERATION,
        assigned: &[],
        assigned_in: NO_GENERATION,
        rack: Some(rack).filter(|rack| !rack.is_empty()),
    };
    assignor::encode_subscription(Strategy::Range, &told).unwrap()
}

fn rack_of(metadata: &[u8]) -> Option<String> {
    let mut reader = Reader::new(metadata);
    let version = reader.i16().unwrap();
    let told = ConsumerProtocolSubscription::decode(&mut reader, version).unwrap();
    told.rack_id.map(str::to_owned)
}

fn coordinator_answer(error_code: ErrorCode, version: i16) -> Bytes {
    let coordinators = vec![find_coordinator_response::Coordinator {
        key: "g",
        node_id: NODE,
        host: "127.0.0.1",
        port: 1,
        error_code,
        ..Default::default()
    }];
    body(&FindCoordinatorResponse { coordinators, ..Default::default() }, version)
}

fn body<'a>(message: &impl Message<'a>, version: i16) -> Bytes {
    let mut writer = Writer::new();
    message.encode(&mut writer, version).unwrap();
    Bytes::from(writer.into_bytes())
}
