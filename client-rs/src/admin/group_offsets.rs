//! Offsets that groups have committed: listed, changed, deleted.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use ottla_protocol::messages::offset_commit_request::{
    OffsetCommitRequest, OffsetCommitRequestPartition, OffsetCommitRequestTopic,
};
use ottla_protocol::messages::offset_commit_response::OffsetCommitResponse;
use ottla_protocol::messages::offset_delete_request::{
    OffsetDeleteRequest, OffsetDeleteRequestPartition, OffsetDeleteRequestTopic,
};
use ottla_protocol::messages::offset_delete_response::OffsetDeleteResponse;
use ottla_protocol::messages::offset_fetch_request::{
    OffsetFetchRequest, OffsetFetchRequestGroup, OffsetFetchRequestTopic, OffsetFetchRequestTopics,
};
use ottla_protocol::messages::offset_fetch_response::OffsetFetchResponse;
use ottla_protocol::{ApiKey, ErrorCode};

use super::ask::{Ask, Refusal, Rows, outcome};
use super::groups::to_coordinator;
use super::partitions::by_topic;
use super::{Admin, Call, Results};
use crate::consumer::OffsetAndMetadata;
use crate::error::Error;
use crate::record::TopicPartition;
use crate::state::admin::Route;
use crate::state::machine::{Answer, body};

/// The first version of OffsetFetch that asks about all partitions at once.
const ALL_FROM: i16 = 2;
/// The first version of OffsetFetch in which an open transaction can be waited for (KIP-447).
const STABLE_FROM: i16 = 7;
/// The first version of OffsetFetch that asks about several groups (KIP-709).
const GROUPS_FROM: i16 = 8;
/// The last version of both APIs that names topics by name.
const BY_NAME_TO: i16 = 9;
/// Commits of nobody who is a member. Kafka: `OffsetCommitRequest.DEFAULT_GENERATION_ID`.
const NO_GENERATION: i32 = -1;

/// The partitions for which a group has committed offsets, by name.
pub type GroupOffsets = Vec<(TopicPartition, OffsetAndMetadata)>;

/// What can be said of a call for a group's offsets.
#[derive(Debug, Clone, Default)]
pub struct GroupOffsetsOptions {
    partitions: Option<Vec<TopicPartition>>,
    require_stable: bool,
}

impl<T: Clone> Call<T, GroupOffsetsOptions> {
    /// Only of these partitions; one without a committed offset is left out of the result. Default:
    /// of all that have one.
    pub fn partitions(self, partitions: &[TopicPartition]) -> Self {
        self.with(|options| options.partitions = Some(partitions.to_vec()))
    }

    /// Whether to wait until open transactions have decided what they commit. Default false.
    pub fn require_stable(self, stable: bool) -> Self {
        self.with(|options| options.require_stable = stable)
    }
}

impl Admin {
    /// The offsets that a group has committed.
    pub fn list_consumer_group_offsets(
        &self,
        group: &str,
    ) -> Call<GroupOffsets, GroupOffsetsOptions> {
        let group: Arc<str> = Arc::from(group);
        self.single(move |options| list(group, options))
    }

    /// Commits offsets for a group that has no members.
    ///
    /// `InUse` if it has: only they may commit then. `InvalidArgument` for an offset below 0 and for
    /// metadata that no message can carry.
    pub fn alter_consumer_group_offsets(
        &self,
        group: &str,
        offsets: &[(TopicPartition, OffsetAndMetadata)],
    ) -> Call<Results<TopicPartition, ()>> {
        let (group, offsets) = (Arc::from(group), offsets.to_vec());
        self.each(move |()| {
            let faults = offsets.iter().filter_map(|(at, new)| Some((at.clone(), new.fault(at)?)));
            let faults: BTreeMap<TopicPartition, Error> = faults.collect();
            alter(group, offsets).checked(|at| faults.get(at).cloned().map_or(Ok(()), Err))
        })
    }

