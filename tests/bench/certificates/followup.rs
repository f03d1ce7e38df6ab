//! What is asked besides a question itself: which of several models is the largest that fits, whether remedies work, and a stored
//! plan's timelines.

use std::collections::BTreeSet;

use anyhow::Result;
use loadmaster_oracle::{CommunicationOverlap, Pipeline, Schedule, Truth};
use loadmaster_proto::wire::v1;
use loadmaster_proto::wire::v1::pass_span::Kind;

use crate::certificates::ask::{Answer, Planner, Refused, Stored};
use crate::certificates::check::{Class, Finding, Verdict};
use crate::certificates::instance::Instance;
use crate::certificates::judge::{is_same, judge};
use crate::certificates::scene::{Fleet, Scene};
use crate::certificates::truth::{Terms, truth as truth_of};

/// Parameters of a scene's model.
fn parameters(scene: &Scene) -> f64 {
    scene.kinds[0].layers.iter().map(|layer| layer.parameter_count as f64).sum()
}

/// Asks for the largest of the scene's model and its rivals, and holds the answer to which of them have a plan.
pub(crate) async fn of_models(
    planner: &Planner,
    stored: &Stored,
    instance: &Instance,
    truth: &Truth,
    terms: Terms,
) -> Result<Verdict> {
    let Instance { scene, question, rivals, .. } = instance;
    let mut verdict = Verdict::default();
    let mut candidates = vec![(scene, stored.profiles[0].clone(), truth.kept > 0)];
    let mut is_borderline = truth.is_borderline;
    for rival in rivals {
        let stored = planner.store(rival).await?;
        let Ok(truth) = truth_of(rival, question, terms) else { return Ok(verdict) };
        is_borderline |= truth.is_borderline;
        candidates.push((rival, stored.profiles[0].clone(), truth.kept > 0));
    }
    let request = loadmaster_proto::changed!(
        question.request(scene, &stored.profiles, &stored.cluster),
        problem.profile = String::new(),
        problem.other_profiles = Vec::new(),
        objective.candidate_profiles = candidates.iter().map(|(_, name, _)| name.clone()).collect()
    );
    let answer = planner.call(request).await?;
    if is_borderline {
        return Ok(verdict);
    }
    let fits = candidates.iter().filter(|(_, _, fits)| *fits);
    let best = fits.map(|(scene, ..)| parameters(scene)).reduce(f64::max);
    let mut wrong = |class, what: String| verdict.findings.push(Finding { class, what });
    let plan = match (&answer, best) {
        (Answer::Plan(plan), _) => plan,
        (Answer::Refused(refused), None) if refused.is_no_plan() => return Ok(verdict),
        (Answer::Refused(refused), Some(best)) if refused.is_no_plan() => {
            wrong(
                Class::FalselyInfeasible,
                format!("{}; a model of {best} parameters fits", refused.message),
            );
            return Ok(verdict);
        }
        (Answer::Refused(refused), _) => {
            wrong(Class::Refused, format!("{:?} {}", refused.code, refused.message));
            return Ok(verdict);
        }
    };
    let Some((chosen, ..)) = candidates.iter().find(|(_, name, _)| *name == plan.profile) else {
        wrong(Class::Illegal, format!("{} is none of the candidates", plan.profile));
        return Ok(verdict);
    };
    let judged = judge(chosen, question, plan, terms);
    if !judged.broken.is_empty() {
        wrong(Class::Illegal, judged.broken.join("; "));
    }
    if !judged.differing.is_empty() {
        wrong(Class::Prices, judged.differing.join("; "));
    }
    let certificate = plan.certificate.clone().unwrap_or_default();
    let value = parameters(chosen);
    let Some(best) = best else {
        wrong(Class::Ours, "no model fits, and one is answered".to_owned());
        return Ok(verdict);
    };
    if !is_same(certificate.objective_value, value) {
        wrong(Class::Value, format!("{:?} of {value:?} parameters", certificate.objective_value));
    }
    if best > value && certificate.optimal {
        wrong(Class::FalselyProven, format!("{value:?} parameters were answered, {best:?} fit"));
    }
    if let Some(bound) = certificate.best_bound.filter(|&bound| bound < best) {
        wrong(Class::Bound, format!("no model of more than {bound:?} parameters fits, and {best:?} do"));
    }
    (verdict.is_plan, verdict.is_proven, verdict.is_stopped) =
        (true, certificate.optimal, certificate.deadline_reached);
    if !certificate.optimal {
        (verdict.stated_gap, verdict.behind) = (certificate.optimality_gap, Some((best - value) / best));
    }
    Ok(verdict)
}

/// What follows a remedy.
#[derive(Debug)]
pub(crate) enum Followed {
    /// The request with the changes of the remedy.
    Request(Box<v1::RecommendPlanRequest>),
    /// The same question on a larger cluster.
    Cluster(Box<Scene>),
}

