//! Log lines of this process, kept for programs in languages that do not know `tracing`.
//!
//! Rust programs set a subscriber of `tracing` and have no use for this. It is silent until
//! [`collect`] is called. The thread that writes a line only puts it into a queue; the program takes
//! lines on threads of its own.

use std::collections::VecDeque;
use std::fmt::{self, Write as _};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, Condvar, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use arc_swap::ArcSwapOption;
use tracing::field::{Field, Visit};
use tracing::level_filters::LevelFilter;
use tracing::span::{Attributes, Id, Record};
use tracing::subscriber::Interest;
use tracing::{Event, Metadata, Subscriber};

use crate::driver::clock;
use crate::error::{Error, ErrorKind};
use crate::state::guard::lock;

/// Lines kept until they are taken; what comes beyond is counted, and told in the next line.
pub const LINES_MAX: usize = 10_000;
/// Bytes of one line's text; what comes beyond is cut off.
const TEXT_MAX: usize = 8 * 1024;

/// How important a line is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Level {
    /// Something is lost or broken.
    Error,
    /// Something went wrong, and was dealt with.
    Warn,
    /// What operators want to know.
    Info,
    /// What helps to find a fault.
    Debug,
    /// Everything.
    Trace,
}

impl Level {
    /// All levels, the most important first.
    pub const ALL: [Self; 5] = [Self::Error, Self::Warn, Self::Info, Self::Debug, Self::Trace];

    /// 1 for errors to 5 for everything.
    pub const fn number(self) -> u8 {
        match self {
            Self::Error => 1,
            Self::Warn => 2,
            Self::Info => 3,
            Self::Debug => 4,
            Self::Trace => 5,
        }
    }

    /// The level of a number.
    pub fn of(number: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|level| level.number() == number)
    }

    /// The level as one word in lower case.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Error => "error",
            Self::Warn => "warn",
            Self::Info => "info",
            Self::Debug => "debug",
            Self::Trace => "trace",
        }
    }

    const fn of_tracing(level: tracing::Level) -> Self {
        match level {
            tracing::Level::ERROR => Self::Error,
            tracing::Level::WARN => Self::Warn,
            tracing::Level::INFO => Self::Info,
            tracing::Level::DEBUG => Self::Debug,
            tracing::Level::TRACE => Self::Trace,
        }
    }
}

/// One line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Line {
    /// How important it is.
    pub level: Level,
    /// The module that wrote it.
    pub target: &'static str,
    /// When, in milliseconds since the epoch.
    pub time_ms: i64,
    /// What it says, its fields behind it.
    pub message: String,
}

/// Modules whose lines are a producer's or a consumer's; those of others here are any client's.
const SOURCES: &[(&str, &str)] = &[
    ("ottla_broker", "broker"),
    ("ottla_storage", "storage"),
    ("ottla::producer", "producer"),
    ("ottla::state::accumulator", "producer"),
    ("ottla::state::sender", "producer"),
    ("ottla::consumer", "consumer"),
    ("ottla::state::commits", "consumer"),
    ("ottla::state::coordinator", "consumer"),
    ("ottla::state::fetcher", "consumer"),
    ("ottla::state::membership", "consumer"),
];

impl Line {
    /// The part that wrote it: `producer`, `consumer`, `client` (either), `broker` or `storage`.
    pub fn source(&self) -> &'static str {
        let known = SOURCES.iter().find(|(prefix, _)| self.target.starts_with(prefix));
        known.map_or("client", |&(_, source)| source)
    }
}

static OUTLET: Outlet = Outlet::new();

