//! An admin client and groups: who is in them, what they have committed, how they end.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on ends here")]

mod clients;
mod cluster;
mod patience;

use std::time::Duration;

use clients::{member, options, producer};
use cluster::{Cluster, fresh};
use ottla::{
    Admin, Commit, Consumer, ErrorKind, NewTopic, OffsetAndMetadata, Record, TopicPartition,
};
use patience::{LIMIT, wait_until, within_limit};

/// Long enough for a poll to look around.
const GLANCE: Duration = Duration::from_millis(10);
/// Kafka's codes.
const UNKNOWN_MEMBER_ID: i16 = 25;
const NON_EMPTY_GROUP: i16 = 68;
const GROUP_ID_NOT_FOUND: i16 = 69;
const GROUP_SUBSCRIBED_TO_TOPIC: i16 = 86;

struct Scene {
    cluster: Cluster,
    admin: Admin,
    topic: String,
    group: String,
}

/// A topic of two partitions with one record each.
fn scene() -> Scene {
    let cluster = Cluster::start();
    let admin = Admin::new(&options(&cluster.bootstrap(), &[])).unwrap();
    let (topic, group) = (fresh("read"), fresh("readers"));
    let created = admin.create_topics(&[NewTopic::new(&topic).partitions(2)]).wait();
    created.unwrap().all().unwrap();
    let producer = producer(&cluster.bootstrap(), &[]);
    for partition in 0..2 {
        let record = Record::to(&topic).partition(partition).value("v");
        producer.send(&record).unwrap().wait(LIMIT).unwrap();
    }
    producer.close(LIMIT).unwrap();
    Scene { cluster, admin, topic, group }
}

impl Scene {
    fn at(&self, partition: i32) -> TopicPartition {
        TopicPartition::new(self.topic.as_str(), partition)
    }

    /// A member that has read and committed all there is.
    fn reader(&self) -> Consumer {
        self.reader_with(&[])
    }

    /// A member of that fixed name, once its group lets it in: there is nothing new for it to read.
    fn reader_again(&self, instance_id: &str) -> Consumer {
        let more = [("group.id", self.group.as_str()), ("group.instance.id", instance_id)];
        let consumer = member(&self.cluster.bootstrap(), &self.topic, &more);
        wait_until("its place in the group", || {
            assert!(consumer.poll(GLANCE).unwrap().is_none());
            self.members().iter().any(|(_, name)| name.as_deref() == Some(instance_id))
        });
        consumer
    }

    fn reader_with(&self, more: &[(&str, &str)]) -> Consumer {
        let own = [("group.id", self.group.as_str()), ("enable.auto.commit", "false")];
        let more = [&own[..], more].concat();
        let consumer = member(&self.cluster.bootstrap(), &self.topic, &more);
        for _ in 0..2 {
            consumer.poll(LIMIT).unwrap().unwrap();
        }
        let all = [(self.at(0), 1), (self.at(1), 1)];
        consumer.commit(Commit::Offsets(&all), LIMIT).unwrap();
        consumer
    }

    /// The ids and fixed names of the group's members.
    fn members(&self) -> Vec<(String, Option<String>)> {
        let told = self.admin.describe_classic_groups(&[&self.group]).wait().unwrap();
        let members = &told.get(self.group.as_str()).unwrap().members;
        let named =
            members.iter().map(|one| (one.member_id.clone(), one.group_instance_id.clone()));
        named.collect()
    }

    fn committed(&self) -> Vec<(i32, i64)> {
        let told = self.admin.list_consumer_group_offsets(&self.group).wait().unwrap();
        told.iter().map(|(at, committed)| (at.partition, committed.offset)).collect()
    }
}

