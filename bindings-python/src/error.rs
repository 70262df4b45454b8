//! Python's error classes, made at import from the core's table, and errors that go out as them.

mod mixins;

use ottla::{Error, ErrorClass, ErrorKind};
use pyo3::exceptions::PyException;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyDict, PyString, PyTuple, PyType};

/// The class of each kind, in the order of `ErrorKind::ALL`.
static CLASSES: PyOnceLock<Vec<(ErrorKind, Py<PyType>)>> = PyOnceLock::new();

const BASE_DOC: &str = "What every error of this package is.

kind: the kind's name, such as 'RecordTooLarge'.
retriable: whether trying again may help.
outcome: what may have become of the record: 'NotSent', 'PossiblyPersisted', 'Rejected' or None.
maybe_stored: whether the record may be stored all the same.
kafka_code: the error code in the broker's answer, or None.
topic, partition, broker, api, attempt: where it happened, as far as it is known.
hint: what a person can do about it, or None.";

/// What a class of errors means.
fn class_doc(class: ErrorClass) -> &'static str {
    match class {
        ErrorClass::Retriable => "Try again: the cause may pass.",
        ErrorClass::Abortable => "Give up what was begun, then go on with the client.",
        ErrorClass::Fatal => "The client is of no more use, or the cluster will not take it.",
        ErrorClass::Usage => "The call was wrong, and will be wrong again.",
        _ => "A class of errors.",
    }
}

/// Makes the classes and puts them into the module's dict `ERROR_CLASSES`, by name.
pub(crate) fn install(module: &Bound<'_, PyModule>) -> PyResult<()> {
    let py = module.py();
    let all = PyDict::new(py);
    let exception = py.get_type::<PyException>();
    let facts = PyDict::new(py);
    for name in ["kind", "outcome", "kafka_code", "topic", "partition"] {
        facts.set_item(name, py.None())?;
    }
    for name in ["broker", "api", "attempt", "hint"] {
        facts.set_item(name, py.None())?;
    }
    facts.set_item("retriable", false)?;
    facts.set_item("maybe_stored", false)?;
    let base = new_class(&all, "Error", BASE_DOC, vec![exception.into_any()], &facts)?;

    let mut made = Vec::with_capacity(ErrorKind::ALL.len());
    for &kind in ErrorKind::ALL {
        let name = format!("{}Error", kind.class().name());
        let class = match all.get_item(&name)? {
            Some(class) => class.cast_into::<PyType>()?,
            None => {
                let facts = PyDict::new(py);
                facts.set_item("retriable", kind.class() == ErrorClass::Retriable)?;
                let doc = class_doc(kind.class());
                new_class(&all, &name, doc, vec![base.clone().into_any()], &facts)?
            }
        };
        let mut bases = vec![class.into_any()];
        if let Some((_, builtin)) = mixins::MIXINS.iter().find(|(name, _)| *name == kind.name()) {
            bases.push(py.import(intern!(py, "builtins"))?.getattr(*builtin)?);
        }
        let facts = PyDict::new(py);
        facts.set_item("kind", kind.name())?;
        let name = format!("{}Error", kind.name());
        let class = new_class(&all, &name, kind.doc().trim(), bases, &facts)?;
        made.push((kind, class.unbind()));
    }
    // A second import in one process (a reload) keeps the first classes, which errors already have.
    CLASSES.get_or_init(py, || made);
    module.add("ERROR_CLASSES", all)
}

fn new_class<'py>(
    all: &Bound<'py, PyDict>,
    name: &str,
    doc: &str,
    bases: Vec<Bound<'py, PyAny>>,
    facts: &Bound<'py, PyDict>,
) -> PyResult<Bound<'py, PyType>> {
    let py = all.py();
    facts.set_item("__doc__", doc)?;
    facts.set_item("__module__", "ottla")?;
    let class = py.get_type::<PyType>().call1((name, PyTuple::new(py, bases)?, facts))?;
    all.set_item(name, &class)?;
    Ok(class.cast_into()?)
}

/// The core's error as Python raises it.
pub(crate) fn to_py(py: Python<'_>, error: &Error) -> PyErr {
    match instance(py, error) {
        Ok(instance) => PyErr::from_value(instance),
        Err(while_making) => while_making,
    }
}

/// The core's error as a Python object, to be raised or handed over.
pub(crate) fn instance<'py>(py: Python<'py>, error: &Error) -> PyResult<Bound<'py, PyAny>> {
    let known = CLASSES.get(py).and_then(|all| all.iter().find(|(kind, _)| *kind == error.kind()));
    let Some((_, class)) = known else {
        return Ok(PyErr::new::<PyException, _>(error.to_string()).into_value(py).into_bound(py).into_any());
    };
    let made = class.bind(py).call1((error.to_string(),))?;
    if let Some(outcome) = error.outcome() {
        made.setattr(intern!(py, "outcome"), outcome.name())?;
        made.setattr(intern!(py, "maybe_stored"), error.maybe_stored())?;
    }
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
