//! Each file of the client's tests stands in the list of those told on Apache Kafka, or why not.

use crate::interop::suite;

use super::Finding;
use super::source::Source;

/// Where the client's tests are, one program a file.
const FOLDER: &str = "client-rs/tests/";

pub(super) fn check(sources: &[Source]) -> Vec<Finding> {
    let Some(list) = sources.iter().find(|source| source.path == suite::LIST) else {
        return Vec::new();
    };
    let program = |source: &Source| {
        let name = source.path.strip_prefix(FOLDER)?.strip_suffix(".rs")?;
        (!name.contains('/')).then(|| (name.to_owned(), source.text.clone()))
    };
    let programs: Vec<_> = sources.iter().filter_map(program).collect();
    let parsed = suite::parse(&list.text, &programs);
    parsed.err().map(|fault| Finding::new(list, 1, fault)).into_iter().collect()
}
