//! The small files of a log directory and of a partition, each replaced as a whole.

use std::collections::BTreeMap;
use std::io::{self, IoSlice};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use ottla_protocol::Uuid;

use crate::error::{LogError, LogErrorKind};
use crate::files::{File, Files, OpenMode};

/// Name of the checkpoint below which all is flushed.
pub const RECOVERY_POINTS: &str = "recovery-point-offset-checkpoint";
/// Name of the checkpoint of log starts that were moved.
pub const LOG_STARTS: &str = "log-start-offset-checkpoint";
/// Name of the checkpoint of high watermarks.
pub const HIGH_WATERMARKS: &str = "replication-offset-checkpoint";
const META_PROPERTIES: &str = "meta.properties";
const CLEAN_SHUTDOWN: &str = ".kafka_cleanshutdown";
const PARTITION_METADATA: &str = "partition.metadata";
/// Larger small files are none of ours.
const SMALL_FILE_MAX: u64 = 64 << 20;

/// Replaces a file so that a reader, or a process that dies, sees the old bytes or the new.
pub(crate) fn replace(files: &dyn Files, path: &Path, bytes: &[u8]) -> Result<(), LogError> {
    let aside = write_aside(files, path, ".tmp", bytes)?;
    rename(files, &aside.0, path)
}

/// Replaces a file so that also a power cut leaves the old bytes or the new; the new for good once
/// its folder is flushed, which is left to the caller, who may have more names to flush.
pub(crate) fn replace_flushed(
    files: &dyn Files,
    path: &Path,
    bytes: &[u8],
) -> Result<(), LogError> {
    // Not the name that an owner uses who replaces the file while another thread flushes it.
    let (aside, file) = write_aside(files, path, ".flushed.tmp", bytes)?;
    file.sync_data().map_err(|error| LogError::io(&aside, "cannot flush", error))?;
    rename(files, &aside, path)
}

/// Replaces a file so that also a power cut leaves the old bytes or the new, and the new for good
/// once this returns.
pub(crate) fn replace_durably(
    files: &dyn Files,
    path: &Path,
    bytes: &[u8],
) -> Result<(), LogError> {
    replace_flushed(files, path, bytes)?;
    sync_parent(files, path)
}

fn write_aside(
    files: &dyn Files,
    path: &Path,
    ending: &str,
    bytes: &[u8],
) -> Result<(PathBuf, Arc<dyn File>), LogError> {
    let mut aside = path.as_os_str().to_owned();
    aside.push(ending);
    let aside = PathBuf::from(aside);
    let write = || {
        let file = files.open(&aside, OpenMode::Create)?;
        file.set_len(0)?;
        file.write_at(&[IoSlice::new(bytes)], 0)?;
        Ok(file)
    };
    match write() {
        Ok(file) => Ok((aside, file)),
        Err(error) => Err(LogError::io(&aside, "cannot write", error)),
    }
}

fn rename(files: &dyn Files, aside: &Path, path: &Path) -> Result<(), LogError> {
    files.rename(aside, path).map_err(|error| LogError::io(path, "cannot replace", error))
}

fn sync_parent(files: &dyn Files, path: &Path) -> Result<(), LogError> {
    path.parent().map_or(Ok(()), |parent| sync_dir(files, parent))
}

/// Makes the names in a folder durable.
pub(crate) fn sync_dir(files: &dyn Files, dir: &Path) -> Result<(), LogError> {
    if ottla_protocol::left_out("no_folder_sync") {
        return Ok(());
    }
    files.sync_dir(dir).map_err(|error| LogError::io(dir, "cannot flush the folder", error))
}

/// The text of a small file; `None` if it does not exist.
pub(crate) fn read_text(files: &dyn Files, path: &Path) -> Result<Option<String>, LogError> {
    let read = || -> io::Result<Vec<u8>> {
        let file = files.open(path, OpenMode::Read)?;
        let len = file.len()?;
        if len > SMALL_FILE_MAX {
            return Err(io::ErrorKind::FileTooLarge.into());
        }
        let mut bytes = vec![0; usize::try_from(len).unwrap_or(0)];
        let read = file.read_at(&mut bytes, 0)?;
        bytes.truncate(read);
        Ok(bytes)
    };
    match read() {
        Ok(bytes) => match String::from_utf8(bytes) {
            Ok(text) => Ok(Some(text)),
            Err(_) => Err(LogError::malformed(path, "the file is not text")),
        },
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(LogError::io(path, "cannot read", error)),
    }
}

/// Rows of a text file that begins with version 0 and the number of rows.
pub(crate) fn parse_rows<'a>(
    path: &Path,
    text: &'a str,
) -> Result<impl Iterator<Item = &'a str>, LogError> {
    let mut lines = text.lines();
    if lines.next().map(str::trim) != Some("0") {
        return Err(LogError::malformed(path, "the file does not begin with version 0"));
    }
    let count: usize = lines
        .next()
        .and_then(|line| line.trim().parse().ok())
        .ok_or_else(|| LogError::malformed(path, "the file does not say how many rows it has"))?;
    // A number that a power cut has shortened is a number, too.
    if !text.ends_with('\n') {
        return Err(LogError::malformed(path, "the file's last row is cut"));
    }
    let rows = lines.filter(|line| !line.trim().is_empty());
    if rows.clone().count() != count {
        return Err(LogError::malformed(path, "the file has not as many rows as it says"));
    }
    Ok(rows)
}

