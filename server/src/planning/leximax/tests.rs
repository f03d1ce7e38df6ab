//! The search against brute force over all C(L−1, G−1) partitionings.

use std::cmp::Reverse;

use proptest::prelude::*;

use super::*;

/// A cost for every (stage, first, last), as a table.
#[derive(Debug, Clone)]
struct Problem {
    layers: usize,
    capacities: Vec<u64>,
    costs: Vec<u64>,
}

impl Problem {
    fn cost(&self, stage: usize, first: usize, last: usize) -> u64 {
        self.costs[(stage * self.layers + first) * self.layers + last]
    }

    fn balance(&self) -> Result<Balanced, Infeasible> {
        balance(self.layers, &self.capacities, |stage, first, last| self.cost(stage, first, last))
    }

    /// All partitionings as sizes, in the order of the tie rule.
    fn all(&self) -> Vec<Vec<usize>> {
        fn extend(sizes: &mut Vec<usize>, layers: usize, stages: usize, all: &mut Vec<Vec<usize>>) {
            if stages == 1 {
                all.push([sizes.as_slice(), &[layers]].concat());
                return;
            }
            for size in 1..=layers + 1 - stages {
                sizes.push(size);
                extend(sizes, layers - size, stages - 1, all);
                sizes.pop();
            }
        }
        let mut all = Vec::new();
        extend(&mut Vec::new(), self.layers, self.capacities.len(), &mut all);
        all
    }

    fn peaks(&self, sizes: &[usize]) -> Vec<u64> {
        let mut first = 0;
        let stages = sizes.iter().enumerate().map(|(stage, size)| {
            let peak = self.cost(stage, first, first + size - 1);
            first += size;
            peak
        });
        stages.collect()
    }

    fn excess(&self, sizes: &[usize]) -> Vec<u64> {
        self.peaks(sizes)
            .iter()
            .zip(&self.capacities)
            .map(|(peak, most)| peak.saturating_sub(*most))
            .collect()
    }

    /// The first of the leximax-smallest allowed partitionings.
    fn brute_force(&self) -> Option<Vec<usize>> {
        let fits = |sizes: &Vec<usize>| self.excess(sizes).iter().all(|&excess| excess == 0);
        self.all().into_iter().filter(fits).min_by_key(|sizes| sorted(self.peaks(sizes)))
    }
}

fn sorted(mut peaks: Vec<u64>) -> Vec<u64> {
    peaks.sort_unstable_by_key(|&peak| Reverse(peak));
    peaks
}

/// Costs without any order, out of few values so that ties abound, with capacities that often bite.
fn problems() -> impl Strategy<Value = Problem> {
    (1_usize..=9, 1_usize..=5, prop_oneof![Just(2_u64), Just(4), Just(1_000_000)]).prop_flat_map(
        |(layers, stages, values)| {
            let stages = stages.min(layers);
            let capacities = prop_oneof![
                Just(vec![u64::MAX; stages]),
                proptest::collection::vec(0..=values, stages),
                proptest::collection::vec(values / 2..=values, stages),
            ];
            let costs = proptest::collection::vec(0..=values, stages * layers * layers);
            (capacities, costs).prop_map(move |(capacities, costs)| Problem { layers, capacities, costs })
        },
    )
}

/// Sums of layers, as memory nearly is, with a share that depends on the position as under 1F1B.
fn additive_problems() -> impl Strategy<Value = Problem> {
    (2_usize..=10, 1_usize..=5, 1_u64..6).prop_flat_map(|(layers, stages, values)| {
        let stages = stages.min(layers);
        let capacity = 0..=values * layers as u64;
        (
            proptest::collection::vec(0..=values, layers),
            proptest::collection::vec(0..=values, layers),
            proptest::collection::vec(capacity, stages),
        )
            .prop_map(move |(fixed, per_flight, capacities)| {
                let mut costs = vec![0; stages * layers * layers];
                for stage in 0..stages {
                    for first in 0..layers {
                        for last in first..layers {
                            let in_flight = (stages - stage) as u64;
                            costs[(stage * layers + first) * layers + last] =
                                (first..=last).map(|k| fixed[k] + in_flight * per_flight[k]).sum();
                        }
                    }
                }
                Problem { layers, capacities, costs }
            })
    })
}

