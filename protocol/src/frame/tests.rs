//! Sizes, headers, and bodies that must end where their frame ends.

use super::*;
use crate::messages::fetch_response::{FetchableTopicResponse, PartitionData};
use crate::messages::{
    ApiVersionsRequest, ApiVersionsResponse, FetchResponse, HeartbeatRequest, HeartbeatResponse,
    MetadataRequest,
};
use crate::writer::{Cut, Records};

fn without_size(w: &Writer) -> &[u8] {
    let (frame, rest) = split_frame(w.bytes(), MAX_FRAME).unwrap().unwrap();
    assert_eq!(rest, []);
    frame
}

#[test]
fn sizes_outside_the_limits_are_refused_before_anything_is_awaited() {
    assert_eq!(frame_size([0, 0, 0, 10], 10), Ok(10));
    for prefix in [[0, 0, 0, 11], [0xff; 4], [0x7f, 0xff, 0xff, 0xff]] {
        assert_eq!(frame_size(prefix, 10).unwrap_err().kind(), DecodeErrorKind::FrameSize);
        assert!(split_frame(&prefix, 10).is_err());
    }
}

#[test]
fn a_frame_is_split_off_only_when_it_is_whole() {
    let bytes = [0, 0, 0, 2, 7, 8, 9];
    for cut in 0..6 {
        assert_eq!(split_frame(&bytes[..cut], 10), Ok(None));
    }
    assert_eq!(split_frame(&bytes, 10), Ok(Some((&[7, 8][..], &[9][..]))));
}

#[test]
fn requests_have_the_header_of_their_version() {
    for (version, header) in [
        (8, &[0, 3, 0, 8, 0, 0, 0, 5, 0, 2, b'm', b'e'][..]),
        // Flexible: the client id keeps its 2-byte length, and tagged fields follow.
        (9, &[0, 3, 0, 9, 0, 0, 0, 5, 0, 2, b'm', b'e', 0][..]),
    ] {
        let mut w = Writer::new();
        let request = MetadataRequest { topics: None, ..MetadataRequest::default() };
        encode_request(version, 5, Some("me"), &request, &mut w).unwrap();
        let frame = without_size(&w);
        assert!(frame.starts_with(header), "{frame:?}");
        let (read, body) = decode_request::<MetadataRequest<'_>>(frame).unwrap();
        assert_eq!(read, RequestHeader::new(ApiKey::Metadata, version, 5, Some("me")));
        assert_eq!(body, request);
    }
}

#[test]
fn tags_in_a_request_header_are_skipped() {
    let header = [0, 12, 0, 4, 0, 0, 0, 5, 0xff, 0xff, 1, 0, 1, 7, 42];
    let mut r = Reader::new(&header);
    let read = RequestHeader::decode(&mut r).unwrap();
    assert_eq!((read.client_id, r.remaining()), (None, 1));
}

#[test]
fn the_header_of_an_unknown_api_can_be_read() {
    let header = [0x7f, 0, 0, 4, 0, 0, 0, 5, 0xff, 0xff, 1];
    let mut r = Reader::new(&header);
    let read = RequestHeader::decode(&mut r).unwrap();
    assert_eq!((read.api_key, read.correlation_id, r.remaining()), (0x7f00, 5, 1));
}

#[test]
fn answers_have_the_header_of_their_version() {
    let response = HeartbeatResponse { throttle_time_ms: 0x0102_0304, ..Default::default() };
    for (version, bytes) in
        [(3, &[0, 0, 0, 9, 1, 2, 3, 4, 0, 0][..]), (4, &[0, 0, 0, 9, 0, 1, 2, 3, 4, 0, 0, 0][..])]
    {
        let mut w = Writer::new();
        encode_response(version, 9, &response, &mut w).unwrap();
        assert_eq!(without_size(&w), bytes);
        assert_eq!(peek_correlation_id(bytes), Ok(9));
        assert_eq!(decode_response(bytes, version), Ok((9, response.clone())));
    }
}

#[test]
fn answers_to_api_versions_have_no_tags_in_their_header() {
    let mut w = Writer::new();
    encode_response(3, 9, &ApiVersionsResponse::default(), &mut w).unwrap();
    assert_eq!(without_size(&w), [0, 0, 0, 9, 0, 0, 1, 0, 0, 0, 0, 0]);
}

#[test]
fn bytes_after_a_body_are_an_error() {
    let mut w = Writer::new();
    encode_request(4, 1, None, &HeartbeatRequest::default(), &mut w).unwrap();
    let mut frame = without_size(&w).to_vec();
    assert!(decode_request::<HeartbeatRequest<'_>>(&frame).is_ok());
    frame.push(0);
    let error = decode_request::<HeartbeatRequest<'_>>(&frame).unwrap_err();
    assert_eq!(error.kind(), DecodeErrorKind::TrailingBytes);
    let answer = [0, 0, 0, 9, 0, 0, 0, 0, 0];
    assert!(decode_response::<HeartbeatResponse>(&answer, 0).is_err());
    assert!(decode_body::<HeartbeatResponse>(&[0, 0, 0], 0).is_err());
    assert!(decode_body::<HeartbeatResponse>(&[0, 0], 0).is_ok());
}

#[test]
fn a_request_of_another_api_is_an_error() {
    let mut w = Writer::new();
    encode_request(3, 1, None, &ApiVersionsRequest::default(), &mut w).unwrap();
    assert!(decode_request::<HeartbeatRequest<'_>>(without_size(&w)).is_err());
}

fn fetched(records: Records<'_>) -> FetchResponse<'_> {
    let partitions = vec![PartitionData { records, ..Default::default() }];
    let responses = vec![FetchableTopicResponse { partitions, ..Default::default() }];
    FetchResponse { responses, ..Default::default() }
}

#[test]
fn detached_records_count_in_the_size_of_the_frame() {
    let batch = [0xab; 700];
    let mut whole = Writer::new();
    // Something stands before, as when several answers share a buffer.
    whole.raw(&[1, 2, 3]);
    encode_response(12, 9, &fetched(Records::Inline(&batch)), &mut whole).unwrap();
    let mut apart = Writer::new();
    apart.raw(&[1, 2, 3]);
    encode_response(12, 9, &fetched(Records::Detached(700)), &mut apart).unwrap();
    let [Cut { at, len: 700 }] = *apart.cuts() else { panic!("{:?}", apart.cuts()) };
    let (before, after) = apart.bytes().split_at(at);
    assert_eq!([before, &batch, after].concat(), whole.bytes());
}

#[test]
fn frames_above_the_limit_are_refused_and_leave_nothing_behind() {
    let mut w = Writer::new();
    w.raw(&[1]);
    let told = encode_response(12, 9, &fetched(Records::Detached(MAX_FRAME)), &mut w);
    assert!(matches!(told, Err(EncodeError::TooLong { what: "frame", .. })), "{told:?}");
    assert_eq!((w.bytes(), w.cuts()), (&[1][..], &[][..]));
    let told = encode_response(99, 9, &fetched(Records::Null), &mut w);
    let expected = EncodeError::UnsupportedVersion { message: "FetchResponse", version: 99 };
    assert_eq!((told, w.bytes()), (Err(expected), &[1][..]));
}