    /// Forgets the offsets that a group has committed for partitions.
    ///
    /// `InUse` if its members read that topic.
    pub fn delete_consumer_group_offsets(
        &self,
        group: &str,
        partitions: &[TopicPartition],
    ) -> Call<Results<TopicPartition, ()>> {
        let (group, partitions) = (Arc::from(group), partitions.to_vec());
        self.each(move |()| delete(group, partitions))
    }
}

fn list(group: Arc<str>, options: GroupOffsetsOptions) -> Ask<(), GroupOffsets> {
    let GroupOffsetsOptions { partitions, require_stable } = options;
    let topics = partitions.map(|partitions| by_topic(partitions.into_iter().map(|at| (at, ()))));
    let first = match (&topics, require_stable) {
        (_, true) => STABLE_FROM,
        (None, false) => ALL_FROM,
        (Some(_), false) => *ApiKey::OffsetFetch.served().start(),
    };
    let route = to_coordinator(&group);
    let (own, wanted) = (Arc::clone(&group), topics.clone());
    let build = move || {
        let (group, topics) = (Arc::clone(&group), topics.clone());
        body(ApiKey::OffsetFetch, first..=BY_NAME_TO, move |frame| {
            let rows = topics.as_ref().map(|topics| {
                topics.iter().map(|(name, rows)| {
                    (&**name, rows.iter().map(|&(partition, ())| partition).collect())
                })
            });
            let mut request =
                OffsetFetchRequest { require_stable, ..OffsetFetchRequest::default() };
            if frame.version >= GROUPS_FROM {
                let topic = |(name, partition_indexes)| OffsetFetchRequestTopics {
                    name,
                    partition_indexes,
                    ..OffsetFetchRequestTopics::default()
                };
                request.groups = vec![OffsetFetchRequestGroup {
                    group_id: &group,
                    topics: rows.map(|rows| rows.map(topic).collect()),
                    ..OffsetFetchRequestGroup::default()
                }];
            } else {
                let topic =
                    |(name, partition_indexes)| OffsetFetchRequestTopic { name, partition_indexes };
                request.group_id = &group;
                request.topics = rows.map(|rows| rows.map(topic).collect());
            }
            frame.put(&request)
        })
    };
    Ask::one(ApiKey::OffsetFetch, route, build, move |answer, asked| {
        let (throttle_ms, offsets) = read_offsets(answer, &own, wanted.as_ref())?;
        Ok(match offsets {
            Some(offsets) => asked.only(throttle_ms, offsets),
            None => Rows::none(throttle_ms),
        })
    })
}

/// A partition's row, whichever version it came in.
type Row<'a> = (i32, i64, i32, Option<&'a str>, ErrorCode);

/// What is asked for, by topic.
type Wanted = BTreeMap<Arc<str>, Vec<(i32, ())>>;

