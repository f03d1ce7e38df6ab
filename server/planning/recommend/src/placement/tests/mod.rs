//! The fastest way, held against every order of the nodes.

mod parts;

use std::collections::{BTreeMap, BTreeSet};

use loadmaster_oracle::arrangements;
use loadmaster_proto::bytes::Bytes;
use loadmaster_proto::plan::{PlacedDevice, Plan, PlanStage};
use loadmaster_proto::training::Schedule;
use loadmaster_proto::training::stage::StageConfig;
use proptest::prelude::*;

use super::fastest::fastest;
use super::price::{Price, Pricer};
use super::ways::{Cohesion, Seat, Ways};
use super::*;
use crate::tests::Casino;
use loadmaster_samples::cases;
use loadmaster_search::cost::{Batch, Market};
use loadmaster_search::{
    Choice, Fleet, FleetNode, Kind, KindSet, Link, LinkOrigin, Seconds, StageAt, StageCosts, UnlikeLinks,
};
use loadmaster_simulate::{Edge, Order, Pipeline, iteration_seconds};

const KINDS: [&str; 2] = ["small", "large"];

/// A stage: data-parallel size, tensor-parallel size, and bytes that it needs.
type DrawnStage = (u32, u32, u64);

/// A plan of these stages, whose ranks are on nodes of these sizes and kinds one behind the other.
fn plan(stages: &[DrawnStage], nodes: &[(u32, usize)], schedule: Schedule) -> Plan {
    let slots: Vec<(usize, u32, usize)> = nodes
        .iter()
        .enumerate()
        .flat_map(|(node, &(devices, kind))| (0..devices).map(move |index| (node, index, kind)))
        .collect();
    let mut next = 0;
    let stages = stages.iter().enumerate().map(|(layer, &(data, tensor, needed))| {
        let config =
            StageConfig { data_degree: data, tensor_degree: tensor, ..StageConfig::single(layer, layer) };
        let own = &slots[next..next + config.devices() as usize];
        next += own.len();
        PlanStage {
            capacity: 100,
            predicted_peak: needed,
            in_flight: 1,
            devices: own
                .iter()
                .map(|&(node, index, kind)| PlacedDevice {
                    node: format!("planned{node}"),
                    index,
                    uuid: String::new(),
                    kind: KINDS[kind].to_owned(),
                    capacity: 100,
                })
                .collect(),
            ..loadmaster_samples::plan_stage(config)
        }
    });
    Plan {
        training: loadmaster_samples::training(schedule, 8, 3),
        device_kind: KINDS[0].to_owned(),
        ..loadmaster_samples::plan(stages.collect())
    }
}

/// A node: devices, kind, capacity (low or high), speed inside and outside, leaf.
type DrawnNode = (u32, usize, bool, u32, u32, u32);

/// Nodes with the spine of each: none where leaves are within spines.
fn fleet(nodes: &[DrawnNode], tiers: &[u32], spines: Option<&[u32]>) -> Fleet {
    let spine = |index: usize, leaf: u32| spines.map_or(leaf / 2, |spines| spines[index % spines.len()]);
    let link = |speed: u32| Link {
        bytes_per_second: f64::from(speed),
        latency_seconds: 0.0,
        origin: LinkOrigin::Given,
    };
    let kinds: Vec<Kind> = [(0, 50), (0, 100), (1, 50), (1, 100)]
        .map(|(kind, capacity): (usize, u64)| Kind {
            name: KINDS[kind].to_owned(),
            capacity: Bytes(capacity),
            hourly_price: None,
        })
        .to_vec();
    let of = |(index, &(devices, kind, is_large, inside, outside, domain)): (usize, &DrawnNode)| FleetNode {
        name: format!("given{index}"),
        kind: 2 * kind + usize::from(is_large),
        devices,
        whole: devices,
        inside: link(inside + 1),
        outside: link(outside),
        one_transfer: None,
        // All below one top: only so a spine is another link than what is beyond it.
        domains: [domain, spine(index, domain), 0][..tiers.len()].to_vec(),
        unlike: None,
    };
    Fleet {
        kinds,
        nodes: nodes.iter().enumerate().map(of).collect(),
        tiers: tiers.iter().map(|&speed| (speed > 0).then(|| link(speed))).collect(),
        is_one_node: false,
        may_grow: false,
    }
}

