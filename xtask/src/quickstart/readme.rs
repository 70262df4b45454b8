//! The programs that stand in the READMEs, as they stand there.
//!
//! Rust's is built by `examples/rust/build.rs`. Those of the others are taken out here; what reads
//! for ever is ended when it has written what it should.

use super::LIMIT;
use crate::dist;
use crate::dist::python::Venv;
use crate::outcome::Done;
use crate::parts::{Linked, compile_c, npm_project};
use crate::process::Run;
use crate::tools::{self, CC, NODE, NPM, PKG_CONFIG, PYTHON};
use crate::workspace::{Workspace, read, write};

/// What the programs of one language must have written, by the README in which they stand.
type Stories = [(&'static str, &'static [&'static str])];

const IN_PYTHON: &Stories = &[
    ("README.md", &["orders 2 1", "b'k' b'fire and forget' 0", "b'k' b'awaited' 1"]),
    ("bindings-python/README.md", &["b'v'", "b'w'", "b'a'", "b'b'"]),
];
const IN_NODE: &Stories = &[
    ("README.md", &["orders 0 0n", "<Buffer 6b> <Buffer 61 77 61 69 74 65 64> 0n"]),
    ("bindings-node/README.md", &["orders 0 0n", "<Buffer 66 69 72", "<Buffer 63>"]),
];

pub(super) fn rust(workspace: &Workspace) -> Done {
    workspace.cargo("build").args(["--package", "ottla-examples", "--bin", "readme"]).check()?;
    let lines = Run::new(workspace.target.join("debug/readme")).limit(LIMIT).check()?;
    let texts = ["orders 0 0".to_owned(), format!("Some({:?}) at 0", b"awaited")];
    if lines == texts { Ok(()) } else { Err(format!("it told {lines:?}").into()) }
}

pub(super) fn python(workspace: &Workspace) -> Done {
    tools::need(&[&PYTHON])?;
    let wheel = dist::python::run(workspace)?;
    let scratch = workspace.scratch("readme")?;
    let venv = Venv::fresh(&scratch.path().join("venv"), &[&wheel.to_string_lossy()])?;
    for (page, texts) in IN_PYTHON {
        let program = scratch.path().join("readme.py");
        write(&program, block(workspace, page, "python")?)?;
        let run = venv.run("python").arg("-u").arg(&program).dir(scratch.path());
        run.limit(LIMIT).until(|lines| told(lines, texts))?;
    }
    Ok(())
}

pub(super) fn node(workspace: &Workspace) -> Done {
    tools::need(&[&NODE, &NPM])?;
    let tarball = dist::node::run(workspace)?;
    let scratch = workspace.scratch("readme")?;
    npm_project(scratch.path(), &tarball)?;
    for (page, texts) in IN_NODE {
        let program = scratch.path().join("readme.mjs");
        write(&program, block(workspace, page, "js")?)?;
        let run = Run::new("node").arg(&program).dir(scratch.path());
        run.limit(LIMIT).until(|lines| told(lines, texts))?;
    }
    Ok(())
}

pub(super) fn c(workspace: &Workspace) -> Done {
    tools::need(&[&CC, &PKG_CONFIG])?;
    let dist = dist::c::run(workspace)?;
    let scratch = workspace.scratch("readme")?;
    let lines = block(workspace, "README.md", "c")?;
    let (includes, statements): (Vec<&str>, Vec<&str>) =
        lines.lines().partition(|line| line.starts_with("#include"));
    let program = format!(
        "#include <stdio.h>\n{}\nint main(void)\n{{\n{}\nif (err) {{ puts(ottla_error_message(err)); return 1; }}\n\
         printf(\"orders %d %lld\\n\", (int)at.partition, (long long)at.offset);\nreturn 0;\n}}\n",
        includes.join("\n"),
        statements.join("\n")
    );
    let source = scratch.path().join("readme.c");
    write(&source, program)?;
    let program = compile_c(&dist, &source, scratch.path(), Linked::Shared)?;
    let lines = Run::new(program).limit(LIMIT).check()?;
    if lines == ["orders 0 0"] { Ok(()) } else { Err(format!("it told {lines:?}").into()) }
}

/// The first block of a language on a page.
fn block(workspace: &Workspace, page: &str, language: &str) -> Done<String> {
    let text = read(&workspace.root.join(page))?;
    let begin = format!("```{language}\n");
    let block = text.split_once(&begin).and_then(|(_, rest)| rest.split_once("```\n"));
    let (block, _) = block.ok_or_else(|| format!("no block of {language} in {page}"))?;
    Ok(block.to_owned())
}

/// Whether a program has written all of these.
fn told(lines: &[String], texts: &[&str]) -> bool {
    texts.iter().all(|text| lines.iter().any(|line| line.contains(text)))
}
