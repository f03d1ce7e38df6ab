//! Actions chosen for one stage that lacks memory, in a pipeline whose others do not.

use std::time::{Duration, Instant};

use loadmaster_planning::actions::fastest::{self, Effort, Known};
use loadmaster_planning::actions::{Allowed, LayerBlocks, NodeDevices, Question, StageBlocks, paper};
use loadmaster_planning::iteration::copies::LayerSeconds;
use loadmaster_planning::iteration::{Order, Overlap};
use loadmaster_planning::search::Stop;
use loadmaster_proto::cluster::{CopyLink, Link, LinkOrigin};
use loadmaster_proto::training::actions::Block;

use crate::gaps::Gaps;
use crate::report::{Cell, Claim};

const LAYERS: usize = 48;
/// As many stages as the first one has micro-batches in flight.
const STAGES: usize = 8;
const MICRO_BATCHES: u32 = 32;
/// Shares of what its micro-batches leave that the first stage lacks.
const LACKS: [f64; 4] = [0.2, 0.4, 0.6, 0.8];
/// Runs of which the median counts.
const RUNS: usize = 5;

/// Bytes of what a layer hands on.
const EDGE: u64 = 4_000_000;

/// Exact, and within so long.
const MOST_GAP: f64 = 1e-9;
const MOST_TIME: Duration = Duration::from_millis(10);

/// A layer that keeps so many bytes and goes forward in so many seconds.
fn layer(kept: u64, forward: f64) -> LayerBlocks {
    LayerBlocks {
        seconds: LayerSeconds { forward, backward: 2.0 * forward, again: forward, update: 1e-3 },
        activations: kept,
        input: EDGE,
        versions: 0,
        weights: 60_000_000,
        gradients: 60_000_000,
        optimizer: 120_000_000,
        working: kept / 2,
    }
}

/// Layers of a transformer: an embedding in front of equal blocks.
fn equal(index: usize) -> LayerBlocks {
    if index == 0 { layer(10_000_000, 1e-3) } else { layer(100_000_000, 0.01) }
}

/// Layers of which no two are the same.
fn unlike(index: usize) -> LayerBlocks {
    let by = |step: usize| 0.7 + 0.6 * ((index * step) % LAYERS) as f64 / LAYERS as f64;
    layer((100e6 * by(17)) as u64, 0.01 * by(29))
}

/// Layers of which some are nine times as large or slow as others, and inputs are any part of what layers keep.
fn nine_times(index: usize) -> LayerBlocks {
    let by = |step: usize| ((index * step) % LAYERS) as f64 / LAYERS as f64;
    let kept = 100e6 * (0.2 + 1.6 * by(17));
    let layer = layer(kept as u64, 0.01 * (0.2 + 1.6 * by(29)));
    LayerBlocks { input: (kept * (0.02 + 0.4 * by(11))) as u64, ..layer }
}

/// Layers by their place in a stage.
type Kind = fn(usize) -> LayerBlocks;

/// The stages, the first of which has such layers.
fn stages(of: Kind) -> Vec<StageBlocks> {
    let first = StageBlocks { first_layer: 0, layers: (0..LAYERS).map(of).collect(), fixed: 0 };
    let other = |stage: usize| StageBlocks {
        first_layer: LAYERS + stage - 1,
        layers: vec![layer(100_000_000, 0.01)],
        fixed: 0,
    };
    std::iter::once(first).chain((1..STAGES).map(other)).collect()
}

/// Each of them once where it should be quick.
pub(crate) fn cells(quick: bool, gaps: &Gaps) -> Vec<Cell> {
    let runs = if quick { 1 } else { RUNS };
    // Of models that people train, no two layers of a stage differ by nine times: that is shown besides.
    let kinds: [(&str, Kind, bool); 3] = [
        ("equal layers", equal, true),
        ("no two layers alike", unlike, true),
        ("layers that differ by nine times", nine_times, false),
    ];
    let mut cells = Vec::new();
    for (name, of, is_goal) in kinds {
        let stages = stages(of);
        for lacks in LACKS {
            let kept: u64 = stages[0].layers.iter().map(|layer| layer.activations).sum();
            let lasting: u64 = stages[0].layers.iter().map(LayerBlocks::lasting).sum();
            let capacity = lasting + ((STAGES as u64 * kept) as f64 * (1.0 - lacks)) as u64;
            let link = Link { bytes_per_second: 1e9, latency_seconds: 1e-5, origin: LinkOrigin::Given };
            let node = NodeDevices {
                capacity: vec![capacity; STAGES],
                host: vec![CopyLink::full_duplex(link); STAGES],
                pairs: vec![vec![None; STAGES]; STAGES],
                host_bytes: 0,
                hosts: Vec::new(),
                shared: Vec::new(),
                cores: None,
            };
            let stop = Stop::default();
            let question = Question {
                stages: &stages,
                edge_bytes: &[EDGE; STAGES - 1],
                order: Order::OneFOneB,
                micro_batches: MICRO_BATCHES,
                overlap: Overlap::Computing,
                node: &node,
                reserve: &[],
                allowed: Allowed { recompute: true, host: false, peers: false },
                blocks: &[Block::Activations],
                smallest_block: 0,
                stripes: true,
                mappings: 0,
                stop: &stop,
            };
            let greedy = paper::plan(&question);
            let (mut times, mut gap) = (Vec::new(), f64::INFINITY);
            let mut ours = String::new();
            for _ in 0..runs {
                let began = Instant::now();
                let found = fastest::plan(&question, Known::default(), Effort::All);
                times.push(began.elapsed());
                ours = match found {
                    Ok(plan) => {
                        gap = plan.seconds / plan.bound - 1.0;
                        let over = plan.seconds / plan.untouched_seconds - 1.0;
                        let [over, gap] = [100.0 * over, 100.0 * gap];
                        let greedy = greedy.as_ref().map_or_else(
                            |_| "MPress's finds none".to_owned(),
                            |greedy| format!("MPress's takes {:.3}", greedy.seconds / plan.seconds),
                        );
                        let simulated = plan.simulated;
                        format!("{over:.2} % over untouched, gap {gap:.3} %, {simulated} simulated; {greedy}")
                    }
                    Err(error) => error.to_string(),
                };
            }
            gaps.add("one stage", gap);
            times.sort_unstable();
            let took: Duration = times[runs / 2];
            let (published, claim) = match is_goal {
                true => ("Checkmate: under an hour; goal exact, 10 ms", Claim::Goal(gap <= MOST_GAP)),
                false => ("", Claim::Shown(true)),
            };
            let within = is_goal.then_some(MOST_TIME);
            let what = format!("{name}, lacking {:.0} %", 100.0 * lacks);
            cells.push(Cell { what, ours, published: published.to_owned(), claim, took, within });
        }
    }
    cells
}
