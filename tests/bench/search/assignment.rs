//! AMP's layer assignment (equation 5) and Alpa's objective, on the problems whose optima are published.

use anyhow::Result;
use loadmaster_planning::search::time::{Limits, fastest};
use loadmaster_planning::search::{Choice, Spanning, Stop};
use loadmaster_proto::training::Schedule;

use crate::search::chain::{Chain, Flavour};
use crate::search::document::{BYTES_PER_VOLUME, shared_layers, whole_layers};
use crate::search::problem::{Devices, Problem, powers_of_two, shards};
use crate::search::published::Published;
use crate::search::report::{Reference, Row, Took, median};

/// AMP's equation 5 with k stages of one device each.
pub(crate) fn amp(published: &Published, runs: usize, quick: bool) -> Result<Vec<Row>> {
    let all =
        [(24, 4), (24, 8), (24, 16), (48, 4), (48, 8), (48, 16), (96, 8), (96, 64), (200, 8), (200, 64)];
    let sizes = if quick { &all[..4] } else { &all[..] };
    let mut rows = Vec::new();
    for flavour in [Flavour::Chain, Flavour::Het] {
        for &(layers, k) in sizes {
            let chain = Chain::of(flavour, layers);
            let document = whole_layers(&chain)?;
            // Activations go there and their gradients come back.
            let bytes_per_second = 2.0 * BYTES_PER_VOLUME / chain.p2p_seconds_per_unit;
            let devices = Devices { bytes_per_second, ..Devices::one_node(k) };
            let problem = Problem::new(&document, &devices, vec![Choice::SINGLE])?;
            let mut row = timed(&problem, runs, format!("AMP eq. 5, {} k={k}", chain.name));
            row.goal = match (layers, k) {
                (48, _) => Some(1e-3),
                (200, 64) => Some(0.2),
                _ => None,
            };
            let optimum = published.amp(flavour, layers, k as usize);
            row.references.push(Reference {
                what: "exact optimum, another program (published)".to_owned(),
                value: optimum,
                took: Took::Unknown,
            });
            rows.push(row);
        }
    }
    Ok(rows)
}

/// Alpa's objective: Σ + (B − 1) · max over stages of 1, 2, 4, 8, 16, … devices on hosts of 8.
pub(crate) fn alpa(published: &Published, runs: usize, quick: bool) -> Result<Vec<Row>> {
    let all = [(24, 4), (24, 8), (24, 16), (24, 64), (48, 8), (48, 16), (48, 64), (96, 64)];
    let sizes = if quick { &all[..3] } else { &all[..] };
    let mut rows = Vec::new();
    for flavour in [Flavour::Chain, Flavour::Het] {
        for &(layers, count) in sizes {
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
            let mut row = timed(&problem, runs, format!("Alpa's objective, {} {count} devices", chain.name));
            row.goal = match (layers, count) {
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
            row.references.push(Reference {
                what: "Alpa's own program; the optimum (published)".to_owned(),
                value: published.alpa(flavour, layers, count),
                took,
            });
            rows.push(row);
        }
    }
    Ok(rows)
}

fn timed(problem: &Problem, runs: usize, name: String) -> Row {
    let search = || {
        problem.ask(Schedule::OneFOneB, |question| fastest(question, &Limits::default(), &Stop::default()))
    };
    let (found, seconds) = median(runs, search);
    let value = found.best.as_ref().map(|best| best.value.0);
    let bound = found
        .bound
        .map(|bound| bound.0)
        .filter(|&bound| value.is_some_and(|value| value > bound * (1.0 + 1e-9)));
    Row { problem: name, seconds, states: found.states, value, bound, references: Vec::new(), goal: None }
}
