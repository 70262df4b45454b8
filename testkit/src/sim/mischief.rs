//! What a member's program does beside reading: it stops asking, seeks, pauses, leaves, crashes.

use ottla::TopicPartition;

use super::clock;
use super::members::{CLOSE, End, GRACE, Member};
use super::plan::{FLEETING, TOPICS, topics};
use super::tap::{Place, place};

impl Member {
    /// Does one thing; how its life ends, if it does.
    pub(crate) async fn misbehave(&mut self) -> Option<End> {
        if let Some((partition, place)) = self.unplaced()
            && self.world.happens(500)
        {
            self.begin_elsewhere(&partition, place);
            return None;
        }
        let what = self.world.dice.borrow_mut().between(0, 19);
        match what {
            0 | 1 => return Some(self.crash()),
            2 if self.world.happens(500) => {
                let time = self.world.dice.borrow_mut().millis(0, 5000);
                self.close(time).await;
                return Some(End::Gone);
            }
            2 if self.plan.instance.is_some() => {
                self.world.sometimes("a newer member of a name comes beside an older one");
                return Some(End::Doubled);
            }
            3 => self.stall().await,
            4 | 5 => self.leave_and_come_back().await,
            6 => self.read_others(),
            7 => self.name_older().await,
            8 | 9 => self.ask().await,
            10..13 => self.pause(),
            13..16 => {
                self.world.sometimes("a member resumes partitions");
                self.resume();
            }
            16 => self.consumer.wakeup(),
            _ => self.seek(),
        }
        None
    }

    /// Its process is killed; whatever was in its hands is not finished.
    fn crash(&self) -> End {
        let arrives = self.world.dice.borrow_mut().flip();
        self.world.fault("a member crashes", 0);
        self.world.crash(&self.client, arrives);
        End::Gone
    }

    /// Leaves its place, in whichever way, to one that comes at once.
    pub(crate) async fn go_and_come_back(&self) -> End {
        if self.world.dice.borrow_mut().flip() {
            self.world.crash(&self.client, true);
        } else {
            self.close(CLOSE).await;
        }
        End::Back
    }

    /// Does not poll in time.
    async fn stall(&self) {
        self.world.sometimes("a member does not poll in time");
        let more = self.world.dice.borrow_mut().millis(0, 3000);
        let until = clock::now() + self.plan.poll_interval + more;
        clock::until(until.min(self.world.heals_at())).await;
    }

    async fn leave_and_come_back(&mut self) {
        self.world.sometimes("a member leaves and comes back");
        self.must("unsubscribe", self.consumer.unsubscribe());
        let away = self.world.dice.borrow_mut().millis(0, 2000);
        clock::until((clock::now() + away).min(self.world.heals_at())).await;
        self.subscribe();
    }

    /// Reads all topics.
    pub(crate) fn subscribe(&self) {
        let topics: Vec<&str> = topics().map(|(topic, _)| topic).collect();
        self.reads.set(None);
        self.must("subscribe", self.consumer.subscribe(&topics));
    }

    fn read_others(&self) {
        self.world.sometimes("a member reads other topics");
        let number = self.world.dice.borrow_mut().pick(&[0, 0, 1, 2]);
        match TOPICS.get(number) {
            Some((topic, _)) => {
                self.reads.set(Some(topic));
                self.must("subscribe", self.consumer.subscribe(&[topic]));
            }
            None => self.subscribe(),
        }
    }

    /// One of the partitions that are its own now, of topics whose offsets hold.
    fn one(&self) -> Option<(TopicPartition, Place)> {
        let mut own = self.consumer.assignment();
        own.retain(|own| &*own.topic != FLEETING.0);
        let numbers: Vec<usize> = (0..own.len()).collect();
        if numbers.is_empty() {
            return None;
        }
        let number = self.world.dice.borrow_mut().pick(&numbers);
        let own = own.get(number)?;
        Some((own.clone(), place(&own.topic, own.partition)?))
    }

    fn pause(&mut self) {
        let Some((partition, place)) = self.one() else { return };
        self.world.sometimes("a member pauses a partition");
        self.must("pause", self.consumer.pause(&[partition]));
        self.paused.insert(place, self.rebalances());
    }

    /// Goes back a little, or to the beginning.
    fn seek(&mut self) {
        let Some((partition, place)) = self.one() else { return };
        let Some(position) = self.consumer.position(&partition) else { return };
        if let Some(expected) = self.expected(place)
            && expected != position
            && !self.passes_over(place, expected, position)
        {
            self.finding(format!("{place:?} stands at {position}, and goes on at {expected}"));
        }
        let to = self.back_from(position);
        self.world.sometimes("a member seeks");
        self.seek_to(&partition, place, to);
    }

    /// One of its partitions of which it is not known yet where to go on.
    fn unplaced(&self) -> Option<(TopicPartition, Place)> {
        let mut own = self.consumer.assignment().into_iter();
        let unplaced = |own: &TopicPartition| {
            &*own.topic != FLEETING.0 && self.consumer.position(own).is_none()
        };
        let own = own.find(unplaced)?;
        let place = place(&own.topic, own.partition)?;
        Some((own, place))
    }

    /// Goes back before it is known from where.
    fn begin_elsewhere(&mut self, partition: &TopicPartition, place: Place) {
        let to = self.back_from(self.group.last_asked(place));
        self.world.sometimes("a member seeks before a place is known");
        self.seek_to(partition, place, to);
    }

    fn seek_to(&mut self, partition: &TopicPartition, place: Place, to: i64) {
        self.group.finish(&self.client, place, to);
        self.group.book.borrow_mut().gone_back.entry(place).or_default().push(to);
        self.must("seek", self.consumer.seek(partition, to));
        self.given.retain(|(given, _)| *given != place);
        self.hand.retain(|record| (record.topic(), record.partition()) != place);
        self.last = None;
        self.expect(place, to);
    }

    fn back_from(&self, position: i64) -> i64 {
        let mut dice = self.world.dice.borrow_mut();
        let most = dice.pick(&[0, 3, 30, 1_000_000]);
        let back = i64::try_from(dice.between(0, most)).unwrap_or(0);
        (position - back).max(0)
    }

    /// Commits by name what is before that which is committed already.
    async fn name_older(&mut self) {
        let Some((partition, place)) = self.one() else { return };
        let Some(position) = self.consumer.position(&partition) else { return };
        let to = self.back_from(position);
        self.world.sometimes("a member commits an older offset");
        self.group.finish(&self.client, place, to);
        self.group.book.borrow_mut().gone_back.entry(place).or_default().push(to);
        self.name(place, to).await;
    }

    /// Asks what is committed.
    async fn ask(&self) {
        let Some((partition, place)) = self.one() else { return };
        self.world.sometimes("a member asks what is committed");
        let asked = self.consumer.committed_async(std::slice::from_ref(&partition));
        match clock::within(self.plan.api_timeout + GRACE, asked).await {
            None => self.finding("a look at what is committed does not end".to_owned()),
            Some(Err(_)) => self.world.sometimes("a member is not told what is committed"),
            Some(Ok(found)) => {
                for (_, offset) in found {
                    if offset.is_some_and(|offset| !self.group.is_asked(place, offset)) {
                        self.finding(format!("{place:?}: {offset:?} is committed, by nobody"));
                    }
                }
            }
        }
    }
}
