//! Tests of the machine, in virtual time.

use std::time::Duration;

use super::*;
use crate::error::ErrorKind;
use crate::state::backoff::Backoff;

struct Bench {
    commits: Commits,
    tokens: Tokens,
    now: Instant,
    identity: Identity,
    ids: CommitId,
}

fn part(index: i32) -> TopicPartition {
    TopicPartition::new("t", index)
}

fn mark(lease: u64, offset: i64) -> Mark {
    Mark { lease, jump: 1, offset, leader_epoch: 0, by_hand: false, metadata: None, beyond: 0 }
}

impl Bench {
    /// Partitions 0 and 1 are ours under lease 1.
    #[allow(clippy::disallowed_methods, reason = "an origin for virtual time")]
    fn new() -> Self {
        let backoff = Backoff::new((Duration::from_millis(100), Duration::from_secs(1)));
        let mut commits = Commits::new(Pace::new(backoff, 1));
        commits.handle_leased(&part(0), 1);
        commits.handle_leased(&part(1), 1);
        let identity = Identity { member_id: "m".into(), generation: 1 };
        Self { commits, tokens: Tokens::default(), now: Instant::now(), identity, ids: 0 }
    }

    fn push(&mut self, partition: i32, mark: Mark) -> CommitId {
        self.ids += 1;
        let deadline = self.now + Duration::from_mins(1);
        self.commits.push_heard(self.ids, vec![(part(partition), mark)], deadline);
        self.ids
    }

    /// The next request: its token, and offsets by partition.
    fn ask(&mut self) -> Option<(Token, Vec<(i32, i64)>)> {
        let (token, ask) =
            self.commits.poll_request(Some(&self.identity), &mut self.tokens, self.now)?;
        let marks = ask.marks.iter().map(|(part, mark)| (part.partition, mark.offset)).collect();
        Some((token, marks))
    }

    fn answer(&mut self, token: Token, codes: &[(i32, ErrorCode)]) {
        let partitions = codes.iter().map(|&(index, code)| (part(index), code)).collect();
        self.commits.handle_answer(token, Ok(CommitAnswer { partitions }), self.now);
    }

    fn events(&mut self) -> Vec<String> {
        let events = std::iter::from_fn(|| self.commits.poll_event());
        let events = events.filter(|event| {
            !matches!(event, CommitEvent::CoordinatorAlive | CommitEvent::Settled(_))
        });
        events
            .map(|event| match event {
                CommitEvent::Done(id, Ok(())) => format!("{id} done"),
                CommitEvent::Done(id, Err(CommitFault::Lost(parts))) => {
                    format!("{id} lost {parts:?}", parts = parts.len())
                }
                CommitEvent::Done(id, Err(CommitFault::Code(code, part))) => {
                    format!("{id} {} {part}", code.name())
                }
                CommitEvent::Done(id, Err(CommitFault::TimedOut(cause))) => {
                    format!("{id} timed out {}", cause.is_some())
                }
                CommitEvent::Unheard(code, part) => format!("unheard {} {part}", code.name()),
                CommitEvent::Fenced(code, generation) => format!("{} at {generation}", code.name()),
                CommitEvent::Rebalance(generation) => format!("rebalance at {generation}"),
                other => format!("{other:?}"),
            })
            .collect()
    }

    fn pass(&mut self, time: Duration) {
        self.now += time;
        self.commits.handle_timeout(self.now);
    }
}

