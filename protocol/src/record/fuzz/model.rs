//! The format, read once more: slowly, with copies, and without a line in common with the readers.

use super::super::{BatchHeader, RecordView};

#[derive(Debug)]
pub(super) struct Modelled {
    offset: i64,
    timestamp: i64,
    key: Option<Vec<u8>>,
    value: Option<Vec<u8>>,
    headers: Vec<(Vec<u8>, Option<Vec<u8>>)>,
}

impl Modelled {
    pub(super) fn is(&self, read: &RecordView<'_>) -> bool {
        let headers = read.headers.iter().map(|(key, value)| (key.to_vec(), value.map(Vec::from)));
        self.offset == read.offset
            && self.timestamp == read.timestamp
            && self.key.as_deref() == read.key
            && self.value.as_deref() == read.value
            && headers.eq(self.headers.iter().cloned())
    }
}

/// Bytes with a place in them; an error is the place of the field that is wrong.
struct Tape<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Tape<'a> {
    fn left(&self) -> i64 {
        i64::try_from(self.bytes.len() - self.at).unwrap()
    }

    fn byte(&mut self) -> Result<u8, usize> {
        let byte = *self.bytes.get(self.at).ok_or(self.at)?;
        self.at += 1;
        Ok(byte)
    }

    /// A zig-zag number of at most `most` bytes and `bits` bits.
    fn number(&mut self, most: usize, bits: u32) -> Result<i64, usize> {
        let start = self.at;
        let mut value = 0_u128;
        for place in 0.. {
            if place == most {
                return Err(start);
            }
            let byte = self.byte().map_err(|_| start)?;
            value |= u128::from(byte & 0x7f) << (7 * place);
            if byte & 0x80 == 0 {
                break;
            }
        }
        if value >> bits != 0 {
            return Err(start);
        }
        let half = i64::try_from(value >> 1).map_err(|_| start)?;
        Ok(if value & 1 == 1 { -half - 1 } else { half })
    }

    fn field(&mut self) -> Result<Option<&'a [u8]>, usize> {
        let start = self.at;
        match self.number(5, 32)? {
            -1 => Ok(None),
            len if len < 0 || len > self.left() => Err(start),
            len => {
                let from = self.at;
                self.at += usize::try_from(len).unwrap();
                Ok(Some(&self.bytes[from..self.at]))
            }
        }
    }
}

/// The records of a plain body, or the byte at which it is wrong.
pub(super) fn records(header: &BatchHeader, body: &[u8]) -> Result<Vec<Modelled>, usize> {
    let mut records = Vec::new();
    let mut tape = Tape { bytes: body, at: 0 };
    for _ in 0..header.records_count {
        let start = tape.at;
        let len = tape.number(5, 32)?;
        if len < 0 || len > tape.left() {
            return Err(start);
        }
        let end = tape.at + usize::try_from(len).unwrap();
        let mut record = Tape { bytes: &body[..end], at: tape.at };
        records.push(record_of(header, &mut record)?);
        tape.at = end;
    }
    if tape.left() > 0 { Err(tape.at) } else { Ok(records) }
}

fn record_of(header: &BatchHeader, record: &mut Tape<'_>) -> Result<Modelled, usize> {
    record.byte()?;
    let timestamp = header.base_timestamp.wrapping_add(record.number(10, 64)?);
    let at = record.at;
    let delta = record.number(5, 32)?;
    if delta < 0 || delta > i64::from(header.last_offset_delta) {
        return Err(at);
    }
    let key = record.field()?.map(<[u8]>::to_vec);
    let value = record.field()?.map(<[u8]>::to_vec);
    let at = record.at;
    let count = record.number(5, 32)?;
    if count < 0 || 2 * count > record.left() {
        return Err(at);
    }
    let mut headers = Vec::new();
    for _ in 0..count {
        let at = record.at;
        let key = record.field()?.ok_or(at)?.to_vec();
        headers.push((key, record.field()?.map(<[u8]>::to_vec)));
    }
    if record.left() > 0 {
        return Err(record.at);
    }
    Ok(Modelled { offset: header.base_offset + delta, timestamp, key, value, headers })
}

/// Whether the fields of a header are possible.
pub(super) fn header_is_good(bytes: &[u8]) -> bool {
    let Some(header) = bytes.get(..61) else { return false };
    let int = |at: usize| i64::from(i32::from_be_bytes(header[at..at + 4].try_into().unwrap()));
    let base = i64::from_be_bytes(header[..8].try_into().unwrap());
    let (length, last, count) = (int(8), int(23), int(57));
    let plain = header[22] % 8 == 0;
    header[16] == 2
        && length >= 49
        && last >= 0
        && i128::from(base) + i128::from(last) < i128::from(i64::MAX)
        && count >= 0
        && (!plain || count * 7 <= length - 49)
}

/// Whether the blocks of a body in the Java framing lie in it; true for other bodies.
pub(super) fn xerial_blocks_fit(body: &[u8]) -> bool {
    let magic = b"\x82SNAPPY\0";
    if !body.starts_with(magic) {
        return true;
    }
    let mut rest = body;
    while !rest.is_empty() {
        if rest.starts_with(magic) {
            rest = rest.get(16..).unwrap_or_default();
            continue;
        }
        let Some(length) = rest.get(..4) else { return false };
        let length = i32::from_be_bytes(length.try_into().unwrap());
        let Some(next) = usize::try_from(length).ok().and_then(|length| rest.get(4 + length..))
        else {
            return false;
        };
        rest = next;
    }
    true
}

/// The window that a zstd frame asks for at the front of a body, as a power of two, rounded down.
pub(super) fn zstd_window_log(body: &[u8]) -> Option<u32> {
    let [0x28, 0xb5, 0x2f, 0xfd, descriptor, window, ..] = *body else { return None };
    // A single segment has no window of its own.
    (descriptor & 0x20 == 0).then(|| 10 + u32::from(window >> 3))
}
