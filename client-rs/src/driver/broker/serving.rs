//! An open connection: requests are written in their turn, and answers find theirs.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::ops::RangeInclusive;
use std::rc::{Rc, Weak};
use std::task::{Context, Poll};
use std::time::Instant;

use bytes::Bytes;
use ottla_protocol::session::Session;
use ottla_protocol::{ApiKey, Reader, Writer, frame};

use super::{Fault, Link, Lost, Versions, internal};
use crate::driver::client::{Client, Owner};
use crate::driver::clock::{self, Timer};
use crate::driver::hint;
use crate::driver::wire::Wire;
use crate::error::{Error, ErrorKind};
use crate::state::machine::{Answer, Frame, LinkFault, Request, Throttle};

/// Requests of one connection that are open at a time.
const IN_FLIGHT_MAX: usize = 64;

/// A request that was written, or is being.
struct Sent {
    owner: Owner,
    token: u64,
    /// Where its frame starts and ends, in bytes since the connection was opened.
    start: u64,
    end: u64,
    deadline: Instant,
}

/// An open connection.
pub(super) struct Serving<'a> {
    link: &'a Rc<Link>,
    client: &'a Weak<Client>,
    wire: Wire,
    versions: Versions,
    broker: Rc<str>,
    session: Session<Sent>,
    /// Requests that get no answer.
    unanswered: VecDeque<(ApiKey, Sent)>,
    /// Of the request that is encoded while nothing of it is written: where its frame starts, and
    /// whether it gets an answer.
    unbegun: Option<(u64, bool)>,
    idle_since: Instant,
    throttle: Rc<Throttle>,
    /// The broker wants nothing more until then.
    quiet_until: Option<Instant>,
    timer: Timer,
}

impl<'a> Serving<'a> {
    pub(super) fn new(
        link: &'a Rc<Link>,
        client: &'a Weak<Client>,
        wire: Wire,
        versions: Versions,
        throttle: Rc<Throttle>,
    ) -> Self {
        let owner = client.upgrade();
        let broker = owner.map_or_else(|| Rc::from(""), |owner| owner.name_of(link.key.peer));
        let mut serving = Self {
            link,
            client,
            wire,
            versions,
            broker,
            session: Session::new(IN_FLIGHT_MAX),
            unanswered: VecDeque::new(),
            unbegun: None,
            idle_since: clock::now(),
            throttle,
            quiet_until: None,
            timer: Timer::default(),
        };
        // What the broker's first answer asked for.
        serving.keep_quiet(serving.idle_since);
        serving
    }

    /// Writes nothing more for as long as the last answer asked for, if it did.
    fn keep_quiet(&mut self, now: Instant) {
        let throttle = self.throttle.take();
        if !throttle.is_zero() {
            // KIP-219: the broker has answered, and reads nothing more of this connection so long.
            self.quiet_until = self.quiet_until.max(Some(now + throttle));
        }
    }

    /// Until the connection breaks; `None` if it was closed for being idle.
    pub(super) async fn run(mut self) -> Option<Fault> {
        let ended = poll_fn(|cx| self.poll(cx)).await;
        self.link.unbegun.set(None);
        self.link.withdrawn.set(false);
        let error = ended.err()?;
        // A broker that answered something before it went away is tried again at once.
        let written = self.wire.written();
        let lost = self
            .session
            .handle_closed()
            .map(|open| (open.key, open.token))
            .chain(self.unanswered.drain(..))
            .map(|(key, sent)| Lost {
                owner: sent.owner,
                token: sent.token,
                key,
                written: sent.start < written,
            });
        Some(Fault { error, lost: lost.collect() })
    }

    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Error>> {
        self.link.watch(cx);
        let Some(client) = self.client.upgrade().filter(|_| !self.link.closed.get()) else {
            return Poll::Ready(Ok(()));
        };
        loop {
            let now = clock::now();
            self.take_requests(&client, now);
            self.take_back();
            if let Poll::Ready(Err(error)) = self.wire.poll_flush(cx) {
                return Poll::Ready(Err(error));
            }
            self.tell_begun(&client);
            self.finish_unanswered(&client);
            loop {
                match self.wire.poll_frame(cx) {
                    Poll::Ready(Ok(frame)) => {
                        self.idle_since = now;
                        if let Err(error) = self.handle_frame(&client, frame, now) {
                            return Poll::Ready(Err(error));
                        }
                    }
                    Poll::Ready(Err(error)) => return Poll::Ready(Err(error)),
                    Poll::Pending => break,
                }
            }
            // What was written and answered may have made room for what waits: nothing else would
            // bring this task back to it.
            if self.has_room(now) && self.link.is_awaited() {
                continue;
            }
            match self.poll_deadline(&client, now, cx) {
                Poll::Ready(None) => {}
                Poll::Ready(Some(ended)) => return Poll::Ready(ended),
                Poll::Pending => return Poll::Pending,
            }
        }
    }

