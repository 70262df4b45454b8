//! Kafka's definitions: JSON with comments, one message a file.

use serde_json::Value;

use crate::codegen::{Default, Span};

use super::shape::{Shape, ShapeField};

/// What a definition is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Group {
    Request,
    Response,
    /// A record of `__cluster_metadata`.
    Metadata,
    /// A key or value of `__consumer_offsets`.
    Offsets,
    Other,
}

/// A definition of Kafka's.
#[derive(Debug)]
pub(super) struct Definition {
    pub(super) group: Group,
    pub(super) shape: Shape,
    /// Whether Kafka holds its last version back.
    unstable: bool,
    /// Where the API is answered.
    pub(super) listeners: Vec<String>,
}

/// No version at all.
const NONE: Span = Span { min: 1, max: 0 };

/// Reads the text of one definition.
pub(super) fn read(text: &str) -> Result<Definition, String> {
    let json: Value =
        serde_json::from_str(&without_comments(text)).map_err(|error| error.to_string())?;
    let group = match string(&json, "type")? {
        "request" => Group::Request,
        "response" => Group::Response,
        "metadata" => Group::Metadata,
        "coordinator-key" | "coordinator-value" => Group::Offsets,
        _ => Group::Other,
    };
    let versions = span(string(&json, "validVersions")?)?;
    let unstable = json.get("latestVersionUnstable").and_then(Value::as_bool) == Some(true);
    // What has been removed has no fields and no flexible versions either.
    let flexible = json.get("flexibleVersions").and_then(Value::as_str).unwrap_or("none");
    let flexible = span(flexible)?;
    let key = json.get("apiKey").map(number).transpose()?;
    let shape = Shape {
        name: capital(string(&json, "name")?),
        key: key.map(|key| i16::try_from(key).map_err(|_| format!("key {key}"))).transpose()?,
        versions,
        first_flexible: if flexible == NONE { i16::MAX } else { flexible.min },
        fields: fields(&json, list(&json, "commonStructs"))?,
    };
    let listeners = list(&json, "listeners").iter().filter_map(Value::as_str);
    Ok(Definition { group, shape, unstable, listeners: listeners.map(str::to_owned).collect() })
}

/// Takes the versions away, of requests and of their answers, that Kafka calls unstable: they are
/// not spoken unless a broker is told to.
pub(super) fn without_unstable(definitions: &mut [Definition]) {
    let keys: Vec<Option<i16>> =
        definitions.iter().filter(|one| one.unstable).map(|one| one.shape.key).collect();
    for Definition { group, shape, .. } in definitions {
        if matches!(group, Group::Request | Group::Response) && keys.contains(&shape.key) {
            shape.versions.max -= 1;
        }
    }
}

/// The text without what follows `//` outside of strings.
fn without_comments(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for line in text.lines() {
        let (mut quoted, mut end) = (false, line.len());
        let mut before = ' ';
        for (at, letter) in line.char_indices() {
            match letter {
                '"' if before != '\\' => quoted = !quoted,
                '/' if before == '/' && !quoted => {
                    end = at - 1;
                    break;
                }
                _ => {}
            }
            before = letter;
        }
        out.push_str(line.get(..end).unwrap_or_default());
        out.push('\n');
    }
    out
}

fn string<'j>(json: &'j Value, name: &str) -> Result<&'j str, String> {
    json.get(name).and_then(Value::as_str).ok_or_else(|| format!("no text called {name}"))
}

fn list<'j>(json: &'j Value, name: &str) -> &'j [Value] {
    json.get(name).and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default()
}

/// Kafka begins a few names with a small letter; its code is the same for both.
fn capital(name: &str) -> String {
    let mut letters = name.chars();
    letters.next().map_or_else(String::new, |first| first.to_uppercase().chain(letters).collect())
}

fn span(text: &str) -> Result<Span, String> {
    let number = |word: &str| word.parse().map_err(|_| format!("versions {text}"));
    if text == "none" {
        return Ok(NONE);
    }
    if let Some(min) = text.strip_suffix('+') {
        return Ok(Span { min: number(min)?, max: i16::MAX });
    }
    let (min, max) = text.split_once('-').unwrap_or((text, text));
    Ok(Span { min: number(min)?, max: number(max)? })
}

/// A number, which may stand as text, in decimal or hexadecimal.
fn number(json: &Value) -> Result<i64, String> {
    let parsed = match json {
        Value::Number(number) => number.as_i64(),
        Value::String(text) => match text.strip_prefix("0x") {
            Some(digits) => i64::from_str_radix(digits, 16).ok(),
            None => text.parse().ok(),
        },
        _ => None,
    };
    parsed.ok_or_else(|| format!("{json} is no number"))
}

fn fields(json: &Value, structs: &[Value]) -> Result<Vec<ShapeField>, String> {
    list(json, "fields").iter().map(|json| field(json, structs)).collect()
}

fn field(json: &Value, structs: &[Value]) -> Result<ShapeField, String> {
    let name = string(json, "name")?;
    let ty = string(json, "type")?;
    let optional = |key: &str| match json.get(key).and_then(Value::as_str) {
        None | Some("none") => Ok(None),
        Some(text) => span(text).map(Some),
    };
    let tagged = optional("taggedVersions")?;
    // A tagged field that does not say so is in the versions in which it is tagged.
    let versions =
        optional("versions")?.or(tagged).ok_or_else(|| format!("{name}: no versions"))?;
    let tag = json.get("tag").map(number).transpose()?;
    let tag = tag.map(u32::try_from).transpose().map_err(|_| format!("{name}: bad tag"))?;
    let truth = |key: &str| match json.get(key) {
        Some(Value::Bool(value)) => *value,
        Some(Value::String(text)) => text == "true",
        _ => false,
    };
    let element = ty.trim_start_matches("[]");
    let shared = structs.iter().find(|shared| string(shared, "name") == Ok(element));
    Ok(ShapeField {
        name: capital(name),
        ty: ty.to_owned(),
        versions,
        nullable: optional("nullableVersions")?,
        tag: tag.zip(tagged),
        default: default(json.get("default"), ty).map_err(|why| format!("{name}: {why}"))?,
        ignorable: truth("ignorable"),
        map_key: truth("mapKey"),
        old_form: string(json, "flexibleVersions") == Ok("none"),
        fields: fields(shared.unwrap_or(json), structs)?,
    })
}

fn default(json: Option<&Value>, ty: &str) -> Result<Default, String> {
    Ok(match json {
        // Kafka's generator takes null for no default at all; only the text "null" means null.
        None | Some(Value::Null | Value::Bool(false)) => Default::Empty,
        Some(Value::Bool(true)) => Default::True,
        Some(Value::String(text)) if text == "null" => Default::Null,
        Some(Value::String(text)) if text.is_empty() => Default::Empty,
        Some(Value::String(text)) if ty == "bool" => match &**text {
            "true" => Default::True,
            "false" => Default::Empty,
            _ => return Err(format!("default {text}")),
        },
        Some(other) => match number(other)? {
            0 => Default::Empty,
            number => Default::Number(number),
        },
    })
}