/// The text of a file that begins with version 0 and the number of rows.
pub(crate) fn rows_text(rows: impl ExactSizeIterator<Item = String>) -> String {
    let head = ["0".to_owned(), rows.len().to_string()];
    let lines: Vec<_> = head.into_iter().chain(rows).collect();
    lines.join("\n") + "\n"
}

/// One offset for each of many partitions: a checkpoint of the log directory.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct OffsetCheckpoint {
    /// The offset of each (topic, partition).
    pub entries: BTreeMap<(String, i32), i64>,
}

impl OffsetCheckpoint {
    /// Reads a checkpoint; empty if there is none, `Malformed` if it is broken.
    pub fn read(files: &dyn Files, path: &Path) -> Result<Self, LogError> {
        let Some(text) = read_text(files, path)? else { return Ok(Self::default()) };
        let mut entries = BTreeMap::new();
        for row in parse_rows(path, &text)? {
            let (key, offset) = parse_offset_row(row)
                .ok_or_else(|| LogError::malformed(path, format!("row {row:?} makes no sense")))?;
            if entries.insert(key, offset).is_some() {
                return Err(LogError::malformed(path, format!("row {row:?} is there twice")));
            }
        }
        Ok(Self { entries })
    }

    /// Reads a checkpoint; a broken one is empty, with a warning, since the logs tell all anew.
    pub fn load(files: &dyn Files, path: &Path) -> Self {
        Self::read(files, path).unwrap_or_else(|error| {
            tracing::warn!(%error, "checkpoint is unusable and is rebuilt from the logs");
            Self::default()
        })
    }

    /// Writes the checkpoint for good.
    pub fn write(&self, files: &dyn Files, path: &Path) -> Result<(), LogError> {
        replace_durably(files, path, self.text().as_bytes())
    }

    /// Writes several checkpoints of one directory for good, with one flush of its names.
    pub fn write_all(
        files: &dyn Files,
        dir: &Path,
        checkpoints: &[(&str, Self)],
    ) -> Result<(), LogError> {
        for (name, checkpoint) in checkpoints {
            replace_flushed(files, &dir.join(name), checkpoint.text().as_bytes())?;
        }
        sync_dir(files, dir)
    }

    fn text(&self) -> String {
        let rows = self.entries.iter();
        rows_text(rows.map(|((topic, partition), offset)| format!("{topic} {partition} {offset}")))
    }

    /// The offset of a partition.
    pub fn get(&self, topic: &str, partition: i32) -> Option<i64> {
        self.entries.get(&(topic.to_owned(), partition)).copied()
    }
}

fn parse_offset_row(row: &str) -> Option<((String, i32), i64)> {
    let mut fields = row.split_whitespace();
    let (topic, partition, offset) = (fields.next()?, fields.next()?, fields.next()?);
    let (partition, offset) = (partition.parse().ok()?, offset.parse().ok()?);
    let sane = fields.next().is_none() && partition >= 0 && offset >= 0;
    sane.then(|| ((topic.to_owned(), partition), offset))
}

/// Whose directory it is: `meta.properties` (KIP-858).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MetaProperties {
    /// The cluster.
    pub cluster_id: String,
    /// The broker.
    pub node_id: i32,
    /// The directory itself.
    pub directory_id: Uuid,
}

impl MetaProperties {
    /// Reads the file in `dir`; `None` if there is none, or an empty one: a power cut can leave it
    /// before [`Self::flush`].
    ///
    /// A broken one is an error: to write another would give the directory to somebody else.
    pub fn read(files: &dyn Files, dir: &Path) -> Result<Option<Self>, LogError> {
        let path = dir.join(META_PROPERTIES);
        let text = read_text(files, &path)?.filter(|text| !text.is_empty());
        let Some(text) = text else { return Ok(None) };
        let properties = parse_properties(&text);
        let foreign = |what: String| LogError::new(LogErrorKind::Foreign, &path, what);
        let get = |key: &str| {
            let missing = || foreign(format!("the file has no {key}"));
            properties.get(key).ok_or_else(missing)
        };
        if get("version")? != "1" {
            let found = get("version")?;
            return Err(foreign(format!("version {found} is not 1")));
        }
        let wrong = |key: &str| foreign(format!("its {key} makes no sense"));
        let node_id = get("node.id")?.parse().map_err(|_| wrong("node.id"))?;
        let directory_id = match properties.get("directory.id") {
            Some(id) => id.parse().map_err(|_| wrong("directory.id"))?,
            None => Uuid::ZERO,
        };
        Ok(Some(Self { cluster_id: get("cluster.id")?.clone(), node_id, directory_id }))
    }

