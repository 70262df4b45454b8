//! Members of a group: programs that read records, commit them, and come and go.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Duration;

use ottla::{
    Batch, Commit, Consumer, ConsumerRecord, Error, ErrorClass, ErrorKind, Options, TopicPartition,
};

use super::clock;
use super::groups::Group;
use super::listener::Listener;
use super::plan::{Committing, FLEETING, MemberPlan, Taking};
use super::tap::{Place, place};
use super::world::{ADDRESS, World};

/// A call takes no longer than it may, and this.
pub(crate) const GRACE: Duration = Duration::from_secs(2);
/// A program that is told of an error waits before it goes on.
const TOLD_PAUSE: Duration = Duration::from_millis(20);
/// Time for a close in which all can be done.
pub(crate) const CLOSE: Duration = Duration::from_secs(5);

/// How a member's life ends.
pub(crate) enum End {
    /// The group has read all.
    Done,
    /// It is gone, and another takes its place after a while.
    Gone,
    /// It is gone, and another takes its place at once.
    Back,
    /// It goes on, and another of its name comes beside it.
    Doubled,
}

/// One member after another in one place of a group, until the group has read all.
pub(crate) async fn live(
    world: Rc<World>,
    group: Rc<Group>,
    seat: usize,
    plan: MemberPlan,
) -> Result<(), String> {
    let mut life = 0;
    let mut is_away = true;
    let mut older = Vec::new();
    loop {
        if is_away {
            let away = world.dice.borrow_mut().millis(0, 8000);
            clock::until((clock::now() + away).min(world.heals_at())).await;
        }
        life += 1;
        let mut member = Member::begin(&world, &group, &plan, (seat, life))?;
        let end = member.run().await;
        is_away = matches!(end, End::Gone);
        match end {
            End::Done => break,
            End::Gone | End::Back => {}
            End::Doubled => older.push(tokio::task::spawn_local(member.stay())),
        }
    }
    for member in older {
        member.await.map_err(|error| error.to_string())?;
    }
    Ok(())
}

/// Where reading of a partition is to go on.
#[derive(Debug, Clone, Copy)]
struct Next {
    offset: i64,
    /// Assignments so far, when that was known.
    rebalances: u64,
}

/// What was taken last.
pub(crate) enum Last {
    Record(ConsumerRecord),
    Batch(Batch),
}

/// A member.
pub(crate) struct Member {
    pub(crate) world: Rc<World>,
    pub(crate) group: Rc<Group>,
    pub(crate) plan: MemberPlan,
    pub(crate) client: Rc<str>,
    pub(crate) consumer: Consumer,
    next: BTreeMap<Place, Next>,
    /// Paused partitions, with the assignments so far.
    pub(crate) paused: BTreeMap<Place, u64>,
    /// What is in the program's hands and not finished: partitions with their next offsets.
    pub(crate) given: Vec<(Place, i64)>,
    pub(crate) last: Option<Last>,
    /// Records that are not finished, where the program says so of each.
    pub(crate) hand: Vec<ConsumerRecord>,
    taken_at: u64,
    pub(crate) is_calm: bool,
    /// Its place in the group, and which of that place's members it is.
    pub(crate) seat: (usize, u64),
    pub(crate) listener: Option<Listener>,
    pub(crate) is_fenced: Cell<bool>,
    /// The one topic that it has subscribed to; none for all.
    pub(crate) reads: Cell<Option<&'static str>>,
}

impl Member {
    fn begin(
        world: &Rc<World>,
        group: &Rc<Group>,
        plan: &MemberPlan,
        seat: (usize, u64),
    ) -> Result<Self, String> {
        let client = format!("{}-{}-{}", group.plan.name, seat.0, seat.1);
        let options = format!(
            "bootstrap.servers={ADDRESS};client.id={client};group.id={};{}",
            group.plan.name, plan.options
        );
        let options = Options::parse(&options).map_err(|error| format!("{options}: {error}"))?;
        let consumer = Consumer::new(&options).map_err(|error| error.to_string())?;
        let commits = plan.committing != Committing::Auto;
        let how = (commits, plan.is_eager);
        let listener = plan.listens.then(|| Listener::new(&consumer, group.joins(&client), how));
        if let Some(listener) = &listener {
            consumer.on_rebalance(listener.clone());
        }
        let member = Self {
            world: Rc::clone(world),
            group: Rc::clone(group),
            plan: plan.clone(),
            client: client.into(),
            consumer,
            next: BTreeMap::new(),
            paused: BTreeMap::new(),
            given: Vec::new(),
            last: None,
            hand: Vec::new(),
            taken_at: 0,
            is_calm: false,
            seat,
            listener,
            is_fenced: Cell::new(false),
            reads: Cell::new(None),
        };
        member.subscribe();
        Ok(member)
    }

