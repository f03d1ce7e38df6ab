//! What is promised of plans with memory optimizations that are bound to nodes: the seconds that they would have
//! been planned with.

use loadmaster_oracle::arrangements;
use loadmaster_proto::measure::offload::CopyPace;
use loadmaster_proto::plan::Plan;
use loadmaster_proto::plan::objective::Objective;
use loadmaster_proto::plan::request::Goal;
use loadmaster_proto::training::Schedule;
use loadmaster_proto::training::actions::{
    Action, Block, Destination, Optimization, StageActions, Stripe, Swap,
};
use loadmaster_proto::training::stage::Partitioning;

use crate::tests::fixture::{self, Node, bind, is_same};
use crate::tests::fixture::{Fixture, LAYERS};
use loadmaster_search::Stop;
use loadmaster_search::fleet::PlannedFleet;

/// Nodes of so many devices each that a search sees no difference between: only their ways to the host differ, in MB/s.
fn nodes(hosts: &[u32], devices: u32) -> PlannedFleet {
    let all: Vec<Node> = hosts.iter().map(|&host| (devices, 1_000_000, host)).collect();
    fixture::nodes(&all, 1 << 30)
}

fn swap(layer: usize, to: Destination) -> Action {
    let swap = Swap { block: Block::Activations, to, release_after: 0, fetch_before: 0 };
    Action {
        first_layer: layer,
        last_layer: layer,
        slots: Vec::new(),
        optimization: Optimization::Swap(swap),
    }
}

fn acting(actions: Vec<Action>) -> StageActions {
    StageActions { actions, ..StageActions::default() }
}

/// Stages that have little, all and nothing of what they keep at the host, and one that recomputes.
fn at_hosts() -> Vec<StageActions> {
    let again =
        Action { first_layer: 3, last_layer: 3, slots: Vec::new(), optimization: Optimization::Recompute };
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
) -> (Plan, Fixture) {
    let fixture = Fixture::new(Objective::MinIterationTime, 4, 1 << 30).with(|fixture| {
        fixture.request.partitioning = Some(Partitioning::from_sizes(&[1, 2, 1, LAYERS - 4]).unwrap());
        fixture.request.stage_actions = actions;
        fixture.request.allowed = None;
        fixture.request.goal = Goal::default();
        fixture.request.copy_pace = pace;
    });
    let mut question = fixture.question();
    question.fleet = fleet;
    question.training.schedule = schedule;
    let ((_, plan), _) = question.answer(&Stop::default()).unwrap();
    (plan, fixture)
}

const FREE: CopyPace = CopyPace { host: None, peer: None };

/// In whichever order nodes are given, whose copies alone tell them apart, the fastest of all orders is found: its seconds are those of
/// the fastest plan that was made for one of them.
#[test]
fn the_fastest_order_is_that_of_the_fastest_plan() {
    for schedule in [Schedule::OneFOneB, Schedule::Gpipe, Schedule::PipeDream] {
        let hosts = [1, 2, 2, 400];
        let orders = arrangements(&hosts, hosts.len());
        let planned_for = |hosts: &[u32]| {
            let (plan, _) = planned(nodes(hosts, 1), schedule, at_hosts(), FREE);
            let order: Vec<String> = plan.stages.iter().map(|stage| stage.devices[0].node.clone()).collect();
            assert_eq!(order, ["n0", "n1", "n2", "n3"], "a search keeps nodes that it cannot tell apart");
            plan.iteration_seconds().unwrap()
        };
        let seconds: Vec<f64> = orders.iter().map(|hosts| planned_for(hosts)).collect();
        let best = seconds.iter().copied().reduce(f64::min).unwrap();
        let worst = seconds.iter().copied().reduce(f64::max).unwrap();
        assert!(worst > best * 1.01, "{schedule}: the order matters: {best} to {worst}");
        let (plan, fixture) = planned(nodes(&hosts, 1), schedule, at_hosts(), FREE);
        for order in orders {
            let found = bind(&plan, &fixture, nodes(&order, 1)).unwrap();
            assert!(is_same(found.seconds.unwrap(), best), "{schedule}: {:?} against {best}", found.seconds);
            assert!(found.is_proven && found.least == found.seconds, "{schedule}");
            assert!(
                found.notes.iter().any(|note| note.message.contains("of the cluster, given")),
                "{:?}",
                found.notes
            );
        }
    }
}

/// On nodes of which no one says how they copy, copies are as the plan had them: also where a request said so.
#[test]
fn what_nobody_says_of_copies_is_as_planned() {
    let pace = CopyPace { host: Some(4e6), peer: Some(8e6) };
    for schedule in [Schedule::OneFOneB, Schedule::Gpipe, Schedule::PipeDream] {
        let (plan, fixture) = planned(nodes(&[0; 4], 1), schedule, at_hosts(), pace);
        let again = bind(&plan, &fixture, nodes(&[0; 4], 1)).unwrap();
        assert!(is_same(again.seconds.unwrap(), plan.iteration_seconds().unwrap()), "{schedule}: {again:?}");
        assert!(again.notes.iter().any(|note| note.message.contains("as planned")), "{:?}", again.notes);
        let faster = bind(&plan, &fixture, nodes(&[4_000; 4], 1)).unwrap();
        assert!(faster.seconds < again.seconds, "{schedule}: {faster:?}");
    }
}

/// Stages that park blocks with each other stay on one node, and are refused on nodes that they do not share.
#[test]
fn peers_share_a_node_again() {
    let peer = |stage: u32| Destination::Peers(vec![Stripe { stage, share: 10_000 }]);
    let actions = vec![acting(vec![swap(0, peer(1))]), acting(vec![]), acting(vec![swap(3, peer(3))])];
    let (plan, fixture) = planned(nodes(&[0; 2], 2), Schedule::OneFOneB, actions, FREE);
    let found = bind(&plan, &fixture, nodes(&[0; 3], 2)).unwrap();
    assert!(is_same(found.seconds.unwrap(), plan.iteration_seconds().unwrap()), "{found:?}");
    let node = |stage: usize| found.stages[stage][0] / 2;
    assert!(node(0) == node(1) && node(2) == node(3) && node(0) != node(2), "{:?}", found.stages);
    let refused = bind(&plan, &fixture, nodes(&[0; 4], 1)).unwrap_err().to_string();
    assert!(refused.contains("Swap blocks to a device of the same node"), "{refused}");
    // One node has them all, whatever is planned.
    assert!(bind(&plan, &fixture, nodes(&[0], 4)).unwrap().seconds.is_some());
}
