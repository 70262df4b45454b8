//! Log lines of the core and the embedded broker, handed on to Node: silent until it asks.
//!
//! Threads of ours only put lines into a queue; `lib/log.js` takes them on its own thread.

use std::collections::VecDeque;
use std::fmt::{self, Write as _};
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use napi::bindgen_prelude::{Array, Env};
use napi_derive::napi;
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Metadata, Subscriber};

use crate::boundary::guard;
use crate::signal::{Callback, Signal};

/// Lines kept until they are taken; what comes beyond is counted, and told in the next line.
const LINES_MAX: usize = 10_000;

/// The least important level that is handed on, as a number; 0 is none.
static LEVEL: AtomicU8 = AtomicU8::new(0);
static LINES: Mutex<Lines> = Mutex::new(Lines { waiting: VecDeque::new(), lost: 0, bell: None });

struct Lines {
    waiting: VecDeque<(&'static str, &'static str, String)>,
    lost: u64,
    bell: Option<Arc<Signal>>,
}

fn lines() -> MutexGuard<'static, Lines> {
    LINES.lock().unwrap_or_else(PoisonError::into_inner)
}

fn number(level: Level) -> u8 {
    match level {
        Level::ERROR => 1,
        Level::WARN => 2,
        Level::INFO => 3,
        Level::DEBUG => 4,
        Level::TRACE => 5,
    }
}

/// Has lines up to this level (1 is errors, 5 is everything) taken by the environment that asks;
/// the last one to ask gets them all.
#[napi]
pub(crate) fn start_log(env: &Env, level: u8, on_signal: Callback) -> napi::Result<()> {
    guard(env, || {
        let before = lines().bell.replace(Signal::new(on_signal));
        // Outside of the lock: letting go of a bell takes a lock of Node's.
        drop(before);
        LEVEL.store(level, Ordering::Relaxed);
        // The first call counts; a second one finds the same collector.
        let _known = tracing::subscriber::set_global_default(Collector).is_err();
        Ok(())
    })
}

/// The lines since the last call: level, who says it, and text, in turn.
#[napi]
pub(crate) fn take_log(env: &Env) -> napi::Result<Array<'_>> {
    guard(env, || {
        let (taken, lost) = {
            let mut lines = lines();
            if let Some(bell) = &lines.bell {
                bell.lower();
            }
            (std::mem::take(&mut lines.waiting), std::mem::take(&mut lines.lost))
        };
        let mut told = env.create_array(0)?;
        if lost > 0 {
            told.insert("warn")?;
            told.insert(env!("CARGO_CRATE_NAME"))?;
            told.insert(format!("{lost} log lines before these were not kept"))?;
        }
        for (level, target, text) in taken {
            told.insert(level)?;
            told.insert(target)?;
            told.insert(text)?;
        }
        Ok(told)
    })
}

/// Puts lines into the queue. Spans it does not know.
struct Collector;

impl Subscriber for Collector {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.is_event() && number(*metadata.level()) <= LEVEL.load(Ordering::Relaxed)
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &Event<'_>) {
        let metadata = event.metadata();
        let level = match *metadata.level() {
            Level::ERROR => "error",
            Level::WARN => "warn",
            Level::INFO => "info",
            Level::DEBUG => "debug",
            Level::TRACE => "trace",
        };
        let mut text = Text::default();
        event.record(&mut text);
        let bell = {
            let mut lines = lines();
            if lines.waiting.len() >= LINES_MAX {
                lines.lost += 1;
                return;
            }
            lines.waiting.push_back((level, metadata.target(), text.0));
            lines.bell.clone()
        };
        if let Some(bell) = bell {
            bell.raise();
        }
    }

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

/// A line's message, with its fields behind it.
#[derive(Default)]
struct Text(String);

impl Visit for Text {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        // Writing to a string does not fail.
        let _written = if field.name() == "message" {
            let fields = std::mem::take(&mut self.0);
            write!(self.0, "{value:?}{fields}")
        } else {
            write!(self.0, " {}={value:?}", field.name())
        };
    }
}
