//! Tests of the machine, in virtual time.

use std::time::Duration;

use ottla_protocol::Uuid;

use super::*;
use crate::state::backoff::Backoff;
use crate::state::fetcher::{Leader, StartFound};

/// Partition 0 is led by 1, partition 1 by 2; there is no other.
struct Two;

impl Leaders for Two {
    fn leader(&self, partition: &TopicPartition) -> Option<Leader> {
        let node = partition.partition + 1;
        (node <= 2).then_some(Leader { node, epoch: 5, topic_id: Uuid::ZERO })
    }

    fn has_broker(&self, _: i32) -> bool {
        true
    }
}

fn part(index: i32) -> TopicPartition {
    TopicPartition::new("t", index)
}

struct Bench {
    offsets: Offsets,
    tokens: Tokens,
    now: Instant,
}

impl Bench {
    #[allow(clippy::disallowed_methods, reason = "an origin for virtual time")]
    fn asking(partitions: &[i32], start: Start) -> Self {
        let backoff = Backoff::new((Duration::from_millis(100), Duration::from_secs(1)));
        let mut offsets = Offsets::new(false, Pace::new(backoff, 1));
        let now = Instant::now();
        let wanted = partitions.iter().map(|&index| (part(index), start));
        offsets.push(9, wanted, now + Duration::from_secs(10));
        Self { offsets, tokens: Tokens::default(), now }
    }

    fn ask(&mut self) -> Option<(Token, StartAsk)> {
        self.offsets.poll_request(&Two, &mut self.tokens, self.now)
    }

    fn answer(&mut self, token: Token, index: i32, offset: i64, error: ErrorCode) {
        let row = StartFound { partition: part(index), error, offset, timestamp: 70, epoch: 4 };
        self.offsets.handle_answer(token, Ok(StartAnswer { parts: vec![row] }), self.now);
    }

    fn done(&mut self) -> Option<Result<FoundOffsets, Error>> {
        loop {
            match self.offsets.poll_event()? {
                OffsetsEvent::Done(id, result) => {
                    assert_eq!(id, 9);
                    return Some(result);
                }
                OffsetsEvent::Refresh => {}
            }
        }
    }
}

#[test]
fn each_leader_is_asked_and_the_answers_come_together() {
    let mut bench = Bench::asking(&[0, 1], Start::Time(7));
    let (first, ask) = bench.ask().unwrap();
    assert_eq!((ask.broker, ask.parts.len(), ask.parts[0].2), (1, 1, Start::Time(7)));
    let (second, ask) = bench.ask().unwrap();
    assert_eq!(ask.broker, 2);
    assert!(bench.ask().is_none());
    bench.answer(first, 0, 44, ErrorCode::NONE);
    assert!(bench.done().is_none());
    bench.answer(second, 1, -1, ErrorCode::NONE);
    let found = bench.done().unwrap().unwrap();
    assert_eq!(found[&part(0)], Some(FoundOffset { offset: 44, timestamp: 70, epoch: 4 }));
    assert_eq!(found[&part(1)], None, "no record is that young");
    bench.answer(second, 1, 3, ErrorCode::NONE);
    assert!(bench.done().is_none(), "once");
}

#[test]
fn what_may_pass_is_asked_again_and_what_may_not_ends_it() {
    let mut bench = Bench::asking(&[0], Start::Latest);
    for code in [ErrorCode::NOT_LEADER_OR_FOLLOWER, ErrorCode::LEADER_NOT_AVAILABLE] {
        let (token, _) = bench.ask().unwrap();
        bench.answer(token, 0, -1, code);
        assert!(bench.done().is_none(), "{code}");
        assert!(bench.ask().is_none(), "{code}: not in a loop");
        bench.now = bench.offsets.poll_timeout(bench.now).unwrap();
    }
    let (token, _) = bench.ask().unwrap();
    bench.answer(token, 0, -1, ErrorCode::TOPIC_AUTHORIZATION_FAILED);
    let error = bench.done().unwrap().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Authorization);
    assert_eq!((error.topic(), error.partition()), (Some("t"), Some(0)));
}

#[test]
fn at_its_deadline_a_question_ends_with_what_stood_in_the_way() {
    let mut bench = Bench::asking(&[0, 2], Start::Earliest);
    let (token, _) = bench.ask().unwrap();
    bench.answer(token, 0, 0, ErrorCode::NONE);
    for _ in 0..100 {
        bench.offsets.handle_timeout(bench.now);
        if let Some(result) = bench.done() {
            let error = result.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Timeout);
            assert!(error.to_string().contains("no leader of t-2"), "{error}");
            return;
        }
        assert!(bench.ask().is_none());
        bench.now = bench.offsets.poll_timeout(bench.now).unwrap();
    }
    panic!("it never ends");
}

#[test]
fn an_empty_question_has_its_answer_at_once() {
    assert!(Bench::asking(&[], Start::Latest).done().unwrap().unwrap().is_empty());
}

#[test]
fn a_partition_that_nobody_leads_is_asked_about_and_a_stale_answer_is_nobodys() {
    let mut bench = Bench::asking(&[2], Start::Latest);
    assert!(bench.ask().is_none());
    let events: Vec<_> = std::iter::from_fn(|| bench.offsets.poll_event()).collect();
    assert!(matches!(events[..], [OffsetsEvent::Refresh]), "{events:?}");

    let mut bench = Bench::asking(&[0], Start::Latest);
    let (first, _) = bench.ask().unwrap();
    let gone = Error::new(ErrorKind::Disconnected, "the connection was lost");
    bench.offsets.handle_answer(first, Err(gone), bench.now);
    bench.now += Duration::from_millis(150);
    let (second, _) = bench.ask().unwrap();
    bench.answer(first, 0, 3, ErrorCode::NONE);
    assert!(bench.done().is_none());
    // An answer without a word of it leaves the fault before as the cause.
    bench.offsets.handle_answer(second, Ok(StartAnswer { parts: Vec::new() }), bench.now);
    bench.now += Duration::from_secs(10);
    bench.offsets.handle_timeout(bench.now);
    let error = bench.done().unwrap().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Timeout);
    assert!(std::error::Error::source(&error).is_some());
}
