//! How long plans in chunks take to find: `cargo run --release -p loadmaster-planning --example chunk_plans`.

use std::time::Instant;

use loadmaster_planning::chunks::{
    Baseline, ChunkChoices, ChunkQuestion, LaneRates, NoChunks, PatrickStar, StepCosts, choose, largest,
};
use loadmaster_planning::predict::PredictionError;
use loadmaster_proto::bytes::Bytes;
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
) -> impl Fn(ChunkOrder, RecomputePolicy) -> Result<StepCosts, PredictionError> + use<> {
    let (training, layers) = (question.training, question.model.layers().len());
    move |order, recompute| {
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
                println!(
                    "{device} GiB: {:.3} s (gap {:.1} %, any visits {:.3} s) in {took:.0} ms, {:?}; {} {} {} elements {}, {} on \
                     the device; {:?}; peak {}",
                    plan.lanes.iteration_seconds,
                    100.0 * plan.gap(),
                    plan.certificate.map_or(0.0, |of| of.any_visits_seconds),
                    plan.certificate.map(|of| (of.choices, of.simulated)),
                    stage.order,
                    plan.recompute,
                    stage.chunk_elements,
                    stage.host_copy,
                    stage.on_device.len(),
                    plan.lanes,
                    plan.peak(),
                );
            }
            Err(NoChunks::NoRoom(lack)) => {
                println!("{device} GiB: in {took:.0} ms: {}", NoChunks::NoRoom(lack))
            }
            Err(why) => return Err(why.into()),
        }
        for baseline in [
            Baseline::Static(ChunkOrder::MicroBatch),
            Baseline::Static(ChunkOrder::Layer),
            Baseline::PatrickStar(PatrickStar::default()),
        ] {
            for recompute in [RecomputePolicy::None, RecomputePolicy::Layer] {
                match baseline.plan(&asked, &passes, recompute) {
                    Ok(plan) => println!(
                        "  {baseline:?} {recompute}: {:.3} s, {:?}",
                        plan.lanes.iteration_seconds, plan.moved
                    ),
                    Err(why) => println!("  {baseline:?} {recompute}: {why}"),
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
    Ok(())
}
