//! Options of topics and brokers that clients change: what is allowed, and the records that do it.
//!
//! The rules are those of Kafka's `ConfigurationControlManager`.

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use ottla_protocol::ErrorCode;

use super::metadata::{Image, MetadataRecord, Resource};
use super::topics::Refusal;

/// One change of an option.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Change {
    /// It is this from now on.
    Set(Option<String>),
    /// It is the default again.
    Delete,
    /// A list gains these.
    Append(Option<String>),
    /// A list loses these.
    Subtract(Option<String>),
}

/// What is asked for one resource.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Alteration {
    /// Whose options.
    pub(crate) resource: Resource,
    /// The changes, by option.
    pub(crate) changes: Vec<(String, Change)>,
    /// Whether all options that are not named go back to their defaults (AlterConfigs).
    pub(crate) replaces: bool,
}

/// What is known of the options of a kind of resource.
pub(crate) trait OptionRules {
    /// Whether a resource may have these options; says what is wrong.
    fn check(&self, own: &BTreeMap<Arc<str>, Arc<str>>) -> Result<(), Refusal>;

    /// Whether clients may change an option at all.
    fn check_changeable(&self, name: &str) -> Result<(), Refusal>;

    /// Whether an option is a list.
    fn is_list(&self, name: &str) -> bool;

    /// What an option is for a resource that does not set it.
    fn default_of(&self, name: &str) -> Option<String>;
}

/// Decides one resource's changes.
pub(crate) fn alter(
    image: &Image,
    alteration: &Alteration,
    rules: &dyn OptionRules,
) -> Result<Vec<MetadataRecord>, Refusal> {
    let Alteration { resource, changes, replaces } = alteration;
    check_form(changes)?;
    let before = image.overrides(resource).map(|own| (**own).clone()).unwrap_or_default();
    let mut after = if *replaces { BTreeMap::new() } else { before.clone() };
    let mut named = BTreeSet::new();
    for (name, change) in changes {
        rules.check_changeable(name)?;
        let name: Arc<str> = Arc::from(name.as_str());
        match changed(&name, change, &after, rules)? {
            Some(value) => {
                after.insert(name.clone(), Arc::from(value));
            }
            None => {
                after.remove(&name);
            }
        }
        named.insert(name);
    }
    rules.check(&after)?;
    let touched: BTreeSet<_> = before.keys().cloned().chain(named).collect();
    let records = touched.into_iter().filter_map(|name| {
        let value = after.get(&name).cloned();
        // What is as it was needs no record.
        (before.get(&name) != value.as_ref()).then(|| MetadataRecord::Config {
            resource: resource.clone(),
            name,
            value,
        })
    });
    Ok(records.collect())
}

/// Each option once, and a value wherever one is needed.
fn check_form(changes: &[(String, Change)]) -> Result<(), Refusal> {
    let invalid = |message| Err(Refusal::new(ErrorCode::INVALID_REQUEST, message));
    let mut seen = BTreeSet::new();
    for (name, change) in changes {
        if !seen.insert(name) {
            return invalid(format!("the option {name:?} is changed more than once"));
        }
        if matches!(change, Change::Set(None) | Change::Append(None) | Change::Subtract(None)) {
            return invalid(format!("the option {name:?} has no value"));
        }
    }
    Ok(())
}

/// The option's value after the change.
fn changed(
    name: &str,
    change: &Change,
    own: &BTreeMap<Arc<str>, Arc<str>>,
    rules: &dyn OptionRules,
) -> Result<Option<String>, Refusal> {
    let (given, keep): (&str, fn(bool) -> bool) = match change {
        Change::Delete => return Ok(None),
        Change::Set(value) => return Ok(value.as_deref().map(|value| value.trim().to_owned())),
        Change::Append(value) => (value.as_deref().unwrap_or_default(), |_there| true),
        Change::Subtract(value) => (value.as_deref().unwrap_or_default(), |there| !there),
    };
    if !rules.is_list(name) {
        let message = format!("the option {name:?} is no list: it can only be set or deleted");
        return Err(Refusal::new(ErrorCode::INVALID_CONFIG, message));
    }
    let own = own.get(name).map(ToString::to_string);
    let before = own.or_else(|| rules.default_of(name)).unwrap_or_default();
    let words = |text: &str| -> Vec<String> {
        let words = text.split(',').map(str::trim).filter(|word| !word.is_empty());
        words.map(str::to_owned).collect()
    };
    let given = words(given);
    let mut after = words(&before);
    after.retain(|word| keep(given.contains(word)));
    if matches!(change, Change::Append(_)) {
        for word in given {
            if !after.contains(&word) {
                after.push(word);
            }
        }
    }
    Ok(Some(after.join(",")))
}
