//! Piper's space: a memory cap, data and tensor degrees per stage, and recomputation layer by layer.
//!
//! Bytes and seconds are those of Piper's own input for these chains. Its objective is the largest load of a stage;
//! ours is the whole iteration, of which that is a part, so values are not compared, times are.

use anyhow::Result;
use loadmaster_proto::training::{RecomputePolicy, Schedule};
use loadmaster_search::time::{Limits, PerLayer, Saving, Savings, fastest};
use loadmaster_search::{
    Choice, Cuts, Link, LinkId, Peak, Places, Question, Seconds, Spanning, StageAt, StageCosts, Stop,
};

use crate::search::problem::{Chain, Devices, Flavour, powers_of_two};
use crate::search::report::{Row, Took};
use crate::stats::timed;

/// Bytes per second of every link.
const BANDWIDTH: f64 = 25e9;
/// Micro-batches of an iteration.
const MICRO_BATCHES: u32 = 128;

/// Sums over the layers before each.
#[derive(Debug, Clone)]
struct Sums(Vec<f64>);

impl Sums {
    fn of(values: impl Iterator<Item = f64>) -> Self {
        let mut sums = vec![0.0];
        sums.extend(values.scan(0.0, |sum, value| {
            *sum += value;
            Some(*sum)
        }));
        Self(sums)
    }

    fn between(&self, stage: &StageAt) -> f64 {
        self.0[stage.last + 1] - self.0[stage.first]
    }
}

/// Stages that keep everything.
#[derive(Debug, Clone)]
struct Costs {
    chain: Chain,
    choices: Vec<Choice>,
    seconds: Sums,
    parameters: Sums,
    activations: Sums,
}

impl Costs {
    fn of(chain: Chain, devices: u32) -> Self {
        let recompute = RecomputePolicy::None;
        let choices = powers_of_two(8).flat_map(|tensor| {
            powers_of_two(devices / tensor).map(move |data| Choice {
                data,
                tensor,
                recompute,
                ..Choice::SINGLE
            })
        });
        Self {
            choices: choices.collect(),
            seconds: Sums::of(chain.time_s.iter().copied()),
            parameters: Sums::of(chain.param_size.iter().copied()),
            activations: Sums::of(chain.activation_size.iter().copied()),
            chain,
        }
    }

    /// Seconds of a second of work, and how many share a tensor and a micro-batch.
    fn shared(&self, stage: &StageAt) -> (f64, f64, f64) {
        let Choice { data, tensor, .. } = self.choices[stage.choice];
        let (data, tensor) = (f64::from(data), f64::from(tensor));
        ((1.0 + 0.05 * tensor.log2()) / tensor / data, tensor, data)
    }
}

impl StageCosts for Costs {
    fn layers(&self) -> usize {
        self.chain.layers()
    }

    fn choices(&self) -> &[Choice] {
        &self.choices
    }

    fn seconds(&self, stage: &StageAt) -> Option<Seconds> {
        let (factor, tensor, data) = self.shared(stage);
        let passes = self.seconds.between(stage) * factor;
        let bytes = 1e8 * self.parameters.between(stage) / tensor;
        let step = 2.0 * (data - 1.0) / data * bytes / BANDWIDTH;
        Some(Seconds { forward: passes / 3.0, backward: passes * 2.0 / 3.0, step })
    }

    fn peak(&self, stage: &StageAt, in_flight: u32) -> Option<Peak> {
        let (_, tensor, data) = self.shared(stage);
        let fixed = 4e8 * self.parameters.between(stage) / tensor;
        let kept = 2e8 * self.activations.between(stage) / tensor / data * f64::from(in_flight);
        let bytes = (fixed + kept).ceil() as u64;
        Some(Peak { bytes, needed: bytes })
    }

    fn cut_seconds(&self, layer: usize, _link: LinkId, _choice: usize) -> f64 {
        2.0 * 1e7 * self.chain.boundary_volume[layer] / BANDWIDTH
    }

    fn cut_seconds_over(&self, layer: usize, _link: Link, _choice: usize) -> f64 {
        2.0 * 1e7 * self.chain.boundary_volume[layer] / BANDWIDTH
    }
}

impl Savings for Costs {
    /// A third more time; a layer keeps its input, and one micro-batch's activations while it is computed again.
    fn saving(&self, layer: usize, stage: &StageAt, in_flight: u32) -> Option<Saving> {
        let (factor, tensor, data) = self.shared(stage);
        let input = layer.checked_sub(1).map_or(1.0, |before| self.chain.boundary_volume[before]);
        let kept = 2e8 * self.chain.activation_size[layer];
        let saved = ((kept - 2e7 * input) * f64::from(in_flight) - kept) / tensor / data;
        let seconds = self.chain.time_s[layer] / 3.0 * factor;
        (saved >= 1.0).then_some(Saving { seconds, bytes: saved as u64 })
    }
}

/// Layers, devices of so many bytes, and of Piper's own program (published) the CPU seconds and the largest load of a stage,
/// seconds per micro-batch.
const PROBLEMS: [(usize, u32, f64, Option<[f64; 2]>); 5] = [
    (24, 8, 16e9, Some([0.006_016, 4.553_983])),
    (48, 64, 16e9, Some([0.165_943, 1.143_105])),
    (96, 64, 16e9, Some([1.07, 2.405_94])),
    (96, 256, 16e9, Some([2.03, 0.600_26])),
    (96, 64, 4e9, None),
];

/// Piper's problems with a published time.
pub(crate) fn piper(runs: usize, quick: bool) -> Result<Vec<Row>> {
    let mut rows = Vec::new();
    for &(layers, count, bytes, theirs) in if quick { &PROBLEMS[..1] } else { &PROBLEMS } {
        let costs = Costs::of(Chain::of(Flavour::Chain, layers), count);
        let devices = Devices {
            nodes: 1,
            capacity: bytes as u64,
            // Piper knows no nodes.
            spanning: Spanning::Anywhere,
            bytes_per_second: BANDWIDTH,
            ..Devices::one_node(count)
        };
        let fleet = devices.fleet();
        let sizes: Vec<u32> = powers_of_two(count).collect();
        let places = Places::in_order(&fleet, &sizes, devices.spanning);
        let every: Vec<usize> = (0..costs.choices.len()).collect();
        let costs = PerLayer::new(costs.clone(), costs);
        let question = Question {
            costs: &costs,
            fleet: &fleet,
            places: &places,
            choices: &every,
            schedule: Schedule::OneFOneB,
            micro_batches: MICRO_BATCHES,
            stages: 1..=layers,
            cuts: &Cuts::anywhere(layers),
            within_capacity: true,
        };
        let (found, seconds) = timed(runs, || fastest(&question, &Limits::default(), &Stop::default()));
        let value = found.best.as_ref().map(|best| best.value.0);
        let bound = found.bound.map(|bound| bound.0);
        let is_open = |&bound: &f64| value.is_some_and(|value| value > bound * (1.0 + 1e-9));
        let mut row = Row::new(
            format!("Piper's space, chain-L{layers}, {count} devices of {:.0} GB", bytes / 1e9),
            seconds,
            found.states,
            value,
            bound.filter(is_open),
        )
        .goal(theirs.map(|[seconds, _]| seconds));
        if let Some([seconds, load]) = theirs {
            let what = format!("Piper's own program (published): largest load {load:.4} s per micro-batch");
            row = row.beside(what, None, Took::Published(seconds));
        }
        rows.push(row);
    }
    Ok(rows)
}
