//! What a stage does one after another, when its blocks are away, and what is refused.

use proptest::prelude::*;

use super::*;
use crate::bytes::Bytes;
use crate::model::Model;
use crate::model::zoo::{Gpt2, Zoo};
use crate::training::boundaries::BoundaryInterval;
use crate::training::schedule::Pass;
use crate::training::stage::StageConfig;
use crate::training::{Optimizer, Precision, RecomputePolicy, Schedule, TrainingSpec};

fn training() -> TrainingSpec {
    TrainingSpec {
        precision: Precision::Fp32,
        optimizer: Optimizer::default(),
        schedule: Schedule::Gpipe,
        micro_batch_size: 1,
        micro_batches: 1,
        recompute: RecomputePolicy::None,
        seed: 0,
    }
}

/// A stage somewhere in a pipeline, and what it does.
#[derive(Debug, Clone)]
struct Scene {
    schedule: Schedule,
    stages: u32,
    stage: u32,
    micro_batches: u32,
    layers: StageConfig,
    actions: StageActions,
}

impl Scene {
    fn steps(&self) -> Steps {
        let training =
            TrainingSpec { schedule: self.schedule, micro_batches: self.micro_batches, ..training() };
        Steps::of_stage(&training, &self.layers, (self.stage, self.stages), &self.actions, false)
    }

    fn in_flight(&self) -> u32 {
        self.schedule.in_flight(self.stages, self.stage, self.micro_batches)
    }
}

fn swap(block: Block, first_layer: usize, last_layer: usize, slots: &[u32], (r, q): (u32, u32)) -> Action {
    let optimization =
        Optimization::Swap(Swap { block, to: Destination::Host, release_after: r, fetch_before: q });
    Action { first_layer, last_layer, slots: slots.to_vec(), optimization }
}

fn recompute(first_layer: usize, last_layer: usize, slots: &[u32]) -> Action {
    Action { first_layer, last_layer, slots: slots.to_vec(), optimization: Optimization::Recompute }
}

/// Runs of the layers 2 to 6 that are recomputed for some slots, and one swap.
fn scenes() -> impl Strategy<Value = Scene> {
    scenes_under(prop_oneof![Just(Schedule::Gpipe), Just(Schedule::OneFOneB), Just(Schedule::PipeDream)])
}

fn scenes_under(schedule: impl Strategy<Value = Schedule>) -> impl Strategy<Value = Scene> {
    let run = (2_usize..=6, 0_usize..3, prop::collection::btree_set(0_u32..4, 0..3));
    let block = prop_oneof![
        Just(Block::Activations),
        Just(Block::Inputs),
        Just(Block::Weights),
        Just(Block::Gradients),
        Just(Block::Optimizer)
    ];
    let swapped = (block, 2_usize..=6, 0_usize..5, (0_u32..9, 0_u32..9));
    (schedule, 1_u32..5, 0_u32..5, 1_u32..7, run, swapped).prop_map(
        |(schedule, stages, stage, micro_batches, (first, more, slots), (block, from, to, points))| {
            // Without a flush micro-batches are alike, and weights and gradients stay.
            let (slots, block) = match (schedule.updates_always(), block) {
                (true, Block::Weights) => (Vec::new(), Block::Versions),
                (true, Block::Gradients) => (Vec::new(), Block::Optimizer),
                (true, block) => (Vec::new(), block),
                (false, block) => (slots.into_iter().collect(), block),
            };
            let run = recompute(first, (first + more).min(6), &slots);
            let swapped = swap(block, from, (from + to).min(6), &[], points);
            Scene {
                schedule,
                stages,
                stage: stage % stages,
                micro_batches,
                layers: StageConfig::single(2, 6),
                actions: StageActions { actions: vec![run, swapped], ..StageActions::default() },
            }
        },
    )
}

/// The micro-batch and layer that a step works on.
fn of(step: Step) -> (Option<u32>, Option<usize>) {
    match step {
        Step::Forward { micro_batch, layer }
        | Step::Again { micro_batch, layer }
        | Step::Backward { micro_batch, layer } => (Some(micro_batch), Some(layer)),
        Step::Update { layer } => (None, Some(layer)),
        Step::Renew | Step::Exchange => (None, None),
    }
}

fn flushed() -> impl Strategy<Value = Scene> {
    scenes_under(prop_oneof![Just(Schedule::Gpipe), Just(Schedule::OneFOneB)])
}

