//! What is promised of plans with interleaved stages that are bound to nodes: the seconds that they would have been planned with there.

use std::ops::RangeInclusive;

use loadmaster_oracle::arrangements;
use loadmaster_proto::measure::offload::CopyPace;
use loadmaster_proto::plan::Plan;
use loadmaster_proto::plan::objective::Objective;
use loadmaster_proto::plan::request::Goal;
use loadmaster_proto::training::actions::{
    Action, Block, Destination, Optimization, StageActions, Stripe, Swap,
};
use loadmaster_proto::training::stage::{Partitioning, StageConfig};

use super::seconds;
use crate::tests::fixture::Fixture;
use crate::tests::fixture::{Node, bind, is_same, nodes};
use loadmaster_search::Stop;

const ROOM: u64 = 1 << 30;

/// A plan of stages with these layers and this many replicas each, made for the nodes in their order, two stages on each device.
fn planned(on: &[Node], sizes: &[usize], replicas: u32, actions: &[StageActions]) -> (Plan, Fixture) {
    let layers = sizes.iter().sum();
    let devices = u32::try_from(sizes.len() / 2).unwrap() * replicas;
    let fixture = Fixture::of_layers(layers, Objective::MinIterationTime, devices, 1 << 30).with(|fixture| {
        let stages = Partitioning::from_sizes(sizes).unwrap();
        let stages = stages.stages().iter().map(|stage| StageConfig { data_degree: replicas, ..*stage });
        fixture.request.partitioning = Some(Partitioning::new(stages.collect()).unwrap());
        fixture.request.virtual_stages = 2;
        fixture.request.stage_actions = actions.to_vec();
        fixture.request.allowed = None;
        fixture.request.goal = Goal::default();
        // What the nodes say of their copies counts.
        fixture.request.copy_pace = CopyPace { host: None, peer: None };
        fixture.micro_batches = devices;
    });
    let mut question = fixture.question();
    question.fleet = nodes(on, ROOM);
    let ((_, plan), _) = question.answer(&Stop::default()).unwrap();
    (plan, fixture)
}

/// A stage that keeps some of its layers elsewhere.
fn swapped(layers: RangeInclusive<usize>, to: &Destination) -> StageActions {
    let swap = Swap { block: Block::Activations, to: to.clone(), release_after: 0, fetch_before: 0 };
    let swapped = layers.map(|layer| Action {
        first_layer: layer,
        last_layer: layer,
        slots: Vec::new(),
        optimization: Optimization::Swap(swap.clone()),
    });
    StageActions { actions: swapped.collect(), ..StageActions::default() }
}

fn at_host(layers: RangeInclusive<usize>) -> StageActions {
    swapped(layers, &Destination::Host)
}

/// In whichever order unlike nodes are given, the fastest of all orders is found: its seconds are those of the fastest plan that was
/// made for one of them, with and without memory optimizations. A device has the same interleaved stages as before.
#[test]
fn the_fastest_order_is_that_of_the_fastest_plan() {
    let sizes = [1, 2, 1, 1, 1, 1, 2, 1];
    let untouched: &[StageActions] = &[];
    let none = || StageActions::default();
    let acting =
        [at_host(0..=0), at_host(1..=2), none(), none(), at_host(5..=5), none(), at_host(7..=8), none()];
    let networks = [(1, 20, 0), (1, 60, 0), (1, 60, 0), (1, 900, 0)];
    let hosts = [(1, 500_000, 1), (1, 500_000, 2), (1, 500_000, 2), (1, 500_000, 400)];
    for (actions, given) in [(untouched, networks), (&acting, networks), (&acting, hosts)] {
        let all = arrangements(&given, given.len());
        let made: Vec<f64> = all.iter().map(|order| seconds(&planned(order, &sizes, 1, actions).0)).collect();
        let best = made.iter().copied().fold(f64::INFINITY, f64::min);
        let worst = made.iter().copied().fold(0.0, f64::max);
        let (plan, fixture) = planned(&given, &sizes, 1, actions);
        for order in &all {
            let found = bind(&plan, &fixture, nodes(order, ROOM)).unwrap();
            assert!(is_same(found.seconds.unwrap(), best), "{order:?}: {:?} against {best}", found.seconds);
            assert!(found.least.unwrap() <= best * (1.0 + 1e-12), "{order:?}: {found:?}");
            assert_eq!(found.stages.len(), sizes.len());
            assert_eq!(found.stages[..4], found.stages[4..], "{order:?}");
        }
        assert!(worst > best * 1.001, "the order matters: {best} to {worst}");
    }
}

/// The devices that a plan was made for take the seconds that it was made with: several on a node, replicas, too.
#[test]
fn the_same_devices_take_the_same_seconds() {
    let like = |devices: u32, host| (devices, 100_000, host);
    for (on, sizes, replicas) in [
        (vec![like(2, 0); 2], vec![1, 2, 1, 1, 1, 1, 1, 1], 1),
        (vec![like(4, 0)], vec![1, 2, 1, 1, 1, 1, 1, 1], 1),
        (vec![like(4, 0)], vec![2, 2, 1, 1], 2),
        (vec![like(2, 0); 2], vec![2, 2, 1, 1], 2),
        (vec![like(1, 0); 4], vec![2, 2, 1, 1], 2),
    ] {
        let (plan, fixture) = planned(&on, &sizes, replicas, &[]);
        let found = bind(&plan, &fixture, nodes(&on, ROOM)).unwrap();
        let told = format!("{on:?} {sizes:?} × {replicas}");
        assert!(is_same(found.seconds.unwrap(), seconds(&plan)), "{told}: {found:?}, {}", seconds(&plan));
        assert!(found.is_proven, "{told}: {found:?}");
        let taken: Vec<u32> = found.stages[..sizes.len() / 2].concat();
        assert_eq!(taken, [0, 1, 2, 3], "{told}");
    }
}

/// What a later stage of a device parks at another one needs a node that both are on, as what a first one does.
#[test]
fn peers_of_later_stages_share_a_node_again() {
    let to = Destination::Peers(vec![Stripe { stage: 1, share: 10_000 }]);
    let none = || StageActions::default();
    let acting = [none(), none(), swapped(2..=2, &to), none()];
    let (plan, fixture) = planned(&[(2, 100_000, 0)], &[1, 1, 1, 1], 1, &acting);
    let same = bind(&plan, &fixture, nodes(&[(2, 100_000, 0)], ROOM)).unwrap();
    assert!(is_same(same.seconds.unwrap(), seconds(&plan)), "{same:?}");
    let refused = bind(&plan, &fixture, nodes(&[(1, 100_000, 0); 2], ROOM)).unwrap_err().to_string();
    assert!(refused.contains("Swap blocks to a device of the same node"), "{refused}");
}

/// A device has room for all of its stages together, or the first of them is said to lack it.
#[test]
fn a_device_holds_all_its_stages() {
    let on = [(2, 100_000, 0)];
    let (plan, fixture) = planned(&on, &[2, 1, 1, 1], 1, &[]);
    let peak = plan.peak();
    assert!(bind(&plan, &fixture, nodes(&on, peak)).is_ok());
    let refused = bind(&plan, &fixture, nodes(&on, peak - 1)).unwrap_err();
    let fullest = plan.first_stages().iter().position(|stage| stage.predicted_peak == peak);
    assert_eq!(refused.stages.iter().map(|lack| lack.stage).collect::<Vec<_>>(), [fullest], "{refused}");
}
