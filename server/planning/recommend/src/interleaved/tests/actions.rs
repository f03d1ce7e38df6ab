//! Memory optimizations of interleaved stages, compared with actions drawn by lot, and what devices hold with them,
//! counted a second time.

use loadmaster_proto::bytes::Bytes;
use loadmaster_proto::plan::Plan;
use loadmaster_proto::plan::objective::Objective;
use loadmaster_proto::training::actions::{Block, StageActions, Way};
use loadmaster_proto::training::schedule::Pass;
use loadmaster_proto::training::stage::Partitioning;

use super::{fixture, seconds};
use crate::interleaved::Interleaving;
use crate::memory_optimizations::settings;
use crate::tests::fixture::{Fixture, gpt};
use crate::{InterleavedTimeline, QuestionError, RecommendError};
use loadmaster_predict::ActionsPrediction;
use loadmaster_search::Stop;
use loadmaster_simulate::copies::pass_of;

/// With memory optimizations, a plan fits and is within its bound. Its numbers equal those of the same stages and
/// actions when a request gives them, and those of its timeline. Random actions that fit are never faster than the bound,
/// and at most a little faster than the plan.
#[test]
fn actions_make_it_fit_within_the_bound() {
    let (mut acted, mut drawn, mut worst) = (0, 0, 0.0_f64);
    for capacity in [55_000, 65_000, 80_000, 100_000, 150_000] {
        for ways in [&Way::ALL[..], &[Way::Recompute], &[Way::CpuOffload], &[Way::Recompute, Way::PeerSwap]] {
            let mut asked = Fixture::new(Objective::MinIterationTime, 2, capacity);
            asked.request.virtual_stages = 2;
            asked.request.allowed.as_mut().unwrap().ways = ways.to_vec();
            let others = asked.drawn(4, 4, 40);
            let fits = others.iter().filter(|plan| plan.peak() <= capacity);
            let others: Vec<&Plan> = fits.collect();
            drawn += others.len();
            let fastest = others.iter().map(|plan| seconds(plan)).fold(f64::INFINITY, f64::min);
            let told = format!("{ways:?} within {capacity}");
            let Ok(((_, plan), _)) = asked.answer() else {
                assert!(others.is_empty(), "{told}: a plan that was drawn fits");
                continue;
            };
            assert!(plan.peak() <= capacity, "{told}: {}", plan.peak());
            let certificate = plan.found.certificate.clone().unwrap();
            let bound = certificate.bound.unwrap();
            assert!(bound <= fastest && bound <= seconds(&plan), "{told}: bound {bound}, {fastest}");
            assert_eq!(certificate.value, seconds(&plan), "{told}");
            let sizes: Vec<usize> = plan.stages.iter().map(|stage| stage.config.layer_count()).collect();
            let actions: Vec<StageActions> = plan.stages.iter().map(|stage| stage.actions.clone()).collect();
            let same = asked.given(&Partitioning::from_sizes(&sizes).unwrap(), 4, actions.clone()).unwrap();
            assert!((seconds(&same) / seconds(&plan) - 1.0).abs() < 1e-9, "{told}: {}", seconds(&same));
            let peaks =
                |plan: &Plan| plan.stages.iter().map(|stage| stage.predicted_peak).collect::<Vec<_>>();
            assert_eq!(peaks(&same), peaks(&plan), "{told}");
            let timeline = InterleavedTimeline::of(&plan, &asked.chain, 2).unwrap();
            for (device, held) in timeline.devices.iter().enumerate() {
                assert_eq!(held.peak, plan.stages[device].predicted_peak, "{told}");
            }
            let moved =
                |way: &Way| actions.iter().flat_map(|of| &of.actions).any(|of| of.optimization.way() == *way);
            assert!(Way::ALL.iter().filter(|way| !ways.contains(way)).all(|way| !moved(way)), "{told}");
            acted += usize::from(actions.iter().any(|of| !of.is_empty()));
            if fastest.is_finite() {
                worst = worst.max(seconds(&plan) / fastest - 1.0);
            }
        }
    }
    assert!(acted >= 6 && drawn >= 100, "{acted} plans act, {drawn} drawn ones fit");
    assert!(worst < 0.03, "drawn actions are up to {:.1} % faster", 100.0 * worst);
}

