//! How long plans in chunks take to find, and how large a model each machine of the PatrickStar slides holds:
//! `cargo run --release -p loadmaster-memory --example chunk_plans -- 8 16 32`, where each number is a device of so many GiB.

use std::time::Instant;

use loadmaster_memory::chunks::{
    Baseline, ChunkChoices, ChunkQuestion, NoChunks, PassChoice, Passes, ProfiledPasses, StepCosts, choose,
    largest,
};
use loadmaster_predict::layer_table::TablePredictor;
use loadmaster_predict::{Away, Margin, PredictionError};
use loadmaster_proto::bytes::Bytes;
use loadmaster_proto::chunks::activations::{on_host, place_of};
use loadmaster_proto::model::zoo::{Gpt2, Zoo};
use loadmaster_proto::plan::rates::LaneRates;
use loadmaster_proto::training::actions::{Part, Step, Steps};
use loadmaster_proto::training::boundaries::CycleBytes;
use loadmaster_proto::training::chunk_order::ChunkOrder;
use loadmaster_proto::training::{Optimizer, Precision, RecomputePolicy, Schedule, TrainingSpec};
use loadmaster_samples::TabledGpt2;

const GIB: u64 = 1 << 30;

/// A GPT-2 of this many blocks of 1600, on a device of so many bytes.
fn question(blocks: i64, micro_batches: u32, (device, host): (u64, u64)) -> Option<ChunkQuestion> {
    let zoo = Gpt2 { blocks, hidden_size: 1600, heads: 25, ..Gpt2::default() };
    let optimizer =
        Optimizer::Adam { learning_rate: 1e-3, beta1: 0.9, beta2: 0.999, epsilon: 1e-8, weight_decay: 0.0 };
    Some(ChunkQuestion {
        model: Zoo::Gpt2(zoo).build().ok()?,
        training: TrainingSpec {
            precision: Precision::Bf16,
            optimizer,
            schedule: Schedule::Gpipe,
            micro_batch_size: 1,
            micro_batches,
            recompute: RecomputePolicy::None,
            seed: 0,
        },
        ranks: 1,
        shards: 1,
        capacity: Bytes(device),
        host_memory: Bytes(host),
        rates: LaneRates {
            up: 12e9,
            down: 12e9,
            copy_seconds: 20e-6,
            update: 1e9,
            device_update: 30e9,
            gather: 12e9,
            collective_seconds: 20e-6,
            host_memory: None,
        },
        choices: ChunkChoices::default(),
    })
}

/// Those of steps that need so much and take so long, of layers that keep so many bytes of each micro-batch: what is on the host
/// is not needed.
fn with_away(
    (mut needed, seconds): (Vec<u64>, Vec<f64>),
    (steps, layers, kept): (&Steps, usize, u64),
    of: PassChoice,
) -> StepCosts {
    let actions = of.activations.map(|points| on_host(layers, of.recompute, points)).unwrap_or_default();
    let own = actions.absences(steps).into_iter().filter(|absence| absence.part == Part::Own);
    let away = |absence| Away { absence, bytes: kept, tensors: 1, stripes: Vec::new() };
    let away: Vec<Away> = own.map(away).collect();
    let mut gone = CycleBytes::new(steps.all().len());
    let mut there = gone.clone();
    for Away { absence, bytes, .. } in &away {
        gone.add(absence.at.away(), *bytes);
        there.add(absence.at.stored(), *bytes);
    }
    needed.iter_mut().zip(gone.sums()).for_each(|(needed, gone)| *needed -= gone);
    StepCosts { needed, seconds, away, pool: Bytes(there.most()) }
}

/// Costs that grow with parameters: 2 ms of a block forward, twice as much backward, activations that pile up unless they
/// are recomputed.
fn costs(question: &ChunkQuestion) -> impl Fn(PassChoice) -> Result<StepCosts, PredictionError> + use<> {
    let (training, layers) = (question.training, question.model.layers().len());
    move |of| {
        let PassChoice { order, recompute, .. } = of;
        let steps = Steps::of_chunks(&TrainingSpec { recompute, ..training }, layers, order);
        let each: u64 = if recompute == RecomputePolicy::None { 60 << 20 } else { 4 << 20 };
        let mut held = GIB / 2;
        let (mut needed, mut seconds) = (Vec::new(), Vec::new());
        for step in steps.all() {
            match step {
                Step::Forward { .. } => held += each,
                Step::Backward { .. } => held -= each,
                _ => {}
            }
            needed.push(held + (64 << 20));
            seconds.push(if matches!(step, Step::Backward { .. }) { 4e-3 } else { 2e-3 });
        }
        Ok(with_away((needed, seconds), (&steps, layers, each), of))
    }
}

