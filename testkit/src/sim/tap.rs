//! What is read on the way of what members and their coordinator say to each other.

use std::rc::Rc;

use bytes::BytesMut;
use ottla_protocol::frame::{RequestHeader, decode_request, decode_response};
use ottla_protocol::messages::ConsumerProtocolAssignment;
use ottla_protocol::messages::join_group_request::JoinGroupRequest;
use ottla_protocol::messages::join_group_response::JoinGroupResponse;
use ottla_protocol::messages::offset_commit_request::OffsetCommitRequest;
use ottla_protocol::messages::offset_commit_response::OffsetCommitResponse;
use ottla_protocol::messages::sync_group_request::SyncGroupRequest;
use ottla_protocol::messages::sync_group_response::SyncGroupResponse;
use ottla_protocol::{ApiKey, Message, Reader};

use super::answers::Asked;
use super::plan::topics;
use super::world::World;

/// A partition of one of the topics.
pub(crate) type Place = (&'static str, i32);

/// The partition of a topic's name.
pub(crate) fn place(topic: &str, partition: i32) -> Option<Place> {
    topics().find(|(name, _)| *name == topic).map(|(name, _)| (name, partition))
}

/// A request as its client has written it.
pub(crate) struct Written {
    pub(crate) frame: BytesMut,
    pub(crate) asked: Asked,
    pub(crate) client: Option<Rc<str>>,
    pub(crate) said: Option<Said>,
}

/// Who says something to a group's coordinator, and what.
#[derive(Debug, Clone)]
pub(crate) struct Said {
    pub(crate) group: String,
    pub(crate) generation: i32,
    pub(crate) member: String,
    /// Its `group.instance.id`.
    pub(crate) instance: Option<String>,
    pub(crate) what: What,
}

impl Said {
    /// As whom it has its partitions: a static member keeps them under another id.
    pub(crate) fn name(&self) -> &str {
        self.instance.as_deref().unwrap_or(&self.member)
    }

    /// Whether it commits offsets.
    pub(crate) const fn commits(&self) -> bool {
        matches!(self.what, What::Commit { .. })
    }
}

#[derive(Debug, Clone)]
pub(crate) enum What {
    /// Wants to be in the group; its number among all that is said.
    Join { number: u64 },
    /// Asks for its share.
    Sync,
    /// Commits offsets; its number among the client's commits.
    Commit { number: u64, rows: Vec<(Place, i64)>, texts: Vec<(Place, i64, String)> },
}

/// Reads a whole request.
pub(crate) fn read(world: &World, frame: BytesMut, number: u64) -> Result<Written, String> {
    let asked = Asked::read(&frame)?;
    let header = RequestHeader::decode(&mut Reader::new(&frame));
    let client = header.map_err(|error| error.to_string())?.client_id.map(Rc::from);
    let said = match asked.api {
        ApiKey::JoinGroup => {
            let request = decode_request::<JoinGroupRequest<'_>>(&frame);
            let (_, request) = request.map_err(|error| error.to_string())?;
            Some(Said {
                group: request.group_id.to_owned(),
                generation: -1,
                member: request.member_id.to_owned(),
                instance: request.group_instance_id.map(str::to_owned),
                what: What::Join { number },
            })
        }
        ApiKey::SyncGroup => {
            let request = decode_request::<SyncGroupRequest<'_>>(&frame);
            let (_, request) = request.map_err(|error| error.to_string())?;
            Some(Said {
                group: request.group_id.to_owned(),
                generation: request.generation_id,
                member: request.member_id.to_owned(),
                instance: request.group_instance_id.map(str::to_owned),
                what: What::Sync,
            })
        }
        ApiKey::OffsetCommit => {
            let request = decode_request::<OffsetCommitRequest<'_>>(&frame);
            let (_, request) = request.map_err(|error| error.to_string())?;
            Some(Said {
                group: request.group_id.to_owned(),
                generation: request.generation_id_or_member_epoch,
                member: request.member_id.to_owned(),
                instance: request.group_instance_id.map(str::to_owned),
                what: committed(world, &request, number),
            })
        }
        _ => None,
    };
    Ok(Written { frame, asked, client, said })
}

fn committed(world: &World, request: &OffsetCommitRequest<'_>, number: u64) -> What {
    let (mut rows, mut texts) = (Vec::new(), Vec::new());
    for topic in &request.topics {
        for row in &topic.partitions {
            let place = world.place_of(topic.name, topic.topic_id, row.partition_index);
            let Some(place) = place else { continue };
            rows.push((place, row.committed_offset));
            let text = row.committed_metadata.filter(|text| !text.is_empty());
            texts.extend(text.map(|text| (place, row.committed_offset, text.to_owned())));
        }
    }
    What::Commit { number, rows, texts }
}

/// The broker's own answer to what was said.
pub(crate) fn answered(world: &World, said: &Said, asked: Asked, answer: &[u8]) {
    let Some(group) = world.group(&said.group) else { return };
    let Some(frame) = answer.get(4..) else { return };
    match &said.what {
        What::Join { number } => {
            let answer = decode_response::<JoinGroupResponse<'_>>(frame, asked.version);
            let Ok((_, answer)) = answer else { return };
            group.named.answered(world, said, *number, answer.error_code);
        }
        What::Sync => {
            let Ok((_, answer)) = decode_response::<SyncGroupResponse<'_>>(frame, asked.version)
            else {
                return;
            };
            if answer.error_code.is_none() {
                group.shared_out(world, said, &share(answer.assignment));
            }
        }
        What::Commit { rows, .. } => {
            let answer = decode_response::<OffsetCommitResponse<'_>>(frame, asked.version);
            let Ok((_, answer)) = answer else { return };
            for topic in &answer.topics {
                for row in &topic.partitions {
                    let place = world.place_of(topic.name, topic.topic_id, row.partition_index);
                    let sent = rows.iter().find(|(sent, _)| Some(*sent) == place);
                    if let Some(&(place, _)) = sent {
                        group.committed(world, said, place, row.error_code);
                    }
                }
            }
        }
    }
}

/// The partitions of an assignment.
fn share(bytes: &[u8]) -> Vec<Place> {
    let mut reader = Reader::new(bytes);
    let Ok(version) = reader.i16() else { return Vec::new() };
    let version = version.min(*ConsumerProtocolAssignment::VERSIONS.end());
    let Ok(assignment) = ConsumerProtocolAssignment::decode(&mut reader, version) else {
        return Vec::new();
    };
    let topics = assignment.assigned_partitions.iter();
    let places = topics.flat_map(|topic| topic.partitions.iter().map(|&at| (topic.topic, at)));
    places.filter_map(|(topic, partition)| place(topic, partition)).collect()
}
