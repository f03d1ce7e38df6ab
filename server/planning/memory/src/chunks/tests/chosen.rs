//! Chosen plans and their proofs against every choice that there is.

use loadmaster_proto::chunks::activations::{ActivationPlace, ActivationPoints};
use loadmaster_proto::chunks::embedding::EmbeddingPlace;
use loadmaster_proto::chunks::residency::paging_intervals::Paging;
use loadmaster_proto::chunks::stage::{ChunkResidency, ChunkedStage};
use loadmaster_proto::model::layer::LayerKind;
use loadmaster_proto::training::actions::{Optimization, Step, Swap};
use loadmaster_proto::training::{Precision, RecomputePolicy, TrainingSpec};
use proptest::prelude::*;

use super::draw::{Case, SharedChunk, cases, simulate};
use super::weighed::{
    begun_before, hastes, is_held, weighed, weighed_all_there, weighed_otherwise, weighed_outliers,
};
use crate::chunks::best_first::{BestFirst, ChoiceGroup};
use crate::chunks::choose::{MANY_SIMULATED, all_laid};
use crate::chunks::layout_evaluation::LayoutEvaluation;
use crate::chunks::pass_costs::{PassCosts, StepSequences};
use crate::chunks::room::layouts;
use crate::chunks::step_memory::resident;
use crate::chunks::{ChunkPlan, Lanes, NoChunks, PassChoice, Passes, choose};