fn drawn_nodes() -> impl Strategy<Value = Vec<DrawnNode>> {
    // Few speeds, so that many nodes are alike.
    let node = (1_u32..4, 0_usize..2, any::<bool>(), 1_u32..3, 1_u32..3, 0_u32..4);
    let alike = (1_u32..3, prop::collection::vec(0_u32..4, 3..7));
    prop_oneof![
        prop::collection::vec(node, 1..6),
        alike.prop_map(|(devices, leaves)| leaves
            .into_iter()
            .map(|leaf| (devices, 0, true, 2, 9, leaf))
            .collect()),
    ]
}

fn drawn_stages() -> impl Strategy<Value = Vec<DrawnStage>> {
    prop::collection::vec(
        (1_u32..3, prop::sample::select(vec![1_u32, 1, 2]), prop::sample::select(vec![10_u64, 80])),
        1..5,
    )
}

/// Every order of so many nodes, all of them or the first few.
fn orders(count: usize) -> Vec<Vec<usize>> {
    let all: Vec<usize> = (0..count).collect();
    (0..=count).flat_map(|taken| arrangements(&all, taken)).collect()
}

/// The way that takes nodes in this order, told anew: as the plan has them, or one behind the other.
fn told(plan: &Plan, fleet: &Fleet, order: &[usize], is_as_planned: bool) -> Option<Vec<Seat>> {
    // Node of the plan, kind, bytes, and whether a new group of shards begins.
    let mut ranks: Vec<(&str, &str, u64, bool)> = Vec::new();
    for stage in &plan.stages {
        for (rank, device) in stage.devices.iter().enumerate() {
            let begins = rank.is_multiple_of(stage.config.tensor_degree as usize);
            ranks.push((&device.node, &device.kind, stage.predicted_peak, begins));
        }
    }
    let suits = |node: &FleetNode, &(_, kind, bytes, _): &(&str, &str, u64, bool)| {
        fleet.kinds[node.kind].name == kind && fleet.kinds[node.kind].capacity.0 >= bytes
    };
    let mut way = Vec::new();
    let mut done = 0;
    for &node in order {
        let of = &fleet.nodes[node];
        let left = &ranks[done..];
        let taken = if is_as_planned {
            let block = left.chunk_by(|one, two| (one.0, one.1) == (two.0, two.1)).next()?;
            (block.len() <= of.devices as usize && block.iter().all(|rank| suits(of, rank)))
                .then_some(block.len())?
        } else {
            let fits = |&count: &usize| {
                left[..count].iter().all(|rank| suits(of, rank)) && left.get(count).is_none_or(|next| next.3)
            };
            (1..=left.len().min(of.devices as usize)).rev().find(fits)?
        };
        way.push(Seat { node, ranks: (done..done + taken).collect() });
        done += taken;
    }
    (done == ranks.len()).then_some(way)
}

proptest! {
    #![proptest_config(cases(300))]

    /// A way that is proven to be the fastest is as fast as the fastest of all orders, alike or not. No bound is above it.
    /// Where there is no order, the error names the stages.
    #[test]
    fn no_order_is_faster(
        seed in any::<u64>(),
        stages in drawn_stages(),
        nodes in drawn_nodes(),
        planned in prop::collection::vec((1_u32..4, 0_usize..2), 1..4),
        like_given in any::<bool>(),
        tiers in prop_oneof![prop::collection::vec(0_u32..4, 0..4), Just(vec![3, 1]), Just(vec![3, 2, 1])],
        spines in prop::option::of(prop::collection::vec(0_u32..3, 7)),
        schedule in prop::sample::select(vec![Schedule::Gpipe, Schedule::OneFOneB]),
    ) {
        let fleet = fleet(&nodes, &tiers, spines.as_deref());
        let needed: u32 = stages.iter().map(|(data, tensor, _)| data * tensor).sum();
        // On nodes like those given, or on others; all further ranks on one more of the first kind.
        let mut planned: Vec<(u32, usize)> =
            if like_given { nodes.iter().map(|node| (node.0, node.1)).collect() } else { planned };
        let missing = needed.saturating_sub(planned.iter().map(|node| node.0).sum());
        planned.extend((missing > 0).then_some((missing, 0)));
        let plan = plan(&stages, &planned, schedule);
        let casino = Casino::new(seed, stages.len(), 5);
        let pricer = Pricer::of(&casino, &plan, &[]);
        let all = |is_as_planned: bool| -> Vec<Vec<Seat>> {
            let orders = orders(fleet.nodes.len());
            orders.iter().filter_map(|order| told(&plan, &fleet, order, is_as_planned)).collect()
        };
        // Blocks of a node that are apart in the plan's order are for the other test.
        let as_planned = all(true);
        let every = if as_planned.is_empty() { all(false) } else { as_planned.clone() };
        let ways = match Ways::of(&plan, &fleet, Vec::new()) {
            Ok(ways) => ways,
            Err(error) => {
                prop_assert!(every.is_empty(), "{error}, and {:?} is a way", every.first());
                prop_assert!(!error.stages.is_empty());
                return Ok(());
            }
        };
        prop_assert_eq!(ways.kept == Cohesion::Nodes, !as_planned.is_empty());
        let seconds: Vec<f64> = every.iter().filter_map(|way| pricer.seconds(&ways, way)).collect();
        let best = seconds.iter().copied().reduce(f64::min).expect("every way has seconds");
        let (_, found) = fastest(&ways, &pricer, &Stop::default()).unwrap().expect("every way has seconds");
        prop_assert!(found.is_proven, "{} ways", every.len());
        prop_assert_eq!(found.seconds, Some(best), "{:?} {:?} {:?}", every, ways.some(), seconds);
        prop_assert_eq!(found.gap(), Some(0.0));
        let least = pricer.least(&ways, &every[0]).expect("every way has seconds");
        prop_assert!(least <= best, "{least} is no bound of {best}");
        // Stopped at once it still answers, and says how far off it may be.
        let stop = Stop::default();
        stop.request();
        let (_, hasty) = fastest(&ways, &pricer, &stop).unwrap().expect("every way has seconds");
        prop_assert!(hasty.seconds >= Some(best) && hasty.least <= Some(best));
        prop_assert!(!hasty.is_proven || hasty.seconds == Some(best));
        check_devices(&plan, &fleet, &found.stages)?;
    }
}

