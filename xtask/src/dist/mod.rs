//! `cargo xtask dist`: what a user installs, one folder a language under `target/dist`.

pub(crate) mod c;
pub(crate) mod node;
pub(crate) mod python;

use std::path::{Path, PathBuf};

use crate::outcome::Done;
use crate::process::Run;
use crate::workspace::{Workspace, copy};

/// The licence texts go into every package.
fn copy_licences(workspace: &Workspace, to: &Path) -> Done {
    for name in ["LICENSE-MIT", "LICENSE-APACHE"] {
        copy(&workspace.root.join(name), &to.join(name))?;
    }
    Ok(())
}

/// Builds one library of a binding in release mode; `rustc` gets the last arguments.
fn library(workspace: &Workspace, package: &str, kind: &str, rustc: &[&str]) -> Run {
    let what = ["--release", "--package", package, "--lib", "--crate-type", kind, "--"];
    workspace.cargo("rustc").args(what).args(rustc)
}

fn release_dir(workspace: &Workspace) -> PathBuf {
    workspace.target.join("release")
}
