//! Where a test's log lives, on disk or in memory, and batches to put there.
#![allow(dead_code, reason = "each test file uses its own part")]
#![allow(clippy::expect_used, reason = "a test ends where its place does not work")]

use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::BytesMut;
use ottla_protocol::Uuid;
use ottla_protocol::record::{
    Batch, BatchBuilder, BatchHeader, BatchSeal, Compression, NO_HEADERS, batches,
};
use ottla_storage::{
    Appended, DiskFiles, Files, Incoming, Log, LogConfig, LogReader, MemoryFiles, OpenReport,
    Opening, Origin,
};
use proptest::prelude::*;

pub(crate) const NOW: i64 = 1_700_000_000_000;
pub(crate) const TOPIC_ID: Uuid = Uuid([7; 16]);

/// A folder for one log.
#[derive(Debug)]
pub(crate) struct Place {
    pub(crate) files: Arc<dyn Files>,
    pub(crate) dir: PathBuf,
    pub(crate) config: LogConfig,
    pub(crate) temporary: Option<tempfile::TempDir>,
}

impl Place {
    pub(crate) fn on_disk() -> Self {
        let temporary = tempfile::tempdir().expect("a temporary folder");
        let dir = temporary.path().join("orders-0");
        let config = LogConfig::default();
        Self { files: Arc::new(DiskFiles::new()), dir, config, temporary: Some(temporary) }
    }

    pub(crate) fn in_memory() -> Self {
        let dir = PathBuf::from("/data/orders-0");
        let config = LogConfig::default();
        Self { files: Arc::new(MemoryFiles::new()), dir, config, temporary: None }
    }

    pub(crate) fn with(mut self, change: impl FnOnce(&mut LogConfig)) -> Self {
        change(&mut self.config);
        self
    }

    pub(crate) fn open(&self, opening: Opening) -> (Log, OpenReport) {
        self.try_open(opening).expect("the log opens")
    }

    pub(crate) fn try_open(
        &self,
        opening: Opening,
    ) -> Result<(Log, OpenReport), ottla_storage::LogError> {
        let files = Arc::clone(&self.files);
        Log::open(files, &self.dir, TOPIC_ID, self.config.clone(), opening)
    }

    pub(crate) fn clean(&self) -> Log {
        self.open(Opening::clean(NOW)).0
    }

    pub(crate) fn after_crash(&self) -> (Log, OpenReport) {
        self.open(Opening::unclean(NOW))
    }

    /// Names in the folder, sorted.
    pub(crate) fn names(&self) -> Vec<String> {
        let entries = self.files.list(&self.dir).expect("listed");
        let mut names: Vec<_> = entries.into_iter().map(|entry| entry.name).collect();
        names.sort();
        names
    }

    pub(crate) fn names_of(&self, kind: &str) -> Vec<String> {
        self.names().into_iter().filter(|name| name.ends_with(kind)).collect()
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.dir.join(name)
    }

    pub(crate) fn read(&self, name: &str) -> Vec<u8> {
        self.files.read(&self.path(name)).expect("read")
    }

    /// Replaces a file's bytes.
    pub(crate) fn write(&self, name: &str, bytes: &[u8]) {
        write(self.files.as_ref(), &self.path(name), bytes);
    }

    pub(crate) fn remove(&self, name: &str) {
        self.files.remove_file(&self.path(name)).expect("removed");
    }
}

pub(crate) fn write(files: &dyn Files, path: &Path, bytes: &[u8]) {
    let file = files.open(path, ottla_storage::OpenMode::Create).expect("opened");
    file.set_len(0).expect("emptied");
    file.write_at(&[std::io::IoSlice::new(bytes)], 0).expect("written");
}

/// Runs a test on both kinds of files.
pub(crate) fn on_both(test: impl Fn(Place)) {
    test(Place::on_disk());
    test(Place::in_memory());
}

/// A batch to append.
#[derive(Debug, Clone)]
pub(crate) struct Draft {
    pub(crate) timestamps: Vec<i64>,
    pub(crate) value_len: usize,
    pub(crate) compression: Compression,
    pub(crate) seal: BatchSeal,
    pub(crate) origin: Origin,
}

impl Draft {
    /// As many records as timestamps.
    pub(crate) fn at(timestamps: &[i64]) -> Self {
        Self {
            timestamps: timestamps.to_vec(),
            value_len: 100,
            compression: Compression::None,
            seal: BatchSeal::default(),
            origin: Origin::Client,
        }
    }

    pub(crate) fn of(records: usize) -> Self {
        Self::at(&vec![NOW; records])
    }

