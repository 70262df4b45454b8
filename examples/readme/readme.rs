//! The lines of Rust in README.md, one behind the other: what stands there works.
#![allow(clippy::print_stdout, reason = "README's lines print")]
#![allow(unused_variables, reason = "README goes on where its last line ends")]

use std::error::Error;
use std::time::Duration;

use ottla::{Admin, Consumer, NewTopic, Options, Producer, Record};
use ottla_broker::{Broker, BrokerConfig};

fn main() -> Result<(), Box<dyn Error>> {
    tokio::runtime::Builder::new_current_thread().build()?.block_on(readme())
}

async fn readme() -> Result<(), Box<dyn Error>> {
    include!(concat!(env!("OUT_DIR"), "/readme.rs"));
    Ok(())
}
