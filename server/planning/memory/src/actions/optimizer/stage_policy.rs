//! What a stage does: how much of it leaves, to where, and when; what is still missing then is recomputed.

use std::cell::LazyCell;
use std::collections::BTreeMap;
use std::rc::Rc;

use loadmaster_proto::training::actions::{Action, Block, Optimization, StageActions};

use super::gpipe_slots;
use super::in_flight_assignment::{Slot, few_seconds, fewest_seconds, least_in_turn};
use super::keep_sets::SlotChoices;
use super::offload_order::{leaving_order, spread};
use super::stage_memo::StageMemo;
use crate::actions::simulation::device_of;
use crate::actions::striping::Receiver;
use crate::actions::{LayerBlocks, PeakMemory, PlanError, Question, StageBlocks, StageWork};
use loadmaster_simulate::Order;
use loadmaster_simulate::copies::DeviceSteps;

/// How often what a stage lacks with copies on their way is left free, and asked for once more.
const ROUNDS: u32 = 8;

/// How long is looked for what is recomputed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Care {
    /// A mixture, rounded.
    Few,
    /// The best there is.
    Fewest,
    /// Whatever fits, where nothing does if all others in flight are still held by each.
    Least,
}

/// How much leaves a stage. Activations leave in units: a layer's of one slot.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub(super) struct StagePolicy {
    /// Layers whose optimizer's state is away between updates.
    pub(super) state: u32,
    /// Steps from an update to where its state is gone.
    pub(super) state_after: u32,
    /// Steps from where it is fetched to its update.
    pub(super) state_before: u32,
    /// Layers whose gradients are away between the passes and updates that add to them or read them.
    pub(super) gradients: u32,
    /// Layers whose weights are away between the passes and updates that read them.
    pub(super) weights: u32,
    /// Whether these are on peers where one has room, instead of on the host.
    pub(super) near: bool,
    /// Steps from such a use of gradients or weights to where they are gone, and from where they are fetched to the next.
    pub(super) use_steps: u32,
    /// Whether the inputs of what is recomputed are on the host meanwhile.
    pub(super) inputs: bool,
    /// Units on the host.
    pub(super) host: u32,
    /// Units on peers.
    pub(super) peers: u32,
    /// Steps from the one that leaves a unit for the host to where it is gone.
    pub(super) after: u32,
    /// Steps from where it is fetched to the one that needs it.
    pub(super) before: u32,
}

/// Blocks of no micro-batch.
pub(super) const LASTING: [Block; 3] = [Block::Optimizer, Block::Gradients, Block::Weights];

impl StagePolicy {
    /// The same by allowed ways alone: what would go to peers goes to the host, and the other way round.
    pub(super) fn allowed(self, question: &Question<'_>) -> Self {
        let units = self.host.saturating_add(self.peers);
        match (question.allowed.host, question.allowed.peers) {
            (true, true) => self,
            (true, false) => Self {
                host: units,
                peers: 0,
                near: false,
                after: self.after.max(1),
                before: self.before.max(1),
                ..self
            },
            (false, true) => Self { host: 0, peers: units, near: true, inputs: false, ..self },
            (false, false) => Self::default(),
        }
    }

    /// Layers whose blocks of this kind, of no micro-batch, are away between their uses.
    pub(super) fn lasting(&self, block: Block) -> u32 {
        match block {
            Block::Optimizer => self.state,
            Block::Gradients => self.gradients,
            Block::Weights => self.weights,
            Block::Activations | Block::Inputs | Block::Versions => 0,
        }
    }
}