/// A plan is what it says that it is, by the contract alone.
fn check(case: &Case, plan: &ChunkPlan) -> Result<(), TestCaseError> {
    let question = &case.question;
    let training = TrainingSpec { recompute: plan.recompute, ..question.training };
    let ranks = question.ranks;
    let chunks = plan.stage.lay_out_split(&question.model, &training, &question.stage()).unwrap();
    let activations = points_of(plan);
    let ChunkedStage { order, embedding, .. } = plan.stage;
    let of = PassChoice { order, recompute: plan.recompute, embedding, activations };
    let costs = case.costs.costs(of).unwrap();
    prop_assert_eq!(&costs.needed, &plan.needed);
    let ChunkResidency::Planned(intervals) = &plan.stage.residency else { panic!("visits are planned") };
    let (mut up, mut down, mut gathered, mut scattered) = (0, 0, 0, 0);
    let (mut backward_up, mut unfinished_up, mut unfinished_down) = (0, 0, 0);
    let mut resident = vec![chunks.on_device_bytes(); plan.needed.len()];
    for interval in intervals {
        let of_chunk = SharedChunk::of(&chunks, interval.payload.chunk, ranks);
        (0..resident.len())
            .filter(|&step| is_held(interval, step))
            .for_each(|step| resident[step] += of_chunk.whole);
        let uses = chunks.uses.payloads().iter().find(|of| of.payload == interval.payload).unwrap();
        let made = interval.payload.is_gradients && uses.gradients[0] >= interval.at.needed;
        let changed =
            uses.gradients.iter().any(|step| (interval.at.needed..interval.at.leaves).contains(step));
        let was_begun = uses.gradients.iter().any(|step| *step < interval.at.needed);
        let is_done = uses.gradients.iter().all(|step| *step < interval.at.leaves);
        let others = u64::from(ranks - 1) * of_chunk.part;
        // Of those that interval ranks have their parts on their devices.
        let is_copied = !plan.stage.on_device.contains(&interval.payload.chunk);
        let copied = |is_unfinished| if is_copied { of_chunk.copied(is_unfinished) } else { 0 };
        prop_assert!(is_copied || !was_begun && (!changed || is_done), "the host has no place for it");
        if !made {
            up += copied(was_begun);
            let is_forward = matches!(chunks.steps.all()[interval.at.needed], Step::Forward { .. });
            match (was_begun, is_forward) {
                (true, _) => unfinished_up += copied(true),
                (false, true) => {}
                (false, false) => backward_up += copied(false),
            }
            gathered += if was_begun { 0 } else { others };
        }
        if changed {
            down += copied(!is_done);
            unfinished_down += if is_done { 0 } else { copied(true) };
            scattered += if is_done { others } else { 0 };
        }
    }
    if plan.stage.embedding == EmbeddingPlace::Host {
        // Eight tokens of one sample each time.
        let LayerKind::TokenEmbedding(of) = question.model.layers()[0].kind else { panic!("it has a table") };
        let scalar = if question.training.precision == Precision::Bf16 { 2 } else { 4 };
        let rows = 8 * of.hidden_size as u64 * scalar * u64::from(question.training.micro_batches);
        let times = if plan.recompute == RecomputePolicy::Layer { 2 } else { 1 };
        prop_assert_eq!((plan.moved.rows_up, plan.moved.rows_down), (times * rows, rows));
        (up, down) = (up + times * rows, down + rows);
        // Ranks give each other the table, and its gradients.
        let others = u64::from(ranks - 1) * SharedChunk::of(&chunks, 0, ranks).part;
        (gathered, scattered) = (gathered + others, scattered + others);
    }
    prop_assert_eq!((plan.moved.up, plan.moved.down), (up, down));
    prop_assert_eq!(
        (plan.moved.backward_up, plan.moved.unfinished_up, plan.moved.unfinished_down),
        (backward_up, unfinished_up, unfinished_down)
    );
    prop_assert_eq!(plan.moved.unchanged_down, 0, "what is unchanged is dropped");
    prop_assert_eq!((plan.moved.gathered, plan.moved.scattered), (gathered, scattered));
    // Gradients of all chunks go to their owners once; of a tied weight that is on the host those of rows and those of its upper
    // end.
    let times = |chunk| {
        let is_tied = plan.stage.embedding == EmbeddingPlace::Host
            && intervals.iter().any(|interval| interval.payload.chunk == 0);
        if is_tied && chunk == 0 { 2 } else { 1 }
    };
    let chunks_of = |chunk| times(chunk) * u64::from(ranks - 1) * SharedChunk::of(&chunks, chunk, ranks).part;
    prop_assert_eq!(
        scattered,
        (0..chunks.layout.chunks().len()).map(chunks_of).sum::<u64>() * u64::from(ranks > 1)
    );
    prop_assert_eq!(&plan.resident, &resident);
    prop_assert!(plan.peak() <= question.capacity);
    prop_assert_eq!(plan.host_bytes.0, chunks.host.bytes);
    prop_assert!(plan.host_bytes.0 + plan.actions.host_pool.0 <= question.host_memory.0);
    prop_assert_eq!(plan.actions.host_pool, costs.pool);
    let kept: u64 = costs.away.iter().map(|away| away.bytes).sum();
    let copies: Vec<[u64; 2]> =
        plan.offload.iter().flat_map(|of| &of.copies).map(|of| [of.out_bytes, of.in_bytes]).collect();
    prop_assert_eq!(copies, if kept > 0 { vec![[kept; 2]] } else { Vec::new() });
    let place = if activations.is_some() { ActivationPlace::Host } else { ActivationPlace::Device };
    prop_assert!(
        question.choices.activations.contains(&place) && plan.offload.is_some() == activations.is_some()
    );
    prop_assert_eq!(plan.lanes, simulate(question, &plan.stage, &chunks, &costs));
    Ok(())
}

/// Where activations of a plan leave and come: of all layers, and all micro-batches.
fn points_of(plan: &ChunkPlan) -> Option<ActivationPoints> {
    let [action] = plan.actions.actions.as_slice() else { return None };
    let Optimization::Swap(Swap { release_after, fetch_before, .. }) = action.optimization else {
        panic!("it swaps")
    };
    Some(ActivationPoints { release_after, fetch_before })
}

fn not_below(seconds: f64, bound: f64) -> bool {
    seconds >= bound * (1.0 - 1e-9)
}

