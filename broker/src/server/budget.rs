//! How many bytes of requests may be in memory, and who has them.

use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::driver::first::{First, first};

/// Requests up to this size have a share of the budget to themselves.
pub(crate) const SMALL_FRAME: usize = 64 * 1024;

/// Large requests are charged as they arrive, in steps of so many bytes.
pub(crate) const STEP: usize = 64 * 1024;

/// The budget of one broker for requests, from their first byte to their answer.
///
/// Small requests have a quarter to themselves, and are charged when they are whole, so that a few
/// large ones, or any number of half-sent ones, starve nobody.
///
/// A large one holds what it was charged while it waits for more, and many such could wait for each
/// other. So one at a time, and only while the budget is used up, may go on without it.
#[derive(Debug)]
pub(crate) struct RequestBudget {
    small: Arc<Semaphore>,
    large: Arc<Semaphore>,
    large_bytes: usize,
    beyond: Arc<Semaphore>,
}

/// Bytes taken from the budget; they go back when this is dropped.
#[derive(Debug)]
pub(crate) struct Charge {
    share: Arc<Semaphore>,
    permit: Option<OwnedSemaphorePermit>,
    beyond: Arc<Semaphore>,
    /// This request is the one that goes on without the budget.
    is_beyond: Option<OwnedSemaphorePermit>,
}

impl RequestBudget {
    /// A budget of so many bytes.
    pub(crate) fn new(bytes: usize) -> Self {
        let bytes = bytes.min(Semaphore::MAX_PERMITS);
        let large_bytes = bytes - bytes / 4;
        Self {
            small: Arc::new(Semaphore::new(bytes / 4)),
            large: Arc::new(Semaphore::new(large_bytes)),
            large_bytes,
            beyond: Arc::new(Semaphore::new(1)),
        }
    }

    /// An account for a request of that size, with nothing taken yet.
    ///
    /// None if it is larger than all that requests may have.
    pub(crate) fn account(&self, frame: usize) -> Option<Charge> {
        let share = if frame <= SMALL_FRAME { &self.small } else { &self.large };
        (frame <= SMALL_FRAME || frame <= self.large_bytes).then(|| Charge {
            share: share.clone(),
            permit: None,
            beyond: self.beyond.clone(),
            is_beyond: None,
        })
    }
}

impl Charge {
    /// Takes more bytes until there are `bytes` of them, if they are there and nobody waits.
    pub(crate) fn try_reach(&mut self, bytes: usize) -> bool {
        let Some(wanted) = self.missing(bytes) else { return true };
        match self.share.clone().try_acquire_many_owned(wanted) {
            Ok(permit) => {
                self.add(permit);
                true
            }
            Err(_none_left) => false,
        }
    }

    /// Takes more bytes until there are `bytes` of them, once they are there.
    pub(crate) async fn reach(&mut self, bytes: usize) {
        let Some(wanted) = self.missing(bytes) else { return };
        let taken = self.share.clone().acquire_many_owned(wanted);
        // The semaphores are never closed, so an error cannot come; it would only leave a request
        // uncharged.
        match first(taken, self.beyond.clone().acquire_owned()).await {
            First::A(Ok(permit)) => self.add(permit),
            First::B(Ok(permit)) => self.is_beyond = Some(permit),
            First::A(Err(_)) | First::B(Err(_)) => {}
        }
    }

    /// How many bytes are to be taken, if any are.
    fn missing(&self, bytes: usize) -> Option<u32> {
        let held = self.permit.as_ref().map_or(0, OwnedSemaphorePermit::num_permits);
        let missing = bytes.saturating_sub(held);
        (missing > 0 && self.is_beyond.is_none())
            .then(|| u32::try_from(missing).unwrap_or(u32::MAX))
    }

    fn add(&mut self, permit: OwnedSemaphorePermit) {
        match &mut self.permit {
            Some(held) => held.merge(permit),
            none => *none = Some(permit),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_requests_are_served_when_large_ones_hold_everything() {
        let budget = RequestBudget::new(1024 * 1024);
        let mut large = budget.account(768 * 1024).expect("within the budget");
        assert!(large.try_reach(768 * 1024));
        assert!(!budget.account(SMALL_FRAME + 1).expect("small enough").try_reach(1));
        assert!(budget.account(SMALL_FRAME).expect("small").try_reach(SMALL_FRAME));
        drop(large);
        assert!(budget.account(SMALL_FRAME + 1).expect("small enough").try_reach(1));
    }

    #[test]
    fn request_above_the_budget_is_refused() {
        let budget = RequestBudget::new(1024 * 1024);
        assert!(budget.account(768 * 1024).is_some());
        assert!(budget.account(768 * 1024 + 1).is_none());
    }

    #[test]
    fn charge_adds_up_and_comes_back() {
        let budget = RequestBudget::new(1024 * 1024);
        let mut charge = budget.account(500_000).expect("within the budget");
        assert!(charge.try_reach(300_000));
        assert!(charge.try_reach(500_000));
        let mut other = budget.account(300_000).expect("within the budget");
        assert!(!other.try_reach(300_000), "500,000 of 786,432 are taken");
        drop(charge);
        assert!(other.try_reach(300_000));
    }

    #[test]
    fn requests_that_wait_for_each_other_go_on_one_at_a_time() {
        let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
        runtime.block_on(async {
            let budget = RequestBudget::new(1024 * 1024);
            let mut charges: Vec<_> =
                (0..3).map(|_| budget.account(700_000).expect("within the budget")).collect();
            for charge in &mut charges {
                assert!(charge.try_reach(262_144), "together all there is");
            }
            let mut last = charges.pop().expect("three");
            let mut second = charges.pop().expect("three");
            let mut waiting = std::pin::pin!(async {
                second.reach(700_000).await;
                second
            });
            last.reach(700_000).await;
            assert!(last.try_reach(700_000), "one goes on without the budget");
            let parked = first(&mut waiting, std::future::ready(())).await;
            assert!(matches!(parked, First::B(())), "and no other");
            drop(last);
            let mut second = waiting.await;
            assert!(second.try_reach(700_000), "until that one is done");
        });
    }
}
