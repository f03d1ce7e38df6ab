//! Promises of the recommendation as a whole, held against every plan that there is.

use loadmaster_proto::bytes::Bytes;
use loadmaster_proto::constraints::Constraints;
use loadmaster_proto::objective::{Launcher, PlanShape, SearchMode};
use loadmaster_proto::training::{RecomputePolicy, Schedule};
use proptest::prelude::*;

use super::attempt::value;
use super::restriction::broken_rules;
use super::solve::Asked;
use super::*;
use crate::planning::search::testing::{cases, enumerate};
use crate::planning::search::{
    Choice, Cuts, FleetNode, Kind, Link, LinkId, LinkOrigin, Peak, Seconds, StageAt, StageCosts, Unit,
};
use crate::planning::simulate::Overlap;

/// Prices that are thrown, not computed: every stage has its own, the same each time it is asked for, whatever
/// else is asked about.
#[derive(Debug, Clone)]
struct Casino {
    seed: u64,
    layers: usize,
    sides: u64,
    facts: Vec<LayerFacts>,
    timed: bool,
}

#[derive(Debug)]
struct Thrown {
    casino: Casino,
    batch: Batch,
    choices: Vec<Choice>,
    links: Vec<Link>,
}

impl Casino {
    fn new(seed: u64, layers: usize, sides: u64) -> Self {
        let casino = Self { seed, layers, sides, facts: Vec::new(), timed: true };
        let fact = |layer: usize| LayerFacts {
            seconds: Some(1.0 + casino.throw(&[8, layer as u64]) as f64),
            parameter_bytes: Some(casino.throw(&[9, layer as u64])),
            activation_bytes: Some(casino.throw(&[10, layer as u64])),
        };
        Self { facts: (0..layers).map(fact).collect(), ..casino }
    }

    /// The finalizer of `SplitMix64` over the words.
    fn throw(&self, words: &[u64]) -> u64 {
        let mixed = words.iter().fold(self.seed, |state, word| {
            let mut z =
                (state ^ word.wrapping_mul(0xff51_afd7_ed55_8ccd)).wrapping_add(0x9e37_79b9_7f4a_7c15);
            z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
            z ^ (z >> 31)
        });
        mixed % self.sides
    }
}

impl Thrown {
    fn cost(&self, of: u64, stage: &StageAt) -> Option<u64> {
        let choice = self.choices.get(stage.choice)?;
        let (data, tensor) = (u64::from(choice.data), u64::from(choice.tensor));
        let (first, last) = (stage.first as u64, stage.last as u64);
        let words =
            [of, first, last, data, tensor, choice.recompute as u64, self.batch.micro_batch_size.into()];
        Some(self.casino.throw(&words))
    }

