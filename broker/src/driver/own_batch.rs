//! Batches of the broker's own records, ready for a log.

use bytes::BytesMut;
use ottla_protocol::record::builder::{BatchBuilder, NO_HEADERS};
use ottla_protocol::record::seal::BatchSeal;
use ottla_protocol::record::{Attributes, BatchError, BatchHeader};
use ottla_storage::{Incoming, Origin};

/// What a batch holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Content {
    /// Records of a coordinator or of the controller.
    Records,
    /// Control records.
    Control,
}

/// Puts records, as key and value, into one batch; all or none of them are ever read back.
pub(crate) fn own_batch<'a>(
    records: impl IntoIterator<Item = (Option<&'a [u8]>, Option<&'a [u8]>)>,
    content: Content,
    origin: Origin,
    now_ms: i64,
) -> Result<Incoming, BatchError> {
    let mut builder = BatchBuilder::default();
    for (key, value) in records {
        builder.push(now_ms, key, value, NO_HEADERS)?;
    }
    let attributes = Attributes::default().with_control(content == Content::Control);
    let bytes = builder.finish(&BatchSeal { attributes, ..BatchSeal::default() })?;
    let header = BatchHeader::parse(&bytes)?;
    Ok(Incoming { bytes: BytesMut::from(bytes), header, origin })
}
