//! The wheel: `target/dist/python/ottla-*.whl`, one for CPython 3.11 and all later ones.

use std::path::{Path, PathBuf};

use crate::outcome::Done;
use crate::process::Run;
use crate::tools::{self, PYTHON};
use crate::workspace::{Workspace, fresh_dir, only_file, read, write};

/// Builds wheels; pinned, since its output is what users install.
const MATURIN: &str = "maturin==1.16.0";

/// Builds the wheel and gives its path.
pub(crate) fn run(workspace: &Workspace) -> Done<PathBuf> {
    tools::need(&[&PYTHON])?;
    let dist = workspace.dist("python");
    fresh_dir(&dist)?;
    let tools = Venv::kept(workspace, "maturin", &[MATURIN])?;
    let build = tools.run("maturin").args(["build", "--release", "--strip", "--locked"]);
    let build = build.arg("--manifest-path").arg(workspace.root.join("bindings-python/Cargo.toml"));
    let build = build.arg("--interpreter").arg("python3").arg("--out").arg(&dist);
    build.dir(&workspace.root).env("CARGO_TARGET_DIR", &workspace.target).check()?;
    only_file(&dist, ".whl")
}

/// A virtual environment of Python.
#[derive(Debug)]
pub(crate) struct Venv {
    dir: PathBuf,
}

impl Venv {
    /// Makes one at `dir`, with these requirements.
    pub(crate) fn fresh(dir: &Path, requirements: &[&str]) -> Done<Self> {
        Run::new("python3").args(["-m", "venv", "--clear"]).arg(dir).quiet().check()?;
        let venv = Self { dir: dir.to_owned() };
        if !requirements.is_empty() {
            venv.install(requirements)?;
        }
        Ok(venv)
    }

    /// One that is kept under the build folder, and made again when the requirements change.
    pub(crate) fn kept(workspace: &Workspace, name: &str, requirements: &[&str]) -> Done<Self> {
        let dir = workspace.cache("venv")?.join(name);
        let stamp = dir.join("requirements");
        let wanted = requirements.join("\n");
        if stamp.is_file() && read(&stamp)? == wanted {
            return Ok(Self { dir });
        }
        let venv = Self::fresh(&dir, requirements)?;
        write(&stamp, wanted)?;
        Ok(venv)
    }

    pub(crate) fn install(&self, requirements: &[&str]) -> Done {
        let pip = self.run("python").args(["-m", "pip", "install", "--disable-pip-version-check"]);
        pip.arg("--quiet").args(requirements).quiet().check().map(|_| ())
    }

    /// The path of one of its programs.
    pub(crate) fn program(&self, program: &str) -> PathBuf {
        self.dir.join("bin").join(program)
    }

    /// Runs one of its programs.
    pub(crate) fn run(&self, program: &str) -> Run {
        let run = Run::new(self.program(program));
        run.env("VIRTUAL_ENV", &self.dir).env("PYTHONDONTWRITEBYTECODE", "1")
    }
}
