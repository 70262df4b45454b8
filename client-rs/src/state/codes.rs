//! Each error code of each API has one meaning: all of them beside a table that is checked in.
//!
//! A change of a meaning shows as a change of `codes.tsv`; the test prints the table as it is now.

use std::fmt::Debug;

use ottla_protocol::{ApiKey, ErrorCode};

use super::{admin, commits, coordinator, fetcher, lookups, membership, metadata, sender};
use crate::error::{Error, ErrorClass};

const TABLE: &str = include_str!("codes.tsv");

/// Kafka's codes, up to the last of 4.4, and two that nobody knows.
fn codes() -> impl Iterator<Item = ErrorCode> {
    let known = (-1..=136).map(ErrorCode).filter(|code| code.name() != ErrorCode(9_999).name());
    known.chain([ErrorCode(-2), ErrorCode(9_999)])
}

/// The APIs of producers, consumers, and all clients; those below are an admin client's.
const OWN: [ApiKey; 13] = [
    ApiKey::Metadata,
    ApiKey::InitProducerId,
    ApiKey::Produce,
    ApiKey::FindCoordinator,
    ApiKey::JoinGroup,
    ApiKey::SyncGroup,
    ApiKey::Heartbeat,
    ApiKey::LeaveGroup,
    ApiKey::OffsetCommit,
    ApiKey::OffsetFetch,
    ApiKey::ListOffsets,
    ApiKey::OffsetForLeaderEpoch,
    ApiKey::Fetch,
];

/// What the client does about a code in an answer of this API, as one word; of an admin client's
/// calls, whatever the API, without one.
fn meaning(api: Option<ApiKey>, code: ErrorCode) -> String {
    let again = |passes: bool| if passes { "later" } else { "refused" }.to_owned();
    let word = |verdict: &dyn Debug| format!("{verdict:?}").to_lowercase();
    match api {
        Some(ApiKey::Metadata) => again(metadata::passes(code)),
        Some(ApiKey::InitProducerId) => again(sender::identity::passes(code)),
        Some(ApiKey::Produce) => sender::verdict::word(code).to_owned(),
        Some(ApiKey::FindCoordinator) => again(coordinator::passes(code)),
        // Whatever it says, the session ends by itself.
        Some(ApiKey::LeaveGroup) => "left".to_owned(),
        Some(key @ (ApiKey::JoinGroup | ApiKey::SyncGroup | ApiKey::Heartbeat)) => {
            word(&membership::answers::verdict(key, code))
        }
        Some(ApiKey::OffsetCommit) => word(&commits::verdict(code)),
        Some(ApiKey::OffsetFetch) => word(&lookups::verdict(code)),
        Some(ApiKey::ListOffsets) => again(fetcher::starts::passes(code)),
        Some(ApiKey::OffsetForLeaderEpoch | ApiKey::Fetch) => {
            word(&fetcher::answers::verdict(code))
        }
        Some(other) => panic!("{other} is not asked but by admin clients"),
        None => word(&admin::codes::verdict(code)),
    }
}

fn table() -> String {
    let heads = OWN.iter().map(|api| api.name().to_owned());
    let heads: Vec<String> = heads.chain(["an admin client".to_owned()]).collect();
    let mut table = format!("code\tname\tkind\tclass\t{}\n", heads.join("\t"));
    for code in codes().filter(|code| code.is_error()) {
        let kind = Error::from_kafka(code, None).kind();
        let apis = OWN.iter().copied().map(Some).chain([None]);
        let words: Vec<String> = apis.map(|api| meaning(api, code)).collect();
        let (name, class) = (code.name(), kind.class().name());
        let row = format!("{}\t{name}\t{}\t{class}\t{}\n", code.0, kind.name(), words.join("\t"));
        table.push_str(&row);
    }
    table
}

#[test]
fn each_code_of_each_api_has_one_meaning_and_it_is_the_one_that_is_written_down() {
    let table = table();
    println!("{table}");
    for (now, written) in table.lines().zip(TABLE.lines()) {
        assert_eq!(now, written, "a meaning has changed");
    }
    assert_eq!(table.lines().count(), TABLE.lines().count());
}

#[test]
fn a_fault_that_kafka_says_may_pass_ends_no_client() {
    for code in codes().filter(|code| code.is_retriable()) {
        let class = Error::from_kafka(code, None).class();
        assert_ne!(class, ErrorClass::Fatal, "{code}");
        for api in OWN.map(Some).into_iter().chain([None]) {
            let meaning = meaning(api, code);
            assert!(!["fatal", "reject", "refused"].contains(&meaning.as_str()), "{code} {api:?}");
        }
    }
}

#[test]
fn a_code_that_nobody_knows_is_told_and_never_tried_for_ever() {
    for code in [ErrorCode(-2), ErrorCode(9_999)] {
        for api in OWN.map(Some).into_iter().chain([None]) {
            let meaning = meaning(api, code);
            let told = ["fatal", "reject", "refused", "told", "left"];
            assert!(told.contains(&meaning.as_str()), "{code} {api:?}: {meaning}");
        }
    }
}
