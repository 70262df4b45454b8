//! Topics: created, deleted, listed, described.

use ottla_protocol::messages::create_topics_request::{
    CreatableReplicaAssignment, CreatableTopic, CreatableTopicConfig, CreateTopicsRequest,
};
use ottla_protocol::messages::create_topics_response::{
    CreatableTopicResult, CreateTopicsResponse,
};
use ottla_protocol::messages::delete_topics_request::{DeleteTopicState, DeleteTopicsRequest};
use ottla_protocol::messages::delete_topics_response::DeleteTopicsResponse;
use ottla_protocol::messages::metadata_request::MetadataRequest;
use ottla_protocol::messages::metadata_response::MetadataResponse;
use ottla_protocol::{ApiKey, Uuid};

use super::ask::{Ask, outcome};
use super::configs::ConfigEntry;
use super::{Admin, Call, ChangeOptions, Results};
use crate::promise::Promise;
use crate::record::check_topic;
use crate::state::admin::Route;
use crate::state::machine::body;

mod describe;

pub use describe::{TopicDescription, TopicPartitionInfo};

/// The first version in which the broker may be left to choose counts (KIP-464).
const DEFAULTS_FROM: i16 = 4;
/// The first version that names topics by id (KIP-516).
const DELETE_BY_ID_FROM: i16 = 6;

/// A topic to be created.
///
/// ```
/// use ottla::NewTopic;
/// let topic = NewTopic::new("orders").partitions(3).config("retention.ms", "86400000");
/// # drop(topic);
/// ```
#[derive(Debug, Clone)]
pub struct NewTopic {
    name: String,
    partitions: i32,
    replication_factor: i16,
    assignments: Vec<(i32, Vec<i32>)>,
    configs: Vec<(String, String)>,
}

impl NewTopic {
    /// A topic of this name, with as many partitions and replicas as the broker makes by default.
    pub fn new(name: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            partitions: -1,
            replication_factor: -1,
            assignments: Vec::new(),
            configs: Vec::new(),
        }
    }

    /// The same with so many partitions. Default: the broker's `num.partitions`.
    #[must_use]
    pub fn partitions(mut self, count: i32) -> Self {
        self.partitions = count;
        self
    }

    /// The same with so many replicas of each. Default: `default.replication.factor`.
    #[must_use]
    pub fn replication_factor(mut self, count: i16) -> Self {
        self.replication_factor = count;
        self
    }

    /// The same with the brokers that hold a partition, the preferred leader first. All partitions
    /// from 0 on need one then, and the counts must not be set.
    #[must_use]
    pub fn replicas(mut self, partition: i32, brokers: &[i32]) -> Self {
        self.assignments.push((partition, brokers.to_vec()));
        self
    }

    /// The same with a value for an option of the topic.
    #[must_use]
    pub fn config(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.configs.push((name.into(), value.into()));
        self
    }

    fn message(&self) -> CreatableTopic<'_> {
        let assignments = self.assignments.iter().map(|(partition, brokers)| {
            CreatableReplicaAssignment { partition_index: *partition, broker_ids: brokers.clone() }
        });
        let configs = self.configs.iter();
        CreatableTopic {
            name: &self.name,
            num_partitions: self.partitions,
            replication_factor: self.replication_factor,
            assignments: assignments.collect(),
            configs: configs
                .map(|(name, value)| CreatableTopicConfig { name, value: Some(value) })
                .collect(),
        }
    }

    const fn leaves_counts_open(&self) -> bool {
        self.assignments.is_empty() && (self.partitions == -1 || self.replication_factor == -1)
    }
}

/// A topic that was created, or would be. Kafka: `TopicMetadataAndConfig`.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct CreatedTopic {
    /// Its id; zero if it was only checked, or the broker is too old to tell.
    pub topic_id: Uuid,
    /// How many partitions it has; `None` if this client may not see that.
    pub partitions: Option<i32>,
    /// How many replicas each has; `None` if this client may not see that.
    pub replication_factor: Option<i16>,
    /// Its options; `None` if this client may not see them.
    pub configs: Option<Vec<ConfigEntry>>,
}

impl CreatedTopic {
    fn of(row: &CreatableTopicResult<'_>) -> Self {
        let configs = row.configs.as_ref().filter(|_| row.topic_config_error_code.is_none());
        Self {
            topic_id: row.topic_id,
            partitions: Some(row.num_partitions).filter(|&count| count >= 0),
            replication_factor: Some(row.replication_factor).filter(|&count| count >= 0),
            configs: configs.map(|rows| rows.iter().map(ConfigEntry::of_new_topic).collect()),
        }
    }
}

/// A topic as it stands in a list.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct TopicListing {
    /// Its name.
    pub name: String,
    /// Its id; zero if the broker is too old to tell.
    pub topic_id: Uuid,
    /// Whether it is one that the brokers keep for themselves.
    pub is_internal: bool,
}

impl Admin {
    /// Creates topics; each becomes known to all brokers soon after its result.
    ///
    /// `AlreadyExists`, `InvalidTopic`, `InvalidRequest` or `PolicyViolation` where one was not, and
    /// `InvalidArgument` for one that is named twice: the others are created all the same.
    pub fn create_topics(
        &self,
        topics: &[NewTopic],
    ) -> Call<Results<String, CreatedTopic>, ChangeOptions> {
        let topics = topics.to_vec();
        self.each(move |options: ChangeOptions| {
            create(topics, options.validate_only).checked(|name| check_topic(name))
        })
    }

    /// Deletes topics with all their records. `UnknownTopic` for one that does not exist.
    pub fn delete_topics(&self, names: &[&str]) -> Call<Results<String, ()>> {
        let names: Vec<String> = names.iter().map(|&name| name.to_owned()).collect();
        self.each(move |()| delete(names))
    }

