//! The npm package: `target/dist/node/ottla-*.tgz`, with the native library inside.

use std::path::PathBuf;

use crate::outcome::Done;
use crate::process::Run;
use crate::tools::{self, NODE, NPM};
use crate::workspace::{Workspace, copy, copy_dir, fresh_dir, only_file};

use super::{copy_licences, library, release_dir};

/// The file that the package's loader requires.
const NATIVE: &str = "ottla.linux-x64-gnu.node";
/// What is not for the user; `files` in `package.json` chooses among the rest.
const LEFT_OUT: &[&str] = &["src", "test", "node_modules", "Cargo.toml", "build.rs"];

/// Builds the package and gives its path.
pub(crate) fn run(workspace: &Workspace) -> Done<PathBuf> {
    tools::need(&[&NODE, &NPM])?;
    library(workspace, "ottla-node", "cdylib", &["-C", "strip=symbols"]).check()?;
    let stage = workspace.dist("node-stage");
    fresh_dir(&stage)?;
    copy_dir(&workspace.root.join("bindings-node"), &stage, LEFT_OUT)?;
    copy(&release_dir(workspace).join("libottla_node.so"), &stage.join(NATIVE))?;
    copy_licences(workspace, &stage)?;
    let dist = workspace.dist("node");
    fresh_dir(&dist)?;
    let pack = Run::new("npm").args(["pack", "--ignore-scripts", "--pack-destination"]).arg(&dist);
    pack.dir(&stage).quiet().check()?;
    only_file(&dist, ".tgz")
}