/// Has lines up to a level kept from now on, for [`take`]; `None` has none kept. `bell` is called when
/// the first line comes after all were taken, on the thread that wrote it: it must be quick. The last
/// call counts, for the whole process.
///
/// `InvalidState` if the process has a subscriber of `tracing` already.
pub fn collect(level: Option<Level>, bell: impl Fn() + Send + Sync + 'static) -> Result<(), Error> {
    static INSTALLED: OnceLock<bool> = OnceLock::new();
    OUTLET.set(level, Arc::new(bell));
    let set = || tracing::subscriber::set_global_default(Collector(&OUTLET)).is_ok();
    if !*INSTALLED.get_or_init(set) {
        let text = "log lines of this process go to another subscriber of `tracing`";
        return Err(Error::new(ErrorKind::InvalidState, text));
    }
    // What is not wanted is left out where it would be written, at the cost of one comparison.
    tracing::callsite::rebuild_interest_cache();
    Ok(())
}

/// The lines since the last call, oldest first. Never waits.
pub fn take() -> Vec<Line> {
    OUTLET.own().map_or_else(Vec::new, |queue| queue.take())
}

/// Waits until lines can be taken, or none are kept any more, or the time is over; whether there are
/// any.
pub fn wait(timeout: Duration) -> bool {
    OUTLET.own().is_some_and(|queue| queue.wait(timeout))
}

type Bell = Arc<dyn Fn() + Send + Sync>;

/// Where lines go, and which.
struct Outlet {
    /// The number of the least important level that is kept; 0 is none.
    level: AtomicU8,
    queue: ArcSwapOption<Queue>,
}

impl Outlet {
    const fn new() -> Self {
        Self { level: AtomicU8::new(0), queue: ArcSwapOption::const_empty() }
    }

    /// The queue of this process. One that was inherited by a fork may be locked for ever.
    fn own(&self) -> Option<Arc<Queue>> {
        self.queue.load_full().filter(|queue| queue.process == std::process::id())
    }

    fn set(&self, level: Option<Level>, bell: Bell) {
        let queue = self.own().unwrap_or_else(|| self.renew());
        let number = level.map_or(0, Level::number);
        self.level.store(number, Ordering::Relaxed);
        queue.set(level.is_some(), bell);
    }

    fn renew(&self) -> Arc<Queue> {
        let before = self.queue.load();
        // Kept for ever: what it holds is the parent's, and may be half written.
        std::mem::forget(before.clone());
        let fresh = Arc::new(Queue::new());
        let replaced = self.queue.compare_and_swap(&before, Some(Arc::clone(&fresh)));
        let was_first = match (&*replaced, &*before) {
            (Some(found), Some(known)) => Arc::ptr_eq(found, known),
            (None, None) => true,
            _ => false,
        };
        if was_first { fresh } else { self.own().unwrap_or(fresh) }
    }

    fn filter(&self) -> LevelFilter {
        match self.level.load(Ordering::Relaxed) {
            0 => LevelFilter::OFF,
            1 => LevelFilter::ERROR,
            2 => LevelFilter::WARN,
            3 => LevelFilter::INFO,
            4 => LevelFilter::DEBUG,
            _ => LevelFilter::TRACE,
        }
    }
}

struct Queue {
    process: u32,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    on: bool,
    waiting: VecDeque<Line>,
    lost: u64,
    bell: Option<Bell>,
}

impl State {
    fn is_empty(&self) -> bool {
        self.waiting.is_empty() && self.lost == 0
    }
}

impl Queue {
    fn new() -> Self {
        Self { process: std::process::id(), state: Mutex::default(), changed: Condvar::new() }
    }

    fn set(&self, on: bool, bell: Bell) {
        let before = {
            let mut state = lock(&self.state);
            state.on = on;
            state.bell.replace(bell)
        };
        // Outside of the lock: letting go of a bell may take a lock of its language's.
        drop(before);
        self.changed.notify_all();
    }

