//! Work that may wait for a disk, on a thread that may.

/// Does `work` beside the network's threads; an error if it panics. On the broker's runtime.
pub(crate) async fn aside<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, String> {
    tokio::task::spawn_blocking(work).await.map_err(|error| error.to_string())
}
