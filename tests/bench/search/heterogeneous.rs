//! AMP's heterogeneous set-ups (its 4.3): how much faster the best plan is than Megatron's heuristic, predicted.
//!
//! The paper names models, devices and links; it does not publish layer times for them that may be used. So a layer
//! takes its operations at 5 % of each device's peak: then Megatron's best plan on the heterogeneous cluster is
//! predicted at 2.1 s, where the paper measured 1.97 s. The faster devices are taken to be, the more
//! communication weighs and the larger both ratios become: at 30 % of the peak 3.4× and 9.2×, at 2 % 1.65× and
//! 1.59×. Bytes are those of mixed-precision training with Adam. Both sides are valued by the same costs.

use std::time::Instant;

use anyhow::{Context, Result};
use loadmaster_proto::bytes::Bytes;
use loadmaster_proto::training::Schedule;
use loadmaster_search::time::{Limits, Race, fastest_over, parts};
use loadmaster_search::{
    Choice, Cuts, Fleet, FleetNode, Kind, Layouts, Link, LinkId, LinkOrigin, Peak, PlacedStage, Places,
    Question, Seconds, Spanning, StageAt, StageCosts, Stop,
};

use crate::search::problem::{self, fleet};
use crate::search::report::{Row, Took};

/// Part of a device's half-precision peak that training reaches.
const EFFICIENCY: f64 = 0.05;

/// Devices of each node of both set-ups.
const PER_NODE: u32 = 4;

/// A layer of a model, for one sample.
#[derive(Debug, Clone, Copy)]
struct Layer {
    /// Operations of a forward pass; a backward pass takes twice as many.
    operations: f64,
    parameters: f64,
    /// Bytes that it keeps for its backward pass.
    kept: f64,
    /// Bytes of its output.
    output: f64,
    /// Whether tensor shards exchange its output, twice in each pass.
    is_block: bool,
}

/// A model on a cluster.
struct Setup {
    name: &'static str,
    layers: Vec<Layer>,
    fleet: Fleet,
    /// Operations per second of each kind of device.
    rates: Vec<f64>,
    /// Samples of an iteration.
    batch: u32,
    /// What the paper measured.
    published: f64,
}

/// How all stages are run.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Grid {
    data: u32,
    tensor: u32,
    /// Samples of one replica's pass.
    micro_batch: u32,
}

fn transformer_block(tokens: f64, window: f64, width: f64, heads: f64) -> Layer {
    Layer {
        operations: 24.0 * tokens * width * width + 4.0 * tokens * window * width,
        parameters: 12.0 * width * width,
        // Korthikanti et al., 2022, equation 1.
        kept: tokens * (34.0 * width + 5.0 * heads * window),
        output: 2.0 * tokens * width,
        is_block: true,
    }
}

fn link(gigabits: f64) -> Link {
    Link { bytes_per_second: gigabits * 1e9 / 8.0, latency_seconds: 0.0, origin: LinkOrigin::Given }
}

fn node(index: usize, kind: usize, inside: f64, outside: f64) -> FleetNode {
    problem::node(format!("node{index}"), kind, PER_NODE, [link(inside), link(outside)])
}

fn kind(name: &str) -> Kind {
    Kind { name: name.to_owned(), capacity: Bytes(15 << 30), hourly_price: None }
}

/// GPT-2 of 24 layers on three nodes of V100 and one of T4, global batch 32.
fn heterogeneous_cluster() -> Setup {
    let (tokens, width, vocabulary) = (1_024.0, 1_024.0, 52_256.0);
    let embedding = Layer {
        operations: 0.0,
        parameters: (vocabulary + tokens) * width,
        kept: 0.0,
        output: 2.0 * tokens * width,
        is_block: false,
    };
    let head = Layer {
        operations: 2.0 * tokens * width * vocabulary,
        parameters: 0.0,
        kept: 6.0 * tokens * vocabulary,
        output: 0.0,
        is_block: false,
    };
    let mut layers = vec![embedding];
    layers.extend([transformer_block(tokens, tokens, width, 16.0); 24]);
    layers.push(head);
    let mut nodes: Vec<FleetNode> = (0..3).map(|index| node(index, 0, 170.0, 10.0)).collect();
    nodes.push(node(3, 1, 50.0, 50.0));
    Setup {
        name: "AMP's heterogeneous cluster",
        layers,
        fleet: fleet(vec![kind("V100"), kind("T4")], nodes),
        rates: vec![125e12 * EFFICIENCY, 65e12 * EFFICIENCY],
        batch: 32,
        published: 1.54,
    }
}

