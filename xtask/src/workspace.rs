//! Where things stand: the source tree, the build folder, and folders of our own inside it.

use std::ffi::OsStr;
use std::fs;
use std::net::{Ipv4Addr, TcpListener};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use crate::outcome::{Doing, Done, Stop, in_ci};
use crate::process::Run;

/// The source tree and its build folder.
#[derive(Clone, Debug)]
pub(crate) struct Workspace {
    /// The folder that holds the workspace's `Cargo.toml`.
    pub(crate) root: PathBuf,
    /// Where cargo builds.
    pub(crate) target: PathBuf,
}

impl Workspace {
    /// Finds the tree this program was built from, or the one around the current folder.
    pub(crate) fn find() -> Done<Self> {
        let here = std::env::current_dir().doing("cannot tell the current folder")?;
        let built = Path::new(env!("CARGO_MANIFEST_DIR"));
        let root = built
            .ancestors()
            .chain(here.ancestors())
            .find(|dir| dir.join("xtask/Cargo.toml").is_file() && dir.join("Cargo.lock").is_file())
            .ok_or_else(|| Stop::Failed("run this inside the source tree".to_owned()))?
            .to_owned();
        let target = std::env::var_os("CARGO_TARGET_DIR")
            .map_or_else(|| root.join("target"), |dir| here.join(dir));
        Ok(Self { root, target })
    }

    /// A cargo command in this tree. In CI the lock file must be up to date as committed.
    pub(crate) fn cargo(&self, command: &str) -> Run {
        let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
        let run = Run::new(cargo).dir(&self.root).env("CARGO_TARGET_DIR", &self.target);
        let run = run.arg(command);
        if in_ci() && command != "fmt" { run.arg("--locked") } else { run }
    }

    /// What a user installs is left here, whatever the build folder.
    pub(crate) fn dist(&self, language: &str) -> PathBuf {
        self.root.join("target/dist").join(language)
    }

    /// A folder that is kept from run to run.
    pub(crate) fn cache(&self, name: &str) -> Done<PathBuf> {
        let dir = self.root.join("target").join(name);
        fs::create_dir_all(&dir).doing(format_args!("cannot make {}", dir.display()))?;
        Ok(dir)
    }

    /// A compiler of our own crates that sets `cfg(NAME)`, for cargo's `RUSTC_WORKSPACE_WRAPPER`.
    pub(crate) fn compiler(&self, cfg: &str) -> Done<PathBuf> {
        // Cargo keeps what it makes apart by its path.
        let compiler = self.cache("compilers")?.join(cfg);
        write(&compiler, format!("#!/bin/sh\nexec \"$@\" --cfg {cfg}\n"))?;
        fs::set_permissions(&compiler, fs::Permissions::from_mode(0o755))
            .doing(format_args!("cannot make {} a program", compiler.display()))?;
        Ok(compiler)
    }

    /// A fresh folder that goes when the value does.
    pub(crate) fn scratch(&self, name: &str) -> Done<Scratch> {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!("{name}-{}-{number}", std::process::id());
        let path = self.cache("scratch")?.join(name);
        fs::create_dir(&path).doing(format_args!("cannot make {}", path.display()))?;
        Ok(Scratch { path })
    }

    /// The version that all crates share.
    pub(crate) fn version(&self) -> Done<String> {
        let manifest = read(&self.root.join("Cargo.toml"))?;
        let mut section = "";
        for line in manifest.lines() {
            if line.starts_with('[') {
                section = line;
            } else if section == "[workspace.package]"
                && let Some(value) = line.strip_prefix("version = ")
            {
                return Ok(value.trim_matches('"').to_owned());
            }
        }
        Err("Cargo.toml names no workspace version".into())
    }
}

/// A folder that is removed at the end.
#[derive(Debug)]
pub(crate) struct Scratch {
    path: PathBuf,
}

impl Scratch {
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        if let Err(error) = fs::remove_dir_all(&self.path) {
            println!("cannot remove {}: {error}", self.path.display());
        }
    }
}

pub(crate) fn read(path: &Path) -> Done<String> {
    fs::read_to_string(path).doing(format_args!("cannot read {}", path.display()))
}

pub(crate) fn write(path: &Path, text: impl AsRef<[u8]>) -> Done {
    fs::write(path, text).doing(format_args!("cannot write {}", path.display()))
}

pub(crate) fn copy(from: &Path, to: &Path) -> Done {
    fs::copy(from, to)
        .doing(format_args!("cannot copy {} to {}", from.display(), to.display()))
        .map(|_| ())
}

/// Makes the folder, empty.
pub(crate) fn fresh_dir(path: &Path) -> Done {
    if path.exists() {
        fs::remove_dir_all(path).doing(format_args!("cannot remove {}", path.display()))?;
    }
    fs::create_dir_all(path).doing(format_args!("cannot make {}", path.display()))
}

/// Copies a folder, leaving out entries of these names at its top.
pub(crate) fn copy_dir(from: &Path, to: &Path, without: &[&str]) -> Done {
    fs::create_dir_all(to).doing(format_args!("cannot make {}", to.display()))?;
    for path in entries(from)? {
        let Some(name) = path.file_name() else { continue };
        if without.iter().any(|left_out| name == OsStr::new(left_out)) {
            continue;
        }
        if path.is_dir() {
            copy_dir(&path, &to.join(name), &["node_modules", "__pycache__"])?;
        } else {
            copy(&path, &to.join(name))?;
        }
    }
    Ok(())
}

/// The entries of a folder, in the order of their names.
pub(crate) fn entries(dir: &Path) -> Done<Vec<PathBuf>> {
    let list = fs::read_dir(dir).doing(format_args!("cannot list {}", dir.display()))?;
    let mut paths = Vec::new();
    for entry in list {
        paths.push(entry.doing(format_args!("cannot list {}", dir.display()))?.path());
    }
    paths.sort();
    Ok(paths)
}

/// The files of a folder whose names end like this, in order.
pub(crate) fn files_ending(dir: &Path, ends: &[&str]) -> Done<Vec<PathBuf>> {
    let fits = |path: &PathBuf| {
        let name = path.file_name().map(OsStr::to_string_lossy).unwrap_or_default();
        path.is_file() && ends.iter().any(|end| name.ends_with(end))
    };
    Ok(entries(dir)?.into_iter().filter(fits).collect())
}

/// The one file of a folder whose name ends like this.
pub(crate) fn only_file(dir: &Path, end: &str) -> Done<PathBuf> {
    match files_ending(dir, &[end])?.as_slice() {
        [one] => Ok(one.clone()),
        many => Err(format!("{} *{end} in {}, expected one", many.len(), dir.display()).into()),
    }
}

/// A loopback port that was free a moment ago.
pub(crate) fn free_port() -> Done<u16> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).doing("cannot bind loopback")?;
    Ok(listener.local_addr().doing("cannot tell the port")?.port())
}
