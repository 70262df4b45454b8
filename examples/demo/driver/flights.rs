//! The data set: one flight a line, its aircraft the key.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use crate::Failure;

/// The column that names the aircraft.
const AIRCRAFT: &str = "tailnum";

/// How the data set writes that a value is missing.
const MISSING: &str = "NA";

/// One departure.
#[derive(Debug)]
pub(crate) struct Flight {
    /// The aircraft's tail number, if it is known.
    pub(crate) aircraft: Option<String>,
    /// The line as it stands in the file.
    pub(crate) line: String,
}

/// All departures in file order. The number of a flight's line is its index.
#[derive(Debug)]
pub(crate) struct Flights {
    /// The departures.
    pub(crate) all: Vec<Flight>,
}

impl Flights {
    /// Departures of each aircraft.
    pub(crate) fn by_aircraft(&self) -> BTreeMap<&str, usize> {
        let mut counts = BTreeMap::new();
        for aircraft in self.all.iter().filter_map(|flight| flight.aircraft.as_deref()) {
            *counts.entry(aircraft).or_default() += 1;
        }
        counts
    }
}

/// Reads the flights from a CSV file with a header line. No field of theirs holds a comma.
pub(crate) fn read(path: &Path) -> Result<Flights, Failure> {
    let text = fs::read_to_string(path).map_err(|error| format!("{}: {error}", path.display()))?;
    let mut lines = text.lines();
    let header = lines.next().ok_or("the file of flights is empty")?;
    let column = header
        .split(',')
        .position(|name| name.trim_matches('"') == AIRCRAFT)
        .ok_or_else(|| format!("the file of flights has no column {AIRCRAFT}: {header}"))?;
    let flight = |(index, line): (usize, &str)| {
        let field = line.split(',').nth(column);
        let field = field.ok_or_else(|| format!("flight {index} is cut short: {line}"))?;
        let field = field.trim_matches('"');
        let aircraft = (field != MISSING && !field.is_empty()).then(|| field.to_owned());
        Ok(Flight { aircraft, line: line.to_owned() })
    };
    let all: Result<Vec<Flight>, Failure> = lines.enumerate().map(flight).collect();
    Ok(Flights { all: all? })
}
