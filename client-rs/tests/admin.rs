//! An admin client against a cluster: topics, partitions, options, what brokers hold.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on ends here")]

mod clients;
mod cluster;
mod patience;

use std::time::Duration;

use clients::{nobody, options, producer};
use cluster::{Cluster, fresh};
use ottla::{
    Admin, AlterConfigOp, ConfigResource, ConfigResourceType, ConfigSource, Error, ErrorKind,
    NewPartitions, NewTopic, OffsetAndMetadata, OffsetSpec, Record, Results, TopicDescription,
    TopicPartition, Uuid,
};
use patience::{LIMIT, block_on, given_time, within_limit};

/// Kafka's codes.
const TOPIC_ALREADY_EXISTS: i16 = 36;
const INVALID_CONFIG: i16 = 40;

fn admin(cluster: &Cluster) -> Admin {
    Admin::new(&options(&cluster.bootstrap(), &[])).unwrap()
}

fn create(admin: &Admin, topic: &str, partitions: i32) {
    let created = admin.create_topics(&[NewTopic::new(topic).partitions(partitions)]).wait();
    created.unwrap().all().unwrap();
}

/// A topic as the cluster tells it once all know of it.
fn described(admin: &Admin, topic: &str, partitions: usize) -> TopicDescription {
    loop {
        match admin.describe_topics(&[topic]).wait().unwrap().get(topic) {
            Ok(found) if found.partitions.len() == partitions => return found.clone(),
            Ok(_) => {}
            Err(error) => assert_eq!(error.kind(), ErrorKind::UnknownTopic, "{error}"),
        }
    }
}

fn write(cluster: &Cluster, topic: &str, timestamps: &[i64]) {
    let producer = producer(&cluster.bootstrap(), &[]);
    for &timestamp in timestamps {
        let record = Record::to(topic).partition(0).value("v").timestamp(timestamp);
        producer.send(&record).unwrap().wait(LIMIT).unwrap();
    }
    producer.close(LIMIT).unwrap();
}

#[test]
fn a_topic_is_created_described_grown_and_deleted() {
    within_limit(|| {
        let cluster = Cluster::start();
        let admin = admin(&cluster);
        let topic = fresh("orders");
        let new = NewTopic::new(&topic).partitions(2).config("retention.ms", "86400000");
        let created = admin.create_topics(&[new]).wait().unwrap();
        let made = created.get(topic.as_str()).unwrap();
        assert_eq!((made.partitions, made.replication_factor), (Some(2), Some(1)));
        let configs = made.configs.as_ref().unwrap();
        let retention = configs.iter().find(|config| config.name == "retention.ms").unwrap();
        assert_eq!(retention.value.as_deref(), Some("86400000"));
        assert_eq!(retention.source, ConfigSource::DynamicTopic);

        let found = described(&admin, &topic, 2);
        assert_eq!((found.topic_id, found.is_internal), (made.topic_id, false));
        for (number, partition) in (0..).zip(&found.partitions) {
            assert_eq!(partition.partition, number);
            let leader = partition.leader.unwrap();
            assert_eq!((&partition.replicas, &partition.isr), (&vec![leader], &vec![leader]));
        }
        let by_id = admin.describe_topics_by_id(&[found.topic_id]).wait().unwrap();
        assert_eq!(by_id.get(&found.topic_id).unwrap().name, topic);
        let listed = admin.list_topics().wait().unwrap();
        assert!(listed.iter().any(|one| one.name == topic && one.topic_id == found.topic_id));

        let grown = [(topic.as_str(), NewPartitions::increase_to(5))];
        admin.create_partitions(&grown).validate_only(true).wait().unwrap().all().unwrap();
        assert_eq!(described(&admin, &topic, 2).partitions.len(), 2, "it was only checked");
        admin.create_partitions(&grown).wait().unwrap().all().unwrap();
        described(&admin, &topic, 5);

        admin.delete_topics_by_id(&[found.topic_id]).wait().unwrap().all().unwrap();
        let again = admin.delete_topics(&[&topic]).wait().unwrap();
        let gone = again.get(topic.as_str()).unwrap_err();
        assert_eq!(gone.kind(), ErrorKind::UnknownTopic, "{gone}");
        admin.close(LIMIT).unwrap();
    });
}

