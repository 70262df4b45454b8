//! Tests of the machine, in virtual time.

use std::time::Duration;

use super::*;
use crate::error::ErrorKind;
use crate::state::backoff::Backoff;

struct Bench {
    lookups: Lookups,
    tokens: Tokens,
    now: Instant,
}

impl Bench {
    #[allow(clippy::disallowed_methods, reason = "an origin for virtual time")]
    fn new() -> Self {
        let backoff = Backoff::new((Duration::from_millis(100), Duration::from_secs(1)));
        let lookups = Lookups::new(Pace::new(backoff, 1));
        Self { lookups, tokens: Tokens::default(), now: Instant::now() }
    }

    fn ask(&mut self) -> Option<Token> {
        let (token, _) = self.lookups.poll_request(|_| false, &mut self.tokens, self.now)?;
        Some(token)
    }

    fn answer(&mut self, token: Token, error: ErrorCode, rows: &[(i32, i64, ErrorCode)]) {
        let row = |&(index, offset, code): &(i32, i64, ErrorCode)| {
            (part(index), Committed { offset, leader_epoch: 3, metadata: None }, code)
        };
        let partitions = rows.iter().map(row).collect();
        self.lookups.handle_answer(token, Ok(LookupAnswer { error, partitions }), self.now);
    }

    fn done(&mut self) -> Option<(LookupId, LookupResult)> {
        std::iter::from_fn(|| self.lookups.poll_event()).find_map(|event| match event {
            LookupEvent::Done(id, result) => Some((id, result)),
            _ => None,
        })
    }
}

fn part(index: i32) -> TopicPartition {
    TopicPartition::new("t", index)
}

#[test]
fn what_is_committed_is_found_and_what_is_not_is_none() {
    let mut bench = Bench::new();
    bench.lookups.push(1, vec![part(0), part(1)], None, bench.now);
    let token = bench.ask().unwrap();
    assert_eq!(bench.ask(), None);
    bench.answer(token, ErrorCode::NONE, &[(0, 42, ErrorCode::NONE), (1, -1, ErrorCode::NONE)]);
    let (id, result) = bench.done().unwrap();
    let found = result.unwrap();
    assert_eq!(id, 1);
    assert_eq!(found[&part(0)], Some(Committed { offset: 42, leader_epoch: 3, metadata: None }));
    assert_eq!(found[&part(1)], None);
    assert!(!bench.lookups.wants_coordinator());
}

#[test]
fn faults_that_pass_are_tried_again_and_others_end_it() {
    for (top, row) in [
        (ErrorCode::COORDINATOR_LOAD_IN_PROGRESS, ErrorCode::NONE),
        (ErrorCode::NOT_COORDINATOR, ErrorCode::NONE),
        (ErrorCode::NONE, ErrorCode::UNSTABLE_OFFSET_COMMIT),
    ] {
        let mut bench = Bench::new();
        bench.lookups.push(1, vec![part(0)], None, bench.now);
        let token = bench.ask().unwrap();
        bench.answer(token, top, &[(0, -1, row)]);
        let lost = std::iter::from_fn(|| bench.lookups.poll_event())
            .any(|event| matches!(event, LookupEvent::CoordinatorLost));
        assert_eq!(lost, top == ErrorCode::NOT_COORDINATOR);
        assert_eq!(bench.ask(), None);
        bench.now += Duration::from_millis(150);
        let token = bench.ask().expect("tried again");
        bench.answer(token, ErrorCode::GROUP_AUTHORIZATION_FAILED, &[]);
        let (_, result) = bench.done().unwrap();
        assert!(matches!(
            result,
            Err(LookupFault::Code(ErrorCode::GROUP_AUTHORIZATION_FAILED, None))
        ));
    }
}

#[test]
fn a_lookup_ends_at_its_deadline_with_the_last_fault() {
    let mut bench = Bench::new();
    let deadline = bench.now + Duration::from_secs(1);
    bench.lookups.push(1, vec![part(0)], Some(deadline), bench.now);
    assert_eq!(bench.lookups.poll_timeout(bench.now), Some(deadline));
    let token = bench.ask().unwrap();
    let gone = Error::new(ErrorKind::Disconnected, "the connection was lost");
    bench.lookups.handle_answer(token, Err(gone), bench.now);
    bench.now = deadline;
    bench.lookups.handle_timeout(bench.now);
    let (_, result) = bench.done().unwrap();
    assert!(matches!(result, Err(LookupFault::TimedOut(Some(_)))));
}

#[test]
fn an_answer_for_a_cancelled_lookup_changes_nothing() {
    let mut bench = Bench::new();
    bench.lookups.push(1, vec![part(0)], None, bench.now);
    let token = bench.ask().unwrap();
    bench.lookups.cancel(1);
    bench.lookups.push(2, vec![part(0)], None, bench.now);
    bench.answer(token, ErrorCode::NONE, &[(0, 42, ErrorCode::NONE)]);
    assert!(bench.done().is_none());
    assert!(bench.ask().is_some());
}

#[test]
fn the_pauses_of_a_lookup_that_is_refused_again_and_again_grow() {
    let mut bench = Bench::new();
    bench.lookups.push(1, vec![part(0)], None, bench.now);
    for _ in 0..5 {
        let token = bench.ask().unwrap();
        bench.answer(token, ErrorCode::COORDINATOR_LOAD_IN_PROGRESS, &[]);
        bench.now += Duration::from_millis(1_300);
    }
    let token = bench.ask().unwrap();
    bench.answer(token, ErrorCode::COORDINATOR_LOAD_IN_PROGRESS, &[]);
    bench.now += Duration::from_millis(150);
    assert!(bench.ask().is_none());
    assert!(bench.lookups.poll_timeout(bench.now).is_some());
}
