//! `cargo xtask codegen [--check]`: Rust code of the protocol crate from `protocol/spec`.

mod emit_decode;
mod emit_encode;
mod emit_samples;
mod emit_structs;
mod emit_tables;
mod model;
mod names;
mod output;
mod parse;
mod resolve;
mod tables;

use std::fs;
use std::path::{Path, PathBuf};

pub(crate) use model::{Default, Field, Kind, Message, Span, Struct, Type};
use output::Output;
pub(crate) use tables::{ApiRow, ErrorRow, apis as api_rows};

/// The workspace's root folder.
fn root() -> Result<PathBuf, String> {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .parent()
        .map(Path::to_path_buf)
        .ok_or_else(|| "xtask has no parent folder".to_owned())
}

/// Writes the generated files, or with `--check` fails if any differs from what stands there.
pub(crate) fn run(options: &[&str]) -> Result<(), String> {
    let check = match options {
        [] => false,
        ["--check"] => true,
        _ => return Err("usage: cargo xtask codegen [--check]".to_owned()),
    };
    let root = root()?;
    let outputs = outputs(&root.join("protocol/spec"))?;
    let folders = [root.join("protocol/src/messages")];
    if check {
        output::check(&root, &folders, &outputs)
    } else {
        output::write(&root, &folders, &outputs)
    }
}

/// Everything that the definitions in `spec` become, formatted, in a fixed order.
fn outputs(spec: &Path) -> Result<Vec<Output>, String> {
    let messages = messages(spec)?;
    let apis = apis(spec)?;
    let errors = errors(spec)?;
    for message in &messages {
        tables::check_api(&apis, message)?;
    }
    let mut outputs = Vec::new();
    for message in &messages {
        let path = format!("protocol/src/messages/{}.rs", names::snake(&message.name));
        outputs.push(Output::rust(path, &emit_structs::message(message, &messages))?);
    }
    let generated = [
        ("protocol/src/messages/mod.rs", emit_tables::messages_mod(&messages)),
        ("protocol/src/message/samples.rs", emit_samples::samples(&messages)),
        ("protocol/src/api/table.rs", emit_tables::apis(&apis, &messages)),
        ("protocol/src/error_code/table.rs", emit_tables::errors(&errors)),
    ];
    for (path, text) in generated {
        outputs.push(Output::rust(path.to_owned(), &text)?);
    }
    Ok(outputs)
}

/// The lines of `apis.tsv`.
pub(crate) fn apis(spec: &Path) -> Result<Vec<ApiRow>, String> {
    api_rows(&read(&spec.join("apis.tsv"))?)
}

/// The lines of `errors.tsv`.
pub(crate) fn errors(spec: &Path) -> Result<Vec<ErrorRow>, String> {
    tables::errors(&read(&spec.join("errors.tsv"))?)
}

/// The messages that a definition file called `name` with this text defines.
pub(crate) fn parsed(name: &str, text: &str) -> Result<Vec<Message>, String> {
    parse::parse(name, text).and_then(resolve::resolve).map_err(|error| error.to_string())
}

/// All messages of all `.msg` files, by file name.
pub(crate) fn messages(spec: &Path) -> Result<Vec<Message>, String> {
    let entries = fs::read_dir(spec).map_err(|e| format!("{}: {e}", spec.display()))?;
    let mut files = Vec::new();
    for entry in entries {
        let path = entry.map_err(|e| format!("{}: {e}", spec.display()))?.path();
        if path.extension().is_some_and(|extension| extension == "msg") {
            files.push(path);
        }
    }
    files.sort();
    let mut messages = Vec::new();
    for path in files {
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default().to_owned();
        messages.extend(parsed(&name, &read(&path)?)?);
    }
    Ok(messages)
}

fn read(path: &Path) -> Result<String, String> {
    fs::read_to_string(path).map_err(|e| format!("{}: {e}", path.display()))
}
