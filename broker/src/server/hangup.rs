//! Noticing that a peer is gone while nothing is read from it.

use std::time::Duration;

use tokio::io::Interest;
use tokio::net::TcpStream;

use crate::driver::clock::Clock;

/// How often a connection is looked at that has requests waiting to be read: its socket is readable
/// all the time, so nothing wakes who waits for its end.
const LOOK_AGAIN: Duration = Duration::from_secs(1);

/// A connection that is not read from while a request of it waits.
#[derive(Debug)]
pub(crate) struct Hangup<'a> {
    peer: Peer<'a>,
    clock: Clock,
}

#[derive(Debug)]
enum Peer<'a> {
    Socket(&'a TcpStream),
    #[cfg(feature = "sim")]
    Simulated(&'a tokio::sync::mpsc::UnboundedSender<Vec<u8>>),
}

impl<'a> Hangup<'a> {
    /// Nothing is looked at yet.
    pub(crate) fn new(stream: &'a TcpStream, clock: Clock) -> Self {
        Self { peer: Peer::Socket(stream), clock }
    }

    /// Of a simulated connection, which takes its answers by this channel.
    #[cfg(feature = "sim")]
    pub(crate) fn of(
        answers: &'a tokio::sync::mpsc::UnboundedSender<Vec<u8>>,
        clock: Clock,
    ) -> Self {
        Self { peer: Peer::Simulated(answers), clock }
    }

    /// Returns once the peer sends no more, which is how its end looks from here.
    pub(crate) async fn noticed(&self) {
        #[cfg_attr(
            not(feature = "sim"),
            allow(
                clippy::infallible_destructuring_match,
                reason = "the simulator has another peer"
            )
        )]
        let stream = match &self.peer {
            Peer::Socket(stream) => stream,
            #[cfg(feature = "sim")]
            Peer::Simulated(answers) => return answers.closed().await,
        };
        // An error is an end as well.
        while let Ok(ready) = stream.ready(Interest::READABLE).await {
            if ready.is_read_closed() {
                return;
            }
            self.clock.sleep_until(self.clock.now() + LOOK_AGAIN).await;
        }
    }
}
