//! What follows from a definition: where structs appear, what borrows; and what must hold in it.

use std::collections::BTreeSet;

use super::model::{Default, Field, Message, Span, SpecError, Struct, Type};

/// Completes messages and refuses those that contradict themselves.
pub(crate) fn resolve(mut messages: Vec<Message>) -> Result<Vec<Message>, SpecError> {
    for message in &mut messages {
        spread(message)?;
        check(message)?;
    }
    Ok(messages)
}

fn error(message: &Message, line: usize, text: String) -> SpecError {
    SpecError { file: message.file.clone(), line, text }
}

/// Finds the versions in which each struct appears, whether it borrows, whether arrays hold it.
fn spread(message: &mut Message) -> Result<(), SpecError> {
    let mut seen: Vec<Option<Span>> = vec![None; message.structs.len()];
    let mut waiting = vec![(0_usize, message.versions)];
    while let Some((index, span)) = waiting.pop() {
        let Some(slot) = seen.get_mut(index) else { continue };
        if slot.is_some_and(|slot| slot.covers(span)) {
            continue;
        }
        *slot = Some(slot.map_or(span, |slot| slot.hull(span)));
        let Some(found) = message.structs.get(index) else { continue };
        for field in &found.fields {
            let Some(name) = field.ty.struct_name() else { continue };
            let Some(inner) = message.structs.iter().position(|inner| inner.name == name) else {
                return Err(error(message, field.line, format!("{name} is not defined")));
            };
            if let Some(overlap) = field.versions.overlap(span) {
                waiting.push((inner, overlap));
            }
        }
    }
    let in_arrays: BTreeSet<String> = message
        .structs
        .iter()
        .flat_map(|found| &found.fields)
        .filter(|field| matches!(field.ty, Type::Array(_)))
        .filter_map(|field| field.ty.struct_name().map(str::to_owned))
        .collect();
    let borrowing: Vec<bool> =
        message.structs.iter().map(|found| struct_borrows(message, found)).collect();
    for (index, span) in seen.into_iter().enumerate() {
        let Some(found) = message.structs.get(index) else { continue };
        let Some(span) = span else {
            return Err(error(message, found.line, format!("{} is never used", found.name)));
        };
        let borrows = borrowing.get(index).copied().unwrap_or_default();
        if let Some(found) = message.structs.get_mut(index) {
            found.active = span;
            found.borrows = borrows;
            found.in_array = in_arrays.contains(&found.name);
        }
    }
    Ok(())
}

fn struct_borrows(message: &Message, found: &Struct) -> bool {
    found.fields.iter().any(|field| {
        any_leaf(message, &field.ty, &|leaf| {
            matches!(leaf, Type::String | Type::Bytes | Type::Records)
        })
    })
}

/// Whether `wanted` holds for any type that `ty` is made of.
fn any_leaf(message: &Message, ty: &Type, wanted: &dyn Fn(&Type) -> bool) -> bool {
    match ty {
        Type::Array(element) => any_leaf(message, element, wanted),
        Type::Struct(name) => message.find(name).is_some_and(|found| {
            found.fields.iter().any(|field| any_leaf(message, &field.ty, wanted))
        }),
        leaf => wanted(leaf),
    }
}

fn check(message: &Message) -> Result<(), SpecError> {
    for found in &message.structs {
        let mut tags = BTreeSet::new();
        for field in &found.fields {
            check_field(message, found, field)
                .map_err(|text| error(message, field.line, format!("{}: {text}", field.name)))?;
            if let Some(tag) = field.tag
                && !tags.insert(tag)
            {
                return Err(error(message, field.line, format!("tag {tag} is given twice")));
            }
        }
        // Kafka numbers the tags of a struct from 0 without a gap.
        if tags.iter().copied().ne((0..).take(tags.len())) {
            return Err(error(message, found.line, "the tags have a gap".to_owned()));
        }
    }
    Ok(())
}

fn check_field(message: &Message, found: &Struct, field: &Field) -> Result<(), String> {
    let Some(present) = field.versions.overlap(found.active) else {
        return Err("it is in no version of the message".to_owned());
    };
    if field.nullable.is_some() && !field.ty.can_be_null() {
        return Err(format!("{} cannot be null", field.ty));
    }
    if let (Type::Struct(_), Some(nullable)) = (&field.ty, field.nullable)
        && !nullable.covers(present)
    {
        // The marker that stands before it would be there in some versions only.
        return Err("a struct is nullable in all its versions or in none".to_owned());
    }
    match field.default {
        Default::Null if field.nullable.is_none() => {
            return Err("its default is null, but it is not nullable".to_owned());
        }
        Default::True if field.ty != Type::Bool => {
            return Err("its default is true, but it is no bool".to_owned());
        }
        Default::Number(number) => check_number(&field.ty, number)?,
        _ => {}
    }
    if field.tag.is_some() {
        if present.min < message.first_flexible {
            return Err("it is tagged in a version that is not flexible".to_owned());
        }
        if any_leaf(message, &field.ty, &|leaf| *leaf == Type::Records) {
            return Err("records cannot lie in a tagged field".to_owned());
        }
    }
    Ok(())
}

fn check_number(ty: &Type, number: i64) -> Result<(), String> {
    let fits = match ty {
        Type::Int8 => i8::try_from(number).is_ok(),
        Type::Int16 | Type::Error => i16::try_from(number).is_ok(),
        Type::Uint16 => u16::try_from(number).is_ok(),
        Type::Int32 => i32::try_from(number).is_ok(),
        Type::Uint32 => u32::try_from(number).is_ok(),
        Type::Int64 => true,
        _ => false,
    };
    if fits { Ok(()) } else { Err(format!("{number} is no {ty}")) }
}
