//! Nodes whose links are unlike: answers held against all partitions on all orders of all devices, with prices of edges that are
//! looked up pair by pair. Nothing here knows searches, mappings or symmetries.

use loadmaster_proto::bytes::Bytes;
use loadmaster_proto::plan::constraints::Constraints;
use loadmaster_proto::plan::objective::{Objective, PlanShape, SearchMode};
use loadmaster_proto::training::stage::{Partitioning, StageConfig};
use loadmaster_proto::training::{Optimizer, RecomputePolicy, Schedule};
use proptest::prelude::*;
use proptest::sample::Index;

use super::Casino;
use crate::fixed_partition::named_stages;
use crate::*;
use loadmaster_samples::cases;
use loadmaster_search::cost::{Batch, Market};
use loadmaster_search::{
    Choice, Cuts, Fleet, FleetNode, Kind, KindSet, Link, LinkOrigin, Pin, Seconds, StageAt, StageCosts, Stop,
    Unit, UnlikeLinks,
};
use loadmaster_simulate::{Edge, Order, Overlap, Pipeline, iteration_seconds};

const CAPACITY: u64 = 1 << 20;

/// A request about devices of one or two nodes.
#[derive(Debug, Clone)]
struct Fixture {
    casino: Casino,
    /// By node: how many devices it has, how fast each pair is, and its link to the other node.
    nodes: Vec<(u32, Vec<u32>, u32)>,
    capacity: u64,
    criteria: Criteria,
}

/// First and last layer of a stage, and its devices.
type Placed = (usize, usize, Vec<u32>);

/// A plan that fits.
#[derive(Debug, Clone)]
struct Plan {
    stages: Vec<Placed>,
    seconds: f64,
    /// The highest first.
    peaks: Vec<u64>,
}

fn link(speed: u32) -> Link {
    Link { bytes_per_second: f64::from(speed), latency_seconds: 0.0, origin: LinkOrigin::Given }
}

impl Fixture {
    /// The node of a device, and its place there.
    fn place(&self, device: u32) -> (usize, u32) {
        let mut begin = 0;
        for (index, (devices, ..)) in self.nodes.iter().enumerate() {
            if device < begin + devices {
                return (index, device - begin);
            }
            begin += devices;
        }
        unreachable!("there are {begin} devices")
    }

    fn speed(&self, one: u32, other: u32) -> u32 {
        let ((a, one), (b, other)) = (self.place(one), self.place(other));
        if a != b {
            return self.nodes[a].2.min(self.nodes[b].2);
        }
        let (low, high) = (one.min(other), one.max(other));
        self.nodes[a].1[(high * (high - 1) / 2 + low) as usize]
    }

    fn slowest(&self, node: usize) -> u32 {
        let (devices, speeds, _) = &self.nodes[node];
        let pairs = devices * (devices - 1) / 2;
        speeds[..pairs as usize].iter().copied().min().unwrap_or(9)
    }

    fn devices(&self) -> u32 {
        self.nodes.iter().map(|node| node.0).sum()
    }

    fn fleet(&self) -> Fleet {
        let mut begin = 0;
        let node = |(index, &(devices, _, outside)): (usize, &(u32, Vec<u32>, u32))| {
            let first = begin;
            begin += devices;
            FleetNode {
                name: format!("node{index}"),
                kind: 0,
                devices,
                whole: devices,
                inside: link(self.slowest(index)),
                outside: link(outside),
                one_transfer: None,
                domains: Vec::new(),
                unlike: UnlikeLinks::of(devices, |a, b| link(self.speed(first + a, first + b))),
            }
        };
        let kind = Kind { name: "kind".to_owned(), capacity: Bytes(self.capacity), hourly_price: Some(1.0) };
        Fleet {
            kinds: vec![kind],
            nodes: self.nodes.iter().enumerate().map(node).collect(),
            tiers: Vec::new(),
            is_one_node: false,
            may_grow: true,
        }
    }

