//! Errors of the coordinator while a group shares out, and what the application sees of them.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use ottla_protocol::{ApiKey, ErrorCode};

use super::script::{Script, part};
use crate::consumer::face::{Face, WholeBatch};
use crate::error::{Error, ErrorKind};

/// The errors of each API that say "ask again", "ask another" or "join again".
const PASSING: &[(ApiKey, &[ErrorCode])] = &[
    (
        ApiKey::FindCoordinator,
        &[ErrorCode::COORDINATOR_NOT_AVAILABLE, ErrorCode::COORDINATOR_LOAD_IN_PROGRESS],
    ),
    (
        ApiKey::JoinGroup,
        &[
            ErrorCode::COORDINATOR_LOAD_IN_PROGRESS,
            ErrorCode::COORDINATOR_NOT_AVAILABLE,
            ErrorCode::NOT_COORDINATOR,
            ErrorCode::UNKNOWN_MEMBER_ID,
            ErrorCode::REBALANCE_IN_PROGRESS,
        ],
    ),
    (
        ApiKey::SyncGroup,
        &[
            ErrorCode::COORDINATOR_NOT_AVAILABLE,
            ErrorCode::NOT_COORDINATOR,
            ErrorCode::ILLEGAL_GENERATION,
            ErrorCode::UNKNOWN_MEMBER_ID,
            ErrorCode::REBALANCE_IN_PROGRESS,
        ],
    ),
    (
        ApiKey::Heartbeat,
        &[
            ErrorCode::COORDINATOR_NOT_AVAILABLE,
            ErrorCode::NOT_COORDINATOR,
            ErrorCode::ILLEGAL_GENERATION,
            ErrorCode::UNKNOWN_MEMBER_ID,
            ErrorCode::REBALANCE_IN_PROGRESS,
        ],
    ),
    (
        ApiKey::OffsetFetch,
        &[
            ErrorCode::COORDINATOR_LOAD_IN_PROGRESS,
            ErrorCode::NOT_COORDINATOR,
            ErrorCode::UNSTABLE_OFFSET_COMMIT,
        ],
    ),
    (
        ApiKey::OffsetCommit,
        &[
            ErrorCode::COORDINATOR_LOAD_IN_PROGRESS,
            ErrorCode::NOT_COORDINATOR,
            ErrorCode::REBALANCE_IN_PROGRESS,
        ],
    ),
];

/// What a poll gives whose time is over at once.
fn poll(script: &mut Script, about: &str) -> Vec<i64> {
    let taken = script.face.take(&WholeBatch { records_max: 5 }, Duration::ZERO, |_| ());
    let batch = taken.unwrap_or_else(|error| panic!("{about} ended a poll: {error:?}"));
    script.run();
    batch.iter().flat_map(|batch| batch.records().map(|record| record.offset)).collect()
}

/// tulios/kafkajs#558, #1527: an error while the group shared out ended the loop that reads.
#[test]
fn errors_while_the_group_shares_out_never_end_a_poll() {
    for (api, code) in
        PASSING.iter().flat_map(|(api, codes)| codes.iter().map(|code| (*api, *code)))
    {
        let about = format!("{code:?} to {api}");
        let mut script = Script::reading(&[]);
        script.append(0, 20);
        script.release_held();
        script.run();
        assert_eq!(poll(&mut script, &about), [0, 1, 2, 3, 4]);
        script.refuse.extend([(api, code); 3]);
        if api == ApiKey::FindCoordinator {
            // It is looked for once the one that was known says that it is not.
            script.refuse.push_back((ApiKey::Heartbeat, ErrorCode::NOT_COORDINATOR));
        }
        (script.share, script.rebalance) = (vec![0, 1], true);
        let mut got = BTreeSet::new();
        for _ in 0..60 {
            script.pass(Duration::from_secs(1));
            got.extend(poll(&mut script, &about));
        }
        assert!(script.refuse.is_empty(), "{about} was not given: {:?}", script.refuse);
        // After UNKNOWN_MEMBER_ID records may come again, but each comes.
        assert!((5..20).all(|offset| got.contains(&offset)), "after {about} only {got:?} came");
        assert_eq!(script.committed[&0], 20, "after {about}");
    }
}

