//! The first words of a connection: which versions the broker speaks.

use std::future::poll_fn;
use std::rc::Rc;
use std::task::{Poll, ready};

use ottla_protocol::messages::api_versions_request::ApiVersionsRequest;
use ottla_protocol::messages::api_versions_response::ApiVersionsResponse;
use ottla_protocol::{ApiKey, ErrorCode, Writer, frame};

use super::{Link, Peer, Versions, internal};
use crate::driver::client::Client;
use crate::driver::clock::{self, Timer};
use crate::driver::wire::Wire;
use crate::driver::{SOFTWARE_NAME, SOFTWARE_VERSION};
use crate::error::{Error, ErrorKind};
use crate::state::machine::{Body, Frame, Throttle, body};
use crate::state::metadata::other_cluster;

/// The newest version asked in, of a broker that is told whom we take it for (KIP-1242).
const NEWEST: i16 = 5;
/// The same where nobody is expected: version 5 has nothing more to say then.
const NEWEST_UNCHECKED: i16 = 4;

/// Connects, and asks for the broker's versions. The throttle learns of it if the broker wants to be
/// left alone then.
pub(crate) async fn open(
    link: &Rc<Link>,
    client: &Rc<Client>,
    throttle: &Throttle,
) -> Result<(Wire, Versions), Error> {
    let address = client.address_of(link.key.peer)?;
    let advertised = matches!(link.key.peer, Peer::Node(_));
    let wait = client.connect_timeout(link.failures.get());
    let stream = client.transport().connect(&address, advertised, wait).await?;
    let mut wire = Wire::new(stream, client.buffers());
    let expected = client.expected(link.key.peer);
    let newest = if expected.is_some() { NEWEST } else { NEWEST_UNCHECKED };
    let broker = client.name_of(link.key.peer);
    let note = |millis| throttle.note(&broker, millis);
    let told = match ask(&mut wire, client, newest, expected.as_ref(), note).await? {
        // KIP-511: the broker is older than the question, and says in version 0 what it knows.
        Told::Older(version) => {
            if expected.is_some() {
                client.note_unchecked();
            }
            ask(&mut wire, client, version, None, note).await?
        }
        told => told,
    };
    let versions = match (told, expected) {
        (Told::Versions(versions), _) => versions,
        (Told::Another, Some((known, node))) => {
            let name = format!("{node} at {address}");
            // Unless another connection was told the same, and the client looks elsewhere by now.
            if client.expected(link.key.peer).is_some_and(|(cluster, _)| cluster == known) {
                if !link.is_down() {
                    client.vitals().note_refused(&name, &known);
                }
                client.rebootstrap();
            }
            return Err(other_cluster(&name, &known, None).with_api(ApiKey::ApiVersions));
        }
        (Told::Another, None) => {
            let code = ErrorCode::REBOOTSTRAP_REQUIRED;
            return Err(Error::from_kafka(code, None).with_api(ApiKey::ApiVersions));
        }
        (Told::Older(_), _) => {
            let text = "the broker does not take its own version of ApiVersions";
            return Err(Error::new(ErrorKind::UnsupportedVersion, text));
        }
    };
    tracing::debug!(broker = %address, lane = ?link.key.lane, "connected");
    Ok((wire, versions))
}

enum Told {
    Versions(Versions),
    Older(i16),
    /// It is not the broker that was meant.
    Another,
}

async fn ask(
    wire: &mut Wire,
    client: &Client,
    version: i16,
    expected: Option<&(String, i32)>,
    note_throttle: impl Fn(i32),
) -> Result<Told, Error> {
    let question = question(expected.cloned());
    let mut writer = Writer::new();
    let client_id = Some(client.client_id());
    let mut frame =
        Frame { version, correlation_id: i32::from(version), client_id, writer: &mut writer };
    question.encode(&mut frame).map_err(|error| internal("a request cannot be written", error))?;
    wire.push(writer, &*question);
    let deadline = clock::now() + client.request_timeout();
    let mut timer = Timer::default();
    let answer = poll_fn(|cx| {
        if timer.poll(Some(deadline), cx).is_ready() {
            let text = "the broker did not answer within the request timeout";
            return Poll::Ready(Err(Error::new(ErrorKind::RequestTimeout, text)));
        }
        if let Err(error) = ready!(wire.poll_flush(cx)) {
            return Poll::Ready(Err(error));
        }
        wire.poll_frame(cx)
    });
    read(&answer.await?, version, note_throttle)
}

fn question(expected: Option<(String, i32)>) -> Box<dyn Body> {
    body(ApiKey::ApiVersions, 0..=NEWEST, move |frame| {
        frame.put(&ApiVersionsRequest {
            client_software_name: SOFTWARE_NAME,
            client_software_version: SOFTWARE_VERSION,
            // One alone is an INVALID_REQUEST.
            cluster_id: expected.as_ref().map(|(cluster, _)| cluster.as_str()),
            node_id: expected.as_ref().map_or(-1, |(_, node)| *node),
        })
    })
}

fn read(answer: &[u8], version: i16, note_throttle: impl Fn(i32)) -> Result<Told, Error> {
    let decode = |version| frame::decode_response::<ApiVersionsResponse<'_>>(answer, version);
    // A broker that does not know the version answers in 0.
    let (id, response) =
        decode(version).or_else(|first| decode(0).map_err(|_| first)).map_err(|error| {
            let text = "what the broker sends is no answer";
            Error::new(ErrorKind::Protocol, text).with_api(ApiKey::ApiVersions).with_source(error)
        })?;
    if id != i32::from(version) {
        let text = "the broker's first answer does not fit the request";
        return Err(Error::new(ErrorKind::Protocol, text).with_api(ApiKey::ApiVersions));
    }
    note_throttle(response.throttle_time_ms);
    let versions: Versions = response
        .api_keys
        .iter()
        .filter_map(|api| {
            Some((ApiKey::try_from(api.api_key).ok()?, api.min_version..=api.max_version))
        })
        .collect();
    match response.error_code {
        ErrorCode::NONE => Ok(Told::Versions(versions)),
        ErrorCode::UNSUPPORTED_VERSION if version > 0 => {
            let listed = versions.iter().find(|(key, _)| *key == ApiKey::ApiVersions);
            let best = listed.map_or(0, |(_, range)| *range.end());
            Ok(Told::Older(if (0..version).contains(&best) { best } else { 0 }))
        }
        ErrorCode::REBOOTSTRAP_REQUIRED => Ok(Told::Another),
        code => Err(Error::from_kafka(code, None).with_api(ApiKey::ApiVersions)),
    }
}
