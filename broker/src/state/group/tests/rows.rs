//! The table of classic groups, read from its file: for the machine's tests and for the broker's.
#![allow(dead_code, reason = "each of the two uses its part")]

use std::collections::BTreeMap;

/// One row.
#[derive(Debug)]
pub(crate) struct Row {
    /// Its line in the file.
    pub(crate) line: usize,
    /// The state that it begins in.
    pub(crate) start: &'static str,
    /// What is done; the last step is the one that is asked about.
    pub(crate) steps: Vec<Step>,
    /// The answer.
    pub(crate) said: &'static str,
    /// The state after it.
    pub(crate) after: &'static str,
}

/// One request.
#[derive(Debug)]
pub(crate) struct Step {
    /// `join`, `sync`, `heartbeat`, `leave` or `commit`.
    pub(crate) verb: &'static str,
    /// What follows it by its place; `-` is empty.
    words: Vec<&'static str>,
    options: BTreeMap<&'static str, &'static str>,
}

impl Step {
    /// A word by its place.
    pub(crate) fn word(&self, at: usize) -> &'static str {
        self.words.get(at).copied().unwrap_or_default()
    }

    /// All words.
    pub(crate) fn words(&self) -> &[&'static str] {
        &self.words
    }

    /// An option, if it is there; `-` is empty.
    pub(crate) fn option(&self, name: &str) -> Option<&'static str> {
        self.options.get(name).copied()
    }

    /// A number by its place.
    pub(crate) fn number(&self, at: usize) -> i32 {
        self.word(at).parse().unwrap()
    }

    /// A number of an option.
    pub(crate) fn number_or(&self, name: &str, otherwise: i32) -> i32 {
        self.option(name).map_or(otherwise, |text| text.parse().unwrap())
    }

    /// A list, parted by `mark`.
    pub(crate) fn list(&self, name: &str, mark: char) -> Option<Vec<&'static str>> {
        let parts = self.option(name)?.split(mark).filter(|part| !part.is_empty());
        Some(parts.collect())
    }
}

/// All rows of the file.
pub(crate) fn rows(text: &'static str) -> Vec<Row> {
    let lines = (1..).zip(text.lines());
    let lines = lines.filter(|(_, line)| !line.is_empty() && !line.starts_with('#'));
    lines.map(|(line, text)| row(line, text)).collect()
}

fn row(line: usize, text: &'static str) -> Row {
    let columns: Vec<_> = text.split('|').map(str::trim).collect();
    let [start, _member, asked, said, after] = columns[..] else {
        panic!("line {line} has other than five columns");
    };
    let steps = asked.split(';').map(|step| {
        let plain = |word: &'static str| if word == "-" { "" } else { word };
        let mut parts = step.split_whitespace();
        let verb = parts.next().unwrap();
        let (mut words, mut options) = (Vec::new(), BTreeMap::new());
        for part in parts {
            match part.split_once('=') {
                Some((name, value)) => {
                    options.insert(name, plain(value));
                }
                None => words.push(plain(part)),
            }
        }
        Step { verb, words, options }
    });
    Row { line, start, steps: steps.collect(), said, after }
}
