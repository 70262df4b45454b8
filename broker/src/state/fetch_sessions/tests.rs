//! What sessions remember, refuse and give up.
#![allow(clippy::disallowed_methods, reason = "a test's clock starts somewhere")]

use super::*;

fn part(index: i32) -> PartitionRef {
    PartitionRef { topic: TopicRef::Name(Arc::from("t")), index }
}

const WANT: Want = Want { offset: 0, max_bytes: 1000, leader_epoch: 3 };

fn wants(indexes: &[i32]) -> Vec<(PartitionRef, Want)> {
    indexes.iter().map(|index| (part(*index), WANT)).collect()
}

fn told(high_watermark: i64) -> Told {
    Told { high_watermark, log_start: 0, error: ErrorCode::NONE, has_records: false }
}

fn fetch(id: i32, epoch: i32, wanted: &[i32], forgotten: &[i32]) -> SessionFetch {
    let forgets = forgotten.iter().map(|index| part(*index)).collect();
    SessionFetch { id, epoch, by_id: false, wants: wants(wanted), forgets }
}

/// A session of these partitions, all told to end at 5.
fn create(sessions: &mut FetchSessions, id: i32, indexes: &[i32], now: Instant) -> i32 {
    let begun = sessions.begin(fetch(NO_SESSION, 0, indexes, &[]), now).unwrap();
    assert_eq!(begun.kind, Kind::Full);
    let answered = begun.wants.into_iter().map(|(partition, want)| (partition, want, told(5)));
    sessions.create(id, false, answered.collect(), now)
}

fn read(begun: &Begun) -> Vec<i32> {
    begun.wants.iter().map(|(partition, _)| partition.index).collect()
}

#[test]
fn a_fetch_without_a_session_gets_none() {
    let mut sessions = FetchSessions::new(10);
    let begun = sessions.begin(fetch(0, -1, &[1, 0], &[]), Instant::now()).unwrap();
    assert_eq!((read(&begun), begun.kind), (vec![1, 0], Kind::Sessionless));
    assert_eq!(sessions.len(), 0);
}

#[test]
fn an_incremental_fetch_reads_what_is_remembered_and_answers_what_is_new() {
    let now = Instant::now();
    let mut sessions = FetchSessions::new(10);
    assert_eq!(create(&mut sessions, 7, &[0, 1, 2, 3], now), 7);
    let begun = sessions.begin(fetch(7, 1, &[], &[]), now).unwrap();
    assert_eq!(read(&begun), [0, 1, 2, 3]);
    assert_eq!(begun.wants[0].1, WANT, "with the leader epoch that the client knows");
    assert_eq!(begun.kind, Kind::Incremental { id: 7, epoch: 2 });
    let found = [
        (part(0), told(5)),
        (part(1), told(6)),
        (part(2), Told { log_start: 2, ..told(5) }),
        (part(3), Told { has_records: true, ..told(5) }),
    ];
    assert_eq!(sessions.answer(7, 2, &found), Ok(vec![false, true, true, true]));
    sessions.begin(fetch(7, 2, &[], &[]), now).unwrap();
    let found = [(part(1), told(6)), (part(2), Told { log_start: 2, ..told(5) })];
    assert_eq!(sessions.answer(7, 3, &found), Ok(vec![false, false]), "told before");
}

#[test]
fn an_error_is_told_each_time_and_so_is_its_end() {
    let now = Instant::now();
    let mut sessions = FetchSessions::new(10);
    create(&mut sessions, 7, &[0], now);
    let failed = Told { error: ErrorCode::UNKNOWN_TOPIC_OR_PARTITION, ..told(5) };
    for (epoch, told, sent) in
        [(1, failed, true), (2, failed, true), (3, told(5), true), (4, told(5), false)]
    {
        sessions.begin(fetch(7, epoch, &[], &[]), now).unwrap();
        let answer = sessions.answer(7, epoch + 1, &[(part(0), told)]);
        assert_eq!(answer, Ok(vec![sent]), "epoch {epoch}");
    }
}

#[test]
fn partitions_are_added_changed_and_forgotten() {
    let now = Instant::now();
    let mut sessions = FetchSessions::new(10);
    create(&mut sessions, 7, &[0, 1], now);
    let mut change = fetch(7, 1, &[2, 0], &[1]);
    change.wants[1].1.offset = 44;
    let begun = sessions.begin(change, now).unwrap();
    assert_eq!(read(&begun), [0, 2]);
    assert_eq!(begun.wants[0].1.offset, 44);
    let begun = sessions.begin(fetch(7, 2, &[], &[]), now).unwrap();
    assert_eq!(read(&begun), [0, 2], "what is forgotten stays away");
    let begun = sessions.begin(fetch(7, 3, &[], &[0, 2]), now).unwrap();
    assert_eq!(begun.kind, Kind::Sessionless, "nothing is left");
    let gone = sessions.begin(fetch(7, 4, &[], &[]), now);
    assert_eq!(gone, Err(ErrorCode::FETCH_SESSION_ID_NOT_FOUND));
    assert_eq!(sessions.partitions, 0);
}

