//! Futures of what comes next, and of a close.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use super::face::{Look, Want};
use super::{Consumer, Own};
use crate::error::Error;
use crate::promise::{self, Promise};
use crate::state::parker::Sleeper;

/// A future of the next record or batch.
pub(super) struct NextOf<W> {
    own: Arc<Own>,
    want: W,
    wait: Option<u64>,
}

impl<W> NextOf<W> {
    pub(super) const fn new(own: Arc<Own>, want: W) -> Self {
        Self { own, want, wait: None }
    }
}

impl<W: Want + Unpin> Future for NextOf<W> {
    type Output = Result<Option<W::Taken>, Error>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        self.own.process.check()?;
        let face = Arc::clone(&self.own.face);
        let wait = *self.wait.get_or_insert_with(|| face.wait_id());
        face.forget_wait(wait);
        loop {
            let sleeper = Sleeper::Task(cx.waker().clone());
            match face.look(&self.want, Some((wait, sleeper))) {
                Ok(Look::Found(taken)) => return Poll::Ready(Ok(Some(taken))),
                Ok(Look::Woken) => return Poll::Ready(Ok(None)),
                Ok(Look::Nothing) => return Poll::Pending,
                Ok(Look::Rebalance(rebalance)) => {
                    Consumer { own: Arc::clone(&self.own) }.tell(&rebalance);
                }
                Err(error) => return Poll::Ready(Err(error)),
            }
        }
    }
}

impl<W> Drop for NextOf<W> {
    fn drop(&mut self) {
        if let (Some(wait), Some(face)) = (self.wait, self.own.live()) {
            face.forget_wait(wait);
        }
    }
}

/// A future of a close, which tells what is being given up.
pub(super) struct Closing {
    pub(super) consumer: Option<(Consumer, u64)>,
    pub(super) closed: Arc<Promise<()>>,
}

impl Future for Closing {
    type Output = Result<(), Error>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        if let Some((consumer, wait)) = &self.consumer {
            consumer.own.process.check()?;
            let sleeper = || Sleeper::Task(cx.waker().clone());
            while let Some(rebalance) = consumer.own.face.await_rebalance(*wait, sleeper()) {
                consumer.tell(&rebalance);
            }
        }
        Pin::new(&mut promise::Promised(Arc::clone(&self.closed))).poll(cx)
    }
}

impl Drop for Closing {
    fn drop(&mut self) {
        let consumer = self.consumer.as_ref();
        if let Some((face, wait)) = consumer.and_then(|(one, wait)| Some((one.own.live()?, wait))) {
            face.forget_wait(*wait);
        }
    }
}
