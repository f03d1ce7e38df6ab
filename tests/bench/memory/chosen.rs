//! Memory actions chosen for one stage, for random pipelines and for the paper's: the gap, and MPress's plan of the same run.

use std::time::Instant;

use loadmaster_memory::actions::optimizer::{self, Effort, Known};
use loadmaster_memory::actions::{
    Allowed, LayerBlocks, NodeDevices, PlanError, Question, StageBlocks, paper,
};
use loadmaster_proto::cluster::{Link, LinkOrigin};
use loadmaster_proto::training::actions::Block;
use loadmaster_search::Stop;
use loadmaster_simulate::copies::LayerSeconds;
use loadmaster_tests::Sampler;

use crate::memory::Scope;
use crate::memory::paper::{Case, PaperModel, STAGES, Server, Ways, node, question};
use crate::report::{Claim, Figure};
use crate::stats::{quantile, timed};

/// Layers of the one stage that lacks memory, in a pipeline whose others do not.
const LAYERS: usize = 48;
const MICRO_BATCHES: u32 = 32;
/// Shares of what its micro-batches leave that the first stage lacks.
const LACKS: [f64; 4] = [0.2, 0.4, 0.6, 0.8];
/// Runs of which the median counts.
const RUNS: usize = 5;

/// Bytes of what a layer hands on.
const EDGE: u64 = 4_000_000;

/// Exact, and within so many seconds.
const MOST_GAP: f64 = 1e-9;
const ONE_STAGE: f64 = 0.01;

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

/// Actions for one stage that lacks memory; each of them once where it should be quick.
pub(crate) fn alone(Scope { is_quick, gaps, .. }: &Scope) -> Vec<Figure> {
    let runs = if *is_quick { 1 } else { RUNS };
    // Of models that people train, no two layers of a stage differ by nine times: that is shown besides.
    let kinds: [(&str, Kind, bool); 3] = [
        ("equal layers", equal, true),
        ("no two layers alike", unlike, true),
        ("layers that differ by nine times", nine_times, false),
    ];
    let mut figures = Vec::new();
    for (name, of, is_goal) in kinds {
        let stages = stages(of);
        for lacks in LACKS {
            let kept: u64 = stages[0].layers.iter().map(|layer| layer.activations).sum();
            let lasting: u64 = stages[0].layers.iter().map(LayerBlocks::lasting).sum();
            let capacity = lasting + ((STAGES as u64 * kept) as f64 * (1.0 - lacks)) as u64;
            let link = Link { bytes_per_second: 1e9, latency_seconds: 1e-5, origin: LinkOrigin::Given };
            let node = node(capacity, link, None);
            let stop = Stop::default();
            let allowed = Allowed { recompute: true, host: false, peers: false };
            let ways = (allowed, &[Block::Activations][..]);
            let question = question((&stages, &[EDGE; STAGES - 1]), MICRO_BATCHES, &node, ways, &stop);
            let greedy = paper::plan(&question);
            let (found, took) = timed(runs, || optimizer::plan(&question, Known::default(), Effort::All));
            let mut gap = f64::INFINITY;
            let ours = match found {
                Ok(plan) => {
                    gap = plan.seconds / plan.bound - 1.0;
                    let over = plan.seconds / plan.untouched_seconds - 1.0;
                    let [over, gap] = [100.0 * over, 100.0 * gap];
                    let greedy = greedy.map_or_else(
                        |_| "MPress's finds none".to_owned(),
                        |greedy| format!("MPress's takes {:.3}", greedy.seconds / plan.seconds),
                    );
                    let simulated = plan.simulated;
                    format!("{over:.2} % over untouched, gap {gap:.3} %, {simulated} simulated; {greedy}")
                }
                Err(error) => error.to_string(),
            };
            gaps.add("one stage", gap);
            let (published, claim) = match is_goal {
                true => ("Checkmate: under an hour; goal exact, 10 ms", Claim::Goal(gap <= MOST_GAP)),
                false => ("", Claim::Shown(true)),
            };
            let what = format!("{name}, lacking {:.0} %", 100.0 * lacks);
            let within = is_goal.then_some(ONE_STAGE);
            figures.push(Figure::new(what, ours, published, claim).took(took).within(within));
        }
    }
    figures
}

/// Layers of a stage of the random pipelines.
const FEW: usize = 12;
const BLOCKS: [Block; 3] = [Block::Activations, Block::Gradients, Block::Optimizer];
/// Goals: seconds for the actions of all stages, in the median, and the gap of half of all plans, and of nine in ten.
const ALL_STAGES: f64 = 0.1;
const MEDIAN_GAP: f64 = 0.01;
const P90_GAP: f64 = 0.05;

/// A pipeline of 8 stages of 12 layers that keep about 100 MB and go forward in about 10 ms.
struct Random {
    stages: Vec<StageBlocks>,
    node: NodeDevices,
    micro_batches: u32,
}

