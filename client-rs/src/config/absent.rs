//! Names of options that Apache Kafka's own clients have and this client does not, with the reason.

/// What an option's dotted name begins with, and why there is none.
const BEGINNINGS: &[(&str, &str)] = &[
    ("ssl.", NO_SECURITY),
    ("sasl.", NO_SECURITY),
    ("security.", NO_SECURITY),
    ("transaction", NO_TRANSACTIONS),
    (
        "metric",
        "what a client does is told by its log, and in Rust by health(), stats() and events()",
    ),
];

/// The names of others, and why there are none.
const NAMES: &[(&str, &str)] = &[
    ("auto.include.jmx.reporter", NO_CLASSES),
    ("config.providers", NO_CLASSES),
    ("enable.metrics.push", NOT_HERE),
    ("group.remote.assignor", "group.protocol is classic alone so far"),
    ("interceptor.classes", NO_CLASSES),
    ("key.deserializer", NO_SERIALIZERS),
    ("key.serializer", NO_SERIALIZERS),
    ("partitioner.class", "`partitioner` names one of the rules there are"),
    (
        "share.acknowledgement.mode",
        "`acknowledgement.mode` is what there is for groups of consumers",
    ),
    ("value.deserializer", NO_SERIALIZERS),
    ("value.serializer", NO_SERIALIZERS),
];

const NO_SECURITY: &str = "TLS and SASL are not there yet: this client speaks plain text";
const NO_TRANSACTIONS: &str = "transactions are not there yet";
const NO_CLASSES: &str = "it names classes of Java";
const NO_SERIALIZERS: &str =
    "keys and values are bytes here; in Rust a program may bring serializers of its own";
const NOT_HERE: &str = "it can be left out";

/// Why there is no such option, if Kafka's own clients have it. The name is dotted, in lower case.
pub(super) fn why(name: &str) -> Option<&'static str> {
    let begins = BEGINNINGS.iter().find(|(beginning, _)| name.starts_with(beginning));
    let named = || NAMES.iter().find(|(known, _)| *known == name);
    begins.or_else(named).map(|&(_, why)| why)
}

#[cfg(test)]
mod tests {
    use super::why;
    use crate::config::table::OPTIONS;

    #[test]
    fn no_option_that_there_is_counts_as_absent() {
        for row in OPTIONS {
            assert_eq!(why(row.kafka), None, "{}", row.kafka);
        }
        assert!(why("ssl.truststore.location").is_some() && why("key.serializer").is_some());
    }
}
