//! For how long blocks are away at least, and what each choice costs.

use std::collections::BTreeMap;

use loadmaster_proto::training::actions::{
    Absence, Action, Block, Destination, Optimization, Part, StageActions, Stripe, Swap,
};

use super::decision::BlockId;
use super::{Decision, Question};
use crate::actions::StageWork;
use crate::actions::rule::Costs;
use crate::actions::simulation::SimulatedIteration;

/// When a block is not needed.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Idle {
    /// Seconds between its uses, at least.
    pub(super) seconds: f64,
    /// Steps between them, at least.
    pub(super) steps: usize,
    /// Most of them that are idle at once.
    pub(super) at_once: u64,
    /// How often one is, in an iteration.
    pub(super) times: usize,
}

/// The blocks of a stage.
#[derive(Debug)]
pub(super) struct Prices {
    stage: usize,
    idle: BTreeMap<BlockId, Idle>,
    /// Seconds of its steps, on average.
    step_seconds: f64,
}

/// Shares of the steps between two uses that a copy out and a copy back may take at most: else nothing is saved.
const MOST_OF_IDLE: usize = 3;

impl Prices {
    /// Of a stage in a simulated iteration.
    pub(super) fn of(
        question: &Question<'_>,
        decided: &Decision,
        ran: &SimulatedIteration,
        stage: usize,
    ) -> Self {
        let none = Self { stage, idle: BTreeMap::new(), step_seconds: 0.0 };
        let (Some(blocks), Some(times)) = (question.stages.get(stage), ran.copied.devices.get(stage)) else {
            return none;
        };
        // As if everything left at once that is not recomputed: uses do not depend on what is swapped.
        let is_again = |optimization: &&Action| optimization.optimization == Optimization::Recompute;
        let mut probe: Vec<Action> =
            decided.actions_of(stage).actions.iter().filter(is_again).cloned().collect();
        for &block in question.blocks {
            let swap = Swap { block, to: Destination::Host, release_after: 0, fetch_before: 0 };
            let (first_layer, last_layer) = (*blocks.range().start(), *blocks.range().end());
            probe.push(Action {
                first_layer,
                last_layer,
                slots: Vec::new(),
                optimization: Optimization::Swap(swap),
            });
        }
        let probe = StageActions { actions: probe, ..StageActions::default() };
        let work =
            StageWork::of(blocks, question.place(stage), question.order, question.micro_batches, &probe);
        let count = work.steps.all().len();
        let time = |at: usize, is_end: bool| {
            let (start, end) = times.steps.get(at % count.max(1)).copied().unwrap_or_default();
            let before = (at / count.max(1)) as f64 * ran.copied.iteration_seconds;
            before + if is_end { end } else { start }
        };
        let mut of_block: BTreeMap<BlockId, Vec<Absence>> = BTreeMap::new();
        // What has no bytes, or is counted as fixed, stays, and so does what is too small to be asked for.
        let least = question.smallest_block.max(1);
        let has_bytes = |one: &Absence| {
            // What its layer keeps has all of a block's bytes.
            one.part != Part::Above && blocks.bytes(one.layer, one.block) >= least
        };
        for absence in work.absences.into_iter().filter(has_bytes) {
            of_block.entry((absence.layer, absence.block)).or_default().push(absence);
        }
        let idle = of_block.into_iter().map(|(of, absences)| {
            let seconds = absences
                .iter()
                .map(|one| time(one.at.needed, false) - time(one.at.leaves.saturating_sub(1), true));
            let steps = absences.iter().map(|one| one.at.needed - one.at.leaves).min().unwrap_or(0);
            let idle = Idle {
                seconds: seconds.fold(f64::INFINITY, f64::min),
                steps,
                at_once: at_once(&absences),
                times: absences.len(),
            };
            (of, idle)
        });
        Self { stage, idle: idle.collect(), step_seconds: times.busy / count.max(1) as f64 }
    }

    /// All blocks that are idle for a while, the longest first.
    pub(super) fn longest_first(&self) -> Vec<BlockId> {
        let mut all: Vec<(&BlockId, &Idle)> = self.idle.iter().collect();
        all.sort_by(|a, b| b.1.seconds.total_cmp(&a.1.seconds));
        all.into_iter().map(|(of, _)| *of).collect()
    }

    /// When a block is idle.
    pub(super) fn idle(&self, of: BlockId) -> Option<Idle> {
        self.idle.get(&of).copied()
    }

