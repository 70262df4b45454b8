//! Batches on their way, as the network sees them: what is sent again goes alone.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use ottla_protocol::frame::decode_request;
use ottla_protocol::messages::produce_request::ProduceRequest;
use ottla_protocol::record::Batch as Records;

use super::tap::Place;
use super::world::World;

/// A batch of an idempotent producer: who, in which epoch, from which sequence on, and its CRC.
type Batch = (i64, i16, i32, u32);

/// A batch on its way.
struct Flight {
    conn: u64,
    correlation_id: i32,
    /// It was written before.
    again: bool,
}

/// What a producer has written to a partition.
#[derive(Default)]
struct Line {
    written: BTreeSet<Batch>,
    flights: Vec<Flight>,
}

/// The batches of all producers.
#[derive(Default)]
pub(crate) struct Flights(RefCell<BTreeMap<(Rc<str>, Place), Line>>);

impl Flights {
    /// A client has written a Produce request.
    pub(crate) fn take_off(&self, world: &World, conn: u64, client: &Rc<str>, frame: &[u8]) {
        let Ok((header, request)) = decode_request::<ProduceRequest<'_>>(frame) else { return };
        for topic in &request.topic_data {
            for data in &topic.partition_data {
                let place = world.place_of(topic.name, topic.topic_id, data.index);
                let batch = data.records.bytes().and_then(|bytes| Records::parse(bytes).ok());
                let Some((place, batch)) = place.zip(batch) else { continue };
                let batch = batch.header;
                if batch.base_sequence < 0 {
                    continue;
                }
                let mut lines = self.0.borrow_mut();
                let line = lines.entry((Rc::clone(client), place)).or_default();
                let batch =
                    (batch.producer_id, batch.producer_epoch, batch.base_sequence, batch.crc);
                let again = !line.written.insert(batch);
                if again && !line.flights.is_empty() {
                    let what = format!("{client}: {batch:?} goes to {place:?} again");
                    world.finding(format!("{what} while others are on their way"));
                } else if line.flights.iter().any(|flight| flight.again) {
                    let what = format!("{client}: {batch:?} goes to {place:?}");
                    world.finding(format!("{what} behind one that goes again"));
                }
                let correlation_id = header.correlation_id;
                line.flights.push(Flight { conn, correlation_id, again });
            }
        }
    }

    /// An answer has come to a client.
    pub(crate) fn land(&self, conn: u64, answer: &[u8]) {
        let Some(id) = answer.get(4..).and_then(<[u8]>::first_chunk::<4>) else { return };
        let id = i32::from_be_bytes(*id);
        self.forget(|flight| flight.conn == conn && flight.correlation_id == id);
    }

    /// A connection is no more.
    pub(crate) fn lose(&self, conn: u64) {
        self.forget(|flight| flight.conn == conn);
    }

    fn forget(&self, over: impl Fn(&Flight) -> bool) {
        for line in self.0.borrow_mut().values_mut() {
            line.flights.retain(|flight| !over(flight));
        }
    }
}
