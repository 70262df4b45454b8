//! How far a client's life has come: not begun, on the I/O thread, or closed.

use std::sync::{Arc, Mutex, OnceLock};

use crate::driver::ClientHandle;
use crate::error::Error;
use crate::health::{Health, Vitals};
use crate::process::Process;
use crate::state::guard::lock;

/// A client's life, as its handles share it. Its machine comes to the I/O thread by the first call
/// that needs the network, once, and never after a close.
pub(crate) struct Life {
    client: OnceLock<ClientHandle>,
    /// Held while it begins, lest a close overtakes that.
    closed: Mutex<bool>,
    /// The process it was made in: threads do not survive a fork.
    process: Process,
}

impl Life {
    /// One that has not begun, of a client that is made in this process.
    pub(crate) const fn new(process: Process) -> Self {
        Self { client: OnceLock::new(), closed: Mutex::new(false), process }
    }

    /// The client on the I/O thread, once it was brought there; closed or not. Takes no lock.
    #[inline]
    pub(crate) fn client(&self) -> Option<&ClientHandle> {
        self.client.get()
    }

    /// Brings the client to the I/O thread, the first time. `Closed` after a close.
    pub(crate) fn begin(
        &self,
        bring: impl FnOnce() -> Result<ClientHandle, Error>,
    ) -> Result<(), Error> {
        self.process.check()?;
        let closed = lock(&self.closed);
        if *closed {
            return Err(Error::closed());
        }
        if self.client.get().is_none() {
            let client = bring()?;
            self.client.get_or_init(|| client);
        }
        drop(closed);
        Ok(())
    }

    /// Has it begin never more; the client, if it did.
    pub(crate) fn end(&self) -> Option<&ClientHandle> {
        *lock(&self.closed) = true;
        self.client.get()
    }

    /// How its connections fare. Nothing to tell before it begins, and in a child of the process that
    /// made it, where a lock may be held for ever.
    pub(crate) fn health(&self) -> Health {
        let client = self.client.get().filter(|_| self.process.is_current());
        client.map(ClientHandle::health).unwrap_or_default()
    }

    /// What is told of its connections, once there are any.
    pub(crate) fn vitals(&self) -> Option<Arc<Vitals>> {
        self.client.get().map(ClientHandle::vitals)
    }

    /// Milliseconds for which brokers wanted to be left alone (KIP-219).
    pub(crate) fn throttled_ms(&self) -> u64 {
        self.client.get().map_or(0, ClientHandle::throttled_ms)
    }

    /// Bytes of buffers that large answers lie in, as long as anybody holds any of them.
    pub(crate) fn answer_bytes(&self) -> usize {
        self.client.get().map_or(0, ClientHandle::answer_bytes)
    }
}
