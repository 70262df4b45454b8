//! Who reads which partition: the `range` strategy, and its bytes in the group protocol.

use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::sync::Arc;

use ottla_protocol::messages::consumer_protocol_assignment::TopicPartition as AssignedTopic;
use ottla_protocol::messages::{ConsumerProtocolAssignment, ConsumerProtocolSubscription};
use ottla_protocol::{DecodeError, EncodeError, Message, Reader, Writer};

use crate::record::TopicPartition;

/// The strategy's name on the wire.
pub(crate) const RANGE: &str = "range";
/// The kind of group on the wire.
pub(crate) const PROTOCOL_TYPE: &str = "consumer";
/// Newest version of both schemas.
const VERSION: i16 = 3;

/// One member of a group, as the leader sees it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Member {
    pub(crate) id: String,
    pub(crate) instance_id: Option<String>,
    pub(crate) topics: Vec<Arc<str>>,
}

/// What one member is to read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Share {
    pub(crate) member_id: String,
    pub(crate) topics: BTreeMap<Arc<str>, Vec<i32>>,
}

/// Shares every topic out in ranges of neighbouring partitions, as Kafka's `RangeAssignor`.
///
/// Topics without a count are left out. Every member has a share, which may be empty.
pub(crate) fn range(members: &[Member], counts: &BTreeMap<Arc<str>, i32>) -> Vec<Share> {
    let mut ordered: Vec<&Member> = members.iter().collect();
    ordered.sort_by(|a, b| member_order(a, b));
    let mut shares: Vec<Share> = ordered
        .iter()
        .map(|member| Share { member_id: member.id.clone(), topics: BTreeMap::new() })
        .collect();
    for (topic, &count) in counts {
        let readers: Vec<usize> = ordered
            .iter()
            .enumerate()
            .filter(|(_, member)| member.topics.contains(topic))
            .map(|(index, _)| index)
            .collect();
        let Ok(reader_count) = i32::try_from(readers.len()) else { continue };
        if reader_count == 0 || count <= 0 {
            continue;
        }
        let (each, extra) = (count / reader_count, count % reader_count);
        let mut from = 0;
        for (place, index) in (0..).zip(readers) {
            let to = from + each + i32::from(place < extra);
            if let Some(share) = shares.get_mut(index).filter(|_| to > from) {
                share.topics.insert(Arc::clone(topic), (from..to).collect());
            }
            from = to;
        }
    }
    shares
}

/// KIP-345: static members come first, by instance id, so that a restart moves nothing.
fn member_order(a: &Member, b: &Member) -> Ordering {
    match (&a.instance_id, &b.instance_id) {
        (Some(a), Some(b)) => utf16_order(a, b),
        (Some(_), None) => Ordering::Less,
        (None, Some(_)) => Ordering::Greater,
        (None, None) => utf16_order(&a.id, &b.id),
    }
}

/// The order of Java's strings, so that every leader of a mixed group finds the same ranges.
fn utf16_order(a: &str, b: &str) -> Ordering {
    a.encode_utf16().cmp(b.encode_utf16())
}

/// The metadata a member joins with.
pub(crate) fn encode_subscription(topics: &[Arc<str>]) -> Result<Vec<u8>, EncodeError> {
    let message = ConsumerProtocolSubscription {
        topics: topics.iter().map(|topic| &**topic).collect(),
        ..Default::default()
    };
    encode(&message)
}

/// The topics in a member's metadata, of whichever version it wrote.
pub(crate) fn decode_subscription(bytes: &[u8]) -> Result<Vec<Arc<str>>, DecodeError> {
    let message: ConsumerProtocolSubscription<'_> = decode(bytes)?;
    Ok(message.topics.iter().map(|topic| Arc::from(*topic)).collect())
}

/// A share as the leader sends it.
pub(crate) fn encode_assignment(share: &Share) -> Result<Vec<u8>, EncodeError> {
    let assigned_partitions = share
        .topics
        .iter()
        .map(|(topic, partitions)| AssignedTopic { topic, partitions: partitions.clone() })
        .collect();
    encode(&ConsumerProtocolAssignment { assigned_partitions, ..Default::default() })
}

/// The partitions in an assignment; no bytes are no partitions.
pub(crate) fn decode_assignment(bytes: &[u8]) -> Result<Vec<TopicPartition>, DecodeError> {
    if bytes.is_empty() {
        return Ok(Vec::new());
    }
    let message: ConsumerProtocolAssignment<'_> = decode(bytes)?;
    let mut found = Vec::new();
    for assigned in &message.assigned_partitions {
        let topic: Arc<str> = Arc::from(assigned.topic);
        for &partition in assigned.partitions.iter().filter(|&&partition| partition >= 0) {
            found.push(TopicPartition { topic: Arc::clone(&topic), partition });
        }
    }
    found.sort();
    found.dedup();
    Ok(found)
}

fn encode<'a, M: Message<'a>>(message: &M) -> Result<Vec<u8>, EncodeError> {
    let mut writer = Writer::new();
    writer.i16(VERSION);
    message.encode(&mut writer, VERSION)?;
    Ok(writer.into_bytes())
}

