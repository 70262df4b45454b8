//! The hash maps and sets of the machines.
//!
//! Their order differs from run to run, so that nobody can choose keys which all fall on one place;
//! in the simulator it is always the same, so that a seed tells the whole run.

/// A map by hash.
pub(crate) type HashMap<K, V> = std::collections::HashMap<K, V, Keys>;

/// A set by hash.
pub(crate) type HashSet<T> = std::collections::HashSet<T, Keys>;

#[cfg(not(feature = "sim"))]
type Keys = std::hash::RandomState;
#[cfg(feature = "sim")]
type Keys = std::hash::BuildHasherDefault<std::hash::DefaultHasher>;