#[test]
fn one_topics_error_does_not_hide_anothers_result() {
    within_limit(|| {
        let cluster = Cluster::start();
        let admin = admin(&cluster);
        let (old, new) = (fresh("old"), fresh("new"));
        create(&admin, &old, 1);
        let both = [NewTopic::new(&old).partitions(1), NewTopic::new(&new).partitions(1)];
        let created = admin.create_topics(&both).wait().unwrap();
        assert_eq!(created.len(), 2);
        let error = created.get(old.as_str()).unwrap_err();
        assert_eq!(error.kafka_code(), Some(TOPIC_ALREADY_EXISTS), "{error}");
        assert_eq!((error.kind(), error.api()), (ErrorKind::AlreadyExists, Some("CreateTopics")));
        created.get(new.as_str()).unwrap();
        assert!(created.all().is_err(), "all of them were not created");
        described(&admin, &new, 1);
        let missing = fresh("missing");
        let told = admin.describe_topics(&[&missing, &new]).wait().unwrap();
        assert_eq!(told.get(missing.as_str()).unwrap_err().kind(), ErrorKind::UnknownTopic);
        assert_eq!(told.get(new.as_str()).unwrap().partitions.len(), 1);
        let names: Vec<&String> = told.iter().map(|(name, _)| name).collect();
        assert_eq!(names, [&missing, &new], "in the order in which they were named");
    });
}

#[test]
fn what_is_only_validated_does_not_come_about() {
    within_limit(|| {
        let cluster = Cluster::start();
        let admin = admin(&cluster);
        let topic = fresh("checked");
        let new = [NewTopic::new(&topic).partitions(3)];
        admin.create_topics(&new).validate_only(true).wait().unwrap().all().unwrap();
        let told = admin.describe_topics(&[&topic]).wait().unwrap();
        assert_eq!(told.get(topic.as_str()).unwrap_err().kind(), ErrorKind::UnknownTopic);
        create(&admin, &topic, 3);
        described(&admin, &topic, 3);
        let resource = ConfigResource::topic(&topic);
        let change = [(resource.clone(), vec![AlterConfigOp::set("retention.ms", "1000")])];
        let checked = admin.incremental_alter_configs(&change).validate_only(true).wait();
        checked.unwrap().all().unwrap();
        assert_ne!(value(&admin, &resource, "retention.ms").as_deref(), Some("1000"));
    });
}

#[test]
fn an_argument_that_makes_no_sense_is_refused_before_anything_is_asked() {
    let admin = Admin::new(&options(&nobody(), &[])).unwrap();
    let twice = [NewTopic::new("a").partitions(1), NewTopic::new("a").partitions(2)];
    let results = admin.create_topics(&twice).wait().unwrap();
    assert_eq!(kinds(&results), [Some(ErrorKind::InvalidArgument); 2]);
    let results = admin.describe_topics(&["b", "b"]).wait().unwrap();
    assert_eq!(kinds(&results), [Some(ErrorKind::InvalidArgument); 2]);
    let results = admin.create_topics(&[NewTopic::new("no spaces")]).wait().unwrap();
    assert_eq!(kinds(&results), [Some(ErrorKind::InvalidTopic)]);
    assert!(admin.create_topics(&[]).wait().unwrap().is_empty(), "nothing is nothing's fault");
    assert_eq!(admin.stats().requests, 0);
}

/// Why each item has no value, if it has none.
fn kinds<K, V>(results: &Results<K, V>) -> Vec<Option<ErrorKind>> {
    results.iter().map(|(_, result)| result.as_ref().err().map(Error::kind)).collect()
}

#[test]
fn a_bad_item_of_a_call_keeps_no_other_from_being_done() {
    within_limit(|| {
        let cluster = Cluster::start();
        let admin = admin(&cluster);
        let (one, two) = (fresh("one"), fresh("two"));
        let new = |name: &str| NewTopic::new(name).partitions(1);
        let long = "x".repeat(40_000);
        let topics = [new(&one), new("no spaces"), new(""), new("a"), new(&two), new("a")];
        let results = admin.create_topics(&topics).wait().unwrap();
        let (name, twice) = (Some(ErrorKind::InvalidTopic), Some(ErrorKind::InvalidArgument));
        assert_eq!(kinds(&results), [None, name, name, twice, None, twice]);
        described(&admin, &one, 1);
        described(&admin, &two, 1);
        let told = admin.describe_topics(&["b", &two, "b", &one]).wait().unwrap();
        assert_eq!(kinds(&told), [twice, None, twice, None]);
        let at = |topic: &str| TopicPartition::new(topic, 0);
        let wanted = ["", &one, &long, &two].map(|topic| (at(topic), OffsetSpec::Latest));
        let told = admin.list_offsets(&wanted).wait().unwrap();
        assert_eq!(kinds(&told), [name, None, name, None]);
        let group = fresh("group");
        let offset = OffsetAndMetadata::new;
        let large = offset(1).metadata(&long);
        let changes = [(at(&one), offset(-1)), (at(&two), offset(0)), (at("t"), large)];
        let told = admin.alter_consumer_group_offsets(&group, &changes).wait().unwrap();
        assert_eq!(kinds(&told), [twice, None, twice]);
        let told = admin.delete_topics(&[&one, &long, &two]).wait().unwrap();
        assert_eq!(kinds(&told).iter().filter(|kind| kind.is_some()).count(), 1);
        assert!(told.get(long.as_str()).is_err());
    });
}

