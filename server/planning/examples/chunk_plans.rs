//! How long plans in chunks take to find, and how large a model a machine of the PatrickStar slides holds:
//! `cargo run --release -p loadmaster-planning --example chunk_plans -- 8 16 32`, where each number is a device of so many GiB.

use std::time::Instant;

use loadmaster_planning::chunks::{
    Baseline, ChunkChoices, ChunkQuestion, LaneRates, NoChunks, PatrickStar, StepCosts, choose, largest,
};
use loadmaster_planning::predict::PredictionError;
use loadmaster_proto::bytes::Bytes;
use loadmaster_proto::chunks::embedding::EmbeddingPlace;
use loadmaster_proto::model::zoo::{Gpt2, Zoo};
use loadmaster_proto::training::actions::{Step, Steps};
use loadmaster_proto::training::chunk_order::ChunkOrder;
use loadmaster_proto::training::{Optimizer, Precision, RecomputePolicy, Schedule, TrainingSpec};

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
        },
        choices: ChunkChoices::default(),
    })
}

/// Costs that grow with parameters: 2 ms of a block forward, twice as much backward, activations that pile up unless they
/// are computed again.
fn costs(
    question: &ChunkQuestion,
) -> impl Fn(ChunkOrder, RecomputePolicy, EmbeddingPlace) -> Result<StepCosts, PredictionError> + use<> {
    let (training, layers) = (question.training, question.model.layers().len());
    move |order, recompute, _| {
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
        Ok(StepCosts { needed, seconds })
    }
}

/// A GPT-2 of hidden size 4,096 and this many blocks, 4 samples of 1,024 tokens, on a V100 of 32 GiB with 240 GiB of host: 0.95
/// and 0.9 of these.
fn slide(blocks: u64) -> Option<ChunkQuestion> {
    let zoo = Gpt2 {
        blocks: i64::try_from(blocks).ok()?,
        hidden_size: HIDDEN as i64,
        heads: 32,
        sequence_length: 1024,
        positions: 1024,
        ..Gpt2::default()
    };
    let asked = question(1, 1, (32 * GIB / 100 * 95, 240 * GIB / 100 * 90))?;
    let training = TrainingSpec { micro_batch_size: 4, ..asked.training };
    let choices = ChunkChoices { recomputes: vec![RecomputePolicy::Layer], ..asked.choices };
    Some(ChunkQuestion { model: Zoo::Gpt2(zoo).build().ok()?, training, choices, ..asked })
}

const HIDDEN: u64 = 4096;

/// What a device holds besides chunks by the closed form of transformers in bf16 (Korthikanti et al., 2022): the inputs of the
/// layers so far, one layer that is computed again, one layer's gradients.
fn closed_form(
    question: &ChunkQuestion,
) -> impl Fn(ChunkOrder, RecomputePolicy, EmbeddingPlace) -> Result<StepCosts, PredictionError> + use<> {
    let (training, layers) = (question.training, question.model.layers().len());
    move |order, recompute, _| {
        let steps = Steps::of_chunks(&TrainingSpec { recompute, ..training }, layers, order);
        let (sequence, heads) = (1024_u64, 32_u64);
        let tokens = sequence * u64::from(training.micro_batch_size);
        let (input, gradients) = (2 * tokens * HIDDEN, 24 * HIDDEN * HIDDEN);
        let layer = 34 * tokens * HIDDEN + 5 * heads * sequence * tokens;
        let mut held = 0;
        let (mut needed, mut seconds) = (Vec::new(), Vec::new());
        for step in steps.all() {
            match step {
                Step::Forward { .. } => held += input,
                Step::Backward { .. } => held -= input,
                _ => {}
            }
            needed.push(held + layer + gradients);
            seconds.push(0.05);
        }
        Ok(StepCosts { needed, seconds })
    }
}

/// The slides' first machine: what PatrickStar as published holds there, and what any chunks do.
fn slides() -> Result<(), NoChunks> {
    let ours = largest(1..=1000, |blocks| {
        let asked = slide(blocks)?;
        let passes = closed_form(&asked);
        Some((asked, passes))
    })?;
    let published = |blocks: u64| {
        let asked = slide(blocks)?;
        let passes = closed_form(&asked);
        let rule = Baseline::PatrickStar(PatrickStar::default());
        rule.plan(&asked, &passes, RecomputePolicy::Layer).ok()
    };
    let (mut fit, mut not) = (0, 1000);
    while fit + 1 < not {
        let middle = fit + (not - fit) / 2;
        if published(middle).is_some() { fit = middle } else { not = middle }
    }
    let billions =
        |blocks: u64| slide(blocks).map_or(0.0, |asked| asked.model.parameter_count() as f64 / 1e9);
    println!(
        "1 x 32 GiB with 240 GiB of host, hidden size {HIDDEN}: PatrickStar as published {fit} blocks, {:.1}B; ours {} blocks, \
         {:.1}B",
        billions(fit),
        ours.unwrap_or(0),
        billions(ours.unwrap_or(0)),
    );
    Ok(())
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
                    "{device} GiB: found in {took:.0} ms, {simulated} of {choices} choices simulated: {:.3} s an iteration, at \
                     most {:.1} % from the best; order {}, recompute {}, {} elements a chunk, {} copies, {} on the device; peak \
                     {}",
                    plan.lanes.iteration_seconds,
                    100.0 * plan.gap(),
                    stage.order,
                    plan.recompute,
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
            ("PatrickStar", Baseline::PatrickStar(PatrickStar::default())),
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
    slides()?;
    Ok(())
}
