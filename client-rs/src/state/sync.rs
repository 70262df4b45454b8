//! What threads share: the standard library's, or loom's where it tries every order of their steps
//! (`cargo xtask test loom`, tests in `state/orders.rs`).

#[cfg(not(all(test, ottla_loom)))]
pub(crate) use std::sync::{
    Mutex, OnceLock,
    atomic::{AtomicBool, AtomicU8, AtomicUsize, Ordering, fence},
};

#[cfg(all(test, ottla_loom))]
pub(crate) use loom::sync::{
    Mutex,
    atomic::{AtomicBool, AtomicU8, AtomicUsize, Ordering, fence},
};

#[cfg(all(test, ottla_loom))]
pub(crate) use self::tried::{OnceLock, lock};
#[cfg(not(all(test, ottla_loom)))]
pub(crate) use super::guard::lock;

#[cfg(all(test, ottla_loom))]
mod tried {
    use std::sync::PoisonError;

    use loom::sync::MutexGuard;

    use super::{AtomicBool, Mutex, Ordering};

    pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
        mutex.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What is set once. Each look at it, and that it is set, is a step of its own.
    #[derive(Debug)]
    pub(crate) struct OnceLock<T> {
        is_set: AtomicBool,
        value: std::sync::OnceLock<T>,
    }

    impl<T> OnceLock<T> {
        pub(crate) fn new() -> Self {
            Self { is_set: AtomicBool::new(false), value: std::sync::OnceLock::new() }
        }

        pub(crate) fn get(&self) -> Option<&T> {
            if self.is_set.load(Ordering::Acquire) { self.value.get() } else { None }
        }

        pub(crate) fn set(&self, value: T) -> Result<(), T> {
            self.value.set(value)?;
            self.is_set.store(true, Ordering::Release);
            Ok(())
        }

        pub(crate) fn get_or_init(&self, make: impl FnOnce() -> T) -> &T {
            let value = self.value.get_or_init(make);
            self.is_set.store(true, Ordering::Release);
            value
        }
    }
}
