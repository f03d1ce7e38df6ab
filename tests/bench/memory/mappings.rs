//! How many mappings there are, and how long it takes to list them.

use std::time::{Duration, Instant};

use loadmaster_planning::fleet::mapping::{LinkGraph, Promise, best};

use crate::memory::models::STAGES;
use crate::memory::nodes::{CUBE_MESH, Server};
use crate::memory::report::{Cell, Claim};

/// The goal for listing all mappings, and for finding the best.
const MOST_TIME: Duration = Duration::from_millis(50);

/// Runs of which the median counts.
const RUNS: usize = 5;

pub(crate) fn cells() -> Vec<Cell> {
    let expected =
        [(Server::Dgx1, 10_080, "10,080 classes by its links; found in 47 s"), (Server::Dgx2, 1, "1 class")];
    let mut cells: Vec<Cell> = expected
        .into_iter()
        .map(|(server, classes, published)| {
            let graph = server.node().graph();
            let (found, took) = timed(|| graph.classes(STAGES).map_or(0, |classes| classes.len()));
            Cell {
                what: format!("Mappings of 8 stages, {}", server.name()),
                ours: format!("{found} in {:.1} ms", took.as_secs_f64() * 1e3),
                published: published.to_owned(),
                claim: Claim::Goal(found == classes),
                took,
                within: Some(MOST_TIME),
            }
        })
        .collect();
    // Every link different, every mapping valued by a sum over links: all of 8!.
    let odd = LinkGraph::new(&[(); STAGES], |from, to| from * STAGES + to);
    let value =
        |mapping: &[usize]| mapping.windows(2).map(|pair| f64::from(10 - CUBE_MESH[pair[0]][pair[1]])).sum();
    let promise = |mapping: &[usize]| Promise { bound: value(mapping), guess: 0.0 };
    let (found, took) = timed(|| best(&odd, STAGES, usize::MAX, promise, |mapping| Some(value(mapping))));
    let found = found.map_or((0, false), |found| (found.classes.unwrap_or(0), found.is_exact));
    cells.push(Cell {
        what: "The best of all 8!, all links different".to_owned(),
        ours: format!("{} in {:.1} ms, exact", found.0, took.as_secs_f64() * 1e3),
        published: String::new(),
        claim: Claim::Goal(found == (40_320, true)),
        took,
        within: Some(MOST_TIME),
    });
    cells
}

fn timed<T>(work: impl Fn() -> T) -> (T, Duration) {
    let mut times = Vec::new();
    for _ in 1..RUNS {
        let began = Instant::now();
        let _ = work();
        times.push(began.elapsed());
    }
    let began = Instant::now();
    let result = work();
    times.push(began.elapsed());
    times.sort_unstable();
    (result, times[RUNS / 2])
}
