//! Options as tools see them: value, where it comes from, and what it would be otherwise.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::table::{OPTIONS, OptionKind, OptionRow};
use super::topic::{TOPIC_OPTIONS, TopicRow};
use super::{OptionError, Settings};

/// Where a value comes from, in Kafka's numbers: `ConfigSource`.
pub(crate) mod source {
    /// The topic's own.
    pub(crate) const TOPIC: i8 = 1;
    /// Set for this broker while it runs.
    pub(crate) const DYNAMIC_BROKER: i8 = 2;
    /// Set for all brokers while they run.
    pub(crate) const DYNAMIC_DEFAULT: i8 = 3;
    /// What this broker was started with.
    pub(crate) const STATIC_BROKER: i8 = 4;
    /// The default.
    pub(crate) const DEFAULT: i8 = 5;
}

/// Options that are set, by name.
type Set = BTreeMap<Arc<str>, Arc<str>>;

/// One option of a topic or a broker.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Described {
    /// Its name.
    pub(crate) name: &'static str,
    /// Its value; none if it has none.
    pub(crate) value: Option<String>,
    /// Where that comes from.
    pub(crate) source: i8,
    /// Whether only a start can change it.
    pub(crate) read_only: bool,
    /// All places that give it a value, the one that counts first.
    pub(crate) synonyms: Vec<Synonym>,
    /// What it takes, in Kafka's numbers: `ConfigType`.
    pub(crate) kind: i8,
    /// What it does, in a line.
    pub(crate) doc: &'static str,
}

/// A place that gives an option a value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Synonym {
    /// The option's name there.
    pub(crate) name: &'static str,
    /// Its value.
    pub(crate) value: Option<String>,
    /// The place.
    pub(crate) source: i8,
}

/// The options of a broker: those of its start, and those set while it runs.
#[derive(Debug, Clone, Copy)]
pub(crate) struct BrokerOptions<'a> {
    /// Those of its start.
    pub(crate) settings: &'a Settings,
    /// Set for this broker.
    pub(crate) own: Option<&'a Set>,
    /// Set for all brokers.
    pub(crate) all: Option<&'a Set>,
}