#[test]
fn one_request_is_in_flight_and_the_newest_waits_for_all() {
    let mut bench = Bench::new();
    let first = bench.push(0, mark(1, 5));
    let (token, sent) = bench.ask().unwrap();
    assert_eq!(sent, [(0, 5)]);
    let ids = [6, 7, 9, 8].map(|offset| bench.push(0, mark(1, offset)));
    bench.commits.push([(part(1), mark(1, 3))]);
    assert_eq!(bench.ask(), None);
    bench.answer(token, &[(0, ErrorCode::NONE)]);
    assert_eq!(bench.events(), [format!("{first} done")]);
    let (token, sent) = bench.ask().unwrap();
    assert_eq!(sent, [(0, 9), (1, 3)], "one request for all that waited, none going back");
    bench.answer(token, &[(0, ErrorCode::NONE), (1, ErrorCode::NONE)]);
    assert_eq!(bench.events(), ids.map(|id| format!("{id} done")));
    assert!(bench.commits.is_idle());
}

#[test]
fn what_is_committed_already_is_not_sent_again() {
    let mut bench = Bench::new();
    bench.push(0, mark(1, 9));
    let (token, _) = bench.ask().unwrap();
    let covered = bench.push(0, mark(1, 4));
    assert_eq!(bench.events(), Vec::<String>::new(), "it waits for the one on its way");
    bench.answer(token, &[(0, ErrorCode::NONE)]);
    assert_eq!(bench.events(), ["1 done".to_owned(), format!("{covered} done")]);
    let old = bench.push(0, mark(1, 9));
    assert_eq!((bench.events(), bench.ask()), (vec![format!("{old} done")], None));
}

#[test]
fn an_offset_named_by_hand_or_behind_a_seek_may_go_back() {
    let mut bench = Bench::new();
    bench.push(0, mark(1, 9));
    let (token, _) = bench.ask().unwrap();
    bench.answer(token, &[(0, ErrorCode::NONE)]);
    bench.push(0, Mark { by_hand: true, ..mark(1, 2) });
    let (token, sent) = bench.ask().unwrap();
    assert_eq!(sent, [(0, 2)]);
    bench.answer(token, &[(0, ErrorCode::NONE)]);
    bench.push(0, Mark { jump: 2, ..mark(1, 1) });
    let (token, sent) = bench.ask().unwrap();
    assert_eq!(sent, [(0, 1)]);
    bench.answer(token, &[(0, ErrorCode::NONE)]);
    bench.push(0, mark(1, 100));
    assert_eq!(bench.ask(), None, "work from before the seek does not undo it");
}

#[test]
fn faults_that_pass_are_tried_again_with_pauses() {
    for (code, told) in [
        (ErrorCode::COORDINATOR_LOAD_IN_PROGRESS, Vec::new()),
        (ErrorCode::REQUEST_TIMED_OUT, Vec::new()),
        (ErrorCode::UNKNOWN_TOPIC_OR_PARTITION, vec!["Refresh"]),
        (ErrorCode::NOT_COORDINATOR, vec!["CoordinatorLost"]),
        (ErrorCode::COORDINATOR_NOT_AVAILABLE, vec!["CoordinatorLost"]),
        (ErrorCode::REBALANCE_IN_PROGRESS, vec!["rebalance at 1"]),
        (ErrorCode::UNKNOWN_MEMBER_ID, vec!["UNKNOWN_MEMBER_ID at 1"]),
        (ErrorCode::ILLEGAL_GENERATION, vec!["ILLEGAL_GENERATION at 1"]),
    ] {
        let mut bench = Bench::new();
        let id = bench.push(0, mark(1, 5));
        let (token, _) = bench.ask().unwrap();
        bench.answer(token, &[(0, code)]);
        assert_eq!(bench.events(), told, "{code}");
        assert_eq!(bench.ask(), None, "{code}: not in a loop");
        assert!(bench.commits.poll_timeout(bench.now).is_some());
        bench.identity.generation = 2;
        bench.pass(Duration::from_millis(150));
        let (token, sent) = bench.ask().unwrap_or_else(|| panic!("{code}: tried again"));
        assert_eq!(sent, [(0, 5)]);
        bench.answer(token, &[(0, ErrorCode::NONE)]);
        assert_eq!(bench.events(), [format!("{id} done")]);
    }
}