    fn over(&self, link: LinkId) -> u64 {
        let speed = self.links.get(usize::from(link)).map_or(1.0, |link| link.bytes_per_second);
        4_u64.saturating_sub(speed as u64)
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
        let tensor = if self.choices[stage.choice].tensor > 1 { self.over(stage.tensor_link) } else { 0 };
        let data = if self.choices[stage.choice].data > 1 { self.over(stage.data_link) } else { 0 };
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

    fn cut_seconds(&self, layer: usize, link: LinkId, _choice: usize) -> f64 {
        (self.over(link) * (1 + self.casino.throw(&[7, layer as u64]) % 3)) as f64
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
    wish: Wish,
    names: Vec<String>,
    devices: Vec<String>,
}

impl Case {
    fn scene(&self) -> Scene<'_> {
        Scene {
            names: &self.names,
            model: None,
            fleet: &self.fleet,
            devices: &self.devices,
            optimizer: &Optimizer::Sgd { learning_rate: 0.1, momentum: 0.0, weight_decay: 0.0 },
        }
    }

    fn recommend(&self) -> Result<Recommendation, RecommendError> {
        recommend(&self.casino, &self.scene(), &self.wish, &Stop::default())
    }

    /// Every plan of a wish on these devices, enumerated; those that fit.
    fn every_plan(&self, wish: &Wish, fleet: &Fleet) -> Vec<Candidate> {
        let part = Part::whole(fleet);
        let mut plans = Vec::new();
        for variant in variants(wish, &part, self.casino.layers) {
            let asked = Asked::new(&self.casino, wish, &variant, &part, &wish.cuts);
            for question in asked.questions(true) {
                for plan in enumerate(&question) {
                    let placed: Vec<_> = plan.iter().map(|stage| stage.placed).collect();
                    plans.extend(Candidate::of(&question, &placed, variant.batch, wish.overlap, &part));
                }
            }
        }
        plans
    }
}

fn link(speed: u32) -> Link {
    Link { bytes_per_second: f64::from(speed), latency_seconds: 0.0, origin: LinkOrigin::Given }
}

fn wish(shape: PlanShape, objective: Objective, layers: usize) -> Wish {
    Wish {
        objective,
        shape,
        rules: None,
        constraints: Constraints::default(),
        batches: vec![Batch { micro_batch_size: 2, micro_batches: 2 }],
        schedules: vec![Schedule::Gpipe],
        recompute: vec![RecomputePolicy::None],
        overlap: Overlap::default(),
        unit: Unit::Bytes,
        mode: SearchMode::Exact,
        seed: 0,
        cuts: Cuts::anywhere(layers),
        keeps_order: true,
        alternatives: 2,
        brief: false,
    }
}

fn any_case(objective: Objective) -> impl Strategy<Value = Case> {
    let nodes = proptest::collection::vec((1_u32..=3, 0_usize..2), 1..=2);
    let batches = prop_oneof![Just(vec![(2, 2)]), Just(vec![(1, 4), (2, 2), (4, 1)])];
    let schedules = prop_oneof![
        Just(vec![Schedule::Gpipe]),
        Just(vec![Schedule::OneFOneB]),
        Just(vec![Schedule::Gpipe, Schedule::OneFOneB])
    ];
    let recompute = prop_oneof![
        Just(vec![RecomputePolicy::None]),
        Just(vec![RecomputePolicy::None, RecomputePolicy::Layer])
    ];
    let shape = (0..PlanShape::ALL.len()).prop_map(|index| PlanShape::ALL[index]);
    let sides = prop_oneof![Just(3_u64), Just(40)];
    let capacity = prop_oneof![Just(u64::MAX / 4), 5_u64..120];
    (
        any::<u64>(),
        1_usize..=4,
        sides,
        nodes,
        (capacity, any::<bool>()),
        batches,
        schedules,
        (recompute, any::<bool>()),
        shape,
    )
        .prop_map(
            move |(
                seed,
                layers,
                sides,
                nodes,
                (capacity, keeps_order),
                batches,
                schedules,
                (recompute, each),
                shape,
            )| {
                let kinds = (0..2).map(|kind| Kind {
                    name: format!("kind{kind}"),
                    capacity: Bytes(capacity * (kind + 1)),
                    hourly_price: Some((kind + 1) as f64),
                });
                let nodes = nodes.iter().enumerate().map(|(index, &(devices, kind))| FleetNode {
                    name: format!("node{index}"),
                    kind,
                    devices,
                    inside: link(3),
                    outside: link(1),
                    domains: Vec::new(),
                });
                let fleet = Fleet { kinds: kinds.collect(), nodes: nodes.collect(), tiers: Vec::new() };
                let mut wish = wish(shape, objective, layers);
                wish.batches = batches
                    .iter()
                    .map(|&(micro_batch_size, micro_batches)| Batch { micro_batch_size, micro_batches })
                    .collect();
                (wish.schedules, wish.recompute, wish.keeps_order) = (schedules, recompute, keeps_order);
                wish.constraints.recompute_per_stage = each;
                Case {
                    casino: Casino::new(seed, layers, sides),
                    names: (0..layers).map(|layer| format!("layer{layer}")).collect(),
                    devices: (0..fleet.devices()).map(|device| format!("device {device}")).collect(),
                    fleet,
                    wish,
                }
            },
        )
}

proptest! {
    #![proptest_config(cases(60))]

    /// No plan of the shape has lower peaks; where there is none, none is recommended, and what is said to help
    /// does.
    #[test]
    fn no_plan_has_lower_peaks(case in any_case(Objective::MinPeakMemory)) {
        let all = case.every_plan(&case.wish, &case.fleet);
        match case.recommend() {
            Ok(found) => {
                let least = all.iter().map(|plan| plan.peaks(Unit::Bytes)).min();
                prop_assert_eq!(Some(found.best.peaks(Unit::Bytes)), least);
                prop_assert!(found.certificate.is_proven && found.certificate.gap() == Some(0.0));
                prop_assert!(found.best.fits());
                prop_assert_eq!(broken_rules(&case.scene(), &case.wish, &found.best), Vec::<String>::new());
                for (other, _) in &found.alternatives {
                    prop_assert!(other.fits() && !other.is_same(&found.best));
                }
            }
            Err(RecommendError::NoPlan { remedies, reason, .. }) => {
                prop_assert!(all.is_empty() && !reason.is_empty());
                prop_assert!(remedies.iter().all(|remedy| remedy.plan.fits()));
            }
            Err(other) => prop_assert!(false, "{other}"),
        }
    }

    /// No plan has a lower closed form than what is proven, and the plan is the one that is simulated fastest of
    /// those that come near it.
    #[test]
    fn no_plan_is_faster(case in any_case(Objective::MinIterationTime)) {
        let all = case.every_plan(&case.wish, &case.fleet);
        match case.recommend() {
            Ok(found) => {
                let least = all.iter().filter_map(|plan| plan.closed_form).fold(f64::INFINITY, f64::min);
                prop_assert_eq!(found.certificate.bound, Some(least));
                prop_assert!(found.best.closed_form.unwrap() <= least * 1.1);
                prop_assert!(found.best.fits() && found.best.simulated.is_some());
                // Farther alternatives are not ranked by simulation.
                let near = found.alternatives.iter().filter(|(_, value)| *value <= least * 1.1);
                for (other, _) in near {
                    prop_assert!(other.simulated >= found.best.simulated);
                }
            }
            Err(RecommendError::NoPlan { .. }) => prop_assert!(all.is_empty()),
            Err(other) => prop_assert!(false, "{other}"),
        }
    }

    /// The front is exactly the plans that no other one beats in both, by peak and closed form.
    #[test]
    fn the_front_is_complete(case in any_case(Objective::Pareto)) {
        let all = case.every_plan(&case.wish, &case.fleet);
        let numbers = |plan: &Candidate| (plan.peak_bytes(), plan.closed_form.unwrap());
        let mut expected: Vec<(u64, f64)> = all
            .iter()
            .map(numbers)
            .filter(|&(peak, time)| {
                !all.iter().map(numbers).any(|(p, t)| p <= peak && t <= time && (p < peak || t < time))
            })
            .collect();
        expected.sort_by(|a, b| a.1.total_cmp(&b.1));
        expected.dedup();
        match case.recommend() {
            Ok(found) => {
                let front: Vec<(u64, f64)> = found.front.iter().map(numbers).collect();
                prop_assert_eq!(front, expected);
            }
            Err(RecommendError::NoPlan { .. }) => prop_assert!(all.is_empty()),
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
            prop_assert_eq!(case.wish.shape, PlanShape::PerStageMesh);
            return Ok(());
        };
        prop_assert!(cost.ratio >= 1.0, "{}", cost.ratio);
        prop_assert_eq!(Some(cost.free_value), value(&case.wish, &cost.free));
        let free = case.every_plan(&case.wish.free(), &case.fleet);
        let least = free.iter().filter_map(|plan| value(&case.wish, plan)).fold(f64::INFINITY, f64::min);
        prop_assert_eq!(cost.free_value, least);
        prop_assert!(cost.ratio > 1.0 || cost.binding.is_empty());
    }

    /// No part of the fleet with fewer devices, or a lower price, holds the training.
    #[test]
    fn no_fewer_or_cheaper_devices_are_enough(case in prop_oneof![
        any_case(Objective::MinDevices), any_case(Objective::MinCost)
    ]) {
        let worth = |part: &Part| match case.wish.objective {
            Objective::MinCost => part.hourly_price().unwrap(),
            _ => f64::from(part.devices()),
        };
        let least = part::parts(&case.fleet)
            .iter()
            .filter(|part| !case.every_plan(&case.wish, &part.fleet).is_empty())
            .map(worth)
            .fold(f64::INFINITY, f64::min);
        match case.recommend() {
            Ok(found) => {
                prop_assert_eq!(found.certificate.value, least);
                prop_assert_eq!(value(&case.wish, &found.best), Some(least));
                prop_assert!(found.certificate.is_proven);
            }
            Err(RecommendError::NoPlan { .. }) => prop_assert!(least.is_infinite()),
            Err(other) => prop_assert!(false, "{other}"),
        }
    }

    /// No larger micro-batch of those that are asked about fits, although a smaller one may not.
    #[test]
    fn no_larger_micro_batch_fits(case in any_case(Objective::MaxBatch)) {
        let all = case.every_plan(&case.wish, &case.fleet);
        let largest = all.iter().map(|plan| plan.batch.micro_batch_size).max();
        let found = case.recommend().ok().map(|found| found.best.batch.micro_batch_size);
        prop_assert_eq!(found, largest);
    }

    /// The same request has the same answer for ever.
    #[test]
    fn answers_are_reproducible(case in any_case(Objective::MinIterationTime)) {
        prop_assert_eq!(case.recommend(), case.recommend());
    }

    /// A limit on time or memory is kept, and the plan is the best of those that keep it.
    #[test]
    fn limits_are_kept(case in any_case(Objective::MinPeakMemory), at in 0.0..1.5_f64) {
        let all = case.every_plan(&case.wish, &case.fleet);
        let Some(fastest) = all.iter().filter_map(|plan| plan.closed_form).reduce(f64::min) else { return Ok(()) };
        let mut limited = case;
        let limit = fastest * (0.7 + at);
        limited.wish.constraints.max_iteration_seconds = Some(limit);
        match limited.recommend() {
            Ok(found) => prop_assert!(found.best.seconds().unwrap() <= limit),
            Err(RecommendError::Limits(text)) => prop_assert!(text.contains("--max-iteration"), "{text}"),
            Err(other) => prop_assert!(false, "{other}"),
        }
    }
}

/// A chain that costs the sum of its layers, on four equal devices.
fn simple(objective: Objective, shape: PlanShape, capacity: u64) -> Case {
    let fleet = Fleet {
        kinds: vec![Kind { name: "gpu".to_owned(), capacity: Bytes(capacity), hourly_price: None }],
        nodes: vec![FleetNode {
            name: "n".to_owned(),
            kind: 0,
            devices: 4,
            inside: link(3),
            outside: link(3),
            domains: Vec::new(),
        }],
        tiers: Vec::new(),
    };
    Case {
        casino: Casino::new(7, 4, 50),
        names: (0..4).map(|layer| format!("layer{layer}")).collect(),
        devices: (0..4).map(|device| format!("n/{device}")).collect(),
        fleet,
        wish: wish(shape, objective, 4),
    }
}

/// What needs times or prices says so before anything is searched.
#[test]
fn objectives_without_their_numbers_are_refused() {
    let mut case = simple(Objective::MinIterationTime, PlanShape::SinglePipeline, 1 << 40);
    case.casino.timed = false;
    assert!(matches!(case.recommend(), Err(RecommendError::NoTimes { .. })));
    case.wish.objective = Objective::MinPeakMemory;
    let found = case.recommend().unwrap();
    assert_eq!((found.best.seconds(), found.best.closed_form), (None, None));
    let unpriced = simple(Objective::MinCost, PlanShape::SinglePipeline, 1 << 40);
    assert!(matches!(unpriced.recommend(), Err(RecommendError::NoPrices { .. })));
}

/// Every rule is weighed by the plan's own prices.
#[test]
fn baselines_stand_beside_the_plan() {
    let found = simple(Objective::MinPeakMemory, PlanShape::SinglePipeline, 1 << 40).recommend().unwrap();
    let names: Vec<&str> = found.compared.iter().map(|one| one.name).collect();
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
    let answer = recommend(&case.casino, &case.scene(), &case.wish, &stop);
    assert!(matches!(answer, Err(RecommendError::Stopped)), "{answer:?}");
}

/// People read which stage lacks how many bytes on which device, and what would fit.
#[test]
fn what_lacks_is_told_with_its_device_and_what_helps() {
    let error = simple(Objective::MinPeakMemory, PlanShape::SinglePipeline, 1).recommend().unwrap_err();
    let RecommendError::NoPlan { lack, device, .. } = &error else { panic!("{error}") };
    assert!(lack.missing().is_some_and(|missing| missing.0 > 0));
    assert!(device.starts_with("n/"), "{device}");
    assert!(error.to_string().contains("too much"), "{error}");
}

/// More stages than layers is no riddle: the answer says what to allow.
#[test]
fn devices_that_cannot_all_be_taken_are_explained() {
    let mut case = simple(Objective::MinPeakMemory, PlanShape::SinglePipeline, 1 << 40);
    case.casino = Casino::new(7, 3, 50);
    (case.names, case.wish.cuts) = (case.names[..3].to_vec(), Cuts::anywhere(3));
    let error = case.recommend().unwrap_err();
    let RecommendError::NoPlan { remedies, .. } = &error else { panic!("{error}") };
    assert!(error.to_string().contains("takes all 4 devices"), "{error}");
    let options: Vec<&str> = remedies.iter().map(|remedy| remedy.option.as_str()).collect();
    assert!(options.contains(&"--allow-idle-devices"), "{options:?}");
    assert!(options.iter().any(|option| option.starts_with("--shape")), "{options:?}");
    case.wish.constraints.allow_idle_devices = true;
    assert!(case.recommend().unwrap().best.devices() <= 3);
}

/// torchrun cannot start three processes here and two there.
#[test]
fn a_launcher_that_needs_equal_nodes_says_so() {
    let mut case = simple(Objective::MinPeakMemory, PlanShape::UniformGrid, 1 << 40);
    let mut smaller = case.fleet.nodes[0].clone();
    smaller.devices = 2;
    case.fleet.nodes.push(smaller);
    case.devices = (0..6).map(|device| format!("d{device}")).collect();
    case.wish.rules = Some(Rules::of(Launcher::Torchtitan));
    let error = case.recommend().unwrap_err();
    assert!(error.to_string().contains("equally many processes"), "{error}");
}
