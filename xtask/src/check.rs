//! `cargo xtask check`: everything a compiler and the rules of the tree have to say.

use crate::codegen;
use crate::dist::python::Venv;
use crate::outcome::{Done, Report, Stop};
use crate::tables;
use crate::tidy;
use crate::tools::{self, PYTHON};
use crate::workspace::Workspace;

/// Checks Python's files; pinned, since what it finds grows from version to version.
const RUFF: &str = "ruff==0.17.6";

/// Adds the checks to a report, the quick ones first.
pub(crate) fn run(workspace: &Workspace, report: &mut Report) {
    report.step("format", || format(workspace));
    report.step("tidy", || tidy::run(workspace));
    report.step("generated files", || generated(workspace));
    report.step("python", || python(workspace));
    report.step("lints", || lints(workspace));
    report.step("docs", || docs(workspace));
}

fn format(workspace: &Workspace) -> Done {
    workspace.cargo("fmt").args(["--all", "--check"]).check().map(|_| ())
}

fn generated(workspace: &Workspace) -> Done {
    codegen::run(&["--check"]).map_err(Stop::Failed)?;
    tables::run(workspace, true)
}

/// Python's files, by `ruff.toml`.
fn python(workspace: &Workspace) -> Done {
    tools::need(&[&PYTHON])?;
    let venv = Venv::kept(workspace, "ruff", &[RUFF])?;
    let ruff = || venv.run("ruff").env("RUFF_NO_CACHE", "true").dir(&workspace.root);
    ruff().args(["format", "--check", "--quiet"]).check()?;
    ruff().args(["check", "--quiet"]).check().map(|_| ())
}

fn lints(workspace: &Workspace) -> Done {
    let every = ["--workspace", "--all-targets", "--", "-D", "warnings"];
    workspace.cargo("clippy").args(every).check().map(|_| ())
}

fn docs(workspace: &Workspace) -> Done {
    let doc = workspace.cargo("doc").args(["--workspace", "--no-deps"]);
    doc.env("RUSTDOCFLAGS", "-D warnings").check().map(|_| ())
}
