//! The listening socket and the tasks of its connections.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use tokio::net::TcpListener;
use tokio::task::JoinSet;

use crate::driver::first::{First, first};
use crate::node::Node;
use crate::server::connection;

/// Wait after an accept that failed for lack of descriptors or memory.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Accepts until the broker stops, then waits until the last connection has ended.
pub(crate) async fn serve(node: Arc<Node>, listener: std::net::TcpListener) -> io::Result<()> {
    let listener = TcpListener::from_std(listener)?;
    let mut connections = JoinSet::new();
    loop {
        let next = accept(&listener, &mut connections);
        match first(next, node.stopping()).await {
            First::A(Ok((stream, peer))) => {
                connections.spawn(connection::serve(node.clone(), stream, peer));
            }
            First::A(Err(error)) => {
                tracing::error!(%error, "a connection cannot be accepted");
                node.clock.sleep_until(node.clock.now() + ACCEPT_PAUSE).await;
            }
            First::B(()) => break,
        }
    }
    drop(listener);
    while let Some(ended) = connections.join_next().await {
        note_panic(ended);
    }
    Ok(())
}

/// The next connection; meanwhile, ended ones are cleared away.
async fn accept(
    listener: &TcpListener,
    connections: &mut JoinSet<()>,
) -> io::Result<(tokio::net::TcpStream, std::net::SocketAddr)> {
    loop {
        if connections.is_empty() {
            return listener.accept().await;
        }
        match first(listener.accept(), connections.join_next()).await {
            First::A(accepted) => return accepted,
            First::B(Some(ended)) => note_panic(ended),
            First::B(None) => {}
        }
    }
}

fn note_panic(ended: Result<(), tokio::task::JoinError>) {
    if let Err(error) = ended {
        tracing::error!(%error, "a connection ended by a panic");
    }
}