proptest! {
    #![proptest_config(loadmaster_samples::cases(200))]

    /// The chosen plan is one of all choices, none of which is faster, and is what it says.
    #[test]
    fn no_choice_is_faster_than_the_chosen_one(case in cases()) {
        let all = weighed(&case);
        let plan = match choose(&case.question, &case.costs) {
            Ok(plan) => plan,
            Err(why) => {
                prop_assert!(all.is_empty(), "{}", why);
                prop_assert!(matches!(why, NoChunks::NoRoom(_) | NoChunks::Invalid(_)));
                return Ok(());
            }
        };
        check(&case, &plan)?;
        let seconds = |(_, of): &(EmbeddingPlace, Lanes)| of.iteration_seconds;
        let least = all.iter().map(seconds).fold(f64::INFINITY, f64::min);
        // Where all parameters are there all the time, come for the next iteration in other haste, or are oversized
        // chunks of which some stay, that may be faster than by any rule. Those with other numbers of chunks on the
        // device than are looked at count, too: no answer is slower than ZeRO-Offload's intervals of its own choice.
        let mut besides = weighed_all_there(&case);
        besides.extend(weighed_otherwise(&case).into_iter().chain(weighed_outliers(&case)).map(|(_, of)| of));
        let least_besides = besides.iter().map(|of| of.iteration_seconds).fold(f64::INFINITY, f64::min);
        let is_besides = plan.lanes.iteration_seconds < least * (1.0 - 1e-9);
        prop_assert!(!is_besides || not_below(plan.lanes.iteration_seconds, least_besides));
        let certificate = plan.certificate.unwrap();
        // Once many were simulated, what did not come near the best is left out, which the bound says.
        let is_exact = certificate.simulated < MANY_SIMULATED;
        prop_assert!(not_below(least.min(plan.lanes.iteration_seconds), certificate.bound_seconds));
        let least = if is_besides || !is_exact { plan.lanes.iteration_seconds } else { least };
        prop_assert!((plan.lanes.iteration_seconds - least).abs() <= 1e-9 * least, "{} is not {}", plan.lanes.iteration_seconds, least);
        prop_assert!(!is_exact || plan.gap() == 0.0);
        prop_assert!(not_below(least, certificate.any_intervals_seconds));
        prop_assert!(certificate.simulated <= certificate.choices);
        // All but those of an embedding whose passes alone take as long.
        let may_be_faster = |place: &EmbeddingPlace| {
            let choices = &case.question.choices;
            let all = choices.orders.iter().flat_map(|&order| choices.recomputes.iter().map(move |&of| (order, of)));
            let seconds = all.map(|(order, recompute)| {
                let of = PassChoice { order, recompute, embedding: *place, activations: None };
                case.costs.costs(of).unwrap().seconds.iter().sum::<f64>()
            });
            !not_below(seconds.fold(f64::INFINITY, f64::min), least)
        };
        let counted = |place| all.iter().filter(|of| of.0 == place).count();
        let places = case.question.embeddings();
        let weighed: usize = places.iter().filter(|place| may_be_faster(place)).map(|&place| counted(place)).sum();
        prop_assert!(
            (weighed..=all.len() + besides.len()).contains(&certificate.choices),
            "{} of {} choices, of which {weighed} may be faster", certificate.choices, all.len()
        );
    }

    /// A search that ends early says how much faster what it did not look at may be.
    #[test]
    fn an_early_end_is_told(mut case in cases(), most in 1_usize..6, tolerance in prop_oneof![Just(0.0), 0.0..0.5_f64]) {
        case.question.choices.most_simulated = most;
        case.question.choices.tolerance = tolerance;
        let Ok(plan) = choose(&case.question, &case.costs) else { return Ok(()) };
        check(&case, &plan)?;
        let certificate = plan.certificate.unwrap();
        prop_assert!(certificate.simulated <= most);
        prop_assert!(not_below(plan.lanes.iteration_seconds, certificate.bound_seconds));
        for (_, of) in weighed(&case) {
            let seconds = of.iteration_seconds;
            prop_assert!(not_below(seconds, certificate.bound_seconds), "{} below {}", seconds, certificate.bound_seconds);
        }
    }

    /// Bounds are below any intervals of what they bound: those of other rules, too.
    #[test]
    fn bounds_are_below_all_visits(
        case in cases(), (ahead, behind) in (0_usize..6, 0_usize..6), haste in hastes(),
    ) {
        let question = &case.question;
        let Ok(grounds) = PassCosts::all(question, &case.costs, &question.choices.activations, &mut StepSequences::default()) else { return Ok(()) };
        let layouts = layouts(question, &question.embeddings()).unwrap_or_default();
        let mut laid = Vec::new();
        for tried in &layouts {
            let grounds: Vec<&PassCosts> = tried.of(&grounds).collect();
            laid.extend(all_laid(question, std::slice::from_ref(tried), &grounds).unwrap());
        }
        for group in ChoiceGroup::all(&laid) {
            let laid = group.laid;
            let chunks = laid.chunks(group.host_copy, group.on_device).unwrap();
            let stage = laid.stage(group.host_copy, group.on_device);
            let intervals = stage.paged(Paging { ahead, behind }, &chunks, &laid.room()).unwrap();
            let intervals = begun_before(&case, (&stage, &chunks, &laid.ground.costs), &intervals, haste);
            // Bytes that are computed without placing chunks equal those of placed chunks.
            prop_assert_eq!(laid.placed.host_bytes(group.host_copy, group.on_device).unwrap(), chunks.host.bytes);
            let bare = stage.bare_intervals(&chunks).unwrap();
            let least = resident(&chunks, &stage.told(&chunks, &bare).unwrap());
            prop_assert_eq!(laid.placed.least_chunk_bytes(group.on_device), least);
            let checked = stage.told(&chunks, &intervals).unwrap();
            let up = chunks.moved(&checked).up as f64 / question.rates.up;
            let stage = ChunkedStage { residency: ChunkResidency::Planned(intervals), ..stage };
            let lanes = simulate(question, &stage, &chunks, &laid.ground.costs);
            let bound = group.bound();
            prop_assert!(not_below(lanes.iteration_seconds, bound), "{} below {}, {}", lanes.iteration_seconds, bound, lanes.is_steady);
            let of_room = laid.bound_of_room(group.on_device);
            prop_assert!(not_below(lanes.busy.up, of_room), "{} below {}", lanes.busy.up, of_room);
            prop_assert!(lanes.busy.up >= up * (1.0 - 1e-9));
        }
    }

    /// Groups come as if all of them had been bounded and sorted, each laid out by itself.
    #[test]
    fn groups_come_in_the_order_of_their_bounds(case in cases()) {
        let question = &case.question;
        let places = &question.choices.activations;
        let Ok(grounds) = PassCosts::all(question, &case.costs, places, &mut StepSequences::default()) else { return Ok(()) };
        for tried in layouts(question, &question.embeddings()).unwrap_or_default() {
            let grounds: Vec<&PassCosts> = tried.of(&grounds).collect();
            let laid = |grounds| all_laid(question, std::slice::from_ref(&tried), grounds).unwrap();
            let alone: Vec<LayoutEvaluation<'_>> = grounds.chunks(1).flat_map(laid).collect();
            let together = laid(&grounds);
            let named = |group: &ChoiceGroup<'_>, bound: f64| {
                let ground: *const PassCosts = group.laid.ground;
                (ground, group.host_copy, group.on_device, bound)
            };
            let mut sorted: Vec<_> = ChoiceGroup::all(&alone).iter().map(|group| named(group, group.bound())).collect();
            sorted.sort_by(|one, other| one.3.total_cmp(&other.3));
            let came: Vec<_> = BestFirst::of(ChoiceGroup::all(&together)).map(|(group, bound)| named(&group, bound)).collect();
            prop_assert_eq!(came, sorted);
        }
    }
}
