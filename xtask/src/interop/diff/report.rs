//! What the conversations showed: differences, which of them are allowed, what was covered.

use std::collections::{BTreeMap, BTreeSet};

use super::compare::{Difference, compare};
use super::normal::{Normal, RULES};
use super::run::{Heard, Peer, Transcript};
use super::script::{Allowed, Conversation};
use super::value::Value;

use crate::outcome::Count;

/// What is wrong in one conversation.
#[derive(Debug, Default)]
struct Wrong {
    /// The versions in which a field differs, by the step's line, the API and what differs.
    differing: BTreeMap<(usize, String, String), BTreeSet<i16>>,
    others: Vec<String>,
}

impl Wrong {
    fn print(&self) {
        for ((line, api, what), versions) in &self.differing {
            println!("  line {line}: {api} {}: {what}", spans(versions));
        }
        self.others.iter().for_each(|line| println!("  {line}"));
    }
}

/// `v0-3, v5`
fn spans(versions: &BTreeSet<i16>) -> String {
    let mut spans: Vec<(i16, i16)> = Vec::new();
    for version in versions {
        match spans.last_mut() {
            Some((_, last)) if *last + 1 == *version => *last = *version,
            _ => spans.push((*version, *version)),
        }
    }
    let shown = spans.iter().map(|(first, last)| {
        if first == last { format!("v{first}") } else { format!("v{first}-{last}") }
    });
    shown.collect::<Vec<_>>().join(", ")
}

/// All that was found so far.
#[derive(Debug, Default)]
pub(super) struct Findings {
    wrong: BTreeMap<String, Wrong>,
    /// By conversation, the lines of allowed differences that did differ.
    used: BTreeSet<(String, usize)>,
    covered: BTreeSet<(String, i16)>,
}

impl Findings {
    /// Compares what two brokers said in a conversation.
    pub(super) fn take(
        &mut self,
        conversation: &Conversation,
        version: Option<i16>,
        peers: &[Peer; 2],
        transcripts: &[Transcript; 2],
    ) {
        let [ours, theirs] = transcripts;
        let asked = ours.covered.intersection(&theirs.covered);
        self.covered.extend(asked.cloned());
        let normal = [0, 1].map(|at| Normal::new(&peers[at], &transcripts[at].roles));
        for (one, two) in ours.heard.iter().zip(&theirs.heard) {
            let found = compare(&one.api, &normal[0].answer(one), &normal[1].answer(two));
            for difference in found {
                self.judge(conversation, version, one, &difference);
            }
        }
        for (peer, transcript) in peers.iter().zip(transcripts) {
            if let Some(why) = &transcript.stopped {
                let line = format!("cannot go on with {}: {why}", peer.name);
                self.wrong.entry(conversation.name.clone()).or_default().others.push(line);
            }
        }
    }

    fn judge(
        &mut self,
        conversation: &Conversation,
        version: Option<i16>,
        heard: &Heard,
        difference: &Difference,
    ) {
        let Some(step) = conversation.steps.get(heard.step) else { return };
        let covers = |allowed: &&Allowed| allowed.path.covers(&difference.path);
        let allowed = step.allowed.iter().chain(&conversation.allowed).find(covers);
        if let Some(allowed) = allowed {
            self.used.insert((conversation.name.clone(), allowed.line));
            return;
        }
        let shown = |value: &Option<Value>| {
            value.as_ref().map_or_else(|| "nothing".to_owned(), Value::shown)
        };
        let path = &difference.path;
        let line = format!(
            "{path}: ours {}, Kafka's {}",
            shown(&difference.ours),
            shown(&difference.theirs)
        );
        let wrong = self.wrong.entry(conversation.name.clone()).or_default();
        let versions = wrong.differing.entry((step.line, heard.api.clone(), line)).or_default();
        versions.insert(version.unwrap_or(heard.version));
    }

    /// Prints all, and counts a conversation as a test; what is listed must have been asked.
    pub(super) fn print(mut self, chosen: &[&Conversation], listed: &[(String, i16)]) -> Count {
        println!("normalised before they are compared:");
        for rule in RULES {
            println!("  - {rule}");
        }
        let mut allowances = 0;
        for conversation in chosen {
            let steps = conversation.steps.iter().flat_map(|step| &step.allowed);
            for allowed in steps.chain(&conversation.allowed) {
                allowances += 1;
                if !self.used.contains(&(conversation.name.clone(), allowed.line)) {
                    let line = format!(
                        "line {}: {} may differ ({}), and does not",
                        allowed.line, allowed.path, allowed.reason
                    );
                    self.wrong.entry(conversation.name.clone()).or_default().others.push(line);
                }
            }
        }
        let mut count = Count::default();
        for conversation in chosen {
            match self.wrong.get(&conversation.name) {
                None => count.passed += 1,
                Some(wrong) => {
                    count.failed += 1;
                    println!("DIFFERS {} ({})", conversation.name, conversation.place);
                    wrong.print();
                }
            }
        }
        count += self.coverage(listed);
        println!(
            "{} conversations, {} (API, version) pairs covered, {allowances} allowed differences",
            chosen.len(),
            self.covered.len(),
        );
        count
    }

    /// Counts as one more test that all that our broker lists was asked and answered.
    fn coverage(&self, listed: &[(String, i16)]) -> Count {
        let left: Vec<String> = listed
            .iter()
            .filter(|pair| !self.covered.contains(pair))
            .map(|(api, version)| format!("{api} v{version}"))
            .collect();
        if listed.is_empty() {
            return Count::default();
        }
        let outcome = match left.as_slice() {
            [] => Ok(()),
            left => Err(format!("not asked and answered: {}", left.join(", "))),
        };
        Count::check("every API and version that our broker lists is covered", outcome)
    }
}