    /// Whether a further request may be encoded: not behind one that is still being written, and not
    /// while the broker wants to be left alone. Until its turn comes it is in the outbox, where it
    /// can be taken back.
    fn has_room(&self, now: Instant) -> bool {
        let quiet = self.quiet_until.is_some_and(|until| until > now);
        !quiet && !self.session.is_full() && self.wire.queued() == 0
    }

    /// Lets go of the encoded request, if it was taken back.
    fn take_back(&mut self) {
        if !self.link.withdrawn.take() {
            return;
        }
        let Some((_, answered)) = self.unbegun.take() else { return };
        self.wire.take_back();
        if answered {
            self.session.cancel_youngest();
        } else {
            self.unanswered.pop_back();
        }
        self.link.answered(1);
    }

    /// Tells the owner of the encoded request once some of it is written.
    fn tell_begun(&mut self, client: &Rc<Client>) {
        if self.unbegun.is_some_and(|(start, _)| start < self.wire.written()) {
            self.unbegun = None;
            if let Some((owner, token)) = self.link.unbegun.take() {
                client.handle_begun(owner, token);
            }
        }
    }

    /// Encodes what waits, as far as the connection has room.
    fn take_requests(&mut self, client: &Rc<Client>, now: Instant) {
        while self.has_room(now) {
            let Some((owner, request)) = self.link.outbox.borrow_mut().pop_front() else { return };
            let token = request.token;
            self.idle_since = now;
            if let Err(error) = self.encode(client, owner, request, now) {
                self.link.answered(1);
                let error = error.with_broker(&self.broker);
                client.handle_response(owner, token, Err(LinkFault { error, written: false }));
            }
        }
    }

    fn encode(
        &mut self,
        client: &Client,
        owner: Owner,
        request: Request,
        now: Instant,
    ) -> Result<(), Error> {
        let Request { body, token, timeout, .. } = request;
        let key = body.key();
        let version = self.version_for(key, body.versions())?;
        let deadline = now + timeout;
        let start = self.wire.accepted();
        let sent = Sent { owner, token, start, end: u64::MAX, deadline };
        let correlation_id = if body.is_answered() {
            let begun = self.session.begin(key, version, sent);
            begun.map_err(|error| internal("no room for a request", error))?
        } else {
            let id = self.session.begin_unanswered();
            self.unanswered.push_back((key, sent));
            id
        };
        let mut writer = Writer::with_capacity(256);
        let client_id = Some(client.client_id());
        let mut frame = Frame { version, correlation_id, client_id, writer: &mut writer };
        if let Err(error) = body.encode(&mut frame) {
            if body.is_answered() {
                self.session.cancel_youngest();
            } else {
                self.unanswered.pop_back();
            }
            return Err(internal("a request cannot be written", error).with_api(key));
        }
        self.wire.push(writer, &*body);
        client.vitals().note_request(self.wire.accepted() - start);
        self.unbegun = Some((start, body.is_answered()));
        self.link.unbegun.set(Some((owner, token)));
        if let Some((_, sent)) = self.unanswered.back_mut().filter(|_| !body.is_answered()) {
            sent.end = self.wire.accepted();
        }
        Ok(())
    }

