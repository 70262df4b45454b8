//! Requests and answers as they travel: size, header, body.

use crate::api::ApiKey;
use crate::message::{Message, Request, Response};
use crate::reader::{DecodeError, DecodeErrorKind, Form, Reader};
use crate::writer::{EncodeError, Writer};

#[cfg(test)]
mod tests;

/// The largest frame that is read or written, without its size field.
///
/// 100 MiB, as Kafka: `socket.request.max.bytes`.
pub const MAX_FRAME: usize = 100 * 1024 * 1024;

/// Bytes of the size field before each frame.
pub const SIZE_LEN: usize = 4;

/// The size of a frame, from the four bytes before it; an error if negative or above `max`.
pub fn frame_size(prefix: [u8; SIZE_LEN], max: usize) -> Result<usize, DecodeError> {
    usize::try_from(i32::from_be_bytes(prefix))
        .ok()
        .filter(|&size| size <= max || crate::left_out("frame_size"))
        .ok_or_else(|| DecodeError::new(0, "frame", DecodeErrorKind::FrameSize))
}

/// A frame without its size field, and the bytes after it.
pub type FrameAndRest<'a> = (&'a [u8], &'a [u8]);

/// The first frame in `bytes`, without its size field, and what follows it.
///
/// None if the frame is not there whole yet.
pub fn split_frame(bytes: &[u8], max: usize) -> Result<Option<FrameAndRest<'_>>, DecodeError> {
    let Some((prefix, rest)) = bytes.split_first_chunk::<SIZE_LEN>() else { return Ok(None) };
    let size = frame_size(*prefix, max)?;
    Ok(rest.split_at_checked(size))
}

/// What stands before the body of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RequestHeader<'a> {
    /// The number of the API, which may be one that we do not know.
    pub api_key: i16,
    /// The version of request and answer, which may be one that we do not know.
    pub api_version: i16,
    /// What the answer must repeat.
    pub correlation_id: i32,
    /// The name that the client gives itself.
    pub client_id: Option<&'a str>,
}

impl<'a> RequestHeader<'a> {
    /// A header for a request of `key`.
    pub fn new(
        key: ApiKey,
        api_version: i16,
        correlation_id: i32,
        client_id: Option<&'a str>,
    ) -> Self {
        Self { api_key: key.into(), api_version, correlation_id, client_id }
    }

    /// Whether tagged fields end this header: true in flexible versions of APIs that we know.
    fn form(&self) -> Form {
        let first_flexible =
            ApiKey::try_from(self.api_key).map_or(i16::MAX, ApiKey::first_flexible);
        Form::at(self.api_version, first_flexible)
    }

    /// Reads a header, and leaves the body in the reader.
    ///
    /// For an API that we do not know, tagged fields are taken for the body.
    pub fn decode(r: &mut Reader<'a>) -> Result<Self, DecodeError> {
        let header = Self {
            api_key: r.i16()?,
            api_version: r.i16()?,
            correlation_id: r.i32()?,
            // KIP-482: the client id keeps its old length field in all versions.
            client_id: r.nullable_string()?,
        };
        r.skip_tags(header.form())?;
        Ok(header)
    }

    /// Writes the header.
    pub fn encode(&self, w: &mut Writer) -> Result<(), EncodeError> {
        w.i16(self.api_key);
        w.i16(self.api_version);
        w.i32(self.correlation_id);
        w.nullable_string(self.client_id)?;
        if self.form() == Form::Compact {
            w.uvarint(0);
        }
        Ok(())
    }
}

/// Reads the header of an answer, and leaves the body in the reader.
pub fn decode_response_header(
    r: &mut Reader<'_>,
    key: ApiKey,
    version: i16,
) -> Result<i32, DecodeError> {
    let correlation_id = r.i32()?;
    r.skip_tags(Form::at(key.response_header_version(version), 1))?;
    Ok(correlation_id)
}