proptest! {
    /// Every step is where it is said to be, and others are nowhere.
    #[test]
    fn steps_are_where_they_are(scene in scenes()) {
        let steps = scene.steps();
        let layers = 0..9_usize;
        let of_micro_batch = |micro_batch| layers.clone().flat_map(move |layer| [
            Step::Forward { micro_batch, layer }, Step::Again { micro_batch, layer }, Step::Backward { micro_batch, layer },
        ]);
        let passes = (0..scene.micro_batches + 2).flat_map(of_micro_batch);
        let updates = layers.clone().map(|layer| Step::Update { layer });
        for step in passes.chain(updates).chain([Step::Renew, Step::Exchange]) {
            prop_assert_eq!(steps.index(step), steps.all().iter().position(|other| *other == step), "{:?}", step);
        }
    }
}

proptest! {
    /// Each layer goes forward and backward once with each micro-batch, once more between the two where an action
    /// names it for the micro-batch's slot, and is updated last; passes come in the order of the schedule.
    #[test]
    fn steps_are_the_passes_layer_by_layer(scene in flushed()) {
        let steps = scene.steps();
        let again = |layer: usize, micro_batch: u32| {
            let run = &scene.actions.actions[0];
            (run.first_layer..=run.last_layer).contains(&layer)
                && (run.slots.is_empty() || run.slots.contains(&(micro_batch % scene.in_flight())))
        };
        for layer in 2..=6 {
            for micro_batch in 0..scene.micro_batches {
                let own: Vec<Step> =
                    steps.all().iter().copied().filter(|&step| of(step) == (Some(micro_batch), Some(layer))).collect();
                let mut expected = vec![Step::Forward { micro_batch, layer }];
                if again(layer, micro_batch) {
                    expected.push(Step::Again { micro_batch, layer });
                }
                expected.push(Step::Backward { micro_batch, layer });
                prop_assert_eq!(own, expected);
            }
        }
        let passes: Vec<Pass> = scene.schedule.passes(scene.stages, scene.stage, scene.micro_batches);
        let of_first: Vec<Pass> = steps.all().iter().filter_map(|&step| match step {
            Step::Forward { micro_batch, layer: 2 } => Some(Pass::Forward(micro_batch)),
            Step::Backward { micro_batch, layer: 2 } => Some(Pass::Backward(micro_batch)),
            _ => None,
        }).collect();
        prop_assert_eq!(of_first, passes);
        let updates: Vec<Step> = (2..=6).map(|layer| Step::Update { layer }).collect();
        prop_assert!(steps.all().ends_with(&updates));
        for (index, &step) in steps.all().iter().enumerate() {
            prop_assert_eq!(steps.index(step), Some(index));
        }
    }

    /// While a block is away no one uses it: looked up step by step, over two iterations.
    #[test]
    fn nothing_is_used_while_it_is_away(scene in scenes()) {
        let steps = scene.steps();
        let count = steps.all().len();
        for away in scene.actions.absences(&steps) {
            let [leaves, freed, fetched, needed] = away.at.boundaries();
            prop_assert!(leaves <= freed && freed < fetched && fetched <= needed);
            for at in away.at.away() {
                let step = steps.all()[at % count];
                let (micro_batch, layer) = of(step);
                let uses = match away.block {
                    Block::Activations | Block::Inputs | Block::Versions => {
                        micro_batch == away.micro_batch && (layer == Some(away.layer)
                            // Its output is read by the layer above, on the way up.
                            || (away.part == Part::Above
                                && matches!(step, Step::Forward { layer, .. } if layer == away.layer + 1)))
                    }
                    Block::Weights => layer == Some(away.layer),
                    Block::Gradients => {
                        matches!(step, Step::Backward { layer, .. } | Step::Update { layer } if layer == away.layer)
                    }
                    Block::Optimizer => step == Step::Update { layer: away.layer },
                };
                prop_assert!(!uses, "{away:?} is used by {step:?}");
            }
        }
    }

    /// A block is away as long as its action says: one step less for each step of either distance, and not at all
    /// where nothing is left.
    #[test]
    fn distances_cost_exactly_their_steps(scene in scenes()) {
        let steps = scene.steps();
        let at_once = |after: u32, before: u32| {
            let mut actions = scene.actions.clone();
            if let Some(Action { optimization: Optimization::Swap(swap), .. }) = actions.actions.last_mut() {
                (swap.release_after, swap.fetch_before) = (after, before);
            }
            actions.absences(&steps)
        };
        let Optimization::Swap(asked) = &scene.actions.actions[1].optimization else { unreachable!() };
        let (after, before) = (asked.release_after as usize, asked.fetch_before as usize);
        let expected: Vec<Absence> = at_once(0, 0)
            .into_iter()
            .map(|away| (away.at.freed + after, away.at.fetched.saturating_sub(before), away))
            .filter(|(freed, fetched, _)| freed < fetched)
            .map(|(freed, fetched, away)| Absence { at: BoundaryInterval { freed, fetched, ..away.at }, ..away })
            .collect();
        prop_assert_eq!(scene.actions.absences(&steps), expected);
    }

    /// Stripes are a block, whole.
    #[test]
    fn stripes_add_up(shares in prop::collection::vec(1_u32..5_000, 1..6), bytes in 0_u64..10_000_000) {
        let sum: u32 = shares.iter().sum();
        let mut stripes: Vec<Stripe> = (0..).zip(&shares).map(|(stage, &share)| Stripe { stage, share }).collect();
        if sum > Stripe::WHOLE {
            stripes.truncate(1);
        }
        let others: u32 = stripes.iter().skip(1).map(|stripe| stripe.share).sum();
        stripes[0].share = Stripe::WHOLE - others;
        let parts = Stripe::split(&stripes, bytes);
        prop_assert_eq!(parts.iter().sum::<u64>(), bytes);
        for (part, stripe) in parts.iter().zip(&stripes) {
            let exact = bytes as f64 * f64::from(stripe.share) / f64::from(Stripe::WHOLE);
            prop_assert!((*part as f64 - exact).abs() <= 64.0, "{parts:?} of {stripes:?}");
        }
    }
}

