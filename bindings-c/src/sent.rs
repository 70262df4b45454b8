//! Tokens of records that were sent.
#![allow(unsafe_code, reason = "functions for C, and pointers that C gives")]

use std::ffi::CString;
use std::sync::OnceLock;

use ottla::{Error, Sent};

use crate::boundary::{guard, guard_or, limit, put};
use crate::error::{c_text, ottla_error_t};
use crate::handle::{self, Held};
use crate::record::ottla_delivery_t;

/// A record that was sent, to wait for. Comes from ottla_producer_send.
#[derive(Debug)]
pub struct ottla_sent_t {
    sent: Held<Sent>,
    topic: OnceLock<CString>,
}

impl ottla_sent_t {
    pub(crate) fn new(sent: Sent) -> Result<Self, Error> {
        Ok(Self { sent: Held::new(sent)?, topic: OnceLock::new() })
    }
}

/// Waits for the delivery of a record, for timeout_ms at most; below 0 without limit. It may be
/// called again, and after the producer is freed.
///
/// delivery is NULL or is written; its topic is borrowed until the token is freed.
///
/// Gives NULL if the record was delivered, or an error to be freed. OTTLA_ERR_TIMEOUT: it stays on
/// its way. Any thread.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ottla_sent_wait(
    sent: *const ottla_sent_t,
    timeout_ms: i32,
    delivery: *mut ottla_delivery_t,
) -> *mut ottla_error_t {
    guard(|| {
        // SAFETY: the header asks for NULL or a token that is not freed.
        let sent = unsafe { handle::borrow(sent, "sent") }?;
        let stored = sent.sent.get()?.wait(limit(timeout_ms))?;
        let topic = sent.topic.get_or_init(|| c_text(&stored.topic)).as_ptr();
        // SAFETY: the header asks for NULL or a place for a delivery.
        unsafe { put(delivery, ottla_delivery_t::new(topic, &stored)) };
        Ok(())
    })
}

/// Ends a token; its record is delivered all the same. NULL is legal. Any thread, once.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ottla_sent_free(sent: *mut ottla_sent_t) {
    guard_or((), || {
        // SAFETY: the header asks for NULL or a token that is not freed.
        unsafe { handle::release(sent) }
    });
}