    /// The highest version that both sides have.
    fn version_for(&self, key: ApiKey, ours: RangeInclusive<i16>) -> Result<i16, Error> {
        let theirs = self.versions.iter().find(|(known, _)| *known == key).map(|(_, range)| range);
        let best = theirs.and_then(|theirs| {
            let best = *theirs.end().min(ours.end());
            (best >= *theirs.start().max(ours.start())).then_some(best)
        });
        let oldest = theirs.map(|theirs| *theirs.start());
        best.ok_or_else(|| {
            let theirs = theirs.map_or_else(
                || "does not have it".to_owned(),
                |range| format!("has {} to {}", range.start(), range.end()),
            );
            let text = format!(
                "this client speaks {key} in versions {} to {}, and the broker {theirs}",
                ours.start(),
                ours.end()
            );
            let too_new = oldest.is_some_and(|theirs| theirs > *ours.end());
            let hint = if too_new { hint::TOO_NEW } else { hint::TOO_OLD };
            Error::new(ErrorKind::UnsupportedVersion, text).with_api(key).with_hint(hint)
        })
    }

    /// Ends the requests without an answer that are written whole.
    fn finish_unanswered(&mut self, client: &Rc<Client>) {
        while self.unanswered.front().is_some_and(|(_, sent)| sent.end <= self.wire.written()) {
            let Some((_, sent)) = self.unanswered.pop_front() else { return };
            self.link.answered(1);
            let answer = self.answer(0, Bytes::new());
            client.handle_response(sent.owner, sent.token, Ok(answer));
        }
    }

    fn handle_frame(
        &mut self,
        client: &Rc<Client>,
        frame: Bytes,
        now: Instant,
    ) -> Result<(), Error> {
        let garbled = |error| {
            Error::new(ErrorKind::Protocol, "the broker's answer cannot be read").with_source(error)
        };
        let (key, version) =
            self.session.oldest().map_or((ApiKey::ApiVersions, 0), |open| (open.key, open.version));
        client.vitals().note_answer(frame.len());
        let mut reader = Reader::new(&frame);
        let id = frame::decode_response_header(&mut reader, key, version).map_err(garbled)?;
        let body = frame.slice(reader.position()..);
        let open = self.session.handle_response(id).map_err(|error| {
            let text = "the broker's answers do not fit the requests";
            Error::new(ErrorKind::Protocol, text).with_source(error)
        })?;
        self.link.failures.set(0);
        self.link.answered(1);
        let answer = self.answer(version, body);
        client.handle_response(open.token.owner, open.token.token, Ok(answer));
        self.keep_quiet(now);
        Ok(())
    }

    fn answer(&self, version: i16, body: Bytes) -> Answer {
        let (broker, throttle) = (Rc::clone(&self.broker), Rc::clone(&self.throttle));
        Answer { version, body, broker, throttle }
    }

    /// Waits for the first request to be overdue, or for the connection to have been idle too long:
    /// then it ends. `None` if before that a pause is over that a request waits for. One that is to
    /// last longer ends with the connection.
    fn poll_deadline(
        &mut self,
        client: &Client,
        now: Instant,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<(), Error>>> {
        let open = self.session.iter().map(|open| open.token.deadline);
        let open = open.chain(self.unanswered.iter().map(|(_, sent)| sent.deadline)).min();
        let deadline = open.unwrap_or_else(|| self.idle_since + client.max_idle());
        let pause = self.quiet_until.filter(|&until| now < until && until < deadline);
        let pause = pause.filter(|_| self.link.is_awaited());
        let at = pause.unwrap_or(deadline);
        if at > now && self.timer.poll(Some(at), cx).is_pending() {
            return Poll::Pending;
        }
        if pause.is_some() {
            return Poll::Ready(None);
        }
        if open.is_none() {
            return Poll::Ready(Some(Ok(())));
        }
        let text = "the broker did not answer within the request timeout";
        Poll::Ready(Some(Err(Error::new(ErrorKind::RequestTimeout, text))))
    }
}
