//! The stream between the file and the programs that send it.

use std::io::{BufWriter, Write};
use std::process::ChildStdin;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::{self, JoinHandle};

use crate::Failure;
use crate::flights::Flights;

/// Lines given out between two looks at the gate.
const STRIDE: usize = 256;

/// Holds the streams back while a share of all flights must stay unsent.
#[derive(Debug)]
pub(crate) struct Gate {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug)]
struct State {
    fed: usize,
    limit: usize,
}

impl Gate {
    /// A gate that lets so many flights through.
    pub(crate) fn new(limit: usize) -> Self {
        Self { state: Mutex::new(State { fed: 0, limit }), changed: Condvar::new() }
    }

    /// Lets all others through.
    pub(crate) fn open(&self) {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).limit = usize::MAX;
        self.changed.notify_all();
    }

    /// Returns when so many more may pass.
    fn pass(&self, flights: usize) {
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let shut = |state: &mut State| state.fed >= state.limit;
        let mut state =
            self.changed.wait_while(state, shut).unwrap_or_else(PoisonError::into_inner);
        state.fed += flights;
    }
}

/// Writes the flights of one hand to a program in a thread of its own, then ends its input.
pub(crate) fn start(
    flights: &Arc<Flights>,
    hand: Vec<usize>,
    gate: &Arc<Gate>,
    input: ChildStdin,
) -> Result<JoinHandle<std::io::Result<()>>, Failure> {
    let (flights, gate) = (Arc::clone(flights), Arc::clone(gate));
    let feed = move || {
        let mut input = BufWriter::new(input);
        for numbers in hand.chunks(STRIDE) {
            gate.pass(numbers.len());
            for &number in numbers {
                let flight = &flights.all[number];
                let key = flight.aircraft.as_deref().unwrap_or_default();
                writeln!(input, "{number}\t{key}\t{}", flight.line)?;
            }
            input.flush()?;
        }
        Ok(())
    };
    Ok(thread::Builder::new().name("feed".to_owned()).spawn(feed)?)
}