/// What every answer must be, found by looking at all partitionings.
fn check(problem: &Problem) -> Result<(), TestCaseError> {
    let found = problem.balance();
    if let Some(expected) = problem.brute_force() {
        let found = found.unwrap();
        prop_assert_eq!(found.partitioning.sizes(), expected.as_slice());
        prop_assert_eq!(found.peaks, problem.peaks(&expected).into_iter().map(Bytes).collect::<Vec<_>>());
        return Ok(());
    }
    let stage_excess = |sizes: &[usize], layer: usize| {
        let mut end = 0;
        let stage = sizes.iter().position(|size| {
            end += size;
            layer < end
        });
        problem.excess(sizes)[stage.unwrap()]
    };
    let all = problem.all();
    // Per layer, the least excess of a stage that holds it in any partitioning.
    let least: Vec<u64> = (0..problem.layers)
        .map(|layer| all.iter().map(|sizes| stage_excess(sizes, layer)).min().unwrap())
        .collect();
    let can_be_alone = |layer: usize| {
        all.iter().any(|sizes| {
            let mut first = 0;
            sizes.iter().any(|&size| {
                first += size;
                size == 1 && first == layer + 1
            })
        })
    };
    let alone = || (0..problem.layers).filter(|&layer| can_be_alone(layer));
    match found.unwrap_err() {
        Infeasible::LayerTooLarge { layer, first, last, device, needed, capacity } => {
            prop_assert!(can_be_alone(layer) && (first..=last).contains(&layer));
            prop_assert_eq!(needed.0, problem.cost(device, first, last));
            prop_assert_eq!(capacity.0, problem.capacities[device]);
            prop_assert_eq!(needed.0 - capacity.0, least[layer]);
            prop_assert_eq!(least[layer], alone().map(|layer| least[layer]).max().unwrap());
        }
        Infeasible::NoPartitioning { best, device, needed, capacity } => {
            prop_assert!(alone().all(|layer| least[layer] == 0));
            let excess = |sizes: &Vec<usize>| sorted(problem.excess(sizes));
            prop_assert_eq!(excess(&best.sizes()), all.iter().map(excess).min().unwrap());
            prop_assert_eq!(needed.0, problem.peaks(&best.sizes())[device]);
            prop_assert_eq!(needed.0 - capacity.0, excess(&best.sizes())[0]);
        }
        other => prop_assert!(false, "{other:?}"),
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1_500))]

    /// The answer is the leximax optimum under the tie rule, or the smallest violation.
    #[test]
    fn arbitrary_costs_agree_with_brute_force(problem in problems()) {
        check(&problem)?;
    }

    /// The same for costs shaped like memory.
    #[test]
    fn costs_that_add_up_agree_with_brute_force(problem in additive_problems()) {
        check(&problem)?;
    }
}

/// A margin decides what fits and not what is best: the even cut needs more than the devices have, the
/// best of the others is taken, and reasons are told in bytes needed.
#[test]
fn what_must_fit_may_be_more_than_what_is_compared() {
    let cost = sums(&[4, 4, 4, 4]);
    let needed = |stage: usize, first: usize, last: usize| {
        cost(stage, first, last) + if (first, last) == (0, 1) { 10 } else { 1 }
    };
    let best = balance_within(4, &[13, 13], &cost, needed).unwrap();
    assert_eq!((best.partitioning.sizes(), best.peaks), (vec![1, 3], vec![Bytes(4), Bytes(12)]));
    let error = balance_within(4, &[12, 12], &cost, needed).unwrap_err();
    assert_eq!(error.missing(), Some(Bytes(1)));
}

fn sums(layers: &[u64]) -> impl Fn(usize, usize, usize) -> u64 {
    |_, first, last| layers[first..=last].iter().sum()
}

/// Leximax where the paper's tie rule stops: [10, 9, 9] before [10, 10, 1].
#[test]
fn the_second_highest_peak_decides_between_equal_highest_ones() {
    let costs = |_: usize, first: usize, last: usize| match (first, last) {
        (0, 0) | (1, 1) => 10,
        (0, 1) => 10,
        (2, 2) => 9,
        (3, 3) => 9,
        (2, 3) => 1,
        _ => 99,
    };
    let best = balance(4, &[u64::MAX; 3], costs).unwrap();
    assert_eq!(best.peaks, [Bytes(10), Bytes(9), Bytes(9)]);
}

/// Equal vectors: the smallest first stage, then the smallest second one.
#[test]
fn ties_go_to_the_earliest_cuts() {
    let best = balance(5, &[u64::MAX; 3], |_, _, _| 7).unwrap();
    assert_eq!(best.partitioning.sizes(), [1, 1, 3]);
}

#[test]
fn a_layer_that_fits_nowhere_is_named_with_the_bytes_that_it_lacks() {
    let error = balance(3, &[10, 12, 9], sums(&[1, 20, 1])).unwrap_err();
    let (needed, capacity) = (Bytes(20), Bytes(12));
    assert_eq!(error, Infeasible::LayerTooLarge { layer: 1, first: 1, last: 1, device: 1, needed, capacity });
    assert_eq!(error.missing(), Some(Bytes(8)));
    assert_eq!(
        error.to_string(),
        "layer 1 fits on no device: layers 1 to 1 on device 1 need 20 B of 12 B, 8 B too much"
    );
}

#[test]
fn the_best_peak_and_the_missing_bytes_are_named_where_only_the_sum_is_too_large() {
    let error = balance(4, &[10, 10], sums(&[6, 6, 6, 6])).unwrap_err();
    assert_eq!(
        error.to_string(),
        "no partitioning fits: the best one (2-2) needs 12 B of 10 B on device 0, 2 B too much"
    );
}

#[test]
fn more_stages_than_layers_and_no_stage_are_refused() {
    for (layers, stages) in [(2, 3), (2, 0), (0, 0)] {
        let error = balance(layers, &vec![u64::MAX; stages], |_, _, _| 0).unwrap_err();
        assert_eq!(error, Infeasible::MoreStagesThanLayers { stages, layers });
    }
}

/// Exact and quick for large pipelines: 200 layers on 64 devices take far below a second when
/// optimised, so that even unoptimised tests stay bearable.
#[test]
fn a_large_pipeline_is_searched_in_no_time() {
    let layers: Vec<u64> = (0..200_u64).map(|k| 1_000 + k.wrapping_mul(2_654_435_761) % 997).collect();
    let sum = sums(&layers);
    let started = std::time::Instant::now();
    let best = balance(200, &[u64::MAX; 64], |stage, first, last| {
        sum(stage, first, last) * (64 - stage as u64).min(12)
    })
    .unwrap();
    let elapsed = started.elapsed();
    assert_eq!(best.partitioning.layer_count(), 200);
    let most = if cfg!(debug_assertions) { 20 } else { 1 };
    assert!(elapsed.as_secs() < most, "{elapsed:?}");
}
