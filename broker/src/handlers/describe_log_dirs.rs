//! DescribeLogDirs: the data folder, and what each partition takes of it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use ottla_protocol::ErrorCode;
use ottla_protocol::messages::describe_log_dirs_response::{
    DescribeLogDirsPartition, DescribeLogDirsResult, DescribeLogDirsTopic,
};
use ottla_protocol::messages::{DescribeLogDirsRequest, DescribeLogDirsResponse};
use ottla_storage::LogReader;

use crate::driver::aside::hand_aside;
use crate::driver::partition::Partition;
use crate::node::Node;
use crate::server::dispatch::RequestInfo;
use crate::server::outbox::Reply;

/// Topics that are asked about, each with the partitions.
type AskedFor = BTreeMap<String, BTreeSet<i32>>;

/// Answers with all partitions, or those asked for that are there; beside the network's threads,
/// since the folder is listed, and logs are opened that were not.
pub(crate) fn handle(
    node: &Arc<Node>,
    _info: RequestInfo<'_>,
    request: DescribeLogDirsRequest<'_>,
    reply: Reply,
) {
    let asked = request.topics.as_ref().map(|topics| {
        let topics = topics.iter();
        let wanted = topics
            .map(|topic| (topic.topic.to_owned(), topic.partitions.iter().copied().collect()));
        wanted.collect::<AskedFor>()
    });
    let looking = node.clone();
    hand_aside(move || describe(&looking, asked.as_ref(), reply));
}

fn describe(node: &Node, asked: Option<&AskedFor>, reply: Reply) {
    let path = node.folder.dir().to_string_lossy();
    let mut result = DescribeLogDirsResult { log_dir: &path, ..DescribeLogDirsResult::default() };
    if node.folder.usable().is_err() {
        result.error_code = ErrorCode::KAFKA_STORAGE_ERROR;
        let results = vec![result];
        reply.answer(&DescribeLogDirsResponse { results, ..DescribeLogDirsResponse::default() });
        return;
    }
    let known = node.topics.load();
    let mut topics: Vec<_> = known.iter().collect();
    topics.sort_unstable_by(|one, other| one.name.cmp(&other.name));
    let there: BTreeSet<(String, i32)> = node.folder.partitions().into_iter().collect();
    let has_folder =
        |partition: &Partition| there.contains(&(partition.topic().to_string(), partition.index()));
    for topic in topics {
        let wanted = asked.map(|asked| asked.get(&*topic.name));
        let wanted = |index: i32| {
            wanted.is_none_or(|topic| topic.is_some_and(|indexes| indexes.contains(&index)))
        };
        let partitions = topic.partitions.iter().filter(|partition| wanted(partition.index()));
        let partitions = partitions.map(|partition| DescribeLogDirsPartition {
            partition_index: partition.index(),
            partition_size: size(partition, has_folder(partition)),
            ..DescribeLogDirsPartition::default()
        });
        let partitions: Vec<_> = partitions.collect();
        if !partitions.is_empty() {
            result.topics.push(DescribeLogDirsTopic { name: &topic.name, partitions });
        }
    }
    if let Some((total, usable)) = node.folder.space() {
        (result.total_bytes, result.usable_bytes) = (total, usable);
    }
    let results = vec![result];
    reply.answer(&DescribeLogDirsResponse { results, ..DescribeLogDirsResponse::default() });
}

/// Bytes of a partition's log. One that nobody has used has none, and gets no folder by this.
fn size(partition: &Partition, has_folder: bool) -> i64 {
    if !has_folder {
        return 0;
    }
    let bytes = partition.log().map_or(0, LogReader::size_bytes);
    i64::try_from(bytes).unwrap_or(i64::MAX)
}
