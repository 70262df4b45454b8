//! Names of files and folders, as Kafka gives them.

/// The folder of a partition: `<topic>-<partition>`.
pub fn folder_name(topic: &str, partition: i32) -> String {
    format!("{topic}-{partition}")
}

/// Topic and partition of a folder's name; `None` for all other folders, such as `-delete` ones.
pub fn parse_folder_name(name: &str) -> Option<(&str, i32)> {
    let (topic, partition) = name.rsplit_once('-')?;
    let digits = !partition.is_empty() && partition.bytes().all(|byte| byte.is_ascii_digit());
    if topic.is_empty() || !digits {
        return None;
    }
    Some((topic, partition.parse().ok()?))
}

/// Kinds of files in a partition's folder, by the end of their name.
pub(crate) const LOG: &str = "log";
pub(crate) const INDEX: &str = "index";
pub(crate) const TIME_INDEX: &str = "timeindex";
pub(crate) const TXN_INDEX: &str = "txnindex";
pub(crate) const SNAPSHOT: &str = "snapshot";

/// Twenty digits and the kind: `00000000000000000042.log`.
pub(crate) fn file_name(offset: i64, kind: &str) -> String {
    format!("{offset:020}.{kind}")
}

/// Offset and kind of a file named so; `None` for all other files.
pub(crate) fn parse_file_name(name: &str) -> Option<(i64, &str)> {
    let (digits, kind) = name.split_once('.')?;
    let plain = digits.len() == 20 && digits.bytes().all(|byte| byte.is_ascii_digit());
    if !plain {
        return None;
    }
    Some((digits.parse().ok()?, kind))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folder_names_come_back() {
        assert_eq!(folder_name("a-b.c", 12), "a-b.c-12");
        assert_eq!(parse_folder_name("a-b.c-12"), Some(("a-b.c", 12)));
        let deleted = "t-0.0b1c2d3e4f5061728394a5b6c7d8e9f0-delete";
        for other in ["a", "-1", "a-", "a-x", "a-+1", "a-99999999999", deleted, "a-0-stray"] {
            assert_eq!(parse_folder_name(other), None, "{other}");
        }
    }

    #[test]
    fn file_names_have_twenty_digits() {
        assert_eq!(file_name(42, LOG), "00000000000000000042.log");
        assert_eq!(parse_file_name("00000000000000000042.log"), Some((42, LOG)));
        let cleaned = parse_file_name("00000000000000000042.log.cleaned");
        assert_eq!(cleaned, Some((42, "log.cleaned")));
        for other in ["42.log", "99999999999999999999.log", "leader-epoch-checkpoint", "+0000.x"] {
            assert_eq!(parse_file_name(other), None, "{other}");
        }
    }
}
