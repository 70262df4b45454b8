//! Many seeds, as many at a time as there are cores: a run has a thread to itself.

use std::ops::{ControlFlow, Range};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc;
use std::thread;

use super::{Outcome, run};

/// Runs seeds, and tells of each when it is done, until that says `Break`. An error if one cannot
/// be run.
pub fn run_many(
    seeds: Range<u64>,
    mut each: impl FnMut(Outcome) -> ControlFlow<()>,
) -> Result<(), String> {
    let next = AtomicU64::new(seeds.start);
    let threads = thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let (give, done) = mpsc::channel();
    thread::scope(|scope| {
        for _ in 0..threads {
            let (give, next) = (give.clone(), &next);
            scope.spawn(move || {
                loop {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed >= seeds.end || give.send(run(seed, false)).is_err() {
                        return;
                    }
                }
            });
        }
        drop(give);
        for outcome in done {
            if each(outcome?).is_break() {
                break;
            }
        }
        Ok(())
    })
}
