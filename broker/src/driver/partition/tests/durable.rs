//! What an acknowledgement means, and disks that fail or fill up.

use std::collections::BTreeSet;

use super::disk::Disk;
use super::*;

/// Partitions of one folder on a disk of the test's.
struct Place {
    disk: Disk,
    folder: Arc<DataFolder>,
    ready: Arc<ReadyList>,
    config: Arc<TopicConfig>,
}

impl Place {
    fn new(options: &[(&str, &str)]) -> Self {
        let config = options
            .iter()
            .fold(BrokerConfig::new(), |config, (name, value)| config.set(name, value).unwrap());
        let settings = config.settings();
        let disk = Disk::default();
        let folder = Arc::new(DataFolder::on_files(Arc::new(disk.clone()), &settings));
        let ready = Arc::new(ReadyList::default());
        ready.settle(|| {});
        let mut config = TopicConfig::resolve(&settings, []).unwrap();
        config.log.segment_bytes = 200;
        Self { disk, folder, ready, config: Arc::new(config) }
    }

    fn partition(&self, index: i32) -> Arc<Partition> {
        Partition::new(PartitionSetup {
            topic: "orders".into(),
            topic_id: Uuid([1; 16]),
            index,
            leader_epoch: 0,
            config: self.config.clone(),
            is_metadata: false,
            folder: self.folder.clone(),
            ready: self.ready.clone(),
        })
    }
}

/// Pushes a client's batch; its offset comes and the syncs by then, or why not.
fn send(place: &Place, partition: &Arc<Partition>) -> Receiver<Result<(i64, usize), AppendError>> {
    push(place, partition, Origin::Client)
}

fn push(
    place: &Place,
    partition: &Arc<Partition>,
    origin: Origin,
) -> Receiver<Result<(i64, usize), AppendError>> {
    let (tell, told) = mpsc::channel();
    let disk = place.disk.clone();
    let batch = own_batch([(None, Some(&b"value"[..]))], Content::Records, origin, 1000).unwrap();
    let done = Box::new(move |outcome: Outcome| {
        let offset = outcome.map(|results| results[0].as_ref().unwrap().base_offset);
        tell.send(offset.map(|offset| (offset, disk.syncs()))).unwrap();
    });
    partition.push(Submission { batches: vec![batch], acks: Acks::All, done }).unwrap();
    told
}

#[test]
fn with_group_all_that_waited_is_acknowledged_after_one_sync_of_each_partition() {
    let place = Place::new(&[("flush", "group")]);
    let (first, second) = (place.partition(0), place.partition(1));
    // One batch a segment would be three files; these fit one.
    let told: Vec<_> = [&first, &second, &first, &second].map(|one| send(&place, one)).into();
    let writer = Writer::start(place.ready.clone(), Clock).unwrap();
    let told: Vec<_> = told.iter().map(|told| wait(told).unwrap()).collect();
    assert_eq!(told, [(0, 1), (0, 2), (1, 1), (1, 2)], "two of each by one sync");
    assert_eq!((first.high_watermark(), second.high_watermark()), (2, 2));
    writer.finish();
}

#[test]
fn with_none_nothing_is_synced_before_it_is_acknowledged() {
    let place = Place::new(&[]);
    let partition = place.partition(0);
    let writer = Writer::start(place.ready.clone(), Clock).unwrap();
    assert_eq!(wait(&send(&place, &partition)), Ok((0, 0)));
    writer.finish();
}

#[test]
fn sync_that_fails_takes_the_folder_offline_and_is_not_tried_again() {
    let place = Place::new(&[("flush", "group")]);
    let (first, second) = (place.partition(0), place.partition(1));
    let writer = Writer::start(place.ready.clone(), Clock).unwrap();
    for partition in [&first, &second] {
        wait(&send(&place, partition)).unwrap();
    }
    place.disk.set_failing(true);
    let failed = wait(&send(&place, &first)).unwrap_err();
    assert_eq!(failed.code(), ottla_protocol::ErrorCode::KAFKA_STORAGE_ERROR);
    assert!(failed.to_string().contains("the disk lost the data"), "{failed}");
    assert_eq!(first.high_watermark(), 1, "nobody saw the record");
    place.disk.set_failing(false);
    let tried = place.disk.syncs();
    for partition in [&first, &second] {
        wait(&send(&place, partition)).unwrap_err();
        assert!(partition.log().is_err(), "offline");
    }
    writer.finish();
    for partition in [&first, &second] {
        assert!(partition.close().is_err());
    }
    assert_eq!(place.disk.syncs(), tried);
    assert!(!place.folder.write_marker(1).unwrap());
}

#[test]
fn sync_of_a_sealed_segment_that_fails_takes_the_folder_offline_too() {
    let place = Place::new(&[]);
    let (first, second) = (place.partition(0), place.partition(1));
    let writer = Writer::start(place.ready.clone(), Clock).unwrap();
    place.disk.set_failing(true);
    // The third batch does not fit the segment.
    let mut seen = BTreeSet::new();
    while let Ok((offset, _)) = wait(&send(&place, &first)) {
        seen.insert(offset);
        assert!(seen.len() < 10_000, "nobody hears of the sync that failed");
    }
    assert!(seen.len() >= 3, "acknowledged without a sync: {seen:?}");
    assert!(second.log().is_err());
    writer.finish();
}

#[test]
fn lack_of_descriptors_refuses_what_comes_meanwhile_and_nothing_more() {
    let place = Place::new(&[("flush", "group")]);
    let partition = place.partition(0);
    let writer = Writer::start(place.ready.clone(), Clock).unwrap();
    place.disk.set_descriptors(false);
    let refused = wait(&send(&place, &partition)).unwrap_err();
    assert!(refused.to_string().contains("open files"), "{refused}");
    place.disk.set_descriptors(true);
    assert_eq!(wait(&send(&place, &partition)).unwrap().0, 0);
    assert_eq!(wait(&send(&place, &partition)).unwrap().0, 1);
    place.disk.set_descriptors(false);
    wait(&send(&place, &partition)).unwrap_err();
    place.disk.set_descriptors(true);
    assert_eq!(wait(&send(&place, &partition)).unwrap().0, 2, "the segment begins now");
    writer.finish();
    assert!(partition.close().unwrap().is_some());
    assert!(place.folder.write_marker(1).unwrap(), "nothing failed");
}

#[test]
fn last_bytes_of_the_disk_are_not_for_clients() {
    let place = Place::new(&[("disk.reserve.bytes", "1000")]);
    let partition = place.partition(0);
    let writer = Writer::start(place.ready.clone(), Clock).unwrap();
    place.disk.set_free(1050);
    let refused = wait(&send(&place, &partition)).unwrap_err();
    assert_eq!(refused.code(), ottla_protocol::ErrorCode::KAFKA_STORAGE_ERROR);
    assert!(refused.to_string().contains("disk.reserve.bytes"), "{refused}");
    let own = wait(&push(&place, &partition, Origin::Coordinator));
    assert_eq!(own, Ok((0, 0)), "groups go on");
    assert_eq!(partition.log().unwrap().read(0, 1, 1, true).unwrap().base_offset, 0);
    place.disk.set_free(100_000);
    assert_eq!(wait(&send(&place, &partition)), Ok((1, 0)), "there is room again");
    writer.finish();
}
