//! Options that are set, by name, and the table's defaults for the rest.

use std::collections::BTreeMap;

use super::table::{self, OPTIONS, OptionError};

/// Options that are set, as text that was checked.
#[derive(Debug, Clone, Default)]
pub(super) struct Options {
    values: BTreeMap<&'static str, String>,
}

impl Options {
    pub(super) fn set(&mut self, name: &str, value: &str) -> Result<(), OptionError> {
        let row = table::find(name)?;
        self.values.insert(row.name, row.read(value)?);
        Ok(())
    }

    /// The value as set, if it was.
    pub(super) fn get(&self, name: &str) -> Option<&str> {
        self.values.get(name).map(String::as_str)
    }

    /// The value as set, or the default of the table.
    pub(super) fn text(&self, name: &str) -> &str {
        let default = || OPTIONS.iter().find(|row| row.name == name).map(|row| row.default);
        let value = self.get(name).or_else(default);
        debug_assert!(value.is_some(), "no option {name} in the table");
        value.unwrap_or_default()
    }

    pub(super) fn flag(&self, name: &str) -> bool {
        self.text(name) == "true"
    }

    pub(super) fn optional_long(&self, name: &str) -> Option<i64> {
        // What is not a number is empty: all values were checked when they were set.
        self.text(name).parse().ok()
    }

    pub(super) fn long(&self, name: &str) -> i64 {
        let number = self.optional_long(name);
        debug_assert!(number.is_some(), "{name} is no number: {:?}", self.text(name));
        number.unwrap_or_default()
    }

    pub(super) fn int(&self, name: &str) -> i32 {
        i32::try_from(self.long(name)).unwrap_or(i32::MAX)
    }

    pub(super) fn size(&self, name: &str) -> usize {
        usize::try_from(self.long(name)).unwrap_or(usize::MAX)
    }
}
