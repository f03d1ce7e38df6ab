//! The replay of steps with memory optimizations against the oracle.

use loadmaster_proto::bytes::Bytes;
use loadmaster_proto::training::actions::{
    Absence, Action, Block, Destination, Optimization, StageActions, Step, Steps, Stripe, Swap,
};
use loadmaster_proto::training::{RecomputePolicy, Schedule, StaticBytes};
use proptest::prelude::*;

use super::super::memory_optimizations::player::Gradients;
use super::super::memory_optimizations::resident_state::ResidentState;
use super::super::memory_optimizations::shard::{Scene, ShardMemory};
use super::oracle::Oracle;
use super::traces::{Shape, schedules, shapes, stage, traces, untrained_up_to};
use crate::memory_optimizations::in_places;

/// The stage's first layer in the model.
const FIRST: usize = 3;

/// A stage and what it does, made of shapes and numbers.
#[derive(Debug, Clone)]
struct Case {
    shapes: Vec<Shape>,
    is_first: bool,
    /// Layers up to this one have nothing trained before them.
    untrained: usize,
    schedule: Schedule,
    stages: u32,
    stage: u32,
    micro_batches: u32,
    synchronisation: u64,
    /// Of each layer: the bytes of parameters and of what the optimizer keeps.
    stored: Vec<[Vec<u64>; 2]>,
    actions: StageActions,
}

fn destinations() -> impl Strategy<Value = Destination> {
    let stripes = prop_oneof![
        Just(vec![(7, 10_000)]),
        Just(vec![(8, 2_500), (7, 7_500)]),
        Just(vec![(9, 1), (8, 9_998), (7, 1)]),
    ];
    let peers = stripes.prop_map(|stripes| {
        let stripes = stripes.into_iter().map(|(stage, share)| Stripe { stage, share });
        Destination::Peers(stripes.collect())
    });
    prop_oneof![Just(Destination::Host), peers]
}

fn slots() -> impl Strategy<Value = Vec<u32>> {
    prop_oneof![
        Just(Vec::new()),
        prop::collection::btree_set(0_u32..4, 1..3).prop_map(|set| set.into_iter().collect())
    ]
}

/// Runs of one, two or three layers that are recomputed, and swaps of some blocks of every layer.
fn actions(layers: usize) -> impl Strategy<Value = StageActions> {
    let runs = prop::collection::vec((prop::option::weighted(0.4, slots()), 1_usize..4), layers);
    let blocks = [Block::Activations, Block::Inputs, Block::Weights, Block::Gradients, Block::Optimizer];
    let swap = move |layer: usize, block: Block| {
        let points = (0_u32..4, prop_oneof![0_u32..4, 0_u32..40]);
        (destinations(), points, slots()).prop_map(move |(to, (release_after, fetch_before), slots)| Action {
            first_layer: FIRST + layer,
            last_layer: FIRST + layer,
            slots: if block.is_of_micro_batch() { slots } else { Vec::new() },
            optimization: Optimization::Swap(Swap { block, to, release_after, fetch_before }),
        })
    };
    let swaps: Vec<_> = (0..layers)
        .flat_map(|layer| blocks.map(|block| prop::option::weighted(0.6, swap(layer, block))))
        .collect();
    (runs, swaps).prop_map(move |(runs, swaps)| {
        let mut actions: Vec<Action> = Vec::new();
        let mut next = 0;
        for (layer, (slots, length)) in runs.into_iter().enumerate() {
            let (Some(slots), true) = (slots, layer >= next) else { continue };
            next = (layer + length).min(layers);
            let (first_layer, last_layer) = (FIRST + layer, FIRST + next - 1);
            actions.push(Action { first_layer, last_layer, slots, optimization: Optimization::Recompute });
        }
        actions.extend(swaps.into_iter().flatten());
        StageActions { actions, ..StageActions::default() }
    })
}