#[test]
fn partitions_that_had_records_are_read_last_next_time() {
    let now = Instant::now();
    let mut sessions = FetchSessions::new(10);
    create(&mut sessions, 7, &[0, 1, 2], now);
    sessions.begin(fetch(7, 1, &[], &[]), now).unwrap();
    let busy = Told { has_records: true, ..told(5) };
    sessions.answer(7, 2, &[(part(0), busy), (part(1), told(5)), (part(2), told(5))]).unwrap();
    let begun = sessions.begin(fetch(7, 2, &[], &[]), now).unwrap();
    assert_eq!(read(&begun), [1, 2, 0]);
}

#[test]
fn a_wrong_epoch_or_id_or_form_is_refused_and_costs_the_session_nothing() {
    let now = Instant::now();
    let mut sessions = FetchSessions::new(10);
    create(&mut sessions, 7, &[0], now);
    for (id, epoch, by_id, error) in [
        (8, 1, false, ErrorCode::FETCH_SESSION_ID_NOT_FOUND),
        (0, 1, false, ErrorCode::FETCH_SESSION_ID_NOT_FOUND),
        (7, 2, false, ErrorCode::INVALID_FETCH_SESSION_EPOCH),
        (7, i32::MIN, false, ErrorCode::INVALID_FETCH_SESSION_EPOCH),
        (7, 1, true, ErrorCode::FETCH_SESSION_TOPIC_ID_ERROR),
    ] {
        let wrong = SessionFetch { by_id, ..fetch(id, epoch, &[5], &[0]) };
        assert_eq!(sessions.begin(wrong, now), Err(error));
    }
    let begun = sessions.begin(fetch(7, 1, &[], &[]), now).unwrap();
    assert_eq!(read(&begun), [0]);
    let late = sessions.answer(7, 1, &[(part(0), told(5))]);
    assert_eq!(late, Err(ErrorCode::INVALID_FETCH_SESSION_EPOCH));
}

#[test]
fn a_full_or_final_fetch_ends_the_session_that_it_names() {
    let now = Instant::now();
    for (epoch, kind) in [(0, Kind::Full), (-1, Kind::Sessionless)] {
        let mut sessions = FetchSessions::new(10);
        create(&mut sessions, 7, &[0], now);
        let begun = sessions.begin(fetch(7, epoch, &[1], &[]), now).unwrap();
        assert_eq!((read(&begun), begun.kind), (vec![1], kind));
        assert_eq!((sessions.len(), sessions.partitions), (0, 0));
    }
}

#[test]
fn a_full_house_takes_nobody_until_a_session_is_old() {
    let start = Instant::now();
    let mut sessions = FetchSessions::new(2);
    assert_eq!(create(&mut sessions, 1, &[0, 1], start), 1);
    assert_eq!(create(&mut sessions, 2, &[0], start), 2);
    assert_eq!(create(&mut sessions, 3, &[0, 1, 2], start), NO_SESSION);
    // Both are used all the time.
    let later = start + EVICTION;
    for id in [1, 2] {
        sessions.begin(fetch(id, 1, &[], &[]), later).unwrap();
    }
    assert_eq!(create(&mut sessions, 3, &[0, 1, 2], later), NO_SESSION, "not old yet");
    let old = later + Duration::from_millis(1);
    assert_eq!(create(&mut sessions, 3, &[], old), NO_SESSION, "smaller than all");
    assert_eq!(create(&mut sessions, 3, &[0, 1, 2], old), 3);
    assert!(!sessions.has(2), "the smallest goes");
    // Sessions that nobody uses make room for anybody.
    let idle = old + EVICTION + Duration::from_millis(1);
    sessions.begin(fetch(3, 1, &[], &[]), idle).unwrap();
    assert_eq!(create(&mut sessions, 4, &[], idle), 4);
    assert!(!sessions.has(1));
}

#[test]
fn more_partitions_than_can_be_remembered_get_no_session() {
    let now = Instant::now();
    let mut sessions = FetchSessions { partitions_max: 3, ..FetchSessions::new(10) };
    assert_eq!(create(&mut sessions, 1, &[0, 1, 2, 3], now), NO_SESSION);
    assert_eq!(create(&mut sessions, 1, &[0, 1, 2], now), 1);
    assert_eq!(create(&mut sessions, 2, &[0], now), NO_SESSION);
    let begun = sessions.begin(fetch(1, 1, &[3], &[]), now).unwrap();
    assert_eq!((read(&begun), begun.kind), (vec![0, 1, 2, 3], Kind::Sessionless));
    assert_eq!((sessions.len(), sessions.partitions), (0, 0));
}

#[test]
fn epochs_go_round_past_those_with_a_meaning() {
    assert_eq!(next_epoch(i32::MAX), 1);
    assert_eq!(next_epoch(0), 1);
}
