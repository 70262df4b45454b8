//! Options of topics, brokers and others: described, changed, listed.

use ottla_protocol::ApiKey;
use ottla_protocol::messages::alter_configs_request as whole;
use ottla_protocol::messages::alter_configs_response::AlterConfigsResponse;
use ottla_protocol::messages::create_topics_response::CreatableTopicConfigs;
use ottla_protocol::messages::describe_configs_request::{
    DescribeConfigsRequest, DescribeConfigsResource,
};
use ottla_protocol::messages::describe_configs_response::{
    DescribeConfigsResourceResult, DescribeConfigsResponse,
};
use ottla_protocol::messages::incremental_alter_configs_request as incremental;
use ottla_protocol::messages::incremental_alter_configs_response::IncrementalAlterConfigsResponse;
use ottla_protocol::messages::list_config_resources_request::ListConfigResourcesRequest;
use ottla_protocol::messages::list_config_resources_response::ListConfigResourcesResponse;

use super::ask::{Ask, outcome};
use super::{Admin, Call, ChangeOptions, Results};
use crate::state::admin::Route;
use crate::state::machine::body;

/// The first version of DescribeConfigs that tells documentation (KIP-569).
const DOCUMENTATION_FROM: i16 = 3;
/// The first version of ListConfigResources that lists other things than metrics (KIP-1142).
const RESOURCES_FROM: i16 = 1;

/// What kind of thing has options.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum ConfigResourceType {
    /// A topic, by name.
    Topic,
    /// A broker, by id; an empty name means the defaults of all brokers.
    Broker,
    /// The log levels of a broker, by id.
    BrokerLogger,
    /// A subscription to clients' metrics (KIP-714).
    ClientMetrics,
    /// A group, by id (KIP-848).
    Group,
    /// One that this client has no word for, by Kafka's number.
    Other(i8),
}

impl ConfigResourceType {
    /// Kafka's number.
    pub const fn id(self) -> i8 {
        match self {
            Self::Topic => 2,
            Self::Broker => 4,
            Self::BrokerLogger => 8,
            Self::ClientMetrics => 16,
            Self::Group => 32,
            Self::Other(id) => id,
        }
    }

    /// The kind of Kafka's number.
    pub const fn of_id(id: i8) -> Self {
        match id {
            2 => Self::Topic,
            4 => Self::Broker,
            8 => Self::BrokerLogger,
            16 => Self::ClientMetrics,
            32 => Self::Group,
            other => Self::Other(other),
        }
    }
}

/// A thing that has options.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ConfigResource {
    /// What kind of thing.
    pub kind: ConfigResourceType,
    /// Its name.
    pub name: String,
}

impl ConfigResource {
    /// A thing of that kind and name.
    pub fn new(kind: ConfigResourceType, name: impl Into<String>) -> Self {
        Self { kind, name: name.into() }
    }

    /// A topic.
    pub fn topic(name: impl Into<String>) -> Self {
        Self::new(ConfigResourceType::Topic, name)
    }

    /// A broker.
    pub fn broker(id: i32) -> Self {
        Self::new(ConfigResourceType::Broker, id.to_string())
    }

    /// A broker answers for its own options itself; for all others `else_to` does.
    fn route(&self, else_to: Route) -> Route {
        let of_broker =
            matches!(self.kind, ConfigResourceType::Broker | ConfigResourceType::BrokerLogger);
        match self.name.parse() {
            Ok(id) if of_broker => Route::Broker(id),
            _ => else_to,
        }
    }
}

/// Where the value of an option comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum ConfigSource {
    /// Set for this topic.
    DynamicTopic,
    /// Set for this broker while it ran.
    DynamicBroker,
    /// Set for all brokers while they ran.
    DynamicDefaultBroker,
    /// Set where the broker was started.
    StaticBroker,
    /// Nobody set it.
    Default,
    /// Set for this broker's loggers.
    DynamicBrokerLogger,
    /// Set for this subscription to clients' metrics.
    ClientMetrics,
    /// Set for this group.
    Group,
    /// One that this client has no word for, by Kafka's number.
    Other(i8),
}

