//! A message as both sides can be put: what each version has, one line a field.

use std::fmt::Write as _;

use crate::codegen::{Default, Field, Kind, Message, Span, Type};

/// A message without the words of either side's form.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Shape {
    pub(super) name: String,
    /// The number of the API or of the kind of record.
    pub(super) key: Option<i16>,
    pub(super) versions: Span,
    /// `i16::MAX` if no version is flexible.
    pub(super) first_flexible: i16,
    pub(super) fields: Vec<ShapeField>,
}

/// A field, with those of its struct.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ShapeField {
    pub(super) name: String,
    pub(super) ty: String,
    pub(super) versions: Span,
    pub(super) nullable: Option<Span>,
    pub(super) tag: Option<(u32, Span)>,
    pub(super) default: Default,
    pub(super) ignorable: bool,
    pub(super) map_key: bool,
    /// Not in the flexible form, whatever the version.
    pub(super) old_form: bool,
    pub(super) fields: Vec<Self>,
}

impl Shape {
    /// One of our messages.
    pub(super) fn of(message: &Message) -> Self {
        let key = match &message.kind {
            Kind::Request(api) | Kind::Response(api) => Some(api.key),
            Kind::Record { key } => *key,
        };
        let fields = fields(message, &message.name);
        let Message { name, versions, first_flexible, .. } = message;
        let (versions, first_flexible) = (*versions, *first_flexible);
        Self { name: name.clone(), key, versions, first_flexible, fields }
    }

    /// False for what Kafka has removed and keeps the name of.
    pub(super) fn has_versions(&self) -> bool {
        self.versions.min <= self.versions.max
    }

    /// What holds for the message as a whole.
    pub(super) fn head(&self) -> String {
        let key = self.key.map_or_else(|| "no key".to_owned(), |key| format!("key {key}"));
        // No version is flexible, or none that there is: both are never.
        let flexible = match self.first_flexible {
            first if first > self.versions.max => "never flexible".to_owned(),
            first => format!("flexible from {}", first.max(self.versions.min)),
        };
        format!("{key}, versions {}, {flexible}", self.versions)
    }

    /// A line for each field that `version` has, in their order, and for each that it leaves out.
    pub(super) fn facts(&self, version: i16) -> Vec<String> {
        let mut facts = Vec::new();
        for field in &self.fields {
            field.facts(version, self.versions, "", &mut facts);
        }
        facts
    }
}

impl ShapeField {
    /// `active` are the versions in which the field's struct appears.
    fn facts(&self, version: i16, active: Span, place: &str, facts: &mut Vec<String>) {
        // A field that only removed or unstable versions have may be missing from a definition.
        let Some(present) = self.versions.overlap(active) else { return };
        let place = format!("{place}{}", self.name);
        let default = match self.default {
            Default::Empty => "empty".to_owned(),
            Default::Null => "null".to_owned(),
            Default::True => "true".to_owned(),
            Default::Number(number) => number.to_string(),
        };
        let mut line = format!("{place} {}, default {default}", self.ty);
        if !self.versions.contains(version) {
            line.push_str(if self.ignorable { ", may be left out" } else { ", refused" });
            facts.push(line);
            return;
        }
        if self.nullable.is_some_and(|span| span.contains(version)) {
            line.push_str(", nullable");
        }
        if let Some((tag, _)) = self.tag.filter(|(_, span)| span.contains(version)) {
            let _infallible = write!(line, ", tag {tag}");
        }
        for (is, what) in [(self.map_key, ", key"), (self.old_form, ", in the old form")] {
            line.push_str(if is { what } else { "" });
        }
        facts.push(line);
        for field in &self.fields {
            field.facts(version, present, &format!("{place}."), facts);
        }
    }
}

fn fields(message: &Message, of: &str) -> Vec<ShapeField> {
    let found = message.find(of).map(|found| &*found.fields).unwrap_or_default();
    found.iter().map(|field| shape_field(message, field)).collect()
}

fn shape_field(message: &Message, field: &Field) -> ShapeField {
    ShapeField {
        name: field.name.clone(),
        ty: kafka_type(&field.ty),
        versions: field.versions,
        nullable: field.nullable,
        tag: field.tag.map(|tag| (tag, field.versions)),
        default: field.default,
        ignorable: field.ignorable,
        map_key: field.map_key,
        old_form: false,
        fields: field.ty.struct_name().map(|name| fields(message, name)).unwrap_or_default(),
    }
}

/// The type in Kafka's words, which has no type for error codes.
fn kafka_type(ty: &Type) -> String {
    match ty {
        Type::Error => "int16".to_owned(),
        Type::Array(element) => format!("[]{}", kafka_type(element)),
        other => other.to_string(),
    }
}