impl BrokerOptions<'_> {
    /// The options as they are now.
    pub(crate) fn effective(&self) -> Settings {
        let set = self.all.into_iter().chain(self.own).flatten();
        self.settings.with(set.map(|(name, value)| (&**name, &**value)))
    }

    /// All options of a topic, with its own.
    pub(crate) fn describe_topic(&self, own: Option<&Set>) -> Vec<Described> {
        let effective = self.effective();
        let rows = TOPIC_OPTIONS.iter().map(|row| {
            let mut synonyms = self.synonyms(row.broker, row.default);
            let set = own.and_then(|own| own.get(row.name));
            // As it is understood. What was stored by a broker with other rules is shown as it is.
            let set = set.map(|set| row.kind.read(set).unwrap_or_else(|| set.to_string()));
            if set.is_some() {
                let own = Synonym { name: row.name, value: set.clone(), source: source::TOPIC };
                synonyms.insert(0, own);
            }
            Described {
                name: row.name,
                value: Some(set.unwrap_or_else(|| row.default_in(&effective))),
                source: synonyms.first().map_or(source::DEFAULT, |first| first.source),
                read_only: false,
                synonyms,
                kind: kind_number(row.name, row.kind),
                doc: row.doc,
            }
        });
        rows.collect()
    }

    /// All options of this broker.
    pub(crate) fn describe_broker(&self) -> Vec<Described> {
        let rows = OPTIONS.iter().map(|row| {
            let synonyms = self.synonyms(&[row.name], row.default);
            let first = synonyms.first();
            Described {
                name: row.name,
                value: first.and_then(|first| first.value.clone()),
                source: first.map_or(source::DEFAULT, |first| first.source),
                read_only: !is_dynamic(row.name),
                kind: kind_number(row.name, row.kind),
                doc: row.doc,
                synonyms,
            }
        });
        rows.collect()
    }

    /// The options that are set for all brokers while they run.
    pub(crate) fn describe_defaults(&self) -> Vec<Described> {
        let set = self.all.into_iter().flatten();
        let rows = set.filter_map(|(name, value)| Some((row(name)?, value)));
        let rows = rows.map(|(row, value)| {
            let value = Some(value.to_string());
            let source = source::DYNAMIC_DEFAULT;
            let mut synonyms = vec![Synonym { name: row.name, value: value.clone(), source }];
            synonyms.extend(self.settings_synonyms(&[row.name], row.default));
            Described {
                name: row.name,
                value,
                source,
                read_only: false,
                synonyms,
                kind: kind_number(row.name, row.kind),
                doc: row.doc,
            }
        });
        rows.collect()
    }

    /// The places that give an option a value, under each of its names, the one that counts first.
    fn synonyms(&self, names: &[&'static str], default: &'static str) -> Vec<Synonym> {
        let mut synonyms = Vec::new();
        let dynamic = [(self.own, source::DYNAMIC_BROKER), (self.all, source::DYNAMIC_DEFAULT)];
        for (set, source) in dynamic {
            synonyms.extend(names.iter().filter_map(|name| {
                let value = Some(set?.get(*name)?.to_string());
                Some(Synonym { name, value, source })
            }));
        }
        synonyms.extend(self.settings_synonyms(names, default));
        synonyms
    }

    fn settings_synonyms(&self, names: &[&'static str], default: &'static str) -> Vec<Synonym> {
        let mut synonyms = Vec::new();
        synonyms.extend(names.iter().filter_map(|name| {
            let value = Some(self.settings.set_at_start(name)?.to_owned());
            Some(Synonym { name, value, source: source::STATIC_BROKER })
        }));
        // As in Kafka: where there are several names, the one that counts first has no default.
        synonyms.extend(names.iter().filter(|_| names.len() == 1).filter_map(|name| {
            // An option of Kafka's that this broker lacks has what the topic's has.
            let default = row(name).map_or(default, |row| row.default);
            let value = Some(default).filter(|value| !value.is_empty()).map(str::to_owned);
            value.map(|value| Synonym { name, value: Some(value), source: source::DEFAULT })
        }));
        synonyms
    }
}

fn row(name: &str) -> Option<&'static OptionRow> {
    OPTIONS.iter().find(|row| row.name == name)
}

/// Whether an option of the broker can be set while it runs: the defaults of topics can.
///
/// Kafka: `DynamicBrokerConfig.AllDynamicConfigs`, as far as there is something to set here.
pub(crate) fn is_dynamic(name: &str) -> bool {
    row(name).is_some() && TOPIC_OPTIONS.iter().any(|row| row.broker.first() == Some(&name))
}

/// Whether an option is a list, of a topic or of the broker.
pub(crate) fn is_list(name: &str) -> bool {
    let topic = TOPIC_OPTIONS.iter().find(|row| row.name == name).map(|row| row.kind);
    let kind = topic.or_else(|| row(name).map(|row| row.kind));
    kind.is_some_and(|kind| matches!(kind, OptionKind::List(_) | OptionKind::Replicas))
}

/// What an option of a topic is where neither topic nor broker say otherwise.
pub(crate) fn topic_default(settings: &Settings, name: &str) -> Option<String> {
    let row = TOPIC_OPTIONS.iter().find(|row| row.name == name)?;
    Some(row.default_in(settings))
}

/// Whether the broker's option takes a value.
pub(crate) fn check_broker_option(name: &str, value: &str) -> Result<(), OptionError> {
    super::table::find(name)?.read(value).map(|_value| ())
}

impl TopicRow {
    /// Its value for a topic that does not set it.
    pub(super) fn default_in(&self, settings: &Settings) -> String {
        settings.topic_default(self.name).unwrap_or_else(|| self.default.to_owned())
    }
}