    fn push(&self, line: Line) {
        let bell = {
            let mut state = lock(&self.state);
            if state.waiting.len() >= LINES_MAX {
                state.lost += 1;
                return;
            }
            let first = state.is_empty();
            state.waiting.push_back(line);
            state.bell.clone().filter(|_| first)
        };
        self.changed.notify_all();
        if let Some(bell) = bell {
            // It is the program's, and this may be the clients' own thread.
            let _panicked = catch_unwind(AssertUnwindSafe(|| bell()));
        }
    }

    fn take(&self) -> Vec<Line> {
        let (taken, lost) = {
            let mut state = lock(&self.state);
            (std::mem::take(&mut state.waiting), std::mem::take(&mut state.lost))
        };
        let mut taken = Vec::from(taken);
        if lost > 0 {
            taken.push(Line {
                level: Level::Warn,
                target: module_path!(),
                time_ms: clock::now_ms(),
                message: format!("{lost} log lines were not kept: {LINES_MAX} waited to be taken"),
            });
        }
        taken
    }

    fn wait(&self, timeout: Duration) -> bool {
        let state = lock(&self.state);
        let idle = |state: &mut State| state.on && state.is_empty();
        let waited = self.changed.wait_timeout_while(state, timeout, idle);
        let (state, _) = waited.unwrap_or_else(PoisonError::into_inner);
        !state.is_empty()
    }
}

