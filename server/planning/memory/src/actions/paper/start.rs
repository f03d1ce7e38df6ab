//! A first plan that fits.

use std::collections::BTreeSet;

use loadmaster_proto::training::actions::{Block, Optimization, Swap};
use loadmaster_simulate::copies::Keep;

use super::decision::BlockId;
use super::prices::Prices;
use super::replace::to_peers;
use super::{Decision, PlanError, Question};
use crate::actions::rule::Choice;

/// What a first plan tries before all else.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum First {
    /// The host, for all that it is free for: the text's order.
    Host,
    /// Recomputing. What nothing else can take then has the host's memory to itself.
    Recompute,
}

/// The first plan, and its seconds: the text's order, or recomputation first where that is faster or alone fits.
pub(super) fn first(question: &Question<'_>, untouched: &Decision) -> Result<(Decision, f64), PlanError> {
    if untouched.fits(question) {
        return Ok((untouched.clone(), untouched.seconds(question)?));
    }
    let mut best: Result<(Decision, f64), PlanError> = assigned(question, untouched, First::Host);
    let is_choice = question.allowed.recompute && question.allowed.host;
    if is_choice
        && let Ok(other) = assigned(question, untouched, First::Recompute)
        && best.as_ref().map_or(true, |best| other.1 < best.1)
    {
        best = Ok(other);
    }
    // Whether the other order would have fitted is not known then.
    if best.is_err() && question.stop.is_requested() {
        return Err(PlanError::Stopped);
    }
    best
}

/// From the last stage to the first one, whose blocks wait the longer the slower the others become.
fn assigned(
    question: &Question<'_>,
    untouched: &Decision,
    first: First,
) -> Result<(Decision, f64), PlanError> {
    let mut decided = untouched.clone();
    for stage in (0..question.stages.len()).rev() {
        if decided.lacks(question, stage) <= 0 {
            continue;
        }
        let ran = decided.simulated(question, Keep { steps: true, copies: false })?;
        let prices = Prices::of(question, &decided, &ran, stage);
        let mut assignment = Assignment { question, decided, prices, stage, taken_back: BTreeSet::new() };
        assignment.assign(first);
        if question.stop.is_requested() {
            return Err(PlanError::Stopped);
        }
        let missing = assignment.decided.lacks(question, stage);
        if missing > 0 {
            return Err(PlanError::NoRoom { stage, missing: u64::try_from(missing).unwrap_or(u64::MAX) });
        }
        assignment.drop_needless();
        decided = assignment.decided;
    }
    let seconds = decided.seconds(question)?;
    Ok((decided, seconds))
}

/// What is tried with a block.
#[derive(Debug, Clone, Copy)]
enum Way {
    /// The host, where that is free.
    FreeHost,
    Host,
    /// Computing it once more, where the rule says so.
    CheaperAgain,
    Again,
    Peers,
}

/// One stage.
struct Assignment<'a> {
    question: &'a Question<'a>,
    decided: Decision,
    prices: Prices,
    stage: usize,
    /// What is not tried once more for now.
    taken_back: BTreeSet<BlockId>,
}

/// Its blocks.
struct Orders {
    longest_first: Vec<BlockId>,
    later_first: Vec<BlockId>,
    cheapest_first: Vec<BlockId>,
}