fn cases() -> impl Strategy<Value = Case> {
    let place = (1_u32..6).prop_flat_map(|stages| (Just(stages), 0..stages));
    shapes().prop_flat_map(move |shapes| {
        let bytes = || prop::collection::vec(0_u64..2_000, 0..3);
        let stored = prop::collection::vec([bytes(), bytes()], shapes.len());
        let actions = actions(shapes.len());
        (
            Just(shapes),
            (any::<bool>(), 0_usize..3),
            schedules(),
            place.clone(),
            1_u32..8,
            0_u64..3_000,
            stored,
            actions,
        )
            .prop_map(
                |(
                    shapes,
                    (is_first, untrained),
                    schedule,
                    (stages, stage),
                    micro_batches,
                    synchronisation,
                    stored,
                    actions,
                )| Case {
                    shapes,
                    is_first,
                    untrained,
                    schedule,
                    stages,
                    stage,
                    micro_batches,
                    synchronisation,
                    stored,
                    actions,
                },
            )
    })
}

/// The same under PipeDream: micro-batches are alike, versions leave instead of weights, and gradients stay.
fn endless_cases() -> impl Strategy<Value = Case> {
    cases().prop_map(|mut case| {
        case.schedule = Schedule::PipeDream;
        for action in &mut case.actions.actions {
            action.slots.clear();
            if let Optimization::Swap(swap) = &mut action.optimization
                && swap.block == Block::Weights
            {
                swap.block = Block::Versions;
            }
        }
        case.without(|action| matches!(&action.optimization, Optimization::Swap(swap) if swap.block == Block::Gradients))
    })
}

fn any_cases() -> impl Strategy<Value = Case> {
    prop_oneof![cases(), endless_cases()]
}

impl Case {
    fn steps(&self) -> Steps {
        let layers = FIRST..=FIRST + self.shapes.len() - 1;
        let exchanges = self.synchronisation > 0;
        let passes = self.schedule.passes(self.stages, self.stage, self.micro_batches);
        let slots = self.schedule.in_flight(self.stages, self.stage, self.micro_batches);
        let runs: Vec<_> =
            (0..slots).map(|slot| self.actions.runs(layers.clone(), RecomputePolicy::None, slot)).collect();
        if self.schedule.updates_always() {
            return Steps::endless(layers, &runs, exchanges);
        }
        Steps::of(&passes, layers, &runs, exchanges)
    }

    fn whole(&self, of: usize) -> u64 {
        self.stored.iter().flat_map(|layer| &layer[of]).sum()
    }

    fn play(&self) -> ShardMemory {
        let (steps, mut traces) = (self.steps(), traces(&self.shapes, self.is_first));
        if self.is_first {
            untrained_up_to(&self.shapes, &mut traces, self.untrained);
        }
        let mut replayed = stage(&traces, RecomputePolicy::None, self.is_first);
        replayed.runs = (0..steps.slots())
            .map(|slot| {
                let mut runs = steps.runs(slot).to_vec();
                runs.iter_mut()
                    .for_each(|run| run.layers = run.layers.start() - FIRST..=run.layers.end() - FIRST);
                runs
            })
            .collect();
        Scene {
            stage: &replayed,
            stored: ResidentState {
                first_layer: FIRST,
                whole: StaticBytes {
                    parameters: self.whole(0),
                    optimizer: self.whole(1),
                    buffers: 5,
                    ..StaticBytes::default()
                },
                weights: self.stored.iter().map(|layer| layer[0].clone()).collect(),
                optimizer: self.stored.iter().map(|layer| layer[1].clone()).collect(),
                versions: self.stored.iter().map(|layer| layer[0].clone()).collect(),
                older: self.schedule.weight_versions(steps.slots()) - 1,
            },
            overhead: 11,
            steps: &steps,
            absences: &self.actions.absences(&steps),
            actions: &self.actions,
            synchronisation: self.synchronisation,
            gradients: Gradients::Wait,
        }
        .play()
    }

