//! The books: what was sent, acknowledged and read of each partition, in a few numbers.
//!
//! Each partition that is checked has one writer, which numbers its records. So the highest number
//! stands for all below it, and the books never grow.

use std::sync::atomic::{AtomicU64, Ordering};

use ottla::TopicPartition;

/// Topics whose records are checked, with their partitions and their producer's codec.
pub(crate) const TOPICS: [(&str, i32, &str); 4] =
    [("awaited", 3, "lz4"), ("called", 3, "zstd"), ("pushed", 3, "none"), ("large", 1, "gzip")];

/// Bytes that stand before a value's filling: its number, and that of its lane.
pub(crate) const HEAD: usize = 16;
/// Largest value: with what surrounds it, it is just below `max.request.size`.
pub(crate) const LARGEST: usize = 1_048_576 - 512;
/// Where a filling begins, at the most.
const STARTS: u64 = 4_096;

/// A partition that is checked.
#[derive(Debug)]
pub(crate) struct Lane {
    pub(crate) place: TopicPartition,
    /// The number of the last record that a producer took.
    sent: AtomicU64,
    /// The number up to which all are acknowledged.
    acked: AtomicU64,
    /// The number up to which all were read.
    read: AtomicU64,
}

/// The books of all lanes.
#[derive(Debug)]
pub(crate) struct Ledger {
    lanes: Vec<Lane>,
    /// What values are filled with: text that compresses as JSON does.
    filling: Vec<u8>,
}

impl Ledger {
    pub(crate) fn new() -> Self {
        let lanes = TOPICS.iter().flat_map(|&(topic, partitions, _)| {
            (0..partitions).map(move |partition| Lane {
                place: TopicPartition::new(topic, partition),
                sent: AtomicU64::new(0),
                acked: AtomicU64::new(0),
                read: AtomicU64::new(0),
            })
        });
        let mut filling = Vec::new();
        let mut number = 1_u64;
        while filling.len() < LARGEST + 2 * 4_096 {
            number = number.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let text = format!("{{\"flight\":{},\"state\":\"on its way\"}},", number >> 40);
            filling.extend_from_slice(text.as_bytes());
        }
        Self { lanes: lanes.collect(), filling }
    }

    pub(crate) fn lanes(&self) -> &[Lane] {
        &self.lanes
    }

    /// The numbers of a topic's lanes.
    pub(crate) fn of_topic(&self, topic: &str) -> Vec<usize> {
        let lanes = self.lanes.iter().enumerate();
        lanes.filter(|(_, lane)| &*lane.place.topic == topic).map(|(at, _)| at).collect()
    }

    pub(crate) fn find(&self, place: &TopicPartition) -> Option<usize> {
        self.lanes.iter().position(|lane| lane.place == *place)
    }

    /// Writes the value of a lane's next record into `value`, of so many bytes; its number.
    pub(crate) fn next(&self, lane: usize, bytes: usize, value: &mut Vec<u8>) -> u64 {
        let number = self.lanes.get(lane).map_or(0, |lane| lane.sent.load(Ordering::Relaxed)) + 1;
        value.clear();
        value.extend_from_slice(&number.to_be_bytes());
        value.extend_from_slice(&u64::try_from(lane).unwrap_or(u64::MAX).to_be_bytes());
        value.extend_from_slice(self.filling(number, bytes.saturating_sub(HEAD)));
        number
    }

    fn filling(&self, number: u64, bytes: usize) -> &[u8] {
        let from = usize::try_from(number % STARTS).unwrap_or(0);
        self.filling.get(from..from + bytes).unwrap_or_default()
    }

    /// A producer took the record of this number.
    pub(crate) fn sent(&self, lane: usize, number: u64) {
        if let Some(lane) = self.lanes.get(lane) {
            lane.sent.store(number, Ordering::Release);
        }
    }

    /// All up to this number are acknowledged.
    pub(crate) fn acked(&self, lane: usize, number: u64) {
        if let Some(lane) = self.lanes.get(lane) {
            lane.acked.fetch_max(number, Ordering::AcqRel);
        }
    }

    /// Notes a record that was read, and what is wrong with it.
    pub(crate) fn read(&self, at: usize, value: &[u8]) -> Result<(), String> {
        let Some(lane) = self.lanes.get(at) else { return Err(format!("there is no lane {at}")) };
        let (Some(number), Some(of)) = (word(value, 0), word(value, 8)) else {
            return Err(format!("{}: a record of {} bytes", lane.place, value.len()));
        };
        if of != u64::try_from(at).unwrap_or(u64::MAX) {
            return Err(format!("{}: record {number} of lane {of}", lane.place));
        }
        let filling = value.get(HEAD..).unwrap_or_default();
        if filling != self.filling(number, filling.len()) {
            return Err(format!(
                "{}: record {number} has other bytes than it was sent",
                lane.place
            ));
        }
        lane.follow(number)
    }

