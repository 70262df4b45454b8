//! The producer behind JavaScript's `Producer`.

use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;
use std::sync::Arc;

use napi::bindgen_prelude::{Env, Function, Int32ArraySlice, Object, Uint8ArraySlice};
use napi_derive::napi;
use ottla::{Completions, Error, ErrorKind, Producer, Queued, Record, Room, Sent};

use crate::boundary::{as_millis, guard, millis};
use crate::config;
use crate::record::Packed;
use crate::signal::{Callback, Hold, Signal};
use crate::wait::{Answer, Waits};

mod line;
mod pending;

use line::{Line, Ticket};
use pending::{Pending, Whose};

/// What a send gives instead of a slot when there is no room.
const FULL: i32 = -1;
/// What a send gives if nobody waits for the record.
const FORGOTTEN: i32 = 0;

/// Topics that are known by a number at the most; one more takes the number of the oldest.
const TOPICS_MAX: usize = 1024;

#[napi(js_name = "NativeProducer")]
#[derive(Debug)]
pub(crate) struct NativeProducer {
    own: Rc<Own>,
    signal: Arc<Signal>,
    waits: Waits,
}

/// What calls that wait for room share with the producer.
#[derive(Debug)]
struct Own {
    producer: Producer,
    completions: Arc<Completions>,
    pending: RefCell<Pending>,
    topics: RefCell<Topics>,
    /// Who waits for room, in order: later records do not overtake them.
    line: Line,
    /// Those who hold their place in the line over several calls.
    turns: RefCell<HashMap<u32, Turn>>,
}

/// A place in the line that JavaScript holds over several calls.
#[derive(Debug)]
struct Turn {
    place: Ticket,
    /// The wait for room, whose time is that of all these calls together.
    room: Room,
    /// What is told of a record without room, once that time is over.
    late: Option<Error>,
}

/// Names of topics by their numbers, so that a name does not cross the border with each record.
#[derive(Debug, Default)]
struct Topics {
    names: Vec<Arc<str>>,
    /// The number that the next one gets.
    next: usize,
}

impl Topics {
    fn add(&mut self, name: Arc<str>) -> u32 {
        let number = self.next;
        match self.names.get_mut(number) {
            Some(oldest) => *oldest = name,
            None => self.names.push(name),
        }
        self.next = (number + 1) % TOPICS_MAX;
        u32::try_from(number).unwrap_or(u32::MAX)
    }
}

/// Packed records that wait for room.
struct Parcel {
    topic: Arc<str>,
    numbers: Vec<i32>,
    bytes: Vec<u8>,
    value: Option<Vec<u8>>,
}

#[napi]
impl NativeProducer {
    /// A producer of these options.
    #[napi(constructor)]
    pub fn new(
        env: &Env,
        options: Vec<(String, String)>,
        on_signal: Callback,
    ) -> napi::Result<Self> {
        guard(env, || {
            let options = config::options(&options)?;
            let producer = Producer::new(&options)?;
            let signal = Signal::new(on_signal);
            let bell = Arc::clone(&signal);
            let own = Own {
                producer,
                completions: Completions::new(move || bell.raise()),
                pending: RefCell::default(),
                topics: RefCell::default(),
                line: Line::default(),
                turns: RefCell::default(),
            };
            let waits = Waits::new(Arc::clone(&signal));
            Ok(Self { own: Rc::new(own), signal, waits })
        })
    }

    /// A number for a topic, for calls that send to it. It was that of the topic for which the
    /// number was asked first, if there are too many.
    #[napi]
    pub fn topic(&self, env: &Env, name: String) -> napi::Result<u32> {
        guard(env, || Ok(self.own.topics.borrow_mut().add(name.into())))
    }

    /// How many milliseconds a close may take that is given no time.
    #[napi(getter)]
    pub fn close_timeout(&self) -> f64 {
        as_millis(self.own.producer.close_timeout())
    }

