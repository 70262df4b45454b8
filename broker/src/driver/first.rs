//! Two futures in one task, of which the first to end decides.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::task::Poll;

/// Which of the two ended.
#[derive(Debug)]
pub(crate) enum First<A, B> {
    /// The first.
    A(A),
    /// The second.
    B(B),
}

/// Runs both in this task until one ends; the other is dropped.
pub(crate) async fn first<A: Future, B: Future>(a: A, b: B) -> First<A::Output, B::Output> {
    let (mut a, mut b) = (pin!(a), pin!(b));
    poll_fn(|context| {
        if let Poll::Ready(output) = a.as_mut().poll(context) {
            return Poll::Ready(First::A(output));
        }
        b.as_mut().poll(context).map(First::B)
    })
    .await
}
