//! Creating and deleting topics: each decided for itself, all of a request in one append.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, MutexGuard};

use ottla_protocol::{ErrorCode, Uuid};

use super::configs::{AlteredDone, broker_options};
use super::{Controller, Image, MetadataRecord, Refusal, State, TopicRequest, replay_all};
use crate::config::{Settings, TopicConfig};
use crate::driver::folder::random_id;
use crate::node::{Node, TopicSetup};
use crate::state::metadata::TopicState;
use crate::state::topics::{
    Creation, Growth, OFFSETS_TOPIC, TopicDefaults, TopicKey, check_request, create,
    create_offsets_topic, delete, grow,
};

/// Logs of a new topic that are opened before it is answered. Those of a wider topic are opened
/// when they are first used, so that other partitions' writes need not wait for all of them.
const OPENED_AT_ONCE: usize = 64;

/// Options of one topic, by name.
type Options = BTreeMap<Arc<str>, Arc<str>>;

/// A topic that is to be created, as the broker itself asks for one.
#[derive(Debug, Clone)]
pub(crate) struct NewTopic {
    /// Its name.
    pub(crate) name: String,
    /// How many partitions; -1: `num.partitions`.
    pub(crate) partitions: i32,
    /// How many copies of each; -1: `default.replication.factor`.
    pub(crate) replication_factor: i16,
    /// Its own options.
    pub(crate) configs: Vec<(String, Option<String>)>,
}

/// A topic that was created, or could be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Created {
    /// Its id; zero if it was only to be checked.
    pub(crate) id: Uuid,
    /// How many partitions it has.
    pub(crate) partitions: i32,
    /// How many copies of each.
    pub(crate) replication_factor: i16,
}

/// Called when a topic is there, or with the reason why it is not.
pub(crate) type TopicDone = Box<dyn FnOnce(Result<(), Refusal>) + Send>;

/// Called with the outcome of each topic asked for, in order.
pub(crate) type TopicsDone = Box<dyn FnOnce(Vec<Result<Created, Refusal>>) + Send>;

/// Called with the outcome of each deletion asked for, in order: the topic's name and id.
pub(crate) type DeletedDone = Box<dyn FnOnce(Vec<Result<(Arc<str>, Uuid), Refusal>>) + Send>;

/// Whether topics are to be created.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ask {
    /// They are.
    Create,
    /// The outcome alone is wanted.
    CheckOnly,
}

impl Controller {
    /// Creates a topic.
    pub(crate) fn create_topic(&self, node: &Arc<Node>, topic: NewTopic, done: TopicDone) {
        let NewTopic { name, partitions, replication_factor, configs } = topic;
        let assignments = Vec::new();
        let request = TopicRequest { name, partitions, replication_factor, assignments, configs };
        let done = Box::new(move |mut outcomes: Vec<Result<Created, Refusal>>| {
            let lost = || Refusal::new(ErrorCode::UNKNOWN_SERVER_ERROR, "no outcome");
            let outcome = outcomes.pop().ok_or_else(lost).and_then(|outcome| outcome);
            done(outcome.map(|_created| ()));
        });
        self.create_topics(node, &[request], Ask::Create, done);
    }

    /// Creates topics, each for itself, or only says which could be. They can be produced to when
    /// `done` is called.
    pub(crate) fn create_topics(
        &self,
        node: &Arc<Node>,
        requests: &[TopicRequest],
        ask: Ask,
        done: TopicsDone,
    ) {
        if let Err(refusal) = check_request(requests, defaults(node)) {
            done(requests.iter().map(|_| Err(refusal.clone())).collect());
            return;
        }
        let state = self.state();
        // Each sees those before it, or two of one request could have one name.
        let mut image = state.image.clone();
        let mut records = Vec::new();
        let mut outcomes = Vec::with_capacity(requests.len());
        let mut names = Vec::new();
        for request in requests {
            let decided = decide(node, &state, &mut image, request);
            outcomes.push(decided.map(|creation| {
                let Creation { name, id, partitions, replication_factor, .. } = creation;
                records.extend(creation.records);
                names.push(name);
                let id = if ask == Ask::Create { id } else { Uuid::ZERO };
                Created { id, partitions, replication_factor }
            }));
        }
        if ask == Ask::CheckOnly || records.is_empty() {
            drop(state);
            done(outcomes);
            return;
        }
        let told = node.clone();
        Self::append(node, state, records, move |stored| {
            let outcomes = match stored {
                Ok(image) => {
                    publish(&told, names.iter().filter_map(|name| image.topic(name)), image);
                    open_logs(&told, outcomes)
                }
                Err(refusal) => all_refused(outcomes, &refusal),
            };
            done(outcomes);
        });
    }