    /// Without what is done about these blocks.
    fn without(&self, dropped: impl Fn(&Action) -> bool) -> Self {
        let mut other = self.clone();
        other.actions.actions.retain(|action| !dropped(action));
        other
    }
}

/// Whether a block of this iteration, or of the one before, is between these boundaries.
fn covers(from: usize, until: usize, moment: usize, steps: usize) -> bool {
    (from..until).contains(&moment) || (from..until).contains(&(moment + steps))
}

proptest! {
    #![proptest_config(loadmaster_samples::cases(400))]

    /// Every byte of every step: on the device, at the host and on each peer.
    #[test]
    fn every_step_is_what_the_contract_says(case in any_cases()) {
        let (steps, acted) = (case.steps(), case.play());
        let absences = case.actions.absences(&steps);
        let scene = (FIRST, &steps, absences.as_slice());
        let mut oracle = Oracle::new(&case.shapes, (case.is_first, case.untrained), scene, case.synchronisation).play();
        let stored_at = |absence: &Absence| match absence.block {
            Block::Weights | Block::Versions => case.stored[absence.layer - FIRST][0].clone(),
            Block::Optimizer => case.stored[absence.layer - FIRST][1].clone(),
            _ => Vec::new(),
        };
        for (absence, tensors) in absences.iter().zip(&mut oracle.away) {
            tensors.extend(stored_at(absence));
        }
        let count = steps.all().len();
        for (step, &(at_boundary, most)) in oracle.curve.iter().enumerate() {
            let is_away = |absence: &&Absence| covers(absence.at.freed, absence.at.fetched, step, count);
            let away: u64 = absences.iter().filter(is_away).flat_map(&stored_at).sum();
            let versions = u64::from(case.schedule.weight_versions(steps.slots()));
            let stored = versions * case.whole(0) + case.whole(1) + 5 + 11 - away;
            prop_assert_eq!(acted.curve[step].at_boundary, stored + at_boundary, "boundary {}", step);
            prop_assert_eq!(acted.curve[step].most.total(), stored + most, "{:?}", steps.all()[step]);
        }
        for (acted, tensors) in acted.away.iter().zip(&oracle.away) {
            prop_assert_eq!(acted.bytes, tensors.iter().sum::<u64>());
            prop_assert_eq!(acted.tensors as usize, tensors.len());
        }
        let pools = in_places(&acted.away, count);
        for place in [None, Some(7), Some(8), Some(9)] {
            let part = |index: usize| -> u64 {
                let action = &case.actions.actions[absences[index].action];
                let Optimization::Swap(swap) = &action.optimization else { return 0 };
                let of_tensor = |&bytes: &u64| match (&swap.to, place) {
                    (Destination::Host, None) => bytes,
                    (Destination::Peers(stripes), Some(peer)) => {
                        let position = stripes.iter().position(|stripe| stripe.stage == peer);
                        position.map_or(0, |position| Stripe::split(stripes, bytes)[position])
                    }
                    _ => 0,
                };
                oracle.away[index].iter().map(of_tensor).sum()
            };
            let there = |boundary: usize| -> u64 {
                (0..absences.len())
                    .filter(|&index| covers(absences[index].at.leaves, absences[index].at.needed + 1, boundary, count))
                    .map(part)
                    .sum()
            };
            let peak = (0..count).map(there).max().unwrap();
            let pool = pools.iter().find(|pool| pool.peer == place);
            prop_assert_eq!(pool.map_or(0, |pool| pool.peak), peak);
            prop_assert_eq!(pool.map_or(0, |pool| pool.moved_bytes), (0..absences.len()).map(part).sum::<u64>());
        }
        prop_assert!(acted.left == 0 || steps.turn().is_some());
    }

}

