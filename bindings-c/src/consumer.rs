//! Reading records, as a member of a group.
#![allow(unsafe_code, reason = "functions for C, and pointers that C gives")]

use std::collections::BTreeSet;
use std::ffi::{CStr, CString, c_char, c_int};
use std::ptr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use ottla::{Batch, Commit, Consumer, Error, TopicPartition};

use crate::batch::ottla_batch_t;
use crate::boundary::{array, guard, guard_give, guard_or, limit, refused, text};
use crate::config;
use crate::error::{c_text, ottla_error_t};
use crate::handle::{self, Held};
use crate::log;
use crate::record::ottla_topic_partition_t;
use crate::signal::{Deadline, EventFd};

/// Whether a commit waits. Values may be added.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ottla_commit_t {
    /// Wait until the group's coordinator has it, for default.api.timeout.ms at most.
    OTTLA_COMMIT_SYNC = 0,
    /// Do not wait: one request at a time, newer offsets in the place of older ones that wait.
    OTTLA_COMMIT_SOON = 1,
}

impl ottla_commit_t {
    fn of(mode: c_int) -> Result<Self, Error> {
        match mode {
            0 => Ok(Self::OTTLA_COMMIT_SYNC),
            1 => Ok(Self::OTTLA_COMMIT_SOON),
            _ => Err(refused("mode", format_args!("is {mode}: no value of ottla_commit_t"))),
        }
    }
}

/// Reads topics, sharing their partitions with the other members of its group, or the partitions that
/// it is told to: see ottla_consumer_assign. Made by ottla_consumer_new.
///
/// Any thread may use it, but records are meant to be polled for by one at a time: a poll counts as
/// finished what the poll before it gave.
#[derive(Debug)]
pub struct ottla_consumer_t {
    pub(crate) consumer: Held<Consumer>,
    ready: Arc<EventFd>,
    woken: AtomicBool,
    /// Names of topics that C was given pointers to.
    topics: Mutex<BTreeSet<CString>>,
}

impl ottla_consumer_t {
    fn poll(&self, timeout: Duration) -> Result<Option<Batch>, Error> {
        let consumer = self.consumer.get()?;
        let deadline = Deadline::after(timeout);
        loop {
            // Cleared before the look: what comes after it makes it readable again.
            self.ready.clear();
            if self.woken.swap(false, Ordering::SeqCst) {
                self.ready.raise();
                return Ok(None);
            }
            match consumer.try_poll_batch() {
                Ok(None) => {}
                found => {
                    // More may wait; only a poll that finds nothing can tell.
                    self.ready.raise();
                    return found;
                }
            }
            let left = deadline.left();
            if left.is_zero() {
                // Tells the reason if there can be no records.
                return consumer.poll_batch(Duration::ZERO);
            }
            self.ready.wait(left);
        }
    }

    pub(crate) fn commit(&self, what: Commit<'_>, mode: c_int) -> Result<(), Error> {
        let consumer = self.consumer.get()?;
        match ottla_commit_t::of(mode)? {
            ottla_commit_t::OTTLA_COMMIT_SYNC => consumer.commit(what, consumer.api_timeout()),
            ottla_commit_t::OTTLA_COMMIT_SOON => consumer.commit_soon(what),
        }
    }

    /// A topic's name for C, good for as long as the consumer.
    fn topic(&self, name: &str) -> *const c_char {
        let name = c_text(name);
        let mut topics = self.topics.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = topics.get(&name) {
            return CStr::as_ptr(known);
        }
        // The text is on the heap: it stays where it is while the set moves its owner about.
        let pointer = CStr::as_ptr(&name);
        topics.insert(name);
        pointer
    }
}

