//! What all answers come to, as a table.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use crate::certificates::check::{Class, Verdict};
use crate::certificates::draw_question::Topic;
use crate::certificates::scene::Fleet;
use crate::output::word;

/// Answers about one topic.
#[derive(Debug, Default, Clone)]
struct Row {
    asked: u64,
    plans: u64,
    proven: u64,
    stopped: u64,
    /// Stated gaps of plans that are not proven; none where no bound is known.
    gaps: Vec<Option<f64>>,
    /// How much worse than the best those are.
    behind: Vec<f64>,
    wrong: BTreeMap<Class, u64>,
}

/// All answers.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    topics: BTreeMap<String, Row>,
    /// The same answers, by what the devices are.
    fleets: BTreeMap<&'static str, Row>,
    /// Plans that were looked at.
    pub(crate) looked_at: u64,
    /// Remedies that were tried, and those whose words are not known here.
    pub(crate) remedies: u64,
    pub(crate) unread_remedies: u64,
    /// Questions with too many plans.
    pub(crate) passed_over: u64,
}

impl Tally {
    pub(crate) fn add(&mut self, topic: Topic, fleet: &Fleet, verdict: &Verdict) {
        self.remedies += verdict.remedies;
        self.unread_remedies += verdict.unread_remedies;
        self.topics.entry(word(&topic)).or_default().add(verdict);
        self.fleets.entry(name_of(fleet)).or_default().add(verdict);
    }

    pub(crate) fn asked(&self) -> u64 {
        self.topics.values().map(|row| row.asked).sum()
    }

    pub(crate) fn wrong(&self) -> u64 {
        self.topics.values().flat_map(|row| row.wrong.values()).sum()
    }

    pub(crate) fn of_class(&self, class: Class) -> u64 {
        self.topics.values().filter_map(|row| row.wrong.get(&class)).sum()
    }

    /// A table with a row per topic, and all that is wrong by class.
    pub(crate) fn table(&self) -> String {
        let mut text = String::new();
        let _ = writeln!(
            text,
            "{:<12} {:>6} {:>6} {:>6} {:>7} {:>8} {:>8} {:>8}  wrong",
            "topic", "asked", "plans", "proven", "stopped", "no bound", "max gap", "behind"
        );
        let percent = |value: Option<f64>| {
            value.map_or_else(|| "-".to_owned(), |value| format!("{:.1} %", value * 100.0))
        };
        let mut all = Row::default();
        let mut line = |name: &str, row: &Row| {
            let most = |values: &mut dyn Iterator<Item = f64>| values.reduce(f64::max);
            let wrong: Vec<String> =
                row.wrong.iter().map(|(class, count)| format!("{} {count}", word(class))).collect();
            let _ = writeln!(
                text,
                "{name:<12} {:>6} {:>6} {:>6} {:>7} {:>8} {:>8} {:>8}  {}",
                row.asked,
                row.plans,
                row.proven,
                row.stopped,
                row.gaps.iter().filter(|gap| gap.is_none()).count(),
                percent(most(&mut row.gaps.iter().copied().flatten())),
                percent(most(&mut row.behind.iter().copied())),
                if wrong.is_empty() { "nothing".to_owned() } else { wrong.join(", ") },
            );
        };
        for (topic, row) in &self.topics {
            line(topic, row);
            all.asked += row.asked;
            all.plans += row.plans;
            all.proven += row.proven;
            all.stopped += row.stopped;
            all.gaps.extend(&row.gaps);
            all.behind.extend(&row.behind);
            for (&class, count) in &row.wrong {
                *all.wrong.entry(class).or_default() += count;
            }
        }
        line("all", &all);
        for (fleet, row) in &self.fleets {
            line(fleet, row);
        }
        text
    }
}

/// What the devices of a fleet are.
fn name_of(fleet: &Fleet) -> &'static str {
    match fleet {
        Fleet::Groups(groups) if groups.len() == 1 => "one group",
        Fleet::Groups(_) => "two groups",
        Fleet::Cluster(cluster) if cluster.nodes.len() == 1 => "one node",
        Fleet::Cluster(_) => "nodes",
    }
}

impl Row {
    fn add(&mut self, verdict: &Verdict) {
        let row = self;
        row.asked += 1;
        row.plans += u64::from(verdict.is_plan);
        row.proven += u64::from(verdict.is_plan && verdict.is_proven);
        row.stopped += u64::from(verdict.is_stopped);
        if verdict.is_plan && !verdict.is_proven {
            row.gaps.push(verdict.stated_gap);
            row.behind.extend(verdict.behind);
        }
        let mut classes: Vec<Class> = verdict.findings.iter().map(|finding| finding.class).collect();
        classes.sort_unstable();
        classes.dedup();
        for class in classes {
            *row.wrong.entry(class).or_default() += 1;
        }
    }
}
