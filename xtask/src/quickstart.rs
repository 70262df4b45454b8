//! `cargo xtask test quickstart`: the first programs of each language, as a user would run them.
//!
//! Each is copied into an empty folder and finds nothing but the package that was built for users.

mod readme;

use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::dist;
use crate::dist::python::Venv;
use crate::outcome::{Count, Done, Stop, in_ci};
use crate::parts::{Linked, compile_c, npm_project};
use crate::process::Run;
use crate::tools::{self, CC, NODE, NPM, PKG_CONFIG, PYTHON};
use crate::workspace::{Scratch, Workspace, copy};

/// Longest one program may take: a hang is a failure.
const LIMIT: Duration = Duration::from_mins(1);

type Program = fn(&Workspace) -> Done;
const PROGRAMS: &[(&str, Program)] = &[
    ("quickstart in rust", rust),
    ("quickstart in python", python),
    ("quickstart in node", node),
    ("quickstart in c", c),
    ("README in rust", readme::rust),
    ("README in python", readme::python),
    ("README in node", readme::node),
    ("README in c", readme::c),
];

pub(crate) fn run(workspace: &Workspace) -> Count {
    let mut total = Count::default();
    for (name, program) in PROGRAMS {
        match program(workspace) {
            Err(stop @ Stop::Missing { .. }) if !in_ci() => {
                println!("skipped {name}: {stop}");
                total.skipped += 1;
            }
            outcome => total += Count::check(name, outcome.map_err(|stop| stop.to_string())),
        }
    }
    total
}

/// The program of one language, alone in a scratch folder.
fn alone(workspace: &Workspace, file: &str) -> Done<(Scratch, PathBuf)> {
    let scratch = workspace.scratch("quickstart")?;
    let program = scratch.path().join(file);
    copy(&workspace.root.join("examples/quickstart").join(file), &program)?;
    Ok((scratch, program))
}

fn rust(workspace: &Workspace) -> Done {
    workspace
        .cargo("build")
        .args(["--package", "ottla-examples", "--bin", "quickstart"])
        .check()?;
    Run::new(workspace.target.join("debug/quickstart")).limit(LIMIT).check().map(|_| ())
}

fn python(workspace: &Workspace) -> Done {
    tools::need(&[&PYTHON])?;
    let wheel = dist::python::run(workspace)?;
    let (scratch, program) = alone(workspace, "quickstart.py")?;
    let venv = Venv::fresh(&scratch.path().join("venv"), &[&wheel.to_string_lossy()])?;
    venv.run("python").arg(program).dir(scratch.path()).limit(LIMIT).check().map(|_| ())
}

fn node(workspace: &Workspace) -> Done {
    tools::need(&[&NODE, &NPM])?;
    let tarball = dist::node::run(workspace)?;
    let (scratch, program) = alone(workspace, "quickstart.mjs")?;
    npm_project(scratch.path(), &tarball)?;
    Run::new("node").arg(program).dir(scratch.path()).limit(LIMIT).check().map(|_| ())
}

fn c(workspace: &Workspace) -> Done {
    tools::need(&[&CC, &PKG_CONFIG])?;
    let dist = dist::c::run(workspace)?;
    for linked in [Linked::Shared, Linked::Static] {
        let (scratch, source) = alone(workspace, "quickstart.c")?;
        let program: &Path = &compile_c(&dist, &source, scratch.path(), linked)?;
        Run::new(program).dir(scratch.path()).limit(LIMIT).check()?;
    }
    Ok(())
}
