//! `cargo xtask ci`: all that must hold before a change lands, in one run with one total.

use std::process::ExitCode;

use crate::outcome::{Done, Report};
use crate::workspace::Workspace;
use crate::{check, interop, parts};

pub(crate) fn run(workspace: &Workspace) -> Done<ExitCode> {
    let mut report = Report::new();
    check::run(workspace, &mut report);
    parts::run(workspace, &mut report, None)?;
    interop::run(workspace, &mut report, "smoke")?;
    interop::diff(workspace, &mut report, &[])?;
    Ok(report.finish())
}