/// Puts lines into the queue. Spans it does not know.
struct Collector(&'static Outlet);

fn is_ours(metadata: &Metadata<'_>) -> bool {
    metadata.is_event() && metadata.target().starts_with(env!("CARGO_CRATE_NAME"))
}

impl Subscriber for Collector {
    fn register_callsite(&self, metadata: &'static Metadata<'static>) -> Interest {
        if is_ours(metadata) { Interest::sometimes() } else { Interest::never() }
    }

    fn max_level_hint(&self) -> Option<LevelFilter> {
        Some(self.0.filter())
    }

    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        is_ours(metadata) && *metadata.level() <= self.0.filter()
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &Event<'_>) {
        let Some(queue) = self.0.own() else { return };
        let metadata = event.metadata();
        let mut text = Text::default();
        event.record(&mut text);
        let Text { mut message, fields } = text;
        message.push_str(&fields);
        message.truncate(message.floor_char_boundary(TEXT_MAX));
        queue.push(Line {
            level: Level::of_tracing(*metadata.level()),
            target: metadata.target(),
            time_ms: clock::now_ms(),
            message,
        });
    }

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

#[derive(Default)]
struct Text {
    message: String,
    fields: String,
}

impl Visit for Text {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        // Writing to a string does not fail.
        let _written = if field.name() == "message" {
            write!(self.message, "{value:?}")
        } else {
            write!(self.fields, " {}={value:?}", field.name())
        };
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicU32;
    use std::thread;

    use super::*;

    const LIMIT: Duration = Duration::from_mins(1);

    /// Runs with an outlet of its own, and gives what it kept.
    fn kept(level: Option<Level>, write: impl FnOnce()) -> Vec<Line> {
        let outlet: &'static Outlet = Box::leak(Box::new(Outlet::new()));
        outlet.set(level, Arc::new(|| ()));
        tracing::subscriber::with_default(Collector(outlet), write);
        outlet.own().expect("this process's").take()
    }

    fn line(number: usize) -> Line {
        let message = number.to_string();
        Line { level: Level::Info, target: "ottla::producer", time_ms: 5, message }
    }

    #[test]
    fn a_line_has_its_level_its_place_its_time_and_its_fields() {
        let before = clock::now_ms();
        let taken = kept(Some(Level::Info), || {
            tracing::info!(topic = "t", %before, "assigned");
            tracing::debug!("less important");
            tracing::error!(target: "another", "not of ours");
        });
        let [line] = taken.as_slice() else { panic!("{taken:?}") };
        assert_eq!((line.level, line.target), (Level::Info, "ottla::log::tests"));
        assert_eq!(line.message, format!("assigned topic=\"t\" before={before}"));
        assert!((before..=clock::now_ms()).contains(&line.time_ms), "{line:?}");
        assert_eq!(kept(None, || tracing::error!("to nobody")), []);
    }

    #[test]
    fn a_long_line_is_cut_between_characters() {
        let taken = kept(Some(Level::Error), || tracing::error!("{}", "€".repeat(TEXT_MAX)));
        assert_eq!(taken[0].message, "€".repeat(TEXT_MAX / 3));
    }

    #[test]
    fn lines_are_told_by_whose_they_are() {
        let of = |target| Line { target, ..line(0) }.source();
        assert_eq!(of("ottla_broker::server::listener"), "broker");
        assert_eq!(of("ottla_storage::log"), "storage");
        assert_eq!(of("ottla::state::sender::answers"), "producer");
        assert_eq!(of("ottla::consumer::engine::group"), "consumer");
        assert_eq!(of("ottla::driver::client"), "client");
    }

    #[test]
    fn lines_beyond_the_limit_are_counted_and_told_in_the_next() {
        let queue = Queue::new();
        for number in 0..LINES_MAX {
            queue.push(line(number));
        }
        let taken = queue.take();
        assert_eq!((taken.len(), &taken[LINES_MAX - 1]), (LINES_MAX, &line(LINES_MAX - 1)));
        for number in 0..LINES_MAX + 3 {
            queue.push(line(number));
        }
        let taken = queue.take();
        assert_eq!(taken.len(), LINES_MAX + 1);
        let told = &taken[LINES_MAX];
        assert_eq!(told.level, Level::Warn);
        assert!(told.message.starts_with("3 log lines were not kept"), "{told:?}");
        assert_eq!(queue.take(), []);
    }

    #[test]
    fn the_bell_rings_for_the_first_line_after_all_were_taken() {
        let rung = Arc::new(AtomicU32::new(0));
        let queue = Queue::new();
        let ring = Arc::clone(&rung);
        queue.set(
            true,
            Arc::new(move || {
                ring.fetch_add(1, Ordering::SeqCst);
            }),
        );
        for number in 0..3 {
            queue.push(line(number));
        }
        assert_eq!(rung.load(Ordering::SeqCst), 1);
        queue.take();
        queue.push(line(0));
        assert_eq!(rung.load(Ordering::SeqCst), 2);
    }

    #[test]
    fn a_bell_that_panics_harms_nobody_who_writes_a_line() {
        let queue = Queue::new();
        queue.set(true, Arc::new(|| panic!("the bell's own fault")));
        queue.push(line(0));
        assert_eq!(queue.take(), [line(0)]);
    }

    #[test]
    fn a_wait_ends_by_a_line_and_by_the_end_of_all_lines() {
        let queue = Queue::new();
        queue.set(true, Arc::new(|| ()));
        assert!(!queue.wait(Duration::ZERO));
        thread::scope(|scope| {
            let waiting = scope.spawn(|| queue.wait(LIMIT));
            queue.push(line(0));
            assert!(waiting.join().expect("it ends"));
            queue.take();
            let waiting = scope.spawn(|| queue.wait(LIMIT));
            queue.set(false, Arc::new(|| ()));
            assert!(!waiting.join().expect("it ends"));
        });
    }

    #[test]
    fn a_queue_of_another_process_is_left_alone() {
        let outlet: &'static Outlet = Box::leak(Box::new(Outlet::new()));
        let inherited = Arc::new(Queue { process: u32::MAX, ..Queue::new() });
        outlet.queue.store(Some(Arc::clone(&inherited)));
        // As the parent's thread left it.
        let _held = lock(&inherited.state);
        assert!(outlet.own().is_none());
        outlet.set(Some(Level::Info), Arc::new(|| ()));
        let own = outlet.own().expect("a new one");
        assert!(!Arc::ptr_eq(&own, &inherited));
        own.push(line(0));
        assert_eq!(own.take(), [line(0)]);
    }
}