/// Between its forward and its backward pass a block is away for all steps between; what has no use in between
/// leaves nothing behind.
#[test]
fn the_last_stage_turns_round_at_once() {
    let scene = Scene {
        schedule: Schedule::OneFOneB,
        stages: 2,
        stage: 1,
        micro_batches: 2,
        layers: StageConfig::single(3, 4),
        actions: StageActions {
            actions: vec![swap(Block::Activations, 3, 4, &[], (0, 0))],
            ..StageActions::default()
        },
    };
    let away: Vec<(usize, Part, usize, usize)> = scene
        .actions
        .absences(&scene.steps())
        .iter()
        .map(|away| (away.layer, away.part, away.at.freed, away.at.fetched))
        .collect();
    // Forward 3, forward 4, backward 4, backward 3, and once more: layer 3 is away during both steps of layer 4, its
    // output during the second of them, and layer 4 never.
    assert_eq!(
        away,
        [(3, Part::Own, 1, 3), (3, Part::Above, 2, 3), (3, Part::Own, 5, 7), (3, Part::Above, 6, 7)]
    );
}

/// Optimizer state is away from one iteration to the next.
#[test]
fn state_is_away_over_the_end_of_the_iteration() {
    let actions =
        StageActions { actions: vec![swap(Block::Optimizer, 0, 0, &[], (0, 1))], ..StageActions::default() };
    let training = TrainingSpec { micro_batches: 1, ..training() };
    let steps = Steps::of_stage(&training, &StageConfig::single(0, 1), (0, 1), &actions, false);
    // Four passes, then the updates of layers 0 and 1; the next update of layer 0 is step 4 of the next iteration.
    let [away] = actions.absences(&steps).try_into().unwrap();
    assert_eq!((away.at.leaves, away.at.freed, away.at.fetched, away.at.needed), (5, 5, 6 + 3, 6 + 4));
}

fn model() -> Model {
    Zoo::Gpt2(Gpt2 { blocks: 4, ..Gpt2::default() }).build().unwrap()
}

fn refused(actions: StageActions, policy: RecomputePolicy) -> Vec<String> {
    let training =
        TrainingSpec { schedule: Schedule::OneFOneB, micro_batches: 4, recompute: policy, ..training() };
    let model = model();
    let of = ActionContext {
        model: Some(&model),
        training: &training,
        stage: &StageConfig::single(1, 3),
        index: 1,
        count: 3,
    };
    match actions.check(of) {
        Ok(()) => Vec::new(),
        Err(invalid) => {
            // Error messages print shares as users type them.
            assert!(!invalid.to_string().contains("000"), "{invalid}");
            invalid.violations().iter().map(|violation| violation.field.clone()).collect()
        }
    }
}

