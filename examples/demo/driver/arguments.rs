//! The driver's command line.

use std::path::PathBuf;

use crate::Failure;
use crate::deal::{LANGUAGES, Tamper};

/// What the driver is told.
#[derive(Debug)]
pub(crate) struct Arguments {
    /// The flights, as the data set has them.
    pub(crate) data: PathBuf,
    /// The broker's data folder; the caller owns it.
    pub(crate) folder: PathBuf,
    /// How to alter the stream, to see a check fail.
    pub(crate) tamper: Option<Tamper>,
    /// The program of each language with its first arguments, as in [`LANGUAGES`].
    pub(crate) programs: [Vec<String>; LANGUAGES.len()],
}

pub(crate) fn parse(words: impl Iterator<Item = String>) -> Result<Arguments, Failure> {
    let mut words = words.peekable();
    let (mut data, mut folder, mut tamper) = (None, None, None);
    let mut programs: [Vec<String>; LANGUAGES.len()] = Default::default();
    while let Some(word) = words.next() {
        let mut value = || words.next().ok_or_else(|| format!("{word} needs a value"));
        match word.as_str() {
            "--data" => data = Some(PathBuf::from(value()?)),
            "--folder" => folder = Some(PathBuf::from(value()?)),
            "--tamper" => tamper = Some(value()?.parse()?),
            "--program" => {
                let language = value()?;
                let index = LANGUAGES.iter().position(|name| *name == language);
                let index = index.ok_or_else(|| format!("no program in {language} is known"))?;
                let command = std::iter::from_fn(|| words.next_if(|word| !word.starts_with("--")));
                programs[index] = command.collect();
            }
            _ => return Err(format!("unknown argument {word}").into()),
        }
    }
    if let Some(missing) = programs.iter().position(Vec::is_empty) {
        return Err(format!("--program {} is missing", LANGUAGES[missing]).into());
    }
    Ok(Arguments {
        data: data.ok_or("--data is missing")?,
        folder: folder.ok_or("--folder is missing")?,
        tamper,
        programs,
    })
}