    /// Sent, acknowledged and read, over all lanes.
    pub(crate) fn totals(&self) -> [u64; 3] {
        let sum = |of: fn(&Lane) -> &AtomicU64| {
            self.lanes.iter().map(|lane| of(lane).load(Ordering::Acquire)).sum()
        };
        [sum(|lane| &lane.sent), sum(|lane| &lane.acked), sum(|lane| &lane.read)]
    }

    /// Up to where each lane is acknowledged now.
    pub(crate) fn goal(&self) -> Vec<u64> {
        self.lanes.iter().map(|lane| lane.acked.load(Ordering::Acquire)).collect()
    }

    /// The first lane that was not read so far.
    pub(crate) fn behind(&self, goal: &[u64]) -> Option<String> {
        self.lanes.iter().zip(goal).find_map(|(lane, &goal)| {
            let read = lane.read.load(Ordering::Acquire);
            (read < goal)
                .then(|| format!("{}: read up to {read}, and {goal} was acknowledged", lane.place))
        })
    }

    /// What is left open at the end: lanes of which not all that was sent is acknowledged and read.
    pub(crate) fn open(&self) -> Option<String> {
        self.lanes.iter().find_map(|lane| {
            let [sent, acked, read] =
                [&lane.sent, &lane.acked, &lane.read].map(|number| number.load(Ordering::Acquire));
            (acked != sent || read != sent)
                .then(|| format!("{}: sent {sent}, acknowledged {acked}, read {read}", lane.place))
        })
    }
}

impl Lane {
    /// The next record read has this number: it is the one after the last, or something is wrong.
    fn follow(&self, number: u64) -> Result<(), String> {
        let last = self.read.load(Ordering::Acquire);
        if number <= last {
            return Err(format!(
                "{}: record {number} came again, or late, after {last}",
                self.place
            ));
        }
        self.read.store(number, Ordering::Release);
        if number > last + 1 {
            let missing = number - last - 1;
            return Err(format!("{}: {missing} missing between {last} and {number}", self.place));
        }
        Ok(())
    }
}

/// Eight bytes of a value as a number.
pub(crate) fn word(value: &[u8], at: usize) -> Option<u64> {
    value.get(at..at + 8)?.try_into().ok().map(u64::from_be_bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The values of a lane's first records.
    fn values(ledger: &Ledger, lane: usize, count: u64) -> Vec<Vec<u8>> {
        let mut values = Vec::new();
        for number in 1..=count {
            let mut value = Vec::new();
            assert_eq!(ledger.next(lane, 100, &mut value), number);
            assert_eq!(value.len(), 100);
            ledger.sent(lane, number);
            values.push(value);
        }
        values
    }

    /// What is said of records that are read in this order.
    fn told(order: &[usize]) -> Vec<String> {
        let ledger = Ledger::new();
        let values = values(&ledger, 0, 4);
        order.iter().filter_map(|&at| ledger.read(0, &values[at]).err()).collect()
    }

    #[test]
    fn records_in_order_are_read_without_a_word_and_nothing_is_open() {
        let ledger = Ledger::new();
        let values = values(&ledger, 3, 3);
        assert_eq!(ledger.open().unwrap(), "called-0: sent 3, acknowledged 0, read 0");
        ledger.acked(3, 3);
        assert_eq!(
            ledger.behind(&ledger.goal()).unwrap(),
            "called-0: read up to 0, and 3 was acknowledged"
        );
        for value in &values {
            ledger.read(3, value).unwrap();
        }
        assert_eq!((ledger.behind(&ledger.goal()), ledger.open()), (None, None));
        assert_eq!(ledger.totals(), [3, 3, 3]);
    }

    #[test]
    fn a_missing_a_doubled_and_a_swapped_record_are_noticed() {
        assert!(told(&[0, 1, 2, 3]).is_empty());
        assert_eq!(told(&[0, 2, 3]), ["awaited-0: 1 missing between 1 and 3"]);
        assert_eq!(told(&[0, 1, 1, 2, 3]), ["awaited-0: record 2 came again, or late, after 2"]);
        assert_eq!(
            told(&[0, 2, 1, 3]),
            [
                "awaited-0: 1 missing between 1 and 3",
                "awaited-0: record 2 came again, or late, after 3"
            ]
        );
    }

    #[test]
    fn a_record_of_another_lane_or_with_other_bytes_is_noticed() {
        let ledger = Ledger::new();
        let mut value = values(&ledger, 0, 1).remove(0);
        assert_eq!(ledger.read(1, &value).unwrap_err(), "awaited-1: record 1 of lane 0");
        value[50] ^= 1;
        assert!(ledger.read(0, &value).unwrap_err().contains("other bytes"));
        assert!(ledger.read(0, &value[..9]).unwrap_err().contains("9 bytes"));
    }

    #[test]
    fn the_last_record_that_does_not_come_is_noticed_at_the_end() {
        let ledger = Ledger::new();
        let values = values(&ledger, 9, 2);
        ledger.acked(9, 2);
        ledger.read(9, &values[0]).unwrap();
        assert_eq!(ledger.open().unwrap(), "large-0: sent 2, acknowledged 2, read 1");
    }
}