    /// A function that sends one record, and gives the slot that its outcome will come with.
    ///
    /// Not a method: looking up what a method is called on would cost as much as the rest. It takes
    /// the topic's number, a record's numbers and bytes, and its value if that is large.
    #[napi]
    pub fn sender<'env>(
        &self,
        env: &'env Env,
        awaited: bool,
    ) -> napi::Result<Function<'env, (), i32>> {
        let own = Rc::clone(&self.own);
        env.create_function_from_closure("send", move |call| {
            let (topic, numbers) = (call.get(0)?, call.get::<Int32ArraySlice<'_>>(1)?);
            let bytes: Uint8ArraySlice<'_> = call.get(2)?;
            let large = (call.length() > 3).then(|| call.get::<Uint8ArraySlice<'_>>(3));
            let large = large.transpose()?;
            guard(call.env, || Ok(own.send(topic, &numbers, &bytes, large.as_deref(), awaited)?))
        })
    }

    /// Sends one record when there is room for it: a call that gives the slot.
    #[napi]
    pub fn send_later(
        &self,
        env: &Env,
        topic: u32,
        numbers: Int32ArraySlice<'_>,
        bytes: Uint8ArraySlice<'_>,
        value: Option<Uint8ArraySlice<'_>>,
    ) -> napi::Result<u32> {
        guard(env, || {
            let parcel = self.own.parcel(topic, &numbers, &bytes, value.as_deref())?;
            let queued = self.own.queue(&parcel)?;
            let (own, ticket) = (Rc::clone(&self.own), self.own.line.join());
            Ok(self.waits.start(async move {
                let _counted = queued;
                let mut packed = parcel.unpack();
                let record = packed.next(&parcel.topic)?;
                // Its time runs from now on, whoever is before it in the line.
                let mut room = own.producer.room(record.size());
                (&mut room).await?;
                ticket.reached().await;
                let sent = own.send_when_room(&record, &mut room).await?;
                Ok(Answer::Slot(own.keep(&sent, Whose::One)))
            }))
        })
    }

    /// Begins a report on so many records.
    #[napi]
    pub fn open_report(&self, rows: u32) -> u32 {
        self.own.pending.borrow_mut().open_report(rows)
    }

    /// A row of a report is not for us to tell of.
    #[napi]
    pub fn skip_row(&self, report: u32) {
        self.own.pending.borrow_mut().skip(report);
    }

    /// Nobody waits for a report any more.
    #[napi]
    pub fn drop_report(&self, report: u32) {
        self.own.pending.borrow_mut().drop_report(report);
    }

    /// Sends records of a report, the first of them in row `first`, until one finds no room; gives
    /// how many that were.
    #[napi]
    #[allow(clippy::too_many_arguments, reason = "numbers cross the border one by one")]
    pub fn send_rows(
        &self,
        env: &Env,
        topic: u32,
        numbers: Int32ArraySlice<'_>,
        bytes: Uint8ArraySlice<'_>,
        report: u32,
        first: u32,
        count: u32,
    ) -> napi::Result<u32> {
        guard(env, || {
            if !self.own.line.is_empty() {
                return Ok(0);
            }
            let name = self.own.topic(topic)?;
            let mut packed = Packed::new(&numbers, &bytes, None);
            for row in 0..count {
                let whose = Whose::Row { report, row: first + row };
                match self.own.producer.try_send(&packed.next(&name)?) {
                    Ok(sent) => {
                        self.own.keep(&sent, whose);
                    }
                    Err(error) if is_full(&error) => return Ok(row),
                    Err(error) => self.own.pending.borrow_mut().refuse(report, first + row, error),
                }
            }
            Ok(count)
        })
    }

    /// A place in the line of those who wait for room, held until it is left.
    #[napi]
    pub fn join_line(&self) -> u32 {
        let (place, room) = (self.own.line.join(), self.own.producer.room(0).begun());
        let number = place.number();
        self.own.turns.borrow_mut().insert(number, Turn { place, room, late: None });
        number
    }

    /// Leaves the line.
    #[napi]
    pub fn leave_line(&self, ticket: u32) {
        let _left = self.own.turns.borrow_mut().remove(&ticket);
    }

    /// Sends records of a report but the first `taken` as there comes to be room for them.
    #[napi]
    #[allow(clippy::too_many_arguments, reason = "numbers cross the border one by one")]
    pub fn send_rows_later(
        &self,
        env: &Env,
        topic: u32,
        numbers: Int32ArraySlice<'_>,
        bytes: Uint8ArraySlice<'_>,
        report: u32,
        first: u32,
        count: u32,
        taken: u32,
        ticket: u32,
    ) -> napi::Result<u32> {
        guard(env, || {
            let parcel = self.own.parcel(topic, &numbers, &bytes, None)?;
            let own = Rc::clone(&self.own);
            let reached = own.turns.borrow().get(&ticket).map(|turn| turn.place.reached());
            Ok(self.waits.start(async move {
                if let Some(reached) = reached {
                    reached.await;
                }
                let turn = own.turns.borrow_mut().remove(&ticket);
                if let Some(mut turn) = turn {
                    own.send_rest(&parcel, report, first, count, taken, &mut turn).await?;
                    own.turns.borrow_mut().insert(ticket, turn);
                }
                Ok(Answer::Done)
            }))
        })
    }

    /// Waits for room for a record of so many bytes.
    #[napi]
    pub fn room(&self, env: &Env, bytes: u32) -> napi::Result<u32> {
        guard(env, || {
            let room = self.own.producer.room(usize::try_from(bytes).unwrap_or(usize::MAX));
            Ok(self.started(room))
        })
    }

    /// Sends all at once, and waits for what becomes of it.
    #[napi]
    pub fn flush(&self, env: &Env) -> napi::Result<u32> {
        guard(env, || Ok(self.started(self.own.producer.flush_async())))
    }

    /// Refuses further records, delivers those there are, and ends, within so many milliseconds.
    #[napi]
    pub fn close(&self, env: &Env, timeout: f64) -> napi::Result<u32> {
        guard(env, || Ok(self.started(self.own.producer.close_async(millis(timeout)))))
    }

    /// Waits until records fail that nobody waits for, and fails with their error.
    #[napi]
    pub fn failure(&self) -> u32 {
        let failure = self.own.producer.failure();
        self.waits.start(async move { Err(failure.await) })
    }

    /// Nobody waits for that call any more.
    #[napi]
    pub fn forget(&self, number: u32) {
        self.waits.forget(number);
    }

    /// Keeps the process alive, or no longer.
    #[napi]
    pub fn hold(&self, env: &Env, alive: bool) -> napi::Result<()> {
        self.signal.hold(env, if alive { Hold::Alive } else { Hold::Loose })
    }

    /// What has happened: calls that ended, and records and reports of so many batches at most.
    #[napi]
    pub fn drain<'env>(&self, env: &'env Env, batches: u32) -> napi::Result<Object<'env>> {
        guard(env, || {
            self.signal.lower();
            let mut news = Object::new(env)?;
            if let Some(calls) = self.waits.drain(env)? {
                news.set("calls", calls)?;
            }
            let batches = usize::try_from(batches).unwrap_or(usize::MAX);
            let completed = self.own.completions.drain(batches);
            self.own.pending.borrow_mut().settle(env, &completed, &mut news)?;
            news.set("more", !self.own.completions.is_empty())?;
            Ok(news)
        })
    }
}