/// A machine of the slides: like nodes, whose host each node's devices share evenly. Chunks may have 0.95 of a device and 0.9 of a
/// host; every device trains 4 samples of 1,024 tokens. What steps need besides chunks is predicted by a table of layers.
struct Machine {
    name: &'static str,
    ranks: u32,
    /// Bytes of a device, and of the host for each of its devices.
    device: u64,
    host: u64,
    hidden: u64,
}

/// Memory comes in powers of two: the slides' 32, 40 and 240 GB are as many GiB, and their 1 TB is this.
const TIB: u64 = 1024 * GIB;

const MACHINES: [Machine; 5] = [
    Machine {
        name: "1 x 32 GiB with 240 GiB of host",
        ranks: 1,
        device: 32 * GIB,
        host: 240 * GIB,
        hidden: 4096,
    },
    Machine {
        name: "8 x 32 GiB with 240 GiB of host",
        ranks: 8,
        device: 32 * GIB,
        host: 30 * GIB,
        hidden: 8192,
    },
    Machine {
        name: "8 x 40 GiB with 1 TiB of host",
        ranks: 8,
        device: 40 * GIB,
        host: TIB / 8,
        hidden: 9216,
    },
    Machine {
        name: "24 x 40 GiB on 3 hosts of 1 TiB",
        ranks: 24,
        device: 40 * GIB,
        host: TIB / 8,
        hidden: 12_288,
    },
    Machine {
        name: "32 x 40 GiB on 4 hosts of 1 TiB",
        ranks: 32,
        device: 40 * GIB,
        host: TIB / 8,
        hidden: 12_288,
    },
];

/// A model of a machine, and what its table says of each step.
struct Tabled {
    asked: ChunkQuestion,
    table: TablePredictor,
}

impl Passes for Tabled {
    fn costs(&self, of: PassChoice) -> Result<StepCosts, PredictionError> {
        let ChunkQuestion { model, training, ranks, shards, .. } = &self.asked;
        ProfiledPasses {
            predictor: &self.table,
            model,
            training: *training,
            ranks: *ranks,
            shards: *shards,
            margin: Margin::Known,
            factors: [1.0; 2],
        }
        .costs(of)
    }
}

impl Machine {
    /// A GPT-2 of this many blocks.
    fn tabled(&self, blocks: u64) -> Option<Tabled> {
        let of = TabledGpt2 { hidden: self.hidden, blocks };
        let asked = question(1, 1, (self.device / 100 * 95, self.host / 100 * 90))?;
        let training = TrainingSpec { micro_batch_size: TabledGpt2::SAMPLES * self.ranks, ..asked.training };
        let choices = ChunkChoices { recomputes: vec![RecomputePolicy::Layer], ..asked.choices };
        let asked = ChunkQuestion { model: of.model(), training, choices, ranks: self.ranks, ..asked };
        Some(Tabled { asked, table: TablePredictor::new(&of.document()).ok()? })
    }

    /// Whether PatrickStar as published has room for so many blocks.
    fn has_room_as_published(&self, blocks: u64) -> bool {
        let rule = Baseline::PATRICKSTAR;
        let plan = |of: Tabled| rule.plan(&of.asked, &of, RecomputePolicy::Layer).is_ok();
        self.tabled(blocks).is_some_and(plan)
    }

    fn billions(&self, blocks: u64) -> f64 {
        self.tabled(blocks).map_or(0.0, |of| of.asked.model.parameter_count() as f64 / 1e9)
    }

    /// The most blocks that fit in chunks.
    fn largest(&self) -> Result<u64, NoChunks> {
        let found = largest(1..=1000, |blocks| {
            let of = self.tabled(blocks)?;
            Some((of.asked.clone(), of))
        })?;
        Ok(found.unwrap_or(0))
    }

