//! Whether a stored plan's timeline takes the seconds that it should, and holds the micro-batches that it says.

use std::collections::BTreeSet;

use anyhow::Result;
use loadmaster_proto::wire::v1;
use loadmaster_proto::wire::v1::pass_span::Kind;

use crate::certificates::ask::{Answer, Planner, Stored};
use crate::certificates::check::{Class, Finding};
use crate::certificates::instance::Instance;
use crate::certificates::judge::{is_same, judge};
use crate::certificates::simulate::iteration;
use crate::certificates::truth::Terms;
use crate::certificates::words::{Schedule, Transfers};

/// Stores the plan that a question is answered with, and asks for its timelines.
pub(crate) async fn findings(
    planner: &Planner,
    stored: &Stored,
    instance: &Instance,
    terms: Terms,
) -> Result<Vec<Finding>> {
    let Instance { scene, question, .. } = instance;
    let request = v1::RecommendPlanRequest {
        validate_only: false,
        ..question.request(scene, &stored.profiles, &stored.cluster)
    };
    let Answer::Plan(plan) = planner.call(request).await? else { return Ok(Vec::new()) };
    let judged = judge(scene, question, &plan, terms);
    if !judged.broken.is_empty() || !judged.differing.is_empty() {
        return Ok(Vec::new());
    }
    let mut findings = Vec::new();
    let mut wrong = |what: String| findings.push(Finding { class: Class::Timeline, what });
    let m = plan.training.unwrap_or_default().micro_batches as u32;
    let own =
        plan.training.and_then(|training| Schedule::of_wire(training.schedule)).unwrap_or(Schedule::Gpipe);
    let schedules = [
        (v1::SimulatedSchedule::Unspecified, Some(own)),
        (v1::SimulatedSchedule::Gpipe, Some(Schedule::Gpipe)),
        (v1::SimulatedSchedule::OneFOneB, Some(Schedule::OneFOneB)),
        (v1::SimulatedSchedule::Interleaved, None),
    ];
    for (asked, schedule) in schedules {
        // Chunks are interleaved in groups of as many micro-batches as there are devices.
        if schedule.is_none() && !m.is_multiple_of(plan.stages.len() as u32) {
            continue;
        }
        for transfers in [Transfers::Overlapping, Transfers::Blocking] {
            let request = v1::SimulatePlanRequest {
                name: plan.name.clone(),
                schedule: asked.into(),
                transfers: transfers.to_wire(),
                ..Default::default()
            };
            let timeline = planner.simulate(request).await?;
            if let Some(schedule) = schedule {
                let seconds = iteration(schedule, &judged.stages, &judged.edges, m, transfers);
                if !is_same(timeline.iteration_seconds, seconds) {
                    let said = timeline.iteration_seconds;
                    wrong(format!(
                        "{asked:?}, {transfers:?}: {said:?} s were answered, {seconds:?} s are ours"
                    ));
                }
            }
            for lane in &timeline.lanes {
                let most = most_at_once(lane);
                if lane.in_flight != most {
                    let (stage, said) = (lane.stage, lane.in_flight);
                    wrong(format!(
                        "{asked:?}: stage {stage} is said to hold {said} micro-batches, its passes {most}"
                    ));
                }
            }
        }
    }
    Ok(findings)
}

/// The most micro-batches between forward and backward pass, as the passes of a lane have them; each chunk's count.
fn most_at_once(lane: &v1::Lane) -> i32 {
    let mut open = BTreeSet::new();
    let mut most = 0;
    for pass in &lane.passes {
        let key = (pass.chunk, pass.micro_batch);
        match pass.kind() {
            Kind::Forward => drop(open.insert(key)),
            Kind::Backward => drop(open.remove(&key)),
            Kind::Recomputation | Kind::Gather | Kind::Scatter | Kind::Step | Kind::Unspecified => {}
        }
        most = most.max(open.len() as i32);
    }
    most
}
