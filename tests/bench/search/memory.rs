//! Lowest peak memory: mCAP's problem, CAPTURE's, and larger ones that nobody else offers.

use std::time::Duration;

use anyhow::Result;
use loadmaster_planning::search::memory::{Peaks, leximax};
use loadmaster_planning::search::paper::{Bayesian, bayesian, brute_force, capture_choices, enumeration};
use loadmaster_planning::search::{Choice, Ended, Searched, Spanning, Stop, Unit};
use loadmaster_proto::training::Schedule;

use crate::search::chain::{Chain, Flavour};
use crate::search::document::{samples, zoo};
use crate::search::problem::{Devices, Problem};
use crate::search::report::{Reference, Row, median};
use crate::search::stopped::within;

/// A large device, GiB.
const CAPACITY: u64 = 1 << 50;

/// mCAP's: AmoebaNet-D(36, 544), one device per stage.
pub(crate) fn mcap(runs: usize, quick: bool) -> Result<Vec<Row>> {
    let (cells, filters) = if quick { (6, 32) } else { (36, 544) };
    let document = zoo(cells, filters)?;
    let problem = Problem::new(&document, &devices(1, 4, Spanning::Never), vec![Choice::SINGLE])?;
    let mut row = timed(&problem, runs, format!("AmoebaNet-D({cells}, {filters}) on 4 devices"));
    row.goal = Some(1e-3);
    row.references.push(beside(&problem, "mCAP's brute force (paper: 99.5 s)", |problem, stop| {
        problem.ask(Schedule::Gpipe, |question| brute_force(question, Unit::Bytes, stop))
    }));
    row.references.push(beside(&problem, "mCAP's Bayesian optimisation (paper: 38.8 s)", |problem, stop| {
        problem.ask(Schedule::Gpipe, |question| bayesian(question, Unit::Bytes, &Bayesian::default(), stop))
    }));
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
        let mut row =
            timed(&problem, runs, format!("{} on {} devices, 8 per node{whole}", chain.name, nodes * 8));
        row.goal = goal;
        row.references.push(beside(&problem, "CAPTURE's enumeration with pruning", |problem, stop| {
            problem.ask(Schedule::Gpipe, |question| enumeration(question, Unit::Bytes, stop))
        }));
        rows.push(row);
    }
    Ok(rows)
}

fn devices(nodes: u32, per_node: u32, spanning: Spanning) -> Devices {
    Devices { nodes, spanning, capacity: CAPACITY, ..Devices::one_node(per_node) }
}

fn timed(problem: &Problem, runs: usize, name: String) -> Row {
    let search = || problem.ask(Schedule::Gpipe, |question| leximax(question, Unit::Bytes, &Stop::default()));
    let (found, seconds) = median(runs, search);
    let value = highest(&found);
    // A bound on the list of peaks: its first one is a bound on the highest.
    let bound = found.bound.as_ref().and_then(Peaks::highest).map(|peak| peak as f64);
    let is_proven = found.ended == Ended::Proven;
    Row {
        problem: name,
        seconds,
        states: found.states,
        value,
        bound: bound.filter(|_| !is_proven),
        references: Vec::new(),
        goal: None,
    }
}

fn beside(
    problem: &Problem,
    what: &str,
    search: impl FnOnce(&Problem, &Stop) -> Searched<Peaks>,
) -> Reference {
    let (found, took) = within(Duration::from_secs(10), |stop| search(problem, stop));
    let value = highest(&found).filter(|_| found.ended != Ended::Stopped);
    Reference { what: what.to_owned(), value, took: took.unless(found.ended == Ended::Stopped) }
}

fn highest(found: &Searched<Peaks>) -> Option<f64> {
    found.best.as_ref().and_then(|best| best.value.highest()).map(|peak| peak as f64)
}
