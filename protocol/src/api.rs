//! The APIs of Kafka and the versions of each.

use std::fmt;
use std::ops::RangeInclusive;

mod table;

pub use table::ApiKey;

/// What the table says about one API.
struct Row {
    name: &'static str,
    min: i16,
    max: i16,
    listed_min: i16,
    first_flexible: i16,
    on_brokers: bool,
    on_controllers: bool,
}

impl ApiKey {
    /// Kafka's name of the API.
    pub const fn name(self) -> &'static str {
        self.row().name
    }

    /// The versions that are answered.
    pub const fn served(self) -> RangeInclusive<i16> {
        self.row().min..=self.row().max
    }

    /// The versions that ApiVersions lists: those that are answered, and for Produce also 0-2.
    ///
    /// Without these, librdkafka up to early 2025 silently drops compression (KAFKA-18659).
    pub const fn listed(self) -> RangeInclusive<i16> {
        self.row().listed_min..=self.row().max
    }

    /// The first flexible version; `i16::MAX` if none is.
    pub const fn first_flexible(self) -> i16 {
        self.row().first_flexible
    }

    /// Whether `version` writes lengths as varints and ends structs with tagged fields (KIP-482).
    pub const fn is_flexible(self, version: i16) -> bool {
        version >= self.first_flexible()
    }

    /// Whether a broker's listener answers it.
    pub const fn is_on_brokers(self) -> bool {
        self.row().on_brokers
    }

    /// Whether a controller's listener answers it.
    pub const fn is_on_controllers(self) -> bool {
        self.row().on_controllers
    }

    /// The version of the header of a request of `version`: 2 if flexible, else 1.
    pub const fn request_header_version(self, version: i16) -> i16 {
        if self.is_flexible(version) { 2 } else { 1 }
    }

    /// The version of the header of an answer of `version`: 1 if flexible, else 0.
    ///
    /// That of ApiVersions is always 0, since its reader may not know the version (KIP-511).
    pub const fn response_header_version(self, version: i16) -> i16 {
        match self {
            Self::ApiVersions => 0,
            _ if self.is_flexible(version) => 1,
            _ => 0,
        }
    }
}

impl fmt::Display for ApiKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl From<ApiKey> for i16 {
    fn from(key: ApiKey) -> Self {
        key.number()
    }
}

/// A number that is the key of no API.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct UnknownApi(pub i16);

impl fmt::Display for UnknownApi {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "no API has the key {}", self.0)
    }
}

impl std::error::Error for UnknownApi {}

impl TryFrom<i16> for ApiKey {
    type Error = UnknownApi;

    fn try_from(number: i16) -> Result<Self, UnknownApi> {
        Self::from_number(number).ok_or(UnknownApi(number))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn produce_is_listed_from_0_but_answered_from_3() {
        assert_eq!(ApiKey::Produce.listed(), 0..=13);
        assert_eq!(ApiKey::Produce.served(), 3..=13);
        assert_eq!(ApiKey::Fetch.listed(), ApiKey::Fetch.served());
    }

    #[test]
    fn headers_follow_the_first_flexible_version() {
        assert_eq!(ApiKey::Metadata.request_header_version(8), 1);
        assert_eq!(ApiKey::Metadata.request_header_version(9), 2);
        assert_eq!(ApiKey::Metadata.response_header_version(8), 0);
        assert_eq!(ApiKey::Metadata.response_header_version(9), 1);
        assert_eq!(ApiKey::SaslHandshake.request_header_version(1), 1);
        assert_eq!(ApiKey::SaslHandshake.response_header_version(1), 0);
    }

    #[test]
    fn answers_to_api_versions_keep_the_oldest_header() {
        assert_eq!(ApiKey::ApiVersions.request_header_version(3), 2);
        for version in ApiKey::ApiVersions.served() {
            assert_eq!(ApiKey::ApiVersions.response_header_version(version), 0);
        }
    }

    #[test]
    fn numbers_and_keys_convert_both_ways() {
        for &key in ApiKey::ALL {
            assert_eq!(ApiKey::try_from(i16::from(key)), Ok(key));
        }
        // StopReplica is gone since 4.0.
        assert_eq!(ApiKey::try_from(5), Err(UnknownApi(5)));
        assert_eq!(ApiKey::try_from(-1), Err(UnknownApi(-1)));
    }

    #[test]
    fn controller_apis_are_not_on_brokers() {
        assert!(!ApiKey::Vote.is_on_brokers());
        assert!(ApiKey::Vote.is_on_controllers());
        assert!(ApiKey::Produce.is_on_brokers());
    }
}