#[test]
fn a_group_is_listed_and_described_with_its_members_partitions() {
    within_limit(|| {
        let scene = scene();
        let consumer = scene.reader();
        let listed = scene.admin.list_groups().in_states(&["Stable"]).wait().unwrap();
        let listed = listed.all().unwrap();
        let found = listed.iter().find(|one| one.group_id == scene.group).unwrap();
        assert_eq!((&*found.protocol_type, &*found.group_state), ("consumer", "Stable"));
        assert_eq!(found.group_type.to_lowercase(), "classic");
        let missing = fresh("nobody");
        let told = scene.admin.describe_classic_groups(&[&scene.group, &missing]).wait().unwrap();
        let group = told.get(scene.group.as_str()).unwrap();
        assert_eq!((&*group.state, &*group.protocol), ("Stable", "consumer"));
        assert_eq!(group.members.len(), 1);
        let member = &group.members[0];
        assert_eq!(member.client_id, "ottla");
        assert!(member.host.contains("127.0.0.1"), "{member:?}");
        assert_eq!(member.assignment, [scene.at(0), scene.at(1)]);
        let error = told.get(missing.as_str()).unwrap_err();
        assert_eq!(error.kafka_code(), Some(GROUP_ID_NOT_FOUND), "{error}");
        consumer.close(LIMIT).unwrap();
        let empty = scene.admin.list_groups().in_states(&["Empty"]).with_types(&["classic"]);
        let empty = empty.wait().unwrap().all().unwrap();
        assert!(empty.iter().any(|one| one.group_id == scene.group));
    });
}

#[test]
fn offsets_of_a_group_with_members_are_theirs() {
    within_limit(|| {
        let scene = scene();
        let consumer = scene.reader();
        assert_eq!(scene.committed(), [(0, 1), (1, 1)]);
        let (at, back) = (scene.at(0), OffsetAndMetadata::new(0));
        let altered = scene.admin.alter_consumer_group_offsets(&scene.group, &[(at.clone(), back)]);
        let altered = altered.wait().unwrap();
        let error = altered.get(&at).unwrap_err();
        assert_eq!(error.kafka_code(), Some(UNKNOWN_MEMBER_ID), "{error}");
        let ats = std::slice::from_ref(&at);
        let deleted = scene.admin.delete_consumer_group_offsets(&scene.group, ats).wait().unwrap();
        let error = deleted.get(&at).unwrap_err();
        assert_eq!(error.kafka_code(), Some(GROUP_SUBSCRIBED_TO_TOPIC), "{error}");
        let deleted = scene.admin.delete_consumer_groups(&[&scene.group]).wait().unwrap();
        let error = deleted.get(scene.group.as_str()).unwrap_err();
        assert_eq!(error.kafka_code(), Some(NON_EMPTY_GROUP), "{error}");
        assert_eq!(scene.committed(), [(0, 1), (1, 1)]);
        consumer.close(LIMIT).unwrap();
    });
}

#[test]
fn offsets_of_a_group_without_members_are_moved_and_deleted_and_members_go_on_from_there() {
    within_limit(|| {
        let scene = scene();
        let admin = &scene.admin;
        scene.reader().close(LIMIT).unwrap();
        let note = OffsetAndMetadata::new(0).metadata("again");
        let moves = [(scene.at(1), note.clone())];
        let altered = admin.alter_consumer_group_offsets(&scene.group, &moves).wait().unwrap();
        altered.all().unwrap();
        assert_eq!(scene.committed(), [(0, 1), (1, 0)]);
        let told = admin.list_consumer_group_offsets(&scene.group).partitions(&[scene.at(1)]);
        let told = told.require_stable(true).wait().unwrap();
        assert_eq!(told, [(scene.at(1), note)]);
        let more = [("group.id", scene.group.as_str()), ("enable.auto.commit", "false")];
        let consumer = member(&scene.cluster.bootstrap(), &scene.topic, &more);
        let record = consumer.poll(LIMIT).unwrap().unwrap();
        assert_eq!((record.partition(), record.offset()), (1, 0), "what was moved is read again");
        consumer.close(LIMIT).unwrap();

        let gone = admin.delete_consumer_group_offsets(&scene.group, &[scene.at(0)]).wait();
        gone.unwrap().all().unwrap();
        assert_eq!(scene.committed(), [(1, 0)]);
        admin.delete_consumer_groups(&[&scene.group]).wait().unwrap().all().unwrap();
        wait_until("the group's end", || scene.committed().is_empty());
        let deleted = admin.delete_consumer_groups(&[&scene.group]).wait().unwrap();
        let error = deleted.get(scene.group.as_str()).unwrap_err();
        assert_eq!(error.kafka_code(), Some(GROUP_ID_NOT_FOUND), "{error}");
    });
}