/// The correlation id of the answer in `frame`, before anything is known of its API.
pub fn peek_correlation_id(frame: &[u8]) -> Result<i32, DecodeError> {
    Reader::new(frame).i32()
}

/// Reads a request whole, from a frame without its size field.
///
/// The header's key must be that of `R`, and no byte may be left over.
pub fn decode_request<'a, R: Request<'a>>(
    frame: &'a [u8],
) -> Result<(RequestHeader<'a>, R), DecodeError> {
    let mut r = Reader::with_memory(frame, R::MEMORY_FACTOR);
    let header = RequestHeader::decode(&mut r)?;
    if header.api_key != i16::from(R::KEY) {
        return Err(DecodeError::new(0, R::NAME, DecodeErrorKind::InvalidValue));
    }
    let request = R::decode(&mut r, header.api_version)?;
    r.finish()?;
    Ok((header, request))
}

/// Reads an answer whole, from a frame without its size field; no byte may be left over.
pub fn decode_response<'a, R: Response<'a>>(
    frame: &'a [u8],
    version: i16,
) -> Result<(i32, R), DecodeError> {
    let mut r = Reader::with_memory(frame, R::MEMORY_FACTOR);
    let correlation_id = decode_response_header(&mut r, R::KEY, version)?;
    let response = R::decode(&mut r, version)?;
    r.finish()?;
    Ok((correlation_id, response))
}

/// Reads a body whole, from what follows a header; no byte may be left over.
pub fn decode_body<'a, M: Message<'a>>(body: &'a [u8], version: i16) -> Result<M, DecodeError> {
    decode_body_within(body, version, usize::MAX)
}

/// Reads a body as [`decode_body`], with at most `memory` bytes for its arrays: for a reader that
/// has many peers and one memory.
pub fn decode_body_within<'a, M: Message<'a>>(
    body: &'a [u8],
    version: i16,
    memory: usize,
) -> Result<M, DecodeError> {
    let mut r = Reader::with_memory_up_to(body, M::MEMORY_FACTOR, memory);
    let message = M::decode(&mut r, version)?;
    r.finish()?;
    Ok(message)
}

/// Writes a request as a frame, with its size field. On an error nothing is written.
pub fn encode_request<'a, R: Request<'a>>(
    api_version: i16,
    correlation_id: i32,
    client_id: Option<&str>,
    request: &R,
    w: &mut Writer,
) -> Result<(), EncodeError> {
    let header = RequestHeader::new(R::KEY, api_version, correlation_id, client_id);
    encode_frame(w, |w| {
        header.encode(w)?;
        request.encode(w, api_version)
    })
}

/// Writes an answer as a frame, with its size field. On an error nothing is written.
pub fn encode_response<'a, R: Response<'a>>(
    api_version: i16,
    correlation_id: i32,
    response: &R,
    w: &mut Writer,
) -> Result<(), EncodeError> {
    encode_frame(w, |w| {
        w.i32(correlation_id);
        if R::KEY.response_header_version(api_version) > 0 {
            w.uvarint(0);
        }
        response.encode(w, api_version)
    })
}

/// Writes a size field and what `content` writes, with detached bytes counted in the size.
fn encode_frame(
    w: &mut Writer,
    content: impl FnOnce(&mut Writer) -> Result<(), EncodeError>,
) -> Result<(), EncodeError> {
    let start = w.len();
    let cuts = w.cuts().len();
    w.i32(0);
    let sized = content(w).and_then(|()| {
        let detached = w.cuts().iter().skip(cuts).fold(0, |sum: usize, cut| {
            // Saturated sums are refused below.
            sum.saturating_add(cut.len)
        });
        let length = (w.len() - start - SIZE_LEN).saturating_add(detached);
        i32::try_from(length)
            .ok()
            .filter(|_| length <= MAX_FRAME)
            .ok_or(EncodeError::TooLong { what: "frame", length })
    });
    match sized {
        Ok(size) => {
            w.patch_i32(start, size);
            Ok(())
        }
        Err(error) => {
            w.truncate(start);
            Err(error)
        }
    }
}
