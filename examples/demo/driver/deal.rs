//! Who sends which flight: all flights of an aircraft go through one program, in file order.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::str::FromStr;

use crate::Failure;
use crate::flights::Flights;

/// The languages, in the order in which they are shown.
pub(crate) const LANGUAGES: [&str; 4] = ["rust", "python", "node", "c"];

/// The numbers of the flights that each language sends.
pub(crate) type Hands = [Vec<usize>; LANGUAGES.len()];

/// Deals the aircraft out by their flights, so that each language sends about a quarter, and the
/// flights without an aircraft in turn.
pub(crate) fn deal(flights: &Flights) -> Hands {
    let mut aircraft: Vec<(&str, usize)> = flights.by_aircraft().into_iter().collect();
    aircraft.sort_by_key(|&(name, count)| (Reverse(count), name));
    let mut load = [0; LANGUAGES.len()];
    let mut owner = HashMap::new();
    for (name, count) in aircraft {
        let least = (0..load.len()).min_by_key(|&language| load[language]).unwrap_or_default();
        load[least] += count;
        owner.insert(name, least);
    }
    let mut hands = Hands::default();
    let mut turn = (0..LANGUAGES.len()).cycle();
    for (number, flight) in flights.all.iter().enumerate() {
        let owner = flight.aircraft.as_deref().and_then(|name| owner.get(name).copied());
        hands[owner.or_else(|| turn.next()).unwrap_or_default()].push(number);
    }
    hands
}

/// A way to alter the stream between the file and the broker.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Tamper {
    /// One flight is not sent.
    Drop,
    /// One flight is sent twice.
    Dup,
    /// Two flights of one aircraft change places.
    Swap,
}

impl FromStr for Tamper {
    type Err = Failure;

    fn from_str(word: &str) -> Result<Self, Failure> {
        match word {
            "drop" => Ok(Self::Drop),
            "dup" => Ok(Self::Dup),
            "swap" => Ok(Self::Swap),
            _ => Err(format!("--tamper takes drop, dup or swap, not {word}").into()),
        }
    }
}

/// Alters the first language's stream in its middle, and tells how.
pub(crate) fn tamper(
    hands: &mut Hands,
    flights: &Flights,
    tamper: Tamper,
) -> Result<String, Failure> {
    let hand = &mut hands[0];
    let aircraft = |number: usize| flights.all[number].aircraft.as_deref();
    // The middle, or the next flight whose aircraft is known and flies again.
    let found = (hand.len() / 2..hand.len()).find_map(|place| {
        let name = aircraft(hand[place])?;
        let again = hand[place + 1..].iter().position(|&next| aircraft(next) == Some(name))?;
        Some((place, place + 1 + again, name))
    });
    let (place, again, name) = found.ok_or("no aircraft flies twice")?;
    let (line, next) = (hand[place], hand[again]);
    match tamper {
        Tamper::Drop => {
            hand.remove(place);
            Ok(format!("line {line} is dropped"))
        }
        Tamper::Dup => {
            hand.insert(place, line);
            Ok(format!("line {line} is sent twice"))
        }
        Tamper::Swap => {
            hand.swap(place, again);
            Ok(format!("lines {line} and {next}, both of {name}, change places"))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::flights::Flight;

    fn flights(names: &[&str]) -> Flights {
        let flight = |name: &&str| Flight {
            aircraft: (!name.is_empty()).then(|| (*name).to_owned()),
            line: (*name).to_owned(),
        };
        Flights { all: names.iter().map(flight).collect() }
    }

    #[test]
    fn an_aircraft_stays_with_one_language_and_in_file_order() {
        let flights = flights(&["a", "b", "a", "c", "d", "a", "b"]);
        let hands = deal(&flights);
        assert_eq!(hands, [vec![0, 2, 5], vec![1, 6], vec![3], vec![4]]);
    }

    #[test]
    fn flights_without_an_aircraft_are_dealt_in_turn() {
        let hands = deal(&flights(&["", "", "", "", ""]));
        assert_eq!(hands, [vec![0, 4], vec![1], vec![2], vec![3]]);
    }

    #[test]
    fn tampering_drops_doubles_or_swaps_flights_of_one_aircraft() {
        let flights = flights(&["a", "", "", "", "", "a"]);
        let dealt = deal(&flights);
        assert_eq!(dealt[0], [0, 1, 5]);
        let mut hands = dealt.clone();
        assert!(tamper(&mut hands, &flights, Tamper::Drop).is_err(), "the middle flies no more");
        let flights = self::flights(&["a", "a", "a"]);
        for (kind, left) in [
            (Tamper::Drop, vec![0, 2]),
            (Tamper::Dup, vec![0, 1, 1, 2]),
            (Tamper::Swap, vec![0, 2, 1]),
        ] {
            let mut hands = deal(&flights);
            tamper(&mut hands, &flights, kind).unwrap();
            assert_eq!(hands[0], left, "{kind:?}");
        }
    }
}