    fn recommend(&self) -> Result<Recommendation, RecommendError> {
        self.asked(|job| recommend(&self.casino, job, &self.criteria, &Stop::default()))
    }

    /// The plan of a partitioning that its caller names.
    fn named(&self, partitioning: &Partitioning) -> Result<Candidate, RecommendError> {
        self.asked(|job| named_stages(&self.casino, job, &self.criteria, partitioning))
    }

    fn asked<T>(&self, ask: impl FnOnce(&Job<'_>) -> T) -> T {
        let names: Vec<String> = (0..self.casino.layers()).map(|layer| format!("layer{layer}")).collect();
        let devices: Vec<String> = (0..self.devices()).map(|device| format!("device {device}")).collect();
        let job = Job {
            names: &names,
            model: None,
            fleet: &self.fleet(),
            devices: &devices,
            optimizer: &Optimizer::Sgd { learning_rate: 0.1, momentum: 0.0, weight_decay: 0.0 },
        };
        ask(&job)
    }

    /// Every plan that fits: on all devices, or where they may be idle on any of them.
    fn every_plan(&self) -> Vec<Plan> {
        let may_idle = self.criteria.constraints.allow_idle_devices
            || matches!(self.criteria.objective, Objective::MinDevices | Objective::MinCost);
        let mut orders = Vec::new();
        self.order(&mut Vec::new(), may_idle, &mut orders);
        let mut plans = Vec::new();
        for order in orders {
            self.extend(&order, &mut Vec::new(), 0, &mut plans);
        }
        plans
    }

    /// Devices one after another, such that no node is come to twice.
    fn order(&self, begun: &mut Vec<u32>, may_idle: bool, orders: &mut Vec<Vec<u32>>) {
        if begun.len() == self.devices() as usize || may_idle && !begun.is_empty() {
            orders.push(begun.clone());
        }
        for device in (0..self.devices()).filter(|device| !begun.contains(device)).collect::<Vec<_>>() {
            let node = self.place(device).0;
            let is_left = begun.iter().any(|&before| self.place(before).0 == node)
                && begun.last().is_some_and(|&last| self.place(last).0 != node);
            if !is_left {
                begun.push(device);
                self.order(begun, may_idle, orders);
                begun.pop();
            }
        }
    }

    fn extend(&self, left: &[u32], begun: &mut Vec<Placed>, layer: usize, plans: &mut Vec<Plan>) {
        let layers = self.casino.layers();
        if layer == layers {
            if left.is_empty() {
                let of = |&schedule: &Schedule| self.weigh(begun, self.criteria.batches[0], schedule);
                plans.extend(self.criteria.schedules.iter().filter_map(of));
            }
            return;
        }
        let most = if self.criteria.shape == PlanShape::SinglePipeline { 1 } else { left.len() };
        for size in 1..=most.min(left.len()) {
            let own = &left[..size];
            let is_inside = own.iter().all(|&device| self.place(device).0 == self.place(own[0]).0);
            for last in (layer..layers).filter(|_| is_inside) {
                let keeps =
                    self.criteria.cuts.pins().iter().all(|pin| {
                        !(layer..=last).contains(&pin.layer) || own.contains(&(pin.device as u32))
                    });
                if keeps {
                    begun.push((layer, last, own.to_vec()));
                    self.extend(&left[size..], begun, last + 1, plans);
                    begun.pop();
                }
            }
        }
    }

    fn weigh(&self, stages: &[Placed], batch: Batch, schedule: Schedule) -> Option<Plan> {
        let choices: Vec<Choice> = stages
            .iter()
            .map(|stage| Choice { data: stage.2.len() as u32, tensor: 1, recompute: RecomputePolicy::None })
            .collect();
        if choices.iter().any(|choice| !batch.micro_batch_size.is_multiple_of(choice.data)) {
            return None;
        }
        let links: Vec<Link> = (0..10).map(link).collect();
        let costs = self.casino.costs(schedule, batch, &choices, &links);
        let micro_batches = batch.micro_batches;
        let (mut seconds, mut peaks): (Vec<Seconds>, Vec<u64>) = (Vec::new(), Vec::new());
        for (index, (first, last, devices)) in stages.iter().enumerate() {
            // Rings go over the slowest link of the node, whichever devices they are on.
            let ring = self.slowest(self.place(devices[0]).0) as u16;
            let anywhere = StageAt::anywhere(*first, *last, KindSet::one(0));
            let at = StageAt { choice: index, tensor_link: ring, data_link: ring, ..anywhere };
            let after = (stages.len() - 1 - index) as u32;
            let held = match schedule {
                Schedule::Gpipe => micro_batches,
                Schedule::OneFOneB => micro_batches.min(after + 1),
                Schedule::PipeDream => after + 1,
            };
            let peak = costs.peak(&at, held)?;
            if peak.needed > self.capacity {
                return None;
            }
            peaks.extend(devices.iter().map(|_| peak.bytes));
            seconds.push(costs.seconds(&at)?);
        }
        peaks.sort_unstable_by(|a, b| b.cmp(a));
        let edge = |(index, pair): (usize, &[Placed])| {
            let (before, after) = (&pair[0].2, &pair[1].2);
            let is_one_node = self.place(before[0]).0 == self.place(after[0]).0;
            let ranks = before.len().max(after.len());
            let pairs = (0..ranks).map(|rank| {
                self.speed(before[rank * before.len() / ranks], after[rank * after.len() / ranks])
            });
            let speed = if is_one_node { pairs.min().unwrap() } else { self.speed(before[0], after[0]) };
            let of = |choice: usize| costs.cut_seconds(pair[0].1, speed as u16, choice);
            Edge::halves(of(index).max(of(index + 1)))
        };
        let edges: Vec<Edge> = stages.windows(2).enumerate().map(edge).collect();
        let (order, overlap) = (Order::from(schedule), self.criteria.overlap);
        let pipeline = Pipeline { stages: &seconds, edges: &edges, micro_batches, order, overlap };
        Some(Plan { stages: stages.to_vec(), seconds: iteration_seconds(&pipeline).ok()?, peaks })
    }

    /// What an answer's stages come to on its devices.
    fn weighed(&self, best: &Candidate) -> Plan {
        let stage = |of: &CandidateStage| (of.first, of.last, of.devices.clone());
        let stages: Vec<_> = best.stages.iter().map(stage).collect();
        self.weigh(&stages, best.batch, best.schedule).expect("it fits")
    }
}

fn fixtures(objective: Objective) -> impl Strategy<Value = Fixture> {
    let speeds = proptest::collection::vec(1_u32..=4, 10);
    let node = (2_u32..=4, speeds.clone(), 1_u32..=3);
    let nodes = prop_oneof![
        2 => (2_u32..=5, speeds, Just(1)).prop_map(|node| vec![node]),
        1 => proptest::collection::vec(node, 2),
    ];
    let schedules = prop_oneof![
        Just(vec![Schedule::Gpipe]),
        Just(vec![Schedule::OneFOneB]),
        Just(vec![Schedule::PipeDream]),
        Just(vec![Schedule::Gpipe, Schedule::OneFOneB]),
    ];
    let besides = (any::<bool>(), any::<bool>(), prop_oneof![Just(CAPACITY), 10_u64..60], 1_u64..=6);
    (any::<u64>(), 2_usize..=5, prop_oneof![Just(3_u64), Just(20)], nodes, schedules, besides).prop_map(
        move |(seed, layers, sides, mut nodes, schedules, (may_idle, blocks, capacity, slowness))| {
            // No more orders of devices than can be looked at.
            if let [one, other] = nodes.as_mut_slice() {
                other.0 = other.0.min(6 - one.0);
            }
            let criteria = Criteria {
                objective,
                shape: PlanShape::SinglePipeline,
                rules: None,
                constraints: Constraints { allow_idle_devices: may_idle, ..Constraints::default() },
                batches: vec![Batch { micro_batch_size: 2, micro_batches: 3 }],
                least_share: 1,
                schedules,
                recompute: vec![RecomputePolicy::None],
                overlap: if blocks { Overlap::Nothing } else { Overlap::Computing },
                unit: Unit::Bytes,
                mode: SearchMode::Exact,
                seed: 0,
                cuts: Cuts::anywhere(layers),
                is_merged: false,
                keeps_order: false,
                alternatives: 1,
                brief: true,
                efforts: 1,
            };
            Fixture {
                casino: Casino::new(seed, layers, sides).with_slowness(slowness),
                nodes,
                capacity,
                criteria,
            }
        },
    )
}

fn differ(one: f64, other: f64) -> bool {
    (one - other).abs() > 1e-9 * one.abs().max(other.abs())
}

fn fastest(plans: &[Plan]) -> f64 {
    plans.iter().map(|plan| plan.seconds).fold(f64::INFINITY, f64::min)
}

proptest! {
    #![proptest_config(cases(150))]

    /// No stages on no devices are faster, and that is proven. What the plan says of itself is so.
    #[test]
    fn the_fastest_plan_is_on_the_best_devices(fixture in fixtures(Objective::MinIterationTime)) {
        let plans = fixture.every_plan();
        match fixture.recommend() {
            Ok(found) => {
                let seconds = found.best.simulated.expect("it was simulated");
                prop_assert!(!differ(seconds, fixture.weighed(&found.best).seconds), "{:?}", found.best);
                prop_assert!(!differ(seconds, fastest(&plans)), "{seconds} of {}", fastest(&plans));
                prop_assert!(found.certificate.proven);
                prop_assert_eq!(found.certificate.bound, Some(found.certificate.value));
                for (other, value) in &found.alternatives {
                    prop_assert!(!differ(*value, fixture.weighed(other).seconds));
                }
            }
            Err(error) => prop_assert!(plans.is_empty(), "{error:?}"),
        }
    }

    /// Stages of several devices may change them, too: no bound is above what some order reaches, and nothing is told to be
    /// faster than it is.
    #[test]
    fn replicas_are_bounded_wherever_they_are(mut fixture in fixtures(Objective::MinIterationTime)) {
        fixture.criteria.shape = PlanShape::PerStageReplicas;
        fixture.criteria.batches = vec![Batch { micro_batch_size: 4, micro_batches: 2 }];
        let plans = fixture.every_plan();
        match fixture.recommend() {
            Ok(found) => {
                let seconds = found.best.simulated.expect("it was simulated");
                prop_assert!(!differ(seconds, fixture.weighed(&found.best).seconds), "{:?}", found.best);
                let least = fastest(&plans);
                prop_assert!(seconds >= least * (1.0 - 1e-9));
                let bound = found.certificate.bound.expect("it is bounded");
                prop_assert!(bound <= least * (1.0 + 1e-9), "{bound} above {least}");
                prop_assert!(!found.certificate.proven || !differ(seconds, least), "{seconds} of {least}");
            }
            Err(error) => prop_assert!(plans.is_empty(), "{error:?}"),
        }
    }

    /// As few devices as any order of them allows within a limit on time, and as little memory.
    #[test]
    fn limits_on_time_are_kept_on_the_best_devices(
        mut fixture in fixtures(Objective::MinDevices), is_peak in any::<bool>(), rank in 0_usize..100,
    ) {
        if is_peak {
            fixture.criteria.objective = Objective::MinPeakMemory;
        }
        let mut plans = fixture.every_plan();
        let mut seconds: Vec<f64> = plans.iter().map(|plan| plan.seconds).collect();
        seconds.sort_by(f64::total_cmp);
        let Some(&limit) = seconds.get(rank * seconds.len() / 100) else { return Ok(()) };
        let limit = limit * (1.0 + 1e-9);
        fixture.criteria.constraints.max_iteration_seconds = Some(limit);
        plans.retain(|plan| plan.seconds <= limit);
        let found = fixture.recommend();
        prop_assert!(found.is_ok(), "{limit}: {found:?}");
        let found = found.unwrap();
        prop_assert!(fixture.weighed(&found.best).seconds <= limit);
        prop_assert!(found.certificate.proven, "{:?}", found.certificate);
        if is_peak {
            let peaks = plans.iter().map(|plan| &plan.peaks).min().unwrap();
            prop_assert_eq!(&fixture.weighed(&found.best).peaks, peaks);
        } else {
            let least = plans.iter().map(|plan| plan.stages.len()).min().unwrap();
            prop_assert_eq!(found.best.devices() as usize, least);
        }
    }

    /// Layers are on the devices that they are pinned to, and the others on the best of what is left.
    #[test]
    fn pinned_layers_stay_on_their_devices(
        mut fixture in fixtures(Objective::MinIterationTime), layer in 0_usize..5, device in 0_u32..6,
    ) {
        let pin = Pin { layer: layer % fixture.casino.layers(), device: (device % fixture.devices()) as usize };
        fixture.criteria.cuts.pin(pin);
        let plans = fixture.every_plan();
        match fixture.recommend() {
            Ok(found) => {
                let own = found.best.stages.iter().find(|of| (of.first..=of.last).contains(&pin.layer));
                prop_assert_eq!(&own.unwrap().devices, &vec![pin.device as u32]);
                let seconds = fixture.weighed(&found.best).seconds;
                prop_assert!(!differ(seconds, fastest(&plans)), "{seconds} of {}", fastest(&plans));
            }
            Err(error) => prop_assert!(plans.is_empty(), "{error:?}"),
        }
    }

    /// A partitioning that is named is on the devices that are best for it, of those orders that take nodes one by one.
    #[test]
    fn named_stages_are_on_the_best_devices(
        mut fixture in fixtures(Objective::MinIterationTime), are_several in any::<bool>(), which in any::<Index>(),
    ) {
        fixture.criteria.constraints.allow_idle_devices = false;
        fixture.criteria.schedules.truncate(1);
        if are_several {
            fixture.criteria.shape = PlanShape::PerStageReplicas;
            fixture.criteria.batches = vec![Batch { micro_batch_size: 4, micro_batches: 2 }];
        }
        let node = |device: &u32| fixture.place(*device).0;
        let mut plans = fixture.every_plan();
        plans.retain(|plan| plan.stages.iter().flat_map(|stage| &stage.2).is_sorted_by_key(node));
        if plans.is_empty() {
            return Ok(());
        }
        let sizes = |plan: &Plan| plan.stages.iter().map(|of| (of.0, of.1, of.2.len())).collect::<Vec<_>>();
        let named = sizes(which.get(&plans));
        plans.retain(|plan| sizes(plan) == named);
        let stage = |&(first_layer, last_layer, devices): &(usize, usize, usize)| StageConfig {
            first_layer, last_layer, data_degree: devices as u32, tensor_degree: 1,
        };
        let found = fixture.named(&Partitioning::new(named.iter().map(stage).collect()).unwrap()).unwrap();
        let seconds = found.simulated.expect("it was simulated");
        prop_assert!(!differ(seconds, fixture.weighed(&found).seconds), "{found:?}");
        let least = fastest(&plans);
        prop_assert!(!differ(seconds, least), "{seconds} of {least}: {found:?}");
    }

    /// Less time for less memory, on the best devices everywhere.
    #[test]
    fn fronts_are_of_the_best_devices(fixture in fixtures(Objective::Pareto)) {
        let plans = fixture.every_plan();
        let Ok(found) = fixture.recommend() else { return Ok(()) };
        for plan in &found.front {
            let own = fixture.weighed(plan);
            prop_assert!(!differ(own.seconds, plan.simulated.unwrap()));
            let beats = |other: &&Plan| other.seconds < own.seconds * (1.0 - 1e-9) && other.peaks[0] <= own.peaks[0];
            prop_assert!(plans.iter().find(beats).is_none());
        }
        prop_assert!(!differ(found.front[0].simulated.unwrap(), fastest(&plans)));
    }
}
