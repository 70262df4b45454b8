//! The vote of a metadata quorum of one: for this broker, at every start, in a new epoch.

use std::io::{self, IoSlice};
use std::path::Path;

use ottla_protocol::Uuid;
use ottla_storage::{Files, OpenMode};

/// The file that keeps the vote, beside the metadata log's segments.
const FILE: &str = "quorum-state";

/// The folder of the metadata log.
const FOLDER: &str = "__cluster_metadata-0";

/// Kafka's form of the file with dynamic voters (KIP-853).
const DATA_VERSION: i64 = 1;

/// The epoch that the vote in the folder tells; 0 if there is none yet.
///
/// The log's own epochs may be later: a vote is written beside the first requests of its epoch. An
/// error for a file that is no vote, since another one would be a second vote in the same epoch.
pub(crate) fn voted_epoch(files: &dyn Files, dir: &Path) -> Result<i32, String> {
    let path = dir.join(FOLDER).join(FILE);
    match files.read(&path) {
        Ok(bytes) => {
            let text = String::from_utf8_lossy(&bytes);
            parse(&text).ok_or_else(|| format!("{}: not a vote of Kafka's form", path.display()))
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(0),
        Err(error) => Err(format!("{}: {error}", path.display())),
    }
}

/// Replaces the vote so that a crash leaves the old one or the new one; the new one for good once
/// the log's folder is flushed.
pub(crate) fn store(files: &dyn Files, dir: &Path, node_id: i32, epoch: i32) -> io::Result<()> {
    replace(files, &dir.join(FOLDER), &text(node_id, epoch))
}

fn replace(files: &dyn Files, folder: &Path, text: &str) -> io::Result<()> {
    let path = folder.join(FILE);
    let aside = folder.join("quorum-state.tmp");
    let file = files.open(&aside, OpenMode::Create)?;
    file.set_len(0)?;
    file.write_at(&[IoSlice::new(text.as_bytes())], 0)?;
    file.sync_data()?;
    files.rename(&aside, &path)
}

fn text(node_id: i32, epoch: i32) -> String {
    // A leader needs no vote of its own: as Kafka, it says who leads.
    format!(
        "{{\"leaderId\":{node_id},\"leaderEpoch\":{epoch},\"votedId\":-1,\
         \"votedDirectoryId\":\"{}\",\"data_version\":{DATA_VERSION}}}",
        Uuid::ZERO
    )
}

/// The epoch that the file tells.
fn parse(text: &str) -> Option<i32> {
    let version = number(text, "data_version")?;
    let epoch = number(text, "leaderEpoch")?;
    let epoch = i32::try_from(epoch).ok().filter(|epoch| *epoch >= 0)?;
    (0..=DATA_VERSION).contains(&version).then_some(epoch)
}

/// The number of a field in a flat JSON object.
fn number(text: &str, field: &str) -> Option<i64> {
    let quoted = format!("\"{field}\"");
    let (_, after) = text.split_once(&quoted)?;
    let value = after.trim_start().strip_prefix(':')?.trim_start();
    let end = value.find([',', '}']).unwrap_or(value.len());
    value.get(..end)?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use ottla_storage::MemoryFiles;

    use super::*;

    #[test]
    fn vote_is_kafkas_file_and_comes_back() {
        let files = MemoryFiles::default();
        let dir = Path::new("/data");
        files.create_dir_all(&dir.join(FOLDER)).expect("a folder");
        assert_eq!(voted_epoch(&files, dir), Ok(0));
        store(&files, dir, 1, 2).expect("stored");
        assert_eq!(voted_epoch(&files, dir), Ok(2));
        let file = files.read(&dir.join(FOLDER).join(FILE)).expect("the vote");
        let kafka = "{\"leaderId\":1,\"leaderEpoch\":2,\"votedId\":-1,\
                     \"votedDirectoryId\":\"AAAAAAAAAAAAAAAAAAAAAA\",\"data_version\":1}";
        assert_eq!(String::from_utf8_lossy(&file), kafka);
    }

    #[test]
    fn votes_of_both_forms_are_read_and_no_others() {
        let old = "{\"clusterId\":\"\",\"leaderId\":1,\"leaderEpoch\":7,\"votedId\":-1,\
                   \"appliedOffset\":0,\"currentVoters\":[{\"voterId\":1}],\"data_version\":0}";
        assert_eq!(parse(old), Some(7));
        assert_eq!(parse("{ \"leaderEpoch\" : 9 , \"data_version\" : 1 }"), Some(9));
        for broken in ["", "{}", "{\"leaderEpoch\":9}", "{\"leaderEpoch\":-2,\"data_version\":1}"] {
            assert_eq!(parse(broken), None, "{broken}");
        }
        assert_eq!(parse("{\"leaderEpoch\":9,\"data_version\":2}"), None);
    }

    #[test]
    fn votes_that_kafka_wrote_are_read_and_written_byte_for_byte() {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../conformance/vectors/files.txt");
        let lines = std::fs::read_to_string(path).expect("committed");
        let vote = |kind: &str| {
            let hex = lines.lines().find_map(|line| line.strip_prefix(kind)).expect("a vote");
            let pairs = hex.trim().as_bytes().chunks(2).map(|pair| {
                let pair = str::from_utf8(pair).expect("ASCII");
                char::from(u8::from_str_radix(pair, 16).expect("hexadecimal"))
            });
            pairs.collect::<String>()
        };
        assert_eq!(vote("quorum-state 1 leader"), text(1, 2));
        for kind in ["quorum-state 0 leader", "quorum-state 1 leader", "quorum-state 1 voted"] {
            assert_eq!(parse(&vote(kind)), Some(2), "{kind}");
        }
    }

    #[test]
    fn a_broken_vote_is_not_taken_for_none() {
        let files = MemoryFiles::default();
        let folder = Path::new("/data").join(FOLDER);
        files.create_dir_all(&folder).expect("a folder");
        replace(&files, &folder, "garbage").expect("a file");
        let error = voted_epoch(&files, Path::new("/data")).expect_err("no vote");
        assert!(error.contains("quorum-state"), "{error}");
    }
}
