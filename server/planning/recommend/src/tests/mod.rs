//! Promises of the recommendation as a whole, held against every plan that there is.

mod every_plan;
pub(crate) mod fixture;
mod heterogeneous_links;

use std::collections::BTreeSet;

use loadmaster_proto::bytes::Bytes;
use loadmaster_proto::plan::change::FieldChange;
use loadmaster_proto::plan::constraints::Constraints;
use loadmaster_proto::plan::objective::{Framework, NodeSpanning, Objective, PlanShape, SearchMode};
use loadmaster_proto::training::sharding::StateSharding;
use loadmaster_proto::training::stage::StageConfig;
use loadmaster_proto::training::{Optimizer, RecomputePolicy, Schedule};
use proptest::prelude::*;

use super::result::broken_rules;
use super::search::{BestNodes, Effort, Inquiry, KnownOrders, least, on_any_subset, value};
use super::*;
use every_plan::Oracle;
use loadmaster_oracle::{Stage, Truth, mixed};
use loadmaster_samples::cases;
use loadmaster_search::cost::{Batch, LayerFacts, Market};
use loadmaster_search::fleet::Subset;
use loadmaster_search::{
    Choice, Cuts, Fleet, FleetNode, Kind, Link, LinkId, LinkOrigin, Peak, Pin, Seconds, StageAt, StageCosts,
    Stop, Unit,
};
use loadmaster_simulate::Overlap;

/// Prices that are thrown, not computed: every stage has its own, the same each time it is asked for, whatever
/// else is asked about.
#[derive(Debug, Clone)]
pub(super) struct Casino {
    seed: u64,
    layers: usize,
    sides: u64,
    /// How slow links are.
    slowness: u64,
    facts: Vec<LayerFacts>,
    timed: bool,
}

#[derive(Debug)]
pub(super) struct Thrown {
    casino: Casino,
    batch: Batch,
    choices: Vec<Choice>,
    links: Vec<Link>,
}

impl Casino {
    pub(super) fn new(seed: u64, layers: usize, sides: u64) -> Self {
        let casino = Self { seed, layers, sides, slowness: 1, facts: Vec::new(), timed: true };
        let fact = |layer: usize| LayerFacts {
            seconds: Some(1.0 + casino.throw(&[8, layer as u64]) as f64),
            parameter_bytes: Some(casino.throw(&[9, layer as u64])),
            activation_bytes: Some(casino.throw(&[10, layer as u64])),
        };
        Self { facts: (0..layers).map(fact).collect(), ..casino }
    }

    fn throw(&self, words: &[u64]) -> u64 {
        mixed(self.seed, words) % self.sides
    }
}

impl Thrown {
    fn cost(&self, of: u64, stage: &StageAt) -> Option<u64> {
        let choice = self.choices.get(stage.choice)?;
        let (data, tensor) = (u64::from(choice.data), u64::from(choice.tensor));
        let (first, last) = (stage.first as u64, stage.last as u64);
        let words =
            [of, first, last, data, tensor, choice.recompute as u64, self.batch.micro_batch_size.into()];
        // Of stages that shard nothing as before there was sharding, so that they cost what they did.
        let sharded = [11, choice.sharding as u64];
        let sharded = if choice.sharding.is_none() { &[][..] } else { &sharded };
        Some(self.casino.throw(&[&words[..], sharded].concat()))
    }

    fn over(&self, link: LinkId) -> u64 {
        self.links.get(usize::from(link)).map_or(3 * self.casino.slowness, |link| self.over_link(*link))
    }

    fn over_link(&self, link: Link) -> u64 {
        4_u64.saturating_sub(link.bytes_per_second as u64) * self.casino.slowness
    }
}

impl StageCosts for Thrown {
    fn layers(&self) -> usize {
        self.casino.layers
    }

    fn choices(&self) -> &[Choice] {
        &self.choices
    }

    fn seconds(&self, stage: &StageAt) -> Option<Seconds> {
        if !self.casino.timed {
            return None;
        }
        let Choice { data, tensor, .. } = self.choices[stage.choice];
        let rings = |rings: u32| u64::from(rings);
        let tensor = if tensor > 1 { self.over(stage.tensor_link) * rings(stage.tensor_rings) } else { 0 };
        let data = if data > 1 { self.over(stage.data_link) * rings(stage.data_rings) } else { 0 };
        Some(Seconds {
            forward: (1 + self.cost(1, stage)? + tensor) as f64,
            backward: (self.cost(2, stage)? + tensor) as f64,
            step: (self.cost(3, stage)? + data) as f64,
        })
    }

    fn peak(&self, stage: &StageAt, in_flight: u32) -> Option<Peak> {
        let held = self.cost(5, stage)? * u64::from(self.batch.micro_batch_size) / 2;
        let bytes = 1 + self.cost(4, stage)? + u64::from(in_flight) * held;
        Some(Peak { bytes, needed: bytes + self.cost(6, stage)? / 4 })
    }

    fn cut_seconds(&self, layer: usize, link: LinkId, choice: usize) -> f64 {
        let data = self.choices.get(choice).map_or(1, |choice| u64::from(choice.data));
        (self.over(link) * (1 + self.casino.throw(&[7, layer as u64])) / data) as f64
    }

    fn cut_seconds_over(&self, layer: usize, link: Link, choice: usize) -> f64 {
        let data = self.choices.get(choice).map_or(1, |choice| u64::from(choice.data));
        (self.over_link(link) * (1 + self.casino.throw(&[7, layer as u64])) / data) as f64
    }
}

impl Market for Casino {
    type Costs = Thrown;

