//! How many connections there may be: in all, of one address, and of one address at a time.

use std::collections::HashMap;
use std::fmt;
use std::time::{Duration, Instant};

/// Addresses that are remembered without an open connection, for the rate of new ones.
const REMEMBERED: usize = 10_000;

/// The time over which new connections of an address are counted.
const WINDOW: Duration = Duration::from_secs(1);

/// Where a connection comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Origin {
    /// Its address, in the form of IPv6.
    pub(crate) address: u128,
    /// Whether that is this machine.
    pub(crate) is_loopback: bool,
}

/// What connections there may be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ConnectionLimits {
    /// Kafka: `max.connections`.
    pub(crate) in_all: usize,
    /// Kafka: `max.connections.per.ip`.
    pub(crate) of_address: usize,
    /// New ones of an address in a second; never counted on loopback.
    pub(crate) of_address_a_second: usize,
}

/// Why a connection is not taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TooMany {
    /// There are as many as there may be.
    InAll(usize),
    /// The address has as many as it may have.
    OfAddress(usize),
    /// The address comes too often.
    ASecond(usize),
}

impl fmt::Display for TooMany {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::InAll(limit) => write!(out, "{limit} connections are open: max.connections"),
            Self::OfAddress(limit) => {
                write!(out, "its address has {limit} connections: max.connections.per.ip")
            }
            Self::ASecond(limit) => write!(
                out,
                "its address made {limit} connections within a second: \
                 max.connection.creation.rate.per.ip"
            ),
        }
    }
}

/// The connections that are open.
#[derive(Debug)]
pub(crate) struct Connections {
    limits: ConnectionLimits,
    open: usize,
    addresses: HashMap<u128, Address>,
}

#[derive(Debug)]
struct Address {
    open: usize,
    /// When the window began, and how many have come in it.
    since: Instant,
    begun: usize,
}

impl Connections {
    /// None is open.
    pub(crate) fn new(limits: ConnectionLimits) -> Self {
        Self { limits, open: 0, addresses: HashMap::new() }
    }

    /// Takes a connection, which must be given back by [`Self::leave`].
    pub(crate) fn admit(&mut self, peer: Origin, now: Instant) -> Result<(), TooMany> {
        let limits = self.limits;
        if self.open >= limits.in_all {
            return Err(TooMany::InAll(limits.in_all));
        }
        if self.addresses.len() >= REMEMBERED {
            self.forget_old(now);
        }
        let new = || Address { open: 0, since: now, begun: 0 };
        let address = self.addresses.entry(peer.address).or_insert_with(new);
        if address.open >= limits.of_address {
            return Err(TooMany::OfAddress(limits.of_address));
        }
        if now.saturating_duration_since(address.since) >= WINDOW {
            (address.since, address.begun) = (now, 0);
        }
        if address.begun >= limits.of_address_a_second && !peer.is_loopback {
            return Err(TooMany::ASecond(limits.of_address_a_second));
        }
        address.begun = address.begun.saturating_add(1);
        address.open += 1;
        self.open += 1;
        Ok(())
    }

    /// A connection has ended.
    pub(crate) fn leave(&mut self, peer: Origin) {
        if let Some(address) = self.addresses.get_mut(&peer.address) {
            address.open = address.open.saturating_sub(1);
        }
        self.open = self.open.saturating_sub(1);
    }

    fn forget_old(&mut self, now: Instant) {
        self.addresses.retain(|_, address| {
            address.open > 0 || now.saturating_duration_since(address.since) < WINDOW
        });
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::disallowed_methods, reason = "a test's clock starts somewhere")]

    use super::*;

    const LIMITS: ConnectionLimits =
        ConnectionLimits { in_all: 5, of_address: 3, of_address_a_second: 2 };
    const HERE: Origin = Origin { address: 1, is_loopback: true };

    fn other(number: u128) -> Origin {
        Origin { address: 1000 + number, is_loopback: false }
    }

    #[test]
    fn an_address_has_so_many_and_all_together_so_many() {
        let now = Instant::now();
        let mut connections = Connections::new(LIMITS);
        for _ in 0..3 {
            assert_eq!(connections.admit(HERE, now), Ok(()));
        }
        assert_eq!(connections.admit(HERE, now), Err(TooMany::OfAddress(3)));
        assert_eq!(connections.admit(other(1), now), Ok(()));
        assert_eq!(connections.admit(other(3), now), Ok(()));
        assert_eq!(connections.admit(other(2), now), Err(TooMany::InAll(5)));
        connections.leave(HERE);
        assert_eq!(connections.admit(HERE, now), Ok(()), "one has gone");
        connections.leave(other(1));
        assert_eq!(connections.admit(other(2), now), Ok(()));
    }

    #[test]
    fn an_address_that_is_not_ours_comes_only_so_often() {
        let now = Instant::now();
        let mut connections = Connections::new(LIMITS);
        for _ in 0..2 {
            assert_eq!(connections.admit(other(1), now), Ok(()));
            connections.leave(other(1));
        }
        assert_eq!(connections.admit(other(1), now), Err(TooMany::ASecond(2)));
        assert_eq!(connections.admit(other(2), now), Ok(()), "another's rate is its own");
        assert_eq!(connections.admit(other(1), now + WINDOW), Ok(()));
        for _ in 0..10 {
            assert_eq!(connections.admit(HERE, now), Ok(()), "no rate on loopback");
            connections.leave(HERE);
        }
    }

    #[test]
    fn addresses_that_are_gone_are_forgotten() {
        let mut connections = Connections::new(ConnectionLimits { in_all: usize::MAX, ..LIMITS });
        let start = Instant::now();
        for at in 0..3_u32 {
            let now = start + WINDOW * at;
            for number in 0..u128::try_from(REMEMBERED).unwrap() {
                let peer = other(number * 3 + u128::from(at));
                connections.admit(peer, now).unwrap();
                connections.leave(peer);
            }
            assert!(connections.addresses.len() <= REMEMBERED);
        }
    }
}
