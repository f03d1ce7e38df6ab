//! Which stage is on which device of a node whose links are unlike, held against all orders of its devices.

use loadmaster_oracle::arrangements;
use loadmaster_proto::plan::constraints::{Constraints, LayerPin};

use super::*;
use crate::{IterationTimeline, PlacementProblem};

const DEVICES: u32 = 4;

/// Rates of copies between each two devices, by the pair's place in the list of all.
type Rates = [u32; 6];

fn pairs() -> impl Iterator<Item = (u32, u32)> {
    (0..DEVICES).flat_map(|a| (a + 1..DEVICES).map(move |b| (a, b)))
}

/// A node whose device number n is linked as this order's n-th one is by these rates, megabytes a second; blocks may go to
/// peers alone.
fn fixture(rates: &Rates, order: &[u32], capacity: u64) -> Fixture {
    let mut fixture = Fixture::new(Objective::MinIterationTime, DEVICES, capacity);
    fixture.nodes = 1;
    fixture.node_keys = format!(", peers: {}", listed(rates, order, 1_000_000));
    fixture.request.copy_pace.peer = None;
    fixture.request.allowed.as_mut().unwrap().ways = vec![Way::PeerSwap];
    fixture
}

/// The same where stages send each other what they compute at these rates, a hundredth as fast, so that it takes as long as their
/// passes; what leaves goes so.
fn scene_of_edges(rates: &Rates, order: &[u32], capacity: u64, ways: &[Way]) -> Fixture {
    let mut fixture = fixture(rates, order, capacity);
    fixture.node_keys += &format!(", links: {}", listed(rates, order, 10_000));
    fixture.request.allowed.as_mut().unwrap().ways = ways.to_vec();
    fixture
}

/// The rates of all pairs, in such units of bytes a second.
fn listed(rates: &Rates, order: &[u32], unit: u32) -> String {
    let rate = |a: u32, b: u32| {
        let (a, b) = (a.min(b), a.max(b));
        pairs().zip(rates).find(|(pair, _)| *pair == (a, b)).map(|(_, rate)| *rate).unwrap()
    };
    let pair = |(a, b): (u32, u32)| {
        let rate = unit * rate(order[a as usize], order[b as usize]);
        format!("{{a: {a}, b: {b}, bandwidth: {rate}B/s, latency: 0}}")
    };
    format!("[{}]", pairs().map(pair).collect::<Vec<_>>().join(", "))
}

/// The same where each stage is on the device of its own number: who pins a layer names a device.
fn in_order(fixture: &Fixture) -> Option<Plan> {
    let pinned = fixture.with(|fixture| {
        let pin = LayerPin { layer: 0, device: "n0/0".to_owned() };
        let own = &mut fixture.request.goal.constraints;
        own.pins = vec![pin];
    });
    pinned.answer().ok().map(|((_, plan), _)| plan)
}

/// The seconds of stages in the order of the devices, and in the best order of all; none where they have no plan.
fn best_order(named: &dyn Fn(&[u32]) -> Fixture) -> Option<(f64, f64)> {
    let same: Vec<u32> = (0..DEVICES).collect();
    let unmapped = seconds(&in_order(&named(&same))?);
    let every = arrangements(&same, same.len()).into_iter().filter_map(|order| in_order(&named(&order)));
    Some((unmapped, every.map(|plan| seconds(&plan)).fold(f64::INFINITY, f64::min)))
}

/// Questions, and how many of them have plans that are faster than in the order of the devices, and as fast as in the best order.
#[derive(Default)]
struct Counts {
    asked: u32,
    faster: u32,
    best: u32,
}

impl Counts {
    /// No plan is slower than with its stages in the order of the devices, and most are as fast as in the best order.
    fn add(&mut self, plan: &Plan, (unmapped, best): (f64, f64), what: &str) {
        let own = seconds(plan);
        assert!(own <= unmapped * (1.0 + 1e-9), "{what}: {own} of {unmapped}");
        self.asked += 1;
        self.faster += u32::from(own < unmapped * 0.99);
        self.best += u32::from(own <= best * 1.001);
    }

    fn assert_most_are_best(&self) {
        let Self { asked, faster, best } = self;
        assert!(*faster > 0 && 2 * best >= *asked, "{faster} faster, {best} best, of {asked}");
    }
}

fn devices(plan: &Plan) -> Vec<u32> {
    plan.stages.iter().map(|stage| stage.devices[0].index).collect()
}

/// No plan is slower than with its stages in the order of the devices, none faster than in the best order of all, and most are
/// as fast as that; each device is one stage's.
#[test]
#[ignore = "slow: make test-slow"]
fn stages_are_where_their_peers_are_near() {
    let (mut draws, mut counts) = (Draws::new(7), Counts::default());
    for _ in 0..5 {
        let rates: Rates = std::array::from_fn(|_| [1, 4, 16][draws.below(3) as usize]);
        let capacity = 92_000 + 4_000 * draws.below(4);
        let what = format!("{rates:?} at {capacity}");
        let named = |order: &[u32]| fixture(&rates, order, capacity);
        let Some(orders) = best_order(&named) else { continue };
        let plan = named(&[0, 1, 2, 3]).plan();
        counts.add(&plan, orders, &what);
        assert!(seconds(&plan) >= orders.1 * (1.0 - 1e-9), "{what}");
        let certificate = plan.found.certificate.clone().unwrap();
        assert!(certificate.bound.unwrap() <= seconds(&plan));
        let mut used = devices(&plan);
        used.sort_unstable();
        assert!(used.windows(2).all(|pair| pair[0] < pair[1]), "{used:?}");
    }
    counts.assert_most_are_best();
}

