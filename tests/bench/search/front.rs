//! The whole front between memory and time.

use anyhow::Result;
use loadmaster_planning::search::pareto::front;
use loadmaster_planning::search::{Choice, Ended, Spanning, Stop, Unit};
use loadmaster_proto::training::{RecomputePolicy, Schedule};

use crate::search::chain::{Chain, Flavour};
use crate::search::document::samples;
use crate::search::problem::{Devices, Problem, powers_of_two};
use crate::search::report::{Row, median};

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
        let grid = Choice { data: 2, tensor: 4, recompute };
        let every: Vec<Choice> = powers_of_two(8)
            .flat_map(|data| powers_of_two(8 / data).map(move |tensor| Choice { data, tensor, recompute }))
            .collect();
        for (choices, name) in
            [(vec![grid], "one grid of data 2 × tensor 4"), (every, "any data and tensor degree per stage")]
        {
            let problem = Problem::new(&document, &devices, choices)?;
            for (schedule, order) in [(Schedule::Gpipe, "GPipe"), (Schedule::OneFOneB, "1F1B")] {
                let search =
                    || problem.ask(schedule, |question| front(question, Unit::Bytes, &Stop::default()));
                let (found, seconds) = median(runs.min(3), search);
                rows.push(Row {
                    problem: format!("{}, {} devices, {order}, {name}: points", chain.name, nodes * 8),
                    seconds,
                    states: found.states,
                    value: Some(found.points.len() as f64),
                    bound: (found.ended != Ended::Proven).then_some(f64::NAN),
                    references: Vec::new(),
                    goal: Some(1.0),
                });
            }
        }
    }
    Ok(rows)
}
