//! Errors of the core as plain objects of facts: `lib/error.js` turns them into `OttlaError`.

use napi::Status;
use napi::bindgen_prelude::{Env, Object};
use napi_derive::napi;
use ottla::{Error, ErrorKind};

use crate::boundary::{Fault, guard};

/// All that is known about an error. What is not known is absent.
pub(crate) fn facts<'env>(env: &'env Env, error: &Error) -> napi::Result<Object<'env>> {
    let mut facts = Object::new(env)?;
    facts.set("code", error.kind().name())?;
    facts.set("class", error.class().name())?;
    facts.set("message", error.to_string())?;
    facts.set("retriable", error.retriable())?;
    facts.set("maybeStored", error.maybe_stored())?;
    if let Some(outcome) = error.outcome() {
        facts.set("outcome", outcome.name())?;
    }
    if let Some(code) = error.kafka_code() {
        facts.set("kafkaCode", i32::from(code))?;
    }
    if let Some(topic) = error.topic() {
        facts.set("topic", topic)?;
    }
    if let Some(partition) = error.partition() {
        facts.set("partition", partition)?;
    }
    if let Some(broker) = error.broker() {
        facts.set("broker", broker)?;
    }
    if let Some(api) = error.api() {
        facts.set("api", api)?;
    }
    if let Some(attempt) = error.attempt() {
        facts.set("attempt", attempt)?;
    }
    if let Some(hint) = error.hint() {
        facts.set("hint", hint)?;
    }
    Ok(facts)
}

/// Throws them; what is given back says so.
pub(crate) fn thrown(env: &Env, error: &Error) -> napi::Error {
    match facts(env, error).and_then(|facts| env.throw(facts)) {
        Ok(()) => napi::Error::new(Status::PendingException, error.to_string()),
        Err(while_throwing) => while_throwing,
    }
}

/// Facts of an error that JavaScript itself finds, by the name of its kind.
#[napi]
pub(crate) fn describe_error(env: &Env, kind: String, message: String) -> napi::Result<Object<'_>> {
    guard(env, || {
        let kind = ErrorKind::from_name(&kind).unwrap_or(ErrorKind::Internal);
        facts(env, &Error::new(kind, message)).map_err(Fault::from)
    })
}