fn value(admin: &Admin, resource: &ConfigResource, option: &str) -> Option<String> {
    let told = admin.describe_configs(std::slice::from_ref(resource)).wait().unwrap();
    let entries = told.get(resource).unwrap();
    entries.iter().find(|entry| entry.name == option).unwrap().value.clone()
}

/// Waits for an option's value: brokers hear of a change behind the controller's answer.
fn becomes(admin: &Admin, resource: &ConfigResource, option: &str, wanted: &str) {
    patience::wait_until(option, || value(admin, resource, option).as_deref() == Some(wanted));
}

#[test]
fn options_are_described_set_appended_and_reset() {
    within_limit(|| {
        let cluster = Cluster::start();
        let admin = admin(&cluster);
        let topic = fresh("configured");
        create(&admin, &topic, 1);
        described(&admin, &topic, 1);
        let resource = ConfigResource::topic(&topic);
        let change = |changes: Vec<AlterConfigOp>| -> Result<(), Error> {
            let change = [(resource.clone(), changes)];
            admin.incremental_alter_configs(&change).wait()?.all().map(|_| ())
        };
        change(vec![
            AlterConfigOp::set("retention.ms", "5000"),
            AlterConfigOp::append("cleanup.policy", "compact"),
        ])
        .unwrap();
        becomes(&admin, &resource, "retention.ms", "5000");
        assert_eq!(value(&admin, &resource, "cleanup.policy").unwrap(), "delete,compact");
        change(vec![AlterConfigOp::subtract("cleanup.policy", "compact")]).unwrap();
        becomes(&admin, &resource, "cleanup.policy", "delete");
        change(vec![AlterConfigOp::delete("retention.ms")]).unwrap();
        becomes(&admin, &resource, "retention.ms", "604800000");
        let error = change(vec![AlterConfigOp::set("retention.ms", "soon")]).unwrap_err();
        assert_eq!(error.kafka_code(), Some(INVALID_CONFIG), "{error}");
        assert!(error.to_string().contains("retention.ms"), "{error}");

        let whole = [(resource.clone(), vec![("segment.bytes".to_owned(), "1048576".to_owned())])];
        admin.alter_configs(&whole).wait().unwrap().all().unwrap();
        becomes(&admin, &resource, "segment.bytes", "1048576");

        let call = admin.describe_configs(std::slice::from_ref(&resource));
        let told = call.include_synonyms(true).include_documentation(true).wait().unwrap();
        let entries = told.get(&resource).unwrap();
        let entry = entries.iter().find(|entry| entry.name == "segment.bytes").unwrap();
        assert_eq!((entry.source, entry.is_default()), (ConfigSource::DynamicTopic, false));
        assert!(entry.synonyms.iter().any(|one| one.name == "log.segment.bytes"), "{entry:?}");
        assert!(entry.documentation.as_ref().is_some_and(|text| !text.is_empty()));
    });
}

#[test]
fn a_broker_answers_for_its_own_options_and_an_unknown_one_is_named() {
    within_limit(|| {
        let cluster = Cluster::start();
        let admin = admin(&cluster);
        let told = admin.describe_cluster().wait().unwrap();
        let node = told.nodes[0].id;
        let (own, other) = (ConfigResource::broker(node), ConfigResource::broker(4711));
        let told = admin.describe_configs(&[own.clone(), other.clone()]).wait().unwrap();
        assert!(told.get(&own).unwrap().iter().any(|one| one.name == "log.retention.ms"));
        let error = told.get(&other).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{error}");
        assert!(error.to_string().contains("no broker 4711"), "{error}");
        let kinds = [ConfigResourceType::Broker];
        let resources = admin.list_config_resources(&kinds).wait().unwrap();
        assert!(resources.contains(&own), "{resources:?}");
        assert!(resources.iter().all(|one| one.kind == ConfigResourceType::Broker));
    });
}

