//! Mending a data directory by what [`crate::check`] found: first told, then done.
//!
//! What is no batch is taken out of its segment; the batches after it stay, at their offsets, with
//! a gap before them. A file that can be made anew is put out of the way. Nothing is thrown away:
//! bytes and files that are dropped are kept beside, under names that end with `.damaged`.

use std::collections::BTreeMap;
use std::fmt;
use std::io::{self, IoSlice};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::check::{DirectoryCheck, Finding, Remedy, Severity};
use crate::checkpoint::{CleanShutdown, sync_dir};
use crate::error::LogError;
use crate::files::{File, Files, OpenMode};
use crate::folder::{INDEX, TIME_INDEX, file_name};

/// Bytes copied at once.
const CHUNK: u64 = 1 << 20;

/// One thing that a repair does.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RepairStep {
    /// Takes bytes out of a segment, and keeps them in a file of their own.
    CutOut {
        /// The segment's file.
        path: PathBuf,
        /// Its base offset.
        base: i64,
        /// Where the bytes begin.
        position: u64,
        /// How many there are.
        len: u64,
        /// First offset that is lost, and the one after the last, if that is known.
        offsets: (i64, Option<i64>),
        /// The file that keeps them.
        aside: PathBuf,
    },
    /// Gives a file another name; the next start makes a new one.
    SetAside {
        /// The file.
        path: PathBuf,
        /// Its other name.
        aside: PathBuf,
    },
}

impl fmt::Display for RepairStep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::CutOut { path, position, len, offsets, aside, .. } => {
                write!(f, "drop {len} bytes at {position} of {}, ", path.display())?;
                match offsets {
                    (from, Some(end)) => write!(f, "offsets {from} to {}", end - 1)?,
                    (from, None) => write!(f, "from offset {from} to the segment's end")?,
                }
                write!(f, "; keep them in {}", aside.display())
            }
            Self::SetAside { path, aside } => {
                write!(f, "rename {} to {}; it is made anew", path.display(), aside.display())
            }
        }
    }
}

/// What mends all damage that was found, in order. Empty if there is none that can be mended.
pub fn plan(check: &DirectoryCheck) -> Vec<RepairStep> {
    let damaged = check.all_findings().filter(|finding| finding.severity == Severity::Damage);
    let mut steps: Vec<_> = damaged.filter_map(step).collect();
    // A file is put aside once, however much is wrong with it.
    steps.dedup();
    steps
}

fn step(finding: &Finding) -> Option<RepairStep> {
    let path = finding.path.clone();
    let named = |end: String| {
        let mut name = path.as_os_str().to_owned();
        name.push(end);
        PathBuf::from(name)
    };
    Some(match finding.remedy.as_ref()? {
        Remedy::SetAside => RepairStep::SetAside { aside: named(".damaged".to_owned()), path },
        &Remedy::CutOut { base, position, len } => RepairStep::CutOut {
            aside: named(format!(".{position}.damaged")),
            base,
            position,
            len,
            offsets: finding.offsets.unwrap_or((base, None)),
            path,
        },
    })
}

/// Does what was planned. The directory must be locked, so that no broker has it open.
///
/// A crash in between leaves a directory in which every step is done or not; check it again then.
pub fn apply(files: &dyn Files, dir: &Path, steps: &[RepairStep]) -> Result<(), LogError> {
    let mut segments: BTreeMap<&Path, Vec<(u64, u64, &Path)>> = BTreeMap::new();
    let mut bases: BTreeMap<&Path, i64> = BTreeMap::new();
    // From now on nothing here is as a clean stop left it.
    CleanShutdown::take(files, dir)?;
    sync_dir(files, dir)?;
    for step in steps {
        match step {
            RepairStep::SetAside { path, aside } => {
                let aside = unused(files, aside)?;
                files
                    .rename(path, &aside)
                    .map_err(|error| LogError::io(path, "cannot rename", error))?;
                sync_parent(files, path)?;
            }
            RepairStep::CutOut { path, base, position, len, aside, .. } => {
                segments.entry(path).or_default().push((*position, *len, aside));
                bases.insert(path, *base);
            }
        }
    }
    for (path, cuts) in &mut segments {
        cuts.sort_unstable();
        let base = bases.get(path).copied().unwrap_or(0);
        cut_out(files, path, base, cuts)?;
    }
    Ok(())
}

fn sync_parent(files: &dyn Files, path: &Path) -> Result<(), LogError> {
    path.parent().map_or(Ok(()), |parent| sync_dir(files, parent))
}

/// The name, or one like it that nothing has yet: what an earlier repair kept stays.
fn unused(files: &dyn Files, aside: &Path) -> Result<PathBuf, LogError> {
    let mut number = 1_u32;
    let mut name = aside.to_owned();
    loop {
        let taken = files.exists(&name);
        if !taken.map_err(|error| LogError::io(&name, "cannot look for", error))? {
            return Ok(name);
        }
        number += 1;
        let mut other = aside.as_os_str().to_owned();
        other.push(format!(".{number}"));
        name = PathBuf::from(other);
    }
}

/// Writes a segment without the bytes of `cuts`, which rise, and then puts it in its place.
fn cut_out(
    files: &dyn Files,
    path: &Path,
    base: i64,
    cuts: &[(u64, u64, &Path)],
) -> Result<(), LogError> {
    let failed = |what| move |error| LogError::io(path, what, error);
    let from = files.open(path, OpenMode::Read).map_err(failed("cannot open"))?;
    let size = from.len().map_err(failed("cannot look at"))?;
    for &(position, len, aside) in cuts {
        let aside = unused(files, aside)?;
        let kept = || -> io::Result<()> {
            let to = files.open(&aside, OpenMode::CreateNew)?;
            copy(from.as_ref(), (position, position.saturating_add(len).min(size)), &to, 0)?;
            to.sync_data()
        };
        kept().map_err(|error| LogError::io(&aside, "cannot keep what is dropped", error))?;
    }
    sync_parent(files, path)?;
    let mut name = path.as_os_str().to_owned();
    name.push(".tmp");
    let new = PathBuf::from(name);
    let written = || -> io::Result<()> {
        let to = files.open(&new, OpenMode::Create)?;
        to.set_len(0)?;
        let (mut at, mut end) = (0, 0);
        for &(position, len, _) in cuts.iter().chain([&(size, 0, path)]) {
            let range = (at, position.min(size));
            end = copy(from.as_ref(), range, &to, end)?;
            at = position.saturating_add(len);
        }
        to.sync_data()
    };
    written().map_err(|error| LogError::io(&new, "cannot write", error))?;
    // Their positions are those of the old segment; the next start builds them anew.
    for kind in [INDEX, TIME_INDEX] {
        let index = path.with_file_name(file_name(base, kind));
        match files.remove_file(&index) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                return Err(LogError::io(&index, "cannot remove", error));
            }
            _ => {}
        }
    }
    files.rename(&new, path).map_err(failed("cannot replace"))?;
    sync_parent(files, path)
}

/// Copies a range of bytes to `at`; gives where the copy ends.
fn copy(
    from: &dyn File,
    (mut position, end): (u64, u64),
    to: &Arc<dyn File>,
    mut at: u64,
) -> io::Result<u64> {
    let mut chunk = Vec::new();
    while position < end {
        let len = CHUNK.min(end - position);
        chunk.resize(usize::try_from(len).map_err(|_| io::ErrorKind::FileTooLarge)?, 0);
        from.read_exact_at(&mut chunk, position)?;
        to.write_at(&[IoSlice::new(&chunk)], at)?;
        position += len;
        at += len;
    }
    Ok(at)
}