    async fn run(&mut self) -> End {
        while !self.group.is_done() {
            self.note();
            if self.is_fenced.get() {
                self.close(CLOSE).await;
                return End::Gone;
            }
            if self.world.is_healed() {
                self.calm_down();
                if self.group.named.is_recalled(self.seat.0) {
                    return self.go_and_come_back().await;
                }
            } else if self.world.happens(self.plan.mischief)
                && let Some(end) = self.misbehave().await
            {
                return end;
            }
            self.go_on().await;
        }
        self.close(CLOSE).await;
        End::Done
    }

    pub(crate) async fn go_on(&mut self) {
        self.take().await;
        self.check_memory();
        self.work().await;
        self.acknowledge();
        self.commit().await;
        self.hear();
    }

    /// From now on its program only reads.
    pub(crate) fn calm_down(&mut self) {
        if !self.is_calm {
            self.is_calm = true;
            self.subscribe();
            self.resume();
        }
    }

    /// Asks for all records again.
    pub(crate) fn resume(&mut self) {
        self.paused.clear();
        self.must("resume", self.consumer.resume(&self.consumer.assignment()));
    }

    /// A call that cannot fail.
    pub(crate) fn must<T>(&self, what: &str, result: Result<T, Error>) {
        if let Err(error) = result
            && !self.fences(&error)
        {
            self.finding(format!("{what}: {error}"));
        }
    }

    async fn take(&mut self) {
        let wait = self.world.dice.borrow_mut().millis(0, 700);
        self.finish_given();
        self.taken_at = self.rebalances();
        match self.plan.taking {
            Taking::Records => {
                let first = clock::within(wait, self.consumer.next()).await;
                let most = self.plan.batch.min(20);
                let mut taken = first;
                for _ in 0..most {
                    match taken {
                        Some(Ok(Some(record))) => self.take_record(record),
                        Some(Err(error)) => return self.told(&error).await,
                        Some(Ok(None)) | None => return,
                    }
                    self.finish_given();
                    taken = Some(self.consumer.try_poll());
                }
                if let Some(Ok(Some(record))) = taken {
                    self.take_record(record);
                }
            }
            Taking::Batches | Taking::Handing => {
                let next = self.consumer.next_batch_of(self.plan.batch);
                match clock::within(wait, next).await {
                    Some(Ok(Some(batch))) if self.plan.taking == Taking::Batches => {
                        self.take_batch(batch);
                    }
                    Some(Ok(Some(batch))) => self.hand_on(&batch).await,
                    Some(Err(error)) => self.told(&error).await,
                    Some(Ok(None)) | None => {}
                }
            }
        }
    }

    fn take_record(&mut self, record: ConsumerRecord) {
        let Some(place) = place(record.topic(), record.partition()) else { return };
        self.deliver(place, record.offset(), record.value().unwrap_or_default());
        self.hold(std::iter::once(record.clone()));
        self.given = vec![(place, record.offset() + 1)];
        self.last = Some(Last::Record(record));
    }

    /// Keeps records until they are finished, where that is said of each.
    fn hold(&mut self, records: impl Iterator<Item = ConsumerRecord>) {
        if self.group.plan.is_explicit {
            self.hand.extend(records);
        }
    }

    fn take_batch(&mut self, batch: Batch) {
        let Some(place) = place(batch.topic(), batch.partition()) else { return };
        for record in batch.records() {
            self.deliver(place, record.offset, record.value.unwrap_or_default());
        }
        self.hold((0..batch.len()).filter_map(|index| batch.record(index)));
        self.given = vec![(place, batch.next_offset())];
        self.last = Some(Last::Batch(batch));
    }

