//! Topics described: by pages where the broker has them (KIP-966), else all at once.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use ottla_protocol::messages::describe_topic_partitions_request::{
    Cursor, DescribeTopicPartitionsRequest, TopicRequest,
};
use ottla_protocol::messages::describe_topic_partitions_response::{
    DescribeTopicPartitionsResponse, DescribeTopicPartitionsResponsePartition,
};
use ottla_protocol::messages::metadata_request::{MetadataRequest, MetadataRequestTopic};
use ottla_protocol::messages::metadata_response::{
    MetadataResponse, MetadataResponsePartition, MetadataResponseTopic,
};
use ottla_protocol::{ApiKey, Uuid};

use crate::admin::Results;
use crate::admin::ask::{Ask, outcome, twice};
use crate::error::{Error, ErrorKind};
use crate::promise::Promise;
use crate::state::admin::{Reading, Route, Routes, Verdict, Work};
use crate::state::machine::{Answer, Body, body};

/// Partitions of one page. Kafka's brokers give no more: `max.request.partition.size.limit`.
const PAGE_MAX: i32 = 2000;
/// The first version that tells whether an unknown topic may be created, which must not happen here.
const METADATA_FROM: i16 = 4;
/// The first version in which topics can be asked for by id alone (KIP-516).
const METADATA_BY_ID_FROM: i16 = 12;

/// A topic.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct TopicDescription {
    /// Its name.
    pub name: String,
    /// Its id; zero if the broker is too old to tell.
    pub topic_id: Uuid,
    /// Whether it is one that the brokers keep for themselves.
    pub is_internal: bool,
    /// Its partitions, by number.
    pub partitions: Vec<TopicPartitionInfo>,
}

/// A partition of a topic, with the ids of brokers.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct TopicPartitionInfo {
    /// Its number.
    pub partition: i32,
    /// The broker that leads it; `None` if none does now.
    pub leader: Option<i32>,
    /// Since which election; −1 if that is not known.
    pub leader_epoch: i32,
    /// Brokers that hold a replica, the preferred leader first.
    pub replicas: Vec<i32>,
    /// Brokers whose replica is in sync.
    pub isr: Vec<i32>,
    /// Brokers whose replica is offline.
    pub offline_replicas: Vec<i32>,
    /// Brokers that may lead it without loss though not in sync; `None` if that was not told.
    pub elr: Option<Vec<i32>>,
    /// The last of those that were known; `None` if that was not told.
    pub last_known_elr: Option<Vec<i32>>,
}

impl TopicPartitionInfo {
    fn of_page(row: &DescribeTopicPartitionsResponsePartition) -> Self {
        Self {
            partition: row.partition_index,
            leader: Some(row.leader_id).filter(|&leader| leader >= 0),
            leader_epoch: row.leader_epoch,
            replicas: row.replica_nodes.clone(),
            isr: row.isr_nodes.clone(),
            offline_replicas: row.offline_replicas.clone(),
            elr: row.eligible_leader_replicas.clone(),
            last_known_elr: row.last_known_elr.clone(),
        }
    }

    fn of_metadata(row: &MetadataResponsePartition) -> Self {
        Self {
            partition: row.partition_index,
            leader: Some(row.leader_id).filter(|&leader| leader >= 0),
            leader_epoch: row.leader_epoch,
            replicas: row.replica_nodes.clone(),
            isr: row.isr_nodes.clone(),
            offline_replicas: row.offline_replicas.clone(),
            elr: None,
            last_known_elr: None,
        }
    }
}

impl TopicDescription {
    fn of_metadata(row: &MetadataResponseTopic<'_>) -> Self {
        let partitions = row.partitions.iter().map(TopicPartitionInfo::of_metadata);
        let mut topic = Self {
            name: row.name.unwrap_or_default().to_owned(),
            topic_id: row.topic_id,
            is_internal: row.is_internal,
            partitions: partitions.collect(),
        };
        topic.partitions.sort_by_key(|partition| partition.partition);
        topic
    }
}

/// Topics by id, which only Metadata tells.
pub(super) fn by_id(ids: Vec<Uuid>) -> Ask<Uuid, TopicDescription> {
    let items: Vec<_> = ids.iter().map(|&id| (id, Route::Any)).collect();
    let build = move |items: &[usize], _| {
        let ids = crate::admin::pick(&ids, items);
        let versions = METADATA_BY_ID_FROM..=*ApiKey::Metadata.served().end();
        body(ApiKey::Metadata, versions, move |frame| {
            let by_id = |&topic_id| MetadataRequestTopic { topic_id, name: None };
            frame.put(&MetadataRequest {
                topics: Some(ids.iter().map(by_id).collect()),
                ..MetadataRequest::default()
            })
        })
    };
    Ask::new(ApiKey::Metadata, items, build, |answer, asked| {
        let response = answer.decode::<MetadataResponse<'_>>()?;
        let rows = response.topics.iter().map(|row| {
            let described = outcome(row.error_code, None, || TopicDescription::of_metadata(row));
            (row.topic_id, described)
        });
        Ok(asked.rows(response.throttle_time_ms, rows))
    })
}

