//! The frame of a request, and what a conversation may change in it.

use super::codec::put_tags;
use super::value::Value;

/// The name that a conversation's client gives itself.
const CLIENT_ID: &str = "conversation";

/// What a request has beside its fields: `with {tail: 0x00}`.
#[derive(Debug, Default)]
pub(super) struct Options {
    /// Bytes after the body, counted in the frame's size.
    tail: Vec<u8>,
    /// How many of the last bytes are left out.
    cut: usize,
    /// In place of the body.
    body: Option<Vec<u8>>,
    /// In place of the right size.
    size: Option<i32>,
    /// How many bytes of the frame are sent now; `rest` sends the others.
    pub(super) first: Option<usize>,
    /// In place of the API's number.
    key: Option<i16>,
    /// What the header says, whatever form the body has.
    version: Option<i16>,
    /// The version that the answer is in.
    pub(super) answered: Option<i16>,
    client: Option<Value>,
    tags: Option<Value>,
    /// No answer is due.
    pub(super) silent: bool,
    changed: bool,
}

impl Options {
    pub(super) fn new(given: &Value) -> Result<Self, String> {
        let Value::Struct(given) = given else { return Err("with takes {…}".to_owned()) };
        let mut options = Self::default();
        for (name, value) in given {
            let wrong = || format!("with: {name}: {value} is not understood");
            match (name.as_str(), value) {
                ("tail", Value::Bytes(bytes)) => options.tail.clone_from(bytes),
                ("body", Value::Bytes(bytes)) => options.body = Some(bytes.clone()),
                ("client", Value::Text(_) | Value::Null) => options.client = Some(value.clone()),
                ("tags", Value::List(_)) => options.tags = Some(value.clone()),
                ("silent", Value::Bool(yes)) => options.silent = *yes,
                (_, Value::Number(number)) => {
                    options.number(name, *number).ok_or_else(wrong)?;
                }
                _ => return Err(wrong()),
            }
            options.changed |= !matches!(name.as_str(), "client" | "tags" | "first" | "silent");
        }
        Ok(options)
    }

    fn number(&mut self, name: &str, number: i64) -> Option<()> {
        match name {
            "cut" => self.cut = usize::try_from(number).ok()?,
            "size" => self.size = Some(i32::try_from(number).ok()?),
            "first" => self.first = Some(usize::try_from(number).ok()?),
            "key" => self.key = Some(i16::try_from(number).ok()?),
            "version" => self.version = Some(i16::try_from(number).ok()?),
            "answered" => self.answered = Some(i16::try_from(number).ok()?),
            _ => return None,
        }
        Some(())
    }

    /// Whether the request is as the definitions say.
    pub(super) fn regular(&self) -> bool {
        !self.changed
    }

    /// The frame, its size first.
    pub(super) fn frame(
        &self,
        key: i16,
        version: i16,
        id: i32,
        flexible: bool,
        body: Vec<u8>,
    ) -> Result<Vec<u8>, String> {
        let mut out = Vec::new();
        out.extend(self.key.unwrap_or(key).to_be_bytes());
        out.extend(self.version.unwrap_or(version).to_be_bytes());
        out.extend(id.to_be_bytes());
        let client = match &self.client {
            None => Some(CLIENT_ID),
            Some(Value::Text(text)) => Some(text.as_str()),
            Some(_) => None,
        };
        let length = client.map_or(Ok(-1), |client| i16::try_from(client.len()));
        out.extend(length.map_err(|_| "the client's name is too long")?.to_be_bytes());
        out.extend(client.unwrap_or_default().bytes());
        if flexible {
            match &self.tags {
                Some(tags @ Value::List(rows)) => {
                    out.push(u8::try_from(rows.len()).map_err(|_| "too many tags")?);
                    put_tags(&mut out, tags)?;
                }
                _ => out.push(0),
            }
        }
        out.extend(self.body.clone().unwrap_or(body));
        out.extend_from_slice(&self.tail);
        out.truncate(out.len().saturating_sub(self.cut));
        let size = i32::try_from(out.len()).map_err(|_| "a frame too long")?;
        let size = self.size.unwrap_or(size);
        Ok([&size.to_be_bytes()[..], &out].concat())
    }
}
