//! Headers of records, as a case writes them down.

use ottla_protocol::record::{Batch, BatchBuilder, BatchSeal};

use super::World;

/// Names and values; a value may be null.
pub(crate) type Headers = Vec<(Vec<u8>, Option<Vec<u8>>)>;

/// The headers of a line: `a` has null for its value, `a=` an empty one, `a=b` the bytes of `b`;
/// `0x` begins bytes in hexadecimal, and `1000*a` are so many of that name, whose values count up.
pub(crate) fn headers(text: &str) -> Headers {
    text.split_whitespace().flat_map(header).collect()
}

fn header(word: &str) -> Headers {
    if let Some((count, name)) = word.split_once('*') {
        let count: usize = count.parse().unwrap();
        let value = |at: usize| Some(at.to_string().into_bytes());
        return (0..count).map(|at| (bytes(name), value(at))).collect();
    }
    match word.split_once('=') {
        Some((name, value)) => vec![(bytes(name), Some(bytes(value)))],
        None => vec![(bytes(word), None)],
    }
}

fn bytes(text: &str) -> Vec<u8> {
    let Some(hex) = text.strip_prefix("0x") else { return text.into() };
    let byte = |at| u8::from_str_radix(&hex[at..at + 2], 16).unwrap();
    (0..hex.len()).step_by(2).map(byte).collect()
}

impl World {
    /// Appends a record with these headers, whose value is its offset.
    pub(crate) fn append_with(&mut self, at: i32, headers: &Headers) {
        let base_offset = self.end(at);
        let mut builder = BatchBuilder::default();
        let pairs = headers.iter().map(|(name, value)| (name.as_slice(), value.as_deref()));
        builder.push(1, None, Some(base_offset.to_string().as_bytes()), pairs).unwrap();
        let partition_leader_epoch = self.epoch;
        let seal = BatchSeal { base_offset, partition_leader_epoch, ..BatchSeal::default() };
        let bytes = builder.finish(&seal).unwrap().to_vec();
        self.logs.get_mut(&at).unwrap().push((base_offset, base_offset + 1, bytes));
    }

    /// The headers of the record at an offset.
    pub(crate) fn headers(&self, partition: i32, offset: i64) -> Headers {
        let holds = |(base, next, _): &&(i64, i64, Vec<u8>)| (*base..*next).contains(&offset);
        let (.., bytes) = self.logs[&partition].iter().find(holds).unwrap();
        let records = Batch::parse(bytes).unwrap().records(1 << 26).unwrap();
        let mut all = records.iter().map(Result::unwrap);
        let record = all.find(|record| record.offset == offset).unwrap();
        let own =
            |(name, value): (&[u8], Option<&[u8]>)| (name.to_vec(), value.map(<[u8]>::to_vec));
        record.headers.iter().map(own).collect()
    }
}