/// Devices that would be idle take stages over where their links are better: three stages on four devices come to the best of
/// all orders, or near it, whether all devices may be taken or as few as are enough.
#[test]
fn idle_devices_take_stages_over() {
    let (mut counts, mut taken) = (Counts::default(), 0_u32);
    // The first device is far from all others, or from all but one.
    let unlike = [[1, 1, 1, 16, 16, 16], [1, 1, 4, 1, 16, 16], [1, 16, 1, 4, 1, 4]];
    let objectives = [Objective::MinIterationTime, Objective::MinDevices];
    let capacities = [112_000, 116_000, 120_000, 124_000];
    let asked_for = unlike.into_iter().flat_map(|rates| capacities.map(|capacity| (rates, capacity)));
    for (number, (rates, capacity)) in asked_for.enumerate() {
        let named = |order: &[u32]| {
            let mut fixture = fixture(&rates, order, capacity);
            fixture.request.goal.objective = Some(objectives[number % 2]);
            fixture.request.goal.constraints = Constraints {
                allow_idle_devices: true,
                min_stages: Some(3),
                max_stages: Some(3),
                ..Constraints::default()
            };
            fixture
        };
        let Some((unmapped, best)) = best_order(&named) else { continue };
        assert_eq!(devices(&in_order(&named(&[0, 1, 2, 3])).unwrap()), [0, 1, 2]);
        let plan = named(&[0, 1, 2, 3]).plan();
        let mut used = devices(&plan);
        let fixture = format!("{rates:?} at {capacity}: {used:?}, {} s", seconds(&plan));
        counts.add(&plan, (unmapped, best), &fixture);
        assert!(seconds(&plan) >= best * (1.0 - 1e-9), "{fixture} of {best}");
        taken += u32::from(used.contains(&3) && seconds(&plan) < unmapped * 0.99);
        used.sort_unstable();
        assert!(used.windows(2).all(|pair| pair[0] < pair[1]), "{used:?}");
        let certificate = plan.found.certificate.unwrap();
        let reached = if number % 2 == 0 { best } else { 3.0 };
        assert!(certificate.bound.unwrap() <= reached * (1.0 + 1e-9), "{fixture}: {certificate:?}");
    }
    assert!(taken > 1, "{taken} taken over");
    counts.assert_most_are_best();
}

/// On a switch no order is better than another, so stages stay where they are.
#[test]
fn a_switch_changes_no_places() {
    let order: Vec<u32> = (0..DEVICES).collect();
    let asked = fixture(&[4; 6], &order, 95_000);
    let plan = asked.plan();
    assert!(plan.stages.iter().any(|stage| !stage.actions.is_empty()));
    let used = devices(&plan);
    assert!(used.windows(2).all(|pair| pair[0] < pair[1]), "{used:?}");
}

/// The pipeline's own edges move with its stages: stages that are named come to the best of all orders, or near it, and no bound is above
/// what any of them reaches. Bound to the same node once more the plan takes no longer than it says, and over time as long.
#[test]
fn edges_move_with_the_stages() {
    let (mut draws, mut counts) = (Draws::new(11), Counts::default());
    for round in 0..6 {
        let rates: Rates = std::array::from_fn(|_| [1, 2, 8][draws.below(3) as usize]);
        let capacity = 94_000 + 4_000 * draws.below(4);
        let ways: &[Way] = if round % 2 == 0 { &[Way::Recompute] } else { &[Way::Recompute, Way::PeerSwap] };
        let named = |order: &[u32]| {
            let mut fixture = scene_of_edges(&rates, order, capacity, ways);
            fixture.request.partitioning = Some(Partitioning::from_sizes(&[1, 1, 1, 2]).unwrap());
            fixture
        };
        let Some((unmapped, best)) = best_order(&named) else { continue };
        let question = named(&[0, 1, 2, 3]).question();
        let plan = named(&[0, 1, 2, 3]).plan();
        counts.add(&plan, (unmapped, best), &format!("{rates:?} at {capacity}"));
        let bound = plan.found.certificate.as_ref().unwrap().bound.unwrap();
        assert!(bound <= best * (1.0 + 1e-9) && bound <= seconds(&plan), "{bound} above {best}");
        let timeline = IterationTimeline::of(&plan, &question.chain).unwrap();
        assert!((timeline.copied.iteration_seconds - seconds(&plan)).abs() <= 1e-9 * seconds(&plan));
        let bound =
            PlacementProblem { plan: plan.clone(), chains: vec![question.chain], fleet: question.fleet };
        let again = bound.answer(&Stop::default()).unwrap();
        assert!(again.seconds.unwrap() <= seconds(&plan) * (1.0 + 1e-9), "{again:?}");
    }
    counts.assert_most_are_best();
}

/// Stages that no one names are found for the best devices, too.
#[test]
fn pipelines_are_found_for_unlike_links() {
    for rates in [[8, 1, 1, 1, 8, 8], [1, 8, 1, 8, 1, 8], [2, 1, 8, 8, 1, 2]] {
        let named = |order: &[u32]| scene_of_edges(&rates, order, 110_000, &[Way::Recompute]);
        let (_, best) = best_order(&named).unwrap();
        let plan = named(&[0, 1, 2, 3]).plan();
        assert!(seconds(&plan) <= best * (1.0 + 1e-9), "{} of {best}", seconds(&plan));
        assert!(plan.found.certificate.unwrap().bound.unwrap() <= best * (1.0 + 1e-9));
    }
}