#[test]
fn the_cluster_its_folders_and_its_producers_are_told() {
    within_limit(|| {
        let cluster = Cluster::start();
        let admin = admin(&cluster);
        let topic = fresh("held");
        create(&admin, &topic, 1);
        write(&cluster, &topic, &[1, 2, 3]);
        let told = admin.describe_cluster().include_fenced_brokers(true).wait().unwrap();
        assert!(!told.cluster_id.is_empty());
        assert_eq!(told.nodes.len(), 1);
        let node = &told.nodes[0];
        assert_eq!(told.controller, Some(node.id));
        let features = admin.describe_features().wait().unwrap();
        let level = features.finalized_features["metadata.version"];
        assert!(level.min_version_level > 0, "{features:?}");
        let known = features.supported_features["metadata.version"];
        let known = known.min_version..=known.max_version;
        assert!(known.contains(&level.max_version_level), "{features:?}");
        assert!(features.supported_features.contains_key("kraft.version"), "{features:?}");
        assert!(features.finalized_features_epoch.is_some(), "{features:?}");
        assert!(cluster.bootstrap().ends_with(&format!(":{}", node.port)), "{node:?}");
        assert!(!node.is_fenced);

        let at = TopicPartition::new(topic.as_str(), 0);
        for brokers in [&[node.id][..], &[]] {
            let dirs = admin.describe_log_dirs(brokers).wait().unwrap();
            let dirs = dirs.get(&node.id).unwrap();
            let replica =
                dirs.iter().flat_map(|dir| &dir.replicas).find(|replica| replica.partition == at);
            assert!(replica.unwrap().size > 0, "{dirs:?}");
            assert!(dirs.iter().all(|dir| dir.error.is_none() && !dir.path.is_empty()));
        }
        let told = admin.describe_producers(std::slice::from_ref(&at)).wait().unwrap();
        let producers = told.get(&at).unwrap();
        assert_eq!(producers.len(), 1, "{producers:?}");
        assert_eq!(producers[0].last_sequence, 2);
        assert_eq!(producers[0].current_transaction_start_offset, None);
    });
}

#[test]
fn offsets_are_found_by_time_and_epoch_and_records_deleted() {
    within_limit(|| {
        let cluster = Cluster::start();
        let admin = admin(&cluster);
        let topic = fresh("timed");
        let kept = NewTopic::new(&topic).partitions(1).config("retention.ms", "-1");
        admin.create_topics(&[kept]).wait().unwrap().all().unwrap();
        let now = 1_700_000_000_000;
        write(&cluster, &topic, &[now, now + 5000, now + 2000, now + 3000]);
        let at = TopicPartition::new(topic.as_str(), 0);
        let offset = |spec| {
            let found = admin.list_offsets(&[(at.clone(), spec)]).wait().unwrap();
            let found = *found.get(&at).unwrap();
            (found.offset, found.timestamp)
        };
        assert_eq!(offset(OffsetSpec::Earliest), (0, -1));
        assert_eq!(offset(OffsetSpec::Latest), (4, -1));
        assert_eq!(offset(OffsetSpec::Timestamp(now + 1)), (1, now + 5000));
        assert_eq!(offset(OffsetSpec::Timestamp(now + 9000)), (-1, -1));
        assert_eq!(offset(OffsetSpec::MaxTimestamp), (1, now + 5000));
        assert_eq!(offset(OffsetSpec::EarliestLocal).0, 0);
        assert_eq!(offset(OffsetSpec::LatestTiered).0, -1);
        let epochs = admin.offsets_for_leader_epoch(&[(at.clone(), 0)]).wait().unwrap();
        let epoch = *epochs.get(&at).unwrap();
        assert_eq!((epoch.leader_epoch, epoch.end_offset), (Some(0), Some(4)));

        let deleted = admin.delete_records(&[(at.clone(), 3)]).wait().unwrap();
        assert_eq!(deleted.get(&at).unwrap().low_watermark, 3);
        assert_eq!(offset(OffsetSpec::Earliest).0, 3);
        let deleted = admin.delete_records(&[(at.clone(), 9)]).wait().unwrap();
        let error = deleted.get(&at).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::OffsetOutOfRange, "{error}");
        assert_eq!((error.topic(), error.partition()), (Some(topic.as_str()), Some(0)));
        let deleted = admin.delete_records(&[(at.clone(), -1)]).wait().unwrap();
        assert_eq!(deleted.get(&at).unwrap().low_watermark, 4);
    });
}

