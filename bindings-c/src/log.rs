//! Log lines, handed to a function of the program's on threads that it lends for that.
#![allow(unsafe_code, reason = "calls back into C")]

use std::ffi::{c_char, c_int, c_void};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use ottla::log::{self, Level, Line};
use ottla::{Error, Process};

use crate::boundary::{guard, guard_or, limit, refused};
use crate::error::{c_text, ottla_error_t};
use crate::role::Role;

/// How important a log line is.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ottla_log_level_t {
    /// Something is lost or broken.
    OTTLA_LOG_ERROR = 1,
    /// Something went wrong, and was dealt with.
    OTTLA_LOG_WARN = 2,
    /// What operators want to know.
    OTTLA_LOG_INFO = 3,
    /// What helps to find a fault.
    OTTLA_LOG_DEBUG = 4,
    /// Everything.
    OTTLA_LOG_TRACE = 5,
}

/// A log line. It and its texts are borrowed until the function that got it returns.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct ottla_log_line_t {
    /// Who wrote it: producer, consumer, client (either), broker or storage.
    pub source: *const c_char,
    /// The module that wrote it.
    pub module: *const c_char,
    /// What it says.
    pub message: *const c_char,
    /// When, in milliseconds since the epoch.
    pub time: i64,
    /// How important it is.
    pub level: ottla_log_level_t,
}

/// Told of log lines. user is what ottla_log_set_callback was given.
///
/// It may call any function, also ottla_log_set_callback; a poll in it hands on no further lines. It
/// must return, and let no exception out.
pub type ottla_on_log_t =
    Option<unsafe extern "C" fn(line: *const ottla_log_line_t, user: *mut c_void)>;

type Callback = (unsafe extern "C" fn(*const ottla_log_line_t, *mut c_void), *mut c_void);

/// The program's function, the pointer that it gets, and the process that set it.
struct Set(Option<Callback>, Option<Process>);

// SAFETY: the pointer is carried about and given back, and never followed here.
unsafe impl Send for Set {}

static CALLBACK: Mutex<Set> = Mutex::new(Set(None, None));
/// A thread hands lines on: a role that is tried for, never waited for.
static RUNNING: AtomicBool = AtomicBool::new(false);

fn callback() -> MutexGuard<'static, Set> {
    CALLBACK.lock().unwrap_or_else(PoisonError::into_inner)
}

fn set(function: Option<Callback>) {
    let mut known = callback();
    if known.1.is_some_and(|setter| !setter.is_current()) {
        // The parent's thread that had the role is not here to give it back.
        RUNNING.store(false, Ordering::Release);
    }
    *known = Set(function, Some(Process::current()));
}

fn level_of(number: c_int) -> Result<Level, Error> {
    let known = u8::try_from(number).ok().and_then(Level::of);
    known.ok_or_else(|| refused("level", format_args!("is {number}: no level has that number")))
}

/// Has a function called with log lines of this library, of all clients and brokers in the process;
/// NULL: with none, which is how it starts. The last call counts.
///
/// level is a value of ottla_log_level_t: the least important that is wanted; not looked at with
/// NULL. What is not wanted costs nothing.
///
/// The function is called by ottla_log_poll, and by ottla_producer_poll and ottla_consumer_poll
/// before they wait, on the thread that calls these; by one thread at a time. Until then up to 10,000
/// lines are kept; further ones are counted, and a line tells how many those were.
///
/// user is given to each call. A call that another thread is in when this returns may still use the
/// former one. Gives NULL, or an error to be freed. Any thread. In a child of a fork lines are handed
/// on after this was called there.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ottla_log_set_callback(
    level: c_int,
    callback: ottla_on_log_t,
    user: *mut c_void,
) -> *mut ottla_error_t {
    guard(|| {
        Process::watch()?;
        let Some(function) = callback else {
            set(None);
            log::collect(None, || ())?;
            // Nobody hears of these.
            drop(log::take());
            return Ok(());
        };
        let level = level_of(level)?;
        log::collect(Some(level), || ())?;
        set(Some((function, user)));
        Ok(())
    })
}

/// Calls the function that ottla_log_set_callback was given with the lines that wait, on this thread.
/// If there are none it waits for some, for timeout_ms at most; below 0 without limit.
///
/// Gives how many lines that were: 0 if the time is over, if there is no such function, or if another
/// thread is at it. Any thread.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ottla_log_poll(timeout_ms: i32) -> usize {
    guard_or(0, || hand_on(limit(timeout_ms)))
}

/// Hands on what waits.
pub(crate) fn hand_on_now() {
    hand_on(Duration::ZERO);
}

fn hand_on(timeout: Duration) -> usize {
    let Some(_role) = Role::take(&RUNNING) else { return 0 };
    if callback().0.is_none() || !log::wait(timeout) {
        return 0;
    }
    let mut told = 0;
    for line in log::take() {
        // Looked up for each: the last one may have set another.
        let known = callback().0;
        let Some(known) = known else { break };
        hand(&line, known);
        told += 1;
    }
    told
}

fn hand(line: &Line, (function, user): Callback) {
    let (source, module, message) =
        (c_text(line.source()), c_text(line.target), c_text(&line.message));
    let line = ottla_log_line_t {
        source: source.as_ptr(),
        module: module.as_ptr(),
        message: message.as_ptr(),
        time: line.time_ms,
        level: match line.level {
            Level::Error => ottla_log_level_t::OTTLA_LOG_ERROR,
            Level::Warn => ottla_log_level_t::OTTLA_LOG_WARN,
            Level::Info => ottla_log_level_t::OTTLA_LOG_INFO,
            Level::Debug => ottla_log_level_t::OTTLA_LOG_DEBUG,
            Level::Trace => ottla_log_level_t::OTTLA_LOG_TRACE,
        },
    };
    // SAFETY: C gave the function for this, and all it is given lives until it returns.
    unsafe { function(&raw const line, user) };
}