    fn layers(&self) -> usize {
        self.layers
    }

    fn facts(&self) -> &[LayerFacts] {
        &self.facts
    }

    fn has_times(&self) -> bool {
        self.timed
    }

    fn costs(&self, _schedule: Schedule, batch: Batch, choices: &[Choice], links: &[Link]) -> Thrown {
        Thrown { casino: self.clone(), batch, choices: choices.to_vec(), links: links.to_vec() }
    }

    fn obstacle(&self, _: Schedule, _: Batch, _: Choice, _: usize, _: usize) -> Option<String> {
        None
    }
}

/// A whole request about thrown prices.
#[derive(Debug, Clone)]
struct Case {
    casino: Casino,
    fleet: Fleet,
    criteria: Criteria,
    names: Vec<String>,
    devices: Vec<String>,
}

impl Case {
    fn job(&self) -> Job<'_> {
        Job {
            names: &self.names,
            model: None,
            fleet: &self.fleet,
            devices: &self.devices,
            optimizer: &Optimizer::Sgd { learning_rate: 0.1, momentum: 0.0, weight_decay: 0.0 },
        }
    }

    fn recommend(&self) -> Result<Recommendation, RecommendError> {
        recommend(&self.casino, &self.job(), &self.criteria, &Stop::default())
    }

    fn oracle(&self) -> Oracle<'_> {
        Oracle::new(&self.casino, &self.criteria, &self.fleet)
    }

    /// What is true of all plans, by their own objective.
    fn truth(&self) -> Truth {
        self.oracle().truth(self.criteria.objective)
    }

    /// A peak in the criteria's unit as certificates have it: a share of a capacity is a fraction.
    fn counted(&self, peak: f64) -> f64 {
        if self.criteria.unit == Unit::Share { peak / Unit::WHOLE as f64 } else { peak }
    }

    /// The best value of all plans that keep the limits.
    fn best(&self, objective: Objective) -> Option<f64> {
        self.oracle().truth(objective).best
    }
}

pub(crate) fn link(speed: u32) -> Link {
    Link { bytes_per_second: f64::from(speed), latency_seconds: 0.0, origin: LinkOrigin::Given }
}

/// A node of so many devices of a kind, whose links inside and outside are as fast.
pub(crate) fn node(name: String, (kind, devices): (usize, u32), (inside, outside): (u32, u32)) -> FleetNode {
    FleetNode {
        name,
        kind,
        devices,
        whole: devices,
        inside: link(inside),
        outside: link(outside),
        one_transfer: None,
        domains: Vec::new(),
        unlike: None,
    }
}

fn fleet(kinds: Vec<Kind>, nodes: Vec<FleetNode>) -> Fleet {
    Fleet { kinds, nodes, tiers: Vec::new(), is_one_node: false, may_grow: true }
}

/// A request about layers and devices that are named by their numbers.
fn case(casino: Casino, fleet: Fleet, criteria: Criteria) -> Case {
    Case {
        names: (0..casino.layers).map(|layer| format!("layer{layer}")).collect(),
        devices: (0..fleet.devices()).map(|device| format!("device {device}")).collect(),
        casino,
        fleet,
        criteria,
    }
}

fn criteria(shape: PlanShape, objective: Objective, layers: usize) -> Criteria {
    Criteria {
        objective,
        shape,
        rules: None,
        constraints: Constraints::default(),
        batches: vec![Batch { micro_batch_size: 2, micro_batches: 2 }],
        least_share: 1,
        schedules: vec![Schedule::Gpipe],
        recompute: vec![RecomputePolicy::None],
        may_shard: true,
        sequence_parallel: false,
        overlap: Overlap::default(),
        unit: Unit::Bytes,
        mode: SearchMode::Exact,
        seed: 0,
        cuts: Cuts::anywhere(layers),
        is_merged: false,
        keeps_order: true,
        alternatives: 2,
        brief: false,
        efforts: 1,
    }
}