    /// What PatrickStar as published holds there, and what any chunks do.
    fn print(&self) -> Result<(), NoChunks> {
        let begin = Instant::now();
        let ours = self.largest()?;
        let found_in = begin.elapsed().as_secs_f64();
        let (mut fit, mut not) = (0, 1000);
        while fit + 1 < not {
            let middle = fit + (not - fit) / 2;
            if self.has_room_as_published(middle) { fit = middle } else { not = middle }
        }
        println!(
            "{}, hidden size {}: PatrickStar as published {fit} blocks, {:.1}B; ours {ours} blocks, {:.1}B, found in {found_in:.2} s",
            self.name,
            self.hidden,
            self.billions(fit),
            self.billions(ours),
        );
        let Some(of) = self.tabled(ours) else { return Ok(()) };
        let begin = Instant::now();
        let plan = choose(&of.asked, &of)?;
        println!(
            "  its plan in {:.0} ms: {} elements a chunk, order {}, activations on the {}, {} copies, {} on the device, {} \
             of it and {} of the host",
            begin.elapsed().as_secs_f64() * 1e3,
            plan.stage.chunk_elements,
            plan.stage.order,
            place_of(&plan.actions),
            plan.stage.host_copy,
            plan.stage.on_device.len(),
            plan.peak(),
            plan.host(),
        );
        Ok(())
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    for device in std::env::args().skip(1).map(|of| of.parse::<u64>().unwrap_or(8)) {
        let Some(asked) = question(48, 4, (device * GIB, 64 * GIB)) else { continue };
        let passes = costs(&asked);
        let begin = Instant::now();
        let plan = choose(&asked, &passes);
        let took = begin.elapsed().as_secs_f64() * 1e3;
        match plan {
            Ok(plan) => {
                let stage = &plan.stage;
                let (choices, simulated) = plan.certificate.map_or((0, 0), |of| (of.choices, of.simulated));
                println!(
                    "{device} GiB: found in {took:.0} ms, {simulated} of {choices} choices simulated: {:.3} s an iteration, \
                     at most {:.1} % from the best; order {}, recompute {}, activations on the {}, {} elements a chunk, {} \
                     copies, {} on the device; peak {}",
                    plan.lanes.iteration_seconds,
                    100.0 * plan.gap(),
                    stage.order,
                    plan.recompute,
                    place_of(&plan.actions),
                    stage.chunk_elements,
                    stage.host_copy,
                    stage.on_device.len(),
                    plan.peak(),
                );
            }
            Err(NoChunks::NoRoom(lack)) => {
                println!("{device} GiB: in {took:.0} ms: {}", NoChunks::NoRoom(lack))
            }
            Err(why) => return Err(why.into()),
        }
        for (name, baseline) in [
            ("ZeRO-Offload, micro-batch order", Baseline::Static(ChunkOrder::MicroBatch)),
            ("ZeRO-Offload, layer order", Baseline::Static(ChunkOrder::Layer)),
            ("PatrickStar", Baseline::PATRICKSTAR),
        ] {
            for recompute in [RecomputePolicy::None, RecomputePolicy::Layer] {
                match baseline.plan(&asked, &passes, recompute) {
                    Ok(plan) => println!(
                        "  {name}, recompute {recompute}: {:.3} s, {} up and {} down",
                        plan.lanes.iteration_seconds,
                        Bytes(plan.moved.up),
                        Bytes(plan.moved.down)
                    ),
                    Err(_) => println!("  {name}, recompute {recompute}: no room"),
                }
            }
        }
    }
    for (device, host) in [(8, 64), (32, 240)] {
        let begin = Instant::now();
        let found = largest(1..=1000, |blocks| {
            let asked = question(i64::try_from(blocks).ok()?, 4, (device * GIB, host * GIB))?;
            let passes = costs(&asked);
            Some((asked, passes))
        })?;
        println!(
            "largest of 1000 blocks on {device} GiB and {host} GiB: {found:?} in {:.3} s",
            begin.elapsed().as_secs_f64()
        );
    }
    MACHINES.iter().try_for_each(Machine::print)?;
    Ok(())
}
