//! Lowest peak memory, layer assignments and fronts: the problems of mCAP, CAPTURE, AMP and Alpa, and larger ones.

use std::time::Duration;

use anyhow::Result;
use loadmaster_proto::training::{RecomputePolicy, Schedule};
use loadmaster_search::memory::{Peaks, leximax};
use loadmaster_search::paper::{Bayesian, bayesian, brute_force, capture_choices, enumeration};
use loadmaster_search::pareto::front;
use loadmaster_search::time::{Limits, fastest};
use loadmaster_search::{Choice, Ended, Searched, Spanning, Stop, Unit};

use crate::search::problem::{
    BYTES_PER_VOLUME, Chain, Devices, Flavour, Problem, powers_of_two, samples, shards, shared_layers,
    whole_layers, zoo,
};
use crate::search::report::{Row, Took, within};
use crate::stats::timed;

/// A large device, GiB.
const CAPACITY: u64 = 1 << 50;

/// mCAP's: AmoebaNet-D(36, 544), one device per stage.
pub(crate) fn mcap(runs: usize, quick: bool) -> Result<Vec<Row>> {
    let (cells, filters) = if quick { (6, 32) } else { (36, 544) };
    let document = zoo(cells, filters)?;
    let problem = Problem::new(&document, &devices(1, 4, Spanning::Never), vec![Choice::SINGLE])?;
    let row = lowest(&problem, runs, format!("AmoebaNet-D({cells}, {filters}) on 4 devices")).goal(1e-3);
    let row = beside(row, &problem, "mCAP's brute force (paper: 99.5 s)", |problem, stop| {
        problem.ask(Schedule::Gpipe, |question| brute_force(question, Unit::Bytes, stop))
    });
    let row = beside(row, &problem, "mCAP's Bayesian optimisation (paper: 38.8 s)", |problem, stop| {
        problem.ask(Schedule::Gpipe, |question| bayesian(question, Unit::Bytes, &Bayesian::default(), stop))
    });
    Ok(vec![row])
}

/// CAPTURE's: data- or tensor-parallel stages on nodes of 8, leximax over all devices.
pub(crate) fn capture(runs: usize, quick: bool) -> Result<Vec<Row>> {
    let sizes: &[(usize, u32, Spanning, Option<f64>)] = if quick {
        &[(12, 1, Spanning::Never, None)]
    } else {
        &[
            (24, 1, Spanning::Never, None),
            (96, 8, Spanning::Never, Some(0.02)),
            // 96 stages of at most 8 devices cannot use 1,024: the answer is that there is no plan.
            (96, 128, Spanning::Never, Some(1.0)),
            (96, 128, Spanning::WholeNodes, Some(1.0)),
            (200, 8, Spanning::Never, Some(0.05)),
        ]
    };
    let mut rows = Vec::new();
    for &(layers, nodes, spanning, goal) in sizes {
        let chain = Chain::of(Flavour::Chain, layers);
        let most = if spanning == Spanning::Never { 8 } else { 64 };
        let document = samples(&chain, most)?;
        let choices = capture_choices(most);
        let problem = Problem::new(&document, &devices(nodes, 8, spanning), choices)?;
        let whole = if spanning == Spanning::Never { "" } else { ", stages of whole nodes allowed" };
        let name = format!("{} on {} devices, 8 per node{whole}", chain.name, nodes * 8);
        let row = lowest(&problem, runs, name).goal(goal);
        rows.push(beside(row, &problem, "CAPTURE's enumeration with pruning", |problem, stop| {
            problem.ask(Schedule::Gpipe, |question| enumeration(question, Unit::Bytes, stop))
        }));
    }
    Ok(rows)
}

fn devices(nodes: u32, per_node: u32, spanning: Spanning) -> Devices {
    Devices { nodes, spanning, capacity: CAPACITY, ..Devices::one_node(per_node) }
}

