//! The options that a program has set, checked against the table one by one.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use super::absent;
use super::duration::iso8601_millis;
use super::table::{OPTIONS, OptionRow, OptionType};
use crate::error::{Error, ErrorKind};

/// Longest text in a request of Kafka's, whose length has 16 bits.
const TEXT_BYTES_MAX: usize = 32_767;

/// Options of a client, by Kafka's dotted names, our short ones, or either in snake or camel case.
///
/// ```
/// let options = ottla::Options::new()
///     .set("bootstrap.servers", "localhost:9092")?
///     .set("compression", "lz4")?
///     .set("maxBlockMs", "500")?;
/// assert_eq!(options.get("max.block.ms"), Some("500"));
/// # Ok::<(), ottla::Error>(())
/// ```
#[derive(Clone, Default)]
pub struct Options {
    /// Row of the table → value.
    values: BTreeMap<usize, String>,
}

impl Options {
    /// No option set: the defaults hold.
    pub fn new() -> Self {
        Self::default()
    }

    /// The same with one option more, or set anew.
    ///
    /// `InvalidOption` if there is no option of that name (the nearest is named) or it does not
    /// take the value.
    pub fn set(mut self, name: &str, value: &str) -> Result<Self, Error> {
        let (index, row) = find(name)?;
        check(row, value)?;
        self.values.insert(index, value.trim().to_owned());
        Ok(self)
    }

    /// Options from one text: `name=value` separated by `;` or new lines.
    pub fn parse(text: &str) -> Result<Self, Error> {
        let mut options = Self::new();
        for pair in text.split([';', '\n']).map(str::trim).filter(|pair| !pair.is_empty()) {
            let Some((name, value)) = pair.split_once('=') else {
                return Err(invalid(format!("`{pair}` is not of the form name=value")));
            };
            options = options.set(name.trim(), value)?;
        }
        Ok(options)
    }

    /// The value set, else the default; `None` if there is neither, or no such option.
    pub fn get(&self, name: &str) -> Option<&str> {
        let (index, row) = find(name).ok()?;
        self.values.get(&index).map(String::as_str).or(row.default)
    }

    /// Whether a value was set.
    pub fn is_set(&self, name: &str) -> bool {
        find(name).is_ok_and(|(index, _)| self.values.contains_key(&index))
    }

    /// The options set, by Kafka's names, in the table's order.
    pub fn iter(&self) -> impl Iterator<Item = (&'static str, &str)> {
        self.values
            .iter()
            .filter_map(|(&index, value)| Some((OPTIONS.get(index)?.kafka, value.as_str())))
    }

    /// The rows of the options set.
    pub(crate) fn rows(&self) -> impl Iterator<Item = &'static OptionRow> {
        self.values.keys().filter_map(|&index| OPTIONS.get(index))
    }

    /// A time in milliseconds that has a default.
    pub(crate) fn duration(&self, name: &str) -> Result<Duration, Error> {
        self.number(name).map(Duration::from_millis)
    }

    /// A number that has a default.
    pub(crate) fn number<T: TryFrom<i64>>(&self, name: &str) -> Result<T, Error> {
        self.number_if_set(name)?.ok_or_else(|| missing(name))
    }

    /// A number, if it is set or has a default.
    pub(crate) fn number_if_set<T: TryFrom<i64>>(&self, name: &str) -> Result<Option<T>, Error> {
        let Some(text) = self.get(name) else { return Ok(None) };
        let number = text.parse::<i64>().ok().and_then(|number| T::try_from(number).ok());
        number.map(Some).ok_or_else(|| invalid(format!("`{name}`: `{text}` is no such number")))
    }

    /// A switch, if it is set or has a default.
    pub(crate) fn bool_if_set(&self, name: &str) -> Option<bool> {
        self.get(name).map(|text| text.eq_ignore_ascii_case("true"))
    }

    /// A switch that has a default.
    pub(crate) fn bool(&self, name: &str) -> Result<bool, Error> {
        self.bool_if_set(name).ok_or_else(|| missing(name))
    }

    /// A text that is set or has a default.
    pub(crate) fn text(&self, name: &str) -> Result<&str, Error> {
        self.get(name).ok_or_else(|| missing(name))
    }

    /// The addresses in `bootstrap.servers`.
    pub(crate) fn bootstrap(&self) -> Result<Vec<Address>, Error> {
        let text = self.text("bootstrap.servers")?;
        let mut addresses = Vec::new();
        for part in text.split(',').map(str::trim).filter(|part| !part.is_empty()) {
            addresses.push(Address::parse(part)?);
        }
        if addresses.is_empty() {
            return Err(missing("bootstrap.servers"));
        }
        Ok(addresses)
    }
}

impl fmt::Debug for Options {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.iter()).finish()
    }
}

/// Where a broker listens, before any name is resolved.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Address {
    /// Name or number, without the brackets of IPv6.
    pub(crate) host: String,
    /// Port.
    pub(crate) port: u16,
}

