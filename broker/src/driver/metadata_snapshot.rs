//! Apache Kafka's snapshots of the metadata log (KIP-630): what it said up to an offset, so that
//! the log before it may go. They are read, never written.

use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};

use ottla_protocol::record::iter::RecordView;
use ottla_protocol::record::{Batch, ControlKind, ControlRecord};
use ottla_storage::{File, Files, OpenMode};

use super::replay::BATCH_BYTES_MAX;

/// How the files are called that are whole; Kafka writes them under another name first.
const ENDING: &str = ".checkpoint";

/// Base offset and length, with which every batch begins.
const PREFIX: usize = 12;

/// A snapshot that lies beside the log.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Snapshot {
    /// The log goes on from here.
    pub(crate) end: i64,
    /// The leader epoch of what is before.
    epoch: i32,
    path: PathBuf,
}

/// The snapshots in the folder of a log of these offsets from which the log goes on, the newest
/// first.
pub(crate) fn usable(
    files: &dyn Files,
    dir: &Path,
    log: &RangeInclusive<i64>,
) -> Result<Vec<Snapshot>, String> {
    let entries = files.list(dir).map_err(|error| format!("{}: {error}", dir.display()))?;
    let named = entries.iter().filter(|entry| !entry.is_dir).filter_map(|entry| {
        let (end, epoch) = parse(&entry.name)?;
        Some(Snapshot { end, epoch, path: dir.join(&entry.name) })
    });
    let mut snapshots: Vec<_> = named.filter(|snapshot| log.contains(&snapshot.end)).collect();
    snapshots.sort_by(|one, other| other.cmp(one));
    Ok(snapshots)
}

/// End offset and epoch in a name, as 20 and 10 digits.
fn parse(name: &str) -> Option<(i64, i32)> {
    let (end, epoch) = name.strip_suffix(ENDING)?.split_once('-')?;
    let digits =
        |text: &str, count| text.len() == count && text.bytes().all(|c| c.is_ascii_digit());
    (digits(end, 20) && digits(epoch, 10)).then_some((end.parse().ok()?, epoch.parse().ok()?))
}

