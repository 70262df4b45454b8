//! Text of a `.msg` file to a model; what the form is stands in `protocol/spec/README.md`.

use super::model::{Api, Default, Field, Kind, Message, Span, SpecError, Struct, Type};

#[cfg(test)]
mod tests;

/// A struct whose fields stand at a certain indentation.
struct Open {
    indent: usize,
    index: usize,
}

struct Parser<'t> {
    file: &'t str,
    line: usize,
    api: Option<Api>,
    messages: Vec<Message>,
    open: Vec<Open>,
}

/// Reads the text of the definition file called `file`.
pub(crate) fn parse(file: &str, text: &str) -> Result<Vec<Message>, SpecError> {
    let mut parser = Parser { file, line: 0, api: None, messages: Vec::new(), open: Vec::new() };
    for (index, raw) in text.lines().enumerate() {
        parser.line = index + 1;
        let content = raw.split('#').next().unwrap_or_default().trim_end();
        let trimmed = content.trim_start_matches(' ');
        if trimmed.is_empty() {
            continue;
        }
        let words: Vec<&str> = trimmed.split_whitespace().collect();
        parser.take_line(content.len() - trimmed.len(), &words)?;
    }
    if parser.messages.is_empty() {
        return Err(parser.error("the file defines no message"));
    }
    Ok(parser.messages)
}

