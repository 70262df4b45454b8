//! The primitives, read once more: slowly, with copies, and without a line in common with `Reader`.

use crate::message::tests::allocator::most_in_use;
use crate::reader::{DecodeError, Form, Reader};

/// Bytes at the beginning of an input that say what is read from the rest.
pub(super) const HEAD: usize = 6;

/// A value that may be null, so that `Option` is left for what is refused.
type Nullable<T> = Option<T>;

/// What a field held.
#[derive(Debug, PartialEq, Eq)]
enum Value {
    Number(i128),
    Bytes(Option<Vec<u8>>),
    Numbers(Option<Vec<i32>>),
    Texts(Option<Vec<Vec<u8>>>),
    /// Tags 0 and 2, where they were there.
    Tags(Option<i32>, Option<Vec<u8>>),
}

/// A field to read.
#[derive(Debug, Clone, Copy)]
enum Field {
    Int(usize),
    Uvarint,
    Uvarlong,
    Varint,
    Varlong,
    Text(Form),
    NullableText(Form),
    Bytes(Form),
    NullableBytes(Form),
    Numbers(Form),
    Texts(Form),
    Tags,
}

impl Field {
    fn of(byte: u8) -> Self {
        let form = if byte & 0x80 == 0 { Form::Classic } else { Form::Compact };
        match byte & 0x0f {
            0 => Self::Int(1),
            1 => Self::Int(2),
            2 => Self::Int(8),
            3 => Self::Uvarint,
            4 => Self::Uvarlong,
            5 => Self::Varint,
            6 => Self::Varlong,
            7 => Self::Text(form),
            8 => Self::NullableText(form),
            9 => Self::Bytes(form),
            10 => Self::NullableBytes(form),
            11 | 12 => Self::Numbers(form),
            13 => Self::Texts(form),
            _ => Self::Tags,
        }
    }
}

/// Bytes with a place in them, and what arrays may still take; `None` is a refusal.
struct Tape<'a> {
    bytes: &'a [u8],
    at: usize,
    memory: usize,
    /// Taken so far by arrays whose count was found good.
    charged: usize,
}

impl Tape<'_> {
    fn left(&self) -> usize {
        self.bytes.len() - self.at
    }

    fn take(&mut self, count: i128) -> Option<Vec<u8>> {
        let count = usize::try_from(count).ok().filter(|count| *count <= self.left())?;
        let taken = self.bytes[self.at..self.at + count].to_vec();
        self.at += count;
        Some(taken)
    }

    fn int(&mut self, size: usize) -> Option<i128> {
        let bytes = self.take(i128::try_from(size).unwrap())?;
        let whole = bytes.iter().fold(0_i128, |whole, byte| whole * 256 + i128::from(*byte));
        let bits = 8 * u32::try_from(size).unwrap();
        Some(if whole >> (bits - 1) == 1 { whole - (1 << bits) } else { whole })
    }

    fn uvarint(&mut self, most: u32, bits: u32) -> Option<i128> {
        let mut value = 0_i128;
        for place in 0..most {
            let byte = i128::from(self.take(1)?[0]);
            value += (byte % 128) << (7 * place);
            if byte < 128 {
                return (value >> bits == 0).then_some(value);
            }
        }
        None
    }

    fn zigzag(&mut self, most: u32, bits: u32) -> Option<i128> {
        let value = self.uvarint(most, bits)?;
        Some(if value % 2 == 0 { value / 2 } else { -(value / 2) - 1 })
    }

    /// A length; the inner `None` is null.
    fn length(&mut self, form: Form, size: usize) -> Option<Nullable<i128>> {
        match form {
            Form::Compact => Some(self.uvarint(5, 32)?.checked_sub(1).filter(|n| *n >= 0)),
            Form::Classic => match self.int(size)? {
                -1 => Some(None),
                length if length < 0 => None,
                length => Some(Some(length)),
            },
        }
    }

    fn bytes(&mut self, form: Form, size: usize) -> Option<Nullable<Vec<u8>>> {
        match self.length(form, size)? {
            None => Some(None),
            Some(length) => self.take(length).map(Some),
        }
    }

    fn text(&mut self, form: Form) -> Option<Nullable<Vec<u8>>> {
        let bytes = self.bytes(form, 2)?;
        let good = bytes.as_ref().is_none_or(|bytes| String::from_utf8(bytes.clone()).is_ok());
        good.then_some(bytes)
    }

    /// `least` bytes of an element on the tape, `size` in memory.
    fn array<T>(
        &mut self,
        form: Form,
        (least, size): (usize, usize),
        element: impl Fn(&mut Self) -> Option<T>,
    ) -> Option<Nullable<Vec<T>>> {
        let Some(count) = self.length(form, 4)? else { return Some(None) };
        let count = usize::try_from(count).ok().filter(|count| *count <= self.left() / least)?;
        self.memory = self.memory.checked_sub(count * size)?;
        self.charged += count * size;
        (0..count).map(|_| element(self)).collect::<Option<Vec<T>>>().map(Some)
    }

    fn tags(&mut self) -> Option<Value> {
        let (mut first, mut second, mut last) = (None, None, -1);
        for _ in 0..self.uvarint(5, 32)? {
            let tag = self.uvarint(5, 32)?;
            let size = self.uvarint(5, 32)?;
            let inside = self.take(size)?;
            if tag <= last {
                return None;
            }
            last = tag;
            let mut inner = Tape { bytes: &inside, at: 0, memory: 0, charged: 0 };
            match tag {
                0 => first = Some(i32::try_from(inner.int(4)?).unwrap()),
                2 => second = Some(inner.text(Form::Compact)??),
                _ => continue,
            }
            if inner.left() != 0 {
                return None;
            }
        }
        Some(Value::Tags(first, second))
    }

    fn read(&mut self, field: Field) -> Option<Value> {
        Some(match field {
            Field::Int(size) => Value::Number(self.int(size)?),
            Field::Uvarint => Value::Number(self.uvarint(5, 32)?),
            Field::Uvarlong => Value::Number(self.uvarint(10, 64)?),
            Field::Varint => Value::Number(self.zigzag(5, 32)?),
            Field::Varlong => Value::Number(self.zigzag(10, 64)?),
            Field::Text(form) => Value::Bytes(Some(self.text(form)??)),
            Field::NullableText(form) => Value::Bytes(self.text(form)?),
            Field::Bytes(form) => Value::Bytes(Some(self.bytes(form, 4)??)),
            Field::NullableBytes(form) => Value::Bytes(self.bytes(form, 4)?),
            Field::Numbers(form) => {
                let int = |tape: &mut Self| i32::try_from(tape.int(4)?).ok();
                Value::Numbers(self.array(form, (4, 4), int)?)
            }
            Field::Texts(form) => {
                let least = if form == Form::Classic { 2 } else { 1 };
                Value::Texts(self.array(form, (least, size_of::<&str>()), |tape| tape.text(form)?)?)
            }
            Field::Tags => self.tags()?,
        })
    }
}

