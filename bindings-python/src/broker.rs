//! A broker inside the Python process.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ottla::ErrorKind;
use ottla_broker::{Broker as CoreBroker, BrokerConfig, BrokerError};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyString};

use crate::boundary::{Held, guard, seconds_or};
use crate::config;
use crate::error;
use crate::log;

/// The broker, before, while and after it runs.
#[pyclass(frozen, subclass, module = "ottla._ottla", name = "Broker")]
#[derive(Debug)]
pub(crate) struct Broker {
    config: BrokerConfig,
    state: Mutex<State>,
}

#[derive(Debug)]
enum State {
    New,
    Running(Arc<Held<CoreBroker>>),
    Stopped,
}

impl Broker {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The running broker. The lock is not held while it is used: its user may let go of the
    /// interpreter, and want it back while another thread has it and waits for the lock.
    fn running(&self, py: Python<'_>) -> PyResult<Arc<Held<CoreBroker>>> {
        match &*self.lock() {
            State::Running(broker) => Ok(Arc::clone(broker)),
            State::New => {
                let text = "the broker is not started: use `with`, or call start()";
                Err(error::new(py, ErrorKind::InvalidState, text))
            }
            State::Stopped => Err(error::new(py, ErrorKind::Closed, "the broker is stopped")),
        }
    }
}

fn failed(py: Python<'_>, cause: &BrokerError) -> PyErr {
    let kind = match cause {
        BrokerError::Stopped => ErrorKind::Closed,
        _ => ErrorKind::Broker,
    };
    error::new(py, kind, cause.to_string())
}

#[pymethods]
impl Broker {
    #[new]
    #[pyo3(signature = (*, listen=None, data_dir=None, **options))]
    fn new(
        py: Python<'_>,
        listen: Option<&str>,
        data_dir: Option<std::path::PathBuf>,
        options: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<Self> {
        guard(py, || {
            log::look_twice(py);
            let mut config = BrokerConfig::new();
            if let Some(listen) = listen {
                config = config.listen(listen);
            }
            if let Some(data_dir) = data_dir {
                config = config.data_dir(data_dir);
            }
            for (name, value) in options.into_iter().flatten() {
                // Kafka's names are dotted throughout, which no keyword can be.
                let name = name.cast::<PyString>()?.to_str()?.replace('_', ".");
                let value = config::text(&name, &value)?;
                config = config.set(&name, &value).map_err(|refused| {
                    error::new(py, ErrorKind::InvalidOption, refused.to_string())
                })?;
            }
            Ok(Self { config, state: Mutex::new(State::New) })
        })
    }

    /// Starts it; it serves when this returns. A second call does nothing.
    ///
    /// BrokerError if the data folder is in use or not ours, or if the address is taken.
    fn start(&self, py: Python<'_>) -> PyResult<()> {
        guard(py, || {
            // The lock is waited for without the interpreter, which its holder may want.
            let outcome = py.detach(|| {
                let mut state = self.lock();
                if matches!(*state, State::New) {
                    *state = State::Running(Arc::new(Held::new(CoreBroker::start(
                        self.config.clone(),
                    )?)));
                }
                Ok(matches!(*state, State::Stopped))
            });
            let stopped = outcome.map_err(|cause: BrokerError| failed(py, &cause))?;
            if stopped {
                return Err(error::new(py, ErrorKind::Closed, "the broker is stopped"));
            }
            Ok(())
        })
    }

    /// HOST:PORT for clients on this machine: the value for bootstrap_servers.
    #[getter]
    fn address(&self, py: Python<'_>) -> PyResult<String> {
        Ok(self.running(py)?.get(py)?.bootstrap())
    }

    /// The cluster's id, which a data folder keeps.
    #[getter]
    fn cluster_id(&self, py: Python<'_>) -> PyResult<String> {
        Ok(self.running(py)?.get(py)?.cluster_id())
    }

    /// Creates a topic; it can be produced to when this returns.
    #[pyo3(signature = (name, partitions=1))]
    fn create_topic(&self, py: Python<'_>, name: &str, partitions: i32) -> PyResult<()> {
        guard(py, || {
            let broker = self.running(py)?;
            let broker = broker.get(py)?;
            py.detach(|| broker.create_topic(name, partitions)).map_err(|cause| failed(py, &cause))
        })
    }

    /// Stops it: answers what is open, flushes and closes the logs. A second call does nothing.
    ///
    /// timeout: seconds, after which connections are cut; None is 5. BrokerError if the next start will have
    /// to check the logs.
    #[pyo3(signature = (timeout=None))]
    fn stop(&self, py: Python<'_>, timeout: Option<f64>) -> PyResult<()> {
        guard(py, || {
            let deadline = seconds_or(py, timeout, CoreBroker::STOP_DEADLINE)?;
            let state = std::mem::replace(&mut *self.lock(), State::Stopped);
            let State::Running(broker) = state else { return Ok(()) };
            let broker = broker.get(py)?;
            py.detach(|| broker.stop(deadline)).map_err(|cause| failed(py, &cause))
        })
    }
}