impl NativeProducer {
    fn started(&self, call: impl Future<Output = Result<(), Error>> + 'static) -> u32 {
        self.waits.start(async move { call.await.map(|()| Answer::Done) })
    }
}

impl Own {
    fn send(
        &self,
        topic: u32,
        numbers: &[i32],
        bytes: &[u8],
        large: Option<&[u8]>,
        awaited: bool,
    ) -> Result<i32, Error> {
        if !self.line.is_empty() {
            return Ok(FULL);
        }
        let name = self.topic(topic)?;
        let mut packed = Packed::new(numbers, bytes, large);
        match self.producer.try_send(&packed.next(&name)?) {
            Ok(sent) if awaited => Ok(self.keep(&sent, Whose::One)),
            Ok(_forgotten) => Ok(FORGOTTEN),
            Err(error) if is_full(&error) => Ok(FULL),
            Err(error) => Err(error),
        }
    }

    fn topic(&self, number: u32) -> Result<Arc<str>, Error> {
        let names = &self.topics.borrow().names;
        let topic = usize::try_from(number).ok().and_then(|number| names.get(number));
        topic.cloned().ok_or_else(|| Error::new(ErrorKind::Internal, "no topic of that number"))
    }

    /// Keeps a record's token until its outcome is known, which rings the bell.
    fn keep(&self, sent: &Sent, whose: Whose) -> i32 {
        let slot = self.pending.borrow_mut().keep(sent, whose);
        sent.notify(&self.completions);
        slot
    }

    fn parcel(
        &self,
        topic: u32,
        numbers: &[i32],
        bytes: &[u8],
        value: Option<&[u8]>,
    ) -> Result<Parcel, Error> {
        Ok(Parcel {
            topic: self.topic(topic)?,
            numbers: numbers.to_vec(),
            bytes: bytes.to_vec(),
            value: value.map(<[u8]>::to_vec),
        })
    }

    /// Counts a record that waits for room, for as long as what this gives lives.
    fn queue(&self, parcel: &Parcel) -> Result<Queued, Error> {
        self.producer.queue(&parcel.unpack().next(&parcel.topic)?)
    }

    async fn send_when_room(&self, record: &Record<'_>, room: &mut Room) -> Result<Sent, Error> {
        loop {
            // The caller has waited for room before, which is kept for this try.
            match self.producer.try_send(record) {
                Err(error) if is_full(&error) => (&mut *room).await?,
                other => return other,
            }
        }
    }

    /// Sends a record when there is room for it, in what is left of the turn's time.
    async fn send_in_turn(&self, record: &Record<'_>, turn: &mut Turn) -> Result<Sent, Error> {
        match self.producer.try_send(record) {
            Err(error) if is_full(&error) => {}
            other => return other,
        }
        if let Some(late) = &turn.late {
            return Err(late.clone());
        }
        turn.room.for_next(record.size());
        let sent = self.send_when_room(record, &mut turn.room).await;
        turn.late = sent.as_ref().err().filter(|error| is_full(error)).cloned();
        sent
    }

    #[allow(clippy::too_many_arguments, reason = "what send_rows_later is given, one by one")]
    async fn send_rest(
        &self,
        parcel: &Parcel,
        report: u32,
        first: u32,
        count: u32,
        taken: u32,
        turn: &mut Turn,
    ) -> Result<(), Error> {
        let mut packed = parcel.unpack();
        for row in 0..count {
            let record = packed.next(&parcel.topic)?;
            if row < taken {
                continue;
            }
            match self.send_in_turn(&record, turn).await {
                Ok(sent) => {
                    self.keep(&sent, Whose::Row { report, row: first + row });
                }
                Err(error) => self.pending.borrow_mut().refuse(report, first + row, error),
            }
        }
        Ok(())
    }
}

impl Parcel {
    fn unpack(&self) -> Packed<'_> {
        Packed::new(&self.numbers, &self.bytes, self.value.as_deref())
    }
}

/// Whether a record was given back for want of room.
fn is_full(error: &Error) -> bool {
    error.kind() == ErrorKind::BufferFull
}
