//! Record batches from a short description, and back into fields that can be compared.

use super::bytes::{Bytes, crc32c, put_varint};
use super::value::Value;

/// Bytes before the first record.
const HEADER: usize = 61;
/// Bytes before what the length counts.
const PREFIX: usize = 12;
/// Where what the checksum covers begins.
const CHECKED_FROM: usize = 21;
/// The bits of the attributes that name a codec.
const CODEC_BITS: i64 = 7;
/// The time of a first record when none is given.
const TIME: i64 = 1000;

/// What stands in the header of a batch when nothing else is said.
struct Header<'o> {
    given: &'o [(String, Value)],
}

impl Header<'_> {
    fn number(&self, name: &str, unset: i64) -> Result<i64, String> {
        match self.find(name) {
            None => Ok(unset),
            Some(Value::Number(number)) => Ok(*number),
            Some(other) => Err(format!("{name}: {other} is no number")),
        }
    }

    fn find(&self, name: &str) -> Option<&Value> {
        self.given.iter().find(|(given, _)| given == name).map(|(_, value)| value)
    }

    fn check_names(&self) -> Result<(), String> {
        const NAMES: &[&str] = &[
            "offset",
            "length",
            "leader",
            "magic",
            "crc",
            "attributes",
            "last",
            "time",
            "max",
            "pid",
            "epoch",
            "seq",
            "count",
            "body",
        ];
        let unknown = self.given.iter().find(|(name, _)| !NAMES.contains(&name.as_str()));
        match unknown {
            None => Ok(()),
            Some((name, _)) => Err(format!("a batch has no {name}; only {}", NAMES.join(", "))),
        }
    }
}

/// `batch(["value", {k: "key", v: null, t: 5, h: [["name", "value"]]}], {pid: 7, seq: 0})`
pub(super) fn encode(records: &[Value], given: &[(String, Value)]) -> Result<Vec<u8>, String> {
    let header = Header { given };
    header.check_names()?;
    let base = header.number("time", TIME)?;
    let (mut body, mut latest) = (Vec::new(), base);
    for (at, record) in records.iter().enumerate() {
        let at = i64::try_from(at).unwrap_or_default();
        let time = match record.field("t") {
            Some(Value::Number(time)) => *time,
            _ => base,
        };
        latest = latest.max(time);
        let record = encode_record(record, at, time - base)?;
        put_varint(&mut body, i64::try_from(record.len()).unwrap_or_default());
        body.extend(record);
    }
    if let Some(Value::Bytes(other)) = header.find("body") {
        body.clone_from(other);
    }
    let count = i64::try_from(records.len()).unwrap_or_default();
    let mut checked = Vec::new();
    let put = |out: &mut Vec<u8>, name: &str, unset: i64, width: usize| {
        header.number(name, unset).map(|number| {
            out.extend_from_slice(&number.to_be_bytes()[8 - width..]);
        })
    };
    put(&mut checked, "attributes", 0, 2)?;
    put(&mut checked, "last", count - 1, 4)?;
    put(&mut checked, "time", TIME, 8)?;
    put(&mut checked, "max", latest, 8)?;
    put(&mut checked, "pid", -1, 8)?;
    put(&mut checked, "epoch", -1, 2)?;
    put(&mut checked, "seq", -1, 4)?;
    put(&mut checked, "count", count, 4)?;
    checked.extend(body);
    let mut out = Vec::new();
    put(&mut out, "offset", 0, 8)?;
    let length = i64::try_from(CHECKED_FROM - PREFIX + checked.len()).unwrap_or_default();
    put(&mut out, "length", length, 4)?;
    put(&mut out, "leader", -1, 4)?;
    put(&mut out, "magic", 2, 1)?;
    put(&mut out, "crc", i64::from(crc32c(&checked)), 4)?;
    out.extend(checked);
    Ok(out)
}

fn encode_record(record: &Value, at: i64, later: i64) -> Result<Vec<u8>, String> {
    let (key, value, headers) = match record {
        Value::Struct(_) => (record.field("k"), record.field("v"), record.field("h")),
        plain => (None, Some(plain), None),
    };
    let mut out = vec![0];
    put_varint(&mut out, later);
    put_varint(&mut out, at);
    put_prefixed(&mut out, key)?;
    put_prefixed(&mut out, value)?;
    let headers = match headers {
        None => &[],
        Some(Value::List(headers)) => headers.as_slice(),
        Some(other) => return Err(format!("h: {other} is no list")),
    };
    put_varint(&mut out, i64::try_from(headers.len()).unwrap_or_default());
    for header in headers {
        let Value::List(pair) = header else { return Err(format!("h: {header} is no pair")) };
        put_prefixed(&mut out, pair.first())?;
        put_prefixed(&mut out, pair.get(1))?;
    }
    Ok(out)
}

fn put_prefixed(out: &mut Vec<u8>, value: Option<&Value>) -> Result<(), String> {
    let bytes = match value {
        None | Some(Value::Null) => {
            put_varint(out, -1);
            return Ok(());
        }
        Some(Value::Text(text)) => text.as_bytes(),
        Some(Value::Bytes(bytes)) => bytes,
        Some(other) => return Err(format!("{other} is neither text nor bytes")),
    };
    put_varint(out, i64::try_from(bytes.len()).unwrap_or_default());
    out.extend_from_slice(bytes);
    Ok(())
}