    pub(crate) fn value_len(mut self, len: usize) -> Self {
        self.value_len = len;
        self
    }

    pub(crate) fn producer(mut self, id: i64, epoch: i16, sequence: i32) -> Self {
        self.seal.producer_id = id;
        self.seal.producer_epoch = epoch;
        self.seal.base_sequence = sequence;
        self
    }

    pub(crate) fn bytes(&self) -> BytesMut {
        let mut builder = BatchBuilder::new(self.compression);
        let value = vec![b'v'; self.value_len];
        for &timestamp in &self.timestamps {
            builder.push(timestamp, Some(b"key"), Some(&value), NO_HEADERS).expect("fits");
        }
        BytesMut::from(&builder.finish(&self.seal).expect("sealed")[..])
    }

    pub(crate) fn incoming(&self) -> Incoming {
        Incoming::parse(self.bytes(), self.origin).expect("a batch")
    }
}

/// Appends one batch that must pass.
/// Batches of any records: the times in each, and how long its values are.
pub(crate) fn drafts() -> impl Strategy<Value = Vec<(Vec<i64>, usize)>> {
    prop::collection::vec((prop::collection::vec(0_i64..200, 1..5), 0_usize..300), 1..60)
}

/// How such a log lies on its disk, and is opened again.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Layout {
    pub(crate) segment_bytes: u64,
    pub(crate) index_interval_bytes: u64,
    pub(crate) reopen: Reopen,
}

/// How a log is opened again.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Reopen {
    Never,
    Closed,
    AfterCrash,
}

/// Several small segments with sparse indexes, sealed and active, from memory and from files.
pub(crate) fn layouts() -> impl Strategy<Value = Layout> {
    let reopen = prop_oneof![Just(Reopen::Never), Just(Reopen::Closed), Just(Reopen::AfterCrash)];
    let all = (500_u64..6000, 0_u64..2000, reopen);
    all.prop_map(|(segment_bytes, index_interval_bytes, reopen)| Layout {
        segment_bytes,
        index_interval_bytes,
        reopen,
    })
}

/// A log of these batches, laid out so.
pub(crate) fn filled(batches: &[(Vec<i64>, usize)], layout: Layout) -> (Place, Log) {
    let place = Place::in_memory().with(|config| {
        config.segment_bytes = layout.segment_bytes;
        config.index_interval_bytes = layout.index_interval_bytes;
    });
    let mut log = place.clean();
    for (times, value_len) in batches {
        append(&mut log, &Draft::at(times).value_len(*value_len));
    }
    let log = match layout.reopen {
        Reopen::Never => log,
        Reopen::Closed => {
            log.close().expect("closed");
            place.clean()
        }
        Reopen::AfterCrash => {
            drop(log);
            place.after_crash().0
        }
    };
    (place, log)
}

pub(crate) fn append(log: &mut Log, draft: &Draft) -> Appended {
    append_in(log, draft, 0)
}

pub(crate) fn append_in(log: &mut Log, draft: &Draft, epoch: i32) -> Appended {
    try_append(log, draft, epoch).expect("passes")
}

pub(crate) fn try_append(
    log: &mut Log,
    draft: &Draft,
    epoch: i32,
) -> Result<Appended, ottla_storage::Rejected> {
    let mut outcomes = log.append(vec![draft.incoming()], epoch, NOW).expect("written");
    assert_eq!(outcomes.len(), 1);
    outcomes.pop().expect("one")
}

/// Reads everything from an offset on, range by range, and gives the headers.
pub(crate) fn read_from(reader: &LogReader, mut offset: i64, max_bytes: usize) -> Vec<BatchHeader> {
    let mut headers = Vec::new();
    loop {
        let range = reader.read(offset, max_bytes, i64::MAX, true).expect("in range");
        if range.is_empty() {
            assert_eq!(offset, reader.log_end(), "only the end is empty");
            return headers;
        }
        let bytes = range.read().expect("read");
        assert_eq!(bytes.len(), range.len);
        let mut whole = 0;
        for batch in batches(&bytes) {
            let batch = batch.expect("good batches only");
            batch.verify_crc().expect("good checksums only");
            whole += batch.bytes.len();
            offset = batch.header.next_offset();
            headers.push(batch.header);
        }
        assert_eq!(whole, range.len, "whole batches only");
    }
}

/// The bytes of one batch at an offset.
pub(crate) fn batch_at(reader: &LogReader, offset: i64) -> Vec<u8> {
    let range = reader.read(offset, 1, i64::MAX, true).expect("in range");
    let bytes = range.read().expect("read");
    Batch::parse(&bytes).expect("a batch").bytes.to_vec()
}