impl Address {
    /// From `host:port` or `[ipv6]:port`.
    pub(crate) fn parse(text: &str) -> Result<Self, Error> {
        let fault = |why: &str| invalid(format!("`bootstrap.servers`: `{text}` {why}"));
        // Java takes a protocol in front and drops it.
        let rest = text.split_once("://").map_or(text, |(_, rest)| rest);
        let (host, port) =
            rest.rsplit_once(':').ok_or_else(|| fault("has no port: write host:port"))?;
        let host = match host.strip_prefix('[').and_then(|host| host.strip_suffix(']')) {
            Some(host) => host,
            None if host.contains(':') => {
                return Err(fault("is no host:port: write IPv6 addresses in brackets"));
            }
            None => host,
        };
        if host.is_empty() || host.contains(char::is_whitespace) {
            return Err(fault("has no host: write host:port"));
        }
        let port = port.parse::<u16>().ok().filter(|&port| port > 0);
        let port = port.ok_or_else(|| fault("has no port from 1 to 65535"))?;
        Ok(Self { host: host.to_owned(), port })
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.host.contains(':') {
            write!(f, "[{}]:{}", self.host, self.port)
        } else {
            write!(f, "{}:{}", self.host, self.port)
        }
    }
}

fn invalid(text: impl Into<String>) -> Error {
    Error::new(ErrorKind::InvalidOption, text)
}

fn missing(name: &str) -> Error {
    invalid(format!("`{name}` is not set, and has no default"))
}

/// A name as words in lower case with dots between: `maxBlockMs`, `max_block_ms` → `max.block.ms`.
fn normal(name: &str) -> String {
    let mut out = String::with_capacity(name.len() + 4);
    for letter in name.trim().chars() {
        match letter {
            '_' | '-' | '.' => out.push('.'),
            _ if letter.is_uppercase() => {
                if !out.is_empty() && !out.ends_with('.') {
                    out.push('.');
                }
                out.extend(letter.to_lowercase());
            }
            _ => out.push(letter),
        }
    }
    out
}

/// The names a row goes by, as [`normal`] writes them.
pub(super) fn names_in(row: &OptionRow) -> [String; 2] {
    [normal(row.kafka), normal(row.short)]
}

fn find(name: &str) -> Result<(usize, &'static OptionRow), Error> {
    let wanted = normal(name);
    let known = OPTIONS.iter().enumerate().find(|(_, row)| names_in(row).contains(&wanted));
    known.ok_or_else(|| {
        if let Some(why) = absent::why(&wanted) {
            let text =
                format!("`{name}` is an option of Apache Kafka that this client does not have");
            return invalid(text).with_hint(why);
        }
        let error = invalid(format!("there is no option `{name}`"));
        match nearest(&wanted) {
            Some(row) => error.with_hint(format!("did you mean `{}`?", row.kafka)),
            None => error,
        }
    })
}

/// The option whose name is nearest to a wrong one, unless that is another word altogether.
fn nearest(wanted: &str) -> Option<&'static OptionRow> {
    let distances = OPTIONS
        .iter()
        .flat_map(|row| names_in(row).map(|known| (distance(wanted, &known), row)))
        .min_by_key(|&(distance, _)| distance);
    distances.filter(|&(distance, _)| distance <= wanted.chars().count() / 2).map(|(_, row)| row)
}

/// Fewest letters to add, drop or change between two texts.
fn distance(left: &str, right: &str) -> usize {
    let right: Vec<char> = right.chars().collect();
    let mut row: Vec<usize> = (0..=right.len()).collect();
    for (index, letter) in left.chars().enumerate() {
        let mut diagonal = index;
        let mut before = index + 1;
        for (place, &other) in row.iter_mut().zip(std::iter::once(&'\0').chain(&right)).skip(1) {
            let changed = diagonal + usize::from(letter != other);
            diagonal = *place;
            *place = changed.min(diagonal + 1).min(before + 1);
            before = *place;
        }
        if let Some(first) = row.first_mut() {
            *first = index + 1;
        }
    }
    row.last().copied().unwrap_or(0)
}

fn check(row: &OptionRow, value: &str) -> Result<(), Error> {
    let value = value.trim();
    let name = row.kafka;
    let wanted = match row.kind {
        OptionType::Text if value.len() > TEXT_BYTES_MAX => {
            return Err(invalid(format!(
                "`{name}` takes a text of at most {TEXT_BYTES_MAX} bytes, not one of {}",
                value.len()
            )));
        }
        OptionType::Text | OptionType::List => return Ok(()),
        OptionType::Bool if matches!(value.to_ascii_lowercase().as_str(), "true" | "false") => {
            return Ok(());
        }
        OptionType::Bool => "true or false".to_owned(),
        OptionType::Choice(words) if words.contains(&value) => return Ok(()),
        OptionType::Choice(words) => format!("one of {}", words.join(", ")),
        OptionType::Reset if is_reset(value) => return Ok(()),
        OptionType::Reset => {
            "earliest, latest, none, or by_duration: with a duration such as PT1H".to_owned()
        }
        OptionType::Int { min, max }
        | OptionType::Bytes { min, max }
        | OptionType::Millis { min, max } => {
            if value.parse().is_ok_and(|number: i64| (min..=max).contains(&number)) {
                return Ok(());
            }
            let unit = match row.kind {
                OptionType::Bytes { .. } => "number of bytes",
                OptionType::Millis { .. } => "number of milliseconds",
                _ => "number",
            };
            format!("a whole {unit} from {min} to {max}")
        }
    };
    Err(invalid(format!("`{name}` takes {wanted}, not `{value}`")))
}

fn is_reset(value: &str) -> bool {
    let word = matches!(value, "earliest" | "latest" | "none");
    word || value.strip_prefix("by_duration:").and_then(iso8601_millis).is_some()
}