/// Requests that mix everything that may be asked.
fn any_case(objective: Objective) -> impl Strategy<Value = Case> {
    let excluded = prop_oneof![4 => Just(0_u32), 1 => Just(1)];
    let nodes = proptest::collection::vec((1_u32..=3, 0_usize..2, 1_u32..=3, excluded), 1..=3);
    let batches = prop_oneof![Just(vec![(2, 2)]), Just(vec![(4, 3)]), Just(vec![(1, 4), (2, 2), (4, 1)])];
    let schedules = prop_oneof![
        Just(vec![Schedule::Gpipe]),
        Just(vec![Schedule::OneFOneB]),
        Just(vec![Schedule::Gpipe, Schedule::OneFOneB]),
        Just(vec![Schedule::PipeDream]),
        Just(vec![Schedule::PipeDream, Schedule::OneFOneB])
    ];
    let recompute = prop_oneof![
        Just(vec![RecomputePolicy::None]),
        Just(vec![RecomputePolicy::None, RecomputePolicy::Layer])
    ];
    let shardings = prop_oneof![
        2 => Just(Vec::new()),
        1 => Just(vec![StateSharding::Optimizer]),
        1 => Just(vec![StateSharding::None, StateSharding::Optimizer])
    ];
    let shape = (0..PlanShape::ALL.len()).prop_map(|index| PlanShape::ALL[index]);
    let spanning = prop_oneof![
        2 => Just(None),
        1 => Just(Some(NodeSpanning::Never)),
        1 => Just(Some(NodeSpanning::WholeNodes)),
        1 => Just(Some(NodeSpanning::Anywhere)),
    ];
    let sides = prop_oneof![Just(3_u64), Just(40)];
    let capacity = prop_oneof![Just(u64::MAX / 4), 5_u64..120];
    let places = (nodes, prop_oneof![Just((false, false)), Just((true, true)), Just((true, false))]);
    let pins = proptest::collection::vec((0_usize..4, 0_usize..6), 0..=2);
    let pins = prop_oneof![2 => Just(Vec::new()), 1 => pins];
    let besides =
        (any::<bool>(), spanning, pins, prop_oneof![Just(1_u64), Just(12)], any::<bool>(), any::<bool>());
    (
        any::<u64>(),
        1_usize..=4,
        sides,
        places,
        capacity,
        batches,
        schedules,
        (recompute, any::<bool>(), shape, shardings),
        besides,
    )
        .prop_map(
            move |(seed, layers, sides, places, capacity, batches, schedules, choices, besides)| {
                let (nodes, (keeps_order, is_one_node)) = places;
                let (recompute, each, shape, shardings) = choices;
                let (may_idle, spanning, pins, slowness, blocks, is_share) = besides;
                let kinds = (0..2).map(|kind| Kind {
                    name: format!("kind{kind}"),
                    capacity: Bytes(capacity * (kind + 1)),
                    hourly_price: Some((kind + 1) as f64),
                });
                let mut left = 6;
                let nodes =
                    nodes.iter().enumerate().filter_map(|(index, &(devices, kind, speed, excluded))| {
                        let devices = devices.min(left);
                        left -= devices;
                        let outside = if is_one_node { 3 } else { speed };
                        let has_several_links = !is_one_node && speed > 1 && seed.is_multiple_of(2);
                        (devices > 0).then(|| FleetNode {
                            whole: if is_one_node { devices } else { devices + excluded },
                            one_transfer: has_several_links.then(|| link(1)),
                            ..node(format!("node{index}"), (kind, devices), (3, outside))
                        })
                    });
                let fleet = Fleet { is_one_node, ..fleet(kinds.collect(), nodes.collect()) };
                let mut criteria = criteria(shape, objective, layers);
                criteria.batches = batches
                    .iter()
                    .map(|&(micro_batch_size, micro_batches)| Batch { micro_batch_size, micro_batches })
                    .collect();
                (criteria.schedules, criteria.recompute, criteria.keeps_order) =
                    (schedules, recompute, keeps_order);
                criteria.overlap = if blocks { Overlap::Nothing } else { Overlap::Computing };
                criteria.unit = if is_share { Unit::Share } else { Unit::Bytes };
                criteria.constraints.recompute_per_stage = each;
                criteria.constraints.shardings = shardings;
                criteria.constraints.allow_idle_devices = may_idle;
                criteria.constraints.spanning = spanning;
                for (layer, device) in pins {
                    if layer < layers && device < fleet.devices() as usize {
                        criteria.cuts.pin(Pin { layer, device });
                    }
                }
                case(Casino { slowness, ..Casino::new(seed, layers, sides) }, fleet, criteria)
            },
        )
}

/// Whether two seconds differ by more than rounding.
fn differ(one: f64, other: f64) -> bool {
    (one - other).abs() > 1e-9 * one.abs().max(other.abs())
}

/// Whether each pinned layer is where it has to be.
fn keeps_pins(case: &Case, plan: &Candidate) -> bool {
    case.criteria.cuts.pins().iter().all(|pin| {
        let own = plan.stages.iter().find(|stage| (stage.first..=stage.last).contains(&pin.layer));
        own.is_some_and(|stage| stage.devices.contains(&(pin.device as u32)))
    })
}

/// What may be asked for besides an objective: nothing, a limit on time, or one on bytes. It is near what is possible: often some plans
/// keep it and others do not.
fn limited(mut case: Case, at: f64, which: u8) -> Case {
    match which {
        0 => {
            let fastest = case.best(Objective::MinIterationTime);
            case.criteria.constraints.max_iteration_seconds = fastest.map(|seconds| seconds * at);
        }
        1 => {
            let criteria = Criteria { unit: Unit::Bytes, ..case.criteria.clone() };
            let oracle = Oracle::new(&case.casino, &criteria, &case.fleet);
            let least = oracle.truth(Objective::MinPeakMemory).best;
            case.criteria.constraints.max_peak_bytes = least.map(|bytes| (bytes * at) as u64 + 1);
        }
        _ => {}
    }
    case
}

/// Layers, data and tensor-parallel size.
fn shape_of(stage: StageConfig) -> (usize, usize, u32, u32) {
    (stage.first_layer, stage.last_layer, stage.data_degree, stage.tensor_degree)
}

/// Holds an answer against every plan.
fn check_answer(case: &Case) -> Result<(), TestCaseError> {
    let is_timed = case.criteria.objective.is_timed();
    let truth = case.truth();
    match case.recommend() {
        Ok(found) => {
            let Some(best) = truth.best else {
                return Err(TestCaseError::fail(format!("no plan there: {}", found.best.describe())));
            };
            let certificate = &found.certificate;
            let is_worse = differ(certificate.value, best);
            prop_assert!(!is_worse, "{} is not {best}: {}", certificate.value, found.best.describe());
            prop_assert!(certificate.proven, "{certificate:?}");
            prop_assert_eq!(certificate.gap, Some(0.0));
            prop_assert!(found.best.fits() && keeps_pins(case, &found.best));
            if is_timed {
                check_seconds(case, &found)?;
            }
            prop_assert_eq!(broken_rules(&case.job(), &case.criteria, &found.best), Vec::<String>::new());
            let mut devices: Vec<u32> =
                found.best.stages.iter().flat_map(|stage| stage.devices.iter().copied()).collect();
            devices.sort_unstable();
            devices.dedup();
            prop_assert_eq!(devices.len() as u32, found.best.devices());
            for (other, _) in &found.alternatives {
                prop_assert!(other.fits() && !other.is_same(&found.best));
                prop_assert!(!is_timed || other.seconds() >= found.best.seconds());
            }
        }
        Err(RecommendError::NoPlan { remedies, why_not, .. }) => {
            prop_assert!(truth.fitting == 0, "{} fits", truth.best_plan);
            check_remedies(case, &remedies)?;
            prop_assert_eq!(why_not.missing().map(|bytes| bytes.0), truth.least_lack, "{:?}", why_not);
        }
        Err(RecommendError::Limits { is_proof, remedies, .. }) => {
            prop_assert!(truth.best.is_none() && is_proof);
            check_remedies(case, &remedies)?;
        }
        Err(other) => prop_assert!(false, "{other}"),
    }
    Ok(())
}

