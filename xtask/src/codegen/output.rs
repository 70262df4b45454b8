//! Generated files: formatting, writing, comparing.

use std::collections::BTreeSet;
use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// A generated file.
#[derive(Debug)]
pub(crate) struct Output {
    /// From the workspace's root.
    path: String,
    text: String,
}

impl Output {
    /// Rust code, which is formatted as the workspace's own code is.
    pub(crate) fn rust(path: String, code: &str) -> Result<Self, String> {
        let text = format(code).map_err(|e| format!("{path}: {e}"))?;
        Ok(Self { path, text })
    }
}

fn format(code: &str) -> Result<String, String> {
    let mut child = Command::new("rustfmt")
        .args(["--edition", "2024", "--config", "max_width=100,use_small_heuristics=Max"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(|e| format!("rustfmt does not start: {e}"))?;
    let mut stdin = child.stdin.take().ok_or("rustfmt has no stdin")?;
    // rustfmt reads its whole input before it writes, so neither side can block the other.
    stdin.write_all(code.as_bytes()).map_err(|e| format!("rustfmt stops reading: {e}"))?;
    drop(stdin);
    let done = child.wait_with_output().map_err(|e| format!("rustfmt: {e}"))?;
    if !done.status.success() {
        return Err(format!("rustfmt: {}", String::from_utf8_lossy(&done.stderr)));
    }
    String::from_utf8(done.stdout).map_err(|e| format!("rustfmt: {e}"))
}

/// Files in `folders` that no output stands for: their definitions are gone.
fn stale(root: &Path, folders: &[PathBuf], outputs: &[Output]) -> Result<Vec<PathBuf>, String> {
    let kept: BTreeSet<PathBuf> = outputs.iter().map(|output| root.join(&output.path)).collect();
    let mut stale = Vec::new();
    for folder in folders.iter().filter(|folder| folder.exists()) {
        let entries = fs::read_dir(folder).map_err(|e| format!("{}: {e}", folder.display()))?;
        for entry in entries {
            let path = entry.map_err(|e| format!("{}: {e}", folder.display()))?.path();
            if !kept.contains(&path) {
                stale.push(path);
            }
        }
    }
    stale.sort();
    Ok(stale)
}

/// Writes the outputs that differ, and removes files whose definitions are gone.
pub(crate) fn write(root: &Path, folders: &[PathBuf], outputs: &[Output]) -> Result<(), String> {
    for output in outputs {
        let path = root.join(&output.path);
        if fs::read_to_string(&path).is_ok_and(|present| present == output.text) {
            continue;
        }
        if let Some(folder) = path.parent() {
            fs::create_dir_all(folder).map_err(|e| format!("{}: {e}", folder.display()))?;
        }
        fs::write(&path, &output.text).map_err(|e| format!("{}: {e}", path.display()))?;
    }
    for path in stale(root, folders, outputs)? {
        fs::remove_file(&path).map_err(|e| format!("{}: {e}", path.display()))?;
    }
    Ok(())
}

/// An error that lists the files which are not as they would be generated.
pub(crate) fn check(root: &Path, folders: &[PathBuf], outputs: &[Output]) -> Result<(), String> {
    let mut wrong = Vec::new();
    for output in outputs {
        let path = root.join(&output.path);
        if !fs::read_to_string(&path).is_ok_and(|present| present == output.text) {
            wrong.push(output.path.clone());
        }
    }
    for path in stale(root, folders, outputs)? {
        wrong.push(format!("{} (its definition is gone)", path.display()));
    }
    if wrong.is_empty() {
        return Ok(());
    }
    Err(format!("not as generated, run `cargo xtask codegen`:\n  {}", wrong.join("\n  ")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_changed_a_missing_and_a_stale_file_are_told() {
        let root = std::env::temp_dir().join(format!("ottla-codegen-{}", std::process::id()));
        let folder = root.join("gen");
        let output = |name: &str| Output { path: format!("gen/{name}"), text: "same".to_owned() };
        let outputs = [output("a.rs"), output("b.rs")];
        let folders = [folder.clone()];
        write(&root, &folders, &outputs).unwrap();
        assert_eq!(check(&root, &folders, &outputs), Ok(()));
        fs::write(folder.join("a.rs"), "other").unwrap();
        fs::remove_file(folder.join("b.rs")).unwrap();
        fs::write(folder.join("c.rs"), "").unwrap();
        let told = check(&root, &folders, &outputs).unwrap_err();
        assert!(["a.rs", "b.rs", "c.rs"].iter().all(|name| told.contains(name)), "{told}");
        write(&root, &folders, &outputs).unwrap();
        assert_eq!(check(&root, &folders, &outputs), Ok(()));
        fs::remove_dir_all(&root).unwrap();
    }
}
