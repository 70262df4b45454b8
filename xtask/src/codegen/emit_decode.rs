//! Reading: the fields a version has, and the least bytes a struct takes in it.

use std::fmt::Write as _;

use super::emit_structs::default_value;
use super::model::{Field, Message, Span, Struct, Type};
use super::names::{self, has_word};

/// `version` compared with `span`, for versions in `active`; none if all of `active` is in it.
pub(crate) fn condition(span: Span, active: Span) -> Option<String> {
    if span.covers(active) {
        return None;
    }
    let Span { min, max } = span;
    Some(match (min <= active.min, max >= active.max) {
        (true, _) => format!("version <= {max}"),
        (_, true) => format!("version >= {min}"),
        _ if min == max => format!("version == {min}"),
        _ => format!("({min}..={max}).contains(&version)"),
    })
}

/// The opposite of [`condition`].
pub(crate) fn opposite(span: Span, active: Span) -> Option<String> {
    condition(span, active)?;
    let Span { min, max } = span;
    Some(match (min <= active.min, max >= active.max) {
        (true, _) => format!("version > {max}"),
        (_, true) => format!("version < {min}"),
        _ if min == max => format!("version != {min}"),
        _ => format!("!({min}..={max}).contains(&version)"),
    })
}

/// `name` as the name of a parameter, marked if `body` does not use it.
pub(crate) fn parameter(body: &str, name: &str) -> String {
    // A field may have the same name.
    let body = body.replace(&format!(".{name}"), "").replace(&format!("{name}:"), "");
    if has_word(&body, name) { name.to_owned() } else { format!("_{name}") }
}

/// The function that reads a struct.
pub(crate) fn read(message: &Message, found: &Struct) -> String {
    let mut fields = String::new();
    for field in &found.fields {
        let name = names::field(&field.name);
        let value = if field.tag.is_some() {
            default_value(field)
        } else {
            let value = read_field(message, found, field);
            match condition(field.versions, found.active) {
                None => value,
                Some(condition) => {
                    format!("if {condition} {{ {value} }} else {{ {} }}", default_value(field))
                }
            }
        };
        let _infallible = writeln!(fields, "{name}: {value},");
    }
    let mut body = String::new();
    let tagged: Vec<&Field> = found.fields.iter().filter(|field| field.tag.is_some()).collect();
    let flexible = found.active.max >= message.first_flexible;
    if !flexible {
        let _infallible = writeln!(body, "Ok(Self {{ {fields} }})");
    } else if tagged.is_empty() {
        let _infallible =
            writeln!(body, "let read = Self {{ {fields} }};\nr.skip_tags(form)?;\nOk(read)");
    } else {
        let _infallible = writeln!(
            body,
            "let mut read = Self {{ {fields} }};\nr.tags(form, |tag, r| {{ match tag {{"
        );
        for field in tagged {
            body.push_str(&read_tagged(message, found, field));
        }
        body.push_str("_ => return Ok(false),\n} Ok(true) })?;\nOk(read)\n");
    }
    if has_word(&body, "form") {
        body.insert_str(0, "let form = Form::at(version, FLEXIBLE);\n");
    }
    let lifetime = if found.borrows { "'a" } else { "'_" };
    format!(
        "fn read({}: &mut Reader<{lifetime}>, {}: i16) -> Result<Self, DecodeError> {{\n{body}}}\n",
        parameter(&body, "r"),
        parameter(&body, "version")
    )
}

fn read_tagged(message: &Message, found: &Struct, field: &Field) -> String {
    // Tags are read only in flexible versions, so the field's range needs no lower end there.
    let flexible = Span { min: message.first_flexible, max: i16::MAX };
    let active = found.active.overlap(flexible).unwrap_or(found.active);
    let guard = condition(field.versions, active).map_or_else(String::new, |c| format!(" if {c}"));
    format!(
        "{}{guard} => {{ read.{} = {}; }}\n",
        field.tag.unwrap_or_default(),
        names::field(&field.name),
        read_field(message, found, field)
    )
}

fn read_field(message: &Message, found: &Struct, field: &Field) -> String {
    let Some(nullable) = field.nullable else {
        return read_plain(message, &field.ty);
    };
    let present = field.versions.overlap(found.active).unwrap_or(found.active);
    let null_form = read_nullable(message, field);
    match (condition(nullable, present), &field.ty) {
        (None, _) => null_form,
        (Some(condition), Type::Records) => {
            let plain = read_plain(message, &field.ty);
            format!("if {condition} {{ {null_form} }} else {{ {plain} }}")
        }
        (Some(condition), _) => {
            let plain = read_plain(message, &field.ty);
            format!("if {condition} {{ {null_form} }} else {{ Some({plain}) }}")
        }
    }
}

