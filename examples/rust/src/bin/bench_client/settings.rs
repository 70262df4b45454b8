//! What the program was told.

use std::collections::HashMap;
use std::time::Duration;

use ottla::Options;

use crate::Outcome;

/// `NAME=VALUE` words.
#[derive(Debug)]
pub(crate) struct Settings(HashMap<String, String>);

impl Settings {
    pub(crate) fn new(words: &[String]) -> Outcome<Self> {
        let mut settings = HashMap::new();
        for word in words {
            let (name, value) = word.split_once('=').ok_or_else(|| format!("{word} has no ="))?;
            settings.insert(name.to_owned(), value.to_owned());
        }
        Ok(Self(settings))
    }

    pub(crate) fn word(&self, name: &str) -> Outcome<&str> {
        Ok(self.0.get(name).ok_or_else(|| format!("{name} is not set"))?)
    }

    pub(crate) fn number<T: std::str::FromStr>(&self, name: &str) -> Outcome<T> {
        let word = self.word(name)?;
        word.parse().map_err(|_| format!("{name}={word} is no such number").into())
    }

    pub(crate) fn time(&self, name: &str) -> Outcome<Duration> {
        Ok(Duration::try_from_secs_f64(self.number(name)?)?)
    }

    /// The client's options: the address and all that begins with `option.`.
    pub(crate) fn options(&self) -> Outcome<Options> {
        let mut options = Options::new().set("bootstrap.servers", self.word("address")?)?;
        for (name, value) in &self.0 {
            if let Some(name) = name.strip_prefix("option.") {
                options = options.set(name, value)?;
            }
        }
        Ok(options)
    }

    pub(crate) fn values(&self) -> Outcome<Values> {
        let bytes = std::fs::read(self.word("values")?)?;
        let each: usize = self.number("bytes")?;
        if each == 0 || bytes.len() < each {
            return Err("the file holds no value".into());
        }
        Ok(Values { bytes, each, at: 0 })
    }
}

/// Values one behind the other, over and over.
#[derive(Debug)]
pub(crate) struct Values {
    bytes: Vec<u8>,
    each: usize,
    at: usize,
}

impl Values {
    pub(crate) const fn each(&self) -> usize {
        self.each
    }

    pub(crate) fn next(&mut self) -> &[u8] {
        if self.at + self.each > self.bytes.len() {
            self.at = 0;
        }
        let from = self.at;
        self.at += self.each;
        self.bytes.get(from..self.at).unwrap_or_default()
    }
}