#[test]
fn a_partition_that_is_not_there_ends_by_itself_and_soon() {
    within_limit(|| {
        let cluster = Cluster::start();
        let admin = admin(&cluster);
        let topic = fresh("one");
        create(&admin, &topic, 1);
        let [here, beyond] = [0, 7].map(|number| TopicPartition::new(topic.as_str(), number));
        let unknown = TopicPartition::new(fresh("none"), 0);
        let wanted = [&here, &beyond, &unknown].map(|at| (at.clone(), OffsetSpec::Latest));
        let found = admin.list_offsets(&wanted).wait().unwrap();
        assert_eq!(found.get(&here).unwrap().offset, 0);
        let error = found.get(&beyond).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidPartition, "{error}");
        assert_eq!(found.get(&unknown).unwrap_err().kind(), ErrorKind::UnknownTopic);
    });
}

#[test]
fn a_call_is_awaited_under_any_executor_and_many_go_at_once() {
    within_limit(|| {
        let cluster = Cluster::start();
        let admin = admin(&cluster);
        let topics: Vec<String> = (0..20).map(|_| fresh("at-once")).collect();
        let sent: Vec<_> = topics
            .iter()
            .map(|topic| admin.create_topics(&[NewTopic::new(topic).partitions(1)]).send())
            .collect();
        for (topic, pending) in topics.iter().zip(sent) {
            let created = block_on(pending).0.unwrap();
            assert_ne!(created.get(topic.as_str()).unwrap().topic_id, Uuid::ZERO);
        }
        // Of Kafka's brokers each learns of a topic in its own time.
        let mut lists = 0;
        loop {
            let told = block_on(async { admin.list_topics().await }).0.unwrap();
            lists += 1;
            if topics.iter().all(|topic| told.iter().any(|one| one.name == *topic)) {
                break;
            }
        }
        let stats = admin.stats();
        assert_eq!((stats.calls, stats.calls_open), (20 + lists, 0));
    });
}

#[test]
fn a_call_to_nobody_ends_with_its_time_and_says_why() {
    within_limit(|| {
        let address = nobody();
        let admin = Admin::new(&options(&address, &[])).unwrap();
        let short = Duration::from_millis(300);
        let names_it = |error: &Error| error.to_string().contains(&address);
        let error = given_time(names_it, |times| {
            let call = admin.create_topics(&[NewTopic::new("t")]).timeout(short * times);
            let created = call.wait().unwrap();
            created.get("t").unwrap_err().clone()
        });
        assert_eq!(error.kind(), ErrorKind::Timeout, "{error}");
        assert!(names_it(&error), "{error}");
        assert!(error.to_string().contains("is the broker running"), "{error}");
        let error = given_time(names_it, |times| {
            admin.list_groups().timeout(short * times).wait().unwrap_err()
        });
        assert_eq!(error.kind(), ErrorKind::Timeout, "{error}");
        assert!(names_it(&error), "{error}");
    });
}

#[test]
fn close_ends_what_is_open_and_refuses_what_comes() {
    within_limit(|| {
        let admin = Admin::new(&options(&nobody(), &[("admin.calls.max", "2")])).unwrap();
        let open = [admin.list_topics().send(), admin.list_topics().send()];
        let error = admin.list_topics().wait().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::BufferFull, "{error}");
        assert!(error.hint().is_some_and(|hint| hint.contains("admin.calls.max")), "{error}");
        admin.close(Duration::from_millis(50)).unwrap();
        for pending in open {
            assert_eq!(pending.wait().unwrap_err().kind(), ErrorKind::Closed);
        }
        assert_eq!(admin.list_topics().wait().unwrap_err().kind(), ErrorKind::Closed);
        admin.close(LIMIT).unwrap();
        let never = Admin::new(&options(&nobody(), &[])).unwrap();
        never.close(LIMIT).unwrap();
        assert_eq!(never.list_topics().wait().unwrap_err().kind(), ErrorKind::Closed);
    });
}