    /// The same for topics of these ids.
    pub fn delete_topics_by_id(&self, ids: &[Uuid]) -> Call<Results<Uuid, ()>> {
        let ids = ids.to_vec();
        self.each(move |()| delete_by_id(ids))
    }

    /// All topics that this client may see, by name, those of the brokers' own too.
    pub fn list_topics(&self) -> Call<Vec<TopicListing>> {
        self.single(|()| list())
    }

    /// Partitions, leaders and replicas of topics. `UnknownTopic` for one that does not exist.
    pub fn describe_topics(&self, names: &[&str]) -> Call<Results<String, TopicDescription>> {
        let names: Vec<String> = names.iter().map(|&name| name.to_owned()).collect();
        Call::new(self, move |()| {
            let promise = Promise::new();
            (describe::by_name(names, &promise), promise)
        })
    }

    /// The same for topics of these ids.
    pub fn describe_topics_by_id(&self, ids: &[Uuid]) -> Call<Results<Uuid, TopicDescription>> {
        let ids = ids.to_vec();
        self.each(move |()| describe::by_id(ids))
    }
}

fn create(topics: Vec<NewTopic>, validate_only: bool) -> Ask<String, CreatedTopic> {
    let items: Vec<_> =
        topics.iter().map(|topic| (topic.name.clone(), Route::Controller)).collect();
    let build = move |items: &[usize], timeout_ms| {
        let topics = super::pick(&topics, items);
        let served = ApiKey::CreateTopics.served();
        let open = topics.iter().any(NewTopic::leaves_counts_open);
        let first = if open { DEFAULTS_FROM } else { *served.start() };
        body(ApiKey::CreateTopics, first..=*served.end(), move |frame| {
            frame.put(&CreateTopicsRequest {
                topics: topics.iter().map(NewTopic::message).collect(),
                timeout_ms,
                validate_only,
            })
        })
    };
    let ask = Ask::new(ApiKey::CreateTopics, items, build, |answer, asked| {
        let response = answer.decode::<CreateTopicsResponse<'_>>()?;
        let rows = response.topics.iter().map(|row| {
            (row.name, outcome(row.error_code, row.error_message, || CreatedTopic::of(row)))
        });
        Ok(asked.named(response.throttle_time_ms, rows))
    });
    if validate_only { ask } else { ask.changing() }
}

fn delete(names: Vec<String>) -> Ask<String, ()> {
    let items: Vec<_> = names.iter().map(|name| (name.clone(), Route::Controller)).collect();
    let build = move |items: &[usize], timeout_ms| {
        let names = super::pick(&names, items);
        body(ApiKey::DeleteTopics, ApiKey::DeleteTopics.served(), move |frame| {
            let mut request = DeleteTopicsRequest { timeout_ms, ..DeleteTopicsRequest::default() };
            let names = names.iter().map(String::as_str);
            if frame.version >= DELETE_BY_ID_FROM {
                let by_name =
                    |name| DeleteTopicState { name: Some(name), ..DeleteTopicState::default() };
                request.topics = names.map(by_name).collect();
            } else {
                request.topic_names = names.collect();
            }
            frame.put(&request)
        })
    };
    let ask = Ask::new(ApiKey::DeleteTopics, items, build, |answer, asked| {
        let response = answer.decode::<DeleteTopicsResponse<'_>>()?;
        let rows = response.responses.iter().map(|row| {
            let name = row.name.unwrap_or_default();
            (name, outcome(row.error_code, row.error_message, || ()))
        });
        Ok(asked.named(response.throttle_time_ms, rows))
    });
    ask.changing()
}

fn delete_by_id(ids: Vec<Uuid>) -> Ask<Uuid, ()> {
    let items: Vec<_> = ids.iter().map(|&id| (id, Route::Controller)).collect();
    let build = move |items: &[usize], timeout_ms| {
        let ids = super::pick(&ids, items);
        let versions = DELETE_BY_ID_FROM..=*ApiKey::DeleteTopics.served().end();
        body(ApiKey::DeleteTopics, versions, move |frame| {
            let by_id = |&topic_id| DeleteTopicState { name: None, topic_id };
            frame.put(&DeleteTopicsRequest {
                topics: ids.iter().map(by_id).collect(),
                timeout_ms,
                ..DeleteTopicsRequest::default()
            })
        })
    };
    let ask = Ask::new(ApiKey::DeleteTopics, items, build, |answer, asked| {
        let response = answer.decode::<DeleteTopicsResponse<'_>>()?;
        let rows = response
            .responses
            .iter()
            .map(|row| (row.topic_id, outcome(row.error_code, row.error_message, || ())));
        Ok(asked.rows(response.throttle_time_ms, rows))
    });
    ask.changing()
}

fn list() -> Ask<(), Vec<TopicListing>> {
    let build = || {
        // Version 0 has another word for "all".
        let versions = 1..=*ApiKey::Metadata.served().end();
        body(ApiKey::Metadata, versions, |frame| {
            frame.put(&MetadataRequest { topics: None, ..MetadataRequest::default() })
        })
    };
    Ask::one(ApiKey::Metadata, Route::Any, build, |answer, asked| {
        let response = answer.decode::<MetadataResponse<'_>>()?;
        let listed = outcome(response.error_code, None, || {
            let known = response.topics.iter().filter(|topic| topic.error_code.is_none());
            let mut topics: Vec<_> = known
                .map(|topic| TopicListing {
                    name: topic.name.unwrap_or_default().to_owned(),
                    topic_id: topic.topic_id,
                    is_internal: topic.is_internal,
                })
                .collect();
            topics.sort_by(|one, two| one.name.cmp(&two.name));
            topics
        });
        Ok(asked.only(response.throttle_time_ms, listed))
    })
}