/// Devices of a node with the speeds of all pairs, and how many ranks the plan has on one like it.
type UnlikeNode = (u32, Vec<u32>, u32);

proptest! {
    #![proptest_config(cases(300))]

    /// Where the links of nodes are unlike no order of nodes, and no devices of them, are faster.
    #[test]
    fn no_devices_of_unlike_nodes_are_faster(
        seed in any::<u64>(),
        nodes in prop::collection::vec((2_u32..5, prop::collection::vec(1_u32..5, 6), 1_u32..5), 1..3),
        schedule in prop::sample::select(vec![Schedule::Gpipe, Schedule::OneFOneB]),
    ) {
        let nodes: Vec<UnlikeNode> = nodes.into_iter().map(|(of, speeds, ranks)| (of, speeds, ranks.min(of))).collect();
        let drawn: Vec<DrawnNode> = nodes.iter().map(|node| (node.0, 0, true, 0, 1, 0)).collect();
        let mut fleet = fleet(&drawn, &[], None);
        let usual = fleet.nodes[0].outside;
        let link = |speed: u32| Link { bytes_per_second: f64::from(speed), ..usual };
        let speed = |node: usize, a: u32, b: u32| nodes[node].1[(a.max(b) * (a.max(b) - 1) / 2 + a.min(b)) as usize];
        let pairs = |devices: u32| (0..devices).flat_map(|b| (0..b).map(move |a| (a, b)));
        let unlike: Vec<FleetNode> = fleet.nodes.iter().enumerate().map(|(index, node)| FleetNode {
            inside: pairs(node.devices).map(|(a, b)| link(speed(index, a, b))).reduce(Link::slower).unwrap(),
            unlike: UnlikeLinks::of(node.devices, |a, b| link(speed(index, a, b))),
            ..node.clone()
        }).collect();
        fleet.nodes = unlike;
        let ranks: Vec<(u32, usize)> = nodes.iter().map(|node| (node.2, 0)).collect();
        let count: u32 = ranks.iter().map(|node| node.0).sum();
        let plan = plan(&vec![(1, 1, 10); count as usize], &ranks, schedule);
        let casino = Casino::new(seed, count as usize, 9);
        let ways = Ways::of(&plan, &fleet, Vec::new()).unwrap();
        let pricer = Pricer::of(&casino, &plan, &[]);
        let (_, found) = fastest(&ways, &pricer, &Stop::default()).unwrap().expect("every way has seconds");
        // By hand: each block of ranks on some node, on any of its devices in any order.
        let links: Vec<Link> = (0..9).map(link).collect();
        let batch = Batch { micro_batch_size: 8, micro_batches: 3 };
        let costs = casino.costs(schedule, batch, &[Choice::SINGLE], &links);
        let at = |layer: usize| StageAt::anywhere(layer, layer, KindSet::one(0));
        let passes: Vec<Seconds> = (0..count as usize).map(|layer| costs.seconds(&at(layer)).unwrap()).collect();
        let seconds = |placed: &[(usize, u32)]| {
            let edge = |(layer, pair): (usize, &[(usize, u32)])| {
                let is_inside = pair[0].0 == pair[1].0;
                let speed = if is_inside { speed(pair[0].0, pair[0].1, pair[1].1) } else { 1 };
                Edge::halves(costs.cut_seconds(layer, speed as u16, 0))
            };
            let edges: Vec<Edge> = placed.windows(2).enumerate().map(edge).collect();
            let (order, overlap) = (Order::from(schedule), Default::default());
            iteration_seconds(&Pipeline { stages: &passes, edges: &edges, micro_batches: 3, order, overlap }).unwrap()
        };
        let all: Vec<u32> = (0..nodes.len() as u32).collect();
        let (mut best, alone) = (f64::INFINITY, vec![Vec::new()]);
        for order in arrangements(&all, nodes.len()) {
            let blocks: Vec<Vec<Vec<u32>>> = order.iter().zip(&ranks).map(|(&node, &(ranks, _))| {
                let own: Vec<u32> = (0..nodes[node as usize].0).collect();
                arrangements(&own, ranks as usize)
            }).collect();
            let first = blocks[0].iter();
            for one in first {
                for other in blocks.get(1).unwrap_or(&alone) {
                    let placed = |(index, own): (usize, &Vec<u32>)| {
                        own.iter().map(|&device| (order[index] as usize, device)).collect::<Vec<_>>()
                    };
                    let placed: Vec<(usize, u32)> = [one, other].into_iter().take(order.len()).enumerate().flat_map(placed).collect();
                    best = best.min(seconds(&placed));
                }
            }
        }
        let told = found.seconds.unwrap();
        prop_assert!((told - best).abs() <= 1e-9 * best, "{told} of {best}");
        prop_assert!(found.is_proven);
        let begins = fleet.begins();
        let placed: Vec<(usize, u32)> = found.stages.iter().map(|devices| {
            let node = begins.partition_point(|begin| *begin <= devices[0]) - 1;
            (node, devices[0] - begins[node])
        }).collect();
        prop_assert!((seconds(&placed) - told).abs() <= 1e-9 * told);
        check_devices(&plan, &fleet, &found.stages)?;
    }
}

