//! One connection: one task that reads requests and sends answers side by side.

use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use tokio::net::TcpStream;

use crate::driver::first::{First, first};
use crate::node::Node;
use crate::server::dispatch::dispatch;
use crate::server::hangup::Hangup;
use crate::server::inbound::{Ended, Inbound};
use crate::server::outbound::{Outbound, Until};
use crate::server::outbox::Outbox;

/// How long the answers that are open may take once a peer sends no more.
pub(crate) const LAST_ANSWERS: Duration = Duration::from_secs(30);

/// What handlers may know of the connection that a request came by.
#[derive(Debug, Clone)]
pub(crate) struct ConnectionInfo {
    /// The client's address.
    pub(crate) peer: SocketAddr,
    /// Our address as the client sees it.
    pub(crate) local: SocketAddr,
}

impl ConnectionInfo {
    /// Host and port that this client is told: those it came by, unless others are configured.
    pub(crate) fn advertised(&self, node: &Node) -> (String, i32) {
        node.settings.advertised.clone().unwrap_or_else(|| {
            // A client that came by IPv4 on a socket for both must be told the IPv4 form.
            (self.local.ip().to_canonical().to_string(), i32::from(self.local.port()))
        })
    }
}

/// Why the reading half ended.
enum ReadEnd {
    /// The connection ends.
    Ended(Ended),
    /// A request was none that can be served; the text says why.
    Refused(String),
    /// The broker stops.
    Stopping,
}

/// Serves a connection until either side ends it.
pub(crate) async fn serve(node: Arc<Node>, stream: TcpStream, peer: SocketAddr) {
    let local = match stream.set_nodelay(true).and_then(|()| stream.local_addr()) {
        Ok(local) => local,
        Err(error) => {
            tracing::debug!(%peer, %error, "the connection was gone at once");
            return;
        }
    };
    let info = ConnectionInfo { peer, local };
    let outbox = Arc::new(Outbox::new(node.answers.clone()));
    let mut outbound = Outbound::new(&stream, &outbox, &node.buffers, &node.reads, node.clock);
    let ended = first(read(&node, &info, &stream, &outbox), outbound.run(Until::Forever)).await;
    let ended = match ended {
        First::A(ReadEnd::Ended(Ended::Closed | Ended::Idle)) => {
            // Who only sends no more may still wait for answers; who is gone does not take them.
            last_answers(&node, &mut outbound).await.err().unwrap_or(Ended::Closed)
        }
        First::A(ReadEnd::Refused(reason)) => {
            // What came before it is answered. How that ends tells less than why.
            let _sent = last_answers(&node, &mut outbound).await.is_ok();
            Ended::Broken(reason)
        }
        First::A(ReadEnd::Ended(ended)) | First::B(Err(ended)) => ended,
        First::A(ReadEnd::Stopping) => {
            outbound.run(Until::Drained).await.err().unwrap_or(Ended::Closed)
        }
        // It ends by itself only where it was asked to.
        First::B(Ok(())) => Ended::Closed,
    };
    outbox.abandon();
    match ended {
        Ended::Closed => tracing::debug!(%peer, "connection closed"),
        Ended::Idle => tracing::debug!(%peer, "connection closed: connections.max.idle.ms"),
        Ended::Lost(error) => tracing::debug!(%peer, %error, "connection lost"),
        Ended::Broken(reason) => tracing::warn!(%peer, reason, "connection closed"),
    }
}

async fn read(
    node: &Arc<Node>,
    info: &ConnectionInfo,
    stream: &TcpStream,
    outbox: &Arc<Outbox>,
) -> ReadEnd {
    let max_frame = node.settings.request_max_bytes;
    let patience = node.settings.patience;
    let mut inbound = Inbound::new(stream, &node.requests, node.clock, max_frame, patience);
    let hangup = Hangup::new(stream, node.clock);
    let mut stopping = pin!(node.stopping());
    loop {
        let next = async {
            outbox.room().await;
            inbound.next_frame().await
        };
        let frame = match first(next, stopping.as_mut()).await {
            First::A(Ok(frame)) => frame,
            // Who waits for answers is not idle.
            First::A(Err(Ended::Idle)) if outbox.has_open() => continue,
            First::A(Err(ended)) => return ReadEnd::Ended(ended),
            First::B(()) => return ReadEnd::Stopping,
        };
        // Not cut short by a stop: a fetch that waits ends by itself, with an answer.
        if let Err(reason) = dispatch(node, info, frame, outbox, &hangup).await {
            return ReadEnd::Refused(reason);
        }
    }
}

/// Sends the answers that are open, as far as they come in time.
async fn last_answers(node: &Node, outbound: &mut Outbound<'_>) -> Result<(), Ended> {
    let deadline = node.clock.now() + LAST_ANSWERS;
    let drained = node.clock.until(deadline, outbound.run(Until::Drained)).await;
    drained.unwrap_or(Ok(()))
}