/// The seconds of a plan, and of those that come next, are what a simulation of their stages on their devices says.
fn check_seconds(case: &Case, found: &Recommendation) -> Result<(), TestCaseError> {
    let oracle = case.oracle();
    let best = (&found.best, found.best.simulated.unwrap_or(f64::NAN));
    for (plan, value) in
        std::iter::once(best).chain(found.alternatives.iter().map(|(plan, value)| (plan, *value)))
    {
        let (seconds, _) = oracle.weighed(plan);
        prop_assert!(!differ(value, seconds), "{value} is told of {seconds}: {}", plan.describe());
    }
    Ok(())
}

/// What is said to help does, asked for as its changes say.
fn check_remedies(case: &Case, remedies: &[Remedy]) -> Result<(), TestCaseError> {
    for remedy in remedies {
        prop_assert!(remedy.plan.fits());
        let mut other = case.clone();
        let named = |value: &serde_json::Value| value.as_str().unwrap().to_owned();
        for FieldChange { field, value } in &remedy.changes {
            let number = || value.as_u64().unwrap() as u32;
            match *field {
                "problem.schedule" => {
                    prop_assert_eq!(value, "SCHEDULE_ONE_F_ONE_B");
                    other.criteria.schedules = vec![Schedule::OneFOneB];
                }
                "problem.recompute" => {
                    let is_layer = value == "RECOMPUTE_POLICY_LAYER";
                    prop_assert!(is_layer || value == "RECOMPUTE_POLICY_STAGE");
                    let policy = if is_layer { RecomputePolicy::Layer } else { RecomputePolicy::Stage };
                    other.criteria.recompute = vec![policy];
                }
                "problem.micro_batch_size" => {
                    other.criteria.batches = vec![Batch { micro_batch_size: number(), micro_batches: 0 }];
                }
                "problem.micro_batch_count" => other.criteria.batches[0].micro_batches = number(),
                "constraints.parallelism_layout" => {
                    let word =
                        named(value).replace("PARALLELISM_LAYOUT_", "").replace('_', "-").to_lowercase();
                    other.criteria.shape =
                        PlanShape::ALL.into_iter().find(|of| of.to_string() == word).unwrap();
                }
                "constraints.state_shardings" => {
                    prop_assert_eq!(value, &serde_json::json!(["STATE_SHARDING_OPTIMIZER"]));
                    other.criteria.constraints.shardings = vec![StateSharding::Optimizer];
                }
                "constraints.allow_idle_devices" => other.criteria.constraints.allow_idle_devices = true,
                "constraints.node_spanning" => {
                    let word = named(value).replace("NODE_SPANNING_", "").replace('_', "-").to_lowercase();
                    other.criteria.constraints.spanning = Some(word.parse().unwrap());
                }
                "problem.devices" => {
                    let groups = value.as_array().unwrap();
                    for (node, group) in other.fleet.nodes.iter_mut().zip(groups) {
                        node.devices = group["count"].as_u64().unwrap() as u32;
                        node.whole = node.devices;
                        let kind = group["kind"].as_str().unwrap();
                        node.kind = other.fleet.kinds.iter().position(|of| of.name == kind).unwrap();
                    }
                }
                other => prop_assert!(false, "unknown field {other:?}"),
            }
        }
        if remedy.changes.is_empty() {
            let (_, nodes) = remedy.what.split_once(": ").unwrap();
            let mut last = other.fleet.nodes.last().unwrap().clone();
            // Devices that are excluded on one node are not excluded on another one.
            last.devices = last.whole;
            let more: usize = nodes.split(' ').next().unwrap().parse().unwrap();
            let another = |index| FleetNode { name: format!("another {index}"), ..last.clone() };
            other.fleet.nodes.extend((0..more).map(another));
        }
        other.devices = (0..other.fleet.devices()).map(|device| format!("device {device}")).collect();
        let answer = other.recommend();
        prop_assert!(
            answer.is_ok(),
            "{:?}: {:?}",
            remedy.changes,
            answer.err().map(|error| error.to_string())
        );
    }
    Ok(())
}

