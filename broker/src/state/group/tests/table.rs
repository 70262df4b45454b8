//! State × request: one row, one answer and the state after it.

use super::*;

/// One request.
#[derive(Debug, Clone, Copy)]
enum Ask {
    Join(Join),
    Sync(Sync),
    Heartbeat(&'static str, i32),
    /// As an instance id.
    StaticHeartbeat(&'static str, &'static str, i32),
    Leave(&'static [(&'static str, Option<&'static str>)]),
    Commit(&'static str, i32),
    StaticCommit(&'static str, &'static str, i32),
}

use Ask::{Commit, Heartbeat, Leave, StaticCommit, StaticHeartbeat};
use PhaseName::{CompletingRebalance, PreparingRebalance};
use Start::{Absent, Completing, Preparing, Stable, Static};

const EMPTY: Start = Start::Empty;
const STABLE: PhaseName = PhaseName::Stable;
const NOBODY: PhaseName = PhaseName::Empty;

const fn join(join: Join) -> Ask {
    Ask::Join(join)
}

const fn ask(sync: Sync) -> Ask {
    Ask::Sync(sync)
}

const fn v4(join: Join) -> Join {
    Join { version: 4, ..join }
}

const fn other_topics(join: Join) -> Join {
    Join { topics: "u", ..join }
}

const fn by(kind: &'static str, join: Join) -> Join {
    Join { kind, ..join }
}

const fn with(protocols: &'static [&'static str], join: Join) -> Join {
    Join { protocols, ..join }
}

const fn session(session_ms: i32) -> Join {
    Join { session_ms, ..NEW }
}

const fn instance(instance: &'static str, join: Join) -> Join {
    Join { instance: Some(instance), ..join }
}

/// The next process with the instance id `i`.
const fn successor(version: i16) -> Join {
    Join { version, fresh: "1", instance: Some("i"), ..NEW }
}

const A: &[(&str, Option<&str>)] = &[("a-0", None)];
const BOTH: &[(&str, Option<&str>)] = &[("a-0", None), ("b-0", None)];
const NO_ONE: &[(&str, Option<&str>)] = &[("x-0", None)];
const GIVEN: &[&str] = &["a-0=p0", "b-0=p1"];

type Row = (Start, Ask, &'static str, PhaseName);

#[rustfmt::skip]
const ROWS: &[Row] = &[
    // Nobody there.
    (Absent, join(NEW), "a-0 leader in 1, told of 1", CompletingRebalance),
    (Absent, join(v4(NEW)), "MEMBER_ID_REQUIRED", NOBODY),
    (Absent, join(again("a", "a-0")), "UNKNOWN_MEMBER_ID", NOBODY),
    (Absent, join(instance("i", v4(NEW))), "i-0 leader in 1, told of 1", CompletingRebalance),
    (Absent, join(with(&[], NEW)), "INCONSISTENT_GROUP_PROTOCOL", NOBODY),
    (Absent, join(by("", NEW)), "INCONSISTENT_GROUP_PROTOCOL", NOBODY),
    (Absent, join(session(5_999)), "INVALID_SESSION_TIMEOUT", NOBODY),
    (Absent, join(session(6_000)), "a-0 leader in 1, told of 1", CompletingRebalance),
    (Absent, join(session(1_800_000)), "a-0 leader in 1, told of 1", CompletingRebalance),
    (Absent, join(session(1_800_001)), "INVALID_SESSION_TIMEOUT", NOBODY),
    (Absent, ask(sync("a-0", 1)), "UNKNOWN_MEMBER_ID", NOBODY),
    (Absent, Heartbeat("a-0", 1), "UNKNOWN_MEMBER_ID", NOBODY),
    (Absent, Leave(A), "UNKNOWN_MEMBER_ID", NOBODY),
    (Absent, Commit("", -1), "NONE", NOBODY),
    (Absent, Commit("a-0", 1), "ILLEGAL_GENERATION", NOBODY),
    // All have left: generation 3.
    (EMPTY, join(NEW), "a-0 leader in 4, told of 1", CompletingRebalance),
    (EMPTY, join(v4(NEW)), "MEMBER_ID_REQUIRED", NOBODY),
    (EMPTY, join(again("a", "a-0")), "UNKNOWN_MEMBER_ID", NOBODY),
    (EMPTY, join(by("connect", NEW)), "a-0 leader in 4, told of 1", CompletingRebalance),
    (EMPTY, ask(sync("a-0", 3)), "UNKNOWN_MEMBER_ID", NOBODY),
    (EMPTY, Heartbeat("a-0", 3), "UNKNOWN_MEMBER_ID", NOBODY),
    (EMPTY, Leave(A), "UNKNOWN_MEMBER_ID", NOBODY),
    (EMPTY, Commit("", -1), "NONE", NOBODY),
    (EMPTY, Commit("a-0", 3), "UNKNOWN_MEMBER_ID", NOBODY),
    // Joins are being collected.
    (Preparing, join(new("d")), "parked", PreparingRebalance),
    (Preparing, join(v4(new("d"))), "MEMBER_ID_REQUIRED", PreparingRebalance),
    (Preparing, join(again("a", "a-0")), "parked", PreparingRebalance),
    (Preparing, join(again("x", "x-0")), "UNKNOWN_MEMBER_ID", PreparingRebalance),
    (Preparing, join(by("connect", new("d"))), "INCONSISTENT_GROUP_PROTOCOL", PreparingRebalance),
    (Preparing, join(with(&["sticky"], new("d"))), "INCONSISTENT_GROUP_PROTOCOL", PreparingRebalance),
    (Preparing, ask(sync("a-0", 2)), "REBALANCE_IN_PROGRESS", PreparingRebalance),
    (Preparing, ask(sync("a-0", 1)), "ILLEGAL_GENERATION", PreparingRebalance),
    (Preparing, ask(sync("x-0", 2)), "UNKNOWN_MEMBER_ID", PreparingRebalance),
    (Preparing, Heartbeat("a-0", 2), "REBALANCE_IN_PROGRESS", PreparingRebalance),
    (Preparing, Heartbeat("a-0", 1), "ILLEGAL_GENERATION", PreparingRebalance),
    (Preparing, Heartbeat("x-0", 2), "UNKNOWN_MEMBER_ID", PreparingRebalance),
    (Preparing, Leave(A), "NONE", PreparingRebalance),
    (Preparing, Leave(BOTH), "NONE NONE", CompletingRebalance),
    (Preparing, Leave(NO_ONE), "UNKNOWN_MEMBER_ID", PreparingRebalance),
    (Preparing, Commit("a-0", 2), "NONE", PreparingRebalance),
    (Preparing, Commit("a-0", 1), "ILLEGAL_GENERATION", PreparingRebalance),
    (Preparing, Commit("", -1), "UNKNOWN_MEMBER_ID", PreparingRebalance),
    // The leader's assignment is awaited.
    (Completing, join(new("c")), "parked", PreparingRebalance),
    (Completing, join(v4(new("c"))), "MEMBER_ID_REQUIRED", CompletingRebalance),
    (Completing, join(again("a", "a-0")), "a-0 leader in 2, told of 2", CompletingRebalance),
    (Completing, join(again("b", "b-0")), "b-0 follower in 2, told of 0", CompletingRebalance),
    (Completing, join(other_topics(again("b", "b-0"))), "parked", PreparingRebalance),
    (Completing, join(again("x", "x-0")), "UNKNOWN_MEMBER_ID", CompletingRebalance),
    (Completing, ask(sync("b-0", 2)), "parked", CompletingRebalance),
    (Completing, ask(Sync { given: GIVEN, ..sync("a-0", 2) }), "assigned p0", STABLE),
    (Completing, ask(sync("a-0", 2)), "assigned ", STABLE),
    (Completing, ask(sync("b-0", 1)), "ILLEGAL_GENERATION", CompletingRebalance),
    (Completing, ask(sync("x-0", 2)), "UNKNOWN_MEMBER_ID", CompletingRebalance),
    (Completing, ask(Sync { protocol: Some("sticky"), ..sync("b-0", 2) }), "INCONSISTENT_GROUP_PROTOCOL", CompletingRebalance),
    (Completing, ask(Sync { kind: Some("connect"), ..sync("b-0", 2) }), "INCONSISTENT_GROUP_PROTOCOL", CompletingRebalance),
    (Completing, ask(Sync { kind: None, protocol: None, ..sync("b-0", 2) }), "parked", CompletingRebalance),
    (Completing, Heartbeat("b-0", 2), "NONE", CompletingRebalance),
    (Completing, Heartbeat("b-0", 1), "ILLEGAL_GENERATION", CompletingRebalance),
    (Completing, Heartbeat("x-0", 2), "UNKNOWN_MEMBER_ID", CompletingRebalance),
    (Completing, Leave(A), "NONE", PreparingRebalance),
    (Completing, Leave(BOTH), "NONE NONE", NOBODY),
    (Completing, Commit("a-0", 2), "REBALANCE_IN_PROGRESS", CompletingRebalance),
    (Completing, Commit("a-0", 1), "ILLEGAL_GENERATION", CompletingRebalance),
    (Completing, Commit("", -1), "UNKNOWN_MEMBER_ID", CompletingRebalance),
    // At work.
    (Stable, join(new("c")), "parked", PreparingRebalance),
    (Stable, join(v4(new("c"))), "MEMBER_ID_REQUIRED", STABLE),
    (Stable, join(again("a", "a-0")), "parked", PreparingRebalance),
    (Stable, join(again("b", "b-0")), "b-0 follower in 2, told of 0", STABLE),
    (Stable, join(other_topics(again("b", "b-0"))), "parked", PreparingRebalance),
    (Stable, join(again("x", "x-0")), "UNKNOWN_MEMBER_ID", STABLE),
    (Stable, join(by("connect", new("c"))), "INCONSISTENT_GROUP_PROTOCOL", STABLE),
    (Stable, join(with(&["sticky"], new("c"))), "INCONSISTENT_GROUP_PROTOCOL", STABLE),
    (Stable, join(with(&["sticky", "range"], new("c"))), "parked", PreparingRebalance),
    (Stable, ask(sync("a-0", 2)), "assigned p0", STABLE),
    (Stable, ask(sync("b-0", 2)), "assigned p1", STABLE),
    (Stable, ask(sync("b-0", 3)), "ILLEGAL_GENERATION", STABLE),
    (Stable, ask(sync("x-0", 2)), "UNKNOWN_MEMBER_ID", STABLE),
    (Stable, ask(Sync { protocol: Some("sticky"), ..sync("b-0", 2) }), "INCONSISTENT_GROUP_PROTOCOL", STABLE),
    (Stable, Heartbeat("a-0", 2), "NONE", STABLE),
    (Stable, Heartbeat("a-0", 1), "ILLEGAL_GENERATION", STABLE),
    (Stable, Heartbeat("x-0", 2), "UNKNOWN_MEMBER_ID", STABLE),
    (Stable, StaticHeartbeat("a-0", "i", 2), "UNKNOWN_MEMBER_ID", STABLE),
    (Stable, Leave(A), "NONE", PreparingRebalance),
    (Stable, Leave(BOTH), "NONE NONE", NOBODY),
    (Stable, Leave(NO_ONE), "UNKNOWN_MEMBER_ID", STABLE),
    (Stable, Leave(&[("", None)]), "UNKNOWN_MEMBER_ID", STABLE),
    (Stable, Leave(&[("x-0", None), ("b-0", None)]), "UNKNOWN_MEMBER_ID NONE", PreparingRebalance),
    (Stable, Commit("a-0", 2), "NONE", STABLE),
    (Stable, Commit("a-0", 1), "ILLEGAL_GENERATION", STABLE),
    (Stable, Commit("a-0", -1), "ILLEGAL_GENERATION", STABLE),
    (Stable, Commit("x-0", 2), "UNKNOWN_MEMBER_ID", STABLE),
    (Stable, Commit("", -1), "UNKNOWN_MEMBER_ID", STABLE),
    (Stable, Commit("", 2), "UNKNOWN_MEMBER_ID", STABLE),
    // A static member leads (KIP-345).
    (Static, join(successor(9)), "i-1 leader in 2, told of 2, skip", STABLE),
    (Static, join(successor(8)), "i-1 follower in 2, told of 0", STABLE),
    (Static, join(with(&["sticky", "range"], successor(9))), "i-1 leader in 2, told of 2, skip", STABLE),
    (Static, join(instance("j", v4(new("c")))), "parked", PreparingRebalance),
    (Static, join(instance("i", again("b", "b-0"))), "FENCED_INSTANCE_ID", STABLE),
    (Static, join(instance("j", again("a", "i-0"))), "UNKNOWN_MEMBER_ID", STABLE),
    (Static, StaticHeartbeat("i-0", "i", 2), "NONE", STABLE),
    (Static, StaticHeartbeat("b-0", "i", 2), "FENCED_INSTANCE_ID", STABLE),
    (Static, StaticHeartbeat("i-0", "j", 2), "UNKNOWN_MEMBER_ID", STABLE),
    (Static, ask(Sync { instance: Some("i"), ..sync("b-0", 2) }), "FENCED_INSTANCE_ID", STABLE),
    (Static, StaticCommit("b-0", "i", 2), "FENCED_INSTANCE_ID", STABLE),
    (Static, StaticCommit("i-0", "i", 2), "NONE", STABLE),
    (Static, Leave(&[("", Some("i"))]), "NONE", PreparingRebalance),
    (Static, Leave(&[("b-0", Some("i"))]), "FENCED_INSTANCE_ID", STABLE),
    (Static, Leave(&[("", Some("j"))]), "UNKNOWN_MEMBER_ID", STABLE),
];

#[test]
fn every_request_is_answered_as_the_table_says() {
    let mut wrong = Vec::new();
    for (row, &(start, ask, expected, after)) in ROWS.iter().enumerate() {
        let mut scene = scene(start);
        let said = match ask {
            Ask::Join(join) => {
                let token = scene.join(join);
                scene.said(token)
            }
            Ask::Sync(sync) => {
                let token = scene.sync(sync);
                scene.said(token)
            }
            Heartbeat(member, generation) => {
                let token = scene.heartbeat(member, None, generation);
                scene.said(token)
            }
            StaticHeartbeat(member, instance, generation) => {
                let token = scene.heartbeat(member, Some(instance), generation);
                scene.said(token)
            }
            Leave(members) => {
                let token = scene.leave(members);
                scene.said(token)
            }
            Commit(member, generation) => scene.commit(member, None, generation).name().to_owned(),
            StaticCommit(member, instance, generation) => {
                scene.commit(member, Some(instance), generation).name().to_owned()
            }
        };
        let phase = scene.phase();
        if said != expected || phase != after {
            wrong.push(format!(
                "row {row}: {start:?} {ask:?}\n  {said:?} {phase:?}, not {expected:?} {after:?}"
            ));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
