//! How long a record takes to its acknowledgement, at a fixed rate.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use ottla::{Callbacks, Producer, Record};

use crate::settings::{Settings, Values};
use crate::{Outcome, PATIENCE, Stretch, now};

/// A sleep ends late by about so much; what is left of the time is waited out awake.
const EARLY: Duration = Duration::from_micros(200);

/// What each record waited, or what became of the first that failed.
type Waited = Result<Vec<Duration>, ottla::Error>;

pub(crate) fn run(settings: &Settings) -> Outcome {
    let producer = Producer::new(&settings.options()?)?;
    let mut values = settings.values()?;
    let rate: f64 = settings.number("rate")?;
    let count = |name| -> Outcome<u32> {
        let span = settings.time(name)?.mul_f64(rate);
        Ok(u32::try_from(span.as_secs())?)
    };
    let (warm, count) = (count("warm")?, count("seconds")?);
    let waited = Arc::new(Mutex::new(Ok(Vec::new())));
    let notes = Arc::clone(&waited);
    let callbacks = producer.callbacks(move |due: Instant, result| {
        let took = now().saturating_duration_since(due);
        let mut notes = notes.lock().unwrap_or_else(PoisonError::into_inner);
        match (&mut *notes, result) {
            (Ok(all), Ok(_)) => all.push(took),
            (notes @ Ok(_), Err(error)) => *notes = Err(error),
            (Err(_), _) => {}
        }
    })?;
    let told = || -> Waited {
        let mut waited = waited.lock().unwrap_or_else(PoisonError::into_inner);
        std::mem::replace(&mut *waited, Ok(Vec::new()))
    };
    send_at_a_rate(&callbacks, settings, &mut values, warm)?;
    told()?;
    let stretch = Stretch::begin();
    send_at_a_rate(&callbacks, settings, &mut values, count)?;
    let mut waited = told()?;
    if waited.len() != usize::try_from(count)? {
        return Err(format!("told of {} records of {count}", waited.len()).into());
    }
    waited.sort_unstable();
    let at = |hundredth: usize| -> f64 {
        let place = (waited.len() * hundredth / 100).min(waited.len().saturating_sub(1));
        waited.get(place).map_or(f64::NAN, |waited| waited.as_secs_f64() * 1e6)
    };
    let (p50, p99, max) = (at(50), at(99), at(100));
    stretch.end(&format!("warm={warm} records={count} p50={p50:.1} p99={p99:.1} max={max:.1}"));
    producer.close(PATIENCE)?;
    Ok(())
}

/// Sends so many records, each when it is due, whatever became of those before; returns when the
/// callbacks' thread was told of all.
fn send_at_a_rate(
    callbacks: &Callbacks<Instant>,
    settings: &Settings,
    values: &mut Values,
    count: u32,
) -> Outcome {
    let topic = settings.word("topic")?;
    let partitions: u32 = settings.number("partitions")?;
    let every = Duration::from_secs_f64(1.0 / settings.number::<f64>("rate")?);
    let begin = now();
    for number in 0..count {
        let due = begin + every * number;
        wait_until(due);
        let partition = i32::try_from(number % partitions)?;
        let record = Record::to(topic).partition(partition).value(values.next());
        callbacks.send(&record, due)?;
    }
    callbacks.producer().flush(PATIENCE)?;
    callbacks.wait(PATIENCE)?;
    Ok(())
}

/// Sleeps until shortly before the time, and then looks at the clock.
fn wait_until(due: Instant) {
    let ahead = due.saturating_duration_since(now()).saturating_sub(EARLY);
    if !ahead.is_zero() {
        std::thread::sleep(ahead);
    }
    while now() < due {
        std::hint::spin_loop();
    }
}
