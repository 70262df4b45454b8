//! A program that is told of its partitions as they come and go, and what must hold of that.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ottla::{Commit, Consumer, ErrorClass, ErrorKind, RebalanceListener, TopicPartition};

use super::members::Member;

/// What a consumer tells its program.
#[derive(Clone)]
pub(crate) struct Listener {
    diary: Arc<Mutex<Diary>>,
    /// Whether it commits what goes.
    commits: bool,
}

/// What it was told so far.
#[derive(Default)]
struct Diary {
    /// It is being told something.
    busy: bool,
    /// Partitions that have come and not gone.
    held: BTreeSet<TopicPartition>,
    findings: Vec<String>,
    sometimes: Vec<&'static str>,
}

impl Listener {
    /// One that has heard of nothing.
    pub(crate) fn new(commits: bool) -> Self {
        Self { diary: Arc::default(), commits }
    }

    fn diary(&self) -> MutexGuard<'_, Diary> {
        self.diary.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether it was told that a partition has come, and not that it goes.
    pub(crate) fn holds(&self, topic: &str, partition: i32) -> bool {
        self.diary().held.contains(&TopicPartition::new(topic, partition))
    }

    /// Partitions that have come and not gone.
    pub(crate) fn held(&self) -> Vec<TopicPartition> {
        self.diary().held.iter().cloned().collect()
    }

    /// What must not be, and what has been seen, since it was asked last.
    pub(crate) fn take(&self) -> (Vec<String>, Vec<&'static str>) {
        let mut diary = self.diary();
        (std::mem::take(&mut diary.findings), std::mem::take(&mut diary.sometimes))
    }

    /// It is told something; what it does about it is done in between.
    fn hears(&self, what: &'static str, partitions: &[TopicPartition], comes: bool) {
        let mut diary = self.diary();
        diary.sometimes.push(what);
        if std::mem::replace(&mut diary.busy, true) {
            diary.findings.push(format!("{what} while it is told something else"));
        }
        if partitions.is_empty() {
            diary.findings.push(format!("{what} of no partitions"));
        }
        for partition in partitions {
            let fits = if comes {
                diary.held.insert(partition.clone())
            } else {
                diary.held.remove(partition)
            };
            if !fits {
                diary.findings.push(format!("{what} of {partition}, out of turn"));
            }
        }
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
        self.hears("a listener is told that partitions go", partitions, false);
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
        self.ends();
    }
}
