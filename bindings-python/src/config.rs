//! Options as Python gives them, as the core's table takes them.

use std::time::Duration;

use ottla::{ErrorKind, Options};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyDict, PyFloat, PyInt, PyString};

use crate::error::{self, OrRaise as _};

/// The options of a client: its first argument, and its keyword arguments.
///
/// `None` leaves an option at its default.
pub(crate) fn options(
    bootstrap: Option<&Bound<'_, PyAny>>,
    given: Option<&Bound<'_, PyDict>>,
) -> PyResult<Options> {
    let mut options = Options::new();
    if let Some(bootstrap) = bootstrap {
        let py = bootstrap.py();
        let text = text("bootstrap.servers", bootstrap)?;
        options = options.set("bootstrap.servers", &text).or_raise(py)?;
    }
    for (name, value) in given.into_iter().flatten() {
        let name = name.cast::<PyString>()?.to_str()?;
        if value.is_none() {
            continue;
        }
        options = options.set(name, &text(name, &value)?).or_raise(value.py())?;
    }
    Ok(options)
}

/// A value as the table's text: numbers, switches, texts, and lists of texts.
pub(crate) fn text(name: &str, value: &Bound<'_, PyAny>) -> PyResult<String> {
    if let Ok(text) = value.cast::<PyString>() {
        return Ok(text.to_str()?.to_owned());
    }
    if value.is_instance_of::<PyBool>() {
        return Ok(value.is_truthy()?.to_string());
    }
    if value.is_instance_of::<PyInt>() {
        return Ok(value.str()?.to_str()?.to_owned());
    }
    // 5.0 means 5; 5.5 is left for the table to refuse.
    if let Ok(number) = value.cast::<PyFloat>() {
        let whole = number.call_method0(intern!(value.py(), "is_integer"))?.is_truthy()?;
        if whole {
            let number = number.call_method0(intern!(value.py(), "__int__"))?;
            return Ok(number.str()?.to_str()?.to_owned());
        }
        return Ok(number.str()?.to_str()?.to_owned());
    }
    if let Ok(parts) = value.extract::<Vec<String>>() {
        return Ok(parts.join(","));
    }
    let kind = value.get_type().name()?;
    let what = format!("`{name}` takes a text, a number, a bool or a list of texts, not {kind}");
    Err(error::new(value.py(), ErrorKind::InvalidOption, what))
}

/// A time that is set, or has a default.
pub(crate) fn millis(py: Python<'_>, options: &Options, name: &str) -> PyResult<Duration> {
    let millis = options.get(name).and_then(|text| text.parse().ok());
    let missing = || error::new(py, ErrorKind::InvalidOption, format!("`{name}` is not set"));
    millis.map(Duration::from_millis).ok_or_else(missing)
}