#[test]
fn a_static_member_that_has_ended_is_put_out_by_its_name() {
    within_limit(|| {
        let scene = scene();
        scene.reader_with(&[("group.instance.id", "one")]).close(LIMIT).unwrap();
        assert_eq!(scene.members().len(), 1, "it keeps its place");
        let removed = scene.admin.remove_members_from_consumer_group(&scene.group, &["one", "two"]);
        let removed = removed.reason("it will not come back").wait().unwrap();
        removed.get("one").unwrap();
        let error = removed.get("two").unwrap_err();
        assert_eq!(error.kind(), ErrorKind::NotFound, "{error}");
        assert_eq!(error.kafka_code(), Some(UNKNOWN_MEMBER_ID), "{error}");
        assert_eq!(scene.members(), []);
        assert_eq!(scene.committed(), [(0, 1), (1, 1)], "its offsets stay");
        let nobody = scene.admin.remove_members_from_consumer_group(&scene.group, &[]);
        assert!(nobody.wait().unwrap().is_empty());
        let group = fresh("nobody");
        let removed = scene.admin.remove_members_from_consumer_group(&group, &["one"]);
        let error = removed.wait().unwrap().get("one").unwrap_err();
        assert_eq!(error.kind(), ErrorKind::NotFound, "{error}");
    });
}

#[test]
fn all_members_are_put_out_and_one_that_runs_joins_anew() {
    within_limit(|| {
        let scene = scene();
        let consumer = scene.reader();
        let (before, _) = scene.members().pop().unwrap();
        let removed = scene.admin.remove_all_members_from_consumer_group(&scene.group);
        let removed = removed.wait().unwrap();
        assert_eq!(removed.len(), 1, "{removed:?}");
        removed.get(before.as_str()).unwrap();
        wait_until("another member id", || {
            // What it is told of its loss is not the matter here.
            consumer.poll(GLANCE).ok();
            scene.members().iter().any(|(id, _)| *id != before)
        });
        consumer.close(LIMIT).unwrap();
        scene.reader_again("one").close(LIMIT).unwrap();
        let removed = scene.admin.remove_all_members_from_consumer_group(&scene.group);
        assert_eq!(removed.wait().unwrap().all().unwrap(), [("one".to_owned(), ())]);
        let removed = scene.admin.remove_all_members_from_consumer_group(&scene.group);
        assert!(removed.wait().unwrap().is_empty(), "nobody is left");
        let group = fresh("nobody");
        let removed = scene.admin.remove_all_members_from_consumer_group(&group).wait();
        let error = removed.unwrap_err();
        assert_eq!(error.kafka_code(), Some(GROUP_ID_NOT_FOUND), "{error}");
    });
}

#[test]
fn a_member_named_badly_or_for_too_long_a_reason_is_put_out_of_nothing() {
    let admin = Admin::new(&options(&clients::nobody(), &[])).unwrap();
    let named = ["one", "", "one"];
    let told = admin.remove_members_from_consumer_group("g", &named).wait().unwrap();
    assert_eq!(told.iter().map(|(id, _)| id.as_str()).collect::<Vec<_>>(), named);
    for (_, result) in told.iter() {
        let error = result.as_ref().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{error}");
    }
    let long = admin.remove_all_members_from_consumer_group("g").reason(&"ö".repeat(256));
    let error = long.wait().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{error}");
    assert_eq!(admin.stats().requests, 0);
}

#[test]
fn an_offset_below_zero_is_refused_before_anything_is_asked() {
    let admin = Admin::new(&options(&clients::nobody(), &[])).unwrap();
    let bad = [(TopicPartition::new("t", 0), OffsetAndMetadata::new(-1))];
    let results = admin.alter_consumer_group_offsets("g", &bad).wait().unwrap();
    let error = results.get(&bad[0].0).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{error}");
    assert_eq!(admin.stats().requests, 0);
}