impl ConfigSource {
    const fn of_id(id: i8) -> Self {
        match id {
            1 => Self::DynamicTopic,
            2 => Self::DynamicBroker,
            3 => Self::DynamicDefaultBroker,
            4 => Self::StaticBroker,
            5 => Self::Default,
            6 => Self::DynamicBrokerLogger,
            7 => Self::ClientMetrics,
            8 => Self::Group,
            other => Self::Other(other),
        }
    }
}

/// What values an option takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum ConfigType {
    /// True or false.
    Boolean,
    /// A text.
    String,
    /// A whole number of 32 bits.
    Int,
    /// A whole number of 16 bits.
    Short,
    /// A whole number of 64 bits.
    Long,
    /// A number.
    Double,
    /// Texts separated by commas.
    List,
    /// The name of a Java class.
    Class,
    /// A secret, whose value is not told.
    Password,
    /// The broker did not say.
    Unknown,
}

impl ConfigType {
    const fn of_id(id: i8) -> Self {
        match id {
            1 => Self::Boolean,
            2 => Self::String,
            3 => Self::Int,
            4 => Self::Short,
            5 => Self::Long,
            6 => Self::Double,
            7 => Self::List,
            8 => Self::Class,
            9 => Self::Password,
            _ => Self::Unknown,
        }
    }
}

/// A place that an option's value could come from.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct ConfigSynonym {
    /// The option's name there.
    pub name: String,
    /// Its value there; `None` if that is secret.
    pub value: Option<String>,
    /// Which place.
    pub source: ConfigSource,
}

/// An option with its value.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct ConfigEntry {
    /// Its name.
    pub name: String,
    /// Its value; `None` if there is none, or it is secret.
    pub value: Option<String>,
    /// Where the value comes from.
    pub source: ConfigSource,
    /// Whether the value is secret.
    pub is_sensitive: bool,
    /// Whether only a start of the broker changes it.
    pub is_read_only: bool,
    /// What values it takes.
    pub kind: ConfigType,
    /// Where values could come from, the one that holds first; empty unless asked for.
    pub synonyms: Vec<ConfigSynonym>,
    /// What it does; `None` unless asked for.
    pub documentation: Option<String>,
}

impl ConfigEntry {
    /// Whether nobody set it.
    pub fn is_default(&self) -> bool {
        self.source == ConfigSource::Default
    }

    fn of(row: &DescribeConfigsResourceResult<'_>) -> Self {
        let synonyms = row.synonyms.iter().map(|synonym| ConfigSynonym {
            name: synonym.name.to_owned(),
            value: synonym.value.map(str::to_owned),
            source: ConfigSource::of_id(synonym.source),
        });
        Self {
            name: row.name.to_owned(),
            value: row.value.map(str::to_owned),
            source: ConfigSource::of_id(row.config_source),
            is_sensitive: row.is_sensitive,
            is_read_only: row.read_only,
            kind: ConfigType::of_id(row.config_type),
            synonyms: synonyms.collect(),
            documentation: row.documentation.map(str::to_owned),
        }
    }

    pub(super) fn of_new_topic(row: &CreatableTopicConfigs<'_>) -> Self {
        Self {
            name: row.name.to_owned(),
            value: row.value.map(str::to_owned),
            source: ConfigSource::of_id(row.config_source),
            is_sensitive: row.is_sensitive,
            is_read_only: row.read_only,
            kind: ConfigType::Unknown,
            synonyms: Vec::new(),
            documentation: None,
        }
    }
}

/// A change of one option.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum AlterConfigOp {
    /// This option has this value from now on.
    Set(String, String),
    /// This option has its default again.
    Delete(String),
    /// This option, a list, has these values too.
    Append(String, String),
    /// This option, a list, has these values no longer.
    Subtract(String, String),
}

impl AlterConfigOp {
    /// A new value for an option.
    pub fn set(name: impl Into<String>, value: impl Into<String>) -> Self {
        Self::Set(name.into(), value.into())
    }

    /// The default for an option.
    pub fn delete(name: impl Into<String>) -> Self {
        Self::Delete(name.into())
    }

    /// More values for an option that is a list.
    pub fn append(name: impl Into<String>, value: impl Into<String>) -> Self {
        Self::Append(name.into(), value.into())
    }

    /// Fewer values for an option that is a list.
    pub fn subtract(name: impl Into<String>, value: impl Into<String>) -> Self {
        Self::Subtract(name.into(), value.into())
    }

