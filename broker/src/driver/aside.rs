//! Work that may wait for a disk, on a thread that may.

use std::cell::Cell;

use tokio::runtime::Handle;

thread_local! {
    static SERVES: Cell<bool> = const { Cell::new(false) };
}

/// This thread is the runtime's: it serves connections, but for work that is handed to it by the
/// functions below.
pub(crate) fn enlist_thread() {
    SERVES.set(true);
}

/// Whether this thread serves connections, and so must not wait for a disk.
pub(crate) fn serves_connections() -> bool {
    SERVES.get()
}

/// Does `work` where it may wait for a disk; an error if it panics. In a simulator, which has one
/// thread and files in memory, at once.
pub(crate) async fn aside<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, String> {
    if !serves_connections() {
        return Ok(work());
    }
    tokio::task::spawn_blocking(|| waiting(work)).await.map_err(|error| error.to_string())
}

/// Has `work` done where it may wait for a disk: here, unless this thread serves connections.
pub(crate) fn hand_aside(work: impl FnOnce() + Send + 'static) {
    if serves_connections() {
        Handle::current().spawn_blocking(|| waiting(work));
    } else {
        work();
    }
}

/// Does `work` on a thread that serves nobody meanwhile.
fn waiting<T>(work: impl FnOnce() -> T) -> T {
    struct Back(bool);
    impl Drop for Back {
        fn drop(&mut self) {
            SERVES.set(self.0);
        }
    }
    let _back = Back(SERVES.replace(false));
    work()
}
