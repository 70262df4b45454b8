//! Answers to the parts of one question, until the last is there.

use std::sync::{Arc, Mutex, PoisonError};

struct Collecting<T> {
    open: usize,
    parts: Vec<Option<T>>,
    whole: Option<Box<dyn FnOnce(Vec<T>) + Send>>,
}

/// Calls `whole` with all parts, in order, when the last of `count` is given.
///
/// What is returned takes a part's place and the part, each place once.
pub(crate) fn collect<T: Send + 'static>(
    count: usize,
    whole: impl FnOnce(Vec<T>) + Send + 'static,
) -> impl Fn(usize, T) + Clone + Send + 'static {
    let mut whole: Option<Box<dyn FnOnce(Vec<T>) + Send>> = Some(Box::new(whole));
    if count == 0
        && let Some(whole) = whole.take()
    {
        whole(Vec::new());
    }
    let parts = (0..count).map(|_| None).collect();
    let collecting = Arc::new(Mutex::new(Collecting { open: count, parts, whole }));
    move |place, part| {
        let mut collecting = collecting.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(empty @ None) = collecting.parts.get_mut(place) {
            *empty = Some(part);
            collecting.open -= 1;
        }
        if collecting.open > 0 {
            return;
        }
        let (whole, parts) = (collecting.whole.take(), std::mem::take(&mut collecting.parts));
        // It may do anything, also ask again.
        drop(collecting);
        if let Some(whole) = whole {
            whole(parts.into_iter().flatten().collect());
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    #[test]
    fn parts_come_in_any_order_and_the_whole_once() {
        let (tell, told) = mpsc::channel();
        let put = collect(3, move |parts: Vec<&str>| tell.send(parts).unwrap());
        put(2, "c");
        put(0, "a");
        put(0, "a again");
        assert!(told.try_recv().is_err());
        put(1, "b");
        assert_eq!(told.try_recv(), Ok(vec!["a", "b", "c"]));
        put(1, "late");
        assert!(told.try_recv().is_err());
    }

    #[test]
    fn of_no_parts_the_whole_is_there_at_once() {
        let (tell, told) = mpsc::channel();
        let _put = collect(0, move |parts: Vec<u8>| tell.send(parts).unwrap());
        assert_eq!(told.try_recv(), Ok(vec![]));
    }
}