/// Leaves that contain as many nodes are not alike where their nodes are under spines of their own: taken to be nested, an order is
/// missed that is faster than all others.
#[test]
fn leaves_under_several_spines_are_told_apart() {
    let nodes: Vec<DrawnNode> = [0, 3, 3, 0, 0, 3].iter().map(|&leaf| (1, 0, true, 2, 9, leaf)).collect();
    let fleet = fleet(&nodes, &[3, 2, 1], Some(&[1, 0, 1, 0, 2, 1]));
    let plan = plan(&[(2, 1, 10), (2, 2, 10)], &[(1, 0); 6], Schedule::Gpipe);
    let ways = Ways::of(&plan, &fleet, Vec::new()).unwrap();
    let casino = Casino::new(17_535_312_304_237_469_721, 2, 5);
    let pricer = Pricer::of(&casino, &plan, &[]);
    let every = orders(fleet.nodes.len()).into_iter().filter_map(|order| told(&plan, &fleet, &order, true));
    let best = every.filter_map(|way| pricer.seconds(&ways, &way)).reduce(f64::min);
    let (_, found) = fastest(&ways, &pricer, &Stop::default()).unwrap().unwrap();
    assert_eq!((found.seconds, found.is_proven), (best, true));
}

/// Every rank has a device of its own, of its kind and as large as it needs, and shards of the same tensors share a machine.
fn check_devices(plan: &Plan, fleet: &Fleet, stages: &[Vec<u32>]) -> Result<(), TestCaseError> {
    let node_of: Vec<usize> = fleet
        .nodes
        .iter()
        .enumerate()
        .flat_map(|(index, node)| (0..node.devices).map(move |_| index))
        .collect();
    let mut seen = BTreeSet::new();
    prop_assert_eq!(stages.len(), plan.stages.len());
    for (stage, devices) in plan.stages.iter().zip(stages) {
        prop_assert_eq!(devices.len(), stage.devices.len());
        for (&device, planned) in devices.iter().zip(&stage.devices) {
            prop_assert!(seen.insert(device), "device {device} has two ranks");
            let kind = &fleet.kinds[fleet.nodes[node_of[device as usize]].kind];
            prop_assert_eq!(&kind.name, &planned.kind);
            prop_assert!(kind.capacity.0 >= stage.predicted_peak);
        }
        for group in devices.chunks(stage.config.tensor_degree as usize) {
            let name = |&device: &u32| fleet.nodes[node_of[device as usize]].name.as_str();
            let nodes: BTreeSet<&str> = group.iter().map(name).collect();
            prop_assert!(nodes.len() == 1 || is_torn(plan), "{group:?} is on several nodes");
        }
    }
    Ok(())
}

