//! What a broker does with one request, in place of what it would, and the words for it.

use std::time::Duration;

use ottla_protocol::{ApiKey, ErrorCode};

use super::records::pieces;

/// What a broker does with one request of an API.
#[derive(Debug, Clone)]
pub(crate) enum Act {
    /// As ever.
    Pass,
    /// Answers all that is asked with this code.
    Refuse(ErrorCode),
    /// Does as ever, and answers a Produce with this code.
    Deny(ErrorCode),
    /// Names a broker that is nearer (KIP-392).
    Nearer(i32),
    /// Answers as ever, and asks to be left alone for so long (KIP-219).
    Throttle(Duration),
    /// Gives these bytes for the partition's records, whatever was asked.
    Records(i32, Vec<u8>),
    /// Closes the connection; nothing is done.
    Close,
    /// Does as ever, and closes the connection in the middle of the answer.
    Cut,
    /// Does nothing, and never answers.
    Swallow,
    /// Does as ever, and never answers.
    Mute,
    /// Answers another request than the one that came.
    Misdirect,
    /// Tells its own address as one that cannot be.
    Address(String, i32),
    /// Says that no partition has a leader.
    Leaderless,
    /// Does not lead, and says who does since which epoch (KIP-951).
    Hint(i32, i32),
    /// Leaves the topic, or its partitions, out of the answer.
    Omit,
    /// Gives a producer's id with this epoch.
    Epoch(i16),
}

impl Act {
    /// The act of these words.
    pub(crate) fn parse(text: &str) -> Self {
        let (what, how) = text.split_once(' ').unwrap_or((text, ""));
        let pair = || how.split_once(' ').unwrap();
        match what {
            "pass" => Self::Pass,
            "refuse" => Self::Refuse(code(how)),
            "deny" => Self::Deny(code(how)),
            "nearer" => Self::Nearer(how.parse().unwrap()),
            "throttle" => Self::Throttle(Duration::from_millis(how.parse().unwrap())),
            "records" => {
                let bytes = pieces(pair().1, 5).into_iter().flat_map(|(.., bytes)| bytes);
                Self::Records(pair().0.parse().unwrap(), bytes.collect())
            }
            "close" => Self::Close,
            "cut" => Self::Cut,
            "swallow" => Self::Swallow,
            "mute" => Self::Mute,
            "misdirect" => Self::Misdirect,
            "address" => Self::Address(pair().0.into(), pair().1.parse().unwrap()),
            "leaderless" => Self::Leaderless,
            "hint" => Self::Hint(pair().0.parse().unwrap(), pair().1.parse().unwrap()),
            "omit" => Self::Omit,
            "epoch" => Self::Epoch(how.parse().unwrap()),
            other => panic!("no such act: {other}"),
        }
    }
}

/// The API of a name.
pub(crate) fn api(name: &str) -> ApiKey {
    let mut all = (0..200).filter_map(|number| ApiKey::try_from(number).ok());
    all.find(|key| key.to_string() == name).unwrap_or_else(|| panic!("no such API: {name}"))
}

fn code(name: &str) -> ErrorCode {
    let mut all = (-1..200).map(ErrorCode::from);
    all.find(|code| code.name() == name).unwrap_or_else(|| panic!("no such code: {name}"))
}
