//! Ottla for Python.
