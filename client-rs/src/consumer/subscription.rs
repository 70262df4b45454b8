//! What a consumer reads: topics that its group shares out, or partitions that it names itself.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::Consumer;
use super::face::{Command, Face};
use crate::error::{Error, ErrorKind};
use crate::record::{TopicPartition, check_partition, check_topic};

/// Largest size of a pattern of topics once it is compiled.
const PATTERN_BYTES_MAX: usize = 1 << 20;

impl Consumer {
    /// Reads these topics, and no others from now on. The group shares out their partitions.
    ///
    /// `InvalidGroup` without `group.id`; `InvalidTopic` for a name that no topic can have;
    /// `InvalidState` after [`Self::assign`], unless [`Self::unsubscribe`] came in between.
    pub fn subscribe(&self, topics: &[&str]) -> Result<(), Error> {
        let mut names = Vec::with_capacity(topics.len());
        for &topic in topics {
            check_topic(topic)?;
            names.push(Arc::from(topic));
        }
        if names.is_empty() {
            return self.unsubscribe();
        }
        self.subscribe_by(Command::Subscribe(names))
    }

    /// Reads the topics whose whole names match a regular expression, and no others from now on;
    /// also those that come later, as soon as the metadata tell of them (`metadata.max.age.ms`), and
    /// a topic that comes later from its beginning. Kafka's internal topics are left out unless
    /// `exclude.internal.topics` is false.
    ///
    /// The syntax is that of the crate `regex`, which is RE2's but for little. `InvalidGroup` without
    /// `group.id`; `InvalidArgument` for a pattern that cannot be read, or grows beyond 1 MiB.
    pub fn subscribe_pattern(&self, pattern: &str) -> Result<(), Error> {
        let build =
            |text: &str| regex::RegexBuilder::new(text).size_limit(PATTERN_BYTES_MAX).build();
        // By itself first: a `)` that closes nothing must not close what is put around it.
        let whole = build(pattern).and_then(|_| build(&format!("^(?:{pattern})$")));
        let regex = whole.map_err(|fault| {
            let shown: String = pattern.chars().take(60).collect();
            let text = format!("`{}` is no pattern of topics", shown.escape_debug());
            Error::new(ErrorKind::InvalidArgument, text).with_source(fault)
        })?;
        self.subscribe_by(Command::SubscribePattern(Box::new(regex)))
    }

    fn subscribe_by(&self, command: Command) -> Result<(), Error> {
        self.own.check_group("subscribe")?;
        self.own.start()?;
        self.own.face.subscribe(command)
    }

    /// Reads these partitions, and no others from now on, without a group that shares them out.
    ///
    /// What was read before and is among them is read on from where it stands, paused if it was; of
    /// what is not, nothing is given out any more. With `group.id` reading begins at what the group
    /// has committed, and commits go there, finished work of partitions that go included; the group
    /// should have no members, or it refuses them with `CommitFenced`. Without it reading begins by
    /// `auto.offset.reset`, and commits are refused. There is no membership, so no limit of time
    /// between polls, and a listener of rebalances is told nothing. No partition at all is
    /// [`Self::unsubscribe`].
    ///
    /// A partition that does not exist is waited for, and then read from its beginning, since none
    /// of its records was ever skipped; a poll that ends without records meanwhile names it in
    /// `UnknownTopic`. `InvalidState` while topics are subscribed to; `InvalidTopic` and
    /// `InvalidPartition` for what cannot be. Kafka: `assign`.
    ///
    /// ```no_run
    /// use std::time::Duration;
    /// use ottla::{Consumer, Options, TopicPartition};
    ///
    /// let options = Options::new()
    ///     .set("bootstrap.servers", "localhost:9092")?
    ///     .set("auto.offset.reset", "earliest")?;
    /// let consumer = Consumer::new(&options)?;
    /// let part = TopicPartition::new("orders", 3);
    /// consumer.assign(&[part.clone()])?;
    /// consumer.seek(&part, 1_000)?;
    /// let record = consumer.poll(Duration::from_secs(10))?;
    /// # Ok::<(), ottla::Error>(())
    /// ```
    pub fn assign(&self, partitions: &[TopicPartition]) -> Result<(), Error> {
        partitions.iter().try_for_each(check_partition)?;
        let wanted: BTreeSet<TopicPartition> = partitions.iter().cloned().collect();
        if wanted.is_empty() {
            return self.unsubscribe();
        }
        self.own.start()?;
        self.own.face.assign(wanted)
    }

    /// Reads nothing any more, whether it was subscribed to or assigned: no record is given out from
    /// this call on. What is finished is committed, if `enable.auto.commit` is set, and the group is
    /// left. It needs no network where nothing was read yet.
    pub fn unsubscribe(&self) -> Result<(), Error> {
        self.own.process.check()?;
        self.own.face.unsubscribe()
    }

    /// The partitions that are this consumer's now.
    pub fn assignment(&self) -> Vec<TopicPartition> {
        self.own.live().map(Face::partitions).unwrap_or_default()
    }
}