#[test]
fn a_lost_connection_or_a_partition_left_out_is_tried_again() {
    let mut bench = Bench::new();
    bench.push(0, mark(1, 5));
    let (token, _) = bench.ask().unwrap();
    let gone = Error::new(ErrorKind::Disconnected, "the connection was lost");
    bench.commits.handle_answer(token, Err(gone), bench.now);
    assert_eq!(bench.events(), ["CoordinatorLost"]);
    bench.pass(Duration::from_millis(150));
    let (token, _) = bench.ask().unwrap();
    bench.answer(token, &[]);
    assert_eq!(bench.ask(), None, "not in a loop");
    bench.pass(Duration::from_millis(300));
    let (token, _) = bench.ask().unwrap();
    bench.answer(token, &[(0, ErrorCode::NONE)]);
    assert_eq!(bench.events(), ["1 done"]);
}

#[test]
fn a_refusal_is_told_to_who_asked_or_to_the_log() {
    let mut bench = Bench::new();
    let id = bench.push(0, mark(1, 5));
    bench.commits.push([(part(1), mark(1, 6))]);
    let (token, _) = bench.ask().unwrap();
    let code = ErrorCode::GROUP_AUTHORIZATION_FAILED;
    bench.answer(token, &[(0, code), (1, code)]);
    assert_eq!(
        bench.events(),
        [format!("{id} {} t-0", code.name()), format!("unheard {} t-1", code.name())]
    );
    assert!(bench.commits.is_idle());
}

#[test]
fn partitions_of_another_member_are_never_committed() {
    let mut bench = Bench::new();
    let waiting = bench.push(0, mark(1, 150));
    bench.commits.handle_lost(&part(0));
    assert_eq!(bench.events(), [format!("{waiting} lost 1")]);
    let late = bench.push(0, mark(1, 160));
    assert_eq!(bench.events(), [format!("{late} lost 1")]);
    // It comes back: the other member is at 200, and what waited from before stays dead.
    bench.commits.handle_leased(&part(0), 7);
    let stale = bench.push(0, mark(1, 170));
    assert_eq!((bench.events(), bench.ask()), (vec![format!("{stale} lost 1")], None));
    bench.push(0, mark(7, 201));
    assert_eq!(bench.ask().unwrap().1, [(0, 201)]);
}

#[test]
fn a_commit_on_its_way_when_the_partition_goes_is_not_repeated() {
    let mut bench = Bench::new();
    let id = bench.push(0, mark(1, 5));
    let (token, _) = bench.ask().unwrap();
    bench.commits.handle_lost(&part(0));
    bench.answer(token, &[(0, ErrorCode::REBALANCE_IN_PROGRESS)]);
    assert_eq!(bench.events(), [format!("{id} lost 1"), "rebalance at 1".to_owned()]);
    bench.pass(Duration::from_secs(5));
    assert_eq!(bench.ask(), None);
}

#[test]
fn a_commit_of_several_partitions_ends_once() {
    let mut bench = Bench::new();
    let deadline = bench.now + Duration::from_mins(1);
    bench.commits.push_heard(9, vec![(part(0), mark(1, 5)), (part(1), mark(1, 6))], deadline);
    let (token, _) = bench.ask().unwrap();
    bench.answer(token, &[(0, ErrorCode::NONE), (1, ErrorCode::COORDINATOR_LOAD_IN_PROGRESS)]);
    assert_eq!(bench.events(), Vec::<String>::new());
    bench.commits.handle_lost(&part(1));
    assert_eq!(bench.events(), ["9 lost 1"]);
    bench.commits.push_heard(10, Vec::new(), deadline);
    assert_eq!(bench.events(), ["10 done"]);
}

