//! Nodes whose links are unlike: answers held against all partitions on all orders of all devices.

use loadmaster_oracle::Placed;
use loadmaster_proto::training::stage::Partitioning;
use proptest::sample::Index;

use super::*;
use crate::fixed_partition::named_stages;
use loadmaster_search::UnlikeLinks;

const CAPACITY: u64 = 1 << 20;

/// First and last layer of a stage, and how many devices it has.
type Sizes = Vec<(usize, usize, usize)>;

/// All plans that fit: stages, and seconds; those alone that take nodes one behind the other, or all.
fn every_plan(case: &Case, are_in_order: bool) -> Vec<(Sizes, f64)> {
    let mut plans = Vec::new();
    case.oracle().each(|plan, seconds| {
        if !are_in_order || plan.devices.is_sorted_by_key(|device| device.node) {
            let sizes = |placed: &Placed| (placed.stage.first, placed.stage.last, placed.stage.devices());
            plans.push((plan.stages.iter().map(sizes).collect(), seconds));
        }
    });
    plans
}

fn fastest(plans: &[(Sizes, f64)]) -> f64 {
    plans.iter().map(|plan| plan.1).fold(f64::INFINITY, f64::min)
}

/// The simulated seconds of a plan, which the oracle has, too.
fn seconds(case: &Case, plan: &Candidate) -> f64 {
    let (seconds, _) = case.oracle().weighed(plan);
    assert!(!differ(plan.simulated.unwrap(), seconds), "{seconds}: {plan:?}");
    seconds
}

/// A node of devices of which each pair has a speed of its own.
fn unlike_node(index: usize, (devices, speeds, outside): &(u32, Vec<u32>, u32)) -> FleetNode {
    let speed = |a: u32, b: u32| {
        let (low, high) = (a.min(b), a.max(b));
        speeds[(high * (high - 1) / 2 + low) as usize]
    };
    let pairs = (devices * (devices - 1) / 2) as usize;
    let slowest = speeds[..pairs].iter().copied().min().unwrap_or(9);
    let unlike = UnlikeLinks::of(*devices, |a, b| link(speed(a, b)));
    FleetNode { unlike, ..node(format!("node{index}"), (0, *devices), (slowest, *outside)) }
}

/// Requests about devices of one or two such nodes.
fn unlike_cases(objective: Objective) -> impl Strategy<Value = Case> {
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
            let mut criteria = criteria(PlanShape::SinglePipeline, objective, layers);
            criteria.constraints.allow_idle_devices = may_idle;
            criteria.batches = vec![Batch { micro_batch_size: 2, micro_batches: 3 }];
            criteria.schedules = schedules;
            criteria.overlap = if blocks { Overlap::Nothing } else { Overlap::Computing };
            (criteria.keeps_order, criteria.alternatives, criteria.brief) = (false, 1, true);
            let kind = Kind { name: "kind".to_owned(), capacity: Bytes(capacity), hourly_price: Some(1.0) };
            let nodes: Vec<FleetNode> =
                nodes.iter().enumerate().map(|(index, drawn)| unlike_node(index, drawn)).collect();
            case(Casino { slowness, ..Casino::new(seed, layers, sides) }, fleet(vec![kind], nodes), criteria)
        },
    )
}

