//! Errors of the core, raised as Python's classes, which are generated from the same table.

use ottla::{Error, ErrorKind, Outcome};
use pyo3::exceptions::PyException;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyDict, PyString, PyType};

/// `ottla._errors`: the class of each kind by its number, and the class of all.
static CLASSES: PyOnceLock<(Py<PyDict>, Py<PyType>)> = PyOnceLock::new();

fn class_of(py: Python<'_>, kind: ErrorKind) -> PyResult<Bound<'_, PyType>> {
    let (by_number, base) = CLASSES.get_or_try_init(py, || {
        let module = py.import("ottla._errors")?;
        let by_number = module.getattr("BY_NUMBER")?.cast_into::<PyDict>()?.unbind();
        let base = module.getattr("Error")?.cast_into::<PyType>()?.unbind();
        Ok::<_, PyErr>((by_number, base))
    })?;
    match by_number.bind(py).get_item(kind.number())? {
        Some(class) => Ok(class.cast_into()?),
        None => Ok(base.bind(py).clone()),
    }
}

/// The core's error as Python raises it.
pub(crate) fn to_py(py: Python<'_>, error: &Error) -> PyErr {
    match instance(py, error) {
        Ok(instance) => PyErr::from_value(instance),
        Err(while_making) => {
            // The core's own text must not be lost over a fault of the interpreter.
            let told = PyException::new_err(error.to_string());
            told.set_cause(py, Some(while_making));
            told
        }
    }
}

/// The core's error as a Python object, to be raised or handed over.
pub(crate) fn instance<'py>(py: Python<'py>, error: &Error) -> PyResult<Bound<'py, PyAny>> {
    let made = class_of(py, error.kind())?.call1((error.to_string(),))?;
    if error.maybe_stored() {
        made.setattr(intern!(py, "maybe_stored"), true)?;
    }
    set(&made, intern!(py, "outcome"), error.outcome().map(Outcome::name))?;
    set(&made, intern!(py, "kafka_code"), error.kafka_code())?;
    set(&made, intern!(py, "topic"), error.topic())?;
    set(&made, intern!(py, "partition"), error.partition())?;
    set(&made, intern!(py, "broker"), error.broker())?;
    set(&made, intern!(py, "api"), error.api())?;
    set(&made, intern!(py, "attempt"), error.attempt())?;
    set(&made, intern!(py, "hint"), error.hint())?;
    Ok(made)
}

/// Sets what is known; the class says `None` for the rest.
fn set<'py>(
    made: &Bound<'py, PyAny>,
    name: &Bound<'py, PyString>,
    value: Option<impl IntoPyObject<'py>>,
) -> PyResult<()> {
    value.map_or(Ok(()), |value| made.setattr(name, value))
}

/// An error of this kind, with a text that is a sentence without its stop.
pub(crate) fn new(py: Python<'_>, kind: ErrorKind, message: impl Into<String>) -> PyErr {
    to_py(py, &Error::new(kind, message))
}

/// Results of the core, raised as Python raises.
pub(crate) trait OrRaise<T> {
    /// The value, or the error as an exception.
    fn or_raise(self, py: Python<'_>) -> PyResult<T>;
}

impl<T> OrRaise<T> for Result<T, Error> {
    fn or_raise(self, py: Python<'_>) -> PyResult<T> {
        self.map_err(|error| to_py(py, &error))
    }
}