/// Each wrong action is named by its path; the stage has layers 1 to 3 and two micro-batches in flight.
#[test]
fn what_makes_no_sense_is_named() {
    let one = |action: Action| StageActions { actions: vec![action], ..StageActions::default() };
    let peers = |stripes: &[(u32, u32)]| {
        let stripes = stripes.iter().map(|&(stage, share)| Stripe { stage, share }).collect();
        let swap = Swap {
            block: Block::Activations,
            to: Destination::Peers(stripes),
            release_after: 0,
            fetch_before: 0,
        };
        one(Action {
            first_layer: 1,
            last_layer: 3,
            slots: Vec::new(),
            optimization: Optimization::Swap(swap),
        })
    };
    let peer_pools = |stages: &[u32]| StageActions {
        peer_pools: stages.iter().map(|&stage| PeerPool { stage, bytes: Bytes(1) }).collect(),
        ..StageActions::default()
    };
    let pool = |bytes: u64| StageActions { host_pool: Bytes(bytes), ..StageActions::default() };
    let lends = |bytes: u64| StageActions {
        peer_pools: vec![PeerPool { stage: 0, bytes: Bytes(bytes) }],
        ..StageActions::default()
    };
    let far = Action::MAX_STEPS + 1;
    let saved = Block::Activations;
    let cases = [
        (one(swap(saved, 0, 3, &[], (0, 0))), "optimizations[0].first_layer"),
        (one(swap(saved, 1, 4, &[], (0, 0))), "optimizations[0].last_layer"),
        (one(swap(saved, 3, 2, &[], (0, 0))), "optimizations[0].last_layer"),
        (one(swap(saved, 1, 3, &[2], (0, 0))), "optimizations[0].micro_batch_slots[0]"),
        (one(swap(saved, 1, 3, &[1, 0], (0, 0))), "optimizations[0].micro_batch_slots[1]"),
        (one(swap(saved, 1, 3, &[], (far, 0))), "optimizations[0].swap.release_delay_steps"),
        (one(swap(saved, 1, 3, &[], (0, far))), "optimizations[0].swap.prefetch_distance_steps"),
        (one(swap(Block::Versions, 1, 3, &[], (0, 0))), "optimizations[0].swap.block"),
        (one(swap(Block::Inputs, 1, 1, &[], (0, 0))), "optimizations[0].swap.block"),
        (one(swap(Block::Weights, 1, 3, &[0], (0, 0))), "optimizations[0].swap.block"),
        (peers(&[(1, 10_000)]), "optimizations[0].swap.peer_stripes[0].stage"),
        (peers(&[(3, 10_000)]), "optimizations[0].swap.peer_stripes[0].stage"),
        (peers(&[(0, 5_000), (0, 5_000)]), "optimizations[0].swap.peer_stripes[1].stage"),
        (peers(&[(0, 0), (2, 10_000)]), "optimizations[0].swap.peer_stripes[0].share"),
        (peers(&[(0, 5_000), (2, 4_999)]), "optimizations[0].swap.peer_stripes"),
        (peers(&[]), "optimizations[0].swap.peer_stripes"),
        (peer_pools(&[1]), "peer_pools[0].stage"),
        (peer_pools(&[2, 0]), "peer_pools[1].stage"),
        (pool((1 << 48) + 1), "host_pool_bytes"),
        (lends((1 << 48) + 1), "peer_pools[0].bytes"),
    ];
    for (actions, field) in cases {
        assert_eq!(refused(actions.clone(), RecomputePolicy::None), [field], "{actions:?}");
    }
    let both = |first, second| StageActions { actions: vec![first, second], ..StageActions::default() };
    let twice = both(swap(saved, 1, 2, &[0], (0, 0)), swap(saved, 2, 3, &[], (1, 1)));
    assert_eq!(refused(twice, RecomputePolicy::None), ["optimizations[1].swap.block"]);
    let runs = both(recompute(1, 2, &[]), recompute(2, 3, &[1]));
    assert_eq!(refused(runs, RecomputePolicy::None), ["optimizations[1].recompute"]);
    let nothing_kept = both(swap(saved, 2, 2, &[], (0, 0)), recompute(1, 2, &[1]));
    assert_eq!(refused(nothing_kept, RecomputePolicy::None), ["optimizations[0].swap.block"]);
    assert_eq!(refused(one(recompute(1, 2, &[])), RecomputePolicy::Layer), ["optimizations[0].recompute"]);

    let sound = both(swap(Block::Inputs, 2, 2, &[0], (3, 1)), recompute(2, 3, &[0]));
    assert_eq!(refused(sound, RecomputePolicy::None), Vec::<String>::new());
    assert_eq!(refused(peers(&[(0, 2_500), (2, 7_500)]), RecomputePolicy::None), Vec::<String>::new());
    for sound in [peer_pools(&[0, 2]), pool(1 << 48), lends(1 << 48)] {
        assert_eq!(refused(sound, RecomputePolicy::None), Vec::<String>::new());
    }
}

