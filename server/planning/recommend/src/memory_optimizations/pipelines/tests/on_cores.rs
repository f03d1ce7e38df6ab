//! What is promised of plans with actions on CPU slots that share the cores of their host.

use loadmaster_proto::measure::host::Host;
use loadmaster_proto::plan::Plan;
use loadmaster_proto::plan::objective::Objective;
use loadmaster_proto::training::actions::StageActions;
use loadmaster_proto::training::stage::Partitioning;

use super::{PEAKS, seconds};
use crate::IterationTimeline;
use crate::tests::fixture::Fixture;
use loadmaster_predict::cores;

const SLOTS: u32 = 4;

/// The fastest plan for named stages on a host of so many cores; none where it is not known.
fn asked(cores: Option<u32>, capacity: u64) -> Fixture {
    let host = cores.map(|cores| Host { cores, threads: 1, contention_slowdown: 1.0, copies: None });
    let mut fixture = Fixture::on(host, Objective::MinIterationTime, SLOTS, capacity);
    fixture.request.partitioning = Some(Partitioning::from_sizes(&[2, 1, 1, 1]).unwrap());
    fixture
}

/// Seconds of all passes and updates of a plan, over so many cores.
fn work(plan: &Plan, cores: f64) -> f64 {
    let of_stage = |of: &loadmaster_proto::plan::PlanStage| {
        let own = of.seconds.unwrap();
        f64::from(plan.training.micro_batches) * (own.forward + own.backward) + own.step
    };
    plan.stages.iter().map(of_stage).sum::<f64>() / cores
}

/// Four slots do no more on two cores than these can: plan, baselines and bound know it, the plan no longer says that it does
/// not, and simulated once more it takes as long. With cores enough for all that may happen at once nothing changes.
#[test]
fn a_plan_takes_no_less_than_its_cores_need_for_its_work() {
    for capacity in PEAKS {
        let alone = asked(None, capacity).plan();
        assert!(cores::of_plan(&alone).unwrap().message.contains("not known"));
        let many = asked(Some(64), capacity).plan();
        assert_eq!((seconds(&many), cores::of_plan(&many)), (seconds(&alone), None));
        assert_eq!(many.found.certificate, alone.found.certificate);

        let fixture = asked(Some(2), capacity);
        let plan = fixture.plan();
        assert_eq!(cores::of_plan(&plan), None);
        assert!(seconds(&plan) >= work(&plan, 2.0) * (1.0 - 1e-9), "{} {}", seconds(&plan), work(&plan, 2.0));
        assert!(seconds(&plan) > seconds(&alone), "{} {}", seconds(&plan), seconds(&alone));
        let certificate = plan.found.certificate.clone().unwrap();
        let untouched = fixture
            .given(&Partitioning::from_sizes(&[2, 1, 1, 1]).unwrap(), 4, vec![StageActions::default(); 4])
            .unwrap();
        let bound = certificate.bound.unwrap();
        assert!(bound >= work(&untouched, 2.0) * (1.0 - 1e-9) && bound <= seconds(&plan), "{certificate:?}");
        let again = IterationTimeline::of(&plan, &fixture.chain).unwrap();
        assert!((again.copied.iteration_seconds - seconds(&plan)).abs() < 1e-9 * seconds(&plan));
        for baseline in &plan.found.baselines {
            let own = baseline.plan.as_ref().and_then(|of| of.seconds);
            assert!(own.is_none_or(|own| own >= work(&untouched, 2.0) * (1.0 - 1e-9)), "{baseline:?}");
        }
    }
}

/// Slots of two threads need two cores each.
#[test]
fn threads_count_as_slots_do() {
    let of = |cores, threads| {
        let host = Some(Host { cores, threads, contention_slowdown: 1.0, copies: None });
        let mut fixture = Fixture::on(host, Objective::MinIterationTime, SLOTS, PEAKS[2]);
        fixture.request.partitioning = Some(Partitioning::from_sizes(&[2, 1, 1, 1]).unwrap());
        seconds(&fixture.plan())
    };
    // A copy has one thread, so that more of them have room.
    assert!(of(4, 2) <= of(2, 1) * (1.0 + 1e-9) && of(4, 2) > of(8, 1));
}

/// No actions that are drawn make any pipeline on shared cores faster than what is said to be the bound of all.
#[test]
fn nothing_on_shared_cores_is_below_the_bound() {
    for capacity in PEAKS {
        let host = Some(Host { cores: 2, threads: 1, contention_slowdown: 1.25, copies: None });
        let mut fixture = Fixture::on(host, Objective::MinIterationTime, SLOTS, capacity);
        fixture.request.goal.constraints.allow_idle_devices = true;
        let Ok(((_, plan), _)) = fixture.answer() else { continue };
        let bound = plan.found.certificate.clone().unwrap().bound.unwrap();
        for stages in 2..=SLOTS as usize {
            for drawn in fixture.drawn(stages, plan.training.micro_batch_size, 8) {
                let is_same = drawn.training.micro_batches == plan.training.micro_batches;
                assert!(!is_same || seconds(&drawn) >= bound * (1.0 - 1e-9), "{} {bound}", seconds(&drawn));
            }
        }
    }
}