    /// Hands a batch on record by record, for as long as it may.
    async fn hand_on(&mut self, batch: &Batch) {
        let Some(place) = place(batch.topic(), batch.partition()) else { return };
        for index in 0..batch.len() {
            let Some(record) = batch.record(index) else { return };
            self.finish_given();
            if !self.consumer.progress(batch, index, index + 1) {
                self.world.sometimes("a member gives records back");
                self.given.clear();
                return self.consumer.give_back(batch, index);
            }
            self.deliver(place, record.offset(), record.value().unwrap_or_default());
            self.hold(std::iter::once(record.clone()));
            self.given = vec![(place, record.offset() + 1)];
            self.last = Some(Last::Record(record));
            if self.world.happens(50) {
                self.work().await;
            }
        }
    }

    /// A record is in the program's hands.
    fn deliver(&mut self, place: Place, offset: i64, value: &[u8]) {
        self.world.sometimes("a record is delivered");
        let rebalances = self.rebalances();
        let own = self.consumer.assignment();
        if !own.iter().any(|own| (&*own.topic, own.partition) == place) {
            self.finding(format!("{place:?} is delivered at {offset}, and not this member's"));
        }
        if self.reads.get().is_some_and(|topic| topic != place.0) {
            self.finding(format!("{place:?} is delivered at {offset}, and its topic was left"));
        }
        if self.listener.as_ref().is_some_and(|listener| !listener.holds(place.0, place.1)) {
            self.finding(format!(
                "{place:?} is delivered at {offset}, and its listener has not heard"
            ));
        }
        if self.paused.get(&place) == Some(&rebalances) {
            self.finding(format!("{place:?} is delivered at {offset}, and is paused"));
        }
        match self.next.get(&place) {
            Some(_) if offset == 0 && self.world.is_anew(place) => {
                self.world.sometimes("a member goes on in a topic that is made anew");
            }
            Some(next) if self.passes_over(place, next.offset, offset) => {}
            Some(next) if next.rebalances == rebalances && next.offset != offset => {
                self.finding(format!("{place:?} goes on at {offset}, not at {}", next.offset));
            }
            Some(next) if next.rebalances == rebalances => {}
            Some(next) if next.offset == offset => {
                self.world.sometimes("a partition is kept over a rebalance");
            }
            _ if offset == 0 => {}
            _ if self.group.is_asked(place, offset) => {
                self.world.sometimes("a partition begins at what is committed");
            }
            _ if self.begins_behind_finished(place, offset) => {}
            _ => self.finding(format!("{place:?} begins at {offset}, which nobody committed")),
        }
        self.next.insert(place, Next { offset: offset + 1, rebalances });
        let mut book = self.group.book.borrow_mut();
        if place.0 == FLEETING.0 {
            book.fleeting.insert((place, offset, value.to_vec()));
            return;
        }
        let before = book.delivered.entry(place).or_default().insert(offset, value.to_vec());
        drop(book);
        match before {
            Some(before) if before != value => {
                self.finding(format!("{place:?} is delivered at {offset} as two records"));
            }
            Some(_) => self.world.sometimes("a record is delivered again"),
            None => {}
        }
    }

    /// Reading of a partition goes on there.
    pub(crate) fn expect(&mut self, place: Place, offset: i64) {
        let rebalances = self.rebalances();
        self.next.insert(place, Next { offset, rebalances });
    }

    /// Where reading of a partition goes on, if that is known.
    pub(crate) fn expected(&self, place: Place) -> Option<i64> {
        let next = self.next.get(&place).filter(|next| next.rebalances == self.rebalances());
        next.map(|next| next.offset)
    }

    pub(crate) fn rebalances(&self) -> u64 {
        self.consumer.stats().rebalances
    }

    /// The next call counts as finished what the last one gave.
    pub(crate) fn finish_given(&mut self) {
        let explicit = self.group.plan.is_explicit;
        for (place, offset) in self.given.drain(..).filter(|_| !explicit) {
            self.group.finish(&self.client, place, offset);
        }
    }

    /// Works on what it was given; once the world has healed, in no time.
    async fn work(&self) {
        if self.is_calm {
            return;
        }
        let time = self.world.dice.borrow_mut().millis(0, self.plan.work_ms);
        if !self.given.is_empty() && !time.is_zero() {
            self.world.sometimes("a member is at work in the storm");
            clock::pause(time).await;
        }
    }