    /// Creates the offsets topic if it is not there.
    pub(crate) fn create_offsets_topic(&self, node: &Arc<Node>, done: TopicDone) {
        let mut state = self.state();
        if let Some(waiting) = &mut state.waiting_for_offsets {
            waiting.push(done);
            return;
        }
        if state.image.topic(OFFSETS_TOPIC).is_some() {
            drop(state);
            done(Ok(()));
            return;
        }
        let settings = &node.settings;
        let created = fresh_id().and_then(|id| {
            create_offsets_topic(
                &state.image,
                settings.offsets_partitions,
                settings.offsets_replication_factor,
                settings.offsets_segment_bytes,
                id,
            )
        });
        match created {
            Ok(creation) => {
                state.waiting_for_offsets = Some(vec![done]);
                Self::append_offsets_topic(node, state, creation);
            }
            Err(refusal) => {
                drop(state);
                done(Err(refusal));
            }
        }
    }

    fn append_offsets_topic(node: &Arc<Node>, state: MutexGuard<'_, State>, creation: Creation) {
        let told = node.clone();
        Self::append(node, state, creation.records, move |stored| {
            let outcome = stored.map(|image| {
                publish(&told, image.topic(OFFSETS_TOPIC).into_iter(), image);
            });
            let waiting = told.controller.state().waiting_for_offsets.take();
            for done in waiting.into_iter().flatten() {
                done(outcome.clone());
            }
        });
    }

    /// Gives topics more partitions, each for itself, or only says which could have them.
    pub(crate) fn create_partitions(
        &self,
        node: &Arc<Node>,
        requests: &[Growth],
        ask: Ask,
        done: AlteredDone,
    ) {
        let state = self.state();
        let mut image = state.image.clone();
        let mut records = Vec::new();
        let mut outcomes = Vec::with_capacity(requests.len());
        for request in requests {
            let decided = grow(&image, request, node.settings.max_partitions);
            outcomes.push(decided.and_then(|decided| {
                take(&mut image, &decided)?;
                records.extend(decided);
                Ok(())
            }));
        }
        if ask == Ask::CheckOnly || records.is_empty() {
            drop(state);
            done(outcomes);
            return;
        }
        let names: Vec<_> = requests.iter().map(|request| request.name.clone()).collect();
        let told = node.clone();
        Self::append(node, state, records, move |stored| {
            done(match stored {
                Ok(image) => {
                    publish(&told, names.iter().filter_map(|name| image.topic(name)), image);
                    outcomes
                }
                Err(refusal) => all_refused(outcomes, &refusal),
            });
        });
    }

    /// Deletes topics, each for itself.
    pub(crate) fn delete_topics(&self, node: &Arc<Node>, keys: &[TopicKey], done: DeletedDone) {
        let mut state = self.state();
        let mut image = state.image.clone();
        let mut records = Vec::new();
        let mut outcomes = Vec::with_capacity(keys.len());
        for key in keys {
            let decided = delete(&image, key).and_then(|topic| {
                let record = MetadataRecord::RemoveTopic { id: topic.id };
                take(&mut image, std::slice::from_ref(&record))?;
                records.push(record);
                Ok((topic.name.clone(), topic.id))
            });
            outcomes.push(decided);
        }
        if records.is_empty() {
            drop(state);
            done(outcomes);
            return;
        }
        let gone: Vec<_> = outcomes.iter().flatten().cloned().collect();
        state.going.extend(gone.iter().map(|(name, _)| name.clone()));
        let told = node.clone();
        Self::append(node, state, records, move |stored| {
            let refused = stored.err();
            if refused.is_none() {
                for (name, id) in &gone {
                    told.topics.remove(*id);
                    told.coordinator.forget_topic(&told, name);
                }
            }
            let mut state = told.controller.state();
            state.going.retain(|name| gone.iter().all(|(done, _)| done != name));
            drop(state);
            done(match refused {
                None => outcomes,
                Some(refusal) => all_refused(outcomes, &refusal),
            });
        });
    }
}

