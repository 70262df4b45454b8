//! The listening socket and the tasks of its connections.

use std::fs::File;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

use crate::driver::first::{First, first};
use crate::node::Node;
use crate::server::connection;
use crate::state::connections::{Connections, Origin};

/// Wait after an accept that failed for lack of descriptors or memory.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Refusals are told once in this time: who is refused may come again at once.
const TELL_AGAIN: Duration = Duration::from_secs(1);

/// The errors for a process, or a system, that has no descriptor left.
const NO_DESCRIPTOR: [i32; 2] = [libc::EMFILE, libc::ENFILE];

/// Accepts until the broker stops, then waits until the last connection has ended.
pub(crate) async fn serve(node: Arc<Node>, listener: std::net::TcpListener) -> io::Result<()> {
    let listener = TcpListener::from_std(listener)?;
    let mut door = Door::new(&node);
    let mut connections = JoinSet::new();
    loop {
        let next = accept(&listener, &mut connections);
        match first(next, node.stopping()).await {
            First::A(Ok((stream, peer))) => {
                if let Some(place) = door.admit(peer) {
                    let node = node.clone();
                    connections.spawn(async move {
                        connection::serve(node, stream, peer).await;
                        drop(place);
                    });
                }
            }
            First::A(Err(error)) => door.handle_failed(&listener, &error).await,
            First::B(()) => break,
        }
    }
    drop(listener);
    while let Some(ended) = connections.join_next().await {
        note_panic(ended);
    }
    Ok(())
}

/// Who may come in.
struct Door<'a> {
    node: &'a Node,
    open: Arc<Mutex<Connections>>,
    /// Given up when there is no other descriptor, so that who waits to be accepted can be sent
    /// away: otherwise the listener would be readable, and fail, all the time.
    spare: Option<File>,
    told: Option<Instant>,
}

/// A connection's place among those that there may be.
struct Place {
    open: Arc<Mutex<Connections>>,
    peer: Origin,
}

impl Drop for Place {
    fn drop(&mut self) {
        locked(&self.open).leave(self.peer);
    }
}

fn locked(open: &Mutex<Connections>) -> MutexGuard<'_, Connections> {
    // Numbers, each changed in one move.
    open.lock().unwrap_or_else(PoisonError::into_inner)
}

impl<'a> Door<'a> {
    fn new(node: &'a Node) -> Self {
        let open = Connections::new(node.settings.connection_limits);
        Self { node, open: Arc::new(Mutex::new(open)), spare: spare(), told: None }
    }

    fn admit(&mut self, peer: SocketAddr) -> Option<Place> {
        let now = self.node.clock.now();
        let origin = origin(peer.ip());
        let admitted = locked(&self.open).admit(origin, now);
        match admitted {
            Ok(()) => Some(Place { open: self.open.clone(), peer: origin }),
            Err(too_many) => {
                if self.may_tell(now) {
                    tracing::warn!(%peer, %too_many, "a connection is refused");
                }
                None
            }
        }
    }

    fn may_tell(&mut self, now: Instant) -> bool {
        let quiet = |told: Instant| now.saturating_duration_since(told) < TELL_AGAIN;
        if self.told.is_some_and(quiet) {
            return false;
        }
        self.told = Some(now);
        true
    }

    /// A connection could not be accepted: sends it away if that is all that can be done, and
    /// pauses.
    async fn handle_failed(&mut self, listener: &TcpListener, error: &io::Error) {
        let now = self.node.clock.now();
        if self.may_tell(now) {
            tracing::error!(%error, "a connection cannot be accepted");
        }
        let pause = now + ACCEPT_PAUSE;
        let starved = error.raw_os_error().is_some_and(|code| NO_DESCRIPTOR.contains(&code));
        if starved && self.spare.take().is_some() {
            // It is there, or gone meanwhile.
            let refused = self.node.clock.until(pause, listener.accept()).await;
            drop(refused);
            self.spare = spare();
            return;
        }
        self.node.clock.sleep_until(pause).await;
        self.spare = self.spare.take().or_else(spare);
    }
}

/// One and the same for both forms of an IPv4 address.
fn origin(peer: IpAddr) -> Origin {
    let address = match peer.to_canonical() {
        IpAddr::V4(address) => address.to_ipv6_mapped(),
        IpAddr::V6(address) => address,
    };
    Origin { address: address.to_bits(), is_loopback: peer.to_canonical().is_loopback() }
}

fn spare() -> Option<File> {
    File::open("/dev/null").ok()
}

/// The next connection; meanwhile, ended ones are cleared away.
async fn accept(
    listener: &TcpListener,
    connections: &mut JoinSet<()>,
) -> io::Result<(TcpStream, SocketAddr)> {
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

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;

    #[test]
    fn both_forms_of_an_address_are_one() {
        let here = Ipv4Addr::LOCALHOST;
        let (plain, mapped) = (IpAddr::V4(here), IpAddr::V6(here.to_ipv6_mapped()));
        assert_eq!(origin(plain), origin(mapped));
        assert!(origin(mapped).is_loopback);
        assert!(!origin(IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1))).is_loopback);
    }
}
