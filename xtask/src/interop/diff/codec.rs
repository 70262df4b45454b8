//! Frames by the definitions in `protocol/spec`, read when the command runs: any API, any version.

use std::collections::BTreeMap;

use crate::codegen::{self, ApiRow, Default, Field, Kind, Message, Struct, Type};
use crate::outcome::{Done, Stop};
use crate::workspace::Workspace;

use super::batch;
use super::bytes::{Bytes, put_uvarint};
use super::value::Value;

/// The one API whose answers never have the newer header (KIP-511).
const API_VERSIONS: i16 = 18;

/// What this repository knows of Kafka's messages.
pub(super) struct Spec {
    messages: Vec<Message>,
    pub(super) apis: Vec<ApiRow>,
    errors: BTreeMap<i16, String>,
}

impl Spec {
    pub(super) fn read(workspace: &Workspace) -> Done<Self> {
        let folder = workspace.root.join("protocol/spec");
        let messages = codegen::messages(&folder).map_err(Stop::Failed)?;
        let apis = codegen::apis(&folder).map_err(Stop::Failed)?;
        let errors = codegen::errors(&folder).map_err(Stop::Failed)?;
        let errors = errors.into_iter().map(|row| (row.code, row.name)).collect();
        Ok(Self { messages, apis, errors })
    }

    fn find(&self, wanted: impl Fn(&Kind) -> bool, api: &str) -> Result<&Message, String> {
        let found = self.messages.iter().find(|message| wanted(&message.kind));
        found.ok_or_else(|| format!("protocol/spec has no API {api}"))
    }

    pub(super) fn request(&self, api: &str) -> Result<&Message, String> {
        self.find(|kind| matches!(kind, Kind::Request(found) if found.name == api), api)
    }

    pub(super) fn response(&self, api: &str) -> Result<&Message, String> {
        self.find(|kind| matches!(kind, Kind::Response(found) if found.name == api), api)
    }

    /// The number of an API.
    pub(super) fn key(&self, api: &str) -> Result<i16, String> {
        match &self.request(api)?.kind {
            Kind::Request(found) => Ok(found.key),
            _ => Err(format!("{api} is no request")),
        }
    }

    /// The name of an API, for the report.
    pub(super) fn name(&self, key: i16) -> String {
        let row = self.apis.iter().find(|row| row.key == key);
        row.map_or_else(|| format!("API {key}"), |row| row.name.clone())
    }

    /// An answer without its size, after its correlation id.
    pub(super) fn decode(&self, api: &str, version: i16, body: &[u8]) -> Result<Value, String> {
        let message = self.response(api)?;
        let flexible = version >= message.first_flexible;
        let mut from = Bytes::new(body);
        let mut decoder = Decoder { message, version, flexible, errors: &self.errors };
        if flexible && self.key(api)? != API_VERSIONS {
            Decoder::no_tags(&mut from)?;
        }
        let top = message.structs.first().ok_or("a message without fields")?;
        let value = decoder.structure(top, &mut from)?;
        from.end()?;
        Ok(value)
    }
}

/// The body of a request. Fields that the version does not have are left out, so that one text
/// serves all versions; those that no version has are an error.
pub(super) fn encode(message: &Message, version: i16, value: &Value) -> Result<Vec<u8>, String> {
    let flexible = version >= message.first_flexible;
    let mut encoder = Encoder { message, version, flexible, out: Vec::new() };
    let top = message.structs.first().ok_or("a message without fields")?;
    encoder.structure(top, value)?;
    Ok(encoder.out)
}

/// Tagged fields of a header or a struct, as `[[tag, bytes], …]` gives them.
pub(super) fn put_tags(out: &mut Vec<u8>, tags: &Value) -> Result<(), String> {
    let wrong = || format!("{tags}: expected [[tag, bytes], …]");
    let Value::List(tags) = tags else { return Err(wrong()) };
    for tag in tags {
        let Value::List(pair) = tag else { return Err(wrong()) };
        let [Value::Number(number), Value::Bytes(bytes)] = pair.as_slice() else {
            return Err(wrong());
        };
        put_uvarint(out, number.cast_unsigned());
        put_uvarint(out, length(bytes.len())?.cast_unsigned());
        out.extend_from_slice(bytes);
    }
    Ok(())
}