/// Partitions that C names.
///
/// # Safety
///
/// As of [`array`], and the topics are null or texts.
pub(crate) unsafe fn partitions(
    first: *const ottla_topic_partition_t,
    len: usize,
) -> Result<Vec<TopicPartition>, Error> {
    // SAFETY: this function's contract.
    let given = unsafe { array(first, len, "partitions") }?;
    let each = given.iter().enumerate().map(|(index, given)| {
        // SAFETY: this function's contract.
        let topic = unsafe { text(given.topic, format_args!("partitions[{index}].topic")) }?;
        Ok(TopicPartition::new(topic, given.partition))
    });
    each.collect()
}

/// Makes a consumer. Nothing is connected or resolved before it subscribes.
///
/// options is name=value pairs separated by ; or new lines, by Kafka's names or our short ones;
/// bootstrap.servers is needed, and group.id to subscribe. Borrowed for the call.
///
/// Gives the consumer, to be ended by ottla_consumer_free; or NULL, and an error through err, which
/// may be NULL. Any thread.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ottla_consumer_new(
    options: *const c_char,
    err: *mut *mut ottla_error_t,
) -> *mut ottla_consumer_t {
    let body = || {
        // SAFETY: the header asks for NULL or a text.
        let options = unsafe { config::options(options) }?;
        let consumer = Consumer::new(&options)?;
        let ready = EventFd::new()?;
        let hook = Arc::clone(&ready);
        consumer.on_ready(move || hook.raise());
        let consumer = Held::new(consumer)?;
        let (woken, topics) = (AtomicBool::new(false), Mutex::default());
        Ok(handle::give(ottla_consumer_t { consumer, ready, woken, topics }))
    };
    // SAFETY: the header asks for NULL or a place for an error.
    unsafe { guard_give(err, body) }
}

/// Reads these topics, and no others from now on; none: leaves the group.
///
/// topics and its texts are borrowed for the call. Gives NULL, or an error to be freed. Any thread.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ottla_consumer_subscribe(
    consumer: *const ottla_consumer_t,
    topics: *const *const c_char,
    topics_len: usize,
) -> *mut ottla_error_t {
    guard(|| {
        // SAFETY: the header asks for NULL or a consumer that is not freed.
        let consumer = unsafe { handle::borrow(consumer, "consumer") }?;
        // SAFETY: the header asks for an array of that length.
        let given = unsafe { array(topics, topics_len, "topics") }?;
        let mut topics = Vec::with_capacity(given.len());
        for (index, &topic) in given.iter().enumerate() {
            // SAFETY: the header asks for texts in it.
            topics.push(unsafe { text(topic, format_args!("topics[{index}]")) }?);
        }
        Ok(consumer.consumer.get()?.subscribe(&topics)?)
    })
}

/// Reads the topics whose whole names match a regular expression, and no others from now on; also
/// those that come later, from their beginning, as soon as the metadata tell of them
/// (metadata.max.age.ms). Kafka's internal topics only with exclude.internal.topics=false.
///
/// pattern is in the syntax of Rust's crate regex, which is RE2's but for little, and borrowed for the
/// call. Gives NULL, or an error to be freed: OTTLA_ERR_INVALID_GROUP without group.id,
/// OTTLA_ERR_INVALID_ARGUMENT for what cannot be read, or grows beyond 1 MiB. Any thread.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ottla_consumer_subscribe_pattern(
    consumer: *const ottla_consumer_t,
    pattern: *const c_char,
) -> *mut ottla_error_t {
    guard(|| {
        // SAFETY: the header asks for NULL or a consumer that is not freed, and for a text.
        let (consumer, pattern) =
            unsafe { (handle::borrow(consumer, "consumer")?, text(pattern, "pattern")?) };
        Ok(consumer.consumer.get()?.subscribe_pattern(pattern)?)
    })
}