impl Assignment<'_> {
    fn assign(&mut self, first: First) {
        let longest_first = self.prices.longest_first();
        let activations = longest_first.iter().filter(|of| of.1 == Block::Activations);
        let mut later_first: Vec<BlockId> = activations.copied().collect();
        later_first.sort_by(|a, b| b.cmp(a));
        let mut cheapest_first = longest_first.clone();
        let added = |of: &BlockId| self.added_by_host(*of).unwrap_or(f64::INFINITY);
        cheapest_first.sort_by(|a, b| added(a).total_cmp(&added(b)));
        let orders = Orders { longest_first, later_first, cheapest_first };
        self.ways(&orders, first);
        // What helped no one may have taken the room of what would have.
        if self.take_back() {
            self.ways(&orders, first);
            self.taken_back.clear();
            self.ways(&orders, first);
        }
        self.hurry();
    }

    fn ways(&mut self, Orders { longest_first, later_first, cheapest_first }: &Orders, first: First) {
        if first == First::Recompute {
            self.each(later_first, Way::Again);
        }
        self.each(longest_first, Way::FreeHost);
        self.each(later_first, Way::CheaperAgain);
        self.each(cheapest_first, Way::Host);
        self.each(later_first, Way::Again);
        self.each(longest_first, Way::Peers);
    }

    /// The blocks to which something is done.
    fn done(&self) -> Vec<BlockId> {
        self.decided.optimizations.get(self.stage).into_iter().flatten().map(|(of, _)| *of).collect()
    }

    /// Where room is still missing, lets stay what makes no difference to that. Whether there was any.
    fn take_back(&mut self) -> bool {
        let lacks = self.decided.lacks(self.question, self.stage);
        if lacks <= 0 {
            return false;
        }
        for of in self.done() {
            let before = self.decided.clone();
            self.decided.set(self.question, self.stage, &[(of, None)]);
            if self.decided.lacks(self.question, self.stage) > lacks {
                self.decided = before;
            } else {
                self.taken_back.insert(of);
            }
        }
        !self.taken_back.is_empty()
    }

    /// Where all is away that may be and room is still missing, copies are not given as much time: what is on its way takes
    /// room, too.
    fn hurry(&mut self) {
        let unhurried = self.decided.clone();
        for part in [2, 4, u32::MAX] {
            if self.decided.lacks(self.question, self.stage) <= 0 {
                return;
            }
            let hurried = unhurried.optimizations.get(self.stage).into_iter().flatten().filter_map(
                |(of, optimization)| {
                    let Optimization::Swap(swap) = optimization else { return None };
                    let [release_after, fetch_before] =
                        [swap.release_after, swap.fetch_before].map(|steps| steps / part);
                    Some((
                        *of,
                        Some(Optimization::Swap(Swap { release_after, fetch_before, ..swap.clone() })),
                    ))
                },
            );
            let hurried: Vec<_> = hurried.collect();
            self.decided.set(self.question, self.stage, &hurried);
        }
    }

    /// Tries it with each block that stays until the stage fits. What makes it worse is not done.
    fn each(&mut self, all: &[BlockId], way: Way) {
        for &of in all {
            let lacks = self.decided.lacks(self.question, self.stage);
            if lacks <= 0 || self.question.stop.is_requested() {
                return;
            }
            if self.decided.optimization(self.stage, of).is_some() || self.taken_back.contains(&of) {
                continue;
            }
            let Some(optimization) = self.optimization(of, way) else { continue };
            let before = self.decided.clone();
            self.decided.set(self.question, self.stage, &[(of, Some(optimization))]);
            let is_host_full = !self.decided.has_room_at_hosts(self.question.node);
            if is_host_full || self.decided.lacks(self.question, self.stage) > lacks {
                self.decided = before;
            }
        }
    }

    fn optimization(&self, of: BlockId, way: Way) -> Option<Optimization> {
        let Self { question, decided, prices, stage, .. } = self;
        let costs = prices.costs(question, decided, of)?;
        let again = || costs.again_seconds.map(|_| Optimization::Recompute);
        let host = || prices.to_host(question, decided, of).filter(|_| question.allowed.host);
        match way {
            Way::FreeHost => host().filter(|_| costs.added(Choice::Host) == Some(0.0)),
            Way::Host => host(),
            Way::CheaperAgain => again().filter(|_| costs.least() == Some(Choice::Recompute)),
            Way::Again => again(),
            Way::Peers if question.allowed.peers => to_peers(question, decided, prices, (*stage, of)),
            Way::Peers => None,
        }
    }

    /// Lets stay what need not leave, what takes most time first.
    fn drop_needless(&mut self) {
        let mut done: Vec<(f64, BlockId)> = self
            .done()
            .into_iter()
            .map(|of| (self.prices.work_seconds(self.question, &self.decided, of), of))
            .collect();
        done.sort_by(|a, b| b.0.total_cmp(&a.0));
        for (_, of) in done {
            let optimization = self.decided.optimization(self.stage, of).cloned();
            self.decided.set(self.question, self.stage, &[(of, None)]);
            if self.decided.lacks(self.question, self.stage) > 0 {
                self.decided.set(self.question, self.stage, &[(of, optimization)]);
            }
        }
    }

    fn added_by_host(&self, of: BlockId) -> Option<f64> {
        self.prices.costs(self.question, &self.decided, of)?.added(Choice::Host)
    }
}
