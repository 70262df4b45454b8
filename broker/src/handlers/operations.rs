//! What a client may do with something, as a number with a bit for each operation (KIP-430).
//!
//! Without an authorizer everybody may do everything.

/// With a group: read 3, delete 6, describe 8, describe and alter its options 10, 11.
pub(super) const GROUP: i32 = 1 << 3 | 1 << 6 | 1 << 8 | 1 << 10 | 1 << 11;

/// With a topic: read 3, write 4, create 5, delete 6, alter 7, describe 8, its options 10, 11.
pub(super) const TOPIC: i32 =
    1 << 3 | 1 << 4 | 1 << 5 | 1 << 6 | 1 << 7 | 1 << 8 | 1 << 10 | 1 << 11;

/// With the cluster: create 5, alter 7, describe 8, act as a broker 9, its options 10, 11, write
/// idempotently 12.
pub(super) const CLUSTER: i32 = 1 << 5 | 1 << 7 | 1 << 8 | 1 << 9 | 1 << 10 | 1 << 11 | 1 << 12;

/// Not asked for.
pub(super) const NOT_ASKED: i32 = i32::MIN;

/// The operations, if the client wants to know.
pub(super) fn if_asked(asked: bool, operations: i32) -> i32 {
    if asked { operations } else { NOT_ASKED }
}
