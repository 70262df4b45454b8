//! Sample messages for the protocol crate's tests.

use std::fmt::Write as _;

use super::emit_decode::{condition, parameter};
use super::emit_structs::{first_line, type_name};
use super::model::{Field, Message, Struct, Type};
use super::names;

/// A file with a filler for each struct, and a macro that lists all messages.
pub(crate) fn samples(messages: &[Message]) -> String {
    let mut text = first_line("Sample messages for tests", "*.msg");
    text.push_str(
        "#![allow(clippy::too_many_lines, clippy::field_reassign_with_default, \
         clippy::wildcard_imports, reason = \"generated\")]\n\n\
         use super::tests::{Numbers, Sample};\nuse crate::error_code::ErrorCode;\n\
         use crate::messages::*;\nuse crate::writer::Records;\n\n",
    );
    text.push_str("/// Calls a macro with the names of all messages.\n");
    text.push_str("macro_rules! every_message { ($visit:ident) => { $visit! {\n");
    for message in messages {
        let _infallible = writeln!(text, "{},", message.name);
    }
    text.push_str("} } }\npub(super) use every_message;\n\n");
    for message in messages {
        for found in &message.structs {
            text.push_str(&sample(message, found));
        }
    }
    text
}

fn sample(message: &Message, found: &Struct) -> String {
    let mut body = String::new();
    for field in &found.fields {
        let name = names::field(&field.name);
        let value = field_value(found, field);
        let assignment =
            format!("sample.{name} = n.field(\"{}\", {});", field.name, drawing(&value));
        let _infallible = match condition(field.versions, found.active) {
            None => writeln!(body, "{assignment}"),
            Some(condition) => writeln!(body, "if {condition} {{ {assignment} }}"),
        };
    }
    let mut name = type_name(found, "'static");
    if found.name != message.name {
        name.insert_str(0, &format!("{}::", names::snake(&message.name)));
    }
    let body = if body.is_empty() {
        "Self::default()\n".to_owned()
    } else {
        format!("let mut sample = Self::default();\n{body}sample\n")
    };
    format!(
        "impl Sample for {name} {{\n\
         fn sample({}: i16, {}: &mut Numbers) -> Self {{\n{body}}}\n}}\n\n",
        parameter(&body, "version"),
        parameter(&body, "n")
    )
}

fn field_value(found: &Struct, field: &Field) -> String {
    let plain = value(&field.ty);
    let Some(nullable) = field.nullable else { return plain };
    let present = field.versions.overlap(found.active).unwrap_or(found.active);
    let may_be_null = condition(nullable, present);
    let null = if field.ty == Type::Records { "Records::Null" } else { "None" };
    let some = if field.ty == Type::Records { plain } else { format!("Some({plain})") };
    let guard = may_be_null.map_or_else(String::new, |condition| format!("{condition} && "));
    format!("if {guard}n.null() {{ {null} }} else {{ {some} }}")
}

/// A function that draws `value`: the method itself where it is nothing else.
fn drawing(value: &str) -> String {
    match value.strip_prefix("n.").and_then(|call| call.strip_suffix("()")) {
        Some(method) if !method.contains(['(', ' ']) => format!("Numbers::{method}"),
        _ => format!("|n| {{ {value} }}"),
    }
}

fn value(ty: &Type) -> String {
    match ty {
        Type::Bool => "n.flip()".to_owned(),
        Type::Int8 => "n.int8()".to_owned(),
        Type::Int16 => "n.int16()".to_owned(),
        Type::Uint16 => "n.int16().cast_unsigned()".to_owned(),
        Type::Int32 => "n.int32()".to_owned(),
        Type::Uint32 => "n.int32().cast_unsigned()".to_owned(),
        Type::Int64 => "n.int64()".to_owned(),
        Type::Float64 => "f64::from(n.int32())".to_owned(),
        Type::Error => "ErrorCode(n.int16())".to_owned(),
        Type::Uuid => "n.uuid()".to_owned(),
        Type::String => "n.string()".to_owned(),
        Type::Bytes => "n.bytes()".to_owned(),
        Type::Records => "Records::Inline(n.bytes())".to_owned(),
        Type::Array(element) => {
            format!("n.array({})", drawing(&value(element)))
        }
        Type::Struct(_) => "Sample::sample(version, n)".to_owned(),
    }
}
