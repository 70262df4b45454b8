//! A broker inside the program's own process.
#![allow(unsafe_code, reason = "functions for C, and pointers that C gives")]

use std::ffi::{CString, c_char};
use std::ptr;

use ottla::{Error, ErrorKind};
use ottla_broker::{Broker, BrokerConfig, BrokerError};

use crate::boundary::{guard, guard_give, guard_or, limit, text};
use crate::error::{c_text, ottla_error_t};
use crate::handle::{self, Held};

/// A broker of the Kafka protocol in this process. Made by ottla_broker_start.
#[derive(Debug)]
pub struct ottla_broker_t {
    broker: Held<Broker>,
    address: CString,
    cluster_id: CString,
}

fn config(given: &str) -> Result<BrokerConfig, Error> {
    let mut config = BrokerConfig::new();
    for pair in given.split([';', '\n']).map(str::trim).filter(|pair| !pair.is_empty()) {
        let Some((name, value)) = pair.split_once('=') else {
            let text = format!("`{pair}` is not of the form name=value");
            return Err(Error::new(ErrorKind::InvalidOption, text));
        };
        let (name, value) = (name.trim(), value.trim());
        config = match name {
            "listen" => config.listen(value),
            "data.dir" | "data_dir" => config.data_dir(value),
            _ => config
                .set(name, value)
                .map_err(|error| Error::new(ErrorKind::InvalidOption, error.to_string()))?,
        };
    }
    Ok(config)
}

fn failed(error: BrokerError) -> Error {
    let kind = match error {
        BrokerError::Stopped => ErrorKind::Closed,
        _ => ErrorKind::Broker,
    };
    Error::new(kind, error.to_string())
}

/// Starts a broker; it serves when this returns.
///
/// options is NULL, or name=value pairs separated by ; or new lines: listen (HOST:PORT; by default a
/// free port on the loopback interface), data.dir (a folder; by default all is kept in memory) and
/// Kafka's names for brokers, such as num.partitions. Borrowed for the call.
///
/// Gives the broker, to be ended by ottla_broker_free; or NULL, and an error through err, which may
/// be NULL. Any thread.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ottla_broker_start(
    options: *const c_char,
    err: *mut *mut ottla_error_t,
) -> *mut ottla_broker_t {
    let body = || {
        let given = if options.is_null() {
            ""
        } else {
            // SAFETY: the header asks for NULL or a text.
            unsafe { text(options, "options") }?
        };
        let broker = Broker::start(config(given)?).map_err(failed)?;
        let (address, cluster_id) = (c_text(&broker.bootstrap()), c_text(&broker.cluster_id()));
        let broker = Held::new(broker)?;
        Ok(handle::give(ottla_broker_t { broker, address, cluster_id }))
    };
    // SAFETY: the header asks for NULL or a place for an error.
    unsafe { guard_give(err, body) }
}

/// HOST:PORT for clients on this machine: the value for bootstrap.servers. Borrowed until the broker
/// is freed; NULL if broker is. Any thread.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ottla_broker_address(broker: *const ottla_broker_t) -> *const c_char {
    guard_or(ptr::null(), || {
        // SAFETY: the header asks for NULL or a broker that is not freed.
        let broker = unsafe { handle::borrow(broker, "broker") };
        broker.map_or(ptr::null(), |broker| broker.address.as_ptr())
    })
}

/// The cluster's id, which a data folder keeps. Borrowed until the broker is freed; NULL if broker
/// is. Any thread.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ottla_broker_cluster_id(broker: *const ottla_broker_t) -> *const c_char {
    guard_or(ptr::null(), || {
        // SAFETY: the header asks for NULL or a broker that is not freed.
        let broker = unsafe { handle::borrow(broker, "broker") };
        broker.map_or(ptr::null(), |broker| broker.cluster_id.as_ptr())
    })
}

/// Creates a topic; it can be produced to when this returns.
///
/// name is borrowed for the call. Gives NULL, or an error to be freed. Any thread.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ottla_broker_create_topic(
    broker: *const ottla_broker_t,
    name: *const c_char,
    partitions: i32,
) -> *mut ottla_error_t {
    guard(|| {
        // SAFETY: the header asks for NULL or a broker that is not freed, and for a text.
        let (broker, name) = unsafe { (handle::borrow(broker, "broker")?, text(name, "name")?) };
        Ok(broker.broker.get()?.create_topic(name, partitions).map_err(failed)?)
    })
}

/// Stops the broker: answers what is open, flushes and closes its logs. A second call does nothing.
///
/// After timeout_ms (below 0: without limit) connections are cut. Gives NULL, or an error to be
/// freed if the next start will have to check the logs. Any thread.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ottla_broker_stop(
    broker: *const ottla_broker_t,
    timeout_ms: i32,
) -> *mut ottla_error_t {
    guard(|| {
        // SAFETY: the header asks for NULL or a broker that is not freed.
        let broker = unsafe { handle::borrow(broker, "broker") }?;
        Ok(broker.broker.get()?.stop(limit(timeout_ms)).map_err(failed)?)
    })
}

/// Ends a broker; one that still runs is stopped, within a second. NULL is legal. Any thread, once,
/// and when no other thread uses it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ottla_broker_free(broker: *mut ottla_broker_t) {
    guard_or((), || {
        // SAFETY: the header asks for NULL or a broker that is not freed.
        unsafe { handle::release(broker) }
    });
}