/// A stage with all that policies need of it.
#[derive(Debug, Clone)]
pub(super) struct Stage<'a> {
    pub(super) question: &'a Question<'a>,
    pub(super) index: usize,
    pub(super) blocks: &'a StageBlocks,
    /// Micro-batches of an iteration, by slot.
    pub(super) micro_batches: Vec<u32>,
    /// By slot: how much a second of its micro-batches counts.
    pub(super) weights: Vec<f64>,
    /// Bytes that it may hold, with those that are reserved left out.
    pub(super) room: u64,
    /// What it holds when nothing is done.
    pub(super) untouched: PeakMemory,
    /// Positions of layers in the order in which their activations leave.
    pub(super) order: Vec<usize>,
    /// Slots in that order.
    pub(super) slots: Vec<u32>,
    /// Seconds of a step, on average, when the slowest stage sets the pace.
    pub(super) step_seconds: f64,
    pub(super) memo: StageMemo,
}

/// A stage that fits.
#[derive(Debug, Clone, Default)]
pub(super) struct Built {
    pub(super) policy: StagePolicy,
    /// Pools are left out.
    pub(super) actions: StageActions,
    pub(super) held: PeakMemory,
    pub(super) device: DeviceSteps,
}

impl<'a> Stage<'a> {
    pub(super) fn new(
        question: &'a Question<'a>,
        index: usize,
        capacity: u64,
        period: f64,
    ) -> Result<Self, PlanError> {
        let blocks = question.stages.get(index).ok_or(PlanError::Unfit("a stage has blocks"))?;
        let none = StageActions::default();
        let work =
            StageWork::of(blocks, question.place(index), question.order, question.micro_batches, &none);
        let in_flight = question.in_flight(index);
        let of_slot = |slot: u32| question.micro_batches.saturating_sub(slot).div_ceil(in_flight);
        let steps = 2.0 * blocks.layers.len().max(1) as f64;
        Ok(Self {
            question,
            index,
            blocks,
            micro_batches: (0..in_flight).map(of_slot).collect(),
            weights: (0..in_flight).map(|slot| f64::from(of_slot(slot))).collect(),
            room: capacity.saturating_sub(question.reserve(index)),
            untouched: PeakMemory::of(blocks, &work, &none),
            order: leaving_order(blocks, question.smallest_block),
            slots: spread(in_flight as usize).into_iter().map(|slot| slot as u32).collect(),
            step_seconds: period / steps,
            memo: StageMemo::default(),
        })
    }

    /// The same stage where a second of a slot counts as often as it has micro-batches, and the more the more often the longest
    /// ways go through them: `share` of it.
    pub(super) fn weighted(&self, visits: &[f64], share: f64) -> Self {
        let mut stage = Self { memo: self.memo.of_another_weighting(), ..self.clone() };
        let (all, of_all) = (self.micro_batches.iter().sum::<u32>(), visits.iter().sum::<f64>());
        for ((weight, &micro_batches), visits) in
            stage.weights.iter_mut().zip(&self.micro_batches).zip(visits)
        {
            let visited = if of_all > 0.0 { visits / of_all * f64::from(all) } else { 0.0 };
            *weight = f64::from(micro_batches) * (1.0 - share) + visited * share;
        }
        stage
    }

    /// Units that there are.
    pub(super) fn units(&self) -> u32 {
        u32::try_from(self.order.len() * self.slots.len()).unwrap_or(u32::MAX)
    }

    /// Its layers.
    pub(super) fn layers(&self) -> u32 {
        u32::try_from(self.blocks.layers.len()).unwrap_or(u32::MAX)
    }

    /// Bytes of a unit, on average.
    pub(super) fn unit_bytes(&self) -> f64 {
        let all: u64 = self.blocks.layers.iter().map(|layer| layer.activations).sum();
        all as f64 / self.blocks.layers.len().max(1) as f64
    }

