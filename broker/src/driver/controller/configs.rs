//! Options of topics and brokers that clients change: decided together, shown when they are on disk.

use std::collections::BTreeMap;
use std::sync::Arc;

use ottla_protocol::ErrorCode;

use super::topics::{publish, take};
use super::{Controller, Image, Refusal};
use crate::config::describe::{
    self, BrokerOptions, check_broker_option, is_dynamic, topic_default,
};
use crate::config::{Settings, TopicConfig};
use crate::driver::controller::Ask;
use crate::node::Node;
use crate::state::configs::{Alteration, OptionRules, alter};
use crate::state::metadata::{MetadataRecord, Resource};
use crate::state::topics::check_name;

/// Called with the outcome of each resource's changes, in order.
pub(crate) type AlteredDone = Box<dyn FnOnce(Vec<Result<(), Refusal>>) + Send>;

/// The options of this broker, as an image has them.
pub(crate) fn broker_options<'a>(node: &'a Node, image: &'a Image) -> BrokerOptions<'a> {
    let set = |id| image.overrides(&Resource::broker(id)).map(|set| &**set);
    BrokerOptions { settings: &node.settings, own: set(Some(node.node_id)), all: set(None) }
}

impl Controller {
    /// Changes options, those of each resource for itself; or only says which could be.
    pub(crate) fn alter_configs(
        &self,
        node: &Arc<Node>,
        alterations: &[Alteration],
        ask: Ask,
        done: AlteredDone,
    ) {
        let state = self.state();
        let mut image = state.image.clone();
        let mut records = Vec::new();
        let mut outcomes = Vec::with_capacity(alterations.len());
        for alteration in alterations {
            let decided = decide(node, &image, alteration).and_then(|decided| {
                take(&mut image, &decided)?;
                records.extend(decided);
                Ok(())
            });
            outcomes.push(decided);
        }
        if ask == Ask::CheckOnly || records.is_empty() {
            drop(state);
            done(outcomes);
            return;
        }
        let of_broker = alterations.iter().any(|one| one.resource.kind == Resource::BROKER);
        let names: Vec<_> = alterations.iter().map(|one| one.resource.name.clone()).collect();
        let told = node.clone();
        Self::append(node, state, records, move |stored| {
            done(match stored {
                Ok(image) => {
                    // The broker's options are the defaults of all topics.
                    if of_broker {
                        publish(&told, image.topics(), image);
                    } else {
                        publish(&told, names.iter().filter_map(|name| image.topic(name)), image);
                    }
                    outcomes
                }
                Err(refusal) => {
                    let refuse =
                        |outcome: Result<(), _>| outcome.and_then(|()| Err(refusal.clone()));
                    outcomes.into_iter().map(refuse).collect()
                }
            });
        });
    }
}

fn decide(
    node: &Node,
    image: &Image,
    alteration: &Alteration,
) -> Result<Vec<MetadataRecord>, Refusal> {
    let resource = &alteration.resource;
    match resource.kind {
        Resource::TOPIC => {
            check_name_of(&resource.name)?;
            if image.topic(&resource.name).is_none() {
                let message = format!("there is no topic {:?}", resource.name);
                return Err(Refusal::new(ErrorCode::UNKNOWN_TOPIC_OR_PARTITION, message));
            }
            let settings = broker_options(node, image).effective();
            alter(image, alteration, &OfTopics { settings })
        }
        Resource::BROKER => {
            check_broker_name(node, &resource.name)?;
            alter(image, alteration, &OfBrokers { settings: &node.settings })
        }
        other => {
            let message = format!("resources of the type {other} have no options here");
            Err(Refusal::new(ErrorCode::INVALID_REQUEST, message))
        }
    }
}

fn check_name_of(topic: &str) -> Result<(), Refusal> {
    if topic == crate::node::OFFSETS_TOPIC { Ok(()) } else { check_name(topic) }
}

/// Whether the name of a broker's options is this broker's id, or empty for those of all.
pub(crate) fn check_broker_name(node: &Node, name: &str) -> Result<(), Refusal> {
    if name.is_empty() || name.parse() == Ok(node.node_id) {
        return Ok(());
    }
    let message = format!(
        "options of a broker are asked of itself, under its node.id, which is {}, or under no name \
         for those of all brokers; not under {name:?}",
        node.node_id
    );
    Err(Refusal::new(ErrorCode::INVALID_REQUEST, message))
}

/// The options of topics.
struct OfTopics {
    settings: Settings,
}

impl OptionRules for OfTopics {
    fn check(&self, own: &BTreeMap<Arc<str>, Arc<str>>) -> Result<(), Refusal> {
        let own = own.iter().map(|(name, value)| (&**name, &**value));
        match TopicConfig::resolve(&self.settings, own) {
            Ok(_resolved) => Ok(()),
            Err(error) => Err(Refusal::new(ErrorCode::INVALID_CONFIG, error.to_string())),
        }
    }

    fn check_changeable(&self, _name: &str) -> Result<(), Refusal> {
        Ok(())
    }

    fn is_list(&self, name: &str) -> bool {
        describe::is_list(name)
    }

    fn default_of(&self, name: &str) -> Option<String> {
        topic_default(&self.settings, name)
    }
}

/// The options of brokers.
struct OfBrokers<'a> {
    settings: &'a Settings,
}

impl OptionRules for OfBrokers<'_> {
    fn check(&self, own: &BTreeMap<Arc<str>, Arc<str>>) -> Result<(), Refusal> {
        let mut checks = own.iter().map(|(name, value)| check_broker_option(name, value));
        checks.try_for_each(|check| {
            check.map_err(|error| Refusal::new(ErrorCode::INVALID_REQUEST, error.to_string()))
        })
    }

    fn check_changeable(&self, name: &str) -> Result<(), Refusal> {
        if is_dynamic(name) {
            return Ok(());
        }
        let message = format!(
            "the option {name:?} cannot be changed while the broker runs: it is no default of topics"
        );
        Err(Refusal::new(ErrorCode::INVALID_REQUEST, message))
    }

    fn is_list(&self, name: &str) -> bool {
        describe::is_list(name)
    }

    fn default_of(&self, name: &str) -> Option<String> {
        self.settings.set_at_start(name).map(str::to_owned)
    }
}