impl Random {
    fn of(number: u64) -> Self {
        let mut draws = Sampler::new(number);
        let unlike = draws.between(0.0, 0.4);
        let layer = |draws: &mut Sampler| {
            let forward = 0.01 * (1.0 + unlike * draws.between(-1.0, 1.0));
            let kept = (100e6 * (1.0 + unlike * draws.between(-1.0, 1.0))) as u64;
            LayerBlocks { input: kept / 30, ..self::layer(kept, forward) }
        };
        let stages: Vec<StageBlocks> = (0..STAGES)
            .map(|stage| {
                let layers = (0..FEW).map(|_| layer(&mut draws)).collect();
                StageBlocks { first_layer: FEW * stage, layers, fixed: 0 }
            })
            .collect();
        // The first stage lacks a tenth to four fifths of what eight micro-batches leave; moving all of it would take the
        // host's link a tenth to one and a half times as long as the passes take.
        let kept: u64 = stages[0].layers.iter().map(|layer| layer.activations).sum();
        let lasting = (FEW * 240_000_000) as f64;
        let capacity = (lasting + (8 * kept) as f64 * (1.0 - draws.between(0.1, 0.8))) as u64;
        let rate = kept as f64 / 0.36 * draws.between(0.1, 1.5).recip();
        let link =
            |bytes_per_second| Link { bytes_per_second, latency_seconds: 1e-5, origin: LinkOrigin::Given };
        let peers = |_, _| link(4.0 * rate);
        let node = NodeDevices { host_bytes: 1 << 50, ..node(capacity, link(rate), Some(&peers)) };
        Self { stages, node, micro_batches: [8, 16, 32, 64][number as usize % 4] }
    }

    fn question<'a>(&'a self, allowed: Allowed, stop: &'a Stop) -> Question<'a> {
        let stages = (&self.stages[..], &[1_000_000; STAGES - 1][..]);
        question(stages, self.micro_batches, &self.node, (allowed, &BLOCKS), stop)
    }
}

/// Random pipelines, so many of each mixture of ways.
pub(crate) fn random(&Scope { pipelines: count, gaps: ref found, .. }: &Scope) -> Vec<Figure> {
    let all = Allowed { recompute: true, host: true, peers: true };
    let mixtures = [
        ("all ways", all),
        ("recompute, host", Allowed { peers: false, ..all }),
        ("recompute, peers", Allowed { host: false, ..all }),
        ("host, peers", Allowed { recompute: false, ..all }),
        ("recompute", Allowed { host: false, peers: false, ..all }),
    ];
    let mut figures = Vec::new();
    let mut gaps = Vec::new();
    for (name, allowed) in mixtures {
        let (mut own_gaps, mut ratios, mut seconds) = (Vec::new(), Vec::new(), Vec::new());
        let mut none = 0;
        for number in 0..count {
            let random = Random::of(number);
            let stop = Stop::default();
            let question = random.question(allowed, &stop);
            let began = Instant::now();
            match optimizer::plan(&question, Known::default(), Effort::All) {
                Ok(plan) => {
                    seconds.push(began.elapsed().as_secs_f64());
                    own_gaps.push(plan.seconds / plan.bound - 1.0);
                    ratios.extend(paper::plan(&question).ok().map(|paper| paper.seconds / plan.seconds));
                }
                Err(_) => none += 1,
            }
        }
        own_gaps.iter().for_each(|&gap| found.add("random pipelines", gap));
        gaps.extend(&own_gaps);
        [&mut own_gaps, &mut ratios, &mut seconds].into_iter().for_each(|of| of.sort_by(f64::total_cmp));
        let slowest = ratios.iter().copied().fold(f64::INFINITY, f64::min);
        figures.push(
            Figure::new(
                format!("{count} pipelines, {name}"),
                format!(
                    "gap {:.2} %, p90 {:.2} %; MPress's takes {:.3}, least {slowest:.3}; {none} without",
                    100.0 * quantile(&own_gaps, 0.5),
                    100.0 * quantile(&own_gaps, 0.9),
                    quantile(&ratios, 0.5),
                ),
                "nobody",
                Claim::Goal(slowest >= 1.0 - 1e-9),
            )
            .took(quantile(&seconds, 0.5))
            .within(ALL_STAGES),
        );
    }
    gaps.sort_by(f64::total_cmp);
    let [median, p90] = [0.5, 0.9].map(|share| quantile(&gaps, share));
    figures.push(Figure::new(
        "All of these: median gap, and of nine in ten",
        format!("{:.2} %, {:.2} %", 100.0 * median, 100.0 * p90),
        format!("goal {:.0} %, {:.0} %", 100.0 * MEDIAN_GAP, 100.0 * P90_GAP),
        Claim::Goal(median <= MEDIAN_GAP && p90 <= P90_GAP),
    ));
    figures
}

/// The paper's models that are trained with a flush: seconds beside those of MPress's planner.
pub(crate) fn published(&Scope { micro_batches, ref gaps, .. }: &Scope) -> Vec<Figure> {
    let names = [
        ("GPT-10.3B", Server::Dgx1),
        ("GPT-15.4B", Server::Dgx1),
        ("GPT-20.4B", Server::Dgx1),
        ("GPT-25.5B", Server::Dgx2),
    ];
    let of = |(name, server): (&str, Server)| {
        let case = Case::of(PaperModel::named(name), server, micro_batches);
        let (chosen, took) = case.chosen(Ways::All);
        let (ours, is_met) = match chosen {
            Ok(plan) => {
                let ratio = plan.paper_seconds.map_or(f64::NAN, |paper| paper / plan.seconds);
                let gap = plan.seconds / plan.bound - 1.0;
                gaps.add("the paper's models", gap);
                let gap = 100.0 * gap;
                let over = 100.0 * (plan.seconds / plan.untouched_seconds - 1.0);
                (
                    format!("{over:.1} % over untouched, gap {gap:.1} %; MPress's takes {ratio:.3}"),
                    plan.paper_seconds.is_none_or(|paper| paper >= plan.seconds),
                )
            }
            Err(error) => (error.to_string(), matches!(error, PlanError::Stopped)),
        };
        Figure::new(format!("{name} on {}", server.name()), ours, "flat over sizes", Claim::Goal(is_met))
            .took(took)
    };
    names.into_iter().map(of).collect()
}
