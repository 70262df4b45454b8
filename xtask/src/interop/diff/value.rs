//! Values of fields as a conversation sees them, and paths to them.

use std::fmt;

/// What a field holds, whatever its width on the wire.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Value {
    Null,
    Bool(bool),
    Number(i64),
    Float(f64),
    /// A string, the name of an error code, or what a rule of normalising puts in place of a value.
    Text(String),
    Bytes(Vec<u8>),
    Uuid([u8; 16]),
    List(Vec<Self>),
    Struct(Vec<(String, Self)>),
}

/// The most characters of a value in a line of the report.
const SHOWN_CHARS: usize = 240;
/// The most bytes of a field of bytes in a line of the report.
const SHOWN_BYTES: usize = 48;

impl Value {
    pub(super) fn text(text: impl Into<String>) -> Self {
        Self::Text(text.into())
    }

    /// The field of a struct.
    pub(super) fn field(&self, name: &str) -> Option<&Self> {
        let Self::Struct(fields) = self else { return None };
        fields.iter().find(|(field, _)| field == name).map(|(_, value)| value)
    }

    /// What the path leads to, if there is such a thing.
    pub(super) fn at(&self, path: &Path) -> Option<&Self> {
        path.0.iter().try_fold(self, |value, step| match step {
            Step::Field(name) => value.field(name),
            Step::Item(word) => {
                let Self::List(items) = value else { return None };
                items.get(word.parse::<usize>().ok()?)
            }
            Step::Keyed(key) => {
                let Self::List(items) = value else { return None };
                items.iter().find(|item| item.has(key))
            }
        })
    }

    /// Whether this is the word, or a struct with a field that is.
    fn has(&self, word: &str) -> bool {
        match self {
            Self::Struct(fields) => fields.iter().any(|(_, value)| value.plain() == word),
            other => other.plain() == word,
        }
    }

    /// A text without its quotes; anything else as it is shown.
    pub(super) fn plain(&self) -> String {
        match self {
            Self::Text(text) => text.clone(),
            other => other.to_string(),
        }
    }

    /// As a line of the report shows it.
    pub(super) fn shown(&self) -> String {
        let text = self.to_string();
        if text.chars().count() <= SHOWN_CHARS {
            return text;
        }
        let head: String = text.chars().take(SHOWN_CHARS).collect();
        format!("{head}…")
    }
}

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Null => f.write_str("null"),
            Self::Bool(value) => write!(f, "{value}"),
            Self::Number(value) => write!(f, "{value}"),
            Self::Float(value) => write!(f, "{value:?}"),
            Self::Text(text) => write!(f, "{text:?}"),
            Self::Bytes(bytes) => {
                f.write_str("0x")?;
                bytes.iter().take(SHOWN_BYTES).try_for_each(|byte| write!(f, "{byte:02x}"))?;
                let more = bytes.len().saturating_sub(SHOWN_BYTES);
                if more > 0 { write!(f, "… and {more} bytes") } else { Ok(()) }
            }
            Self::Uuid(bytes) => {
                f.write_str("uuid:")?;
                bytes.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
            }
            Self::List(items) => {
                f.write_str("[")?;
                for (at, item) in items.iter().enumerate() {
                    write!(f, "{}{item}", if at == 0 { "" } else { ", " })?;
                }
                f.write_str("]")
            }
            Self::Struct(fields) => {
                f.write_str("{")?;
                for (at, (name, value)) in fields.iter().enumerate() {
                    write!(f, "{}{name}: {value}", if at == 0 { "" } else { ", " })?;
                }
                f.write_str("}")
            }
        }
    }
}

/// One step of a path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// `.Name`
    Field(String),
    /// `[3]`; in a pattern also `[*]`.
    Item(String),
    /// `{orders}`: the row of an unordered list by its key; in a pattern also `{*}`.
    Keyed(String),
}

/// Where a field stands in an answer: `Topics[0].Partitions[*].ErrorCode`, `ApiKeys{18}`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Path(pub(super) Vec<Step>);

impl Path {
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        let mut steps = Vec::new();
        let mut rest = text.trim();
        while let Some(first) = rest.chars().next() {
            let close = match first {
                '[' => Some(']'),
                '{' => Some('}'),
                _ => None,
            };
            if let Some(close) = close {
                let end = rest.find(close).ok_or_else(|| format!("{text}: no {close}"))?;
                let word = rest[1..end].trim().to_owned();
                steps.push(if close == ']' { Step::Item(word) } else { Step::Keyed(word) });
                rest = &rest[end + 1..];
            } else {
                let name = rest.trim_start_matches('.');
                let end = name.find(['.', '[', '{']).unwrap_or(name.len());
                if end == 0 {
                    return Err(format!("{text:?} is no path"));
                }
                steps.push(Step::Field(name[..end].to_owned()));
                rest = &name[end..];
            }
        }
        if steps.is_empty() { Err("a path is missing".to_owned()) } else { Ok(Self(steps)) }
    }

    pub(super) fn with(&self, step: Step) -> Self {
        let mut longer = self.clone();
        longer.0.push(step);
        longer
    }

    /// Whether this pattern names `path`, or something that holds it.
    pub(super) fn covers(&self, path: &Self) -> bool {
        let same = |pattern: &Step, step: &Step| match (pattern, step) {
            (Step::Item(any), Step::Item(_)) | (Step::Keyed(any), Step::Keyed(_)) if any == "*" => {
                true
            }
            (pattern, step) => pattern == step,
        };
        self.0.len() <= path.0.len() && self.0.iter().zip(&path.0).all(|(one, two)| same(one, two))
    }
}

impl fmt::Display for Path {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, step) in self.0.iter().enumerate() {
            match step {
                Step::Field(name) if at == 0 => f.write_str(name)?,
                Step::Field(name) => write!(f, ".{name}")?,
                Step::Item(word) => write!(f, "[{word}]")?,
                Step::Keyed(word) => write!(f, "{{{word}}}")?,
            }
        }
        Ok(())
    }
}
