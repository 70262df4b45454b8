//! Time and chance of a simulated world, for brokers on its thread.

use std::cell::RefCell;
use std::time::Instant;

struct World {
    /// The time on the wall at a time of the runtime's.
    wall: (Instant, i64),
    /// What the next random number comes from.
    counter: u64,
}

thread_local! {
    static WORLD: RefCell<Option<World>> = const { RefCell::new(None) };
}

/// While it lives, time and chance of brokers on this thread are the simulated world's.
#[derive(Debug)]
pub struct SimWorld(());

impl SimWorld {
    /// Moves the clock on the wall, and no other.
    pub fn move_wall(&self, by_ms: i64) {
        WORLD.with_borrow_mut(|world| {
            if let Some(world) = world {
                world.wall.1 = world.wall.1.saturating_add(by_ms);
            }
        });
    }
}

impl Drop for SimWorld {
    fn drop(&mut self) {
        WORLD.with_borrow_mut(|world| *world = None);
    }
}

/// Puts this thread, which must be in a runtime, into a world.
pub fn enter(seed: u64, wall_ms: i64) -> SimWorld {
    let world = World { wall: (runtime_now(), wall_ms), counter: seed };
    WORLD.with_borrow_mut(|entered| *entered = Some(world));
    SimWorld(())
}

pub(super) fn is_on() -> bool {
    WORLD.try_with(|world| world.borrow().is_some()).unwrap_or(false)
}

/// The time of the runtime that this thread is in, which a simulator moves.
pub(super) fn runtime_now() -> Instant {
    tokio::time::Instant::now().into_std()
}

/// The time on the simulated wall.
pub(super) fn wall_ms() -> Option<i64> {
    let wall = WORLD.try_with(|world| world.borrow().as_ref().map(|world| world.wall)).ok()?;
    let (at, ms) = wall?;
    let since = runtime_now().saturating_duration_since(at).as_millis();
    Some(ms.saturating_add(i64::try_from(since).unwrap_or(i64::MAX)))
}

/// Fills bytes from the world's seed (SplitMix64); false outside of any world.
pub(super) fn fill(bytes: &mut [u8]) -> bool {
    WORLD.with_borrow_mut(|world| {
        let Some(world) = world else { return false };
        for piece in bytes.chunks_mut(8) {
            world.counter = world.counter.wrapping_add(0x9e37_79b9_7f4a_7c15);
            let mut z = world.counter;
            z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
            z ^= z >> 31;
            for (to, from) in piece.iter_mut().zip(z.to_le_bytes()) {
                *to = from;
            }
        }
        true
    })
}