proptest! {
    #![proptest_config(cases(150))]

    /// A search that goes on once its usual effort is spent bounds every plan that keeps the limits, and what it calls proven is the
    /// fastest of them.
    #[test]
    fn a_search_that_goes_on_is_right_about_every_plan(
        case in any_case(Objective::MinIterationTime), at in 0.9..1.6_f64, which in 0_u8..4, times in 2_u64..12,
    ) {
        let case = limited(case, at, which);
        let fastest = case.best(Objective::MinIterationTime);
        let (effort, subset, job) = (Effort::times(&Stop::default(), times), Subset::whole(&case.fleet), case.job());
        // Not even one stage is looked at in the usual way.
        effort.passes.take(u64::MAX);
        let (market, criteria, orders) = (&case.casino, &case.criteria, KnownOrders::default());
        let Some(cuts) = subset.cuts(&criteria.cuts) else { return Ok(()) };
        let inquiry =
            Inquiry { market, job: &job, subset: &subset, criteria, cuts: &cuts, effort: &effort, orders: &orders };
        let found = on_any_subset(inquiry);
        let best = found.candidates.first().and_then(|plan| plan.seconds());
        if let (Some(best), Some(fastest)) = (best, fastest) {
            prop_assert!(best >= fastest || !differ(best, fastest), "{best} is faster than {fastest}");
        }
        if let (Some(bound), Some(fastest)) = (found.bound, fastest) {
            prop_assert!(bound <= fastest || !differ(bound, fastest), "{bound} bounds {fastest}");
        }
        if !found.is_bounded && !found.is_stopped && best.is_some() {
            prop_assert!(!differ(best.unwrap_or(0.0), fastest.unwrap_or(f64::NAN)), "{best:?} is not {fastest:?}");
        }
    }

    /// No plan that keeps all limits has lower peaks. Where no plan keeps them, none is recommended. The error then reports
    /// the bytes that the closest plan lacks, and its remedies help.
    #[test]
    fn no_plan_has_lower_peaks(case in any_case(Objective::MinPeakMemory), at in 0.85..1.3_f64, which in 0_u8..4) {
        let case = limited(case, at, which);
        check_answer(&case)?;
        if let (Some(lowest), Ok(found)) = (case.truth().peaks, case.recommend()) {
            let mut peaks: Vec<f64> = found.best.peaks(case.criteria.unit).runs().iter()
                .flat_map(|run| std::iter::repeat_n(case.counted(run.peak as f64), run.devices as usize)).collect();
            peaks.sort_unstable_by(|a, b| b.total_cmp(a));
            let differ = peaks.iter().zip(&lowest).any(|(one, other)| differ(*one, *other));
            prop_assert!(peaks.len() == lowest.len() && !differ, "{peaks:?} {lowest:?}");
        }
    }

    /// No plan is faster, as simulated.
    #[test]
    fn no_plan_is_faster(case in any_case(Objective::MinIterationTime), at in 0.85..1.3_f64, which in 0_u8..4) {
        check_answer(&limited(case, at, which))?;
    }

    /// The front is exactly the plans that no other one beats in both, by peak and simulated seconds, and none that
    /// differ by rounding.
    #[test]
    fn the_front_is_complete(case in any_case(Objective::Pareto)) {
        let expected = case.truth().front;
        match case.recommend() {
            Ok(found) => {
                let point = |plan: &Candidate| {
                    let peak = plan.peaks(case.criteria.unit).highest().unwrap();
                    (plan.seconds().unwrap(), case.counted(peak as f64))
                };
                let front: Vec<(f64, f64)> = found.front.iter().map(point).collect();
                let differ = front.iter().zip(&expected).any(|(one, other)| differ(one.0, other.0) || differ(one.1, other.1));
                prop_assert!(front.len() == expected.len() && !differ, "{front:?} {expected:?}");
                prop_assert!(found.certificate.proven);
            }
            Err(RecommendError::NoPlan { .. }) => prop_assert!(expected.is_empty()),
            Err(other) => prop_assert!(false, "{other}"),
        }
    }

    /// A restriction never helps: the plan is at least as bad as the best free one, which is named.
    #[test]
    fn restrictions_cost_nothing_or_something(case in prop_oneof![
        any_case(Objective::MinPeakMemory), any_case(Objective::MinIterationTime)
    ]) {
        let Ok(found) = case.recommend() else { return Ok(()) };
        let Some(cost) = found.restriction else {
            prop_assert_eq!(case.criteria.shape, PlanShape::PerStageMesh);
            return Ok(());
        };
        prop_assert!(cost.ratio >= 1.0, "{}", cost.ratio);
        let criteria = case.criteria.free();
        let oracle = Oracle::new(&case.casino, &criteria, &case.fleet);
        let least = oracle.truth(criteria.objective).best.unwrap_or(f64::INFINITY);
        let own_free = cost.free_value;
        // The restriction's cost has an effort of its own. Where that ends before the search does, the value is not proven.
        prop_assert!(own_free > least || !differ(own_free, least), "{own_free} {least}");
        prop_assert!(!cost.free_proven || !differ(own_free, least), "{own_free} {least}");
        // The plan that is named has this value.
        let named: Vec<_> = cost.free_partitioning.stages().iter().copied().map(shape_of).collect();
        let shape = |&Stage { first, last, data, tensor, .. }: &Stage| (first, last, data, tensor);
        let mut is_named = false;
        oracle.each(|plan, seconds| {
            let (memory, is_timed) = (plan.memory(), criteria.objective.is_timed());
            let peak = if criteria.unit == Unit::Share { memory.share } else { memory.highest as f64 };
            let own = if is_timed { seconds } else { peak };
            let is_it = plan.stages.iter().map(|placed| shape(&placed.stage)).eq(named.iter().copied());
            is_named |= is_it && !differ(own, own_free);
        });
        prop_assert!(is_named, "{:?}", cost.free_partitioning);
        prop_assert!(cost.ratio > 1.0 || cost.placement.is_empty());
    }

    /// No devices that are fewer, or cheaper, hold the training within its limits, whichever of their nodes they are.
    #[test]
    fn no_fewer_or_cheaper_devices_are_enough(case in prop_oneof![
        any_case(Objective::MinDevices), any_case(Objective::MinCost)
    ], at in 0.85..2.0_f64, which in 0_u8..4) {
        check_answer(&limited(case, at, which))?;
    }

    /// No larger micro-batch of those that are asked about fits, although a smaller one may not.
    #[test]
    fn no_larger_micro_batch_fits(case in any_case(Objective::MaxBatch), at in 0.85..2.0_f64, which in 0_u8..4) {
        check_answer(&limited(case, at, which))?;
    }
}

