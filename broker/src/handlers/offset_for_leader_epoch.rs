//! OffsetForLeaderEpoch: where the records of a leader epoch end, so that a client sees whether what
//! it read is still part of the log (KIP-320).

use std::sync::Arc;

use ottla_protocol::ErrorCode;
use ottla_protocol::messages::offset_for_leader_epoch_request::OffsetForLeaderPartition;
use ottla_protocol::messages::offset_for_leader_epoch_response::{
    EpochEndOffset, OffsetForLeaderTopicResult,
};
use ottla_protocol::messages::{OffsetForLeaderEpochRequest, OffsetForLeaderEpochResponse};
use ottla_storage::Wait;

use crate::driver::aside::hand_aside;
use crate::driver::partition::Partition;
use crate::handlers::fetch::check_epoch;
use crate::node::Node;
use crate::server::dispatch::RequestInfo;
use crate::server::outbox::Reply;

/// Answers each partition by itself; beside the network's threads if a log has to be opened.
pub(crate) fn handle(
    node: &Arc<Node>,
    _info: RequestInfo<'_>,
    request: OffsetForLeaderEpochRequest<'_>,
    reply: Reply,
) {
    let known = node.topics.load();
    let asked = request.topics.iter().map(|asked| {
        let topic = known.named(asked.topic);
        let partitions = asked.partitions.iter().map(|part| {
            let partition = topic.and_then(|topic| topic.partition(part.partition));
            (part.clone(), partition.cloned())
        });
        AskedTopic { name: asked.topic.to_owned(), partitions: partitions.collect() }
    });
    let asked: Vec<_> = asked.collect();
    if let Some(found) = find_all(&asked, Wait::No) {
        answer(reply, &asked, found);
        return;
    }
    hand_aside(move || {
        // With leave to wait nothing is left out.
        let found = find_all(&asked, Wait::Disk).unwrap_or_default();
        answer(reply, &asked, found);
    });
}

/// A topic that is asked about, with what is asked of its partitions.
struct AskedTopic {
    name: String,
    partitions: Vec<(OffsetForLeaderPartition, Option<Arc<Partition>>)>,
}

/// The last epoch not above the one asked for, and where it ends; none if there is none.
type Outcome = Result<Option<(i32, i64)>, ErrorCode>;

/// What each partition answers, in order; `None` if that takes a wait which is ruled out.
fn find_all(asked: &[AskedTopic], wait: Wait) -> Option<Vec<Outcome>> {
    let parts = asked.iter().flat_map(|topic| &topic.partitions);
    let found = parts.map(|(part, partition)| match partition {
        Some(partition) => end_of(partition, part, wait),
        None => Some(Err(ErrorCode::UNKNOWN_TOPIC_OR_PARTITION)),
    });
    found.collect()
}

fn answer(reply: Reply, asked: &[AskedTopic], found: Vec<Outcome>) {
    let mut found = found.into_iter();
    let topics = asked.iter().map(|topic| {
        let parts = topic.partitions.iter().zip(found.by_ref()).map(|((part, _), outcome)| {
            let mut answer =
                EpochEndOffset { partition: part.partition, ..EpochEndOffset::default() };
            match outcome {
                Ok(Some((epoch, end))) => (answer.leader_epoch, answer.end_offset) = (epoch, end),
                // An epoch that this log knows nothing of: -1 and -1.
                Ok(None) => {}
                Err(error) => answer.error_code = error,
            }
            answer
        });
        OffsetForLeaderTopicResult { topic: &topic.name, partitions: parts.collect() }
    });
    let topics = topics.collect();
    reply.answer(&OffsetForLeaderEpochResponse {
        topics,
        ..OffsetForLeaderEpochResponse::default()
    });
}

/// What one partition answers; `None` if that takes a wait which is ruled out.
fn end_of(partition: &Partition, asked: &OffsetForLeaderPartition, wait: Wait) -> Option<Outcome> {
    if let Err(error) = check_epoch(asked.current_leader_epoch, partition.leader_epoch()) {
        return Some(Err(error));
    }
    let log = match partition.log_within(wait)? {
        Ok(log) => log,
        Err(error) => return Some(Err(error.code())),
    };
    Some(Ok(if asked.leader_epoch < 0 {
        None
    } else if asked.leader_epoch == partition.leader_epoch() {
        // The epoch that goes on, whether or not it has brought a record yet.
        Some((asked.leader_epoch, log.log_end()))
    } else {
        log.end_of_epoch(asked.leader_epoch)
    }))
}