/// Topics by name; the results come to the promise.
pub(super) fn by_name(
    names: Vec<String>,
    promise: &Arc<Promise<Results<String, TopicDescription>>>,
) -> Box<dyn Work> {
    let mut topics: Vec<Topic> = Vec::with_capacity(names.len());
    for (place, name) in names.into_iter().enumerate() {
        topics.push(Topic { name, place, found: None, fault: None });
    }
    // The broker goes by the names' order, and a cursor tells how far it came.
    topics.sort_by(|one, two| one.name.cmp(&two.name));
    Box::new(Pages { topics, by_page: true, promise: Arc::clone(promise) })
}

struct Topic {
    name: String,
    /// Where it stood in the call.
    place: usize,
    /// What the pages have told so far.
    found: Option<TopicDescription>,
    fault: Option<Error>,
}

/// The work of describing topics by name.
struct Pages {
    topics: Vec<Topic>,
    /// Whether the broker is asked by pages.
    by_page: bool,
    promise: Arc<Promise<Results<String, TopicDescription>>>,
}

impl fmt::Debug for Pages {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} of {} topics", self.api(), self.topics.len())
    }
}

impl Work for Pages {
    fn api(&self) -> ApiKey {
        if self.by_page { ApiKey::DescribeTopicPartitions } else { ApiKey::Metadata }
    }

    fn changes(&self) -> bool {
        false
    }

    fn routes(&mut self) -> Routes {
        let named = |at: Option<usize>| at.and_then(|at| self.topics.get(at)).map(|it| &it.name);
        let route = |(at, topic): (usize, &Topic)| {
            let own = Some(&topic.name);
            let again = named(at.checked_sub(1)) == own || named(at.checked_add(1)) == own;
            if again { Err(twice(&topic.name)) } else { Ok(Route::Any) }
        };
        Routes::Each(self.topics.iter().enumerate().map(route).collect())
    }

    fn body(&self, items: &[usize], _timeout_ms: i32) -> Box<dyn Body> {
        let topics = items.iter().filter_map(|&item| self.topics.get(item));
        let names: Vec<String> = topics.map(|topic| topic.name.clone()).collect();
        if !self.by_page {
            return metadata(names);
        }
        // Only the first topic can be told in part: the page ended in it.
        let first = items.first().and_then(|&item| self.topics.get(item));
        let begun = first.and_then(|topic| Some((topic.name.clone(), topic.found.as_ref()?)));
        let cursor = begun.map(|(name, found)| (name, next_partition(found)));
        body(
            ApiKey::DescribeTopicPartitions,
            ApiKey::DescribeTopicPartitions.served(),
            move |frame| {
                let cursor = cursor.as_ref().map(|(topic_name, partition_index)| Cursor {
                    topic_name,
                    partition_index: *partition_index,
                });
                frame.put(&DescribeTopicPartitionsRequest {
                    topics: names.iter().map(|name| TopicRequest { name }).collect(),
                    response_partition_limit: PAGE_MAX,
                    cursor,
                })
            },
        )
    }

    fn read(&mut self, items: &[usize], answer: &Answer) -> Result<Reading, Error> {
        if self.by_page { self.read_page(items, answer) } else { self.read_metadata(answer) }
    }

    fn fall_back(&mut self) -> bool {
        std::mem::replace(&mut self.by_page, false)
    }

    fn fail(&mut self, item: usize, error: Error) {
        if let Some(topic) = self.topics.get_mut(item) {
            topic.fault = Some(error.with_topic(&Arc::from(topic.name.as_str())));
        }
    }

    fn finish(self: Box<Self>, fault: Option<Error>) {
        let Self { mut topics, promise, .. } = *self;
        if let Some(fault) = fault {
            return promise.resolve(Err(fault));
        }
        topics.sort_by_key(|topic| topic.place);
        let missing = || Error::new(ErrorKind::Internal, "the call ended without a result");
        let results = topics.into_iter().map(|topic| {
            let result = match (topic.fault, topic.found) {
                (Some(fault), _) => Err(fault),
                (None, found) => found.ok_or_else(missing),
            };
            (topic.name, result)
        });
        promise.resolve(Ok(Results(results.collect())));
    }
}

impl Pages {
    fn index_of(&self, name: Option<&str>) -> Option<usize> {
        let name = name?;
        self.topics.binary_search_by(|topic| (*topic.name).cmp(name)).ok()
    }