proptest! {
    #![proptest_config(cases(60))]

    /// What the papers' programs find is never called proven where a better plan exists.
    #[test]
    fn modes_of_papers_claim_nothing_false(case in prop_oneof![
        any_case(Objective::MinPeakMemory), any_case(Objective::MinIterationTime)
    ], which in prop_oneof![12 => Just(0_usize), 12 => Just(1), 1 => Just(2), 12 => Just(3), 3 => Just(4)]) {
        let mut case = case;
        let (mode, shape) = [
            (SearchMode::Capture, case.criteria.shape),
            (SearchMode::McapBruteForce, PlanShape::SinglePipeline),
            (SearchMode::McapBayesian, PlanShape::SinglePipeline),
            (SearchMode::Amp, PlanShape::UniformGrid),
            (SearchMode::AmpAnnealing, PlanShape::UniformGrid),
        ][which];
        (case.criteria.mode, case.criteria.shape) = (mode, shape);
        if matches!(mode, SearchMode::McapBayesian | SearchMode::AmpAnnealing) {
            // They take their time, on every subset of the devices anew.
            case.criteria.constraints.allow_idle_devices = false;
            case.criteria.batches.truncate(1);
            case.criteria.schedules.truncate(1);
            case.criteria.recompute.truncate(1);
            case.criteria.keeps_order = true;
        }
        case.criteria.objective =
            if which < 3 { Objective::MinPeakMemory } else { Objective::MinIterationTime };
        let least = case.truth().best;
        match case.recommend() {
            Ok(found) => {
                // Annealing may come back to a node that it left, which other plans do not.
                let Some(least) = least else {
                    prop_assert!(mode == SearchMode::AmpAnnealing && !found.certificate.proven);
                    return Ok(());
                };
                let own = value(&case.criteria, &found.best).unwrap();
                let own = if which < 3 { case.counted(own) } else { own };
                let is_beaten = own < least && differ(own, least);
                prop_assert!(!is_beaten || mode == SearchMode::AmpAnnealing, "{own} {least}");
                prop_assert!(!found.certificate.proven || !differ(own, least));
                let bound = found.certificate.bound;
                prop_assert!(bound.is_none_or(|bound| bound <= least || !differ(bound, least)));
                prop_assert!(found.best.fits() && keeps_pins(&case, &found.best));
                prop_assert_eq!(broken_rules(&case.job(), &case.criteria, &found.best), Vec::<String>::new());
            }
            Err(error) => prop_assert!(!error.is_proof() || least.is_none(), "{error}"),
        }
    }

    /// The same request has the same answer for ever.
    #[test]
    fn answers_are_reproducible(case in any_case(Objective::MinIterationTime)) {
        prop_assert_eq!(case.recommend(), case.recommend());
    }
}

/// A chain that costs the sum of its layers, on four equal devices.
fn simple(objective: Objective, shape: PlanShape, capacity: u64) -> Case {
    let kind = Kind { name: "gpu".to_owned(), capacity: Bytes(capacity), hourly_price: None };
    let fleet = fleet(vec![kind], vec![node("n".to_owned(), (0, 4), (3, 3))]);
    let devices = (0..4).map(|device| format!("n/{device}")).collect();
    Case { devices, ..case(Casino::new(7, 4, 50), fleet, criteria(shape, objective, 4)) }
}

/// Where not every order of the nodes was looked at, nothing is proven to fit nowhere: each layer has a device of its own, so that a
/// plan there is wherever no more layers need a large device than there are such.
#[test]
#[ignore = "slow: make test-slow"]
fn orders_that_were_not_looked_at_prove_nothing() {
    const LARGE: usize = 8;
    let mut missed = 0;
    for seed in 0..8 {
        let mut case = simple(Objective::MinPeakMemory, PlanShape::SinglePipeline, 200);
        case.casino = Casino::new(seed, 15, 50);
        case.names = (0..15).map(|layer| format!("layer{layer}")).collect();
        case.criteria = criteria(PlanShape::SinglePipeline, case.criteria.objective, 15);
        (case.criteria.keeps_order, case.criteria.brief) = (false, true);
        // No two have the same links, so that there are too many orders to look at each.
        let node = |index: usize| FleetNode {
            name: format!("n{index}"),
            kind: usize::from(index >= LARGE),
            devices: 1,
            whole: 1,
            outside: link(10 + index as u32),
            ..case.fleet.nodes[0].clone()
        };
        let nodes: Vec<FleetNode> = (0..15).map(node).collect();
        let needs: Vec<u64> = (0..15)
            .map(|layer| {
                let cost = |of| case.casino.throw(&[of, layer, layer, 1, 1, RecomputePolicy::None as u64, 2]);
                1 + cost(4) + 2 * cost(5) + cost(6) / 4
            })
            .collect();
        let mut sorted = needs.clone();
        sorted.sort_unstable();
        // So much that the small ones hold the seven layers that need least, and no other.
        let small = Kind { capacity: Bytes(sorted[6]), ..case.fleet.kinds[0].clone() };
        case.fleet.kinds.push(Kind { name: "small".to_owned(), ..small });
        case.fleet.nodes = nodes;
        case.devices = (0..15).map(|device| format!("n{device}/0")).collect();
        match case.recommend() {
            Ok(found) => assert!(found.best.fits()),
            Err(error) => {
                missed += 1;
                assert!(!error.is_proof(), "{needs:?} fit {LARGE} large devices and small ones: {error}");
            }
        }
    }
    assert!(missed > 0, "all orders were looked at");
}

