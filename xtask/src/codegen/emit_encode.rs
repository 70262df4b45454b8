//! Writing: the fields a version has, and errors for those it cannot carry.

use std::fmt::Write as _;

use super::emit_decode::{condition, fixed_method, opposite, parameter};
use super::emit_structs::default_value;
use super::model::{Default, Field, Message, Span, Struct, Type};
use super::names::{self, has_word};

/// The function that writes a struct.
pub(crate) fn write(message: &Message, found: &Struct) -> String {
    let mut body = String::new();
    for field in found.fields.iter().filter(|field| field.tag.is_none()) {
        body.push_str(&write_untagged(found, field));
    }
    if found.active.max >= message.first_flexible {
        body.push_str(&write_tags(message, found));
    }
    if has_word(&body, "form") {
        body.insert_str(0, "let form = Form::at(version, FLEXIBLE);\n");
    }
    body.push_str("Ok(())\n");
    format!(
        "fn write(&self, {}: &mut Writer, {}: i16) -> Result<(), EncodeError> {{\n{body}}}\n",
        parameter(&body, "w"),
        parameter(&body, "version")
    )
}

fn write_untagged(found: &Struct, field: &Field) -> String {
    let value = write_field(found, field);
    let Some(condition) = condition(field.versions, found.active) else { return value };
    if field.ignorable {
        return format!("if {condition} {{ {value} }}\n");
    }
    format!("if {condition} {{ {value} }} else if {} {{ {} }}\n", is_set(field), not_in(field))
}

fn not_in(field: &Field) -> String {
    format!("return Err(EncodeError::FieldNotInVersion {{ field: \"{}\", version }});", field.name)
}

/// An expression: whether the field has another value than its default.
fn is_set(field: &Field) -> String {
    let place = format!("self.{}", names::field(&field.name));
    if field.is_option() {
        return match (field.default, &field.ty) {
            (Default::Null, _) => format!("{place}.is_some()"),
            (_, Type::String | Type::Bytes | Type::Array(_)) => {
                format!("{place}.as_ref().is_none_or(|value| !value.is_empty())")
            }
            _ => format!("{place} != {}", default_value(field)),
        };
    }
    match (&field.ty, field.default) {
        (Type::Bool, Default::True) => format!("!{place}"),
        (Type::Bool, _) => place,
        (Type::String | Type::Bytes | Type::Array(_), _) => format!("!{place}.is_empty()"),
        (Type::Uuid, _) => format!("!{place}.is_zero()"),
        (Type::Float64, _) => format!("{place}.to_bits() != 0"),
        _ => format!("{place} != {}", default_value(field)),
    }
}

fn write_field(found: &Struct, field: &Field) -> String {
    let place = format!("self.{}", names::field(&field.name));
    let present = field.versions.overlap(found.active).unwrap_or(found.active);
    let Some(nullable) = field.nullable else {
        let mut text = String::new();
        if field.ty == Type::Records {
            text = null_check(field, &place, None);
        }
        text.push_str(&write_plain(&field.ty, &place));
        return text;
    };
    let text = match opposite(nullable, present) {
        None => String::new(),
        Some(never_null) => null_check(field, &place, Some(&never_null)),
    };
    let value = match &field.ty {
        Type::String => format!("w.nullable_string_as(form, {place})?;\n"),
        Type::Bytes => format!("w.nullable_bytes_as(form, {place})?;\n"),
        Type::Array(element) => {
            format!("w.nullable_array_as(form, {place}.as_deref(), {})?;\n", write_element(element))
        }
        Type::Struct(_) => {
            let marker = if field.tag.is_some() { "presence_in_tag" } else { "presence" };
            format!(
                "w.{marker}({place}.is_some());\n\
                 if let Some(value) = &{place} {{ value.write(w, version)?; }}\n"
            )
        }
        plain => write_plain(plain, &place),
    };
    text + &value
}

/// Refuses null where the version has no form for it.
fn null_check(field: &Field, place: &str, condition: Option<&str>) -> String {
    let null = if field.ty == Type::Records {
        format!("{place} == Records::Null")
    } else {
        format!("{place}.is_none()")
    };
    let condition = condition.map_or_else(String::new, |condition| format!("{condition} && "));
    format!(
        "if {condition}{null} {{\n\
         return Err(EncodeError::NullField {{ field: \"{}\", version }});\n}}\n",
        field.name
    )
}

fn write_plain(ty: &Type, place: &str) -> String {
    match ty {
        Type::Error => format!("w.i16({place}.0);\n"),
        Type::String => format!("w.string_as(form, {place})?;\n"),
        Type::Bytes => format!("w.bytes_as(form, {place})?;\n"),
        Type::Records => format!("w.records_as(form, {place})?;\n"),
        Type::Array(element) => {
            format!("w.array_as(form, &{place}, {})?;\n", write_element(element))
        }
        Type::Struct(_) => format!("{place}.write(w, version)?;\n"),
        fixed => format!("w.{}({place});\n", fixed_method(fixed)),
    }
}

fn write_element(ty: &Type) -> String {
    match ty {
        Type::String => "|w, value| w.string_as(form, value)".to_owned(),
        Type::Bytes => "|w, value| w.bytes_as(form, value)".to_owned(),
        Type::Records => "|w, value| w.records_as(form, *value)".to_owned(),
        Type::Struct(_) => "|w, value| value.write(w, version)".to_owned(),
        Type::Array(element) => {
            format!("|w, value| w.array_as(form, value, {})", write_element(element))
        }
        Type::Error => "|w, value| { w.i16(value.0); Ok(()) }".to_owned(),
        fixed => format!("|w, value| {{ w.{}(*value); Ok(()) }}", fixed_method(fixed)),
    }
}

/// Statements as an expression that is a result; a single one that is a result stays as it is.
fn as_result(statements: &str) -> String {
    let single = statements.strip_suffix("?;\n").filter(|rest| !rest.contains(['\n', ';']));
    single.map_or_else(|| format!("{{ {statements} Ok(()) }}"), str::to_owned)
}

/// The tagged fields that are set, after their count; in tag order.
fn write_tags(message: &Message, found: &Struct) -> String {
    let mut tagged: Vec<&Field> = found.fields.iter().filter(|field| field.tag.is_some()).collect();
    tagged.sort_by_key(|field| field.tag);
    let flexible = Span { min: message.first_flexible, max: i16::MAX };
    let active = found.active.overlap(flexible).unwrap_or(found.active);
    let mut text = String::new();
    for field in tagged.iter().filter(|field| !field.ignorable) {
        if let Some(absent) = opposite(field.versions, found.active) {
            let _infallible =
                writeln!(text, "if {absent} && {} {{ {} }}", is_set(field), not_in(field));
        }
    }
    text.push_str("if form == Form::Compact {\n");
    if tagged.is_empty() {
        text.push_str("w.uvarint(0);\n}\n");
        return text;
    }
    let mut counts = Vec::new();
    let mut bodies = String::new();
    for field in tagged {
        let name = format!("has_{}", names::snake(&field.name));
        let present = condition(field.versions, active)
            .map_or_else(String::new, |condition| format!("{condition} && "));
        let _infallible = writeln!(text, "let {name} = {present}{};", is_set(field));
        let value = write_field(found, field);
        let tag = field.tag.unwrap_or_default();
        let _infallible =
            writeln!(bodies, "if {name} {{ w.tag({tag}, |w| {})?; }}", as_result(&value));
        counts.push(format!("u32::from({name})"));
    }
    let _infallible = writeln!(text, "w.uvarint({});\n{bodies}}}", counts.join(" + "));
    text
}
