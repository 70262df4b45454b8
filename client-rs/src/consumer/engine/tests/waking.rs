//! What the program does of which the machine is to hear at once, and what it need not hear of.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::pausing::fetched;
use super::script::part;
use crate::consumer::batch::Batch;
use crate::consumer::face::{Command, Face, Look, WholeBatch};
use crate::state::fetcher::Fetched;
use crate::state::membership::Which;
use crate::state::wake::Wake;

/// A consumer of two partitions, and by what its machine is woken.
fn reading(budget: usize) -> (Face, Arc<Wake>) {
    let wake = Arc::<Wake>::default();
    let face = Face::new(Arc::clone(&wake), budget);
    assert!(face.add(part(0), 1, 2) && face.add(part(1), 3, 4));
    (face, wake)
}

fn take(face: &Face, records_max: usize) -> Option<Batch> {
    match face.look(&WholeBatch { records_max }, None).unwrap() {
        Look::Found(batch) => Some(batch),
        _ => None,
    }
}

#[test]
fn a_poll_wakes_the_machine_only_if_that_waits_for_it() {
    let (face, wake) = reading(1_000_000);
    face.deliver(fetched(0).0);
    wake.begin();
    assert!(take(&face, 1).is_some());
    assert!(!wake.begin());
    // Of the other one nothing is in hand.
    let these = |index| Which::These(BTreeSet::from([part(index)]));
    assert!(!face.attend_busy(&these(1)));
    assert!(take(&face, 1).is_some());
    assert!(!wake.begin());
    assert!(face.attend_busy(&these(0)));
    assert!(take(&face, 1).is_some());
    assert!(wake.begin());
    face.attend();
    assert!(take(&face, 1).is_none());
    assert!(wake.begin());
    assert!(take(&face, 1).is_none());
    assert!(!wake.begin(), "once");
}

#[test]
fn what_is_given_back_is_finished_as_far_as_it_was_given_and_the_machine_hears_of_it() {
    let (face, wake) = reading(1_000_000);
    face.deliver(fetched(0).0);
    let batch = take(&face, 9).unwrap();
    assert!(face.attend_busy(&Which::All));
    wake.begin();
    face.give_back(&batch.shared, 0);
    assert!(wake.begin());
    assert!(!face.attend_busy(&Which::All), "nothing is in hand");
}

#[test]
fn who_is_told_nothing_any_more_is_not_waited_for() {
    let (face, wake) = reading(1_000_000);
    face.listen();
    let told = face.tell_revoked(&Which::All).unwrap();
    wake.begin();
    face.stop_telling();
    assert!(wake.begin());
    assert!(face.is_told(told));
}

#[test]
fn a_partition_that_has_given_all_out_is_fetched_at_once_though_others_hold_the_room() {
    let (face, wake) = reading(400);
    let (first, _) = fetched(0);
    face.set_paused(&[part(1)], true).unwrap();
    for _ in 0..3 {
        face.deliver(Fetched { partition: part(1), position: 4, ..first.clone() });
    }
    face.deliver(first);
    wake.begin();
    assert!(take(&face, 9).is_some());
    assert!(wake.begin());
}

#[test]
fn what_comes_again_before_it_was_told_that_it_went_gives_nothing_out_until_that_is_told() {
    let (face, _) = reading(1_000_000);
    face.listen();
    assert!(face.add(part(2), 5, 6));
    face.tell_assigned(&[part(2)]);
    let look = || face.look(&WholeBatch { records_max: 9 }, None).unwrap();
    let Look::Rebalance(came) = look() else { panic!("it is told that it came") };
    // Meanwhile it goes, and comes back.
    face.remove(&[part(2)]);
    assert!(face.add(part(2), 7, 8));
    face.tell_assigned(&[part(2)]);
    face.deliver(Fetched { partition: part(2), position: 8, ..fetched(0).0 });
    face.end_telling(came.id);
    let Look::Rebalance(went) = look() else { panic!("it is told that it went") };
    assert!(matches!(look(), Look::Nothing), "another thread polls while that is told");
    face.end_telling(went.id);
    let Look::Rebalance(again) = look() else { panic!("it is told that it came again") };
    face.end_telling(again.id);
    assert!(matches!(look(), Look::Found(_)));
}

#[test]
fn what_the_group_gives_to_who_chooses_by_itself_or_reads_nothing_is_not_read() {
    let (face, _) = reading(1_000_000);
    face.assign(BTreeSet::from([part(7)])).unwrap();
    assert!(!face.add(part(2), 5, 6));
    assert_eq!(face.partitions(), [part(7)]);
    face.unsubscribe().unwrap();

    let (face, _) = reading(1_000_000);
    face.subscribe(Command::Subscribe(vec!["t".into()])).unwrap();
    face.deliver(fetched(0).0);
    face.hold(&Which::All);
    face.unsubscribe().unwrap();
    face.release(&part(0));
    assert!(take(&face, 9).is_none());
}

#[test]
fn who_goes_over_to_partitions_of_its_own_is_told_that_the_groups_go() {
    let (face, _) = reading(1_000_000);
    face.subscribe(Command::Subscribe(vec!["t".into()])).unwrap();
    face.listen();
    face.unsubscribe().unwrap();
    face.assign(BTreeSet::from([part(0)])).unwrap();
    let Ok(Look::Rebalance(told)) = face.look(&WholeBatch { records_max: 9 }, None) else {
        panic!("nothing is told")
    };
    assert_eq!(told.partitions, [part(0), part(1)]);
}
