//! Brokers that are not those of the cluster that is known (KIP-1242).

use crate::error::{Error, ErrorKind};

/// Brokers that were found to be of another cluster.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Stray {
    /// One answered as a broker of the cluster that is known, and is of another: it was left.
    Left { broker: String, known: String, found: String },
    /// The addresses of the options lead to another cluster than before.
    Moved { known: String, found: String },
}

/// The error of a connection that leads to another cluster, or to another broker than was meant.
pub(crate) fn other_cluster(broker: &str, known: &str, found: Option<&str>) -> Error {
    let text = match found {
        Some(found) => format!("another cluster answers under {broker}: {found}, and not {known}"),
        None => format!(
            "another cluster than {known}, or another of its brokers, answers under {broker}"
        ),
    };
    Error::new(ErrorKind::Connect, text).with_hint(
        "the address was given to another broker, or two clusters advertise the same: see their \
         `advertised.listeners`; `metadata.cluster.check.enable=false` takes whoever answers",
    )
}
