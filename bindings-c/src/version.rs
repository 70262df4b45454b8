//! Which library this is.
#![allow(unsafe_code, reason = "a function for C")]

use std::ffi::{CStr, c_char};

const VERSION: &CStr = match CStr::from_bytes_with_nul(VERSION_TEXT.as_bytes()) {
    Ok(version) => version,
    Err(_) => c"",
};
const VERSION_TEXT: &str = concat!(env!("CARGO_PKG_VERSION"), "\0");

/// The library's version, such as 0.1.0. Never to be freed. Any thread.
#[unsafe(no_mangle)]
pub extern "C" fn ottla_version() -> *const c_char {
    VERSION.as_ptr()
}