/// A newer version only adds fields at the end, which are left unread (KIP-429).
fn decode<'a, M: Message<'a>>(bytes: &'a [u8]) -> Result<M, DecodeError> {
    let mut reader = Reader::new(bytes);
    let version = reader.i16()?;
    M::decode(&mut reader, version.clamp(0, VERSION))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn member(id: &str, instance_id: Option<&str>, topics: &[&str]) -> Member {
        Member {
            id: id.into(),
            instance_id: instance_id.map(Into::into),
            topics: topics.iter().map(|topic| Arc::from(*topic)).collect(),
        }
    }

    fn counts(rows: &[(&str, i32)]) -> BTreeMap<Arc<str>, i32> {
        rows.iter().map(|(topic, count)| (Arc::from(*topic), *count)).collect()
    }

    fn shares(members: &[Member], rows: &[(&str, i32)]) -> Vec<String> {
        range(members, &counts(rows))
            .iter()
            .map(|share| {
                let topics: Vec<String> = share
                    .topics
                    .iter()
                    .map(|(topic, partitions)| format!("{topic}{partitions:?}"))
                    .collect();
                format!("{}:{}", share.member_id, topics.join(""))
            })
            .collect()
    }

    #[test]
    fn range_gives_the_first_members_one_more() {
        let two = [member("b", None, &["t"]), member("a", None, &["t"])];
        assert_eq!(shares(&two, &[("t", 3)]), ["a:t[0, 1]", "b:t[2]"]);
        assert_eq!(shares(&two, &[("t", 1)]), ["a:t[0]", "b:"]);
        let three =
            [member("c", None, &["t"]), member("a", None, &["t"]), member("b", None, &["t"])];
        assert_eq!(shares(&three, &[("t", 7)]), ["a:t[0, 1, 2]", "b:t[3, 4]", "c:t[5, 6]"]);
        assert_eq!(shares(&three, &[("t", 2)]), ["a:t[0]", "b:t[1]", "c:"]);
    }

    #[test]
    fn range_treats_every_topic_alone() {
        let two = [member("a", None, &["x", "y"]), member("b", None, &["x", "y"])];
        assert_eq!(
            shares(&two, &[("x", 3), ("y", 3)]),
            ["a:x[0, 1]y[0, 1]", "b:x[2]y[2]"],
            "the first member has one more of each"
        );
        let mixed = [member("a", None, &["x"]), member("b", None, &["x", "y"])];
        assert_eq!(shares(&mixed, &[("x", 2), ("y", 3)]), ["a:x[0]", "b:x[1]y[0, 1, 2]"]);
    }

    #[test]
    fn range_puts_static_members_first_by_instance_id() {
        let members = [
            member("a-dynamic", None, &["t"]),
            member("z", Some("i1"), &["t"]),
            member("y", Some("i2"), &["t"]),
        ];
        assert_eq!(shares(&members, &[("t", 3)]), ["z:t[0]", "y:t[1]", "a-dynamic:t[2]"]);
    }

    #[test]
    fn range_leaves_out_topics_without_partitions_or_readers() {
        let one = [member("a", None, &["gone", "t"])];
        assert_eq!(shares(&one, &[("t", 1), ("unread", 4), ("empty", 0)]), ["a:t[0]"]);
        assert!(range(&[], &counts(&[("t", 1)])).is_empty());
    }

    #[test]
    fn subscriptions_and_assignments_come_back_as_they_were() {
        let topics: Vec<Arc<str>> = vec!["a".into(), "b".into()];
        let bytes = encode_subscription(&topics).unwrap();
        assert_eq!(decode_subscription(&bytes).unwrap(), topics);
        let share = Share {
            member_id: "m".into(),
            topics: [(Arc::from("a"), vec![0, 2]), (Arc::from("b"), vec![1])].into(),
        };
        let found = decode_assignment(&encode_assignment(&share).unwrap()).unwrap();
        let found: Vec<String> = found.iter().map(ToString::to_string).collect();
        assert_eq!(found, ["a-0", "a-2", "b-1"]);
        assert!(decode_assignment(&[]).unwrap().is_empty());
    }

    #[test]
    fn a_subscription_of_an_old_or_a_future_member_is_read() {
        // Version 0: topics and user data alone, as kafka-python and librdkafka write it.
        let old = [0, 0, 0, 0, 0, 1, 0, 1, b't', 0xff, 0xff, 0xff, 0xff];
        assert_eq!(decode_subscription(&old).unwrap(), [Arc::from("t")]);
        let mut future = encode_subscription(&[Arc::from("t")]).unwrap();
        future.extend_from_slice(&[1, 2, 3]);
        if let Some(low) = future.get_mut(1) {
            *low = 9;
        }
        assert_eq!(decode_subscription(&future).unwrap(), [Arc::from("t")]);
        assert!(decode_subscription(&[0]).is_err());
        assert!(decode_assignment(&[0, 1, 0x7f, 0xff, 0xff, 0xff]).is_err());
    }
}
