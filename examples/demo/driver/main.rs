//! The demo's driver: an embedded broker, eight programs in four languages, and the checks.
//!
//! `demo --data FLIGHTS.CSV --folder DIR [--tamper drop|dup|swap]
//! --program rust COMMAND… --program python COMMAND… --program node COMMAND… --program c COMMAND…`
#![allow(clippy::print_stdout, reason = "showing what happens is its purpose")]
#![allow(clippy::disallowed_methods, reason = "it times what it shows")]

mod arguments;
mod checks;
mod deal;
mod feed;
mod flights;
mod ledger;
mod program;
mod report;
mod run;

use std::process::ExitCode;
use std::sync::Arc;

/// What goes wrong, in words for the person at the terminal.
type Failure = Box<dyn std::error::Error + Send + Sync>;

fn main() -> ExitCode {
    match demo() {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(failure) => {
            println!("the demo could not be run: {failure}");
            ExitCode::FAILURE
        }
    }
}

/// True if all checks held.
fn demo() -> Result<bool, Failure> {
    let arguments = arguments::parse(std::env::args().skip(1))?;
    let flights = Arc::new(flights::read(&arguments.data)?);
    let mut hands = deal::deal(&flights);
    if let Some(tamper) = arguments.tamper {
        println!("tampering with the stream: {}", deal::tamper(&mut hands, &flights, tamper)?);
    }
    let outcome = run::run(&arguments, &flights, &hands)?;
    report::print(&outcome, &flights);
    Ok(checks::print(&checks::all(&outcome, &flights)))
}
