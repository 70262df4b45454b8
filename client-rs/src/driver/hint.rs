//! What a person can do about a connection that does not come about.

use std::io;
use std::net::IpAddr;

use crate::config::Address;

/// For an error while a connection was opened; `advertised` if the cluster named the address.
pub(crate) fn for_connect(error: &io::Error, to: &Address, advertised: bool) -> Option<String> {
    let text = match error.kind() {
        io::ErrorKind::ConnectionRefused => {
            format!("nothing listens at {to}: is the broker running, and is the port right?")
        }
        io::ErrorKind::TimedOut => {
            format!(
                "nothing answers at {to}: is the address right, and does a firewall stand between?"
            )
        }
        io::ErrorKind::NetworkUnreachable | io::ErrorKind::HostUnreachable => {
            format!("there is no way to {to} from this machine")
        }
        _ => return advertised.then(|| advertises(to)),
    };
    Some(if advertised { format!("{text} {}", advertises(to)) } else { text })
}

fn advertises(to: &Address) -> String {
    let text = format!("The cluster advertises {to}; that address must be reachable from here");
    let why = if is_this_machine(&to.host) {
        ", but it means the machine on which this client runs: set the broker's \
         `advertised.listeners`"
    } else if !to.host.contains(['.', ':']) {
        ": a name without dots may be known in the broker's own container or network only; set its \
         `advertised.listeners`"
    } else {
        ": see the broker's `advertised.listeners`"
    };
    format!("{text}{why}.")
}

/// Whether a name leads back to the machine that asks for it.
fn is_this_machine(host: &str) -> bool {
    let host = host.trim_end_matches('.');
    host.eq_ignore_ascii_case("localhost")
        || host.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
}

/// For a broker that speaks an API only in versions before ours, or not at all.
pub(crate) const TOO_OLD: &str = "the broker is older than this client can speak to, or something between them does not pass this API on";
/// For a broker that speaks an API only in versions behind ours.
pub(crate) const TOO_NEW: &str = "the broker is newer than this client: a newer client is needed";

/// For a name that cannot be resolved.
pub(crate) fn for_name(to: &Address, advertised: bool) -> String {
    let text = format!("`{}` has no address here: is the name right?", to.host);
    if advertised { format!("{text} {}", advertises(to)) } else { text }
}

/// For bytes that are no Kafka answer.
pub(crate) fn for_garbage(bytes: &[u8]) -> Option<&'static str> {
    match bytes {
        // A TLS alert, or a handshake record.
        [0x15 | 0x16, 0x03, ..] => {
            Some("the broker speaks TLS on this port, and this client connects without")
        }
        [b'H', b'T', b'T', b'P', ..] => Some("an HTTP server listens on this port"),
        [b'S', b'S', b'H', b'-', ..] => Some("an SSH server listens on this port"),
        _ => None,
    }
}

/// For a connection that the broker closes before it answered anything.
pub(crate) const CLOSED_AT_ONCE: &str = "the broker closed the connection before it said anything: it may want TLS or SASL on this port";
