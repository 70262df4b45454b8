//! How far the groups are, and whether each gets on.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use ottla::{Admin, Error, OffsetSpec, Options, TopicPartition};

use crate::readers::MEMBERS;
use crate::watch::{Check, Phase};
use crate::{Outcome, Run, now};

/// Longest that a group may take to commit up to where its partitions once ended. The broker may be
/// away twice in that time, and members may go without a word.
const PATIENCE: Duration = Duration::from_mins(3);
const CALL: Duration = Duration::from_mins(1);
const SLACK: Duration = Duration::from_secs(15);
const EVERY: Duration = Duration::from_secs(5);
/// The same when all wait for the groups' end.
const SOON: Duration = Duration::from_secs(1);

/// A group, and the ends that it has to come to.
#[derive(Debug)]
struct Group {
    name: &'static str,
    places: Vec<TopicPartition>,
    goal: Vec<i64>,
    since: Instant,
}

/// What the groups have still to commit, all together, at the last look.
#[derive(Debug, Default)]
pub(crate) struct Lag {
    records: AtomicU64,
    looks: AtomicU64,
}

impl Lag {
    pub(crate) fn read(&self) -> u64 {
        self.records.load(Ordering::Relaxed)
    }

    /// How many looks there were.
    pub(crate) fn looks(&self) -> u64 {
        self.looks.load(Ordering::Acquire)
    }
}

/// Looks at all groups, until the end.
pub(crate) fn follow(run: &Run) -> Outcome {
    let options = Options::new().set("bootstrap.servers", &run.address)?;
    let admin = Admin::new(&options.set("request.timeout.ms", "10000")?)?;
    let mut groups = groups(run);
    while run.watch.phase() < Phase::End {
        let mut lag = 0;
        for group in &mut groups {
            match look(run, &admin, group) {
                Ok(behind) => lag += behind,
                Err(error) => {
                    lag += 1;
                    run.watch.fault(Check::Calls, format!("offsets of {}: {error:?}", group.name));
                }
            }
        }
        run.lag.records.store(lag, Ordering::Relaxed);
        run.lag.looks.fetch_add(1, Ordering::Release);
        let draining = run.watch.phase() == Phase::Drain;
        run.watch.rest(if draining { SOON } else { EVERY }, Phase::End);
    }
    admin.close(SLACK)?;
    Ok(())
}

fn groups(run: &Run) -> Vec<Group> {
    let mut groups: Vec<Group> = Vec::new();
    for habit in MEMBERS {
        if groups.iter().any(|group| group.name == habit.group) {
            continue;
        }
        let lanes = run.ledger.lanes().iter().map(|lane| lane.place.clone());
        let places = lanes.filter(|place| habit.topics.contains(&&*place.topic));
        let (name, places, goal) = (habit.group, places.collect(), Vec::new());
        groups.push(Group { name, places, goal, since: now() });
    }
    groups
}

/// How far a group is behind, and whether it has come to its goal; then that is set anew.
fn look(run: &Run, admin: &Admin, group: &mut Group) -> Result<u64, Error> {
    let watch = &run.watch;
    let ends: Vec<_> =
        group.places.iter().map(|place| (place.clone(), OffsetSpec::Latest)).collect();
    let limit = CALL + SLACK;
    let ends = watch.call("list_offsets", limit, || admin.list_offsets(&ends).timeout(CALL).wait());
    let ends: Vec<i64> = ends?.all()?.into_iter().map(|(_, end)| end.offset).collect();
    let committed = watch.call("list_consumer_group_offsets", limit, || {
        admin.list_consumer_group_offsets(group.name).timeout(CALL).wait()
    })?;
    let committed: Vec<i64> = group
        .places
        .iter()
        .map(|place| committed.iter().find(|(known, _)| known == place).map_or(0, |c| c.1.offset))
        .collect();
    if let Some(text) = group.late(&committed, &ends) {
        watch.fault(Check::Groups, text);
    }
    let behind = committed.iter().zip(&ends).map(|(at, end)| end.saturating_sub(*at).max(0));
    Ok(behind.filter_map(|behind| u64::try_from(behind).ok()).sum())
}

impl Group {
    /// What keeps it from its goal, once its time is over. A goal that was reached, or missed, is
    /// followed by the ends of now.
    fn late(&mut self, committed: &[i64], ends: &[i64]) -> Option<String> {
        let open = self.places.iter().zip(committed).zip(&self.goal);
        let open = open.filter(|((_, committed), goal)| committed < goal);
        let open: Vec<String> = open
            .map(|((place, committed), goal)| format!("{place} {committed} of {goal}"))
            .collect();
        let late = self.since.elapsed() > PATIENCE;
        if !open.is_empty() && !late {
            return None;
        }
        let seconds = self.since.elapsed().as_secs();
        self.goal = ends.to_vec();
        self.since = now();
        let (name, open) = (self.name, open.join(", "));
        (!open.is_empty()).then(|| format!("{name} in {seconds} s committed no more than {open}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_group_that_does_not_come_to_its_goal_in_time_is_told_by_partition() {
        let places = vec![TopicPartition::new("t", 0), TopicPartition::new("t", 1)];
        let mut group = Group { name: "g", places, goal: Vec::new(), since: now() };
        assert_eq!(group.late(&[0, 0], &[5, 7]), None, "the first look sets the goal");
        assert_eq!(group.late(&[5, 6], &[9, 9]), None, "there is time left");
        assert_eq!(group.goal, [5, 7]);
        group.since -= PATIENCE * 2;
        let told = group.late(&[5, 6], &[9, 9]).unwrap();
        assert!(told.ends_with("committed no more than t-1 6 of 7"), "{told}");
        assert_eq!(group.late(&[9, 9], &[11, 11]), None);
        assert_eq!(group.goal, [11, 11], "it was reached");
    }
}