    fn read_page(&mut self, items: &[usize], answer: &Answer) -> Result<Reading, Error> {
        let response = answer.decode::<DescribeTopicPartitionsResponse<'_>>()?;
        let cursor = response.next_cursor.as_ref();
        let mut told = BTreeMap::new();
        let mut came_on = false;
        for row in &response.topics {
            let Some(index) = self.index_of(row.name) else { continue };
            let Some(topic) = self.topics.get_mut(index) else { continue };
            if row.error_code.is_error() {
                told.insert(index, Verdict::Refused(row.error_code, None));
                came_on = true;
                continue;
            }
            let found = topic.found.get_or_insert_with(|| TopicDescription {
                name: topic.name.clone(),
                topic_id: row.topic_id,
                is_internal: row.is_internal,
                partitions: Vec::new(),
            });
            if found.topic_id != row.topic_id {
                // It was deleted and made anew between two pages: what was told is of the old one.
                topic.found = None;
                told.insert(index, Verdict::Partly);
                continue;
            }
            let known = next_partition(found);
            let rows = row.partitions.iter().map(TopicPartitionInfo::of_page);
            found.partitions.extend(rows.filter(|row| row.partition >= known));
            found.partitions.sort_by_key(|partition| partition.partition);
            let cut = cursor.is_some_and(|cursor| cursor.topic_name == topic.name);
            came_on |= !cut || next_partition(found) > known;
            told.insert(index, if cut { Verdict::Partly } else { Verdict::Done });
        }
        if !came_on {
            // Asked at once, the same page might come for ever.
            told.clear();
        } else if cursor.is_some() {
            // What comes behind the page is next.
            for &item in items {
                told.entry(item).or_insert(Verdict::Partly);
            }
        }
        let items = told.into_iter().collect();
        Ok(Reading { throttle_ms: response.throttle_time_ms, items })
    }

    fn read_metadata(&mut self, answer: &Answer) -> Result<Reading, Error> {
        let response = answer.decode::<MetadataResponse<'_>>()?;
        let mut told = Vec::with_capacity(response.topics.len());
        for row in &response.topics {
            let Some(index) = self.index_of(row.name) else { continue };
            let Some(topic) = self.topics.get_mut(index) else { continue };
            if row.error_code.is_error() {
                told.push((index, Verdict::Refused(row.error_code, None)));
            } else {
                topic.found = Some(TopicDescription::of_metadata(row));
                told.push((index, Verdict::Done));
            }
        }
        Ok(Reading { throttle_ms: response.throttle_time_ms, items: told })
    }
}

/// The partition behind the last one told.
fn next_partition(found: &TopicDescription) -> i32 {
    found.partitions.last().map_or(0, |last| last.partition.saturating_add(1))
}

fn metadata(names: Vec<String>) -> Box<dyn Body> {
    let versions = METADATA_FROM..=*ApiKey::Metadata.served().end();
    body(ApiKey::Metadata, versions, move |frame| {
        let named = names.iter().map(|name| MetadataRequestTopic {
            name: Some(name),
            ..MetadataRequestTopic::default()
        });
        frame.put(&MetadataRequest { topics: Some(named.collect()), ..MetadataRequest::default() })
    })
}

#[cfg(test)]
mod tests {
    use std::rc::Rc;

    use bytes::Bytes;
    use ottla_protocol::messages::describe_topic_partitions_response as page;
    use ottla_protocol::{Message, Writer};

    use super::*;

    /// A page with these partitions of the first topic, and more to come.
    fn answer(partitions: std::ops::Range<i32>) -> Answer {
        let rows = partitions.clone().map(|partition_index| {
            DescribeTopicPartitionsResponsePartition { partition_index, ..Default::default() }
        });
        let topic = page::DescribeTopicPartitionsResponseTopic {
            name: Some("a"),
            partitions: rows.collect(),
            ..Default::default()
        };
        let next_cursor = Some(page::Cursor { topic_name: "a", partition_index: partitions.end });
        let topics = vec![topic];
        let response =
            DescribeTopicPartitionsResponse { topics, next_cursor, ..Default::default() };
        let mut writer = Writer::new();
        response.encode(&mut writer, 0).unwrap();
        let body = Bytes::from(writer.into_bytes());
        Answer { version: 0, body, broker: Rc::from("1 at b:1"), throttle: Rc::default() }
    }

    #[test]
    fn a_page_that_leads_on_is_followed_at_once_and_the_same_one_again_is_not() {
        let names = ["a", "b"].map(str::to_owned);
        let topics = names.into_iter().enumerate();
        let topics = topics.map(|(place, name)| Topic { name, place, found: None, fault: None });
        let mut pages = Pages { topics: topics.collect(), by_page: true, promise: Promise::new() };
        let mut told = |partitions| pages.read(&[0, 1], &answer(partitions)).unwrap().items;
        let on = vec![(0, Verdict::Partly), (1, Verdict::Partly)];
        assert_eq!(told(0..2), on);
        assert_eq!(told(2..3), on);
        assert_eq!(told(2..3), [], "it is asked again after a pause");
        assert_eq!(told(3..4), on);
    }
}
