//! What two brokers may say differently in every answer: the rules of normalising, all of them.

use super::evaluate::now_ms;
use super::run::{Heard, Peer};
use super::value::{Path, Step, Value};

/// The rules as the command prints them.
pub(super) const RULES: &[&str] = &[
    "ThrottleTimeMs is not compared, nor FinalizedFeaturesEpoch where both have one",
    "texts for people are not compared: ErrorMessage, BatchIndexErrorMessage",
    "the address and the cluster id of the broker that answers are compared by role",
    "what a conversation captures is compared by role where it is a text or a uuid; so are \
     ProducerId and SessionId",
    "other uuids, also within texts, are compared as given or not given",
    "times within a day of now are equal",
    "rows of lists without an order are compared by their keys",
    "a batch cut short at the end of a field of records is left out",
];

/// Texts for people.
const TEXTS: &[&str] = &["ErrorMessage", "BatchIndexErrorMessage"];
/// Numbers that a broker gives out.
const GIVEN: &[&str] = &["ProducerId", "SessionId"];
/// A day in milliseconds.
const DAY: i64 = 24 * 60 * 60 * 1000;
/// Letters of a uuid in text, with its four hyphens.
const UUID_LETTERS: usize = 36;

/// Lists whose order says nothing: the API, the way to the list, the fields of which the
/// first that is set tells rows apart.
const UNORDERED: &[(&str, &str, &str)] = &[
    ("ApiVersions", "ApiKeys", "ApiKey"),
    ("ApiVersions", "SupportedFeatures", "Name"),
    ("ApiVersions", "FinalizedFeatures", "Name"),
    ("Metadata", "Topics", "Name TopicId"),
    ("Metadata", "Topics.Partitions", "PartitionIndex"),
    ("CreateTopics", "Topics", "Name"),
    ("CreateTopics", "Topics.Configs", "Name"),
    ("DeleteTopics", "Responses", "Name TopicId"),
    ("JoinGroup", "Members", "MemberId"),
    ("Produce", "Responses", "Name TopicId"),
    ("Produce", "Responses.PartitionResponses", "Index"),
    ("OffsetFetch", "Topics", "Name"),
    ("OffsetFetch", "Topics.Partitions", "PartitionIndex"),
    ("OffsetFetch", "Groups.Topics", "Name TopicId"),
    ("OffsetFetch", "Groups.Topics.Partitions", "PartitionIndex"),
    ("DescribeConfigs", "Results", "ResourceName"),
    ("DescribeConfigs", "Results.Configs", "Name"),
    ("DescribeConfigs", "Results.Configs.Synonyms", "Name"),
    ("DescribeGroups", "Groups.Members", "MemberId"),
    ("ListGroups", "Groups", "GroupId"),
    ("DeleteGroups", "Results", "GroupId"),
    ("CreatePartitions", "Results", "Name"),
    ("DeleteRecords", "Topics", "Name"),
    ("DeleteRecords", "Topics.Partitions", "PartitionIndex"),
    ("IncrementalAlterConfigs", "Responses", "ResourceName"),
    ("AlterConfigs", "Responses", "ResourceName"),
    ("DescribeLogDirs", "Results.Topics", "Name"),
    ("DescribeLogDirs", "Results.Topics.Partitions", "PartitionIndex"),
    ("OffsetForLeaderEpoch", "Topics", "Topic"),
    ("OffsetDelete", "Topics", "Name"),
    ("ListConfigResources", "ConfigResources", "ResourceName"),
];

/// The fields that tell the rows of an unordered list apart.
pub(super) fn row_key(api: &str, path: &Path) -> Option<&'static str> {
    let names: Vec<&str> = path
        .0
        .iter()
        .filter_map(|step| match step {
            Step::Field(name) => Some(name.as_str()),
            Step::Item(_) | Step::Keyed(_) => None,
        })
        .collect();
    let names = names.join(".");
    let found = UNORDERED.iter().find(|(other, list, _)| *other == api && *list == names);
    found.map(|(_, _, keys)| *keys)
}

/// Applies the rules to what was heard from a broker.
pub(super) struct Normal<'a> {
    peer: &'a Peer,
    roles: &'a [(Value, String)],
    now: i64,
}

impl<'a> Normal<'a> {
    pub(super) fn new(peer: &'a Peer, roles: &'a [(Value, String)]) -> Self {
        Self { peer, roles, now: now_ms() }
    }

