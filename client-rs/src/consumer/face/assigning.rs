//! Who chooses a consumer's partitions: its group, or the program itself.

use std::collections::BTreeSet;
use std::sync::Arc;

use regex::Regex;

use super::{Command, Face, Inner, Marks, Part};
use crate::error::{Error, ErrorKind};
use crate::record::TopicPartition;
use crate::state::membership::Which;

/// Who does.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) enum Chooser {
    /// Nobody, as long as nothing is to be read.
    #[default]
    Nobody,
    /// The group, of the topics that are subscribed to.
    Group,
    /// The program, partition by partition.
    Program,
}

/// The topics that the program wants of its group.
#[derive(Debug, Default)]
pub(super) enum Wanted {
    /// Whichever it is given.
    #[default]
    All,
    Named(BTreeSet<Arc<str>>),
    Matching(Regex),
}

impl Wanted {
    fn by(command: &Command) -> Self {
        match command {
            Command::Subscribe(names) => Self::Named(names.iter().cloned().collect()),
            Command::SubscribePattern(pattern) => Self::Matching((**pattern).clone()),
            _ => Self::All,
        }
    }

    pub(super) fn has(&self, topic: &str) -> bool {
        match self {
            Self::All => true,
            Self::Named(names) => names.contains(topic),
            Self::Matching(pattern) => pattern.is_match(topic),
        }
    }
}

/// What an assignment by the program changes.
#[derive(Debug)]
pub(in crate::consumer) struct Assigned {
    /// All that is read from now on, in order.
    pub(in crate::consumer) wanted: BTreeSet<TopicPartition>,
    /// Partitions that are not read any more.
    pub(in crate::consumer) gone: Vec<TopicPartition>,
    /// Finished work of those that is not known to be committed.
    pub(in crate::consumer) finished: Marks,
    /// Partitions that were not read before, with their leases and positions.
    pub(in crate::consumer) fresh: Vec<(TopicPartition, u64, u64)>,
}

impl Face {
    /// Has the group choose; refused while the program does. Of other topics nothing is given out any
    /// more, from this call on.
    pub(in crate::consumer) fn subscribe(&self, command: Command) -> Result<(), Error> {
        let mut inner = self.lock();
        if let Some(error) = inner.refusal() {
            return Err(error.clone());
        }
        if inner.chooser == Chooser::Program {
            return Err(not_both("assigned partitions", "subscribe to topics"));
        }
        inner.chooser = Chooser::Group;
        inner.wanted = Wanted::by(&command);
        let left = inner.parts.keys().filter(|at| !inner.wanted.has(&at.topic));
        let left = Which::These(left.cloned().collect());
        inner.hold(&left);
        inner.commands.push(command);
        Self::announce(inner);
        self.wake.wake();
        Ok(())
    }

    /// Has the program choose, from this call on; refused while the group does.
    ///
    /// What stays is read on; of what goes nothing is given out any more.
    pub(in crate::consumer) fn assign(
        &self,
        wanted: BTreeSet<TopicPartition>,
    ) -> Result<(), Error> {
        let mut inner = self.lock();
        if let Some(error) = inner.refusal() {
            return Err(error.clone());
        }
        if inner.chooser == Chooser::Group {
            return Err(not_both("subscribed to topics", "assign partitions"));
        }
        inner.choose(wanted, Chooser::Program);
        Self::announce(inner);
        self.wake.wake();
        Ok(())
    }

    /// Reads nothing any more, whoever chose it.
    pub(in crate::consumer) fn unsubscribe(&self) -> Result<(), Error> {
        let mut inner = self.lock();
        if let Some(error) = inner.refusal() {
            return Err(error.clone());
        }
        match inner.chooser {
            Chooser::Nobody => return Ok(()),
            Chooser::Program => inner.choose(BTreeSet::new(), Chooser::Nobody),
            Chooser::Group => {
                inner.chooser = Chooser::Nobody;
                inner.hold(&Which::All);
                inner.commands.push(Command::Subscribe(Vec::new()));
            }
        }
        Self::announce(inner);
        self.wake.wake();
        Ok(())
    }

    /// Those of its partitions that the group has given to this member.
    pub(in crate::consumer) fn shared_out(&self) -> Vec<TopicPartition> {
        let by_program = self.lock().chooser == Chooser::Program;
        if by_program { Vec::new() } else { self.partitions() }
    }
}

impl Inner {
    /// Gives nothing more of these out.
    pub(super) fn hold(&mut self, which: &Which) {
        self.put_back_current(|partition| which.contains(partition));
        for (partition, part) in &mut self.parts {
            part.held |= which.contains(partition);
        }
    }

    fn choose(&mut self, wanted: BTreeSet<TopicPartition>, chooser: Chooser) {
        // What the group chose once, and is still being given up, is none of the program's.
        let before = std::mem::replace(&mut self.chooser, chooser);
        let by_program = before == Chooser::Program;
        let stays = |partition: &&TopicPartition| by_program && wanted.contains(*partition);
        let mut gone: Vec<_> = self.parts.keys().filter(|at| !stays(at)).cloned().collect();
        gone.sort();
        self.note_finished();
        let going = Which::These(gone.iter().cloned().collect());
        let finished = self.finished.take_open(&going);
        if !by_program {
            self.tell_going(&going);
        }
        self.drop_ready(&gone);
        for partition in &gone {
            self.parts.remove(partition);
            self.finished.remove(partition);
        }
        let missing = wanted.iter().filter(|partition| !self.parts.contains_key(*partition));
        let missing: Vec<TopicPartition> = missing.cloned().collect();
        let mut fresh = Vec::with_capacity(missing.len());
        for partition in missing {
            let (lease, position) = (self.id(), self.id());
            self.parts.insert(partition.clone(), Part::new(lease, position));
            fresh.push((partition, lease, position));
        }
        self.commands.push(Command::Assign(Assigned { wanted, gone, finished, fresh }));
    }
}

fn not_both(does: &str, wants: &str) -> Error {
    let text = format!("the consumer has {does}, and so cannot {wants}: unsubscribe first");
    Error::new(ErrorKind::InvalidState, text)
}