/// Where nothing may be at a peer, nothing is: without memory of a host no block leaves, whatever lasts.
#[test]
fn what_lasts_goes_only_where_it_may() {
    let (mut found, mut again) = (0, 0);
    for ways in [&[Way::CpuOffload][..], &[Way::Recompute, Way::CpuOffload]] {
        for capacity in (40_000..160_000).step_by(6_000) {
            let mut asked = Fixture::new(Objective::MinIterationTime, 2, capacity);
            asked.request.virtual_stages = 2;
            let allowed = asked.request.allowed.as_mut().unwrap();
            (allowed.ways, allowed.host_memory) = (ways.to_vec(), Bytes(0));
            allowed.blocks = vec![Block::Activations, Block::Weights, Block::Gradients, Block::Optimizer];
            let Ok(((_, plan), _)) = asked.answer() else { continue };
            let all = plan.stages.iter().flat_map(|stage| &stage.actions.actions);
            assert!(
                all.clone().all(|action| action.optimization.way() == Way::Recompute),
                "{ways:?} {capacity}"
            );
            (found, again) = (found + 1, again + all.count());
        }
    }
    assert!(found > 0 && again > 0, "{found} plans, {again} runs computed again");
}

/// The most that a device may hold is compared with what it is predicted to hold; what is uncertain of that counts against what it has.
#[test]
fn the_highest_peak_is_of_the_prediction() {
    let asked = Fixture::new(Objective::MinIterationTime, 2, 10_000_000).with(|fixture| {
        fixture.request.virtual_stages = 2;
    });
    let untouched = asked.with(|fixture| fixture.request.allowed = None).plan();
    let most = |most: u64| asked.with(|fixture| fixture.request.goal.constraints.max_peak_bytes = Some(most));
    let same = most(untouched.peak()).plan();
    assert!(same.stages.iter().all(|stage| stage.actions.is_empty()), "{same:?}");
    assert_eq!(same.peak(), untouched.peak());
    let less = most(untouched.peak() - 1).plan();
    assert!(less.peak() < untouched.peak());
}

/// Actions of stages that are given have to be as fast as is asked for.
#[test]
fn given_stages_keep_to_the_limit() {
    let asked = Fixture::new(Objective::MinIterationTime, 2, 80_000).with(|fixture| {
        fixture.request.virtual_stages = 2;
        fixture.request.partitioning = Some(Partitioning::from_sizes(&[1, 1, 1, 2]).unwrap());
    });
    let taken = seconds(&asked.plan());
    let within = |limit: f64| {
        asked.with(|fixture| fixture.request.goal.constraints.max_iteration_seconds = Some(limit)).answer()
    };
    assert!(within(taken * 1.001).is_ok());
    let error = within(taken * 0.999).unwrap_err();
    assert!(
        matches!(error, QuestionError::Recommend(RecommendError::Limits { is_proof: false, .. })),
        "{error}"
    );
}

/// Who is stopped before anything was tried does not say what is missing.
#[test]
fn who_is_stopped_says_so() {
    let asked = Fixture::new(Objective::MinIterationTime, 2, 55_000)
        .with(|fixture| fixture.request.virtual_stages = 2);
    let stop = Stop::default();
    stop.request();
    let error = asked.answer_until(&stop).unwrap_err();
    assert!(matches!(error, QuestionError::Recommend(RecommendError::Stopped)), "{error}");
}

