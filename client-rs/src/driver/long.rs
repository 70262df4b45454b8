//! What takes long is done on other threads: work for the processor, and names being looked up.
//!
//! Each has threads of its own. A name server that is silent keeps a thread for as long as the system
//! waits for it, which nobody can break off: it must not keep those that compress what is sent to
//! brokers that are there.

use std::sync::Arc;
use std::thread;

use tokio::sync::Semaphore;
use tokio::task::spawn_blocking;

/// Names that are looked up at a time; others wait, as long as a connection may take to open.
const NAMES_MAX: usize = 4;

thread_local! {
    /// The I/O thread's, of which each process has its own.
    static WORK: Arc<Semaphore> = Arc::new(Semaphore::new(cores()));
    static NAMES: Arc<Semaphore> = Arc::new(Semaphore::new(NAMES_MAX));
}

fn cores() -> usize {
    thread::available_parallelism().map_or(2, |cores| cores.get().max(2))
}

/// The most threads that all of it takes.
pub(super) fn threads_max() -> usize {
    cores() + NAMES_MAX
}

/// The result of work for the processor; `None` if it panics.
pub(super) async fn work<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> Option<T> {
    run(WORK.with(Arc::clone), work).await
}

/// The same of a look-up, which nobody may wait for any more when it ends: until then it counts.
pub(super) async fn look_up<T: Send + 'static>(
    look: impl FnOnce() -> T + Send + 'static,
) -> Option<T> {
    run(NAMES.with(Arc::clone), look).await
}

async fn run<T: Send + 'static>(
    places: Arc<Semaphore>,
    work: impl FnOnce() -> T + Send + 'static,
) -> Option<T> {
    let place = places.acquire_owned().await.ok()?;
    let run = move || {
        let result = work();
        drop(place);
        result
    };
    spawn_blocking(run).await.ok()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::disallowed_methods, reason = "tests wait in real time, up to a limit")]

    use std::sync::mpsc;
    use std::time::Duration;

    use tokio::runtime::Builder;
    use tokio::task::{LocalSet, spawn_local};
    use tokio::time::timeout;

    use super::*;

    const LIMIT: Duration = Duration::from_mins(1);

    #[test]
    fn names_that_are_looked_up_for_ever_keep_no_work_from_being_done() {
        let max = threads_max();
        let mut runtime = Builder::new_current_thread();
        let runtime = runtime.enable_time().max_blocking_threads(max).build().unwrap();
        let (begun, begins) = mpsc::channel();
        let (release, hang) = mpsc::channel::<()>();
        let hang = Arc::new(std::sync::Mutex::new(hang));
        LocalSet::new().block_on(&runtime, async {
            for _ in 0..max {
                let (begun, hang) = (begun.clone(), Arc::clone(&hang));
                spawn_local(timeout(
                    LIMIT,
                    look_up(move || {
                        begun.send(()).unwrap();
                        hang.lock().unwrap().recv().is_err()
                    }),
                ));
            }
            let done = timeout(LIMIT, work(|| 7)).await;
            assert_eq!(done.expect("a thread is left for it"), Some(7));
            let panics = work(|| -> u8 { panic!("as it was told") });
            assert_eq!(timeout(LIMIT, panics).await.expect("it ends"), None);
            for _ in 0..cores() {
                assert_eq!(work(|| 7).await, Some(7), "a panic gives its place back");
            }
        });
        assert!(begins.try_iter().count() <= NAMES_MAX);
        drop(release);
    }
}