fn decide(
    node: &Node,
    state: &State,
    image: &mut Image,
    request: &TopicRequest,
) -> Result<Creation, Refusal> {
    if state.going.contains(request.name.as_str()) {
        let message = format!("topic {:?} is being deleted", request.name);
        return Err(Refusal::new(ErrorCode::TOPIC_ALREADY_EXISTS, message));
    }
    let settings = &node.settings;
    let check = |own: &[(&str, &str)]| {
        let resolved = TopicConfig::resolve(settings, own.iter().copied());
        resolved.map(|_config| ()).map_err(|error| error.to_string())
    };
    let creation = create(image, request, defaults(node), fresh_id()?, &check)?;
    take(image, &creation.records)?;
    Ok(creation)
}

fn defaults(node: &Node) -> TopicDefaults {
    TopicDefaults {
        partitions: node.settings.num_partitions,
        replication_factor: node.settings.default_replication_factor,
        partitions_in_all: node.settings.max_partitions,
    }
}

pub(super) fn take(image: &mut Image, records: &[MetadataRecord]) -> Result<(), Refusal> {
    let replayed = replay_all(image, records);
    replayed.map_err(|misfit| Refusal::new(ErrorCode::UNKNOWN_SERVER_ERROR, misfit))
}

fn fresh_id() -> Result<Uuid, Refusal> {
    random_id().map_err(|error| {
        let message = format!("no id for a topic: {error:?}");
        Refusal::new(ErrorCode::UNKNOWN_SERVER_ERROR, message)
    })
}

fn all_refused<T>(outcomes: Vec<Result<T, Refusal>>, refusal: &Refusal) -> Vec<Result<T, Refusal>> {
    let refuse = |outcome: Result<T, Refusal>| outcome.and_then(|_| Err(refusal.clone()));
    outcomes.into_iter().map(refuse).collect()
}

/// Shows topics to everybody.
pub(super) fn publish<'a>(
    node: &Node,
    topics: impl Iterator<Item = &'a Arc<TopicState>>,
    image: &Image,
) {
    let settings = broker_options(node, image).effective();
    let setups: Vec<_> = topics.map(|topic| setup(&settings, topic, image)).collect();
    node.topics.publish(&setups);
}

fn setup(settings: &Settings, topic: &TopicState, image: &Image) -> TopicSetup {
    let none = Arc::new(Options::new());
    let own = image.topic_overrides(&topic.name).unwrap_or(&none);
    TopicSetup {
        name: topic.name.clone(),
        id: topic.id,
        config: Arc::new(resolve(settings, &topic.name, own)),
        leader_epochs: topic.partitions.values().map(|state| state.leader_epoch).collect(),
    }
}

/// A topic's options. What an older or other broker took and we do not have is left out, aloud.
fn resolve(settings: &Settings, topic: &str, own: &Options) -> TopicConfig {
    let mut known = Vec::new();
    let mut unknown = BTreeSet::new();
    for (name, value) in own {
        let option = (&**name, &**value);
        match TopicConfig::resolve(settings, [option]) {
            Ok(_config) => known.push(option),
            Err(error) => {
                tracing::warn!(topic, %error, "an option of a topic has no effect");
                unknown.insert(&**name);
            }
        }
    }
    TopicConfig::resolve(settings, known).unwrap_or_else(|error| {
        tracing::error!(topic, %error, ?unknown, "a topic has the broker's options alone");
        TopicConfig::broker_default(settings)
    })
}

/// Opens the logs of new topics; a topic whose logs cannot be opened is there, but not usable.
fn open_logs(
    node: &Node,
    outcomes: Vec<Result<Created, Refusal>>,
) -> Vec<Result<Created, Refusal>> {
    let mut left = OPENED_AT_ONCE;
    let published = node.topics.load();
    let open = |created: Created| {
        let Some(topic) = published.of_id(created.id) else { return Ok(created) };
        for partition in topic.partitions.iter().take(left) {
            partition.log().map_err(|error| {
                let message = format!("the topic is created, but {error}");
                Refusal::new(ErrorCode::KAFKA_STORAGE_ERROR, message)
            })?;
        }
        left = left.saturating_sub(topic.partitions.len());
        Ok(created)
    };
    let mut open = open;
    outcomes.into_iter().map(|outcome| outcome.and_then(&mut open)).collect()
}
