//! DescribeProducers: the idempotent producers that a partition remembers (KIP-664).

use std::sync::Arc;

use ottla_protocol::ErrorCode;
use ottla_protocol::messages::describe_producers_response::{
    PartitionResponse, ProducerState, TopicResponse,
};
use ottla_protocol::messages::{DescribeProducersRequest, DescribeProducersResponse};
use ottla_storage::ActiveProducer;

use crate::driver::collect::collect;
use crate::driver::partition::{AppendError, Chore};
use crate::node::Node;
use crate::server::dispatch::RequestInfo;
use crate::server::outbox::Reply;

/// What a partition told.
type Told = Result<Vec<ActiveProducer>, AppendError>;

/// A topic as asked for, and its partitions: refused at once, or with the place of what is told.
type Asked = (String, Vec<(i32, Result<usize, ErrorCode>)>);

/// Asks the owner of each log; answers when all have told.
pub(crate) fn handle(
    node: &Arc<Node>,
    _info: RequestInfo<'_>,
    request: DescribeProducersRequest<'_>,
    reply: Reply,
) {
    let known = node.topics.load();
    let mut partitions = Vec::new();
    let topics = request.topics.iter().map(|asked| {
        let topic = known.named(asked.name);
        let indexes = asked.partition_indexes.iter().map(|index| {
            let partition = topic.and_then(|topic| topic.partition(*index));
            let place = partition.map(|partition| {
                partitions.push(partition.clone());
                partitions.len() - 1
            });
            (*index, place.ok_or(ErrorCode::UNKNOWN_TOPIC_OR_PARTITION))
        });
        (asked.name.to_owned(), indexes.collect())
    });
    let topics: Vec<Asked> = topics.collect();
    let put = collect(partitions.len(), move |told: Vec<Told>| answer(reply, &topics, &told));
    for (place, partition) in partitions.iter().enumerate() {
        let put = put.clone();
        partition.push_chore(Chore::Producers { done: Box::new(move |told| put(place, told)) });
    }
}

fn answer(reply: Reply, topics: &[Asked], told: &[Told]) {
    let topics = topics.iter().map(|(name, partitions)| {
        let partitions = partitions.iter().map(|(index, place)| {
            let mut partition =
                PartitionResponse { partition_index: *index, ..PartitionResponse::default() };
            match place.map(|place| told.get(place)) {
                Ok(Some(Ok(producers))) => {
                    partition.active_producers = producers.iter().map(shown).collect();
                }
                Ok(Some(Err(error))) => partition.error_code = error.code(),
                Ok(None) => partition.error_code = ErrorCode::UNKNOWN_SERVER_ERROR,
                Err(error) => partition.error_code = error,
            }
            partition
        });
        TopicResponse { name, partitions: partitions.collect() }
    });
    let topics = topics.collect();
    reply.answer(&DescribeProducersResponse { topics, ..DescribeProducersResponse::default() });
}

fn shown(producer: &ActiveProducer) -> ProducerState {
    ProducerState {
        producer_id: producer.id,
        producer_epoch: i32::from(producer.epoch),
        last_sequence: producer.last_sequence,
        last_timestamp: producer.last_timestamp,
        coordinator_epoch: producer.coordinator_epoch,
        current_txn_start_offset: producer.open_from,
    }
}