/// A generator like `TransGAN`'s on four nodes of V100, global batch 64: 12 layers of width 1,024 on 9 × 9 tokens, 12
/// of width 16 on 288 × 288 tokens in windows of 16 × 16.
fn heterogeneous_model() -> Setup {
    let mut layers = vec![transformer_block(81.0, 81.0, 1_024.0, 4.0); 12];
    layers.extend([transformer_block(82_944.0, 256.0, 16.0, 4.0); 12]);
    Setup {
        name: "AMP's heterogeneous model",
        layers,
        fleet: fleet(vec![kind("V100")], (0..4).map(|index| node(index, 0, 170.0, 10.0)).collect()),
        rates: vec![125e12 * EFFICIENCY],
        batch: 64,
        published: 1.77,
    }
}

impl Setup {
    /// All grids of the devices, with every micro-batch that divides the batch.
    fn grids(&self) -> Vec<Grid> {
        let devices = self.fleet.devices();
        let powers = || (0..=devices.ilog2()).map(|power| 1 << power);
        let degrees = powers().flat_map(|tensor| powers().map(move |data| (data, tensor)));
        let degrees = degrees.filter(|&(data, tensor)| {
            data * tensor <= devices && devices / (data * tensor) <= self.layers.len() as u32
        });
        let grids = degrees.flat_map(|(data, tensor)| {
            let micro_batches =
                (1..=self.batch / data).filter(move |size| self.batch.is_multiple_of(size * data));
            micro_batches.map(move |micro_batch| Grid { data, tensor, micro_batch })
        });
        grids.collect()
    }

    fn layouts(&self, grid: Grid) -> Layouts {
        Layouts::of(&self.fleet, &[grid.data * grid.tensor], Spanning::WholeNodes, (&[], false), 10_000)
    }

    /// The best plan of all grids, assignments and orders of nodes: seconds, and states weighed.
    fn best(&self) -> Option<(f64, u64)> {
        let mut race = Race::new(1, None);
        for grid in self.grids() {
            let layouts = self.layouts(grid);
            let costs = Costs::new(self, grid, &layouts.places[0]);
            self.ask(&costs, &layouts.places[0], |question| {
                let limits = race.limits();
                let (_, answer) = fastest_over(question, &layouts, &limits, &Stop::default());
                race.note(grid, answer);
            });
        }
        let (_, answer) = race.finish();
        Some((answer.best?.value.0, answer.states))
    }

    /// Megatron's heuristic: for each micro-batch the smallest tensor × pipeline degree that fits, tensor shards
    /// within a node, nodes as they come, equally many blocks for each stage. The best of its plans.
    fn megatron(&self) -> Option<f64> {
        let mut best: Option<f64> = None;
        let grids = self.grids();
        for micro_batch in 1..=self.batch {
            let devices = self.fleet.devices();
            let mut alike: Vec<Grid> = grids
                .iter()
                .filter(|grid| grid.micro_batch == micro_batch && grid.tensor <= PER_NODE)
                .copied()
                .collect();
            alike.sort_by_key(|grid| std::cmp::Reverse(grid.data));
            let plans = alike.iter().filter_map(|&grid| Some((grid.data, self.uniform(grid, devices)?)));
            let plans: Vec<(u32, f64)> = plans.collect();
            // The smallest product has the most replicas; several grids may have it.
            let most = plans.first().map(|&(data, _)| data);
            for (_, seconds) in plans.iter().filter(|&&(data, _)| Some(data) == most) {
                best = Some(best.map_or(*seconds, |best| best.min(*seconds)));
            }
        }
        best
    }

    /// Seconds of a grid with blocks spread evenly, if it fits.
    fn uniform(&self, grid: Grid, devices: u32) -> Option<f64> {
        let size = grid.data * grid.tensor;
        let count = (devices / size) as usize;
        let blocks: Vec<usize> =
            (0..self.layers.len()).filter(|&layer| self.layers[layer].is_block).collect();
        let places = Places::in_order(&self.fleet, &[size], Spanning::WholeNodes);
        let costs = Costs::new(self, grid, &places);
        let mut first = 0;
        let mut from = 0;
        let mut stages = Vec::new();
        for index in 0..count {
            let last = match index + 1 == count {
                true => self.layers.len() - 1,
                false => blocks[(blocks.len() * (index + 1)).div_ceil(count) - 1],
            };
            if last < first {
                return None;
            }
            stages.push(PlacedStage { first, last, choice: 0, from, step: 0 });
            from = places.steps(from).first()?.to;
            first = last + 1;
        }
        self.ask(&costs, &places, |question| {
            let fits = loadmaster_search::time::is_within_limits(question, &stages, &Limits::default());
            let parts = parts(question, &stages)?;
            fits.then(|| parts.time(question.micro_batches).0)
        })
    }

