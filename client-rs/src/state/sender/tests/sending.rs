//! What goes out when, and to whom.

use super::*;

#[test]
fn a_first_record_goes_out_once_its_topic_and_the_producer_id_are_known() {
    let mut trial = Trial::new("");
    let token = trial.send("a");
    trial.turn();
    assert_eq!(trial.requests.len(), 1, "the producer id is asked for beside the metadata");
    trial.learn();
    assert!(token.is_open());
    trial.name_producer();
    let sent = trial.produced();
    assert_eq!(sent[0].batches, [(0, 0, vec!["a".to_owned()])]);
    trial.store(&sent[0], 40);
    let delivery = token.delivery();
    assert_eq!((delivery.partition, delivery.offset, delivery.timestamp), (0, 40, 77));
}

#[test]
fn an_idle_broker_gets_a_record_at_once_and_a_busy_one_after_the_linger() {
    let mut trial = Trial::ready("linger.ms=5", &[1]);
    trial.send("a");
    let first = trial.produced();
    assert_eq!(first.len(), 1);
    trial.send("b");
    trial.send("c");
    assert!(trial.produced().is_empty());
    trial.wait(4);
    assert!(trial.produced().is_empty());
    trial.wait(1);
    let second = trial.produced();
    assert_eq!(second[0].batches, [(0, 2, vec!["b".to_owned(), "c".to_owned()])]);
    trial.send("d");
    assert!(trial.produced().is_empty());
    trial.store(&first[0], 1);
    assert!(trial.produced().is_empty(), "another one is on its way");
    trial.store(&second[0], 2);
    assert_eq!(trial.produced().len(), 1, "idle again");
}

#[test]
fn full_batches_do_not_wait_for_answers() {
    let mut trial = Trial::ready("linger.ms=1000;batch.size=100", &[1]);
    for _ in 0..8 {
        trial.send("0123456789012345678901234567890123456789");
    }
    assert_eq!(trial.produced().len(), 5, "five of one partition");
}

#[test]
fn one_request_takes_a_batch_of_each_partition_of_a_broker() {
    let mut trial = Trial::ready("", &[1, 2, 1]);
    for partition in 0..3 {
        trial.send_to(partition, "a");
    }
    let sent = trial.produced();
    let partitions = |node| {
        let of = sent.iter().find(|sent| sent.node == node).unwrap();
        of.batches.iter().map(|(index, ..)| *index).collect::<Vec<_>>()
    };
    assert_eq!(sent.len(), 2);
    assert_eq!((partitions(1), partitions(2)), (vec![0, 2], vec![1]));
}

#[test]
fn large_batches_are_compressed_elsewhere_and_stay_in_order() {
    let mut trial = Trial::ready("compression.type=lz4;linger.ms=0", &[1]);
    let large = "x".repeat(20_000);
    trial.send(&large);
    assert!(trial.produced().is_empty(), "it is being compressed");
    trial.send("small");
    assert!(trial.produced().is_empty());
    let jobs = std::mem::take(&mut trial.jobs);
    assert_eq!(jobs.len(), 1);
    for job in jobs {
        let result = (job.work)();
        trial.call(|sender, cx| sender.handle_job(job.token, Some(result), cx));
    }
    let sent = trial.produced();
    let batches: Vec<_> = sent.iter().flat_map(|sent| &sent.batches).collect();
    assert_eq!(batches, [&(0, 1, vec![large]), &(0, 2, vec!["small".to_owned()])]);
}

#[test]
fn the_machine_sleeps_until_something_is_due() {
    let mut trial = Trial::ready("linger.ms=50", &[1]);
    assert_eq!(trial.next, Next::Wait, "nothing to do");
    trial.send("a");
    trial.produced();
    trial.send("b");
    trial.turn();
    assert!(trial.sender.is_busy());
    let before = trial.now;
    trial.wait_for_deadline();
    assert_eq!(trial.now.duration_since(before), Duration::from_millis(50));
    assert_eq!(trial.produced().len(), 1);
}
