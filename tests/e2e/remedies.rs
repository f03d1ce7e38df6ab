//! Remedies of requests that no plan satisfies: each leads to the plan whose figures it has.

use std::collections::BTreeSet;

use loadmaster_proto::wire::v1;
use loadmaster_proto::wire::v1::recommend_plan_response::Result as Found;
use loadmaster_tests::{Planner, Sampler, call, uneven_chain, with_changes};
use tonic::transport::Channel;

/// Requests that are drawn.
const DRAWN: u32 = 120;

async fn ask(channel: &Channel, request: &v1::RecommendPlanRequest) -> Option<Found> {
    // Some are rejected, such as sizes that do not divide the iteration.
    call(channel, request.clone()).await.ok().and_then(|response| response.result)
}

/// A request on devices that may be too small.
fn draw(lots: &mut Sampler) -> v1::RecommendPlanRequest {
    use v1::{Objective, ParallelismLayout, RecomputePolicy, Schedule};

    let mut request = v1::RecommendPlanRequest { validate_only: true, ..Default::default() };
    let capacity_bytes = lots.scale(20e6, 600e6) as i64;
    let count = lots.whole(1, 6).cast_signed();
    request.problem = Some(v1::Problem {
        profile: "profiles/table".to_owned(),
        devices: vec![v1::DeviceGroup { count, capacity_bytes, ..Default::default() }],
        micro_batch_size: lots.one(&[0, 0, 4, 8]),
        recompute: lots.one(&[RecomputePolicy::Unspecified, RecomputePolicy::Layer]).into(),
        ..Default::default()
    });
    let objectives = [
        Objective::MinPeakMemory,
        Objective::MinIterationTime,
        Objective::MinIterationTime,
        Objective::MinDevices,
    ];
    request.objective =
        Some(v1::ObjectiveOptions { kind: lots.one(&objectives).into(), ..Default::default() });
    let layouts = [
        ParallelismLayout::SinglePipeline,
        ParallelismLayout::UniformGrid,
        ParallelismLayout::PerStageReplicas,
        ParallelismLayout::PerStageMesh,
    ];
    let mut limits = v1::Constraints { parallelism_layout: lots.one(&layouts).into(), ..Default::default() };
    if lots.percent(25) {
        limits.recompute_policies = vec![RecomputePolicy::None.into()];
    }
    if lots.percent(25) {
        limits.schedules = vec![Schedule::Gpipe.into()];
    }
    if lots.percent(25) {
        limits.micro_batch_sizes = vec![8];
    }
    request.constraints = Some(limits);
    request
}

#[tokio::test(flavor = "multi_thread")]
async fn remedies_have_the_figures_of_the_plans_that_they_lead_to() {
    let planner = Planner::start();
    let channel = planner.channel().await;
    let import = v1::ImportProfileRequest {
        document: uneven_chain(10, "gpu", [1, 8]).to_string(),
        profile_id: "table".to_owned(),
        validate_only: false,
    };
    call(&channel, import).await.expect("the table can be imported");
    let (mut lots, mut fields) = (Sampler::new(50), BTreeSet::new());
    for number in 0..DRAWN {
        let request = draw(&mut lots);
        let Some(Found::Infeasible(infeasible)) = ask(&channel, &request).await else { continue };
        for remedy in &infeasible.remedies {
            let told = format!("request {number}: {remedy:?} of {request:?}");
            let changed = with_changes(&request, &remedy.changes).expect(&told);
            let Some(Found::Plan(plan)) = ask(&channel, &changed).await else { panic!("no plan: {told}") };
            assert_eq!(remedy.predicted_peak, plan.predicted_peak, "{told}");
            let seconds = plan.iteration.as_ref().map(|iteration| iteration.iteration_seconds);
            assert_eq!(remedy.iteration_seconds, seconds, "{told}");
            fields.extend(remedy.changes.iter().map(|change| change.field.clone()));
        }
    }
    assert!(fields.len() >= 7, "the remedies that were drawn change {fields:?}");
}