/// The offsets of a group, or of those of its partitions that are wanted; none if the answer leaves out
/// the group or one of them: that is no word that nothing is committed.
fn read_offsets(
    answer: &Answer,
    group: &str,
    wanted: Option<&Wanted>,
) -> Result<(i32, Option<Result<GroupOffsets, Refusal>>), Error> {
    let response = answer.decode::<OffsetFetchResponse<'_>>()?;
    let throttle_ms = response.throttle_time_ms;
    let mut rows: Vec<(&str, Row<'_>)> = Vec::new();
    let mut code = response.error_code;
    if answer.version >= GROUPS_FROM {
        let Some(group) = response.groups.iter().find(|row| row.group_id == group) else {
            return Ok((throttle_ms, None));
        };
        code = group.error_code;
        for topic in &group.topics {
            rows.extend(topic.partitions.iter().map(|row| {
                let (offset, epoch) = (row.committed_offset, row.committed_leader_epoch);
                (topic.name, (row.partition_index, offset, epoch, row.metadata, row.error_code))
            }));
        }
    }
    for topic in &response.topics {
        rows.extend(topic.partitions.iter().map(|row| {
            let (offset, epoch) = (row.committed_offset, row.committed_leader_epoch);
            (topic.name, (row.partition_index, offset, epoch, row.metadata, row.error_code))
        }));
    }
    if let Some(wanted) = wanted {
        let named: BTreeSet<_> = rows.iter().map(|(topic, row)| (*topic, row.0)).collect();
        let asked =
            wanted.iter().flat_map(|(topic, rows)| rows.iter().map(move |row| (&**topic, row.0)));
        let asked: BTreeSet<_> = asked.collect();
        if code.is_none() && !asked.is_subset(&named) {
            return Ok((throttle_ms, None));
        }
        rows.retain(|(topic, row)| asked.contains(&(*topic, row.0)));
    }
    let first_fault = rows.iter().map(|(_, row)| row.4).find(|code| code.is_error());
    let code = if code.is_none() { first_fault.unwrap_or(code) } else { code };
    let offsets = outcome(code, None, || {
        // −1 says that nothing is committed.
        let committed = rows.iter().filter(|(_, row)| row.1 >= 0);
        let mut offsets: GroupOffsets = committed
            .map(|(topic, (partition, offset, epoch, metadata, _))| {
                let offset = OffsetAndMetadata {
                    offset: *offset,
                    leader_epoch: Some(*epoch).filter(|&epoch| epoch >= 0),
                    metadata: metadata.unwrap_or_default().to_owned(),
                };
                (TopicPartition::new(*topic, *partition), offset)
            })
            .collect();
        offsets.sort_by(|(one, _), (two, _)| one.cmp(two));
        offsets.dedup_by(|(one, _), (two, _)| one == two);
        offsets
    });
    Ok((throttle_ms, Some(offsets)))
}

fn alter(
    group: Arc<str>,
    offsets: Vec<(TopicPartition, OffsetAndMetadata)>,
) -> Ask<TopicPartition, ()> {
    let route = Route::Coordinator(Arc::clone(&group));
    let items: Vec<_> = offsets.iter().map(|(at, _)| (at.clone(), route.clone())).collect();
    let build = move |items: &[usize], _| {
        let (group, topics) = (Arc::clone(&group), by_topic(super::pick(&offsets, items)));
        let versions = *ApiKey::OffsetCommit.served().start()..=BY_NAME_TO;
        body(ApiKey::OffsetCommit, versions, move |frame| {
            let topics = topics.iter().map(|(name, rows)| OffsetCommitRequestTopic {
                name,
                partitions: rows
                    .iter()
                    .map(|(partition, new)| OffsetCommitRequestPartition {
                        partition_index: *partition,
                        committed_offset: new.offset,
                        committed_leader_epoch: new.leader_epoch.unwrap_or(-1),
                        committed_metadata: Some(&new.metadata),
                    })
                    .collect(),
                ..OffsetCommitRequestTopic::default()
            });
            frame.put(&OffsetCommitRequest {
                group_id: &group,
                generation_id_or_member_epoch: NO_GENERATION,
                topics: topics.collect(),
                ..OffsetCommitRequest::default()
            })
        })
    };
    let ask = Ask::new(ApiKey::OffsetCommit, items, build, |answer, asked| {
        let response = answer.decode::<OffsetCommitResponse<'_>>()?;
        let mut rows = Vec::new();
        for topic in &response.topics {
            let name: Arc<str> = Arc::from(topic.name);
            rows.extend(topic.partitions.iter().map(|row| {
                let at = TopicPartition::new(Arc::clone(&name), row.partition_index);
                (at, outcome(row.error_code, None, || ()))
            }));
        }
        Ok(asked.rows(response.throttle_time_ms, rows))
    });
    ask.changing()
}

fn delete(group: Arc<str>, partitions: Vec<TopicPartition>) -> Ask<TopicPartition, ()> {
    let route = Route::Coordinator(Arc::clone(&group));
    let items: Vec<_> = partitions.iter().map(|at| (at.clone(), route.clone())).collect();
    let build = move |items: &[usize], _| {
        let wanted = super::pick(&partitions, items).into_iter().map(|at| (at, ()));
        let (group, topics) = (Arc::clone(&group), by_topic(wanted));
        body(ApiKey::OffsetDelete, ApiKey::OffsetDelete.served(), move |frame| {
            let row = |&(partition_index, ()): &(i32, ())| OffsetDeleteRequestPartition {
                partition_index,
            };
            let topics = topics.iter().map(|(name, rows)| OffsetDeleteRequestTopic {
                name,
                partitions: rows.iter().map(row).collect(),
            });
            frame.put(&OffsetDeleteRequest { group_id: &group, topics: topics.collect() })
        })
    };
    let ask = Ask::new(ApiKey::OffsetDelete, items, build, |answer, asked| {
        let response = answer.decode::<OffsetDeleteResponse<'_>>()?;
        if response.error_code.is_error() {
            let refusal = (response.error_code, None);
            return Ok(asked.refused(response.throttle_time_ms, &refusal));
        }
        let mut rows: Vec<(TopicPartition, Result<(), Refusal>)> = Vec::new();
        for topic in &response.topics {
            let name: Arc<str> = Arc::from(topic.name);
            rows.extend(topic.partitions.iter().map(|row| {
                let at = TopicPartition::new(Arc::clone(&name), row.partition_index);
                (at, outcome(row.error_code, None, || ()))
            }));
        }
        let rows: Rows<()> = asked.rows(response.throttle_time_ms, rows);
        Ok(rows)
    });
    ask.changing()
}

#[cfg(test)]
mod tests {
    use std::rc::Rc;

    use bytes::Bytes;
    use ottla_protocol::messages::offset_fetch_response as fetched;
    use ottla_protocol::{Message, Writer};

    use super::*;

    /// An answer of that version about a group, with offsets of partitions of topic "t".
    fn answer(version: i16, group_id: &str, rows: &[(i32, i64)]) -> Answer {
        let mut response = OffsetFetchResponse::default();
        if version >= GROUPS_FROM {
            let row = |&(partition_index, committed_offset): &(i32, i64)| {
                fetched::OffsetFetchResponsePartitions {
                    partition_index,
                    committed_offset,
                    ..Default::default()
                }
            };
            let partitions = rows.iter().map(row).collect();
            let topic =
                fetched::OffsetFetchResponseTopics { name: "t", partitions, ..Default::default() };
            response.groups = vec![fetched::OffsetFetchResponseGroup {
                group_id,
                topics: vec![topic],
                ..Default::default()
            }];
        } else {
            let row = |&(partition_index, committed_offset): &(i32, i64)| {
                fetched::OffsetFetchResponsePartition {
                    partition_index,
                    committed_offset,
                    ..Default::default()
                }
            };
            let partitions = rows.iter().map(row).collect();
            response.topics = vec![fetched::OffsetFetchResponseTopic { name: "t", partitions }];
        }
        let mut writer = Writer::new();
        response.encode(&mut writer, version).unwrap();
        let body = Bytes::from(writer.into_bytes());
        Answer { version, body, broker: Rc::from("1 at b:1"), throttle: Rc::default() }
    }

    /// Partitions and offsets that an answer tells, if it tells what was asked.
    fn told(answer: &Answer, wanted: Option<&[i32]>) -> Option<Vec<(i32, i64)>> {
        let at = |&partition: &i32| (TopicPartition::new("t", partition), ());
        let wanted = wanted.map(|wanted| by_topic(wanted.iter().map(at)));
        let (_, offsets) = read_offsets(answer, "g", wanted.as_ref()).unwrap();
        let offsets = offsets?.unwrap();
        Some(offsets.into_iter().map(|(at, new)| (at.partition, new.offset)).collect())
    }

    #[test]
    fn an_answer_that_leaves_out_what_was_asked_is_no_word_that_nothing_is_committed() {
        for version in [7, 8] {
            let answer = answer(version, "g", &[(2, 20), (0, -1), (1, 10), (1, 11)]);
            assert_eq!(told(&answer, None).unwrap(), [(1, 10), (2, 20)], "each once");
            assert_eq!(told(&answer, Some(&[0, 1])).unwrap(), [(1, 10)], "no other");
            assert_eq!(told(&answer, Some(&[0])).unwrap(), [], "so it says");
            assert_eq!(told(&answer, Some(&[1, 3])), None);
        }
        assert_eq!(told(&answer(8, "another", &[(1, 10)]), None), None);
    }
}
