//! A program that is told of its partitions as they come and go, and what must hold of that.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ottla::{
    Commit, Consumer, ErrorClass, ErrorKind, Event, Events, RebalanceListener, TopicPartition,
};

use super::members::Member;

/// What a consumer tells its program.
#[derive(Clone)]
pub(crate) struct Listener {
    diary: Arc<Mutex<Diary>>,
    /// Whether it commits what goes.
    commits: bool,
    /// Whether its consumer gives all up before it joins anew.
    is_eager: bool,
    /// Joins that its consumer has written.
    joins: Arc<AtomicU64>,
    events: Events,
}

/// What it was told so far.
#[derive(Default)]
struct Diary {
    /// It is being told something.
    busy: bool,
    /// Partitions that have come and not gone, with the joins until they came.
    held: BTreeMap<TopicPartition, u64>,
    /// Those that the group took away, as the consumer's events tell.
    taken: BTreeSet<TopicPartition>,
    /// Since it did not poll in time, nothing was assigned to its consumer: what comes is lost.
    is_late: bool,
    findings: Vec<String>,
    sometimes: Vec<&'static str>,
}

impl Listener {
    /// One that has heard of nothing, of a consumer that is not a member yet.
    pub(crate) fn new(
        consumer: &Consumer,
        joins: Arc<AtomicU64>,
        (commits, is_eager): (bool, bool),
    ) -> Self {
        Self { diary: Arc::default(), commits, is_eager, joins, events: consumer.events() }
    }

    fn diary(&self) -> MutexGuard<'_, Diary> {
        self.diary.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether it was told that a partition has come, and not that it goes.
    pub(crate) fn holds(&self, topic: &str, partition: i32) -> bool {
        self.diary().held.contains_key(&TopicPartition::new(topic, partition))
    }

    /// Partitions that have come and not gone.
    pub(crate) fn held(&self) -> Vec<TopicPartition> {
        self.diary().held.keys().cloned().collect()
    }

    /// What must not be, and what has been seen, since it was asked last.
    pub(crate) fn take(&self) -> (Vec<String>, Vec<&'static str>) {
        self.read_events();
        let mut diary = self.diary();
        (std::mem::take(&mut diary.findings), std::mem::take(&mut diary.sometimes))
    }

    /// Notes what the group took away.
    fn read_events(&self) {
        let mut diary = self.diary();
        while let Some(event) = self.events.try_next() {
            match event {
                Event::PartitionsLost { partitions } => diary.taken.extend(partitions),
                // Whoever does not ask is told when it is too late.
                Event::PollMissed { .. } => {
                    let held: Vec<TopicPartition> = diary.held.keys().cloned().collect();
                    diary.taken.extend(held);
                    diary.is_late = true;
                }
                Event::PartitionsAssigned { .. } => diary.is_late = false,
                _ => {}
            }
        }
    }

    /// It is told something; what it does about it is done in between.
    fn hears(&self, what: &'static str, partitions: &[TopicPartition], comes: bool) {
        self.read_events();
        let joins = self.joins.load(Ordering::Relaxed);
        let mut diary = self.diary();
        diary.sometimes.push(what);
        if std::mem::replace(&mut diary.busy, true) {
            diary.findings.push(format!("{what} while it is told something else"));
        }
        if partitions.is_empty() {
            diary.findings.push(format!("{what} of no partitions"));
        }
        for partition in partitions {
            let before = if comes {
                if diary.is_late {
                    diary.taken.insert(partition.clone());
                } else {
                    diary.taken.remove(partition);
                }
                diary.held.insert(partition.clone(), joins)
            } else {
                diary.held.remove(partition)
            };
            if before.is_some() == comes {
                diary.findings.push(format!("{what} of {partition}, out of turn"));
            }
        }
    }

    /// Whether its consumer has joined since it was told that one of these came.
    fn joined_since(&self, partitions: &[TopicPartition]) -> bool {
        let (diary, joins) = (self.diary(), self.joins.load(Ordering::Relaxed));
        partitions.iter().any(|at| diary.held.get(at).is_some_and(|then| *then < joins))
    }

    fn finds(&self, what: String) {
        self.diary().findings.push(format!("its listener {what}"));
    }

    fn ends(&self) {
        self.diary().busy = false;
    }
}

impl Member {
    /// Notes what its listener has heard.
    pub(crate) fn hear(&self) {
        let Some(listener) = &self.listener else { return };
        let (findings, sometimes) = listener.take();
        for finding in findings {
            self.finding(finding);
        }
        for what in sometimes {
            self.world.sometimes(what);
        }
    }
}

impl RebalanceListener for Listener {
    fn on_assigned(&self, _: &Consumer, partitions: &[TopicPartition]) {
        self.hears("a listener is told that partitions come", partitions, true);
        self.ends();
    }

    fn on_revoked(&self, consumer: &Consumer, partitions: &[TopicPartition]) {
        let joined = self.joined_since(partitions);
        self.hears("a listener is told that partitions go", partitions, false);
        if self.is_eager && joined {
            self.finds("is told that partitions go, and its consumer has joined anew".to_owned());
        }
        // What goes is there still, so that its offsets can be committed.
        let own = consumer.assignment();
        for partition in partitions.iter().filter(|partition| !own.contains(partition)) {
            self.finds(format!("is told that {partition} goes, and it is gone"));
        }
        if self.commits {
            let done = consumer.commit_soon(Commit::Finished);
            let mut diary = self.diary();
            match done {
                Ok(()) => diary.sometimes.push("a listener commits what goes"),
                Err(error) if error.kind() == ErrorKind::FencedInstance => {}
                Err(error) if matches!(error.class(), ErrorClass::Fatal | ErrorClass::Usage) => {
                    diary.findings.push(format!("a listener's commit: {error}"));
                }
                Err(_) => {}
            }
        }
        self.ends();
    }

    fn on_lost(&self, _: &Consumer, partitions: &[TopicPartition]) {
        self.hears("a listener is told that partitions are lost", partitions, false);
        for partition in partitions {
            if !self.diary().taken.remove(partition) {
                self.finds(format!("is told that {partition} is lost, and nobody took it"));
            }
        }
        self.ends();
    }
}