/// However many nodes there are besides, the fewest devices stay the fewest, and are proven.
#[test]
fn the_fewest_devices_of_a_large_cluster_are_those_of_a_small_one() {
    for (seed, shape) in
        [(7, PlanShape::PerStageMesh), (8, PlanShape::UniformGrid), (9, PlanShape::SinglePipeline)]
    {
        let fewest = |nodes: usize| {
            let mut case = simple(Objective::MinDevices, shape, 90);
            case.casino = Casino::new(seed, 4, 50);
            case.fleet.nodes = vec![case.fleet.nodes[0].clone(); nodes];
            case.devices = (0..case.fleet.devices()).map(|device| format!("d{device}")).collect();
            (case.criteria.keeps_order, case.criteria.brief) = (false, true);
            let found = case.recommend().unwrap();
            assert!(found.certificate.proven, "{:?}", found.certificate);
            found.certificate.value
        };
        assert_eq!(fewest(4_096), fewest(4));
    }
}

/// Listing the places of many subsets of a large cluster is work: a search that has none left ends, says what it did not
/// look at, and has priced no more than that.
#[test]
fn a_search_that_cannot_list_all_places_ends_by_its_effort() {
    let mut case = simple(Objective::MinIterationTime, PlanShape::UniformGrid, 90);
    case.fleet.nodes = vec![case.fleet.nodes[0].clone(); 40];
    case.devices = (0..case.fleet.devices()).map(|device| format!("d{device}")).collect();
    (case.criteria.keeps_order, case.criteria.brief) = (false, true);
    case.criteria.constraints.allow_idle_devices = true;
    let (effort, subset, job) = (Effort::usual(&Stop::default()), Subset::whole(&case.fleet), case.job());
    let (market, criteria, cuts) = (&case.casino, &case.criteria, &case.criteria.cuts);
    let orders = KnownOrders::default();
    let inquiry =
        Inquiry { market, job: &job, subset: &subset, criteria, cuts, effort: &effort, orders: &orders };
    let whole = on_any_subset(inquiry);
    effort.list(u64::MAX);
    assert!(effort.is_short());
    let short = on_any_subset(inquiry);
    assert!(short.is_bounded && !short.is_stopped && short.bound.is_none());
    assert!(!short.candidates.is_empty() && short.states < whole.states, "{} {}", short.states, whole.states);
}

/// Where few devices are never fast enough, a large fleet is asked about number by number. Each is work that is counted,
/// also where no plan takes so many devices, so that the search ends everywhere after as many.
#[test]
fn a_look_at_many_devices_is_work_whatever_comes_of_it() {
    let mut case = simple(Objective::MinIterationTime, PlanShape::UniformGrid, 90);
    case.fleet.nodes = vec![case.fleet.nodes[0].clone(); 4_096];
    case.devices = Vec::new();
    case.criteria.keeps_order = false;
    let (effort, subset, job) = (Effort::usual(&Stop::default()), Subset::whole(&case.fleet), case.job());
    let (market, criteria, cuts) = (&case.casino, &case.criteria, &case.criteria.cuts);
    let orders = KnownOrders::default();
    let inquiry =
        Inquiry { market, job: &job, subset: &subset, criteria, cuts, effort: &effort, orders: &orders };
    effort.list(45_000_000);
    let nodes = BestNodes::of(&case.fleet);
    let mut looks = 0;
    while !effort.is_listed_out() && looks < 10_000 {
        looks += 1;
        // Four layers are no work for as many devices.
        assert!(least(inquiry, &nodes, &[16_384]).seconds.is_infinite());
    }
    assert_eq!(looks, 306, "5,000,000 of 16,384 each");
}

/// What needs times or prices says so before anything is searched.
#[test]
fn objectives_without_their_numbers_are_refused() {
    let mut case = simple(Objective::MinIterationTime, PlanShape::SinglePipeline, 1 << 40);
    case.casino.timed = false;
    assert!(matches!(case.recommend(), Err(RecommendError::NoTimes { .. })));
    case.criteria.objective = Objective::MinPeakMemory;
    let found = case.recommend().unwrap();
    assert_eq!((found.best.seconds(), found.best.closed_form), (None, None));
    let unpriced = simple(Objective::MinCost, PlanShape::SinglePipeline, 1 << 40);
    assert!(matches!(unpriced.recommend(), Err(RecommendError::NoPrices { .. })));
}

/// Every rule is weighed by the plan's own prices.
#[test]
fn baselines_stand_beside_the_plan() {
    let found = simple(Objective::MinPeakMemory, PlanShape::SinglePipeline, 1 << 40).recommend().unwrap();
    let names: Vec<&str> = found.compared.iter().map(|one| one.name.as_str()).collect();
    assert_eq!(
        names,
        ["uniform-layers", "uniform-parameters", "torchgpipe-time", "torchgpipe-size", "megatron"]
    );
    for one in &found.compared[..4] {
        assert!(one.plan.is_some() && one.peak_ratio.unwrap() >= 1.0, "{one:?}");
    }
}