#[test]
fn a_partition_that_is_named_twice_is_waited_for_once_and_its_last_offset_counts() {
    let mut bench = Bench::new();
    let by_hand = |offset| Mark { by_hand: true, ..mark(1, offset) };
    let marks = vec![(part(0), by_hand(5)), (part(1), by_hand(6)), (part(0), by_hand(3))];
    bench.commits.push_heard(9, marks, bench.now + Duration::from_mins(1));
    let (token, sent) = bench.ask().unwrap();
    assert_eq!(sent, [(0, 3), (1, 6)]);
    bench.answer(token, &[(0, ErrorCode::NONE), (1, ErrorCode::NONE)]);
    assert_eq!(bench.events(), ["9 done"]);
}

#[test]
fn a_wait_ends_at_its_deadline_and_names_the_last_fault() {
    let mut bench = Bench::new();
    let id = bench.push(0, mark(1, 5));
    let (token, _) = bench.ask().unwrap();
    bench.answer(token, &[(0, ErrorCode::COORDINATOR_LOAD_IN_PROGRESS)]);
    assert!(bench.commits.poll_timeout(bench.now).unwrap() < bench.now + Duration::from_secs(1));
    bench.pass(Duration::from_mins(1));
    assert_eq!(bench.events(), [format!("{id} timed out true")]);
    let (token, sent) = bench.ask().expect("what it asked for is still done");
    assert_eq!(sent, [(0, 5)]);
    bench.answer(token, &[(0, ErrorCode::NONE)]);
    assert_eq!(bench.events(), Vec::<String>::new());
}

#[test]
fn nothing_is_sent_while_the_group_is_on_the_move() {
    let mut bench = Bench::new();
    bench.push(0, mark(1, 5));
    let (now, tokens) = (bench.now, &mut bench.tokens);
    assert_eq!(bench.commits.poll_request(None, tokens, now), None);
    assert_eq!(bench.commits.poll_timeout(now), Some(now + Duration::from_mins(1)));
    assert!(bench.ask().is_some());
}

#[test]
fn a_stale_answer_changes_nothing() {
    let mut bench = Bench::new();
    bench.push(0, mark(1, 5));
    let (token, _) = bench.ask().unwrap();
    bench.answer(token, &[(0, ErrorCode::NONE)]);
    bench.events();
    bench.push(0, mark(1, 6));
    bench.ask().unwrap();
    bench.answer(token, &[(0, ErrorCode::UNKNOWN_MEMBER_ID)]);
    assert_eq!(bench.events(), Vec::<String>::new());
    assert!(!bench.commits.is_idle());
}

/// The program went back by hand; what it finished is ahead of that, and was committed before.
#[test]
fn what_was_committed_before_is_committed_again_behind_one_on_its_way_that_takes_it_back() {
    let mut bench = Bench::new();
    bench.push(0, mark(1, 9));
    let (token, _) = bench.ask().unwrap();
    bench.answer(token, &[(0, ErrorCode::NONE)]);
    bench.push(0, Mark { by_hand: true, ..mark(1, 5) });
    let (token, sent) = bench.ask().unwrap();
    assert_eq!(sent, [(0, 5)]);
    let again = bench.push(0, mark(1, 9));
    assert_eq!(bench.events(), ["1 done".to_owned()], "it waits for its turn");
    bench.answer(token, &[(0, ErrorCode::NONE)]);
    let (token, sent) = bench.ask().unwrap();
    assert_eq!(sent, [(0, 9)]);
    bench.answer(token, &[(0, ErrorCode::NONE)]);
    assert_eq!(bench.events(), ["2 done".to_owned(), format!("{again} done")]);
}