/// The batches in a field of records. What is cut short at its end is left out (KIP-74 allows a
/// broker to cut); what is no batch is left as bytes.
pub(super) fn decode(bytes: &[u8]) -> Value {
    let mut batches = Vec::new();
    let mut rest = bytes;
    while !rest.is_empty() {
        let Some(size) = whole(rest) else {
            if batches.is_empty() {
                batches.push(Value::Bytes(rest.to_vec()));
            }
            break;
        };
        let (one, after) = rest.split_at(size);
        rest = after;
        batches.push(decode_batch(one).unwrap_or_else(|_| Value::Bytes(one.to_vec())));
    }
    Value::List(batches)
}

/// The size of the batch that the bytes begin with, if all of it is there.
fn whole(bytes: &[u8]) -> Option<usize> {
    let length = Bytes::new(bytes.get(8..PREFIX)?).number(4).ok()?;
    let size = usize::try_from(length).ok()? + PREFIX;
    (size >= HEADER && size <= bytes.len()).then_some(size)
}

fn decode_batch(bytes: &[u8]) -> Result<Value, String> {
    const FIELDS: [(&str, usize); 13] = [
        ("BaseOffset", 8),
        ("Length", 4),
        ("PartitionLeaderEpoch", 4),
        ("Magic", 1),
        ("Crc", 4),
        ("Attributes", 2),
        ("LastOffsetDelta", 4),
        ("BaseTimestamp", 8),
        ("MaxTimestamp", 8),
        ("ProducerId", 8),
        ("ProducerEpoch", 2),
        ("BaseSequence", 4),
        ("Count", 4),
    ];
    let mut from = Bytes::new(bytes);
    let (mut fields, mut codec) = (Vec::new(), 0);
    for (name, width) in FIELDS {
        let number = from.number(width)?;
        let value = match name {
            "Crc" => {
                let right = crc32c(bytes.get(CHECKED_FROM..).unwrap_or_default());
                let fits = u32::try_from(number & 0xffff_ffff) == Ok(right);
                Value::text(if fits { "right" } else { "wrong" })
            }
            _ => Value::Number(number),
        };
        if name == "Attributes" {
            codec = number & CODEC_BITS;
        }
        fields.push((name.to_owned(), value));
    }
    let body = from.all();
    let records = if codec == 0 { decode_records(body) } else { Err(String::new()) };
    let records = records.unwrap_or_else(|_| Value::Bytes(body.to_vec()));
    fields.push(("Records".to_owned(), records));
    Ok(Value::Struct(fields))
}

fn decode_records(body: &[u8]) -> Result<Value, String> {
    let mut from = Bytes::new(body);
    let mut records = Vec::new();
    while from.left() > 0 {
        let size = usize::try_from(from.varint()?).map_err(|_| "a negative size")?;
        let mut record = Bytes::new(from.take(size)?);
        let mut fields = vec![("Attributes".to_owned(), Value::Number(record.number(1)?))];
        for name in ["TimestampDelta", "OffsetDelta"] {
            fields.push((name.to_owned(), Value::Number(record.varint()?)));
        }
        for name in ["Key", "Value"] {
            fields.push((name.to_owned(), text_or_bytes(record.prefixed()?)));
        }
        let mut headers = Vec::new();
        for _ in 0..record.varint()? {
            let pair = [record.prefixed()?, record.prefixed()?];
            headers.push(Value::List(pair.into_iter().map(text_or_bytes).collect()));
        }
        record.end()?;
        fields.push(("Headers".to_owned(), Value::List(headers)));
        records.push(Value::Struct(fields));
    }
    Ok(Value::List(records))
}

fn text_or_bytes(bytes: Option<&[u8]>) -> Value {
    match bytes {
        None => Value::Null,
        Some(bytes) => match std::str::from_utf8(bytes) {
            Ok(text) => Value::text(text),
            Err(_) => Value::Bytes(bytes.to_vec()),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_batch_is_read_as_it_was_described() {
        let headers = Value::List(vec![Value::List(vec![Value::text("h"), Value::Null])]);
        let record = Value::Struct(vec![
            ("k".to_owned(), Value::text("key")),
            ("t".to_owned(), Value::Number(1005)),
            ("h".to_owned(), headers.clone()),
        ]);
        let given = [("pid".to_owned(), Value::Number(7)), ("seq".to_owned(), Value::Number(3))];
        let bytes = encode(&[Value::text("a"), record], &given).expect("a batch");
        let twice = [bytes.as_slice(), &bytes, &bytes[..70]].concat();
        let Value::List(batches) = decode(&twice) else { panic!("a list") };
        assert_eq!(batches.len(), 2, "the cut one is left out");
        let field = |name| batches[1].field(name).cloned();
        assert_eq!(field("Crc"), Some(Value::text("right")));
        assert_eq!(field("MaxTimestamp"), Some(Value::Number(1005)));
        assert_eq!(field("ProducerId"), Some(Value::Number(7)));
        let Some(Value::List(records)) = field("Records") else { panic!("records") };
        assert_eq!(records[0].field("Value"), Some(&Value::text("a")));
        assert_eq!(records[1].field("Headers"), Some(&headers));
    }

    #[test]
    fn what_is_no_batch_stays_bytes() {
        assert_eq!(decode(b"xyz"), Value::List(vec![Value::Bytes(b"xyz".to_vec())]));
        let given = [("crc".to_owned(), Value::Number(1))];
        let bytes = encode(&[Value::text("a")], &given).expect("a batch");
        let Value::List(batches) = decode(&bytes) else { panic!("a list") };
        assert_eq!(batches[0].field("Crc"), Some(&Value::text("wrong")));
        assert!(encode(&[], &[("pidd".to_owned(), Value::Number(1))]).is_err());
    }
}
