//! Reading a log of the broker's own: how state comes back.

use std::ops::Range;

use ottla_protocol::record::iter::RecordView;
use ottla_protocol::record::{BatchHeader, batches};
use ottla_storage::LogReader;

/// Bytes read at a time.
const CHUNK_BYTES: usize = 1024 * 1024;

/// The most a batch may hold once it is decompressed.
pub(super) const BATCH_BYTES_MAX: usize = 256 * 1024 * 1024;

/// Shows every record of these offsets that is no control record, in order.
///
/// An error, which names the log and the offset, if one cannot be read or `each` refuses it.
pub(crate) fn read_records(
    reader: &LogReader,
    offsets: Range<i64>,
    mut each: impl FnMut(&BatchHeader, RecordView<'_>) -> Result<(), String>,
) -> Result<(), String> {
    let Range { start: first, end: upper } = offsets;
    let mut offset = first;
    let told = |offset: i64, what: String| {
        format!("{} at offset {offset}: {what}", reader.dir().display())
    };
    while offset < upper {
        let range = reader
            .read(offset, CHUNK_BYTES, upper, true)
            .map_err(|error| told(offset, error.to_string()))?;
        let bytes = range.read().map_err(|error| told(offset, error.to_string()))?;
        let before = offset;
        for batch in batches(&bytes) {
            let batch = batch.map_err(|error| told(offset, error.to_string()))?;
            let next = batch.header.next_offset();
            if next <= offset {
                continue;
            }
            batch.verify_crc().map_err(|error| told(offset, error.to_string()))?;
            if !batch.header.attributes.is_control() {
                let records = batch
                    .records(BATCH_BYTES_MAX)
                    .map_err(|error| told(offset, error.to_string()))?;
                for record in &records {
                    let record = record.map_err(|error| told(offset, error.to_string()))?;
                    let at = record.offset;
                    // The first batch may begin before the first offset.
                    if at < first {
                        continue;
                    }
                    each(&batch.header, record).map_err(|error| told(at, error))?;
                }
            }
            offset = next;
        }
        if offset == before {
            return Err(told(offset, "there is no batch where one should be".to_owned()));
        }
    }
    Ok(())
}