#[test]
fn what_became_of_a_commit_is_settled_once_nothing_waits_behind_it() {
    let mut bench = Bench::new();
    let settled = |bench: &mut Bench| {
        let events = std::iter::from_fn(|| bench.commits.poll_event());
        let settled = events.filter_map(|event| match event {
            CommitEvent::Settled(settled) => Some(settled),
            _ => None,
        });
        let of = |one: Settled| {
            let taken = one.taken.iter().map(|(at, mark)| (at.partition, mark.offset)).collect();
            (taken, one.refused.iter().map(|at| at.partition).collect())
        };
        settled.map(of).collect::<Vec<(Vec<_>, Vec<_>)>>()
    };
    bench.push(0, mark(1, 5));
    bench.push(1, mark(1, 5));
    let (token, _) = bench.ask().unwrap();
    bench.push(1, mark(1, 7));
    bench.answer(token, &[(0, ErrorCode::NONE), (1, ErrorCode::NONE)]);
    assert_eq!(settled(&mut bench), [(vec![(0, 5)], vec![])]);
    let (token, _) = bench.ask().unwrap();
    bench.answer(token, &[(1, ErrorCode::OFFSET_METADATA_TOO_LARGE)]);
    assert_eq!(settled(&mut bench), [(vec![], vec![1])]);
    bench.push(0, mark(1, 4));
    assert_eq!(settled(&mut bench), [(vec![(0, 4)], vec![])], "it was committed already");
}

#[test]
fn what_the_program_left_is_committed_after_a_fault_unless_another_has_the_partition() {
    let later = [(0, ErrorCode::COORDINATOR_LOAD_IN_PROGRESS)];
    let end = |bench: &mut Bench| {
        bench.pass(Duration::from_secs(2));
        bench.ask()
    };
    let mut bench = Bench::new();
    bench.push(0, mark(1, 5));
    let (token, _) = bench.ask().unwrap();
    bench.commits.handle_left(&part(0));
    bench.answer(token, &later);
    assert!(bench.commits.is_left_open(&part(0)));
    let (token, sent) = end(&mut bench).expect("nobody else has it");
    assert_eq!(sent, [(0, 5)]);
    bench.commits.drop_left(&Which::All);
    bench.answer(token, &later);
    assert_eq!((bench.events(), end(&mut bench)), (vec!["1 lost 1".to_owned()], None));

    bench.commits.handle_leased(&part(0), 2);
    let id = bench.push(0, mark(2, 7));
    let (token, _) = bench.ask().unwrap();
    bench.commits.handle_left(&part(0));
    bench.commits.handle_lost(&part(0));
    bench.answer(token, &later);
    assert_eq!((bench.events(), end(&mut bench)), (vec![format!("{id} lost 1")], None));
}

#[test]
fn what_is_pushed_behind_an_offset_of_the_programs_own_waits_with_it() {
    let mut bench = Bench::new();
    bench.push(0, mark(1, 9));
    let (token, _) = bench.ask().unwrap();
    bench.push(0, Mark { by_hand: true, ..mark(1, 5) });
    bench.push(0, mark(1, 7));
    bench.answer(token, &[(0, ErrorCode::NONE)]);
    assert_eq!(bench.events(), ["1 done"]);
    let (token, sent) = bench.ask().unwrap();
    assert_eq!(sent, [(0, 7)], "what is on its way does not stand for it");
    bench.answer(token, &[(0, ErrorCode::NONE)]);
    assert_eq!(bench.events(), ["2 done", "3 done"]);
}

#[test]
fn the_pauses_begin_anew_after_a_commit_that_was_taken() {
    let mut bench = Bench::new();
    bench.push(0, mark(1, 5));
    for _ in 0..5 {
        let (token, _) = bench.ask().unwrap();
        bench.answer(token, &[(0, ErrorCode::COORDINATOR_LOAD_IN_PROGRESS)]);
        bench.pass(Duration::from_millis(1_300));
    }
    let (token, _) = bench.ask().unwrap();
    bench.answer(token, &[(0, ErrorCode::NONE)]);
    bench.push(0, mark(1, 6));
    let (token, _) = bench.ask().unwrap();
    bench.answer(token, &[(0, ErrorCode::COORDINATOR_LOAD_IN_PROGRESS)]);
    bench.pass(Duration::from_millis(150));
    assert!(bench.ask().is_some());
}