/// Reads these partitions, and no others from now on, without a group that shares them out; none:
/// reads nothing. What was read before and is among them is read on from where it stands.
///
/// With group.id reading begins at what the group has committed, and commits go there; the group
/// should have no members, or it refuses them with OTTLA_ERR_COMMIT_FENCED. Without it reading begins
/// by auto.offset.reset, and commits are refused. No time between polls is too long. A partition that
/// does not exist yet is waited for, then read from its beginning; a poll whose time is over meanwhile
/// gives OTTLA_ERR_UNKNOWN_TOPIC.
///
/// partitions and its texts are borrowed for the call. Gives NULL, or an error to be freed:
/// OTTLA_ERR_INVALID_STATE while topics are subscribed to. Any thread.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ottla_consumer_assign(
    consumer: *const ottla_consumer_t,
    partitions: *const ottla_topic_partition_t,
    partitions_len: usize,
) -> *mut ottla_error_t {
    guard(|| {
        // SAFETY: the header asks for NULL or a consumer that is not freed.
        let consumer = unsafe { handle::borrow(consumer, "consumer") }?;
        // SAFETY: the header asks for an array of that length with texts in it.
        let partitions = unsafe { self::partitions(partitions, partitions_len) }?;
        Ok(consumer.consumer.get()?.assign(&partitions)?)
    })
}

/// The next batch of records, all of one partition. Waits for up to timeout_ms; below 0 without
/// limit.
///
/// Gives a batch, to be freed by ottla_batch_free; or NULL: if the time is over or after
/// ottla_consumer_wakeup without an error, else with one through err, to be freed. Unless that is of
/// a fatal kind, the next call goes on. err may be NULL; it is always written.
///
/// One thread at a time.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ottla_consumer_poll(
    consumer: *const ottla_consumer_t,
    timeout_ms: i32,
    err: *mut *mut ottla_error_t,
) -> *mut ottla_batch_t {
    let body = || {
        // SAFETY: the header asks for NULL or a consumer that is not freed.
        let consumer = unsafe { handle::share(consumer, "consumer") }?;
        consumer.consumer.get()?;
        log::hand_on_now();
        let found = consumer.poll(limit(timeout_ms))?;
        Ok(found.map_or(ptr::null_mut(), |batch| handle::give(ottla_batch_t::new(batch))))
    };
    // SAFETY: the header asks for NULL or a place for an error.
    unsafe { guard_give(err, body) }
}

/// A descriptor that is readable while a batch, an error or a wake-up waits: poll with timeout 0
/// until that gives nothing. It may be readable once more than needed.
///
/// The consumer's: watch it, but do not read or close it. -1 if consumer is NULL. Any thread.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ottla_consumer_fd(consumer: *const ottla_consumer_t) -> c_int {
    guard_or(-1, || {
        // SAFETY: the header asks for NULL or a consumer that is not freed.
        let consumer = unsafe { handle::borrow(consumer, "consumer") };
        consumer.map_or(-1, |consumer| consumer.ready.number())
    })
}

/// Ends a poll that waits in another thread, or else the next one, which gives NULL without an
/// error. NULL is legal. Any thread; also from a signal handler.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ottla_consumer_wakeup(consumer: *const ottla_consumer_t) {
    guard_or((), || {
        // SAFETY: the header asks for NULL or a consumer that is not freed.
        let consumer = unsafe { consumer.as_ref() };
        // A child of a fork shares the descriptor with its parent, whose poll it is.
        if let Some(consumer) = consumer.filter(|consumer| consumer.consumer.is_ours()) {
            // No lock and no allocation: this is for signal handlers too.
            consumer.woken.store(true, Ordering::SeqCst);
            consumer.ready.raise();
        }
    });
}

/// Tells that the program lives while it works longer on what it was given than
/// max.poll.interval.ms, which counts anew from here. Unlike a poll it finishes nothing. NULL is
/// legal. Any thread.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ottla_consumer_keep_alive(consumer: *const ottla_consumer_t) {
    guard_or((), || {
        // SAFETY: the header asks for NULL or a consumer that is not freed.
        let consumer = unsafe { consumer.as_ref() };
        if let Some(Ok(consumer)) = consumer.map(|consumer| consumer.consumer.get()) {
            consumer.keep_alive();
        }
    });
}