fn read_nullable(message: &Message, field: &Field) -> String {
    match &field.ty {
        Type::String => "r.nullable_string_as(form)?".to_owned(),
        Type::Bytes => "r.nullable_bytes_as(form)?".to_owned(),
        Type::Records => "r.nullable_bytes_as(form)?.into()".to_owned(),
        Type::Array(element) => format!(
            "r.nullable_array_as(form, {}, {})?",
            element_size(message, element),
            read_element(message, element)
        ),
        plain => {
            let value = read_plain(message, plain);
            let marker = if field.tag.is_some() { "is_present_in_tag" } else { "is_present" };
            format!("if r.{marker}()? {{ Some({value}) }} else {{ None }}")
        }
    }
}

fn read_plain(message: &Message, ty: &Type) -> String {
    match ty {
        Type::Error => "ErrorCode(r.i16()?)".to_owned(),
        Type::String => "r.string_as(form)?".to_owned(),
        Type::Bytes => "r.bytes_as(form)?".to_owned(),
        Type::Records => "Records::Inline(r.bytes_as(form)?)".to_owned(),
        Type::Array(element) => format!(
            "r.array_as(form, {}, {})?",
            element_size(message, element),
            read_element(message, element)
        ),
        Type::Struct(name) => format!("{name}::read(r, version)?"),
        fixed => format!("r.{}()?", fixed_method(fixed)),
    }
}

/// The method of reader and writer for a type of fixed size.
pub(crate) fn fixed_method(ty: &Type) -> &'static str {
    match ty {
        Type::Bool => "bool",
        Type::Int8 => "i8",
        Type::Uint16 => "u16",
        Type::Int32 => "i32",
        Type::Uint32 => "u32",
        Type::Int64 => "i64",
        Type::Float64 => "f64",
        Type::Uuid => "uuid",
        _ => "i16",
    }
}

fn read_element(message: &Message, ty: &Type) -> String {
    match ty {
        Type::Error => "|r| r.i16().map(ErrorCode)".to_owned(),
        Type::String => "|r| r.string_as(form)".to_owned(),
        Type::Bytes => "|r| r.bytes_as(form)".to_owned(),
        Type::Struct(name) => format!("|r| {name}::read(r, version)"),
        Type::Array(_) | Type::Records => format!("|r| Ok({})", read_plain(message, ty)),
        fixed => format!("Reader::{}", fixed_method(fixed)),
    }
}

/// The least bytes of an element, as an expression.
fn element_size(message: &Message, ty: &Type) -> String {
    match ty {
        Type::Struct(name) => format!("{name}::min_size(version)"),
        Type::String => "form.min_string()".to_owned(),
        Type::Bytes | Type::Records | Type::Array(_) => "form.min_bytes()".to_owned(),
        fixed => type_size(message, fixed, 0).to_string(),
    }
}

/// The function that tells the least bytes of a struct.
pub(crate) fn min_size(message: &Message, found: &Struct) -> String {
    let Span { min, max } = found.active;
    let mut runs: Vec<(i16, usize)> = Vec::new();
    for version in min..=max {
        let size = struct_size(message, found, version);
        match runs.last_mut() {
            Some((last, run)) if *run == size => *last = version,
            _ => runs.push((version, size)),
        }
    }
    let body = match runs.as_slice() {
        [] => "0".to_owned(),
        [(_, only)] => only.to_string(),
        [earlier @ .., (_, last)] => {
            let mut arms = String::new();
            let mut start = String::new();
            for (end, size) in earlier {
                let _infallible = writeln!(arms, "{start}..={end} => {size},");
                start = (end + 1).to_string();
            }
            format!("match version {{ {arms} _ => {last}, }}")
        }
    };
    format!("const fn min_size({}: i16) -> usize {{ {body} }}\n\n", parameter(&body, "version"))
}

/// The least bytes of a struct in any version.
pub(crate) fn smallest(message: &Message, found: &Struct) -> usize {
    let Span { min, max } = found.active;
    (min..=max).map(|version| struct_size(message, found, version)).min().unwrap_or_default()
}

fn struct_size(message: &Message, found: &Struct, version: i16) -> usize {
    let fields: usize = found
        .fields
        .iter()
        .filter(|field| field.tag.is_none() && field.versions.contains(version))
        .map(|field| {
            if matches!(field.ty, Type::Struct(_)) && field.nullable.is_some() {
                1
            } else {
                type_size(message, &field.ty, version)
            }
        })
        .sum();
    fields + usize::from(version >= message.first_flexible)
}

fn type_size(message: &Message, ty: &Type, version: i16) -> usize {
    let flexible = version >= message.first_flexible;
    match ty {
        Type::Bool | Type::Int8 => 1,
        Type::Int16 | Type::Uint16 | Type::Error => 2,
        Type::Int32 | Type::Uint32 => 4,
        Type::Int64 | Type::Float64 => 8,
        Type::Uuid => 16,
        Type::String => {
            if flexible {
                1
            } else {
                2
            }
        }
        Type::Bytes | Type::Records | Type::Array(_) => {
            if flexible {
                1
            } else {
                4
            }
        }
        Type::Struct(name) => {
            message.find(name).map_or(0, |found| struct_size(message, found, version))
        }
    }
}
