//! What our simulator puts in the place of the network, the clock, the system's random numbers and
//! the I/O thread: all clients live on its own thread, under the runtime that it drives.

use std::cell::{Cell, RefCell};
use std::fmt;
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::rc::Rc;
use std::time::{Duration, Instant};

use async_trait::async_trait;
use tokio::io::{AsyncRead, AsyncWrite};

use super::clock;
use super::transport::{Stream, Transport};
use crate::config::Address;
use crate::error::{Error, ErrorKind};
use crate::state::backoff::Random;

/// Both ways of a simulated connection.
pub trait SimStream: AsyncRead + AsyncWrite + Unpin {}

impl<T: AsyncRead + AsyncWrite + Unpin> SimStream for T {}

/// A connection that is being opened.
pub type Connecting = Pin<Box<dyn Future<Output = io::Result<Box<dyn SimStream>>>>>;

/// The simulated network.
pub trait SimNetwork {
    /// Opens a connection, or says within `wait` why there is none.
    fn connect(&self, host: &str, port: u16, wait: Duration) -> Connecting;
}

/// Turns for nothing, one after the other, at most: a client that has more of them spins.
const IDLE_MAX: u32 = 50;
/// A turn within so short a time of the one before it comes too soon to be for nothing.
const SOON: Duration = Duration::from_millis(2);

/// Whether a client sleeps while there is nothing to do.
#[derive(Debug, Default)]
pub(crate) struct Rest {
    last: Cell<Option<Instant>>,
    idle: Cell<u32>,
}

impl Rest {
    /// A turn begins: the client was `told` of something, or its time has come.
    pub(crate) fn see_turn(&self, told: bool, now: Instant) {
        let soon = self.last.replace(Some(now)).is_some_and(|last| now < last + SOON);
        self.idle.set(if soon && !told { self.idle.get() + 1 } else { 0 });
        assert!(self.idle.get() <= IDLE_MAX, "a client spins: its time comes again and again");
    }

    /// A turn has sent something out.
    pub(crate) fn see_work(&self) {
        self.idle.set(0);
    }
}

struct World {
    network: Rc<dyn SimNetwork>,
    random: Random,
    /// The time on the wall at a time of the runtime's.
    wall: (Instant, i64),
}

thread_local! {
    static WORLD: RefCell<Option<World>> = const { RefCell::new(None) };
}

/// While it lives, all clients made on this thread live in the simulated world.
#[derive(Debug)]
pub struct Entered(());

impl Drop for Entered {
    fn drop(&mut self) {
        let left = WORLD.with_borrow_mut(Option::take);
        drop(left);
    }
}

/// Puts this thread, which must be in a runtime and in a set of local tasks, into a world.
pub fn enter(network: Rc<dyn SimNetwork>, seed: u64, wall_ms: i64) -> Entered {
    let wall = (clock::runtime_now(), wall_ms);
    let world = World { network, random: Random::new(seed), wall };
    WORLD.with_borrow_mut(|entered| *entered = Some(world));
    Entered(())
}

/// Whether this thread is in a simulated world.
pub(crate) fn is_on() -> bool {
    WORLD.try_with(|world| world.borrow().is_some()).unwrap_or(false)
}

/// The time on the simulated wall.
pub(crate) fn wall_ms() -> Option<i64> {
    let wall = WORLD.try_with(|world| world.borrow().as_ref().map(|world| world.wall)).ok()?;
    let (at, ms) = wall?;
    let since = clock::runtime_now().saturating_duration_since(at).as_millis();
    Some(ms.saturating_add(i64::try_from(since).unwrap_or(i64::MAX)))
}

/// A number for a client to begin with.
pub(crate) fn seed() -> Option<u64> {
    WORLD.with_borrow_mut(|world| world.as_mut().map(|world| world.random.number()))
}

/// The world's network as a client's transport.
pub(crate) fn transport() -> Box<dyn Transport> {
    Box::new(Simulated(WORLD.with_borrow(|world| world.as_ref().map(|one| one.network.clone()))))
}

struct Simulated(Option<Rc<dyn SimNetwork>>);

impl fmt::Debug for Simulated {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Simulated")
    }
}

#[async_trait(?Send)]
impl Transport for Simulated {
    async fn connect(
        &self,
        to: &Address,
        _advertised: bool,
        wait: Duration,
    ) -> Result<Box<dyn Stream>, Error> {
        let fault = || Error::new(ErrorKind::Connect, format!("cannot connect to {to}"));
        let network = self.0.as_ref().ok_or_else(fault)?;
        match network.connect(&to.host, to.port, wait).await {
            Ok(stream) => Ok(Box::new(stream)),
            Err(error) => Err(fault().with_source(error)),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::panic::{AssertUnwindSafe, catch_unwind};

    use super::*;

    /// Turns for nothing until it is said that the client spins; `None` if it never is.
    fn turns_until_seen(
        rest: &Rest,
        most: u32,
        mut now: impl FnMut(u32) -> Instant,
    ) -> Option<u32> {
        (1..=most).find(|&turn| {
            catch_unwind(AssertUnwindSafe(|| rest.see_turn(false, now(turn)))).is_err()
        })
    }

    #[test]
    fn a_client_whose_time_comes_again_and_again_spins() {
        let (now, rest) = (clock::now(), Rest::default());
        // Of the first one nobody knows whether it comes soon.
        assert_eq!(turns_until_seen(&rest, 1000, |_| now), Some(1 + IDLE_MAX + 1));
        let rest = Rest::default();
        let slowly = |turn| now + SOON / 2 * turn;
        assert_eq!(turns_until_seen(&rest, 1000, slowly), Some(1 + IDLE_MAX + 1));
    }

    #[test]
    fn a_client_that_is_told_something_or_works_or_sleeps_does_not_spin() {
        let (now, rest) = (clock::now(), Rest::default());
        assert_eq!(turns_until_seen(&rest, 1000, |turn| now + SOON * turn), None, "it sleeps");
        for wakes in [Rest::see_work, |rest: &Rest| rest.see_turn(true, clock::now())] {
            for _ in 0..10 {
                assert_eq!(turns_until_seen(&rest, IDLE_MAX, |_| now), None);
                wakes(&rest);
            }
        }
    }
}