/// The same field by the product's reader, borrowed values and all.
fn read<'a>(r: &mut Reader<'a>, field: Field) -> Result<Read<'a>, DecodeError> {
    Ok(match field {
        Field::Int(1) => Read::Number(r.i8()?.into()),
        Field::Int(2) => Read::Number(r.i16()?.into()),
        Field::Int(_) => Read::Number(r.i64()?.into()),
        Field::Uvarint => Read::Number(r.uvarint()?.into()),
        Field::Uvarlong => Read::Number(r.uvarlong()?.into()),
        Field::Varint => Read::Number(r.varint()?.into()),
        Field::Varlong => Read::Number(r.varlong()?.into()),
        Field::Text(form) => Read::Bytes(Some(r.string_as(form)?.as_bytes())),
        Field::NullableText(form) => Read::Bytes(r.nullable_string_as(form)?.map(str::as_bytes)),
        Field::Bytes(form) => Read::Bytes(Some(r.bytes_as(form)?)),
        Field::NullableBytes(form) => Read::Bytes(r.nullable_bytes_as(form)?),
        Field::Numbers(form) => Read::Numbers(r.nullable_array_as(form, 4, Reader::i32)?),
        Field::Texts(form) => {
            Read::Texts(r.nullable_array_as(form, form.min_string(), |r| r.string_as(form))?)
        }
        Field::Tags => {
            let (mut first, mut second) = (None, None);
            r.tags(Form::Compact, |tag, r| {
                match tag {
                    0 => first = Some(r.i32()?),
                    2 => second = Some(r.compact_string()?.as_bytes()),
                    _ => return Ok(false),
                }
                Ok(true)
            })?;
            Read::Tags(first, second)
        }
    })
}

/// A [`Value`] that has copied nothing, so that what reading itself holds can be counted.
enum Read<'a> {
    Number(i128),
    Bytes(Option<&'a [u8]>),
    Numbers(Option<Vec<i32>>),
    Texts(Option<Vec<&'a str>>),
    Tags(Option<i32>, Option<&'a [u8]>),
}

impl From<Read<'_>> for Value {
    fn from(read: Read<'_>) -> Self {
        match read {
            Read::Number(number) => Self::Number(number),
            Read::Bytes(bytes) => Self::Bytes(bytes.map(Vec::from)),
            Read::Numbers(numbers) => Self::Numbers(numbers),
            Read::Texts(texts) => {
                let copied = |texts: Vec<&str>| texts.into_iter().map(Vec::from).collect();
                Self::Texts(texts.map(copied))
            }
            Read::Tags(first, second) => Self::Tags(first, second.map(Vec::from)),
        }
    }
}

/// Some fields after each other, by reader and model: equal values and places, or both refuse; and
/// the reader holds what the arrays that are there need, no more.
pub(super) fn fields_are_read_as_modelled(bytes: &[u8]) {
    let Some((head, data)) = bytes.split_at_checked(HEAD) else { return };
    let [memory, fields @ ..] = head else { return };
    let memory = usize::from(*memory) * 2;
    let mut r = Reader::with_memory_up_to(data, 64, memory);
    let mut tape = Tape { bytes: data, at: 0, memory, charged: 0 };
    for field in fields.iter().map(|byte| Field::of(*byte)) {
        let before = tape.charged;
        let modelled = tape.read(field);
        let (read, held) = most_in_use(|| read(&mut r, field));
        assert!(held <= tape.charged - before, "{field:?}: {held} bytes held");
        assert_eq!(read.ok().map(Value::from), modelled, "{field:?}");
        if modelled.is_none() {
            return;
        }
        assert_eq!(r.position(), tape.at, "{field:?}");
    }
    assert_eq!(r.finish().is_ok(), tape.left() == 0, "bytes left over");
}

/// The first frame of a stream and what follows; the outer error is a size that is refused.
#[expect(clippy::type_complexity, reason = "the form of `split_frame`")]
pub(super) fn frame(bytes: &[u8], most: usize) -> Result<Option<(&[u8], &[u8])>, ()> {
    let mut tape = Tape { bytes, at: 0, memory: 0, charged: 0 };
    let Some(size) = tape.int(4) else { return Ok(None) };
    if size < 0 || size > i128::try_from(most).unwrap() {
        return Err(());
    }
    let size = usize::try_from(size).unwrap();
    Ok((size <= tape.left()).then(|| (&bytes[4..4 + size], &bytes[4 + size..])))
}
