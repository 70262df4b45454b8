//! The tab-separated tables beside the definitions.

use super::model::{Kind, Message};

/// A line of `apis.tsv` whose API still exists.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct ApiRow {
    pub(crate) key: i16,
    pub(crate) name: String,
    pub(crate) min: i16,
    pub(crate) max: i16,
    pub(crate) listed_min: i16,
    pub(crate) first_flexible: i16,
    pub(crate) on_brokers: bool,
    pub(crate) on_controllers: bool,
}

/// A line of `errors.tsv`.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct ErrorRow {
    pub(crate) code: i16,
    pub(crate) name: String,
    pub(crate) retriable: bool,
    pub(crate) refresh: Option<String>,
}

/// Calls `row` with the cells of each line but the first.
fn rows<T>(
    file: &str,
    text: &str,
    mut row: impl FnMut(&[&str]) -> Option<T>,
) -> Result<Vec<T>, String> {
    let mut all = Vec::new();
    for (index, line) in text.lines().enumerate().skip(1) {
        let cells: Vec<&str> = line.split('\t').collect();
        let parsed = row(&cells)
            .ok_or_else(|| format!("protocol/spec/{file}:{}: not understood: {line}", index + 1))?;
        all.push(parsed);
    }
    Ok(all)
}

fn yes(word: &str) -> Option<bool> {
    match word {
        "yes" => Some(true),
        "no" => Some(false),
        _ => None,
    }
}

/// Reads `apis.tsv`; APIs that Kafka has removed are left out.
pub(crate) fn apis(text: &str) -> Result<Vec<ApiRow>, String> {
    let all = rows("apis.tsv", text, |cells| {
        let [key, name, min, max, flexible, broker, controller, listed, _unstable] = cells else {
            return None;
        };
        if *min == "removed" {
            return Some(None);
        }
        Some(Some(ApiRow {
            key: key.parse().ok()?,
            name: (*name).to_owned(),
            min: min.parse().ok()?,
            max: max.parse().ok()?,
            listed_min: listed.parse().ok()?,
            first_flexible: if *flexible == "none" { i16::MAX } else { flexible.parse().ok()? },
            on_brokers: yes(broker)?,
            on_controllers: yes(controller)?,
        }))
    })?;
    Ok(all.into_iter().flatten().collect())
}

/// Reads `errors.tsv`.
pub(crate) fn errors(text: &str) -> Result<Vec<ErrorRow>, String> {
    rows("errors.tsv", text, |cells| {
        let [code, name, retriable, refresh] = cells else { return None };
        let refresh = match *refresh {
            "-" => None,
            "metadata" => Some("Metadata".to_owned()),
            "coordinator" => Some("Coordinator".to_owned()),
            _ => return None,
        };
        Some(ErrorRow {
            code: code.parse().ok()?,
            name: (*name).to_owned(),
            retriable: yes(retriable)?,
            refresh,
        })
    })
}

/// Refuses a request or answer whose versions are not those of the table.
pub(crate) fn check_api(apis: &[ApiRow], message: &Message) -> Result<(), String> {
    let (Kind::Request(api) | Kind::Response(api)) = &message.kind else { return Ok(()) };
    let place = format!("protocol/spec/{}:{}", message.file, message.line);
    let Some(row) = apis.iter().find(|row| row.key == api.key && row.name == api.name) else {
        return Err(format!("{place}: apis.tsv has no API {} {}", api.key, api.name));
    };
    if (row.min, row.max) != (message.versions.min, message.versions.max) {
        return Err(format!("{place}: apis.tsv says versions {}-{}", row.min, row.max));
    }
    if row.first_flexible != message.first_flexible {
        return Err(format!("{place}: apis.tsv says flexible from {}", row.first_flexible));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEAD: &str = "a\tb\tc\td\te\tf\tg\th\ti\n";

    #[test]
    fn removed_apis_are_left_out() {
        let text = format!(
            "{HEAD}4\tLeaderAndIsr\tremoved\tremoved\t-\tno\tno\t-\t-\n\
             8\tOffsetCommit\t2\t10\t8\tyes\tno\t2\t-\n"
        );
        let rows = apis(&text).unwrap();
        assert_eq!(rows.len(), 1);
        assert_eq!((rows[0].key, rows[0].min, rows[0].first_flexible), (8, 2, 8));
    }

    #[test]
    fn a_bad_line_is_told_with_its_number() {
        let told = apis(&format!("{HEAD}8\tOffsetCommit\ttwo\n")).unwrap_err();
        assert!(told.contains("apis.tsv:2:"), "{told}");
        let told = errors("h\n0\tNONE\tno\t-\n1\tX\tmaybe\t-\n").unwrap_err();
        assert!(told.contains("errors.tsv:3:"), "{told}");
    }
}