fn lowest(problem: &Problem, runs: usize, name: String) -> Row {
    let search = || problem.ask(Schedule::Gpipe, |question| leximax(question, Unit::Bytes, &Stop::default()));
    let (found, seconds) = timed(runs, search);
    let value = highest(&found);
    // A bound on the list of peaks: its first one is a bound on the highest.
    let bound = found.bound.as_ref().and_then(Peaks::highest).map(|peak| peak as f64);
    let is_proven = found.ended == Ended::Proven;
    Row::new(name, seconds, found.states, value, bound.filter(|_| !is_proven))
}

/// A row beside another search of ten seconds at most.
fn beside(
    row: Row,
    problem: &Problem,
    what: &str,
    search: impl FnOnce(&Problem, &Stop) -> Searched<Peaks>,
) -> Row {
    let (found, seconds) = within(Duration::from_secs(10), |stop| search(problem, stop));
    match found.ended {
        Ended::Stopped => row.beside(format!("{what}, not finished"), None, Took::Here(seconds)),
        _ => row.beside(what, highest(&found), Took::Here(seconds)),
    }
}

fn highest(found: &Searched<Peaks>) -> Option<f64> {
    found.best.as_ref().and_then(|best| best.value.highest()).map(|peak| peak as f64)
}

/// Layers, devices, and the optima of both flavours, which another program found exactly.
type Optima = (usize, u32, [Option<f64>; 2]);

const AMP: [Optima; 10] = [
    (24, 4, [Some(333.309_052), Some(240.400_411)]),
    (24, 8, [Some(188.277_617), Some(151.236_479)]),
    (24, 16, [Some(127.973_645), Some(156.140_973)]),
    (48, 4, [Some(637.342_902), Some(552.613_261)]),
    (48, 8, [Some(369.590_379), Some(349.518_554)]),
    (48, 16, [Some(224.301_828), Some(218.811_421)]),
    (96, 8, [Some(716.443_015), Some(674.755_103)]),
    (96, 64, [Some(238.194_081), Some(295.963_163)]),
    (200, 8, [Some(1_468.059_999), Some(1_373.170_799)]),
    (200, 64, [Some(468.248_099), Some(488.576_724)]),
];

const ALPA: [Optima; 8] = [
    (24, 4, [Some(321.550_202), Some(226.774_847)]),
    (24, 8, [Some(174.022_046), Some(122.376_374)]),
    (24, 16, [Some(94.362_546), Some(68.179_689)]),
    (24, 64, [Some(29.698_553), Some(22.416_998)]),
    (48, 8, [Some(339.743_175), Some(295.780_666)]),
    (48, 16, [Some(185.013_18), Some(161.238_097)]),
    (48, 64, [Some(58.267_952), Some(52.162_94)]),
    (96, 64, [None, None]),
];

/// Each of these problems in both flavours.
fn in_both(sizes: &[Optima]) -> impl Iterator<Item = (Flavour, usize, u32, Option<f64>)> {
    let both = [(Flavour::Chain, 0), (Flavour::Het, 1)];
    both.into_iter().flat_map(|(flavour, index)| {
        sizes.iter().map(move |&(layers, devices, optima)| (flavour, layers, devices, optima[index]))
    })
}

/// AMP's equation 5 with k stages of one device each.
pub(crate) fn amp(runs: usize, quick: bool) -> Result<Vec<Row>> {
    let row = |(flavour, layers, k, optimum)| {
        let chain = Chain::of(flavour, layers);
        let document = whole_layers(&chain)?;
        // Activations go there and their gradients come back.
        let bytes_per_second = 2.0 * BYTES_PER_VOLUME / chain.p2p_seconds_per_unit;
        let devices = Devices { bytes_per_second, ..Devices::one_node(k) };
        let problem = Problem::new(&document, &devices, vec![Choice::SINGLE])?;
        let goal = match (layers, k) {
            (48, _) => Some(1e-3),
            (200, 64) => Some(0.2),
            _ => None,
        };
        let what = "exact optimum, another program (published)";
        let row = fastest_of(&problem, runs, format!("AMP eq. 5, {} k={k}", chain.name)).goal(goal);
        Ok(row.beside(what, optimum, Took::Unknown))
    };
    in_both(if quick { &AMP[..4] } else { &AMP }).map(row).collect()
}