    fn message(&self) -> incremental::AlterableConfig<'_> {
        // Kafka: `AlterConfigOp.OpType`.
        let (config_operation, name, value) = match self {
            Self::Set(name, value) => (0, name, Some(value)),
            Self::Delete(name) => (1, name, None),
            Self::Append(name, value) => (2, name, Some(value)),
            Self::Subtract(name, value) => (3, name, Some(value)),
        };
        let value = value.map(String::as_str);
        incremental::AlterableConfig { name, config_operation, value }
    }
}

/// What can be said of a call that describes options.
#[derive(Debug, Clone, Copy, Default)]
pub struct DescribeConfigsOptions {
    include_synonyms: bool,
    include_documentation: bool,
}

impl<T: Clone> Call<T, DescribeConfigsOptions> {
    /// Whether to tell where each value could come from. Default false.
    pub fn include_synonyms(self, include: bool) -> Self {
        self.with(|options| options.include_synonyms = include)
    }

    /// Whether to tell what each option does. Default false.
    pub fn include_documentation(self, include: bool) -> Self {
        self.with(|options| options.include_documentation = include)
    }
}

impl Admin {
    /// The options of topics, brokers and others, with their values. `UnknownTopic` for a topic that
    /// does not exist.
    pub fn describe_configs(
        &self,
        resources: &[ConfigResource],
    ) -> Call<Results<ConfigResource, Vec<ConfigEntry>>, DescribeConfigsOptions> {
        let resources = resources.to_vec();
        self.each(move |options| describe(resources, options))
    }

    /// Changes options; those of one resource together or not at all (KIP-339).
    ///
    /// `InvalidRequest` for an option that there is not, or that does not take the value;
    /// `UnknownTopic` for a topic that does not exist.
    pub fn incremental_alter_configs(
        &self,
        changes: &[(ConfigResource, Vec<AlterConfigOp>)],
    ) -> Call<Results<ConfigResource, ()>, ChangeOptions> {
        let changes = changes.to_vec();
        self.each(move |options: ChangeOptions| alter(changes, options.validate_only))
    }

    /// Sets all options of each resource anew: those that are not named have their defaults again.
    ///
    /// Kafka's AdminClient has it no longer; [`Self::incremental_alter_configs`] is safer.
    pub fn alter_configs(
        &self,
        configs: &[(ConfigResource, Vec<(String, String)>)],
    ) -> Call<Results<ConfigResource, ()>, ChangeOptions> {
        let configs = configs.to_vec();
        self.each(move |options: ChangeOptions| replace(configs, options.validate_only))
    }

    /// The things of these kinds that have options; of all kinds if none is named.
    pub fn list_config_resources(&self, kinds: &[ConfigResourceType]) -> Call<Vec<ConfigResource>> {
        let kinds: Vec<i8> = kinds.iter().map(|kind| kind.id()).collect();
        self.single(move |()| list(kinds))
    }
}

fn describe(
    resources: Vec<ConfigResource>,
    options: DescribeConfigsOptions,
) -> Ask<ConfigResource, Vec<ConfigEntry>> {
    let items: Vec<_> =
        resources.iter().map(|resource| (resource.clone(), resource.route(Route::Any))).collect();
    let build = move |items: &[usize], _| {
        let resources = super::pick(&resources, items);
        let served = ApiKey::DescribeConfigs.served();
        let told = options.include_documentation;
        let first = if told { DOCUMENTATION_FROM } else { *served.start() };
        body(ApiKey::DescribeConfigs, first..=*served.end(), move |frame| {
            let resources = resources.iter().map(|resource| DescribeConfigsResource {
                resource_type: resource.kind.id(),
                resource_name: &resource.name,
                configuration_keys: None,
            });
            frame.put(&DescribeConfigsRequest {
                resources: resources.collect(),
                include_synonyms: options.include_synonyms,
                include_documentation: options.include_documentation,
            })
        })
    };
    Ask::new(ApiKey::DescribeConfigs, items, build, |answer, asked| {
        let response = answer.decode::<DescribeConfigsResponse<'_>>()?;
        let rows = response.results.iter().map(|row| {
            let entries = || row.configs.iter().map(ConfigEntry::of).collect();
            let key = resource(row.resource_type, row.resource_name);
            (key, outcome(row.error_code, row.error_message, entries))
        });
        Ok(asked.rows(response.throttle_time_ms, rows))
    })
}

