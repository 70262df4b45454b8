//! ApiVersions: what this broker answers, and in which versions.

use std::sync::Arc;

use ottla_protocol::messages::api_versions_response::{
    ApiVersion, FinalizedFeatureKey, SupportedFeatureKey,
};
use ottla_protocol::messages::{ApiVersionsRequest, ApiVersionsResponse};
use ottla_protocol::{ApiKey, ErrorCode};

use crate::node::Node;
use crate::server::dispatch::{RequestInfo, SERVED};
use crate::server::outbox::Reply;
use crate::state::metadata::Image;
use crate::state::metadata_records::KRAFT_VERSION;

/// From this version on the client names its software.
const NAMED_FROM: i16 = 3;

/// From this version on a feature may begin with level 0.
const ZERO_LEVELS_FROM: i16 = 4;

/// From this version on the client may say whom it expects (KIP-1242).
const CHECKED_FROM: i16 = 5;

/// Answers with the table, unless the client asks for another broker or names itself badly.
pub(crate) fn handle(
    node: &Arc<Node>,
    info: RequestInfo<'_>,
    request: ApiVersionsRequest<'_>,
    reply: Reply,
) {
    let named = [request.client_software_name, request.client_software_version];
    let error_code = if info.version >= NAMED_FROM && !named.into_iter().all(is_software_name) {
        ErrorCode::INVALID_REQUEST
    } else if info.version >= CHECKED_FROM {
        check_identity(node, &request)
    } else {
        ErrorCode::NONE
    };
    let mut response = ApiVersionsResponse { error_code, ..ApiVersionsResponse::default() };
    let image = node.controller.image();
    if error_code == ErrorCode::NONE {
        response.api_keys = table();
        response.supported_features = supported(node, &image, info.version);
        response.finalized_features_epoch = node.controller.broker_epoch();
        response.finalized_features = finalized(&image);
    }
    reply.answer(&response);
}

/// The levels of features that this broker knows.
fn supported<'a>(node: &Node, image: &'a Image, version: i16) -> Vec<SupportedFeatureKey<'a>> {
    let broker = image.broker(node.node_id);
    let features = broker.map(|broker| broker.features.as_slice()).unwrap_or_default();
    // KAFKA-17011: clients of before version 4 take a level of 0 for a broken answer.
    let features = features.iter().filter(|one| version >= ZERO_LEVELS_FROM || one.min > 0);
    let features = features.map(|one| SupportedFeatureKey {
        name: &one.name,
        min_version: one.min,
        max_version: one.max,
    });
    features.collect()
}

/// The levels that are in use; from them a client knows what it may do.
fn finalized(image: &Image) -> Vec<FinalizedFeatureKey<'_>> {
    let on = image.features().map(|(name, level)| (&**name, level));
    // The form of the quorum is in its control records.
    let on = on.chain([("kraft.version", KRAFT_VERSION)]);
    let on = on.map(|(name, level)| FinalizedFeatureKey {
        name,
        max_version_level: level,
        min_version_level: level,
    });
    on.collect()
}

/// Answers a version that we do not have, so that the client can choose one that we have.
pub(crate) fn unsupported(reply: Reply) {
    // As Kafka: only this API's own row, which is all that the client needs to ask again.
    let api_keys = table().into_iter().filter(|row| row.api_key == ApiKey::ApiVersions.into());
    let api_keys = api_keys.collect();
    let error_code = ErrorCode::UNSUPPORTED_VERSION;
    reply.answer(&ApiVersionsResponse { error_code, api_keys, ..ApiVersionsResponse::default() });
}

fn table() -> Vec<ApiVersion> {
    let rows = SERVED.iter().map(|api| {
        let listed = api.listed();
        ApiVersion {
            api_key: i16::from(*api),
            min_version: *listed.start(),
            max_version: *listed.end(),
        }
    });
    rows.collect()
}

/// Letters, digits, `-` and `.`, with a letter or digit at both ends (KIP-511).
fn is_software_name(text: &str) -> bool {
    let bytes = text.as_bytes();
    let inner = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.');
    bytes.iter().all(inner)
        && bytes.first().is_some_and(u8::is_ascii_alphanumeric)
        && bytes.last().is_some_and(u8::is_ascii_alphanumeric)
}

/// Whether the client has come to the broker it meant (KIP-1242).
fn check_identity(node: &Node, request: &ApiVersionsRequest<'_>) -> ErrorCode {
    match (request.cluster_id, request.node_id) {
        (None, -1) => ErrorCode::NONE,
        (Some(cluster), id) if id != -1 => {
            if *cluster == *node.cluster_id && id == node.node_id {
                ErrorCode::NONE
            } else {
                ErrorCode::REBOOTSTRAP_REQUIRED
            }
        }
        _ => ErrorCode::INVALID_REQUEST,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn software_name_begins_and_ends_with_a_letter_or_digit() {
        for good in ["apache-kafka-java", "4.4.0", "a"] {
            assert!(is_software_name(good), "{good}");
        }
        for bad in ["", "-a", "a.", "a b", "ä"] {
            assert!(!is_software_name(bad), "{bad}");
        }
    }

    #[test]
    fn produce_is_listed_from_version_0_and_served_apis_are_in_order() {
        let table = table();
        assert_eq!((table[0].api_key, table[0].min_version), (0, 0), "KAFKA-18659");
        assert!(table.windows(2).all(|pair| pair[0].api_key < pair[1].api_key));
    }
}
