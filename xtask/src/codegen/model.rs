//! What a definition says.

use std::fmt;

/// A range of versions, both ends included; `i16::MAX` means no end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Span {
    pub(crate) min: i16,
    pub(crate) max: i16,
}

impl Span {
    pub(crate) fn overlap(self, other: Self) -> Option<Self> {
        let both = Self { min: self.min.max(other.min), max: self.max.min(other.max) };
        (both.min <= both.max).then_some(both)
    }

    pub(crate) fn hull(self, other: Self) -> Self {
        Self { min: self.min.min(other.min), max: self.max.max(other.max) }
    }

    pub(crate) fn covers(self, other: Self) -> bool {
        self.min <= other.min && self.max >= other.max
    }

    pub(crate) fn contains(self, version: i16) -> bool {
        (self.min..=self.max).contains(&version)
    }
}

impl fmt::Display for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self { min, max: i16::MAX } => write!(f, "{min}+"),
            Self { min, max } if min == max => write!(f, "{min}"),
            Self { min, max } => write!(f, "{min}-{max}"),
        }
    }
}

/// The type of a field.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Type {
    Bool,
    Int8,
    Int16,
    Uint16,
    Int32,
    Uint32,
    Int64,
    Float64,
    Error,
    Uuid,
    String,
    Bytes,
    Records,
    Array(Box<Self>),
    Struct(String),
}

impl Type {
    /// The struct that this is, or is an array of.
    pub(crate) fn struct_name(&self) -> Option<&str> {
        match self {
            Self::Struct(name) => Some(name),
            Self::Array(element) => element.struct_name(),
            _ => None,
        }
    }

    /// Whether the type has a form for null.
    pub(crate) fn can_be_null(&self) -> bool {
        matches!(
            self,
            Self::String | Self::Bytes | Self::Records | Self::Array(_) | Self::Struct(_)
        )
    }
}

impl fmt::Display for Type {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Bool => "bool",
            Self::Int8 => "int8",
            Self::Int16 => "int16",
            Self::Uint16 => "uint16",
            Self::Int32 => "int32",
            Self::Uint32 => "uint32",
            Self::Int64 => "int64",
            Self::Float64 => "float64",
            Self::Error => "error",
            Self::Uuid => "uuid",
            Self::String => "string",
            Self::Bytes => "bytes",
            Self::Records => "records",
            Self::Array(element) => return write!(f, "[]{element}"),
            Self::Struct(name) => name,
        })
    }
}

/// The value of a field that is not set.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Default {
    /// Zero, false, empty.
    Empty,
    Null,
    True,
    Number(i64),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Field {
    pub(crate) name: String,
    pub(crate) ty: Type,
    pub(crate) versions: Span,
    pub(crate) nullable: Option<Span>,
    pub(crate) default: Default,
    pub(crate) tag: Option<u32>,
    pub(crate) ignorable: bool,
    pub(crate) map_key: bool,
    pub(crate) line: usize,
}

impl Field {
    /// Whether the Rust type is an `Option`; `records` have a null of their own.
    pub(crate) fn is_option(&self) -> bool {
        self.nullable.is_some() && self.ty != Type::Records
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Struct {
    pub(crate) name: String,
    pub(crate) fields: Vec<Field>,
    pub(crate) line: usize,
    /// The versions of the message in which the struct appears.
    pub(crate) active: Span,
    /// Whether any field borrows from the bytes.
    pub(crate) borrows: bool,
    /// Whether it is the element of an array.
    pub(crate) in_array: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Api {
    pub(crate) key: i16,
    pub(crate) name: String,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Kind {
    Request(Api),
    Response(Api),
    Record { key: Option<i16> },
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Message {
    pub(crate) file: String,
    pub(crate) kind: Kind,
    pub(crate) name: String,
    pub(crate) versions: Span,
    /// `i16::MAX` if no version is flexible.
    pub(crate) first_flexible: i16,
    pub(crate) line: usize,
    /// The message itself first, then the structs in it.
    pub(crate) structs: Vec<Struct>,
}

impl Message {
    pub(crate) fn find(&self, name: &str) -> Option<&Struct> {
        self.structs.iter().find(|found| found.name == name)
    }
}

/// What is wrong with a definition, and where.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct SpecError {
    pub(crate) file: String,
    pub(crate) line: usize,
    pub(crate) text: String,
}

impl fmt::Display for SpecError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "protocol/spec/{}:{}: {}", self.file, self.line, self.text)
    }
}