    pub(super) fn answer(&self, heard: &Heard) -> Value {
        self.value("", &heard.answer)
    }

    fn value(&self, name: &str, value: &Value) -> Value {
        match value {
            Value::Struct(fields) => {
                let fields =
                    fields.iter().map(|(name, value)| (name.clone(), self.field(name, value)));
                Value::Struct(fields.collect())
            }
            Value::List(items) => {
                Value::List(items.iter().map(|item| self.value(name, item)).collect())
            }
            Value::Text(text) => Value::Text(self.text(name, text)),
            Value::Uuid(_) => self.uuid(value),
            Value::Number(number) => self.number(name, *number),
            other => other.clone(),
        }
    }

    fn field(&self, name: &str, value: &Value) -> Value {
        if name == "ThrottleTimeMs" || TEXTS.contains(&name) {
            return Value::text("<not compared>");
        }
        match value {
            Value::Number(0..) if name == "FinalizedFeaturesEpoch" => Value::text("<given>"),
            _ => self.value(name, value),
        }
    }

    fn role(&self, value: &Value) -> Option<String> {
        let found = self.roles.iter().find(|(given, _)| given == value);
        found.map(|(_, role)| role.clone())
    }

    fn uuid(&self, value: &Value) -> Value {
        if *value == Value::Uuid([0; 16]) {
            return value.clone();
        }
        Value::Text(self.role(value).unwrap_or_else(|| "<uuid>".to_owned()))
    }

    fn number(&self, name: &str, number: i64) -> Value {
        if GIVEN.contains(&name) {
            let none = number == -1 || name == "SessionId" && number == 0;
            if none {
                return Value::Number(number);
            }
            let role = self.role(&Value::Number(number));
            return Value::Text(role.unwrap_or_else(|| "<given>".to_owned()));
        }
        if name == "Port" && number == i64::from(self.peer.address.port()) {
            return Value::text("<port>");
        }
        if (number - self.now).abs() < DAY {
            return Value::text("<now>");
        }
        Value::Number(number)
    }

    fn text(&self, name: &str, text: &str) -> String {
        if !text.is_empty() {
            if text == self.peer.cluster {
                return "<cluster>".to_owned();
            }
            if name == "Host" && text == self.peer.address.ip().to_string() {
                return "<host>".to_owned();
            }
            if let Some(role) = self.role(&Value::text(text)) {
                return role;
            }
        }
        without_uuids(text)
    }
}

/// The text with `<uuid>` for each uuid in it, as member ids end with one.
fn without_uuids(text: &str) -> String {
    let is_uuid = |part: &str| {
        part.bytes().enumerate().all(|(at, byte)| match at {
            8 | 13 | 18 | 23 => byte == b'-',
            _ => byte.is_ascii_hexdigit(),
        })
    };
    let mut out = String::new();
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        let part = rest.get(..UUID_LETTERS).filter(|part| is_uuid(part));
        if let Some(part) = part {
            out.push_str("<uuid>");
            rest = &rest[part.len()..];
        } else {
            out.push(first);
            rest = &rest[first.len_utf8()..];
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_broker_gives_is_compared_by_role_and_all_else_by_value() {
        let address = std::net::SocketAddr::from(([127, 0, 0, 1], 9092));
        let peer = Peer { name: "ours", address, cluster: "cluster-1".to_owned() };
        let roles =
            vec![(Value::text("m-1"), "$m".to_owned()), (Value::Number(7), "$p".to_owned())];
        let normal = Normal::new(&peer, &roles);
        let text = |text: &str| normal.value("MemberId", &Value::text(text));
        assert_eq!(text("m-1"), Value::text("$m"));
        assert_eq!(text("m-2"), Value::text("m-2"));
        assert_eq!(text("x-01234567-89ab-4def-8001-0203040506ff"), Value::text("x-<uuid>"));
        assert_eq!(normal.value("ProducerId", &Value::Number(7)), Value::text("$p"));
        assert_eq!(normal.value("ProducerId", &Value::Number(-1)), Value::Number(-1));
        assert_eq!(normal.value("Generation", &Value::Number(7)), Value::Number(7));
        assert_eq!(normal.value("Port", &Value::Number(9092)), Value::text("<port>"));
        assert_eq!(normal.value("Port", &Value::Number(9093)), Value::Number(9093));
        assert_eq!(normal.value("Time", &Value::Number(now_ms())), Value::text("<now>"));
        assert_eq!(normal.value("Time", &Value::Number(1000)), Value::Number(1000));
    }
}