impl Snapshot {
    /// Shows every record that is no control record, in order.
    ///
    /// An error, which names the file and the byte, if it is not whole, or if `each` refuses one.
    pub(crate) fn read(
        &self,
        files: &dyn Files,
        mut each: impl FnMut(RecordView<'_>) -> Result<(), String>,
    ) -> Result<(), String> {
        let mut position = 0;
        self.read_batches(files, &mut position, &mut each)
            .map_err(|what| format!("{} at byte {position}: {what}", self.path.display()))
    }

    fn read_batches(
        &self,
        files: &dyn Files,
        position: &mut u64,
        each: &mut impl FnMut(RecordView<'_>) -> Result<(), String>,
    ) -> Result<(), String> {
        let file = files.open(&self.path, OpenMode::Read).map_err(|error| error.to_string())?;
        let len = file.len().map_err(|error| error.to_string())?;
        let mut bytes = Vec::new();
        let (mut begun, mut ended) = (false, false);
        while *position < len {
            if ended {
                return Err("there is more behind its end".to_owned());
            }
            next_batch(file.as_ref(), *position..len, &mut bytes)?;
            let batch = Batch::parse(&bytes).map_err(|error| error.to_string())?;
            batch.verify_crc().map_err(|error| error.to_string())?;
            let is_control = batch.header.attributes.is_control();
            let records = batch.records(BATCH_BYTES_MAX).map_err(|error| error.to_string())?;
            for record in &records {
                let record = record.map_err(|error| error.to_string())?;
                let control = record.key.filter(|_| is_control).and_then(ControlRecord::parse);
                match control.map(|control| control.kind) {
                    Some(ControlKind::SnapshotHeader) => begun = true,
                    Some(ControlKind::SnapshotFooter) => ended = true,
                    // What the quorum notes for itself: who votes, and by which rules.
                    _ if is_control => {}
                    _ => each(record)?,
                }
                if !begun {
                    return Err("it does not begin as a snapshot".to_owned());
                }
            }
            *position += u64::try_from(bytes.len()).unwrap_or(u64::MAX);
        }
        if ended { Ok(()) } else { Err("it has no end".to_owned()) }
    }
}

/// Reads the batch at the beginning of a range of the file.
fn next_batch(
    file: &dyn File,
    range: std::ops::Range<u64>,
    bytes: &mut Vec<u8>,
) -> Result<(), String> {
    let read =
        |into: &mut [u8]| file.read_exact_at(into, range.start).map_err(|error| error.to_string());
    let mut prefix = [0; PREFIX];
    read(&mut prefix)?;
    let [.., a, b, c, d] = prefix;
    let size = usize::try_from(i32::from_be_bytes([a, b, c, d])).ok();
    let size = size.and_then(|size| size.checked_add(PREFIX)).filter(|size| {
        let left = usize::try_from(range.end - range.start).unwrap_or(usize::MAX);
        *size <= left.min(BATCH_BYTES_MAX)
    });
    bytes.clear();
    bytes.resize(size.ok_or("there is no batch of a length that can be")?, 0);
    read(bytes)
}

#[cfg(test)]
mod tests {
    use std::io::IoSlice;

    use ottla_protocol::record::BatchHeader;
    use ottla_storage::{MemoryFiles, Origin};

    use super::*;
    use crate::driver::own_batch::{Content, own_batch};

    const DIR: &str = "/data/__cluster_metadata-0";

    fn control(kind: ControlKind) -> Vec<u8> {
        let key = ControlRecord::of(kind).key();
        let record = (Some(key.as_slice()), Some(&[0, 0, 0][..]));
        own_batch([record], Content::Control, Origin::Raft, 1).unwrap().bytes.to_vec()
    }

    fn data(values: &[&str]) -> Vec<u8> {
        let records = values.iter().map(|value| (None, Some(value.as_bytes())));
        own_batch(records, Content::Records, Origin::Raft, 1).unwrap().bytes.to_vec()
    }

    fn put(files: &MemoryFiles, name: &str, bytes: &[u8]) {
        let file = files.open(&Path::new(DIR).join(name), OpenMode::Create).unwrap();
        file.set_len(0).unwrap();
        file.write_at(&[IoSlice::new(bytes)], 0).unwrap();
    }

    fn found(files: &MemoryFiles, log: RangeInclusive<i64>) -> Vec<i64> {
        let snapshots = usable(files, Path::new(DIR), &log).unwrap();
        snapshots.iter().map(|snapshot| snapshot.end).collect()
    }

    #[test]
    fn snapshots_from_which_the_log_goes_on_are_found_the_newest_first() {
        let files = MemoryFiles::new();
        files.create_dir_all(Path::new(DIR)).unwrap();
        assert!(found(&files, 0..=9).is_empty());
        for name in [
            "00000000000000000000-0000000000.checkpoint",
            "00000000000000000005-0000000001.checkpoint",
            "00000000000000000009-0000000002.checkpoint",
            "00000000000000000010-0000000002.checkpoint",
            "00000000000000000007-0000000002.checkpoint.part",
            "00000000000000000008-0000000002.checkpoint.deleted",
            "8-2.checkpoint",
            "99999999999999999999-0000000002.checkpoint",
            "00000000000000000005.log",
        ] {
            put(&files, name, b"");
        }
        assert_eq!(found(&files, 0..=9), [9, 5, 0]);
        assert_eq!(found(&files, 5..=8), [5]);
        assert!(found(&files, 6..=8).is_empty());
    }

    #[test]
    fn snapshot_is_read_whole_or_not_at_all() {
        let files = MemoryFiles::new();
        files.create_dir_all(Path::new(DIR)).unwrap();
        let read = |bytes: &[u8]| {
            put(&files, "00000000000000000005-0000000001.checkpoint", bytes);
            let snapshot = usable(&files, Path::new(DIR), &(0..=5)).unwrap().remove(0);
            let mut values = Vec::new();
            let read = snapshot.read(&files, |record| {
                values.push(String::from_utf8_lossy(record.value.unwrap()).into_owned());
                Ok(())
            });
            read.map(|()| values)
        };
        let (head, foot) =
            (control(ControlKind::SnapshotHeader), control(ControlKind::SnapshotFooter));
        let (some, more) = (data(&["a", "b"]), data(&["c"]));
        let whole = [&head[..], &some, &more, &foot].concat();
        assert_eq!(read(&whole).unwrap(), ["a", "b", "c"]);
        assert_eq!(read(&[&head[..], &foot].concat()).unwrap(), [""; 0]);
        for len in 0..whole.len() {
            let told = read(&whole[..len]).unwrap_err();
            assert!(told.contains("0000000001.checkpoint at byte"), "{told}");
        }
        for byte in 0..whole.len() {
            let mut damaged = whole.clone();
            damaged[byte] ^= 0x40;
            // Of a batch's place in the log nothing is believed, so nothing is checked.
            let at = whole.len() - foot.len();
            let begins = [0, head.len(), head.len() + some.len(), at];
            let place = begins.iter().any(|begin| {
                (*begin..begin + 8).contains(&byte) || (begin + 12..begin + 16).contains(&byte)
            });
            assert_eq!(read(&damaged).is_err(), !place, "byte {byte}");
        }
        assert!(read(&[&some[..], &foot].concat()).unwrap_err().contains("begin as a snapshot"));
        assert!(read(&[&whole[..], &more].concat()).unwrap_err().contains("behind its end"));
        let huge = [&[0; 8][..], &i32::MAX.to_be_bytes(), &[0; 60]].concat();
        assert!(read(&huge).unwrap_err().contains("a length that can be"));
        assert_eq!(BatchHeader::parse(&head).unwrap().records_count, 1);
    }
}