fn alter(
    changes: Vec<(ConfigResource, Vec<AlterConfigOp>)>,
    validate_only: bool,
) -> Ask<ConfigResource, ()> {
    let items = to_change(&changes);
    let build = move |items: &[usize], _| {
        let changes = super::pick(&changes, items);
        let versions = ApiKey::IncrementalAlterConfigs.served();
        body(ApiKey::IncrementalAlterConfigs, versions, move |frame| {
            let resources =
                changes.iter().map(|(resource, changes)| incremental::AlterConfigsResource {
                    resource_type: resource.kind.id(),
                    resource_name: &resource.name,
                    configs: changes.iter().map(AlterConfigOp::message).collect(),
                });
            let resources = resources.collect();
            frame.put(&incremental::IncrementalAlterConfigsRequest { resources, validate_only })
        })
    };
    let ask = Ask::new(ApiKey::IncrementalAlterConfigs, items, build, |answer, asked| {
        let response = answer.decode::<IncrementalAlterConfigsResponse<'_>>()?;
        let rows = response.responses.iter().map(|row| {
            let key = resource(row.resource_type, row.resource_name);
            (key, outcome(row.error_code, row.error_message, || ()))
        });
        Ok(asked.rows(response.throttle_time_ms, rows))
    });
    if validate_only { ask } else { ask.changing() }
}

fn replace(
    configs: Vec<(ConfigResource, Vec<(String, String)>)>,
    validate_only: bool,
) -> Ask<ConfigResource, ()> {
    let items = to_change(&configs);
    let build = move |items: &[usize], _| {
        let configs = super::pick(&configs, items);
        body(ApiKey::AlterConfigs, ApiKey::AlterConfigs.served(), move |frame| {
            let config = |(name, value)| whole::AlterableConfig { name, value: Some(value) };
            let resources = configs.iter().map(|(resource, configs)| {
                let configs = configs.iter().map(|(name, value)| config((name, value)));
                whole::AlterConfigsResource {
                    resource_type: resource.kind.id(),
                    resource_name: &resource.name,
                    configs: configs.collect(),
                }
            });
            let resources = resources.collect();
            frame.put(&whole::AlterConfigsRequest { resources, validate_only })
        })
    };
    let ask = Ask::new(ApiKey::AlterConfigs, items, build, |answer, asked| {
        let response = answer.decode::<AlterConfigsResponse<'_>>()?;
        let rows = response.responses.iter().map(|row| {
            let key = resource(row.resource_type, row.resource_name);
            (key, outcome(row.error_code, row.error_message, || ()))
        });
        Ok(asked.rows(response.throttle_time_ms, rows))
    });
    if validate_only { ask } else { ask.changing() }
}

/// The resources, each with who is asked to change it.
fn to_change<T>(changes: &[(ConfigResource, T)]) -> Vec<(ConfigResource, Route)> {
    let resources = changes.iter().map(|(resource, _)| resource);
    resources.map(|resource| (resource.clone(), resource.route(Route::Controller))).collect()
}

fn list(kinds: Vec<i8>) -> Ask<(), Vec<ConfigResource>> {
    let build = move || {
        let resource_types = kinds.clone();
        let versions = RESOURCES_FROM..=*ApiKey::ListConfigResources.served().end();
        body(ApiKey::ListConfigResources, versions, move |frame| {
            frame.put(&ListConfigResourcesRequest { resource_types: resource_types.clone() })
        })
    };
    Ask::one(ApiKey::ListConfigResources, Route::Any, build, |answer, asked| {
        let response = answer.decode::<ListConfigResourcesResponse<'_>>()?;
        let listed = outcome(response.error_code, None, || {
            let rows = response.config_resources.iter();
            rows.map(|row| resource(row.resource_type, row.resource_name)).collect()
        });
        Ok(asked.only(response.throttle_time_ms, listed))
    })
}

fn resource(kind: i8, name: &str) -> ConfigResource {
    ConfigResource::new(ConfigResourceType::of_id(kind), name)
}