fn length(length: usize) -> Result<i64, String> {
    i64::try_from(length).map_err(|_| "too long".to_owned())
}

struct Encoder<'m> {
    message: &'m Message,
    version: i16,
    flexible: bool,
    out: Vec<u8>,
}

impl Encoder<'_> {
    fn structure(&mut self, found: &Struct, value: &Value) -> Result<(), String> {
        let Value::Struct(given) = value else {
            return Err(format!("{} is a struct, not {value}", found.name));
        };
        let known = |name: &str| found.fields.iter().any(|field| field.name == name);
        if let Some((name, _)) = given.iter().find(|(name, _)| name != "_tags" && !known(name)) {
            return Err(format!("{} has no field {name}", found.name));
        }
        let mut tagged = Vec::new();
        for field in &found.fields {
            if !field.versions.contains(self.version) {
                continue;
            }
            let value = value.field(&field.name);
            if let Some(tag) = field.tag {
                if let Some(value) = value {
                    tagged.push((tag, self.apart(field, value)?));
                }
                continue;
            }
            let value = value.cloned().unwrap_or_else(|| Self::unset(field));
            self.field(field, &value).map_err(|error| format!("{}: {error}", field.name))?;
        }
        if self.flexible { self.tags(tagged, value.field("_tags")) } else { Ok(()) }
    }

    /// A tagged field's bytes.
    fn apart(&mut self, field: &Field, value: &Value) -> Result<Vec<u8>, String> {
        let before = std::mem::take(&mut self.out);
        let written = self.field(field, value);
        let bytes = std::mem::replace(&mut self.out, before);
        written.map(|()| bytes)
    }

    fn tags(&mut self, known: Vec<(u32, Vec<u8>)>, others: Option<&Value>) -> Result<(), String> {
        let others = others.cloned().unwrap_or(Value::List(Vec::new()));
        let Value::List(rows) = &others else { return Err("_tags is a list".to_owned()) };
        put_uvarint(&mut self.out, length(known.len() + rows.len())?.cast_unsigned());
        for (tag, bytes) in known {
            put_uvarint(&mut self.out, u64::from(tag));
            put_uvarint(&mut self.out, length(bytes.len())?.cast_unsigned());
            self.out.extend(bytes);
        }
        put_tags(&mut self.out, &others)
    }

    fn unset(field: &Field) -> Value {
        match field.default {
            Default::Null => Value::Null,
            Default::True => Value::Bool(true),
            Default::Number(number) => Value::Number(number),
            Default::Empty => match &field.ty {
                Type::Bool => Value::Bool(false),
                Type::Float64 => Value::Float(0.0),
                Type::Uuid => Value::Uuid([0; 16]),
                Type::String => Value::text(""),
                Type::Bytes | Type::Records => Value::Bytes(Vec::new()),
                Type::Array(_) => Value::List(Vec::new()),
                Type::Struct(_) => Value::Struct(Vec::new()),
                _ => Value::Number(0),
            },
        }
    }

    fn field(&mut self, field: &Field, value: &Value) -> Result<(), String> {
        if let Type::Struct(name) = &field.ty {
            let nullable = field.nullable.is_some_and(|span| span.contains(self.version));
            match (nullable, value) {
                (true, Value::Null) => {
                    self.out.push(0xff);
                    return Ok(());
                }
                (true, _) => self.out.push(1),
                (false, _) => {}
            }
            return self.named(name, value);
        }
        self.plain(&field.ty, value)
    }

    fn named(&mut self, name: &str, value: &Value) -> Result<(), String> {
        let found = self.message.find(name).ok_or_else(|| format!("no struct {name}"))?;
        self.structure(found, value)
    }

    fn plain(&mut self, ty: &Type, value: &Value) -> Result<(), String> {
        let wrong = || format!("{value} is no {ty}");
        match (ty, value) {
            (Type::Bool, Value::Bool(yes)) => self.out.push(u8::from(*yes)),
            (Type::Float64, Value::Float(number)) => {
                self.out.extend_from_slice(&number.to_be_bytes());
            }
            (Type::Uuid, Value::Uuid(bytes)) => self.out.extend_from_slice(bytes),
            (Type::Struct(name), value) => self.named(name, value)?,
            (Type::Array(_) | Type::Records | Type::Bytes, Value::Null) => self.size(None, 4)?,
            (Type::String, Value::Null) => self.size(None, 2)?,
            (Type::Array(element), Value::List(items)) => {
                self.size(Some(items.len()), 4)?;
                for item in items {
                    self.plain(element, item)?;
                }
            }
            (Type::String, Value::Text(text)) => self.sized(text.as_bytes(), 2)?,
            (Type::String, Value::Bytes(bytes)) => self.sized(bytes, 2)?,
            (Type::Bytes | Type::Records, Value::Text(text)) => self.sized(text.as_bytes(), 4)?,
            (Type::Bytes | Type::Records, Value::Bytes(bytes)) => self.sized(bytes, 4)?,
            (ty, Value::Number(number)) => {
                let width = width(ty).ok_or_else(wrong)?;
                let bytes = number.to_be_bytes();
                let unsigned = matches!(ty, Type::Uint16 | Type::Uint32);
                let bits = u32::try_from(width * 8).unwrap_or(64) - u32::from(!unsigned);
                let high = if bits >= 63 { 0 } else { number >> bits };
                if high != 0 && (unsigned || high != -1) {
                    return Err(format!("{number} does not fit into {ty}"));
                }
                self.out.extend_from_slice(&bytes[8 - width..]);
            }
            _ => return Err(wrong()),
        }
        Ok(())
    }

    fn sized(&mut self, bytes: &[u8], width: usize) -> Result<(), String> {
        self.size(Some(bytes.len()), width)?;
        self.out.extend_from_slice(bytes);
        Ok(())
    }

    /// A length; `None` is null.
    fn size(&mut self, size: Option<usize>, width: usize) -> Result<(), String> {
        let number = size.map_or(Ok(-1), length)?;
        if self.flexible {
            put_uvarint(&mut self.out, (number + 1).cast_unsigned());
        } else {
            self.out.extend_from_slice(&number.to_be_bytes()[8 - width..]);
        }
        Ok(())
    }
}

