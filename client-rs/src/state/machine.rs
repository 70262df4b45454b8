//! What passes between a machine and the driver that moves its bytes.

use std::any::Any;
use std::cell::Cell;
use std::fmt;
use std::ops::RangeInclusive;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use ottla_protocol::{ApiKey, EncodeError, Request as Message, Response, Writer, frame};

use super::backoff::Random;
use super::metadata::Metadata;
use crate::error::{Error, ErrorKind};
use crate::health::Vitals;

/// Which broker a request is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Target {
    /// Any of the cluster.
    Any,
    /// The broker of this id. It must be known to [`Metadata`].
    Node(i32),
}

/// Which of its connections to a broker a request takes: brokers serve one request at a time on
/// each, so what may wait long stands apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Lane {
    /// Records to the broker.
    Produce,
    /// Records from the broker.
    Fetch,
    /// A group's coordinator, which may hold a join for minutes.
    Coordinator,
    /// All that is answered at once.
    Rest,
}

/// A request on its way out.
#[derive(Debug)]
pub(crate) struct Request {
    /// For whom.
    pub(crate) to: Target,
    /// By which connection.
    pub(crate) lane: Lane,
    /// What its answer comes back with. The driver does not look at it.
    pub(crate) token: u64,
    /// Longest wait for the answer once it is written; past it the connection is closed.
    pub(crate) timeout: Duration,
    /// What it says.
    pub(crate) body: Box<dyn Body>,
}

/// What a request says, in whichever version both sides have.
pub(crate) trait Body: fmt::Debug {
    /// The API asked.
    fn key(&self) -> ApiKey;

    /// The versions it can be said in.
    fn versions(&self) -> RangeInclusive<i16> {
        self.key().served()
    }

    /// Writes it by one call of [`Frame::put`].
    fn encode(&self, frame: &mut Frame<'_>) -> Result<(), EncodeError>;

    /// The bytes of the writer's cut of this number, as a chain of slices.
    fn detached(&self, cut: usize) -> &[Bytes] {
        debug_assert_eq!(cut, usize::MAX, "a body with cuts says what goes there");
        &[]
    }

    /// Whether an answer comes; without, the request is done when it is written.
    fn is_answered(&self) -> bool {
        true
    }
}

/// Where a body is written.
#[derive(Debug)]
pub(crate) struct Frame<'w> {
    /// The version agreed on.
    pub(crate) version: i16,
    pub(crate) correlation_id: i32,
    pub(crate) client_id: Option<&'w str>,
    pub(crate) writer: &'w mut Writer,
}

impl Frame<'_> {
    /// Writes the message, with its header and size.
    pub(crate) fn put<'a, R: Message<'a>>(&mut self, message: &R) -> Result<(), EncodeError> {
        frame::encode_request(
            self.version,
            self.correlation_id,
            self.client_id,
            message,
            self.writer,
        )
    }
}

/// A body made of a function that builds the message and [puts](Frame::put) it.
pub(crate) fn body<F>(key: ApiKey, versions: RangeInclusive<i16>, build: F) -> Box<dyn Body>
where
    F: Fn(&mut Frame<'_>) -> Result<(), EncodeError> + 'static,
{
    Box::new(Built { key, versions, build })
}

struct Built<F> {
    key: ApiKey,
    versions: RangeInclusive<i16>,
    build: F,
}

impl<F> fmt::Debug for Built<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.key)
    }
}

impl<F: Fn(&mut Frame<'_>) -> Result<(), EncodeError>> Body for Built<F> {
    fn key(&self) -> ApiKey {
        self.key
    }

    fn versions(&self) -> RangeInclusive<i16> {
        self.versions.clone()
    }

    fn encode(&self, frame: &mut Frame<'_>) -> Result<(), EncodeError> {
        (self.build)(frame)
    }
}

/// What a broker answered.
#[derive(Debug, Clone)]
pub(crate) struct Answer {
    /// The version of the request, and so of the answer.
    pub(crate) version: i16,
    /// The answer behind its header.
    pub(crate) body: Bytes,
    /// Where it came from, for errors and log lines.
    pub(crate) broker: Rc<str>,
    /// That connection's throttle.
    pub(crate) throttle: Rc<Throttle>,
}

/// Where a connection learns that its broker wants to be left alone, and for how long (KIP-219).
#[derive(Debug, Default)]
pub(crate) struct Throttle {
    vitals: Option<Arc<Vitals>>,
    time: Cell<Duration>,
}

impl Throttle {
    /// Of a connection of a client whose pauses are counted there.
    pub(crate) fn new(vitals: Arc<Vitals>) -> Self {
        Self { vitals: Some(vitals), time: Cell::default() }
    }

