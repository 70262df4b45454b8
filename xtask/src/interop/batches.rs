//! `cargo xtask interop batches`: batches in each form in which others pack them, put together by hand.
//!
//! `conformance/batches/make.py` writes them; tests of the protocol crate and of the client read the
//! committed ones. Here they are written anew, or compared with what it writes today.

use crate::outcome::{Count, Done};
use crate::process::Run;
use crate::results;
use crate::tools::{self, PYTHON};
use crate::workspace::Workspace;

/// What writes them, from the workspace's root.
const MAKER: &str = "conformance/batches/make.py";

fn maker(workspace: &Workspace) -> Done<Run> {
    tools::need(&[&PYTHON])?;
    Ok(Run::new("python3").arg(workspace.root.join(MAKER)))
}

/// Writes the committed batches anew.
pub(crate) fn renew(workspace: &Workspace) -> Done<Count> {
    maker(workspace)?.check()?;
    check(workspace)
}

/// Fails unless the committed batches are what their maker writes.
pub(super) fn check(workspace: &Workspace) -> Done<Count> {
    let finished = maker(workspace)?.arg("--check").finish()?;
    results::settle(&finished, results::plain)
}
