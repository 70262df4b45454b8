//! Options as C gives them: one text of `name=value` pairs, which the core's table checks.
#![allow(unsafe_code, reason = "the text is C's")]

use std::ffi::c_char;

use ottla::{Error, Options};

use crate::boundary::text;

/// The options of a client.
///
/// # Safety
///
/// `given` is null, or a text that ends with a zero byte.
pub(crate) unsafe fn options(given: *const c_char) -> Result<Options, Error> {
    // SAFETY: this function's contract.
    Options::parse(unsafe { text(given, "options") }?)
}