proptest! {
    #![proptest_config(loadmaster_samples::cases(150))]

    /// What leaves a device never makes it need more, in any step: blocks come back where they were.
    #[test]
    fn a_swap_never_needs_more(case in any_cases(), chosen: prop::sample::Index) {
        let swaps: Vec<&Action> =
            case.actions.actions.iter().filter(|action| action.optimization != Optimization::Recompute).collect();
        prop_assume!(!swaps.is_empty());
        let dropped = swaps[chosen.index(swaps.len())];
        let (with, without) = (case.play(), case.without(|action| action == dropped).play());
        for (with, without) in with.curve.iter().zip(&without.curve) {
            prop_assert!(with.at_boundary <= without.at_boundary);
            prop_assert!(with.most.total() <= without.most.total());
        }
    }

    /// Gone sooner and fetched later, no more is there in any step, and no more is anywhere else than is moved.
    #[test]
    fn fewer_steps_on_the_way_never_need_more(case in any_cases(), less in 1_u32..4) {
        let mut sooner = case.clone();
        for action in &mut sooner.actions.actions {
            if let Optimization::Swap(swap) = &mut action.optimization {
                swap.release_after = swap.release_after.saturating_sub(less);
                swap.fetch_before = swap.fetch_before.saturating_sub(less);
            }
        }
        for (sooner, later) in sooner.play().curve.iter().zip(&case.play().curve) {
            prop_assert!(sooner.at_boundary <= later.at_boundary);
            prop_assert!(sooner.most.total() <= later.most.total());
        }
    }

    /// No more is elsewhere at once than all that moves, and not less than the largest block.
    #[test]
    fn a_pool_holds_what_is_there_at_once(case in any_cases()) {
        let acted = case.play();
        for pool in in_places(&acted.away, case.steps().all().len()) {
            prop_assert_eq!(pool.at_boundaries.iter().max(), Some(&pool.peak));
            prop_assert!(pool.peak <= pool.moved_bytes);
        }
        prop_assert_eq!(Bytes(acted.peak().total()), Bytes(acted.curve.iter().map(|step| step.most.total()).max().unwrap()));
    }
}

/// One layer, with pencil and paper: what it saved of the second micro-batch is away while the third goes forward.
#[test]
fn a_saved_block_is_away_between_its_boundaries() {
    let shape = Shape {
        output: 0,
        retained: 1_000,
        unsaved: 10,
        forward_scratch: 0,
        backward_scratch: 0,
        parameters: 0,
        step_scratch: 0,
        keeps_input: false,
        keeps_output: false,
        hands_on: false,
        steals: false,
    };
    let swap = Swap { block: Block::Activations, to: Destination::Host, release_after: 0, fetch_before: 0 };
    let case = Case {
        shapes: vec![shape],
        is_first: true,
        untrained: 0,
        schedule: Schedule::Gpipe,
        stages: 1,
        stage: 0,
        micro_batches: 3,
        synchronisation: 0,
        stored: vec![[vec![], vec![]]],
        actions: StageActions {
            actions: vec![Action {
                first_layer: FIRST,
                last_layer: FIRST,
                slots: vec![1],
                optimization: Optimization::Swap(swap),
            }],
            ..StageActions::default()
        },
    };
    let acted = case.play();
    let constant = 5 + 11;
    // Forward 0, 1, 2, backward 2, 1, 0, update. The input of 64 is freed in each forward pass.
    let boundaries: Vec<u64> = acted.curve.iter().map(|step| step.at_boundary - constant).collect();
    assert_eq!(boundaries, [0, 1_010, 1_020, 2_030, 2_020 - 1_000 + 1_000, 1_010, 0]);
    let most: Vec<u64> = acted.curve.iter().map(|step| step.most.total() - constant).collect();
    assert_eq!(most, [1_074, 2_084, 2_094, 2_030, 2_020, 1_010, 0]);
    let pools = in_places(&acted.away, 7);
    assert_eq!(pools[0].at_boundaries, [0, 0, 1_000, 1_000, 1_000, 0, 0]);
    assert_eq!((pools[0].peak, pools[0].moved_bytes, pools.len()), (1_000, 1_000, 1));
    assert_eq!(case.steps().all()[4], Step::Backward { micro_batch: 1, layer: FIRST });
}