/// A search that is stopped at once answers with an error, never with a plan that was not weighed.
#[test]
fn a_search_that_is_stopped_at_once_finds_nothing() {
    let case = simple(Objective::MinPeakMemory, PlanShape::SinglePipeline, 1 << 40);
    let stop = Stop::default();
    stop.request();
    let answer = recommend(&case.casino, &case.job(), &case.criteria, &stop);
    assert!(matches!(answer, Err(RecommendError::Stopped)), "{answer:?}");
}

/// People read which stage lacks how many bytes on which device, and what would fit.
#[test]
fn what_lacks_is_told_with_its_device_and_what_helps() {
    let error = simple(Objective::MinPeakMemory, PlanShape::SinglePipeline, 1).recommend().unwrap_err();
    let RecommendError::NoPlan { why_not, device, .. } = &error else { panic!("{error}") };
    assert!(why_not.missing().is_some_and(|missing| missing.0 > 0));
    assert!(device.starts_with("n/"), "{device}");
    assert!(error.to_string().contains("too much"), "{error}");
}

/// Further nodes are a remedy where they would be taken, and for seconds only where their links are known.
#[test]
fn further_nodes_help_where_they_are_taken_and_their_links_are_known() {
    let helps = |change: &dyn Fn(&mut Case)| {
        (10..90).any(|capacity| {
            let mut case = simple(Objective::MinPeakMemory, PlanShape::UniformGrid, capacity);
            change(&mut case);
            let Err(RecommendError::NoPlan { remedies, .. } | RecommendError::Limits { remedies, .. }) =
                case.recommend()
            else {
                return false;
            };
            remedies.iter().any(|remedy| remedy.what.ends_with(" like n in the cluster"))
        })
    };
    let timed = |case: &mut Case| case.criteria.constraints.max_iteration_seconds = Some(1e9);
    let alone = |case: &mut Case| case.fleet.nodes[0].outside = FleetNode::ALONE;
    assert!(helps(&|_| ()) && helps(&timed) && helps(&alone));
    assert!(!helps(&|case| (timed(case), alone(case)).0));
    // What the request's choice of devices would not take helps no one.
    assert!(!helps(&|case| case.fleet.may_grow = false));
}

/// What a framework has no words for, or starts no processes for, helps no one who named it.
#[test]
fn remedies_keep_to_the_framework() {
    let remedies = |framework: Option<Framework>, shape: PlanShape, has_smaller_node: bool| {
        let options = (10..90).flat_map(|capacity| {
            let mut case = simple(Objective::MinPeakMemory, shape, capacity);
            if has_smaller_node {
                let mut smaller = case.fleet.nodes[0].clone();
                (smaller.name, smaller.devices, smaller.whole) = ("smaller".to_owned(), 1, 1);
                (case.fleet.nodes[0].devices, case.fleet.nodes[0].whole) = (2, 2);
                case.fleet.nodes.push(smaller);
                case.devices = (0..3).map(|device| format!("d{device}")).collect();
            }
            case.criteria.rules = framework.map(loadmaster_launchers::rules);
            match case.recommend() {
                Err(RecommendError::NoPlan { remedies, .. } | RecommendError::Limits { remedies, .. }) => {
                    remedies
                }
                _ => Vec::new(),
            }
        });
        options.map(|remedy| format!("{} {:?}", remedy.what, remedy.changes)).collect::<BTreeSet<String>>()
    };
    let by_stage = |framework| {
        let options = remedies(framework, PlanShape::UniformGrid, false);
        options.iter().any(|option| option.contains("RECOMPUTE_POLICY_STAGE"))
    };
    assert_eq!(
        [None, Some(Framework::Other), Some(Framework::Torchtitan)].map(by_stage),
        [true, true, false]
    );
    let by_node = |framework| {
        let options = remedies(framework, PlanShape::UniformGrid, true);
        options.iter().any(|option| option.contains(" in the cluster"))
    };
    assert_eq!([None, Some(Framework::Torchtitan)].map(by_node), [true, false]);
}

/// More stages than layers is no riddle: the answer says what to allow.
#[test]
fn devices_that_cannot_all_be_taken_are_explained() {
    let mut case = simple(Objective::MinPeakMemory, PlanShape::SinglePipeline, 1 << 40);
    case.casino = Casino::new(7, 3, 50);
    (case.names, case.criteria.cuts) = (case.names[..3].to_vec(), Cuts::anywhere(3));
    let error = case.recommend().unwrap_err();
    let RecommendError::NoPlan { remedies, .. } = &error else { panic!("{error}") };
    assert!(error.to_string().contains("can use all 4 devices"), "{error}");
    let fields: Vec<&str> = remedies.iter().flat_map(|of| &of.changes).map(|change| change.field).collect();
    assert!(fields.contains(&"constraints.allow_idle_devices"), "{fields:?}");
    assert!(fields.contains(&"constraints.parallelism_layout"), "{fields:?}");
    case.criteria.constraints.allow_idle_devices = true;
    assert!(case.recommend().unwrap().best.devices() <= 3);
}

/// torchrun cannot start three processes here and two there.
#[test]
fn a_framework_that_needs_equal_nodes_says_so() {
    let mut case = simple(Objective::MinPeakMemory, PlanShape::UniformGrid, 1 << 40);
    let mut smaller = case.fleet.nodes[0].clone();
    // Parts of one name are one machine.
    (smaller.name, smaller.devices, smaller.whole) = ("smaller".to_owned(), 2, 2);
    case.fleet.nodes.push(smaller);
    case.devices = (0..6).map(|device| format!("d{device}")).collect();
    case.criteria.rules = Some(loadmaster_launchers::rules(Framework::Torchtitan));
    let error = case.recommend().unwrap_err();
    assert!(error.to_string().contains("equally many processes"), "{error}");
}
