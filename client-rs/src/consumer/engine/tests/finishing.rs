//! What is finished is committed, and of many partitions only what has changed is named.

use std::sync::Arc;

use super::script::part;
use crate::consumer::commit::OffsetAndMetadata;
use crate::consumer::face::{Command, Face, Marks};
use crate::consumer::promise::Promise;
use crate::driver::clock;
use crate::record::TopicPartition;
use crate::state::commits::Settled;
use crate::state::membership::Which;

const PARTITIONS: i32 = 2_000;

/// What the machine is asked to commit.
pub(super) fn committing(face: &Face) -> Marks {
    let mut all = Vec::new();
    for command in face.drain().commands {
        if let Command::Commit { marks, .. } = command {
            all.extend(marks);
        }
    }
    all
}

/// A consumer of so many partitions.
fn reading(partitions: i32) -> Face {
    let face = Face::new(Arc::default(), 1 << 20);
    for index in 0..partitions {
        let (lease, position) = (face.id(), face.id());
        assert!(face.add(part(index), lease, position));
    }
    face
}

/// Work on a partition is finished up to there.
fn finish(face: &Face, partition: i32, offset: i64) {
    face.seek(&part(partition), offset).unwrap();
}

/// Commits what is finished, waiting for it or not: the partitions and offsets that are named.
fn commit(face: &Face, waits: bool) -> Vec<(i32, i64)> {
    offsets(&commit_marks(face, waits))
}

fn commit_marks(face: &Face, waits: bool) -> Marks {
    face.commit_finished(clock::now(), waits.then(Promise::new)).unwrap();
    committing(face)
}

fn offsets(marks: &Marks) -> Vec<(i32, i64)> {
    marks.iter().map(|(at, mark)| (at.partition, mark.offset)).collect()
}

fn settle(face: &Face, taken: Marks, refused: &[TopicPartition]) {
    face.settle(&Settled { taken, refused: refused.to_vec() });
}

fn commit_by_hand(face: &Face, partition: i32, offset: i64) {
    let marks = face.marks_by_hand([(&part(partition), OffsetAndMetadata::new(offset))]).unwrap();
    face.command(Command::Commit { marks, deadline: clock::now(), promise: None }).unwrap();
}

#[test]
fn each_of_many_commits_names_what_was_finished_since_the_last_that_was_taken() {
    for waits in [true, false] {
        let face = reading(PARTITIONS);
        (0..PARTITIONS).for_each(|partition| finish(&face, partition, 1));
        let first = commit_marks(&face, waits);
        assert_eq!(first.len(), 2_000);
        settle(&face, first, &[]);
        let mut named = 0;
        for round in 0..PARTITIONS {
            finish(&face, round, 2);
            let marks = commit_marks(&face, waits);
            assert_eq!(offsets(&marks), [(round, 2)]);
            named += marks.len();
            settle(&face, marks, &[]);
        }
        assert_eq!(named, 2_000, "one for each commit, and not all for each");
        assert_eq!(commit(&face, waits), []);
    }
}

#[test]
fn an_automatic_commit_and_one_that_nobody_waits_for_name_what_was_not_asked_for() {
    let face = reading(3);
    finish(&face, 0, 1);
    assert_eq!(commit(&face, false), [(0, 1)]);
    finish(&face, 1, 1);
    assert_eq!(offsets(&face.newly_finished()), [(1, 1)]);
    assert_eq!(commit(&face, false), [], "both are on their way");
    assert_eq!(commit(&face, true), [(0, 1), (1, 1)], "who waits waits for them");
    let all = [(0, 1), (1, 1)];
    assert_eq!(offsets(&face.uncommitted(&Which::All)), all, "and so does who gives them up");
    let only = Which::These([part(1)].into());
    assert_eq!(offsets(&face.uncommitted(&only)), [(1, 1)]);
}

#[test]
fn what_was_refused_is_asked_for_again_and_what_is_behind_what_was_taken_stays_open() {
    let face = reading(2);
    finish(&face, 0, 1);
    finish(&face, 1, 1);
    let marks = commit_marks(&face, false);
    finish(&face, 1, 2);
    settle(&face, vec![marks[1].clone()], &[part(0)]);
    assert_eq!(commit(&face, false), [(0, 1), (1, 2)]);
    settle(&face, vec![marks[0].clone()], &[]);
    assert_eq!(commit(&face, true), [(1, 2)]);
}

#[test]
fn finished_work_is_committed_again_after_an_offset_of_the_programs_own() {
    let face = reading(1);
    finish(&face, 0, 9);
    let nine = commit_marks(&face, true);
    settle(&face, nine.clone(), &[]);
    assert_eq!(commit(&face, true), []);
    commit_by_hand(&face, 0, 5);
    // It may be told of the commit before while the machine has not heard of the new one.
    settle(&face, nine, &[]);
    let five = committing(&face);
    assert_eq!(offsets(&five), [(0, 5)]);
    assert_eq!(commit(&face, true), [(0, 9)]);
    settle(&face, five, &[]);
    let nine = commit_marks(&face, true);
    assert_eq!(offsets(&nine), [(0, 9)], "the program went back, and asks for all again");
    settle(&face, nine, &[]);
    assert_eq!(commit(&face, true), []);
}

#[test]
fn nothing_is_committed_of_a_partition_that_went() {
    let face = reading(2);
    finish(&face, 0, 1);
    finish(&face, 1, 1);
    face.remove(&[part(0)]);
    assert_eq!(commit(&face, true), [(1, 1)]);
}