    /// Writes the file into `dir`. It is safe against a power cut once it is flushed, and then the
    /// directory.
    pub fn write(&self, files: &dyn Files, dir: &Path) -> Result<(), LogError> {
        let mut cluster_id = String::new();
        for symbol in self.cluster_id.chars() {
            if matches!(symbol, '\\' | '=' | ':' | '#' | '!') {
                cluster_id.push('\\');
            }
            cluster_id.push(symbol);
        }
        let text = format!(
            "version=1\ncluster.id={cluster_id}\nnode.id={}\ndirectory.id={}\n",
            self.node_id, self.directory_id
        );
        replace(files, &dir.join(META_PROPERTIES), text.as_bytes())
    }

    /// Makes the bytes of the file in `dir` durable.
    pub fn flush(files: &dyn Files, dir: &Path) -> Result<(), LogError> {
        let path = dir.join(META_PROPERTIES);
        let flushed = files.open(&path, OpenMode::Read).and_then(|file| file.sync_data());
        flushed.map_err(|error| LogError::io(&path, "cannot flush", error))
    }
}

/// Keys and values of Java's properties format, as far as ids and numbers need it.
fn parse_properties(text: &str) -> BTreeMap<String, String> {
    let lines = text.lines().map(str::trim).filter(|line| !line.starts_with(['#', '!']));
    let pairs = lines.filter_map(|line| line.split_once(['=', ':']));
    pairs.map(|(key, value)| (key.trim().to_owned(), unescape(value.trim()))).collect()
}

fn unescape(value: &str) -> String {
    let mut plain = String::with_capacity(value.len());
    let mut symbols = value.chars();
    while let Some(symbol) = symbols.next() {
        plain.extend(if symbol == '\\' { symbols.next() } else { Some(symbol) });
    }
    plain
}

/// The marker that a broker stopped cleanly.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CleanShutdown {
    /// The epoch that the broker had, −1 if unknown.
    pub broker_epoch: i64,
}

impl CleanShutdown {
    /// Takes the marker away and says whether it was there.
    ///
    /// It goes at once, so that a crash while loading counts as one (KAFKA-10471). A power cut
    /// brings it back unless the directory is flushed: before anything is appended.
    pub fn take(files: &dyn Files, dir: &Path) -> Result<Option<Self>, LogError> {
        let path = dir.join(CLEAN_SHUTDOWN);
        let text = match read_text(files, &path) {
            Ok(None) => return Ok(None),
            Ok(Some(text)) => Some(text),
            Err(error) if error.kind() == LogErrorKind::Malformed => None,
            Err(error) => return Err(error),
        };
        files.remove_file(&path).map_err(|error| LogError::io(&path, "cannot remove", error))?;
        let marker = text.as_deref().and_then(Self::parse);
        if marker.is_none() {
            tracing::warn!(path = %path.display(), "shutdown marker is broken; logs are recovered");
        }
        Ok(marker)
    }

    /// Whether the marker is there. Leaves it there.
    pub fn is_there(files: &dyn Files, dir: &Path) -> Result<bool, LogError> {
        let path = dir.join(CLEAN_SHUTDOWN);
        files.exists(&path).map_err(|error| LogError::io(&path, "cannot look for", error))
    }

    fn parse(text: &str) -> Option<Self> {
        let body = text.trim().strip_prefix('{')?.strip_suffix('}')?;
        let mut fields = BTreeMap::new();
        for field in body.split(',') {
            let (key, value) = field.split_once(':')?;
            fields.insert(key.trim().trim_matches('"'), value.trim().parse::<i64>().ok()?);
        }
        let broker_epoch = fields.get("brokerEpoch").copied().unwrap_or(-1);
        (fields.get("version") == Some(&0)).then_some(Self { broker_epoch })
    }

    /// Writes the marker for good: the last act of a stop in which every flush succeeded.
    pub fn write(self, files: &dyn Files, dir: &Path) -> Result<(), LogError> {
        let text = format!("{{\"version\":0,\"brokerEpoch\":{}}}", self.broker_epoch);
        replace_durably(files, &dir.join(CLEAN_SHUTDOWN), text.as_bytes())
    }
}

/// The topic id noted in a partition's folder; `None` if there is no note, or an empty one, as a
/// power cut leaves it.
pub(crate) fn read_topic_id(files: &dyn Files, dir: &Path) -> Result<Option<Uuid>, LogError> {
    let path = dir.join(PARTITION_METADATA);
    let text = read_text(files, &path)?.filter(|text| !text.is_empty());
    let Some(text) = text else { return Ok(None) };
    let properties = parse_properties(&text);
    let version = properties.get("version").map(String::as_str);
    let id = properties.get("topic_id").and_then(|id| id.parse().ok());
    match (version, id) {
        (Some("0"), Some(id)) => Ok(Some(id)),
        _ => Err(LogError::malformed(&path, "the file has no version 0 and topic id")),
    }
}

/// Notes the topic id in a partition's folder. A power cut may lose it; the next start notes it
/// again.
pub(crate) fn write_topic_id(files: &dyn Files, dir: &Path, id: Uuid) -> Result<(), LogError> {
    let text = format!("version: 0\ntopic_id: {id}");
    replace(files, &dir.join(PARTITION_METADATA), text.as_bytes())
}

#[cfg(test)]
mod tests;
