//! The features of a cluster, whose levels tell what it and its clients may do.

use std::collections::BTreeMap;

use ottla_protocol::ApiKey;
use ottla_protocol::messages::api_versions_request::ApiVersionsRequest;
use ottla_protocol::messages::api_versions_response::ApiVersionsResponse;

use super::ask::{Ask, outcome};
use super::{Admin, Call};
use crate::driver::{SOFTWARE_NAME, SOFTWARE_VERSION};
use crate::state::admin::Route;
use crate::state::machine::body;

/// The versions of ApiVersions that tell of features (KIP-584) and check nobody's name (KIP-1242).
const VERSIONS: std::ops::RangeInclusive<i16> = 3..=4;

/// The levels of a feature that a cluster has turned on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct FinalizedVersionRange {
    /// The lowest that is in use.
    pub min_version_level: i16,
    /// The highest that is in use.
    pub max_version_level: i16,
}

/// The levels of a feature that a broker knows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct SupportedVersionRange {
    /// The lowest.
    pub min_version: i16,
    /// The highest.
    pub max_version: i16,
}

/// The features of a cluster, by name.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct FeatureMetadata {
    /// Those that are turned on.
    pub finalized_features: BTreeMap<String, FinalizedVersionRange>,
    /// Which state of the cluster that is: a later one has a larger number. `None` if it was not
    /// told.
    pub finalized_features_epoch: Option<i64>,
    /// Those that the broker knows which was asked. Brokers before Kafka 3.9 leave out what begins
    /// at level 0.
    pub supported_features: BTreeMap<String, SupportedVersionRange>,
}

impl Admin {
    /// The features of the cluster, as one of its brokers tells them (KIP-584).
    pub fn describe_features(&self) -> Call<FeatureMetadata> {
        self.single(|()| describe())
    }
}

fn describe() -> Ask<(), FeatureMetadata> {
    let build = || {
        body(ApiKey::ApiVersions, VERSIONS, |frame| {
            frame.put(&ApiVersionsRequest {
                client_software_name: SOFTWARE_NAME,
                client_software_version: SOFTWARE_VERSION,
                ..ApiVersionsRequest::default()
            })
        })
    };
    Ask::one(ApiKey::ApiVersions, Route::Any, build, |answer, asked| {
        let response = answer.decode::<ApiVersionsResponse<'_>>()?;
        let described = outcome(response.error_code, None, || FeatureMetadata::of(&response));
        Ok(asked.only(response.throttle_time_ms, described))
    })
}

impl FeatureMetadata {
    fn of(response: &ApiVersionsResponse<'_>) -> Self {
        let finalized = response.finalized_features.iter().map(|row| {
            let (min_version_level, max_version_level) =
                (row.min_version_level, row.max_version_level);
            (row.name.to_owned(), FinalizedVersionRange { min_version_level, max_version_level })
        });
        let supported = response.supported_features.iter().map(|row| {
            let (min_version, max_version) = (row.min_version, row.max_version);
            (row.name.to_owned(), SupportedVersionRange { min_version, max_version })
        });
        let epoch = response.finalized_features_epoch;
        Self {
            finalized_features: finalized.collect(),
            finalized_features_epoch: Some(epoch).filter(|&epoch| epoch >= 0),
            supported_features: supported.collect(),
        }
    }
}
