//! What is promised of plans with memory actions that are bound to nodes: the seconds that they would have been planned with.

use std::sync::Arc;

use loadmaster_proto::cluster::import::{ClusterFormat, ImportOptions, import};
use loadmaster_proto::measure::offload::CopyPace;
use loadmaster_proto::plan::Plan;
use loadmaster_proto::plan::goal::Goal;
use loadmaster_proto::plan::objective::Objective;
use loadmaster_proto::training::Schedule;
use loadmaster_proto::training::actions::{Action, Block, Deed, Destination, StageActions, Stripe, Swap};
use loadmaster_proto::training::stage::Partitioning;

use crate::fleet::{PlannedFleet, Selection, fleet};
use crate::recommend::scene::{LAYERS, Scene};
use crate::recommend::{BindError, BindQuestion, Bound};
use crate::search::Stop;

/// Nodes of so many devices each that a search sees no difference between: only their ways to the host differ, in MB/s.
fn nodes(hosts: &[u32], devices: u32) -> PlannedFleet {
    let node = |(index, rate): (usize, &u32)| {
        let host = match rate {
            0 => String::new(),
            rate => format!(", host: {{link: {{bandwidth: {rate}MB/s}}}}"),
        };
        format!(
            "  - {{name: n{index}, kind: cpu, devices: {devices}, link: {{bandwidth: 5GB/s}}, network: {{bandwidth: 1GB/s}}{host}}}\n"
        )
    };
    let nodes: String = hosts.iter().enumerate().map(node).collect();
    let text = format!(
        "format: loadmaster.cluster/1\nkinds: [{{name: cpu, memory: 1GiB, usable_memory: 1GiB}}]\nnodes:\n{nodes}"
    );
    let cluster = import(ClusterFormat::Loadmaster, &text, &ImportOptions::default()).unwrap();
    fleet(&cluster, &Selection::default()).unwrap().with_cluster(cluster)
}

fn swap(layer: usize, to: Destination) -> Action {
    let swap = Swap { block: Block::Activations, to, release_after: 0, fetch_before: 0 };
    Action { first_layer: layer, last_layer: layer, slots: Vec::new(), deed: Deed::Swap(swap) }
}

fn acting(actions: Vec<Action>) -> StageActions {
    StageActions { actions, ..StageActions::default() }
}

/// Stages that have little, all and nothing of what they keep at the host, and one that computes again.
fn at_hosts() -> Vec<StageActions> {
    let again = Action { first_layer: 3, last_layer: 3, slots: Vec::new(), deed: Deed::Recompute };
    vec![
        acting(vec![swap(0, Destination::Host)]),
        acting(vec![swap(1, Destination::Host), swap(2, Destination::Host)]),
        acting(vec![again]),
        acting(vec![]),
    ]
}

/// A plan of four stages with these actions, made for these devices.
fn planned(
    fleet: PlannedFleet,
    schedule: Schedule,
    actions: Vec<StageActions>,
    pace: CopyPace,
) -> (Plan, Scene) {
    let scene = Scene::new(Objective::MinIterationTime, 4, 1 << 30).with(|scene| {
        scene.request.partitioning = Some(Partitioning::from_sizes(&[1, 2, 1, LAYERS - 4]).unwrap());
        scene.request.stage_actions = actions;
        scene.request.allowed = None;
        scene.request.goal = Goal::default();
        scene.request.copy_pace = pace;
    });
    let mut question = scene.question();
    question.fleet = fleet;
    question.training.schedule = schedule;
    let ((_, plan), _) = question.answer(&Stop::default()).unwrap();
    (plan, scene)
}

fn bind(plan: &Plan, scene: &Scene, fleet: PlannedFleet) -> Result<Bound, BindError> {
    let question = BindQuestion { plan: plan.clone(), chains: vec![Arc::clone(&scene.chain)], fleet };
    question.answer(&Stop::default())
}

const FREE: CopyPace = CopyPace { host: None, peer: None };

fn permutations(of: &[u32]) -> Vec<Vec<u32>> {
    if of.is_empty() {
        return vec![Vec::new()];
    }
    let of_first = |index: usize| {
        let mut rest = of.to_vec();
        let first = rest.remove(index);
        permutations(&rest).into_iter().map(move |rest| [vec![first], rest].concat()).collect::<Vec<_>>()
    };
    (0..of.len()).flat_map(of_first).collect()
}

