//! Errors as C sees them: one object, owned by who gets it.
#![allow(unsafe_code, reason = "functions for C, and pointers that C gives")]

use std::ffi::{CString, c_char};
use std::ptr;
use std::sync::OnceLock;

use ottla::{Error, Outcome};

use crate::boundary::guard_or;
use crate::error_code::ottla_error_code_t;
use crate::handle;

/// An error. Who gets one from a function owns it, and ends it by ottla_error_free.
///
/// Its texts are made when they are asked for, and live as long as the error. Any thread may read
/// it.
#[derive(Debug)]
pub struct ottla_error_t {
    error: Error,
    texts: OnceLock<Box<Texts>>,
    #[expect(
        dead_code,
        reason = "the errors that results of the same call point to: kept for them"
    )]
    parts: Box<[Self]>,
}

/// What may have become of a record that was not reported as stored. Values may be added.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ottla_outcome_t {
    /// The error is about no record.
    OTTLA_OUTCOME_NONE = 0,
    /// It never left this client: sending it again cannot duplicate it.
    OTTLA_OUTCOME_NOT_SENT = 1,
    /// It was written to a broker, and no final answer came: it may be stored.
    OTTLA_OUTCOME_POSSIBLY_PERSISTED = 2,
    /// The broker refused it: it is not stored.
    OTTLA_OUTCOME_REJECTED = 3,
}

impl From<Error> for ottla_error_t {
    fn from(error: Error) -> Self {
        Self { error, texts: OnceLock::new(), parts: Box::default() }
    }
}

impl ottla_error_t {
    /// The error of a call whose results have errors of their own.
    pub(crate) fn of_many(first: Error, parts: Box<[Self]>) -> Self {
        Self { parts, ..first.into() }
    }

    pub(crate) fn code(&self) -> ottla_error_code_t {
        ottla_error_code_t::of(self.error.kind().number())
    }

    pub(crate) fn outcome(&self) -> ottla_outcome_t {
        match self.error.outcome() {
            Some(Outcome::NotSent) => ottla_outcome_t::OTTLA_OUTCOME_NOT_SENT,
            Some(Outcome::PossiblyPersisted) => ottla_outcome_t::OTTLA_OUTCOME_POSSIBLY_PERSISTED,
            Some(Outcome::Rejected) => ottla_outcome_t::OTTLA_OUTCOME_REJECTED,
            _ => ottla_outcome_t::OTTLA_OUTCOME_NONE,
        }
    }

    fn texts(&self) -> &Texts {
        self.texts.get_or_init(|| Box::new(Texts::of(&self.error)))
    }
}

/// What is told of an error in texts; those of things that it does not know are none.
#[derive(Debug)]
struct Texts {
    name: CString,
    message: CString,
    topic: Option<CString>,
    broker: Option<CString>,
    api: Option<CString>,
    hint: Option<CString>,
}

impl Texts {
    fn of(error: &Error) -> Self {
        Self {
            name: c_text(error.kind().name()),
            message: c_text(&error.to_string()),
            topic: error.topic().map(c_text),
            broker: error.broker().map(c_text),
            api: error.api().map(c_text),
            hint: error.hint().map(c_text),
        }
    }
}

/// A text of an error, if it has it and is one; else NULL.
fn told(
    error: Option<&ottla_error_t>,
    which: impl FnOnce(&Texts) -> Option<&CString>,
) -> *const c_char {
    let text = |error: &ottla_error_t| which(error.texts()).map_or(ptr::null(), |it| it.as_ptr());
    error.map_or(ptr::null(), |error| guard_or(ptr::null(), || text(error)))
}

/// A text for C, which cannot have zero bytes.
pub(crate) fn c_text(text: &str) -> CString {
    CString::new(text.replace('\0', " ")).unwrap_or_default()
}

/// What went wrong; OTTLA_OK if error is NULL. Any thread.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ottla_error_code(error: *const ottla_error_t) -> ottla_error_code_t {
    // SAFETY: the header asks for NULL or an error that is not freed.
    let error = unsafe { error.as_ref() };
    error.map_or(ottla_error_code_t::OTTLA_OK, |error| {
        guard_or(ottla_error_code_t::OTTLA_ERR_INTERNAL, || error.code())
    })
}

/// Its kind as one word, such as UnknownTopic; Ok if error is NULL. Borrowed until the error is
/// freed; never NULL. Any thread.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ottla_error_name(error: *const ottla_error_t) -> *const c_char {
    // SAFETY: the header asks for NULL or an error that is not freed.
    let error = unsafe { error.as_ref() };
    let name = error.map_or(c"Ok", |error| guard_or(c"Internal", || &error.texts().name));
    name.as_ptr()
}