/// Where micro-batches go on from one iteration to the next all of them are alike, and what every update makes anew stays.
#[test]
fn what_cannot_move_is_refused_by_name_under_pipedream() {
    let (model, training) = (model(), TrainingSpec { schedule: Schedule::PipeDream, ..training() });
    let check = |index: u32, action: Action| {
        let stage = StageConfig::single(1, 3);
        let of = ActionContext { model: Some(&model), training: &training, stage: &stage, index, count: 3 };
        let actions = StageActions { actions: vec![action], ..StageActions::default() };
        actions.check(of).map_err(|invalid| invalid.violations()[0].field.clone())
    };
    for (action, field) in [
        (swap(Block::Weights, 1, 3, &[], (0, 0)), "optimizations[0].swap.block"),
        (swap(Block::Gradients, 1, 1, &[], (0, 0)), "optimizations[0].swap.block"),
        (swap(Block::Versions, 1, 1, &[1], (0, 0)), "optimizations[0].micro_batch_slots"),
        (recompute(1, 2, &[1]), "optimizations[0].micro_batch_slots"),
    ] {
        assert_eq!(check(1, action), Err(field.to_owned()));
    }
    let versions = swap(Block::Versions, 1, 3, &[], (0, 0));
    assert_eq!(
        check(2, versions.clone()),
        Err("optimizations[0].swap.block".to_owned()),
        "one in flight has none"
    );
    for action in [versions, swap(Block::Optimizer, 1, 1, &[], (0, 0)), recompute(1, 2, &[])] {
        assert_eq!(check(1, action), Ok(()));
    }
}

/// A swap all of whose blocks would come back before they are gone says so, with the field and what would do; one of which
/// some block is away does not.
#[test]
fn what_is_fetched_before_it_is_gone_is_named() {
    let check = |block: Block, points: (u32, u32), layers: (usize, usize)| {
        let sound = swap(Block::Optimizer, 3, 3, &[], (0, 0));
        let scene = Scene {
            schedule: Schedule::OneFOneB,
            stages: 2,
            stage: 1,
            micro_batches: 2,
            layers: StageConfig::single(1, 4),
            actions: StageActions {
                actions: vec![sound, swap(block, layers.0, layers.1, &[], points)],
                ..StageActions::default()
            },
        };
        let named = |invalid: crate::error::Invalid| {
            let first = &invalid.violations()[0];
            format!("{}: {}", first.field, first.description)
        };
        scene.actions.check_points(&scene.steps()).map_err(named)
    };
    // Six steps lie between the passes of layer 1: forward 2 to 4, and backward 4 to 2.
    assert_eq!(check(Block::Activations, (5, 0), (1, 1)), Ok(()));
    assert_eq!(check(Block::Activations, (2, 3), (1, 1)), Ok(()));
    for points in [(6, 0), (3, 3), (0, 6)] {
        let why = check(Block::Activations, points, (1, 1)).unwrap_err();
        assert!(
            why.starts_with("optimizations[1].swap.prefetch_distance_steps: ") && why.contains(" 6 steps "),
            "{why}"
        );
    }
    // Layer 1 is away for long enough, whatever its neighbours are; and the last layer never is, whatever is asked for.
    assert_eq!(check(Block::Activations, (5, 0), (1, 4)), Ok(()));
    assert_eq!(check(Block::Activations, (9, 9), (4, 4)), Ok(()));
}

