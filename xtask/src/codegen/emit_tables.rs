//! The list of message modules, and the tables of APIs and error codes.

use std::fmt::Write as _;

use super::emit_structs::first_line;
use super::model::{Kind, Message};
use super::names;
use super::tables::{ApiRow, ErrorRow};

/// `messages/mod.rs`.
pub(crate) fn messages_mod(messages: &[Message]) -> String {
    let mut text = first_line("The messages of all APIs and record schemas", "*.msg");
    let mut all: Vec<(String, &str)> =
        messages.iter().map(|message| (names::snake(&message.name), &*message.name)).collect();
    all.sort();
    text.push('\n');
    for (module, _) in &all {
        let _infallible = writeln!(text, "pub mod {module};");
    }
    text.push('\n');
    for (module, name) in &all {
        let _infallible = writeln!(text, "pub use {module}::{name};");
    }
    text
}

/// `api/table.rs`.
pub(crate) fn apis(rows: &[ApiRow], messages: &[Message]) -> String {
    let mut text = first_line("Kafka's APIs", "apis.tsv");
    text.push_str(
        "\nuse super::Row;\n\n\
         /// An API of Kafka's, by its name.\n\
         #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]\n\
         #[non_exhaustive]\npub enum ApiKey {\n",
    );
    let (mut all, mut numbers, mut names, mut facts) =
        (String::new(), String::new(), String::new(), String::new());
    for row in rows {
        let ApiRow { key, name, min, max, listed_min, on_brokers, on_controllers, .. } = row;
        let flexible = match row.first_flexible {
            i16::MAX => "i16::MAX".to_owned(),
            version => version.to_string(),
        };
        let about = match row.first_flexible {
            i16::MAX => "never flexible".to_owned(),
            version => format!("flexible {version}+"),
        };
        let _infallible =
            write!(text, "/// `{name}`: key {key}, versions {min}-{max}, {about}.\n{name},\n");
        let _infallible = writeln!(all, "Self::{name},");
        let _infallible = writeln!(numbers, "Self::{name} => {key},");
        let _infallible = writeln!(names, "{key} => Self::{name},");
        let _infallible = writeln!(
            facts,
            "Self::{name} => Row {{ name: \"{name}\", min: {min}, max: {max}, \
             listed_min: {listed_min}, first_flexible: {flexible}, on_brokers: {on_brokers}, \
             on_controllers: {on_controllers} }},"
        );
    }
    let mut coded = String::new();
    for message in messages {
        if let Kind::Request(api) = &message.kind {
            let _infallible = writeln!(coded, "Self::{},", api.name);
        }
    }
    let _infallible = write!(
        text,
        "}}\n\n#[allow(clippy::too_many_lines, reason = \"a table\")]\nimpl ApiKey {{\n\
         /// All APIs, by key.\npub const ALL: &'static [Self] = &[{all}];\n\n\
         /// The APIs whose requests and answers this crate has.\n\
         pub const WITH_MESSAGES: &'static [Self] = &[{coded}];\n\n\
         pub(super) const fn number(self) -> i16 {{ match self {{ {numbers} }} }}\n\n\
         pub(super) const fn from_number(number: i16) -> Option<Self> {{\n\
         Some(match number {{ {names} _ => return None, }}) }}\n\n\
         pub(super) const fn row(self) -> Row {{ match self {{ {facts} }} }}\n}}\n"
    );
    text
}

/// `error_code/table.rs`.
pub(crate) fn errors(rows: &[ErrorRow]) -> String {
    let mut text = first_line("Kafka's error codes", "errors.tsv");
    text.push_str(
        "\nuse super::{ErrorCode, Refresh};\n\n\
         #[allow(clippy::too_many_lines, reason = \"a table\")]\nimpl ErrorCode {\n",
    );
    let (mut names, mut retriable) = (String::new(), Vec::new());
    let (mut metadata, mut coordinator) = (Vec::new(), Vec::new());
    for ErrorRow { code, name, retriable: retry, refresh } in rows {
        let _infallible = writeln!(
            text,
            "/// Code {code}, {}.\npub const {name}: Self = Self({code});",
            if *retry { "retriable" } else { "not retriable" }
        );
        let _infallible = writeln!(names, "{code} => \"{name}\",");
        let pattern = format!("Self::{name}");
        if *retry {
            retriable.push(pattern.clone());
        }
        match refresh.as_deref() {
            Some("Metadata") => metadata.push(pattern),
            Some(_) => coordinator.push(pattern),
            None => {}
        }
    }
    let _infallible = write!(
        text,
        "\npub(super) const fn known_name(self) -> Option<&'static str> {{\n\
         Some(match self.0 {{ {names} _ => return None, }}) }}\n\n\
         /// Whether the same request may succeed later.\n\
         pub const fn is_retriable(self) -> bool {{ matches!(self, {}) }}\n\n\
         /// What must be asked for anew before the request is tried again.\n\
         pub const fn refresh(self) -> Option<Refresh> {{ match self {{\n\
         {} => Some(Refresh::Metadata),\n{} => Some(Refresh::Coordinator),\n_ => None,\n}} }}\n}}\n",
        retriable.join(" | "),
        metadata.join(" | "),
        coordinator.join(" | ")
    );
    text
}