proptest! {
    #![proptest_config(cases(150))]

    /// No stages on no devices are faster, and that is proven.
    #[test]
    fn the_fastest_plan_is_on_the_best_devices(case in unlike_cases(Objective::MinIterationTime)) {
        check_answer(&case)?;
    }

    /// Stages of several devices may change places, too: no bound is above what some order reaches, and no plan is reported
    /// as faster than it is.
    #[test]
    fn replicas_are_bounded_wherever_they_are(mut case in unlike_cases(Objective::MinIterationTime)) {
        case.criteria.shape = PlanShape::PerStageReplicas;
        case.criteria.batches = vec![Batch { micro_batch_size: 4, micro_batches: 2 }];
        let plans = every_plan(&case, false);
        match case.recommend() {
            Ok(found) => {
                let (seconds, least) = (seconds(&case, &found.best), fastest(&plans));
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
        mut case in unlike_cases(Objective::MinDevices), is_peak in any::<bool>(), rank in 0_usize..100,
    ) {
        if is_peak {
            case.criteria.objective = Objective::MinPeakMemory;
        }
        let mut all: Vec<f64> = every_plan(&case, false).into_iter().map(|plan| plan.1).collect();
        all.sort_by(f64::total_cmp);
        let Some(&limit) = all.get(rank * all.len() / 100) else { return Ok(()) };
        let limit = limit * (1.0 + 1e-9);
        case.criteria.constraints.max_iteration_seconds = Some(limit);
        let found = case.recommend();
        prop_assert!(found.is_ok(), "{limit}: {found:?}");
        let found = found.unwrap();
        prop_assert!(seconds(&case, &found.best) <= limit);
        prop_assert!(found.certificate.proven, "{:?}", found.certificate);
        let truth = case.truth();
        if is_peak {
            prop_assert_eq!(Some(case.oracle().weighed(&found.best).1), truth.peaks);
        } else {
            prop_assert_eq!(Some(f64::from(found.best.devices())), truth.best);
        }
    }

    /// Layers are on the devices that they are pinned to, and the others on the best of what is left.
    #[test]
    fn pinned_layers_stay_on_their_devices(
        mut case in unlike_cases(Objective::MinIterationTime), layer in 0_usize..5, device in 0_u32..6,
    ) {
        let pin = Pin { layer: layer % case.casino.layers, device: (device % case.fleet.devices()) as usize };
        case.criteria.cuts.pin(pin);
        let plans = every_plan(&case, false);
        match case.recommend() {
            Ok(found) => {
                let own = found.best.stages.iter().find(|of| (of.first..=of.last).contains(&pin.layer));
                prop_assert_eq!(&own.unwrap().devices, &vec![pin.device as u32]);
                let seconds = seconds(&case, &found.best);
                prop_assert!(!differ(seconds, fastest(&plans)), "{seconds} of {}", fastest(&plans));
            }
            Err(error) => prop_assert!(plans.is_empty(), "{error:?}"),
        }
    }

    /// A partitioning that is named is on the devices that are best for it, of those orders that take nodes one by one.
    #[test]
    fn named_stages_are_on_the_best_devices(
        mut case in unlike_cases(Objective::MinIterationTime), are_several in any::<bool>(), which in any::<Index>(),
    ) {
        case.criteria.constraints.allow_idle_devices = false;
        case.criteria.schedules.truncate(1);
        if are_several {
            case.criteria.shape = PlanShape::PerStageReplicas;
            case.criteria.batches = vec![Batch { micro_batch_size: 4, micro_batches: 2 }];
        }
        let mut plans = every_plan(&case, true);
        if plans.is_empty() {
            return Ok(());
        }
        let named = which.get(&plans).0.clone();
        plans.retain(|plan| plan.0 == named);
        let stage = |&(first_layer, last_layer, devices): &(usize, usize, usize)| StageConfig {
            data_degree: devices as u32,
            ..StageConfig::single(first_layer, last_layer)
        };
        let named = Partitioning::new(named.iter().map(stage).collect()).unwrap();
        let found = named_stages(&case.casino, &case.job(), &case.criteria, &named).unwrap();
        let seconds = seconds(&case, &found);
        let least = fastest(&plans);
        prop_assert!(!differ(seconds, least), "{seconds} of {least}: {found:?}");
    }

    /// Less time for less memory, on the best devices everywhere.
    #[test]
    fn fronts_are_of_the_best_devices(case in unlike_cases(Objective::Pareto)) {
        let expected = case.truth().front;
        let Ok(found) = case.recommend() else { return Ok(()) };
        for plan in &found.front {
            let (own, peak) = (seconds(&case, plan), plan.peak_bytes() as f64);
            let is_beaten = expected.iter().any(|&(other, lower)| other < own * (1.0 - 1e-9) && lower <= peak);
            prop_assert!(!is_beaten, "{own} and {peak}: {expected:?}");
        }
        prop_assert!(!differ(found.front[0].simulated.unwrap(), expected[0].0));
    }
}
