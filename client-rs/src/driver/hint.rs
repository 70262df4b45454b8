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

#[cfg(test)]
mod tests {
    use super::*;

    fn told(kind: io::ErrorKind, host: &str, advertised: bool) -> Option<String> {
        let to = Address { host: host.to_owned(), port: 9092 };
        for_connect(&io::Error::from(kind), &to, advertised)
    }

    #[test]
    fn what_kept_a_connection_from_coming_about_says_what_to_look_at() {
        for (kind, words) in [
            (io::ErrorKind::ConnectionRefused, "nothing listens at kafka.example:9092"),
            (io::ErrorKind::TimedOut, "does a firewall stand between"),
            (io::ErrorKind::NetworkUnreachable, "no way to kafka.example:9092"),
            (io::ErrorKind::HostUnreachable, "no way to kafka.example:9092"),
        ] {
            let text = told(kind, "kafka.example", false).unwrap();
            assert!(text.contains(words) && !text.contains("advertise"), "{kind:?}: {text}");
            let text = told(kind, "kafka.example", true).unwrap();
            assert!(text.contains(words) && text.contains("advertises"), "{kind:?}: {text}");
        }
        assert_eq!(told(io::ErrorKind::ConnectionReset, "kafka.example", false), None);
    }

    #[test]
    fn an_advertised_address_is_told_with_why_it_may_be_wrong() {
        let reset = io::ErrorKind::ConnectionReset;
        for host in ["localhost", "LOCALHOST.", "127.0.0.1", "127.8.8.8", "::1"] {
            let text = told(reset, host, true).unwrap();
            assert!(text.contains("the machine on which this client runs"), "{host}: {text}");
        }
        for host in ["broker-1", "kafka"] {
            let text = told(reset, host, true).unwrap();
            assert!(text.contains("a name without dots"), "{host}: {text}");
        }
        for host in ["kafka.example", "10.0.0.7", "fd00::7"] {
            let text = told(reset, host, true).unwrap();
            assert!(text.contains("see the broker's `advertised.listeners`"), "{host}: {text}");
        }
    }

    #[test]
    fn a_name_that_has_no_address_is_told_with_where_it_came_from() {
        let to = Address { host: "kafka".to_owned(), port: 9092 };
        assert_eq!(for_name(&to, false), "`kafka` has no address here: is the name right?");
        assert!(for_name(&to, true).contains("The cluster advertises kafka:9092"));
    }
}