    /// An answer of this broker asked for such a pause, or for none.
    pub(crate) fn note(&self, broker: &str, throttle_time_ms: i32) {
        let millis = u64::try_from(throttle_time_ms).ok().filter(|&millis| millis > 0);
        let Some(time) = millis.map(Duration::from_millis) else { return };
        self.time.set(time);
        if let Some(vitals) = &self.vitals {
            vitals.note_throttled(broker, time);
        }
    }

    /// The pause that the last answer asked for, once.
    pub(crate) fn take(&self) -> Duration {
        self.time.take()
    }
}

impl Answer {
    /// Reads it. So the pause that the broker asks for in it is counted and told, and its connection
    /// keeps it, whatever the answer is about. To be called once.
    pub(crate) fn decode<'a, R: Response<'a>>(&'a self) -> Result<R, Error> {
        let read: R = frame::decode_body(&self.body, self.version).map_err(|error| {
            Error::new(ErrorKind::Protocol, "the broker's answer cannot be read")
                .with_api(R::KEY)
                .with_broker(&self.broker)
                .with_source(error)
        })?;
        self.throttle.note(&self.broker, read.throttle_time_ms());
        Ok(read)
    }
}

/// Why there is no answer.
#[derive(Debug, Clone)]
pub(crate) struct LinkFault {
    /// What happened.
    pub(crate) error: Error,
    /// Whether some of the request may have reached the broker.
    pub(crate) written: bool,
}

/// What became of a request.
pub(crate) type Reply = Result<Answer, LinkFault>;

/// Work too long for the thread that owns the sockets.
pub(crate) struct Job {
    /// What its result comes back with.
    pub(crate) token: u64,
    /// The work.
    pub(crate) work: Box<dyn FnOnce() -> JobResult + Send>,
}

/// What a job gives; its machine knows the type.
pub(crate) type JobResult = Box<dyn Any + Send>;

impl fmt::Debug for Job {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Job").field("token", &self.token).finish_non_exhaustive()
    }
}

/// What a machine may use while it is asked.
#[derive(Debug)]
pub(crate) struct Context<'a> {
    /// The time.
    pub(crate) now: Instant,
    /// The same as milliseconds since the epoch, for records.
    pub(crate) now_ms: i64,
    /// What is known of the cluster, and where to ask for more.
    pub(crate) metadata: &'a mut Metadata,
    /// For jitter.
    pub(crate) random: &'a mut Random,
    /// What goes out.
    pub(crate) requests: &'a mut Vec<Request>,
    /// What is worked on elsewhere.
    pub(crate) jobs: &'a mut Vec<Job>,
    /// What is taken back.
    pub(crate) withdrawn: &'a mut Vec<u64>,
}

impl Context<'_> {
    /// Sends a request. Its reply comes to [`Machine::handle_response`], always and once, unless it
    /// is withdrawn.
    pub(crate) fn send(&mut self, request: Request) {
        self.requests.push(request);
    }

    /// Takes a request back before [`Machine::handle_begun`]: nothing of it is ever written, and no
    /// reply comes. It is gone before what is sent in the same call goes out.
    pub(crate) fn withdraw(&mut self, token: u64) {
        self.withdrawn.push(token);
    }

    /// Has work done on another thread; its result comes to [`Machine::handle_job`].
    pub(crate) fn run(&mut self, token: u64, work: impl FnOnce() -> JobResult + Send + 'static) {
        self.jobs.push(Job { token, work: Box::new(work) });
    }
}

/// When a machine wants its next turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Next {
    /// At this time, or when something comes before.
    At(Instant),
    /// When something comes.
    Wait,
    /// Never: its client is closed. The driver drops it.
    Ended,
}

/// A client's own machine. The driver owns it and calls it from one thread only.
pub(crate) trait Machine {
    /// Looks at all that may have changed: what other threads put there, the time, the metadata.
    ///
    /// Comes after each wake and each answer, and at the time that the last turn asked for.
    fn turn(&mut self, cx: &mut Context<'_>) -> Next;

    /// The first bytes of a request were written: from now on its broker may act on it.
    ///
    /// It does not come if the request ends before.
    fn handle_begun(&mut self, token: u64) {
        let _ = token;
    }

    /// What became of a request. A token not known any more is passed over.
    fn handle_response(&mut self, token: u64, reply: Reply, cx: &mut Context<'_>);

    /// What a job gave; `None` if it panicked.
    fn handle_job(&mut self, token: u64, result: Option<JobResult>, cx: &mut Context<'_>) {
        drop((token, result, cx));
    }

    /// Whether an answer is awaited that will bring a turn soon, so that what is only begun need
    /// not wake this client.
    fn is_busy(&self) -> bool {
        false
    }

    /// The client is lost: everyone who waits gets this error, every later call too.
    fn fail(&mut self, error: &Error);
}
