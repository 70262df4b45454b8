//! What the program was told, and what it draws from its seed.

use std::path::PathBuf;
use std::str::FromStr;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::Outcome;

/// A way to break the run, to see that it notices.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Tamper {
    /// A record is not looked at.
    Drop,
    /// A record is looked at twice.
    Dup,
    /// Two records change places.
    Swap,
    /// Connected consumers are forgotten, one a second.
    Connections,
    /// Memory is forgotten, 1 MiB a second.
    Memory,
    /// A thread waits for ever.
    Hang,
}

impl FromStr for Tamper {
    type Err = String;

    fn from_str(word: &str) -> Result<Self, String> {
        match word {
            "drop" => Ok(Self::Drop),
            "dup" => Ok(Self::Dup),
            "swap" => Ok(Self::Swap),
            "connections" => Ok(Self::Connections),
            "memory" => Ok(Self::Memory),
            "hang" => Ok(Self::Hang),
            _ => Err("drop, dup, swap, connections, memory or hang".to_owned()),
        }
    }
}

/// What the program was told.
#[derive(Clone, Debug)]
pub(crate) struct Settings {
    /// The broker's program.
    pub(crate) broker: PathBuf,
    /// A folder of the run's own; it is made, and removed at the end.
    pub(crate) folder: PathBuf,
    pub(crate) minutes: f64,
    /// Records a second, of all producers together.
    pub(crate) rate: u32,
    pub(crate) seed: u64,
    /// Seconds between two faults, on the average; 0 for none.
    pub(crate) every: f64,
    pub(crate) tamper: Option<Tamper>,
    words: Vec<String>,
}

impl Settings {
    /// Reads `NAME=VALUE` words.
    pub(crate) fn new(words: impl Iterator<Item = String>) -> Outcome<Self> {
        let mut settings = Self {
            broker: PathBuf::new(),
            folder: PathBuf::new(),
            minutes: 60.0,
            rate: 20_000,
            seed: any_seed(),
            every: 60.0,
            tamper: None,
            words: Vec::new(),
        };
        for word in words {
            let (name, value) = word.split_once('=').ok_or_else(|| format!("{word} has no ="))?;
            match name {
                "broker" => settings.broker = value.into(),
                "folder" => settings.folder = value.into(),
                "minutes" => settings.minutes = within(name, value, 0.05, 100_000.0)?,
                "rate" => settings.rate = parsed(name, value)?,
                "seed" => settings.seed = parsed(name, value)?,
                "every" => settings.every = within(name, value, 0.0, 100_000.0)?,
                "tamper" => settings.tamper = Some(parsed(name, value)?),
                _ => return Err(format!("there is no {name}: {KNOWN}").into()),
            }
            if !matches!(name, "broker" | "folder" | "seed") {
                settings.words.push(word);
            }
        }
        if settings.broker.as_os_str().is_empty() || settings.folder.as_os_str().is_empty() {
            return Err("broker=PROGRAM and folder=DIR are needed".into());
        }
        Ok(settings)
    }

    /// How long the load lasts.
    pub(crate) fn span(&self) -> Duration {
        Duration::from_secs_f64(self.minutes * 60.0)
    }

    /// The command that does the same again, as far as threads allow.
    pub(crate) fn again(&self) -> String {
        format!("cargo xtask soak {} seed={}", self.words.join(" "), self.seed).replace("  ", " ")
    }

    /// The draws of one thread; another number is another thread.
    pub(crate) fn chance(&self, thread: u64) -> Chance {
        Chance(self.seed ^ thread.wrapping_add(1).wrapping_mul(0x9E37_79B9_7F4A_7C15))
    }
}

const KNOWN: &str = "minutes, rate, seed, every, tamper";

fn parsed<T: FromStr>(name: &str, value: &str) -> Outcome<T>
where
    T::Err: std::fmt::Display,
{
    value.parse().map_err(|error| format!("{name}={value}: {error}").into())
}

fn within(name: &str, value: &str, least: f64, most: f64) -> Outcome<f64> {
    let number: f64 = parsed(name, value)?;
    if (least..=most).contains(&number) {
        return Ok(number);
    }
    Err(format!("{name}={value}: {least} to {most}").into())
}

#[expect(clippy::disallowed_methods, reason = "a seed that was not given is drawn from the clock")]
fn any_seed() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO);
    u64::from(since.subsec_nanos()) ^ since.as_secs()
}

/// Draws, always the same of a seed (splitmix64).
#[derive(Debug)]
pub(crate) struct Chance(u64);

impl Chance {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }

    /// A number below `end`, which is not 0.
    pub(crate) fn below(&mut self, end: u64) -> u64 {
        self.next().checked_rem(end).unwrap_or(0)
    }

    pub(crate) fn percent(&mut self, of_100: u64) -> bool {
        self.below(100) < of_100
    }

    /// A time between two.
    pub(crate) fn span(&mut self, least_ms: u64, most_ms: u64) -> Duration {
        Duration::from_millis(least_ms + self.below(most_ms.saturating_sub(least_ms).max(1)))
    }
}