proptest! {
    /// Turn by turn the steps are the passes of the whole training, and what follows each backward pass; in the turns that
    /// fill the pipeline nothing is there to go backward yet.
    #[test]
    fn turns_are_an_endless_training(
        stages in 1_u32..6, offset in 0_u32..6, micro_batches in 1_u32..12, exchanges: bool,
    ) {
        let stage = offset % stages;
        let training = TrainingSpec { schedule: Schedule::PipeDream, micro_batches, ..training() };
        let steps = Steps::of_stage(
            &training, &StageConfig::single(4, 4), (stage, stages), &StageActions::default(), exchanges,
        );
        let in_flight = stages - stage;
        prop_assert_eq!(steps.slots(), in_flight);
        let turn = steps.turn().unwrap();
        prop_assert_eq!(steps.all().len(), turn * in_flight as usize);
        let endless = crate::training::schedule::Endless { stages, stage, micro_batches, iterations: 2 };
        // As the training does it: turns in which nothing goes backward yet come first.
        let mut at = steps.all().len() - turn * (in_flight as usize - 1);
        let mut next = |wanted: Step| {
            let found = steps.all()[at % steps.all().len()];
            let place = at % steps.all().len();
            at += 1;
            (found == wanted, steps.index_within(wanted, place) == Some(place))
        };
        let number = |micro_batch: u32| micro_batch % in_flight;
        let mut filling = in_flight - 1;
        for pass in (0..2).flat_map(|iteration| endless.passes(iteration)) {
            let after = match pass {
                Pass::Forward(micro_batch) => {
                    let step = Step::Forward { micro_batch: number(micro_batch), layer: 4 };
                    prop_assert_eq!(next(step), (true, true));
                    let fills = filling > 0;
                    filling = filling.saturating_sub(1);
                    if !fills {
                        continue;
                    }
                    Step::Backward { micro_batch: number(micro_batch + 1), layer: 4 }
                }
                Pass::Backward(micro_batch) => Step::Backward { micro_batch: number(micro_batch), layer: 4 },
            };
            let renew = (in_flight > 1).then_some(Step::Renew);
            let rest = renew.into_iter().chain(exchanges.then_some(Step::Exchange));
            for step in [after].into_iter().chain(rest).chain([Step::Update { layer: 4 }]) {
                prop_assert_eq!(next(step), (true, true), "{:?}", step);
            }
        }
    }
}

/// A version leaves once it is a micro-batch's alone, and is back when that goes backward, the weights of recomputed layers when
/// they are needed first.
#[test]
fn versions_are_away_between_their_update_and_their_backward_pass() {
    let training = TrainingSpec { schedule: Schedule::PipeDream, ..training() };
    let away = |actions: Vec<Action>| {
        let actions = StageActions { actions, ..StageActions::default() };
        let steps = Steps::of_stage(&training, &StageConfig::single(0, 1), (0, 3), &actions, false);
        let of = |away: &Absence| {
            (away.micro_batch, away.layer, away.at.leaves, away.at.freed, away.at.fetched, away.at.needed)
        };
        (steps.turn(), actions.absences(&steps).iter().map(of).collect::<Vec<_>>())
    };
    let versions = swap(Block::Versions, 0, 0, &[], (1, 0));
    // A turn: forward 0 and 1, backward 1 and 0, renew, update 0 and 1.
    let found = [(Some(2), 0, 5, 6, 17, 17), (Some(0), 0, 12, 13, 24, 24), (Some(1), 0, 19, 20, 31, 31)];
    assert_eq!(away(vec![versions.clone()]), (Some(7), found.to_vec()));
    // With both recomputed first: forward 0 and 1, once more 0 and 1, …
    let found = [(Some(2), 0, 7, 8, 20, 20), (Some(0), 0, 16, 17, 29, 29), (Some(1), 0, 25, 26, 38, 38)];
    assert_eq!(away(vec![recompute(0, 1, &[]), versions]), (Some(9), found.to_vec()));
}

/// A weight that two layers share is one storage for both: neither may take it away.
#[test]
fn a_tied_weight_never_leaves() {
    let model = model();
    let training = training();
    let last = model.layers().len() - 1;
    for (block, layer, is_refused) in [
        (Block::Weights, 0, true),
        (Block::Gradients, last, true),
        (Block::Weights, 1, false),
        (Block::Optimizer, 0, false),
    ] {
        let stage = StageConfig::single(0, last);
        let of =
            ActionContext { model: Some(&model), training: &training, stage: &stage, index: 0, count: 1 };
        let actions =
            StageActions { actions: vec![swap(block, layer, layer, &[], (0, 0))], ..StageActions::default() };
        assert_eq!(actions.check(of).is_err(), is_refused, "{block} of layer {layer}");
    }
}