impl Parser<'_> {
    fn error(&self, text: impl Into<String>) -> SpecError {
        SpecError { file: self.file.to_owned(), line: self.line, text: text.into() }
    }

    fn take_line(&mut self, indent: usize, words: &[&str]) -> Result<(), SpecError> {
        match (indent, words) {
            (0, ["api", key, name]) => {
                self.api = Some(Api { key: self.number(key)?, name: (*name).to_owned() });
                Ok(())
            }
            (0, ["request", rest @ ..]) => {
                let api = self.api.clone().ok_or_else(|| self.error("no `api` line before"))?;
                self.open_message(format!("{}Request", api.name), Kind::Request(api), rest)
            }
            (0, ["response", rest @ ..]) => {
                let api = self.api.clone().ok_or_else(|| self.error("no `api` line before"))?;
                self.open_message(format!("{}Response", api.name), Kind::Response(api), rest)
            }
            (0, ["record", name, rest @ ..]) => {
                self.open_message((*name).to_owned(), Kind::Record { key: None }, rest)
            }
            (0, _) => Err(self.error("expected `api`, `request`, `response` or `record`")),
            (2, ["struct", name]) => self.open_common_struct(name),
            _ => self.take_field(indent, words),
        }
    }

    fn open_message(
        &mut self,
        name: String,
        mut kind: Kind,
        words: &[&str],
    ) -> Result<(), SpecError> {
        let [versions, "flexible", flexible, rest @ ..] = words else {
            return Err(self.error("expected versions and `flexible`"));
        };
        let versions = self.span(versions)?;
        if versions.max == i16::MAX {
            return Err(self.error("the versions of a message have an end"));
        }
        let first_flexible = match *flexible {
            "none" => i16::MAX,
            open => {
                let span = self.span(open)?;
                if span.max != i16::MAX {
                    return Err(self.error("flexible versions have no end"));
                }
                span.min
            }
        };
        match (rest, &mut kind) {
            ([], _) => {}
            (["key", number], Kind::Record { key }) => *key = Some(self.number(number)?),
            _ => return Err(self.error(format!("not understood: {}", rest.join(" ")))),
        }
        let top = self.new_struct(name.clone(), versions);
        self.messages.push(Message {
            file: self.file.to_owned(),
            kind,
            name,
            versions,
            first_flexible,
            line: self.line,
            structs: vec![top],
        });
        self.open = vec![Open { indent: 2, index: 0 }];
        Ok(())
    }

    fn new_struct(&self, name: String, active: Span) -> Struct {
        let fields = Vec::new();
        Struct { name, fields, line: self.line, active, borrows: false, in_array: false }
    }

    /// Opens a struct whose fields stand at `indent`.
    fn open_struct(&mut self, name: &str, indent: usize) -> Result<(), SpecError> {
        let duplicate = self.error(format!("{name} is defined twice"));
        let Some(versions) = self.messages.last().map(|message| message.versions) else {
            return Err(self.error("no message is open"));
        };
        let opened = self.new_struct(name.to_owned(), versions);
        let Some(message) = self.messages.last_mut() else {
            return Err(self.error("no message is open"));
        };
        if message.find(name).is_some() {
            return Err(duplicate);
        }
        message.structs.push(opened);
        self.open.push(Open { indent, index: message.structs.len() - 1 });
        Ok(())
    }

    fn open_common_struct(&mut self, name: &str) -> Result<(), SpecError> {
        self.open.clear();
        self.open_struct(name, 4)
    }

    fn take_field(&mut self, indent: usize, words: &[&str]) -> Result<(), SpecError> {
        while self.open.last().is_some_and(|open| open.indent > indent) {
            self.open.pop();
        }
        if let Some(open) = self.open.last()
            && open.indent + 2 == indent
            && let Some(name) = self.last_struct_name()
        {
            self.open_struct(&name, indent)?;
        }
        let field = self.field(words)?;
        let place = self.open.last().filter(|open| open.indent == indent).map(|open| open.index);
        let found = place.and_then(|index| self.messages.last_mut()?.structs.get_mut(index));
        let Some(found) = found else {
            return Err(self.error(format!("nothing is open at an indentation of {indent}")));
        };
        if found.fields.iter().any(|other| other.name == field.name) {
            return Err(self.error(format!("{} is defined twice", field.name)));
        }
        found.fields.push(field);
        Ok(())
    }

    /// The struct that the last field of the innermost open struct names.
    fn last_struct_name(&self) -> Option<String> {
        let structs = &self.messages.last()?.structs;
        let field = structs.get(self.open.last()?.index)?.fields.last()?;
        field.ty.struct_name().map(str::to_owned)
    }

    fn field(&self, words: &[&str]) -> Result<Field, SpecError> {
        let [name, ty, versions, attributes @ ..] = words else {
            return Err(self.error("expected name, type and versions"));
        };
        if !name.starts_with(|first: char| first.is_ascii_uppercase()) {
            return Err(self.error(format!("`{name}` does not begin with a capital")));
        }
        let mut field = Field {
            name: (*name).to_owned(),
            ty: self.ty(ty)?,
            versions: self.span(versions)?,
            nullable: None,
            default: Default::Empty,
            tag: None,
            ignorable: false,
            map_key: false,
            line: self.line,
        };
        let mut rest = attributes;
        while !rest.is_empty() {
            rest = match rest {
                ["nullable", span, rest @ ..] => {
                    field.nullable = Some(self.span(span)?);
                    rest
                }
                ["default", value, rest @ ..] => {
                    field.default = self.default(value)?;
                    rest
                }
                ["tag", number, rest @ ..] => {
                    field.tag = Some(u32::from(self.number(number)?.cast_unsigned()));
                    rest
                }
                ["ignorable", rest @ ..] => {
                    field.ignorable = true;
                    rest
                }
                ["key", rest @ ..] => {
                    field.map_key = true;
                    rest
                }
                [word, ..] => return Err(self.error(format!("not understood: {word}"))),
                [] => break,
            };
        }
        Ok(field)
    }

    fn ty(&self, word: &str) -> Result<Type, SpecError> {
        if let Some(element) = word.strip_prefix("[]") {
            return Ok(Type::Array(Box::new(self.ty(element)?)));
        }
        Ok(match word {
            "bool" => Type::Bool,
            "int8" => Type::Int8,
            "int16" => Type::Int16,
            "uint16" => Type::Uint16,
            "int32" => Type::Int32,
            "uint32" => Type::Uint32,
            "int64" => Type::Int64,
            "float64" => Type::Float64,
            "error" => Type::Error,
            "uuid" => Type::Uuid,
            "string" => Type::String,
            "bytes" => Type::Bytes,
            "records" => Type::Records,
            name if name.starts_with(|first: char| first.is_ascii_uppercase()) => {
                Type::Struct(name.to_owned())
            }
            _ => return Err(self.error(format!("no type is called `{word}`"))),
        })
    }

    fn default(&self, word: &str) -> Result<Default, SpecError> {
        match word {
            "null" => Ok(Default::Null),
            "true" => Ok(Default::True),
            _ => word
                .parse()
                .map(Default::Number)
                .map_err(|_| self.error(format!("`{word}` is not null, true or a number"))),
        }
    }

    fn number(&self, word: &str) -> Result<i16, SpecError> {
        word.parse()
            .ok()
            .filter(|&number: &i16| number >= 0)
            .ok_or_else(|| self.error(format!("`{word}` is not a number from 0 to 32767")))
    }

    fn span(&self, word: &str) -> Result<Span, SpecError> {
        if let Some(min) = word.strip_suffix('+') {
            return Ok(Span { min: self.number(min)?, max: i16::MAX });
        }
        let (min, max) = word.split_once('-').unwrap_or((word, word));
        let span = Span { min: self.number(min)?, max: self.number(max)? };
        if span.min > span.max {
            return Err(self.error(format!("`{word}` is empty")));
        }
        Ok(span)
    }
}