/// Whether the plan itself has shards of the same tensors on several nodes: then it keeps them so.
fn is_torn(plan: &Plan) -> bool {
    plan.stages.iter().any(|stage| {
        let mut groups = stage.devices.chunks(stage.config.tensor_degree as usize);
        groups.any(|group| group.iter().any(|device| device.node != group[0].node))
    })
}

/// Ranks of a node that do not follow each other stay on one node, whichever it is.
#[test]
fn what_shared_a_node_shares_one_again() {
    let mut plan = plan(&[(1, 1, 10), (1, 1, 10), (1, 1, 10), (1, 1, 10)], &[(4, 0)], Schedule::OneFOneB);
    for (stage, node) in plan.stages.iter_mut().zip(["a", "b", "a", "b"]) {
        stage.devices[0].node = node.to_owned();
    }
    let nodes = [(1, 0, true, 1, 1, 0), (2, 0, true, 1, 1, 0), (3, 0, true, 1, 1, 0)];
    let fleet = fleet(&nodes, &[], None);
    let ways = Ways::of(&plan, &fleet, Vec::new()).unwrap();
    let casino = Casino::new(7, 4, 5);
    let (_, found) = fastest(&ways, &Pricer::of(&casino, &plan, &[]), &Stop::default()).unwrap().unwrap();
    let mut by_node: BTreeMap<bool, BTreeSet<usize>> = BTreeMap::new();
    for (stage, devices) in found.stages.iter().enumerate() {
        by_node.entry(devices[0] < 3).or_default().insert(stage);
    }
    assert_eq!(by_node, BTreeMap::from([(true, BTreeSet::from([0, 2])), (false, BTreeSet::from([1, 3]))]));
    assert!(found.is_proven);
}

/// A thousand nodes of two kinds behind switches are bound as well, with a gap where it is not known.
#[test]
fn a_thousand_nodes_are_bound_with_a_gap() {
    let nodes: Vec<DrawnNode> =
        (0..1_024).map(|node| (2, usize::from(node >= 512), true, 3, 2, node / 16)).collect();
    let fleet = fleet(&nodes, &[3, 1], None);
    let planned: Vec<(u32, usize)> = nodes.iter().map(|node| (node.0, node.1)).collect();
    let stages: Vec<DrawnStage> = (0..64).map(|_| (16, 2, 10)).collect();
    let plan = plan(&stages, &planned, Schedule::OneFOneB);
    let ways = Ways::of(&plan, &fleet, Vec::new()).unwrap();
    let casino = Casino::new(3, 64, 5);
    let (_, found) = fastest(&ways, &Pricer::of(&casino, &plan, &[]), &Stop::default()).unwrap().unwrap();
    let (seconds, least) = (found.seconds.unwrap(), found.least.unwrap());
    assert!(least > 0.0 && least <= seconds, "{least} {seconds}");
    assert!(found.gap().is_some_and(|gap| (0.0..1.0).contains(&gap)));
}

/// The error names the stage that lacks devices, memory or nodes, and what was given.
#[test]
fn what_lacks_is_told() {
    let told = |stages: &[DrawnStage], nodes: &[DrawnNode]| {
        let needed: u32 = stages.iter().map(|(data, tensor, _)| data * tensor).sum();
        let plan = plan(stages, &[(needed, 0)], Schedule::Gpipe);
        Ways::of(&plan, &fleet(nodes, &[], None), Vec::new()).unwrap_err().to_string()
    };
    let few = told(&[(1, 1, 10), (2, 1, 10)], &[(2, 0, true, 1, 1, 0)]);
    assert!(
        few.contains("stage 1 needs 2 devices of kind \"small\" with at least 10 B of memory, 1 more than"),
        "{few}"
    );
    let other = told(&[(1, 1, 10)], &[(2, 1, true, 1, 1, 0)]);
    assert!(
        other.contains("stage 0 needs 1 device of kind")
            && other.contains("no device of this kind was given"),
        "{other}"
    );
    let small = told(&[(1, 1, 10), (1, 1, 80)], &[(2, 0, false, 1, 1, 0)]);
    assert!(
        small.contains("stage 1 needs 1 device of kind") && small.contains("allow at most 50 B"),
        "{small}"
    );
    let torn = told(&[(1, 2, 10)], &[(1, 0, true, 1, 1, 0), (1, 0, true, 1, 1, 0)]);
    assert!(torn.contains("stage 0 has tensor-parallel size 2") && torn.contains("has 1 of"), "{torn}");
}