/// A device holds what the stage at work holds in its largest step, beside what each other one has at that moment:
/// counted here turn by turn, of stages that were replayed alone.
#[test]
fn a_device_holds_what_its_stages_hold_in_turn() {
    for (layers, devices, each) in [(5, 2, 2), (9, 4, 2), (7, 2, 3)] {
        let asked = fixture(layers, Objective::MinIterationTime, devices, each, 10_000_000);
        let plan = asked.plan();
        let chain = &asked.chain;
        let interleaving =
            Interleaving::of(plan.stages.len(), devices as usize, plan.training.micro_batches).unwrap();
        let none = StageActions::default();
        let replay = |setting: &_| {
            chain
                .predictor
                .acted_in(setting, &none, interleaving.steps(chain.model.as_ref(), setting, &none))
                .unwrap()
        };
        let all: Vec<ActionsPrediction> = settings(&plan).iter().map(replay).collect();
        let timeline = InterleavedTimeline::of(&plan, chain, each).unwrap();
        for (device, lane) in timeline.lanes.iter().enumerate() {
            // Who is at work, by the clock.
            let mut passes: Vec<(f64, usize, Pass)> =
                lane.passes.iter().map(|timed| (timed.start, timed.stage as usize, timed.pass)).collect();
            passes.sort_by(|one, other| one.0.total_cmp(&other.0));
            let own: Vec<usize> = (device..plan.stages.len()).step_by(devices as usize).collect();
            let mut behind: Vec<u64> = own.iter().map(|&stage| all[stage].curve[0].at_boundary).collect();
            let mut most = 0;
            for (_, stage, pass) in passes {
                let of_pass = |&(_, step): &(usize, &_)| pass_of(*step) == Some(pass);
                let steps: Vec<usize> =
                    all[stage].steps.all().iter().enumerate().filter(of_pass).map(|(at, _)| at).collect();
                let at = own.iter().position(|&other| other == stage).unwrap();
                let others: u64 =
                    behind.iter().enumerate().filter(|(other, _)| *other != at).map(|(_, held)| held).sum();
                let fullest = steps.iter().map(|&step| all[stage].curve[step].most.total()).max().unwrap();
                most = most.max(fullest + others);
                behind[at] = all[stage].curve[steps.last().unwrap() + 1].at_boundary;
            }
            // Updates come at the end; nothing is in flight then.
            for (at, &stage) in own.iter().enumerate() {
                let others: u64 =
                    behind.iter().enumerate().filter(|(other, _)| *other != at).map(|(_, held)| held).sum();
                let updates = all[stage].curve.iter().zip(all[stage].steps.all());
                let updates = updates.filter(|(_, step)| pass_of(**step).is_none());
                most = most.max(updates.map(|(held, _)| held.most.total() + others).max().unwrap_or(0));
            }
            assert_eq!(timeline.devices[device].peak, most, "device {device} of {}", plan.partition());
            assert_eq!(plan.stages[device].predicted_peak, most);
            let alone: u64 = own.iter().map(|&stage| all[stage].prediction(0).bytes.0).sum();
            assert!(most <= alone && own.iter().all(|&stage| most > all[stage].prediction(0).bytes.0));
        }
    }
}

/// The ends of a tied weight add their gradients up: what that takes is in the plan's seconds, with memory
/// optimizations or without, and in what is drawn of it.
#[test]
fn the_ends_of_a_tied_weight_exchange() {
    let asked = |untied_head: bool| {
        Fixture::of(gpt(untied_head), None, Objective::MinIterationTime, 2, 10_000_000).with(|fixture| {
            fixture.request.virtual_stages = 2;
            fixture.request.named.micro_batch_size = true;
        })
    };
    let untouched = |fixture: &Fixture| fixture.with(|fixture| fixture.request.allowed = None).plan();
    let both = |fixture: &Fixture| [untouched(fixture), fixture.plan()];
    let (tied, untied) = (asked(false), asked(true));
    for (one, other) in both(&tied).iter().zip(&both(&untied)) {
        assert!(seconds(one) > seconds(other) + 1e-5, "{} is tied, {} is not", seconds(one), seconds(other));
    }
    let [plain, chosen] = both(&tied);
    assert!(
        (seconds(&chosen) / seconds(&plain) - 1.0).abs() < 1e-9,
        "{} {}",
        seconds(&chosen),
        seconds(&plain)
    );
    for plan in [&plain, &chosen] {
        let drawn = InterleavedTimeline::of(plan, &tied.chain, 2).unwrap();
        assert!((drawn.copied.iteration_seconds / seconds(plan) - 1.0).abs() < 1e-9);
    }
}