    /// Seconds in an iteration that what is done to a block takes of a link, or of its device.
    pub(super) fn work_seconds(&self, question: &Question<'_>, decided: &Decision, of: BlockId) -> f64 {
        let again = question
            .stages
            .get(self.stage)
            .and_then(|blocks| blocks.layer(of.0))
            .map(|layer| layer.seconds.again);
        let once = match decided.optimization(self.stage, of) {
            Some(Optimization::Recompute) => again.unwrap_or(0.0),
            Some(Optimization::Swap(Swap { to: Destination::Host, .. })) => {
                2.0 * self.host_seconds(question, decided, of)
            }
            Some(Optimization::Swap(Swap { to: Destination::Peers(stripes), .. })) => {
                self.peer_seconds(question, decided, of, stripes)
            }
            None => 0.0,
        };
        once * self.idle.get(&of).map_or(0.0, |idle| idle.times as f64)
    }

    /// What the choices for a block cost, but for peers.
    pub(super) fn costs(&self, question: &Question<'_>, decided: &Decision, of: BlockId) -> Option<Costs> {
        let (layer, block) = of;
        let blocks = question.stages.get(self.stage)?;
        let again = question.allowed.recompute && block == Block::Activations;
        Some(Costs {
            interval_seconds: self.idle.get(&of)?.seconds,
            host_seconds: question.allowed.host.then(|| 2.0 * self.host_seconds(question, decided, of)),
            peer_seconds: None,
            again_seconds: blocks.layer(layer).filter(|_| again).map(|layer| layer.seconds.again),
        })
    }

    fn host_seconds(&self, question: &Question<'_>, decided: &Decision, (layer, block): BlockId) -> f64 {
        let bytes = question.stages.get(self.stage).map_or(0, |blocks| blocks.bytes(layer, block));
        let link = decided.mapping.get(self.stage).and_then(|&device| question.node.host_link(device));
        link.map_or(f64::INFINITY, |link| link.latency_seconds + bytes as f64 / link.bytes_per_second)
    }

    /// Seconds of the longest stripe, there and back.
    fn peer_seconds(
        &self,
        question: &Question<'_>,
        decided: &Decision,
        of: BlockId,
        stripes: &[Stripe],
    ) -> f64 {
        let bytes = question.stages.get(self.stage).map_or(0, |blocks| blocks.bytes(of.0, of.1));
        let device = |stage: usize| decided.mapping.get(stage).copied();
        let of_stripe = |(stripe, part): (&Stripe, u64)| {
            let Some((own, other)) = device(self.stage).zip(device(stripe.stage as usize)) else {
                return f64::INFINITY;
            };
            question.node.seconds(own, other, part) + question.node.seconds(other, own, part)
        };
        stripes.iter().zip(Stripe::split(stripes, bytes)).map(of_stripe).fold(0.0, f64::max)
    }

    /// The swap of a block to the host.
    pub(super) fn to_host(
        &self,
        question: &Question<'_>,
        decided: &Decision,
        of: BlockId,
    ) -> Option<Optimization> {
        let seconds = self.host_seconds(question, decided, of);
        self.swap(of, Destination::Host, seconds)
    }

    /// The swap of a block whose copies take so long: it is gone, and fetched, as many steps from its uses as they take.
    pub(super) fn swap(&self, of: BlockId, to: Destination, seconds: f64) -> Option<Optimization> {
        let idle = self.idle.get(&of)?;
        // What all micro-batches share moves seldom, and is large: on its way it should not take the room of much else.
        let most = if of.1.is_of_micro_batch() { Action::MAX_STEPS as usize } else { 1 };
        let most = (idle.steps / MOST_OF_IDLE).min(most);
        let steps = if self.step_seconds > 0.0 { (seconds / self.step_seconds).ceil() } else { 0.0 };
        let steps = u32::try_from((steps as usize).min(most)).unwrap_or(Action::MAX_STEPS);
        Some(Optimization::Swap(Swap { block: of.1, to, release_after: steps, fetch_before: steps }))
    }
}

/// Most of them that are away at one boundary.
fn at_once(absences: &[Absence]) -> u64 {
    let mut changes: Vec<(usize, i64)> =
        absences.iter().flat_map(|one| [(one.at.leaves, 1), (one.at.needed + 1, -1)]).collect();
    changes.sort_unstable();
    let mut now = 0;
    let at_each = changes.into_iter().map(|(_, change)| {
        now += change;
        now
    });
    u64::try_from(at_each.max().unwrap_or(0)).unwrap_or(0)
}