/// A remedy, and what follows it; none where its words are not known here.
#[derive(Debug)]
pub(crate) struct Remedy {
    pub(crate) description: String,
    pub(crate) follows: Option<Followed>,
}

/// All remedies of a response to a request.
pub(crate) fn remedies(
    scene: &Scene,
    request: &v1::RecommendPlanRequest,
    refused: &Refused,
) -> Result<Vec<Remedy>> {
    let remedies = refused.infeasible.iter().flat_map(|infeasible| &infeasible.remedies);
    let follow = |remedy: &v1::Remedy| {
        let description = remedy.description.clone();
        let follows = if remedy.changes.is_empty() {
            larger_cluster(scene, &description).map(|scene| Followed::Cluster(Box::new(scene)))
        } else {
            let changed = loadmaster_tests::with_changes(request, &remedy.changes)?;
            Some(Followed::Request(Box::new(changed)))
        };
        Ok(Remedy { description, follows })
    };
    remedies.map(follow).collect()
}

/// `12 devices instead of 8: 2 more nodes like n3 in the cluster`.
fn larger_cluster(scene: &Scene, description: &str) -> Option<Scene> {
    let mut scene = scene.clone();
    let (_, nodes) = description.split_once(": ")?;
    let (number, like) =
        nodes.split_once(" more nodes like ").or_else(|| nodes.split_once(" more node like "))?;
    more_like(&mut scene, number.parse().ok()?, like.split_whitespace().next()?)?;
    Some(scene)
}

/// `2 more nodes like n3 in the cluster`.
fn more_like(scene: &mut Scene, count: usize, name: &str) -> Option<()> {
    let Fleet::Cluster(cluster) = &mut scene.fleet else { return None };
    let like = cluster.nodes.iter().find(|node| node.name == name)?.clone();
    let first = cluster.nodes.len();
    let more = (first..first + count)
        .map(|index| crate::certificates::scene::Node { name: format!("more{index}"), ..like.clone() });
    cluster.nodes.extend(more);
    Some(())
}

/// Stores the plan that a question is answered with, and asks for its timelines.
pub(crate) async fn of_timelines(
    planner: &Planner,
    stored: &Stored,
    instance: &Instance,
    terms: Terms,
) -> Result<Vec<Finding>> {
    let Instance { scene, question, .. } = instance;
    let request = loadmaster_proto::changed!(
        question.request(scene, &stored.profiles, &stored.cluster),
        validate_only = false
    );
    let Answer::Plan(plan) = planner.call(request).await? else { return Ok(Vec::new()) };
    let judged = judge(scene, question, &plan, terms);
    if !judged.broken.is_empty() || !judged.differing.is_empty() {
        return Ok(Vec::new());
    }
    let mut findings = Vec::new();
    let mut wrong = |what: String| findings.push(Finding { class: Class::Timeline, what });
    let m = plan.training.unwrap_or_default().micro_batch_count as u32;
    let own =
        plan.training.and_then(|training| Schedule::from_wire(training.schedule)).unwrap_or(Schedule::Gpipe);
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
        for transfers in [CommunicationOverlap::On, CommunicationOverlap::Off] {
            let request = v1::SimulatePlanRequest {
                name: plan.name.clone(),
                schedule: asked.into(),
                communication_overlap: transfers.to_wire(),
                ..Default::default()
            };
            let timeline = planner.simulate(request).await?;
            if let Some(schedule) = schedule {
                let (stages, edges, micro_batches) = (&judged.stages[..], &judged.edges[..], m);
                let seconds = Pipeline { stages, edges, micro_batches, transfers }.iteration(schedule);
                if !is_same(timeline.iteration_seconds, seconds) {
                    let said = timeline.iteration_seconds;
                    wrong(format!(
                        "{asked:?}, {transfers:?}: {said:?} s were answered, {seconds:?} s are ours"
                    ));
                }
            }
            for lane in &timeline.stage_timelines {
                let most = most_at_once(lane);
                if lane.in_flight_micro_batch_count != most {
                    let (stage, said) = (lane.stage, lane.in_flight_micro_batch_count);
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
fn most_at_once(lane: &v1::StageTimeline) -> i32 {
    let mut open = BTreeSet::new();
    let mut most = 0;
    for pass in &lane.passes {
        let key = (pass.virtual_stage, pass.micro_batch);
        match pass.kind() {
            Kind::Forward => drop(open.insert(key)),
            Kind::Backward => drop(open.remove(&key)),
            Kind::Recomputation
            | Kind::AllGather
            | Kind::ReduceScatter
            | Kind::OptimizerStep
            | Kind::Unspecified => {}
        }
        most = most.max(open.len() as i32);
    }
    most
}
