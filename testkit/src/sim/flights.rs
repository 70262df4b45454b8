//! Batches on their way, as the network sees them: what is sent again goes alone, and
//! nothing goes behind what has expired.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use ottla_protocol::frame::decode_request;
use ottla_protocol::messages::produce_request::ProduceRequest;
use ottla_protocol::record::{Batch as Records, BatchHeader};

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
    /// When its records' time is over, in milliseconds on the wall.
    over_ms: i64,
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
        let delivery_ms = world.plan.delivery_ms(client).unwrap_or(i64::MAX);
        for topic in &request.topic_data {
            for data in &topic.partition_data {
                let place = world.place_of(topic.name, topic.topic_id, data.index);
                let batch = data.records.bytes().and_then(|bytes| Records::parse(bytes).ok());
                let Some((place, batch)) = place.zip(batch) else { continue };
                if batch.header.base_sequence < 0 {
                    continue;
                }
                let mut lines = self.0.borrow_mut();
                let line = lines.entry((Rc::clone(client), place)).or_default();
                let again = !line.written.insert(name(&batch.header));
                if let Some(fault) = line.fault(&batch.header, again) {
                    let batch = name(&batch.header);
                    world.finding(format!("{client}: {batch:?} goes to {place:?} {fault}"));
                }
                let correlation_id = header.correlation_id;
                let over_ms = batch.header.base_timestamp.saturating_add(delivery_ms);
                line.flights.push(Flight { conn, correlation_id, again, over_ms });
            }
        }
    }

    /// An answer has come to a client.
    pub(crate) fn land(&self, world: &World, conn: u64, answer: &[u8]) {
        let Some(id) = answer.get(4..).and_then(<[u8]>::first_chunk::<4>) else { return };
        let id = i32::from_be_bytes(*id);
        self.forget(world, |flight| flight.conn == conn && flight.correlation_id == id);
    }

    /// A connection is no more.
    pub(crate) fn lose(&self, world: &World, conn: u64) {
        self.forget(world, |flight| flight.conn == conn);
    }

    fn forget(&self, world: &World, over: impl Fn(&Flight) -> bool) {
        let now_ms = world.wall_ms();
        for line in self.0.borrow_mut().values_mut() {
            line.flights.retain(|flight| {
                let over = over(flight);
                if over && flight.over_ms < now_ms {
                    world.sometimes("a batch's time is over on its way");
                }
                !over
            });
        }
    }
}

impl Line {
    /// Which rule it breaks to send a batch now.
    fn fault(&self, batch: &BatchHeader, again: bool) -> Option<&'static str> {
        let expired = |flight: &Flight| flight.over_ms < batch.base_timestamp;
        if again && !self.flights.is_empty() {
            Some("again while others are on their way")
        } else if self.flights.iter().any(|flight| flight.again) {
            Some("behind one that goes again")
        } else if self.flights.iter().any(expired) {
            // Its record was sent when that one's were told that their time was over.
            Some("behind one whose time is over")
        } else {
            None
        }
    }
}

const fn name(batch: &BatchHeader) -> Batch {
    (batch.producer_id, batch.producer_epoch, batch.base_sequence, batch.crc)
}