fn same(one: f64, other: f64) -> bool {
    (one - other).abs() <= 1e-12 * one.abs().max(other.abs())
}

/// In whichever order nodes are given, whose copies alone tell them apart, the fastest of all orders is found: its seconds are those of
/// the fastest plan that was made for one of them.
#[test]
fn the_fastest_order_is_that_of_the_fastest_plan() {
    for schedule in [Schedule::OneFOneB, Schedule::Gpipe, Schedule::PipeDream] {
        let hosts = [1, 2, 2, 400];
        let planned_for = |hosts: &[u32]| {
            let (plan, _) = planned(nodes(hosts, 1), schedule, at_hosts(), FREE);
            let order: Vec<String> = plan.stages.iter().map(|stage| stage.devices[0].node.clone()).collect();
            assert_eq!(order, ["n0", "n1", "n2", "n3"], "a search keeps nodes that it cannot tell apart");
            plan.iteration_seconds().unwrap()
        };
        let seconds: Vec<f64> = permutations(&hosts).iter().map(|hosts| planned_for(hosts)).collect();
        let best = seconds.iter().copied().reduce(f64::min).unwrap();
        let worst = seconds.iter().copied().reduce(f64::max).unwrap();
        assert!(worst > best * 1.01, "{schedule}: the order matters: {best} to {worst}");
        let (plan, scene) = planned(nodes(&hosts, 1), schedule, at_hosts(), FREE);
        for order in permutations(&hosts) {
            let found = bind(&plan, &scene, nodes(&order, 1)).unwrap();
            assert!(same(found.seconds.unwrap(), best), "{schedule}: {:?} against {best}", found.seconds);
            assert!(found.is_proven && found.least == found.seconds, "{schedule}");
            assert!(
                found.notes.iter().any(|note| note.contains("of the cluster, given")),
                "{:?}",
                found.notes
            );
        }
    }
}

/// On nodes of which nobody says how they copy, copies are as the plan had them: also where a request said so.
#[test]
fn what_nobody_says_of_copies_is_as_planned() {
    let pace = CopyPace { host: Some(4e6), peer: Some(8e6) };
    for schedule in [Schedule::OneFOneB, Schedule::Gpipe, Schedule::PipeDream] {
        let (plan, scene) = planned(nodes(&[0; 4], 1), schedule, at_hosts(), pace);
        let again = bind(&plan, &scene, nodes(&[0; 4], 1)).unwrap();
        assert!(same(again.seconds.unwrap(), plan.iteration_seconds().unwrap()), "{schedule}: {again:?}");
        assert!(again.notes.iter().any(|note| note.contains("as planned")), "{:?}", again.notes);
        let faster = bind(&plan, &scene, nodes(&[4_000; 4], 1)).unwrap();
        assert!(faster.seconds < again.seconds, "{schedule}: {faster:?}");
    }
}

/// Stages that park blocks with each other stay on one node, and are refused on nodes that they do not share.
#[test]
fn peers_share_a_node_again() {
    let peer = |stage: u32| Destination::Peers(vec![Stripe { stage, share: 10_000 }]);
    let actions = vec![acting(vec![swap(0, peer(1))]), acting(vec![]), acting(vec![swap(3, peer(3))])];
    let (plan, scene) = planned(nodes(&[0; 2], 2), Schedule::OneFOneB, actions, FREE);
    let found = bind(&plan, &scene, nodes(&[0; 3], 2)).unwrap();
    assert!(same(found.seconds.unwrap(), plan.iteration_seconds().unwrap()), "{found:?}");
    let node = |stage: usize| found.stages[stage][0] / 2;
    assert!(node(0) == node(1) && node(2) == node(3) && node(0) != node(2), "{:?}", found.stages);
    let refused = bind(&plan, &scene, nodes(&[0; 4], 1)).unwrap_err().to_string();
    assert!(refused.contains("blocks go to devices of the same node"), "{refused}");
    // One node has them all, whatever is planned.
    assert!(bind(&plan, &scene, nodes(&[0], 4)).unwrap().seconds.is_some());
}