fn width(ty: &Type) -> Option<usize> {
    Some(match ty {
        Type::Int8 => 1,
        Type::Int16 | Type::Uint16 | Type::Error => 2,
        Type::Int32 | Type::Uint32 => 4,
        Type::Int64 => 8,
        _ => return None,
    })
}

struct Decoder<'m> {
    message: &'m Message,
    version: i16,
    flexible: bool,
    errors: &'m BTreeMap<i16, String>,
}

impl Decoder<'_> {
    fn structure(&mut self, found: &Struct, from: &mut Bytes<'_>) -> Result<Value, String> {
        let mut fields = Vec::new();
        for field in &found.fields {
            if field.tag.is_none() && field.versions.contains(self.version) {
                let value =
                    self.field(field, from).map_err(|error| format!("{}: {error}", field.name))?;
                fields.push((field.name.clone(), value));
            }
        }
        if self.flexible {
            self.tags(found, from, &mut fields)?;
        }
        Ok(Value::Struct(fields))
    }

    /// Tagged fields; one that is not there has its default, and is left out here as there.
    fn tags(
        &mut self,
        found: &Struct,
        from: &mut Bytes<'_>,
        fields: &mut Vec<(String, Value)>,
    ) -> Result<(), String> {
        let count = from.uvarint()?;
        let mut last = None;
        for _ in 0..count {
            let tag = from.uvarint()?;
            if last.is_some_and(|last| last >= tag) {
                return Err(format!("the tag {tag} comes after a higher one"));
            }
            last = Some(tag);
            let size = from.uvarint()?;
            let mut bytes = Bytes::new(from.take(usize::try_from(size).unwrap_or(usize::MAX))?);
            let field = found.fields.iter().find(|field| {
                field.tag.map(u64::from) == Some(tag) && field.versions.contains(self.version)
            });
            match field {
                Some(field) => fields.push((field.name.clone(), self.field(field, &mut bytes)?)),
                None => fields.push((format!("tag {tag}"), Value::Bytes(bytes.all().to_vec()))),
            }
        }
        Ok(())
    }

    /// The tagged fields of a header, of which there is none that we know.
    fn no_tags(from: &mut Bytes<'_>) -> Result<(), String> {
        match from.uvarint()? {
            0 => Ok(()),
            count => Err(format!("the header has {count} tagged fields")),
        }
    }

    fn field(&mut self, field: &Field, from: &mut Bytes<'_>) -> Result<Value, String> {
        let nullable = field.nullable.is_some_and(|span| span.contains(self.version));
        if nullable && matches!(field.ty, Type::Struct(_)) && from.number(1)? < 0 {
            return Ok(Value::Null);
        }
        self.plain(&field.ty, from)
    }

    fn plain(&mut self, ty: &Type, from: &mut Bytes<'_>) -> Result<Value, String> {
        Ok(match ty {
            Type::Bool => Value::Bool(from.number(1)? != 0),
            Type::Float64 => {
                let bits = from.number(8)?.cast_unsigned();
                Value::Float(f64::from_bits(bits))
            }
            Type::Uuid => {
                let bytes = from.take(16)?.first_chunk().copied();
                Value::Uuid(bytes.unwrap_or_default())
            }
            Type::Error => self.error(from)?,
            Type::String => match self.sized(from, 2)? {
                Some(bytes) => Value::text(String::from_utf8_lossy(bytes)),
                None => Value::Null,
            },
            Type::Bytes => {
                self.sized(from, 4)?.map_or(Value::Null, |bytes| Value::Bytes(bytes.to_vec()))
            }
            Type::Records => self.sized(from, 4)?.map_or(Value::Null, batch::decode),
            Type::Array(element) => {
                let Some(count) = self.size(from, 4)? else { return Ok(Value::Null) };
                let items = (0..count).map(|_| self.plain(element, from));
                Value::List(items.collect::<Result<_, _>>()?)
            }
            Type::Struct(name) => {
                let found = self.message.find(name).ok_or_else(|| format!("no struct {name}"))?;
                self.structure(found, from)?
            }
            Type::Uint16 => Value::Number(from.number(2)? & 0xffff),
            Type::Uint32 => Value::Number(from.number(4)? & 0xffff_ffff),
            number => Value::Number(from.number(width(number).unwrap_or(8))?),
        })
    }

    fn error(&self, from: &mut Bytes<'_>) -> Result<Value, String> {
        let number = i16::try_from(from.number(2)?).unwrap_or_default();
        let name = self.errors.get(&number);
        Ok(Value::text(name.cloned().unwrap_or_else(|| format!("error {number}"))))
    }

    fn size(&self, from: &mut Bytes<'_>, width: usize) -> Result<Option<usize>, String> {
        let size = if self.flexible {
            i64::try_from(from.uvarint()?).unwrap_or(i64::MAX) - 1
        } else {
            from.number(width)?
        };
        if size == -1 {
            return Ok(None);
        }
        // No element is smaller than a byte.
        let size = usize::try_from(size).ok().filter(|size| *size <= from.left());
        size.map(Some).ok_or_else(|| "a length is past the end".to_owned())
    }

    fn sized<'b>(&self, from: &mut Bytes<'b>, width: usize) -> Result<Option<&'b [u8]>, String> {
        self.size(from, width)?.map(|size| from.take(size)).transpose()
    }
}
