//! Topics subscribed to by a pattern of their names: found, and followed as they come and go.

use std::sync::Arc;

use regex::Regex;

use super::Engine;
use crate::state::machine::Context;

/// A subscription by names that match.
#[derive(Debug)]
pub(super) struct Pattern {
    /// Matches whole names.
    regex: Box<Regex>,
    /// The names that it was last held against.
    seen: Option<Arc<[Arc<str>]>>,
}

impl Engine {
    pub(super) fn subscribe_pattern(&mut self, regex: Box<Regex>, cx: &mut Context<'_>) {
        self.first_counts.clear();
        self.pattern = Some(Pattern { regex, seen: None });
        cx.metadata.watch_names(self.config.patterns_see, cx.now);
        self.cluster_seen = u64::MAX;
        self.match_names(cx);
    }

    /// Follows the topics that match, if their names have changed.
    pub(super) fn match_names(&mut self, cx: &mut Context<'_>) {
        let Some(pattern) = self.pattern.as_mut().filter(|_| self.closing.is_none()) else {
            return;
        };
        let Some(names) = cx.metadata.names() else { return };
        if pattern.seen.as_ref() == Some(&names) {
            return;
        }
        let begun = pattern.seen.is_some();
        let matching = names.iter().filter(|name| pattern.regex.is_match(name));
        let topics: Vec<Arc<str>> = matching.cloned().collect();
        pattern.seen = Some(names);
        if topics == self.topics {
            return;
        }
        for topic in topics.iter().filter(|topic| begun && !self.topics.contains(topic)) {
            // It came after the subscription: none of its records was ever skipped.
            self.first_counts.entry(Arc::clone(topic)).or_insert(0);
        }
        tracing::info!(group = %self.names.group, topics = topics.join(", "), "topics match");
        self.follow(topics, cx);
    }
}