    async fn commit(&mut self) {
        let calm = self.is_calm && self.plan.committing != Committing::Auto;
        if self.given.is_empty() && !calm {
            return;
        }
        // Whoever names what is another's by now would have it go back.
        let own = self.taken_at == self.rebalances();
        match (self.plan.committing, self.given.first().copied()) {
            (Committing::Auto, _) => {}
            (Committing::Soon, Some((place, offset))) => {
                self.group.finish(&self.client, place, offset);
                let done = match &self.last {
                    Some(Last::Record(record)) => self.consumer.commit_soon(Commit::Record(record)),
                    Some(Last::Batch(batch)) => self.consumer.commit_soon(Commit::Batch(batch)),
                    None => Ok(()),
                };
                self.committed(done);
            }
            // Offsets of the topic before say nothing of the next.
            (Committing::Named, Some((place, offset))) if own && place.0 != FLEETING.0 => {
                self.group.finish(&self.client, place, offset);
                self.name(place, offset).await;
            }
            _ => {
                self.finish_given();
                let commit = self.consumer.commit_async(Commit::Finished);
                self.wait(commit).await;
            }
        }
    }

    /// Commits an offset by its number.
    pub(crate) async fn name(&self, place: Place, offset: i64) {
        let named = [(TopicPartition::new(place.0, place.1), offset)];
        let commit = self.consumer.commit_async(Commit::Offsets(&named));
        if self.wait(commit).await {
            self.group.book.borrow_mut().promised.entry(place).or_default().insert(offset);
        }
    }

    /// Waits for a commit, mostly; whether it is made.
    async fn wait(&self, commit: impl Future<Output = Result<(), Error>>) -> bool {
        let most = self.plan.api_timeout + GRACE;
        let patience = if self.world.happens(100) {
            self.world.dice.borrow_mut().millis(0, 1000)
        } else {
            most
        };
        match clock::within(patience, commit).await {
            Some(done) => self.committed(done),
            None if patience == most => {
                self.finding("a commit does not end".to_owned());
                false
            }
            None => false,
        }
    }

    fn committed(&self, done: Result<(), Error>) -> bool {
        match done {
            Ok(()) => return true,
            Err(error) if self.fences(&error) => {}
            Err(error) if error.class() == ErrorClass::Fatal => {
                self.finding(format!("a commit: {error}"));
            }
            Err(error) if error.kind() == ErrorKind::CommitFenced => {
                self.world.sometimes("a member is told that a commit came too late");
            }
            Err(_) => self.world.sometimes("a member is told that a commit failed"),
        }
        false
    }

    /// An error in the place of a record: it tells of something that may pass.
    async fn told(&self, error: &Error) {
        self.world.sometimes("a member is told of an error");
        if !self.fences(error) && matches!(error.class(), ErrorClass::Fatal | ErrorClass::Usage) {
            self.finding(format!("it is told: {error}"));
        }
        clock::pause(TOLD_PAUSE).await;
    }

    fn check_memory(&self) {
        let stats = self.consumer.stats();
        let (fetched, decoded) = (stats.buffered - stats.decoded, stats.decoded);
        let most = self.world.largest.most(self.plan.buffer);
        if stats.buffered > self.plan.buffer {
            self.world.sometimes("a member holds a batch that alone is larger than its budget");
        }
        if fetched > most.0 || decoded > most.1 {
            self.finding(format!(
                "it holds {fetched} and {decoded} of {} bytes, and {most:?} is most",
                self.plan.buffer
            ));
        }
    }

    /// Ends the consumer, within that time.
    pub(crate) async fn close(&self, time: Duration) {
        self.world.sometimes("a member closes");
        match clock::within(time + GRACE, self.consumer.close_async(time)).await {
            None => self.finding("a close does not end".to_owned()),
            Some(Err(error)) if self.fences(&error) => {}
            Some(Err(error)) if self.is_calm && error.kind() != ErrorKind::CommitFenced => {
                self.finding(format!("a close: {error}"));
            }
            Some(Ok(())) => {
                let held = self.listener.as_ref().map(Listener::held).unwrap_or_default();
                if !held.is_empty() {
                    self.finding(format!("it is closed, and its listener still has {held:?}"));
                }
            }
            Some(Err(_)) => {}
        }
        self.hear();
    }

    pub(crate) fn finding(&self, what: String) {
        self.world.finding(format!("member {}: {what}", self.client));
    }
}
