//! Records without a key: they stick to partitions, leave those whose brokers take nothing, and keep
//! to near ones.

use std::collections::BTreeSet;

use super::*;

/// Sends a record without key and partition, and gives the batch that it is in.
fn send(trial: &Trial, value: &str) -> u64 {
    let record = Record::to("t").value(value);
    let mut batch = 0;
    let keep = &mut |completion: &Arc<Completion>, _| batch = completion.id();
    let moment = Moment { now_ms: 77, clock: || NOW.get().unwrap() };
    NOW.set(Some(trial.now));
    trial.face.append(&record, moment, &mut None, keep).unwrap();
    batch
}

#[test]
fn records_fill_one_batch_after_the_other_each_for_another_partition() {
    let options = "partitioner=sticky;batch.size=1000;max.request.size=100000;linger.ms=1000";
    let trial = Trial::ready(options, &[1; 6]);
    let value = "v".repeat(90);
    let batches: Vec<u64> = (0..200).map(|_| send(&trial, &value)).collect();
    let mut filled: Vec<(u64, usize)> = Vec::new();
    for id in batches {
        match filled.last_mut() {
            Some((last, records)) if *last == id => *records += 1,
            _ => filled.push((id, 1)),
        }
    }
    filled.pop();
    // 61 bytes of header, and 97 or 98 of each record.
    assert!(filled.iter().all(|&(_, records)| records == 9), "{filled:?}");
    let each: BTreeSet<u64> = filled.iter().map(|&(id, _)| id).collect();
    assert_eq!(each.len(), filled.len(), "none is come back to");
}

#[test]
fn records_leave_out_the_partitions_of_a_broker_that_takes_nothing_until_it_does() {
    let options = "partitioner=sticky;batch.size=200;linger.ms=0;\
                   partitioner.availability.timeout.ms=1000;delivery.timeout.ms=100000;\
                   request.timeout.ms=90000";
    let mut trial = Trial::ready(options, &[1, 2, 2, 1]);
    let value = "v".repeat(120);
    // Batches for all partitions; the second broker begins with none of its requests.
    let round = |trial: &mut Trial| {
        for _ in 0..40 {
            send(trial, &value);
        }
        let mut held = Vec::new();
        loop {
            let (taken, left): (Vec<_>, Vec<_>) =
                trial.queued().into_iter().partition(|sent| sent.node == 1);
            held.extend(left);
            if taken.is_empty() {
                return held;
            }
            for sent in taken {
                trial.begin(&sent);
                trial.store(&sent, 0);
            }
        }
    };
    let held = round(&mut trial);
    assert!(!held.is_empty());
    trial.wait(999);
    let slots = |trial: &Trial| -> Vec<bool> {
        trial.sender.partitions.iter().map(|partition| partition.slot.is_away()).collect()
    };
    assert_eq!(slots(&trial), [false; 4]);
    trial.wait_for_deadline();
    assert_eq!(slots(&trial), [false, true, true, false], "it wakes for this by itself");
    let before: Vec<usize> = trial.sender.partitions.iter().map(|at| at.slot.queued()).collect();
    for _ in 0..10 {
        round(&mut trial);
    }
    let after: Vec<usize> = trial.sender.partitions.iter().map(|at| at.slot.queued()).collect();
    assert!(after[1] + after[2] <= before[1] + before[2] + 1, "{before:?}, {after:?}");
    for sent in &held {
        trial.begin(sent);
        trial.store(sent, 0);
    }
    assert_eq!(slots(&trial), [false; 4], "it has begun to take what waited");
}

#[test]
fn records_keep_to_near_leaders_as_long_as_there_are_any() {
    let near = "partitioner.rack.aware=true;client.rack=west";
    for (options, leaders, expected) in [
        (near, [1, 2, 1, 2], vec![1, 3]),
        (near, [1, 1, 1, 1], vec![0, 1, 2, 3]),
        ("partitioner.rack.aware=true", [1, 2, 1, 2], vec![0, 1, 2, 3]),
        ("client.rack=west", [1, 2, 1, 2], vec![0, 1, 2, 3]),
    ] {
        let mut trial = Trial::ready(&format!("linger.ms=0;{options}"), &leaders);
        for _ in 0..8 {
            send(&trial, "v");
        }
        let sent = trial.produced();
        let batches = sent.iter().flat_map(|sent| &sent.batches);
        let partitions: BTreeSet<i32> = batches.map(|&(partition, ..)| partition).collect();
        assert!(partitions.into_iter().eq(expected), "{options}: {leaders:?}");
    }
}
