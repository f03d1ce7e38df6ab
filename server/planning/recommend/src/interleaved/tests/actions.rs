//! Memory actions of interleaved stages, held against actions drawn by lot.

use loadmaster_proto::bytes::Bytes;
use loadmaster_proto::plan::Plan;
use loadmaster_proto::plan::objective::Objective;
use loadmaster_proto::training::actions::{Block, StageActions, Way};
use loadmaster_proto::training::stage::Partitioning;

use super::seconds;
use crate::tests::fixture::Fixture;
use crate::{InterleavedTimeline, QuestionError, RecommendError};
use loadmaster_search::Stop;

/// With memory actions: a plan fits, is what the same stages and actions come to when they are given, is what is drawn over time, and
/// is within its bound; no actions that are drawn by lot and fit are faster than the bound, nor than the plan beyond a little.
#[test]
fn actions_make_it_fit_within_the_bound() {
    let (mut acted, mut drawn, mut worst) = (0, 0, 0.0_f64);
    for capacity in [55_000, 65_000, 80_000, 100_000, 150_000] {
        for ways in [&Way::ALL[..], &[Way::Recompute], &[Way::Host], &[Way::Recompute, Way::Peer]] {
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
            let of = |plan: &Plan| plan.stages.iter().map(|of| of.predicted_peak).collect::<Vec<_>>();
            assert_eq!(of(&same), of(&plan), "{told}");
            let timeline = InterleavedTimeline::of(&plan, &asked.chain, 2).unwrap();
            for (device, held) in timeline.devices.iter().enumerate() {
                assert_eq!(held.peak, plan.stages[device].predicted_peak, "{told}");
            }
            let moved = |way: &Way| actions.iter().flat_map(|of| &of.actions).any(|of| of.deed.way() == *way);
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
    for ways in [&[Way::Host][..], &[Way::Recompute, Way::Host]] {
        for capacity in (40_000..160_000).step_by(6_000) {
            let mut asked = Fixture::new(Objective::MinIterationTime, 2, capacity);
            asked.request.virtual_stages = 2;
            let allowed = asked.request.allowed.as_mut().unwrap();
            (allowed.ways, allowed.host_memory) = (ways.to_vec(), Bytes(0));
            allowed.blocks = vec![Block::Activations, Block::Weights, Block::Gradients, Block::Optimizer];
            let Ok(((_, plan), _)) = asked.answer() else { continue };
            let all = plan.stages.iter().flat_map(|stage| &stage.actions.actions);
            assert!(all.clone().all(|action| action.deed.way() == Way::Recompute), "{ways:?} {capacity}");
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
