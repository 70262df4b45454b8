//! How many bytes of requests may be in memory, and who has them.

use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Requests up to this size have a share of the budget to themselves.
pub(crate) const SMALL_FRAME: usize = 64 * 1024;

/// Large requests are charged as they arrive, in steps of so many bytes.
pub(crate) const STEP: usize = 64 * 1024;

/// The budget of one broker for requests, from their first byte to their answer.
///
/// Small requests have a quarter to themselves, so that a few large ones, or half-sent ones, starve
/// nobody.
#[derive(Debug)]
pub(crate) struct RequestBudget {
    small: Arc<Semaphore>,
    large: Arc<Semaphore>,
    large_bytes: usize,
}

/// Bytes taken from the budget; they go back when this is dropped.
#[derive(Debug)]
pub(crate) struct Charge {
    share: Arc<Semaphore>,
    permit: Option<OwnedSemaphorePermit>,
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
        }
    }

    /// An account for a request of that size, with nothing taken yet.
    ///
    /// None if it is larger than all that requests may have.
    pub(crate) fn account(&self, frame: usize) -> Option<Charge> {
        let share = if frame <= SMALL_FRAME { &self.small } else { &self.large };
        (frame <= SMALL_FRAME || frame <= self.large_bytes)
            .then(|| Charge { share: share.clone(), permit: None })
    }
}

impl Charge {
    /// Bytes taken.
    pub(crate) fn bytes(&self) -> usize {
        self.permit.as_ref().map_or(0, OwnedSemaphorePermit::num_permits)
    }

    /// Takes more bytes at once, if they are there and nobody waits for them.
    pub(crate) fn try_take(&mut self, bytes: usize) -> bool {
        let wanted = u32::try_from(bytes).unwrap_or(u32::MAX);
        match self.share.clone().try_acquire_many_owned(wanted) {
            Ok(permit) => {
                self.add(permit);
                true
            }
            Err(_none_left) => false,
        }
    }

    /// Takes more bytes, once they are there.
    pub(crate) async fn take(&mut self, bytes: usize) {
        let wanted = u32::try_from(bytes).unwrap_or(u32::MAX);
        // The semaphore is never closed, so an error cannot come; it would only leave a request
        // uncharged.
        if let Ok(permit) = self.share.clone().acquire_many_owned(wanted).await {
            self.add(permit);
        }
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
        assert!(large.try_take(768 * 1024));
        assert!(!budget.account(SMALL_FRAME + 1).expect("small enough").try_take(1));
        assert!(budget.account(SMALL_FRAME).expect("small").try_take(SMALL_FRAME));
        drop(large);
        assert!(budget.account(SMALL_FRAME + 1).expect("small enough").try_take(1));
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
        assert!(charge.try_take(300_000));
        assert!(charge.try_take(200_000));
        assert_eq!(charge.bytes(), 500_000);
        drop(charge);
        assert!(budget.account(700_000).expect("within").try_take(700_000));
    }
}