/// Commits a batch, and all before it in its partition. mode is a value of ottla_commit_t.
///
/// batch is borrowed for the call. Gives NULL, or an error to be freed. Any thread.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ottla_consumer_commit_batch(
    consumer: *const ottla_consumer_t,
    batch: *const ottla_batch_t,
    mode: c_int,
) -> *mut ottla_error_t {
    guard(|| {
        // SAFETY: the header asks for NULL, or a consumer and a batch that are not freed.
        let (consumer, batch) =
            unsafe { (handle::borrow(consumer, "consumer")?, handle::borrow(batch, "batch")?) };
        Ok(consumer.commit(Commit::Batch(batch.core()), mode)?)
    })
}

/// The program has finished its work on records of a batch: so many, from an index on.
///
/// With acknowledgement=explicit, where no poll finishes anything: in any order and without a
/// request, since commits and the close tell the group. The first unfinished record is committed, and
/// what is finished behind it beside that: a consumer that reads on from there is given only the
/// rest. batch is borrowed for the call. Gives NULL, or an error to be freed. Any thread.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ottla_consumer_acknowledge(
    consumer: *const ottla_consumer_t,
    batch: *const ottla_batch_t,
    index: usize,
    records: usize,
) -> *mut ottla_error_t {
    guard(|| {
        // SAFETY: the header asks for NULL, or a consumer and a batch that are not freed.
        let (consumer, batch) =
            unsafe { (handle::borrow(consumer, "consumer")?, handle::borrow(batch, "batch")?) };
        let records = index..index.saturating_add(records);
        Ok(consumer.consumer.get()?.acknowledge_part(batch.core(), records)?)
    })
}

/// Commits without waiting: a batch and all before it in its partition, or, if batch is NULL, all
/// that was given out so far. Newer offsets take the place of older ones that wait.
///
/// batch is borrowed for the call. Gives NULL, or an error to be freed. Any thread.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ottla_consumer_commit_soon(
    consumer: *const ottla_consumer_t,
    batch: *const ottla_batch_t,
) -> *mut ottla_error_t {
    guard(|| {
        // SAFETY: the header asks for NULL, or a consumer and a batch that are not freed.
        let (consumer, batch) = unsafe { (handle::borrow(consumer, "consumer")?, batch.as_ref()) };
        let what = batch.map_or(Commit::Finished, |batch| Commit::Batch(batch.core()));
        Ok(consumer.consumer.get()?.commit_soon(what)?)
    })
}

/// Writes the offset of the next record to be given of a partition; -1 while it is not known, or if
/// the partition is not assigned.
///
/// topic is borrowed for the call; offset is written. Gives NULL, or an error to be freed. Any
/// thread.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ottla_consumer_position(
    consumer: *const ottla_consumer_t,
    topic: *const c_char,
    partition: i32,
    offset: *mut i64,
) -> *mut ottla_error_t {
    guard(|| {
        // SAFETY: the header asks for NULL or a consumer that is not freed, and for a text.
        let (consumer, topic) =
            unsafe { (handle::borrow(consumer, "consumer")?, text(topic, "topic")?) };
        if offset.is_null() {
            return Err(refused("offset", "is NULL").into());
        }
        let partition = TopicPartition::new(topic, partition);
        let position = consumer.consumer.get()?.position(&partition);
        // SAFETY: not null, so the header asks for a place for an offset.
        unsafe { offset.write(position.unwrap_or(-1)) };
        Ok(())
    })
}

/// Goes on with a partition from this offset: it is that of the next record given.
///
/// topic is borrowed for the call. Gives NULL, or an error to be freed. Any thread.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ottla_consumer_seek(
    consumer: *const ottla_consumer_t,
    topic: *const c_char,
    partition: i32,
    offset: i64,
) -> *mut ottla_error_t {
    guard(|| {
        // SAFETY: the header asks for NULL or a consumer that is not freed, and for a text.
        let (consumer, topic) =
            unsafe { (handle::borrow(consumer, "consumer")?, text(topic, "topic")?) };
        Ok(consumer.consumer.get()?.seek(&TopicPartition::new(topic, partition), offset)?)
    })
}

