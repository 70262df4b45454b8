//! One connection: one task that reads requests and sends answers side by side.

use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;

use tokio::net::TcpStream;

use crate::driver::first::{First, first};
use crate::node::Node;
use crate::server::dispatch::dispatch;
use crate::server::inbound::{Ended, Inbound};
use crate::server::outbound::{Outbound, Until};
use crate::server::outbox::Outbox;

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
    /// The client is gone in good order.
    Closed,
    /// The client broke a rule, or the socket did.
    Broken(String),
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
    let outbox = Arc::new(Outbox::default());
    let mut outbound = Outbound::new(&stream, &outbox, &node.buffers, node.clock);
    let ended = first(read(&node, &info, &stream, &outbox), outbound.run(Until::Forever)).await;
    let broken = match ended {
        First::A(ReadEnd::Closed) | First::B(Ok(())) => None,
        First::A(ReadEnd::Broken(reason)) | First::B(Err(reason)) => Some(reason),
        First::A(ReadEnd::Stopping) => outbound.run(Until::Drained).await.err(),
    };
    outbox.abandon();
    if let Some(reason) = broken {
        tracing::warn!(%peer, reason, "connection closed");
    } else {
        tracing::debug!(%peer, "connection closed");
    }
}

async fn read(
    node: &Arc<Node>,
    info: &ConnectionInfo,
    stream: &TcpStream,
    outbox: &Arc<Outbox>,
) -> ReadEnd {
    let max_frame = node.settings.request_max_bytes;
    let mut inbound = Inbound::new(stream, &node.requests, node.clock, max_frame);
    let mut stopping = pin!(node.stopping());
    loop {
        let next = async {
            outbox.room().await;
            inbound.next_frame().await
        };
        let frame = match first(next, stopping.as_mut()).await {
            First::A(Ok(frame)) => frame,
            First::A(Err(Ended::Closed)) => return ReadEnd::Closed,
            First::A(Err(Ended::Broken(reason))) => return ReadEnd::Broken(reason),
            First::B(()) => return ReadEnd::Stopping,
        };
        // Not cut short by a stop: a fetch that waits ends by itself, with an answer.
        if let Err(reason) = dispatch(node, info, frame, outbox).await {
            return ReadEnd::Broken(reason);
        }
    }
}