/// Kafka's number for what an option takes.
fn kind_number(name: &str, kind: OptionKind) -> i8 {
    const INT: i64 = 2_147_483_647;
    match kind {
        OptionKind::Flag => 1,
        // Levels that are not all from one to another.
        OptionKind::Choice(words) if words.iter().all(|word| word.parse::<i64>().is_ok()) => 3,
        OptionKind::Choice(_) => 2,
        OptionKind::Number(..) if name == "offsets.topic.replication.factor" => 4,
        // Ages of segments are long in Kafka whatever they may be.
        OptionKind::Number(_, most) | OptionKind::OptionalNumber(_, most) if most <= INT => 3,
        OptionKind::Number(..) | OptionKind::OptionalNumber(..) => 5,
        OptionKind::Ratio => 6,
        OptionKind::List(_)
        | OptionKind::Replicas
        | OptionKind::Address
        | OptionKind::Listener
        | OptionKind::Folder => 7,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::BrokerConfig;

    fn set(pairs: &[(&str, &str)]) -> Set {
        pairs.iter().map(|(name, value)| (Arc::from(*name), Arc::from(*value))).collect()
    }

    fn find<'a>(described: &'a [Described], name: &str) -> &'a Described {
        described.iter().find(|one| one.name == name).expect("an option")
    }

    fn places(described: &Described) -> Vec<(&str, &str, i8)> {
        let synonyms = described.synonyms.iter();
        let places =
            synonyms.map(|one| (one.name, one.value.as_deref().unwrap_or_default(), one.source));
        places.collect()
    }

    #[test]
    fn a_topics_option_tells_every_place_that_gives_it_a_value() {
        let config = BrokerConfig::new().set("message.max.bytes", "4000").expect("an option");
        let settings = config.settings();
        let (own, all) =
            (set(&[("message.max.bytes", "2000")]), set(&[("message.max.bytes", "3000")]));
        let options = BrokerOptions { settings: &settings, own: Some(&own), all: Some(&all) };
        let described = options.describe_topic(Some(&set(&[("max.message.bytes", "1000")])));
        let option = find(&described, "max.message.bytes");
        assert_eq!((option.value.as_deref(), option.source), (Some("1000"), source::TOPIC));
        let expected = [
            ("max.message.bytes", "1000", 1),
            ("message.max.bytes", "2000", 2),
            ("message.max.bytes", "3000", 3),
            ("message.max.bytes", "4000", 4),
            ("message.max.bytes", "1048588", 5),
        ];
        assert_eq!(places(option), expected);
        let described = options.describe_topic(None);
        let option = find(&described, "max.message.bytes");
        assert_eq!(
            (option.value.as_deref(), option.source),
            (Some("2000"), source::DYNAMIC_BROKER)
        );
        let age = find(&described, "retention.ms");
        assert_eq!(age.value.as_deref(), Some("604800000"));
        assert_eq!(places(age), [], "its default has another name");
    }

    #[test]
    fn a_brokers_options_say_which_only_a_start_can_change() {
        let settings = BrokerConfig::new().settings();
        let all = set(&[("log.retention.ms", "77")]);
        let options = BrokerOptions { settings: &settings, own: None, all: Some(&all) };
        let described = options.describe_broker();
        assert_eq!(described.len(), OPTIONS.len());
        assert!(find(&described, "node.id").read_only);
        let age = find(&described, "log.retention.ms");
        assert!(!age.read_only);
        assert_eq!((age.value.as_deref(), age.source), (Some("77"), source::DYNAMIC_DEFAULT));
        assert_eq!(
            find(&options.describe_topic(None), "retention.ms").value.as_deref(),
            Some("77")
        );
        assert_eq!(options.describe_defaults().len(), 1);
        assert!(!is_dynamic("log.retention.hours") && !is_dynamic("nonsense"));
    }
}