/// What went wrong, where, why, and what a person can do about it, in UTF-8. Borrowed until the
/// error is freed; never NULL. Any thread.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ottla_error_message(error: *const ottla_error_t) -> *const c_char {
    // SAFETY: the header asks for NULL or an error that is not freed.
    let error = unsafe { error.as_ref() };
    let message = error.map_or(c"nothing went wrong", |error| {
        guard_or(c"a fault in the client", || &error.texts().message)
    });
    message.as_ptr()
}

/// Whether trying again may help; false if error is NULL. Any thread.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ottla_error_retriable(error: *const ottla_error_t) -> bool {
    // SAFETY: the header asks for NULL or an error that is not freed.
    let error = unsafe { error.as_ref() };
    error.is_some_and(|error| guard_or(false, || error.error.retriable()))
}

/// What may have become of the record; OTTLA_OUTCOME_NONE if the error is about none, or NULL. Any
/// thread.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ottla_error_outcome(error: *const ottla_error_t) -> ottla_outcome_t {
    // SAFETY: the header asks for NULL or an error that is not freed.
    let error = unsafe { error.as_ref() };
    error.map_or(ottla_outcome_t::OTTLA_OUTCOME_NONE, |error| {
        guard_or(ottla_outcome_t::OTTLA_OUTCOME_NONE, || error.outcome())
    })
}

/// The error code in the broker's answer, as Kafka numbers it; 0 if there was none. Any thread.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ottla_error_kafka_code(error: *const ottla_error_t) -> i16 {
    // SAFETY: the header asks for NULL or an error that is not freed.
    let error = unsafe { error.as_ref() };
    error.map_or(0, |error| guard_or(0, || error.error.kafka_code().unwrap_or(0)))
}

/// The topic that it is about; NULL if it is about none, or error is NULL. Borrowed until the error
/// is freed. Any thread.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ottla_error_topic(error: *const ottla_error_t) -> *const c_char {
    // SAFETY: the header asks for NULL or an error that is not freed.
    let error = unsafe { error.as_ref() };
    told(error, |texts| texts.topic.as_ref())
}

/// The partition that it is about, the first if there are more; -1 if it is about none, or error is
/// NULL. Any thread.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ottla_error_partition(error: *const ottla_error_t) -> i32 {
    // SAFETY: the header asks for NULL or an error that is not freed.
    let error = unsafe { error.as_ref() };
    error.map_or(-1, |at| guard_or(-1, || at.error.partition().unwrap_or(-1)))
}

/// The broker that it came from or was meant for, by its id or its address; NULL if that is not
/// known, or error is NULL. Borrowed until the error is freed. Any thread.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ottla_error_broker(error: *const ottla_error_t) -> *const c_char {
    // SAFETY: the header asks for NULL or an error that is not freed.
    let error = unsafe { error.as_ref() };
    told(error, |texts| texts.broker.as_ref())
}

/// What the broker was asked, by Kafka's name of the API, such as Produce; NULL if it was asked
/// nothing, or error is NULL. Borrowed until the error is freed. Any thread.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ottla_error_api(error: *const ottla_error_t) -> *const c_char {
    // SAFETY: the header asks for NULL or an error that is not freed.
    let error = unsafe { error.as_ref() };
    told(error, |texts| texts.api.as_ref())
}

/// Which attempt it was, counted from 1; 0 if that is not known, or error is NULL. Any thread.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ottla_error_attempt(error: *const ottla_error_t) -> u32 {
    // SAFETY: the header asks for NULL or an error that is not freed.
    let error = unsafe { error.as_ref() };
    error.map_or(0, |at| guard_or(0, || at.error.attempt().unwrap_or(0)))
}

/// What a person can do about it; NULL if there is nothing to say, or error is NULL. Borrowed until
/// the error is freed. Any thread.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ottla_error_hint(error: *const ottla_error_t) -> *const c_char {
    // SAFETY: the header asks for NULL or an error that is not freed.
    let error = unsafe { error.as_ref() };
    told(error, |texts| texts.hint.as_ref())
}

/// Ends an error, and the errors of results that came with it. NULL is legal. Any thread, once.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ottla_error_free(error: *mut ottla_error_t) {
    guard_or((), || {
        // SAFETY: the header asks for NULL or an error that is not freed.
        unsafe { handle::release(error) }
    });
}