/// Alpa's objective: Σ + (B − 1) · max over stages of 1, 2, 4, 8, 16, … devices on hosts of 8.
pub(crate) fn alpa(runs: usize, quick: bool) -> Result<Vec<Row>> {
    let row = |(flavour, layers, count, optimum)| {
        let chain = Chain::of(flavour, layers);
        let document = shared_layers(&chain, count)?;
        let devices = Devices {
            nodes: count.div_ceil(8),
            per_node: count.min(8),
            // Its program counts devices and leaves their places to later.
            spanning: Spanning::Anywhere,
            ..Devices::one_node(count)
        };
        let choices = powers_of_two(count).map(shards).collect();
        let problem = Problem::new(&document, &devices, choices)?;
        let goal = match (layers, count) {
            (48, 64) => Some(0.04),
            (96, 64) => Some(0.7),
            _ => None,
        };
        // Its own program, numba, on comparable cores (training_dp_2).
        let took = match (flavour, layers, count) {
            (Flavour::Chain, 48, 64) => Took::Published(8.11),
            (Flavour::Chain, 96, 64) => Took::Published(279.0),
            _ => Took::Unknown,
        };
        let what = "Alpa's own program; the optimum (published)";
        let name = format!("Alpa's objective, {} {count} devices", chain.name);
        Ok(fastest_of(&problem, runs, name).goal(goal).beside(what, optimum, took))
    };
    in_both(if quick { &ALPA[..3] } else { &ALPA }).map(row).collect()
}

fn fastest_of(problem: &Problem, runs: usize, name: String) -> Row {
    let search = || {
        problem.ask(Schedule::OneFOneB, |question| fastest(question, &Limits::default(), &Stop::default()))
    };
    let (found, seconds) = timed(runs, search);
    let value = found.best.as_ref().map(|best| best.value.0);
    let bound = found
        .bound
        .map(|bound| bound.0)
        .filter(|&bound| value.is_some_and(|value| value > bound * (1.0 + 1e-9)));
    Row::new(name, seconds, found.states, value, bound)
}

/// Fronts of chains on nodes of 8; the value is the number of points.
pub(crate) fn fronts(runs: usize, quick: bool) -> Result<Vec<Row>> {
    let (layers, nodes) = if quick { (8, 1) } else { (48, 8) };
    let mut rows = Vec::new();
    for flavour in [Flavour::Chain, Flavour::Het] {
        let chain = Chain::of(flavour, layers);
        let document = samples(&chain, 8)?;
        let devices = Devices {
            nodes,
            per_node: 8,
            capacity: 1 << 50,
            spanning: Spanning::Never,
            bytes_per_second: 12.5e9,
        };
        let recompute = RecomputePolicy::None;
        let grid = Choice { recompute, ..Choice::SINGLE }.resized(2, 4);
        let every: Vec<Choice> = powers_of_two(8)
            .flat_map(|data| {
                powers_of_two(8 / data).map(move |tensor| Choice {
                    data,
                    tensor,
                    recompute,
                    ..Choice::SINGLE
                })
            })
            .collect();
        for (choices, name) in
            [(vec![grid], "one grid of data 2 × tensor 4"), (every, "any data and tensor degree per stage")]
        {
            let problem = Problem::new(&document, &devices, choices)?;
            for (schedule, order) in [(Schedule::Gpipe, "GPipe"), (Schedule::OneFOneB, "1F1B")] {
                let search =
                    || problem.ask(schedule, |question| front(question, Unit::Bytes, &Stop::default()));
                let (found, seconds) = timed(runs.min(3), search);
                rows.push(
                    Row::new(
                        format!("{}, {} devices, {order}, {name}: points", chain.name, nodes * 8),
                        seconds,
                        found.states,
                        Some(found.points.len() as f64),
                        (found.ended != Ended::Proven).then_some(f64::NAN),
                    )
                    .goal(Some(1.0)),
                );
            }
        }
    }
    Ok(rows)
}
