//! ISO 8601 durations of days and below, as in `by_duration:P1DT2H` (KIP-1106).

/// The duration in milliseconds: `PnDTnHnMn.nS`, each part optional, one at least.
///
/// `None` if the text is none, or negative, or too long for 64 bits.
pub(crate) fn iso8601_millis(text: &str) -> Option<i64> {
    let text = text.strip_prefix(['P', 'p'])?;
    let (days, time) = match text.split_once(['T', 't']) {
        Some((_, "")) => return None,
        Some((days, time)) => (days, time),
        None => (text, ""),
    };
    if days.is_empty() && time.is_empty() {
        return None;
    }
    let mut total = 0_i64;
    if !days.is_empty() {
        total = number(days.strip_suffix(['D', 'd'])?)?.checked_mul(86_400_000)?;
    }
    let mut rest = time;
    for (letters, millis) in [(['H', 'h'], 3_600_000), (['M', 'm'], 60_000)] {
        if let Some((count, after)) = rest.split_once(letters) {
            total = total.checked_add(number(count)?.checked_mul(millis)?)?;
            rest = after;
        }
    }
    if !rest.is_empty() {
        total = total.checked_add(seconds(rest.strip_suffix(['S', 's'])?)?)?;
    }
    Some(total)
}

fn number(digits: &str) -> Option<i64> {
    let plain = !digits.is_empty() && digits.bytes().all(|digit| digit.is_ascii_digit());
    plain.then(|| digits.parse().ok()).flatten()
}

/// Seconds with up to nine decimals, in milliseconds; what is below one is cut off.
fn seconds(text: &str) -> Option<i64> {
    let (whole, decimals) = text.split_once('.').unwrap_or((text, "0"));
    number(decimals).filter(|_| decimals.len() <= 9)?;
    let thousandths = format!("{decimals:0<3}");
    let thousandths = number(thousandths.get(..3)?)?;
    number(whole)?.checked_mul(1000)?.checked_add(thousandths)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_read_as_java_reads_them() {
        for (text, millis) in [
            ("PT1H", Some(3_600_000)),
            ("P1D", Some(86_400_000)),
            ("P1DT2H3M4.5S", Some(93_784_500)),
            ("PT0.0019S", Some(1)),
            ("pt90m", Some(5_400_000)),
            ("P", None),
            ("PT", None),
            ("1H", None),
            ("PT1H1H", None),
            ("PT-1H", None),
            ("P99999999999999999D", None),
            ("", None),
        ] {
            assert_eq!(iso8601_millis(text), millis, "{text}");
        }
    }
}
