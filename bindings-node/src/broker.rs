//! A broker inside the Node process.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::task::{Context, Poll, Waker};
use std::thread;

use napi::bindgen_prelude::{Array, Env};
use napi_derive::napi;
use ottla::{Error, ErrorKind};
use ottla_broker::{Broker, BrokerConfig, BrokerError};

use crate::boundary::{Fault, as_millis, guard, millis};
use crate::signal::{Callback, Hold, Signal};
use crate::wait::{Answer, Waits};

/// The broker behind JavaScript's `Broker`.
#[napi(js_name = "NativeBroker")]
#[derive(Debug)]
pub(crate) struct NativeBroker {
    config: BrokerConfig,
    broker: Arc<OnceLock<Broker>>,
    signal: Arc<Signal>,
    waits: Waits,
}

#[napi]
impl NativeBroker {
    /// A broker that is not started.
    #[napi(constructor)]
    pub fn new(
        env: &Env,
        listen: Option<String>,
        data_dir: Option<String>,
        options: Vec<(String, String)>,
        on_signal: Callback,
    ) -> napi::Result<Self> {
        guard(env, || {
            let mut config = BrokerConfig::new();
            if let Some(listen) = listen {
                config = config.listen(&listen);
            }
            if let Some(data_dir) = data_dir {
                config = config.data_dir(PathBuf::from(data_dir));
            }
            for (name, value) in options {
                config = config
                    .set(&name, &value)
                    .map_err(|refused| Error::new(ErrorKind::InvalidOption, refused.to_string()))?;
            }
            let signal = Signal::new(on_signal);
            let waits = Waits::new(Arc::clone(&signal));
            Ok(Self { config, broker: Arc::default(), signal, waits })
        })
    }

    /// Starts it; it serves when the call ends.
    #[napi]
    pub fn start(&self, env: &Env) -> napi::Result<u32> {
        let (config, place) = (self.config.clone(), Arc::clone(&self.broker));
        self.call(env, move || {
            let broker = Broker::start(config).map_err(failed)?;
            // A second start has nowhere to put its broker, which is dropped and so stopped.
            place.set(broker).map_err(|_second| {
                Error::new(ErrorKind::InvalidState, "the broker was started before")
            })
        })
    }

    /// HOST:PORT for clients on this machine.
    #[napi(getter)]
    pub fn address(&self) -> Option<String> {
        self.broker.get().map(Broker::bootstrap)
    }

    /// The cluster's id.
    #[napi(getter)]
    pub fn cluster_id(&self) -> Option<String> {
        self.broker.get().map(Broker::cluster_id)
    }

    /// Creates a topic; it can be produced to when the call ends.
    #[napi]
    pub fn create_topic(&self, env: &Env, name: String, partitions: i32) -> napi::Result<u32> {
        let place = Arc::clone(&self.broker);
        self.call(env, move || started(&place)?.create_topic(&name, partitions).map_err(failed))
    }

    /// Stops it within so many milliseconds.
    #[napi]
    pub fn stop(&self, env: &Env, timeout: f64) -> napi::Result<u32> {
        let place = Arc::clone(&self.broker);
        self.call(env, move || started(&place)?.stop(millis(timeout)).map_err(failed))
    }

    /// Keeps the process alive, or no longer.
    #[napi]
    pub fn hold(&self, env: &Env, alive: bool) -> napi::Result<()> {
        self.signal.hold(env, if alive { Hold::Alive } else { Hold::Loose })
    }

    /// Which calls have ended, and how.
    #[napi]
    pub fn drain<'env>(&self, env: &'env Env) -> napi::Result<Option<Array<'env>>> {
        guard(env, || {
            self.signal.lower();
            self.waits.drain(env)
        })
    }
}

impl NativeBroker {
    /// Has a call that blocks made on a thread of its own: Node's few pool threads are the user's.
    fn call(
        &self,
        env: &Env,
        body: impl FnOnce() -> Result<(), Error> + Send + 'static,
    ) -> napi::Result<u32> {
        guard(env, || {
            let call = on_own_thread(body)?;
            Ok(self.waits.start(call))
        })
    }
}

/// How many milliseconds a broker's stop may take that is given no time.
#[napi]
pub fn broker_stop_timeout() -> f64 {
    as_millis(Broker::STOP_DEADLINE)
}

fn started(place: &OnceLock<Broker>) -> Result<&Broker, Error> {
    place.get().ok_or_else(|| Error::new(ErrorKind::InvalidState, "the broker is not started"))
}

fn failed(cause: BrokerError) -> Error {
    match cause {
        BrokerError::Stopped => Error::new(ErrorKind::Closed, cause.to_string()),
        _ => Error::new(ErrorKind::Broker, cause.to_string()),
    }
}

/// The outcome of a thread's work, and who waits for it.
#[derive(Debug, Default)]
struct Outcome {
    result: Option<Result<Answer, Error>>,
    waiter: Option<Waker>,
}

#[derive(Debug)]
struct OnThread(Arc<Mutex<Outcome>>);

impl Future for OnThread {
    type Output = Result<Answer, Error>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let mut outcome = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(result) = outcome.result.take() {
            return Poll::Ready(result);
        }
        outcome.waiter = Some(cx.waker().clone());
        Poll::Pending
    }
}

fn on_own_thread(
    body: impl FnOnce() -> Result<(), Error> + Send + 'static,
) -> Result<OnThread, Fault> {
    let outcome = Arc::new(Mutex::new(Outcome::default()));
    let told = Arc::clone(&outcome);
    let work = move || {
        let result = catch_unwind(AssertUnwindSafe(body))
            .unwrap_or_else(|payload| Err(Error::from_panic(&*payload)));
        let mut outcome = told.lock().unwrap_or_else(PoisonError::into_inner);
        outcome.result = Some(result.map(|()| Answer::Done));
        let waiter = outcome.waiter.take();
        drop(outcome);
        if let Some(waiter) = waiter {
            waiter.wake();
        }
    };
    thread::Builder::new().name("ottla-node".to_owned()).spawn(work).map_err(|cause| {
        Error::new(ErrorKind::Broker, "the system gives no thread").with_source(cause)
    })?;
    Ok(OnThread(outcome))
}
