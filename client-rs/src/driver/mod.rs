//! What moves the machines' bytes: the I/O thread, its clients, their connections, and the clock.

//! A client is a [`Machine`](crate::state::machine::Machine) on the I/O thread and a face that other
//! threads hold. The face puts what it wants where the machine looks, and calls `wake`; the machine
//! looks in its `turn`:
//!
//! ```text
//! let wake = Arc::<Wake>::default();
//! let client = driver::start(&config.common, Arc::clone(&wake), move |random| Machine::new(random, ..))?;
//! client.wait_ended(timeout)      // after the machine was told to close
//! ```

pub(crate) mod clock;
