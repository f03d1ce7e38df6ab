//! What devices hold and do that take turns with several stages, counted a second time.

use loadmaster_proto::plan::objective::Objective;
use loadmaster_proto::training::actions::StageActions;
use loadmaster_proto::training::schedule::Pass;

use super::{fixture, seconds};
use crate::InterleavedTimeline;
use crate::interleaved::Interleaving;
use crate::memory_optimizations::settings;
use crate::tests::fixture::{Fixture, gpt};
use loadmaster_predict::ActionsPrediction;
use loadmaster_simulate::copies::pass_of;

/// A device holds what the stage at work holds in its fullest step, beside what each other one has at that moment: counted here turn by
/// turn, of stages that were replayed alone.
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
                let at = own.iter().position(|&of| of == stage).unwrap();
                let others: u64 =
                    behind.iter().enumerate().filter(|(of, _)| *of != at).map(|(_, held)| held).sum();
                let fullest = steps.iter().map(|&step| all[stage].curve[step].most.total()).max().unwrap();
                most = most.max(fullest + others);
                behind[at] = all[stage].curve[steps.last().unwrap() + 1].at_boundary;
            }
            // Updates come at the end; nothing is in flight then.
            for (at, &stage) in own.iter().enumerate() {
                let others: u64 =
                    behind.iter().enumerate().filter(|(of, _)| *of != at).map(|(_, held)| held).sum();
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

/// The ends of a tied weight add their gradients up: what that takes is in the plan's seconds, with memory actions or without, and
/// in what is drawn of it.
#[test]
fn the_ends_of_a_tied_weight_exchange() {
    let asked = |untied_head: bool| {
        Fixture::of(gpt(untied_head), None, Objective::MinIterationTime, 2, 10_000_000).with(|fixture| {
            fixture.request.virtual_stages = 2;
            fixture.request.named.micro_batch_size = true;
        })
    };
    let untouched = |fixture: &Fixture| fixture.with(|fixture| fixture.request.allowed = None).plan();
    let of = |fixture: &Fixture| [untouched(fixture), fixture.plan()];
    let (tied, untied) = (asked(false), asked(true));
    for (one, other) in of(&tied).iter().zip(&of(&untied)) {
        assert!(seconds(one) > seconds(other) + 1e-5, "{} is tied, {} is not", seconds(one), seconds(other));
    }
    let [plain, chosen] = of(&tied);
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