    fn ask<T>(
        &self,
        costs: &Costs<'_>,
        places: &Places,
        ask: impl FnOnce(&Question<'_, Costs<'_>>) -> T,
    ) -> T {
        let cuts = Cuts::anywhere(self.layers.len());
        ask(&Question {
            costs,
            fleet: &self.fleet,
            places,
            choices: &[0],
            schedule: Schedule::OneFOneB,
            micro_batches: self.batch / (costs.grid.micro_batch * costs.grid.data),
            stages: 1..=usize::MAX,
            cuts: &cuts,
            within_capacity: true,
        })
    }
}

/// AMP's cost model (3.4) of one grid.
struct Costs<'a> {
    setup: &'a Setup,
    grid: Grid,
    choices: [Choice; 1],
    links: Vec<Link>,
}

impl<'a> Costs<'a> {
    fn new(setup: &'a Setup, grid: Grid, places: &Places) -> Self {
        let choice = Choice::SINGLE.resized(grid.data, grid.tensor);
        Self { setup, grid, choices: [choice], links: places.links().to_vec() }
    }

    /// A ring all-reduce of these bytes (equation 3).
    fn all_reduce(&self, bytes: f64, workers: u32, link: LinkId) -> f64 {
        let workers = f64::from(workers);
        2.0 * (workers - 1.0) * bytes / (workers * self.links[usize::from(link)].bytes_per_second)
    }

    fn layers_of(&self, stage: &StageAt) -> &[Layer] {
        &self.setup.layers[stage.first..=stage.last]
    }
}

impl StageCosts for Costs<'_> {
    fn layers(&self) -> usize {
        self.setup.layers.len()
    }

    fn choices(&self) -> &[Choice] {
        &self.choices
    }

    fn seconds(&self, stage: &StageAt) -> Option<Seconds> {
        let samples = f64::from(self.grid.micro_batch);
        let tensor = f64::from(self.grid.tensor);
        let rates = stage.kinds.kinds().map(|kind| self.setup.rates[kind]);
        let rate = rates.fold(f64::INFINITY, f64::min);
        let layers = self.layers_of(stage);
        let operations: f64 = layers.iter().map(|layer| layer.operations).sum();
        let exchanged: f64 =
            layers.iter().filter(|layer| layer.is_block).map(|layer| 2.0 * layer.output).sum();
        let parameters: f64 = layers.iter().map(|layer| layer.parameters).sum();
        let exchange = self.all_reduce(exchanged * samples, self.grid.tensor, stage.tensor_link);
        let pass = operations * samples / (tensor * rate);
        Some(Seconds {
            forward: pass + exchange,
            backward: 2.0 * pass + exchange,
            step: self.all_reduce(2.0 * parameters / tensor, self.grid.data, stage.data_link),
        })
    }

    fn peak(&self, stage: &StageAt, in_flight: u32) -> Option<Peak> {
        let layers = self.layers_of(stage);
        let kept: f64 = layers.iter().map(|layer| layer.kept).sum();
        let parameters: f64 = layers.iter().map(|layer| layer.parameters).sum();
        let held = f64::from(in_flight) * f64::from(self.grid.micro_batch);
        // Half-precision parameters and gradients, and Adam's three single-precision copies.
        let bytes = (kept * held + 16.0 * parameters) / f64::from(self.grid.tensor);
        Some(Peak { bytes: bytes as u64, needed: bytes as u64 })
    }

    fn cut_seconds(&self, layer: usize, link: LinkId, choice: usize) -> f64 {
        self.cut_seconds_over(layer, self.links[usize::from(link)], choice)
    }

    fn cut_seconds_over(&self, layer: usize, link: Link, _: usize) -> f64 {
        let bytes = self.setup.layers[layer].output * f64::from(self.grid.micro_batch);
        2.0 * bytes / link.bytes_per_second
    }
}

/// Both set-ups: what was found, and Megatron's heuristic beside it.
pub(crate) fn rows() -> Result<Vec<Row>> {
    [heterogeneous_cluster(), heterogeneous_model()]
        .iter()
        .map(|setup| {
            let began = Instant::now();
            let (value, states) = setup.best().context("no grid fits")?;
            let seconds = began.elapsed().as_secs_f64();
            let megatron = setup.megatron();
            let ratio = megatron.map_or(f64::NAN, |megatron| megatron / value);
            Ok(Row::new(
                format!("{}: {ratio:.2}×, paper {:.2}×", setup.name, setup.published),
                seconds,
                states,
                Some(value),
                None,
            )
            .beside("Megatron's heuristic, the best of its plans", megatron, Took::Unknown)
            .beside(
                "the same, less what the paper gained over it",
                megatron.map(|megatron| megatron / setup.published),
                Took::Unknown,
            ))
        })
        .collect()
}