/// A cluster that cannot make the topic of the offsets has no coordinator for ever.
#[test]
fn a_coordinator_that_is_not_found_for_long_is_told() {
    let lost = (ApiKey::FindCoordinator, ErrorCode::COORDINATOR_NOT_AVAILABLE);
    let begin: [fn(&mut Script); 2] = [Script::subscribe, |script| script.assign(&[0])];
    for begin in begin {
        let mut script = Script::new(&[]);
        script.append(0, 5);
        script.refuse.extend([lost; 1000]);
        begin(&mut script);
        script.pass(Duration::from_secs(9));
        assert_eq!(poll(&mut script, "a moment"), Vec::<i64>::new());
        script.pass(Duration::from_secs(2));
        for _ in 0..2 {
            let told = script.face.take(&WholeBatch { records_max: 5 }, Duration::ZERO, |_| ());
            let error = told.map(|_| ()).expect_err("nothing is read, and it is known why");
            assert_eq!(error.kind(), ErrorKind::CoordinatorUnavailable);
            assert!(error.to_string().contains("coordinator of group g"), "{error}");
        }
        script.refuse.clear();
        script.pass(Duration::from_secs(3));
        assert_eq!(poll(&mut script, "nothing any more"), [0, 1, 2, 3, 4]);
        assert_eq!(poll(&mut script, "nothing any more"), Vec::<i64>::new());
    }
}

#[test]
fn a_share_that_cannot_be_read_is_told_and_asked_for_again() {
    let mut script = Script::new(&[]);
    script.append(0, 5);
    script.garbled = true;
    script.subscribe();
    script.pass(Duration::from_secs(20));
    let joins = script.seen.iter().filter(|seen| *seen == "join").count();
    assert!((10..100).contains(&joins), "{joins} joins in 20 seconds");
    script.garbled = false;
    script.pass(Duration::from_secs(5));
    for _ in 0..10 {
        let told = script.face.take(&WholeBatch { records_max: 5 }, Duration::ZERO, |_| ());
        let error = told.map(|_| ()).expect_err("the application is told");
        assert_eq!(error.kind(), ErrorKind::Protocol);
    }
    while script.face.take(&WholeBatch { records_max: 0 }, Duration::ZERO, |_| ()).is_err() {}
    assert_eq!(poll(&mut script, "nothing any more"), [0, 1, 2, 3, 4]);
}

#[test]
fn a_partition_of_whose_offset_no_word_came_is_asked_about_again() {
    let mut script = Script::new(&[]);
    script.append(0, 10);
    script.committed.insert(0, 4);
    script.untold = 2;
    script.subscribe();
    assert_eq!(script.offsets(1000), Vec::<i64>::new());
    script.pass(Duration::from_secs(3));
    assert_eq!(script.offsets(1000), (4..10).collect::<Vec<_>>(), "not by auto.offset.reset");
}

#[test]
fn of_errors_that_nobody_fetches_the_newest_are_kept() {
    let script = Script::new(&[]);
    for number in 0..40 {
        let text = number.to_string();
        script.face.push_error(Error::new(ErrorKind::InvalidState, text));
    }
    let want = WholeBatch { records_max: 9 };
    let told = std::iter::from_fn(|| script.face.look(&want, None).err());
    let told: Vec<String> = told.map(|error| error.to_string()).collect();
    assert_eq!(told.len(), 16);
    assert!(told[0].contains("24") && told[15].contains("39"), "{told:?}");
}

#[test]
fn a_partition_whose_fault_comes_again_and_again_is_told_once() {
    let face = Face::new(Arc::default(), 1 << 20);
    assert!(face.add(part(0), 1, 2));
    for number in 0..40 {
        face.fault(&part(0), 2, Error::new(ErrorKind::Authorization, number.to_string()));
    }
    let want = WholeBatch { records_max: 9 };
    let told: Vec<String> = (0..40)
        .filter_map(|_| face.look(&want, None).err())
        .map(|error| error.to_string())
        .collect();
    assert!(told.len() == 1 && told[0].contains("39"), "{told:?}");
}