    /// The stage with what a policy says, and no more recomputed than it needs; none where that does not fit.
    /// `receivers` are the peers with what is free on them.
    pub(super) fn built(&self, policy: StagePolicy, receivers: &[Receiver], care: Care) -> Option<Built> {
        let leaving = self.leaving(policy, receivers)?;
        let lasting: u64 = self.blocks.layers.iter().map(LayerBlocks::lasting).sum();
        let on_host = LASTING.iter().map(|&block| {
            let away = self.blocks.layers.iter().take(policy.lasting(block) as usize);
            away.map(|layer| layer.bytes(block)).sum::<u64>()
        });
        let lasting = lasting + self.blocks.fixed - on_host.sum::<u64>();
        let choices: LazyCell<Vec<Rc<SlotChoices>>, _> =
            LazyCell::new(|| leaving.away.iter().map(|away| self.choices_of(away, policy.inputs)).collect());
        let is_exact = match care {
            Care::Fewest => true,
            Care::Few => self.is_soon_exact(),
            Care::Least => false,
        };
        // What copies on their way hold is seen when the steps are played.
        let mut on_their_way = 0;
        for _ in 0..ROUNDS {
            let room = self.room.checked_sub(lasting)?.checked_sub(on_their_way)?;
            let exact = is_exact.then(|| self.fewest(&leaving.away, policy.inputs, room)).flatten();
            let slots = || -> Vec<Slot<'_>> {
                let all = choices.iter().zip(&self.weights);
                all.map(|(choices, &weight)| Slot { choices, weight }).collect()
            };
            let is_gpipe = care == Care::Fewest && self.question.order == Order::Gpipe;
            let under_gpipe =
                is_gpipe.then(|| gpipe_slots::fewest(&slots(), room, self.question.stop)).flatten();
            let under_gpipe = under_gpipe
                .map(|of| of.plan)
                .filter(|own| exact.as_ref().is_none_or(|of| own.seconds < of.plan.seconds));
            let tried: Vec<Vec<Action>> = match exact {
                Some(exact) if under_gpipe.is_none() => vec![self.again(&exact.choices, &exact.plan.choices)],
                _ => {
                    let slots = slots();
                    let chosen = match care {
                        Care::Few => vec![few_seconds(&slots, room)?.choices],
                        Care::Fewest => {
                            // Of many slots neither program looks at all choices.
                            let both = under_gpipe.into_iter().chain(fewest_seconds(&slots, room));
                            let best = both.min_by(|one, other| one.seconds.total_cmp(&other.seconds));
                            vec![best?.choices]
                        }
                        Care::Least => least_in_turn(&slots, room),
                    };
                    chosen.iter().map(|chosen| self.again(&choices, chosen)).collect()
                }
            };
            let mut over = None;
            for again in tried {
                let mut actions = StageActions { actions: leaving.swaps.clone(), ..StageActions::default() };
                if policy.inputs {
                    let is_large = |run: &&Action| {
                        self.blocks.bytes(run.first_layer, Block::Inputs) >= self.question.smallest_block
                    };
                    let inputs = again.iter().filter(is_large).map(|run| self.input_of(run, policy));
                    actions.actions.extend(inputs);
                }
                actions.actions.extend(again);
                let question = self.question;
                let (work, device) = device_of(question, self.index, &actions).ok()?;
                let held = PeakMemory::of(self.blocks, &work, &actions);
                if held.device <= self.room {
                    return Some(Built { policy, actions, held, device });
                }
                let own = held.device - self.room;
                over = Some(over.map_or(own, |over: u64| over.min(own)));
            }
            on_their_way += over?;
        }
        None
    }

    /// The stage with what a policy says, or with as much more of it as makes it fit.
    pub(super) fn fitting(&self, policy: StagePolicy, receivers: &[Receiver]) -> Option<Built> {
        let layers = self.layers();
        let if_any = |of: u32| if of > 0 { layers } else { 0 };
        let hurried = |of: StagePolicy, part: u32| StagePolicy {
            state_after: of.state_after / part,
            state_before: of.state_before / part,
            use_steps: of.use_steps / part,
            ..of
        };
        let all = StagePolicy {
            state: if_any(policy.state),
            gradients: if_any(policy.gradients),
            weights: if_any(policy.weights),
            ..policy
        };
        let mut tries: Vec<StagePolicy> =
            vec![policy, hurried(policy, 8), all, hurried(all, 8), hurried(all, u32::MAX)];
        let last = hurried(all, u32::MAX);
        if self.question.allowed.recompute {
            // What does not leave is recomputed.
            tries.extend(
                [3, 2, 1, 0].map(|quarters| StagePolicy { host: policy.host / 4 * quarters, ..last }),
            );
            if policy.host > 0 {
                let host = self.units() - policy.peers;
                tries.extend([(1, 1), (0, 1), (0, 0)].map(|(after, before)| StagePolicy {
                    host,
                    after,
                    before,
                    ..last
                }));
            }
        } else if policy.host > 0 {
            let more = |eighths: u32| policy.host + (self.units() - policy.host - policy.peers) / 8 * eighths;
            let sooner = |part: u32| move |of: u32| of / part;
            tries.extend((0..=8).flat_map(|eighths| {
                [1, 2, 8, u32::MAX].map(|part| {
                    let [after, before] = [policy.after, policy.before].map(sooner(part));
                    StagePolicy { host: more(eighths), after, before, ..last }
                })
            }));
        }
        let without_peers: Vec<StagePolicy> =
            tries.iter().map(|of| StagePolicy { peers: 0, ..*of }).collect();
        if policy.peers > 0 {
            tries.extend(without_peers);
        }
        tries.dedup();
        let found = tries.iter().find_map(|&of| self.built_once(of, receivers));
        let ends = [tries.first(), tries.last()];
        let least = || ends.into_iter().flatten().find_map(|&of| self.built(of, receivers, Care::Least));
        found.or_else(|| if self.question.allowed.recompute { least() } else { None })
    }

    /// Bytes in which it fits with such a policy, or with less on the host and more recomputed; from above, within a
    /// thousandth of what it holds untouched.
    pub(super) fn least_bytes(&self, policy: StagePolicy) -> u64 {
        let fits = |room: u64| {
            let stage = Self { room, memo: StageMemo::default(), ..self.clone() };
            stage.fitting(policy, &[]).is_some()
        };
        let (mut low, mut high) = (0, self.untouched.device);
        while high - low > self.untouched.device / 1024 + 1 {
            let middle = low + (high - low) / 2;
            *(if fits(middle) { &mut high } else { &mut low }) = middle;
        }
        high
    }

    /// Runs that are recomputed, by slot.
    fn again(&self, slots: &[Rc<SlotChoices>], choices: &[usize]) -> Vec<Action> {
        let mut runs: BTreeMap<(usize, usize), Vec<u32>> = BTreeMap::new();
        for ((slot, of), &choice) in (0..).zip(slots).zip(choices) {
            for run in of.all.get(choice).into_iter().flat_map(|choice| &choice.runs) {
                runs.entry((*run.start(), *run.end())).or_default().push(slot);
            }
        }
        let action = |((first, last), slots): ((usize, usize), Vec<u32>)| Action {
            first_layer: self.blocks.first_layer + first,
            last_layer: self.blocks.first_layer + last,
            slots: self.named(slots),
            optimization: Optimization::Recompute,
        };
        runs.into_iter().map(action).collect()
    }

    /// Steps that take so long.
    pub(super) fn steps(&self, seconds: f64) -> u32 {
        let steps = if self.step_seconds > 0.0 { (seconds / self.step_seconds).ceil() } else { 0.0 };
        steps.min(f64::from(Action::MAX_STEPS)) as u32
    }

    /// How early optimizer's state comes, and how late it goes, where room does not matter: a stage is half full then.
    pub(super) fn state_steps(&self) -> u32 {
        let steps = self.blocks.layers.len() * self.slots.len() / 2;
        u32::try_from(steps.max(1)).unwrap_or(u32::MAX).min(Action::MAX_STEPS)
    }
}