/// Gives no records of these partitions until ottla_consumer_resume; what was fetched is kept.
///
/// partitions and its texts are borrowed for the call. Gives NULL, or an error to be freed. Any
/// thread.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ottla_consumer_pause(
    consumer: *const ottla_consumer_t,
    partitions: *const ottla_topic_partition_t,
    partitions_len: usize,
) -> *mut ottla_error_t {
    guard(|| {
        // SAFETY: the header asks for NULL or a consumer that is not freed.
        let consumer = unsafe { handle::borrow(consumer, "consumer") }?;
        // SAFETY: the header asks for an array of that length, with texts in it.
        let partitions = unsafe { self::partitions(partitions, partitions_len) }?;
        Ok(consumer.consumer.get()?.pause(&partitions)?)
    })
}

/// Gives records of these partitions again.
///
/// partitions and its texts are borrowed for the call. Gives NULL, or an error to be freed. Any
/// thread.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ottla_consumer_resume(
    consumer: *const ottla_consumer_t,
    partitions: *const ottla_topic_partition_t,
    partitions_len: usize,
) -> *mut ottla_error_t {
    guard(|| {
        // SAFETY: the header asks for NULL or a consumer that is not freed.
        let consumer = unsafe { handle::borrow(consumer, "consumer") }?;
        // SAFETY: the header asks for an array of that length, with texts in it.
        let partitions = unsafe { self::partitions(partitions, partitions_len) }?;
        Ok(consumer.consumer.get()?.resume(&partitions)?)
    })
}

/// Writes the partitions that are this consumer's now, in order, as many as there is room for.
///
/// partitions has room for so many and is written; it may be NULL if room is 0. Their topics are
/// borrowed until the consumer is freed. Gives how many there are, which may be more than the room;
/// 0 if consumer is NULL. Any thread.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ottla_consumer_assignment(
    consumer: *const ottla_consumer_t,
    partitions: *mut ottla_topic_partition_t,
    room: usize,
) -> usize {
    guard_or(0, || {
        // SAFETY: the header asks for NULL or a consumer that is not freed.
        let Ok(consumer) = (unsafe { handle::borrow(consumer, "consumer") }) else { return 0 };
        let Ok(core) = consumer.consumer.get() else { return 0 };
        let assigned = core.assignment();
        let room = if partitions.is_null() { 0 } else { room };
        for (index, assigned) in assigned.iter().take(room).enumerate() {
            let topic = consumer.topic(&assigned.topic);
            let row = ottla_topic_partition_t { topic, partition: assigned.partition };
            // SAFETY: the header asks for room for so many, and the index is below that.
            unsafe { partitions.add(index).write(row) };
        }
        assigned.len()
    })
}

/// Commits what is finished, leaves the group and ends the consumer, within timeout_ms; below 0
/// without limit. A second call does nothing. Batches stay good; every other call gives
/// OTTLA_ERR_CLOSED from now on.
///
/// Gives NULL, or an error to be freed that tells what could not be done. Any thread.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ottla_consumer_close(
    consumer: *const ottla_consumer_t,
    timeout_ms: i32,
) -> *mut ottla_error_t {
    guard(|| {
        // SAFETY: the header asks for NULL or a consumer that is not freed.
        let consumer = unsafe { handle::share(consumer, "consumer") }?;
        Ok(consumer.consumer.get()?.close(limit(timeout_ms))?)
    })
}

/// Ends a consumer. One that was not closed closes in the background; this never waits. NULL is
/// legal. Any thread, once, and when no other thread uses it. Its batches stay good.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ottla_consumer_free(consumer: *mut ottla_consumer_t) {
    guard_or((), || {
        // SAFETY: the header asks for NULL or a consumer that is not freed.
        unsafe { handle::release(consumer) }
    });
}
