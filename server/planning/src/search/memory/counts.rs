//! How many stages may follow from a place on, as far as it matters.
//!
//! Under 1F1B a stage holds one micro-batch for each stage from itself on, up to all micro-batches; and a
//! question may bound the number of stages. Numbers that are too large to matter count as one.

use loadmaster_proto::training::Schedule;

use super::super::{Question, StageCosts};
use super::effort::Limits;
use super::leximax::Unfinished;

/// A number of stages from a place to the end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Count {
    /// The number, or the largest one that is told apart.
    pub(super) stages: usize,
    /// The fewest stages that it stands for.
    pub(super) fewest: usize,
}

/// The numbers of stages that each place has.
#[derive(Debug)]
pub(super) struct Counts {
    /// By place, ascending; none where no path leads from the first place or to the end.
    pub(super) by_place: Vec<Vec<Count>>,
    most: usize,
    /// Whether `most` stands for all larger numbers as well.
    or_more: bool,
}

impl Counts {
    pub(super) fn of<C: StageCosts>(question: &Question<'_, C>, limits: Limits) -> Result<Self, Unfinished> {
        let longest = longest_path(question).min(question.costs.layers());
        let (fewest, most) = (*question.stages.start(), *question.stages.end());
        let in_flight = match question.schedule {
            Schedule::Gpipe => 1,
            Schedule::OneFOneB => question.micro_batches as usize,
        };
        let or_more = most >= longest;
        let most = if or_more { in_flight.max(fewest).max(1).min(longest) } else { most };
        let by_place = vec![Vec::new(); question.places.count()];
        let mut counts = Self { by_place, most, or_more };
        counts.count(question, limits)?;
        if let Some(first) = counts.by_place.first_mut() {
            first.retain(|count| question.stages.contains(&count.stages));
        }
        Ok(counts)
    }

    fn count<C>(&mut self, question: &Question<'_, C>, limits: Limits) -> Result<(), Unfinished> {
        if let Some(end) = self.by_place.last_mut() {
            end.push(Count { stages: 0, fewest: 0 });
        }
        let is_reachable = reachable(question);
        let mut known = 0;
        for place in (0..question.places.last()).rev().filter(|&place| is_reachable[place as usize]) {
            let (before, after) = self.by_place.split_at_mut(place as usize + 1);
            let Some(here) = before.last_mut() else { continue };
            for step in question.places.steps(place) {
                for next in &after[step.to as usize - place as usize - 1] {
                    let stages = match next.stages < self.most {
                        true => next.stages + 1,
                        false if self.or_more => self.most,
                        false => continue,
                    };
                    let count = Count { stages, fewest: next.fewest + 1 };
                    match here.binary_search_by_key(&stages, |count| count.stages) {
                        Ok(found) => here[found].fewest = here[found].fewest.min(count.fewest),
                        Err(gap) => here.insert(gap, count),
                    }
                }
            }
            known += here.len();
            if known > limits.moves {
                return Err(Unfinished::TooMany);
            }
        }
        Ok(())
    }

    /// What may follow a place with so many stages: one less, or as many where that stands for more.
    pub(super) fn after(&self, stages: usize) -> impl Iterator<Item = usize> {
        let as_many = (self.or_more && stages == self.most).then_some(stages);
        stages.checked_sub(1).into_iter().chain(as_many)
    }
}

/// Which places are reached from the first.
fn reachable<C>(question: &Question<'_, C>) -> Vec<bool> {
    let mut is_reachable = vec![false; question.places.count()];
    if let Some(first) = is_reachable.first_mut() {
        *first = true;
    }
    for place in 0..question.places.last() {
        if is_reachable[place as usize] {
            question.places.steps(place).iter().for_each(|step| is_reachable[step.to as usize] = true);
        }
    }
    is_reachable
}

/// The most stages that fill all devices; 0 where none do.
fn longest_path<C>(question: &Question<'_, C>) -> usize {
    let mut longest: Vec<Option<usize>> = vec![None; question.places.count()];
    if let Some(end) = longest.last_mut() {
        *end = Some(0);
    }
    for place in (0..question.places.last()).rev() {
        let after = question.places.steps(place).iter().filter_map(|step| longest[step.to as usize]);
        longest[place as usize] = after.max().map(|stages| stages + 1);
    }
    longest.first().copied().flatten().unwrap_or(0)
}
