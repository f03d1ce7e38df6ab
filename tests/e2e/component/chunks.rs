//! Models trained in chunks by real ranks: what each step needs besides chunks, and the device's peak, to the byte.

use loadmaster_proto::chunks::host::HostCopy;
use loadmaster_proto::chunks::packing::ChunkLayout;
use loadmaster_proto::chunks::paging::Eviction;
use loadmaster_proto::chunks::residency::paged::Paging;
use loadmaster_proto::chunks::stage::{ChunkMoves, ChunkResidency, ChunkedStage, StepKernel, UpdateTime};
use loadmaster_proto::training::chunk_order::ChunkOrder;
use loadmaster_tests::Sampler;

use super::actions::pick;
use super::*;

/// Small chunks of any kind.
fn chunked(dice: &mut Sampler) -> ChunkedStage {
    let paging = Paging {
        eviction: pick(dice, &[Eviction::Belady, Eviction::Lru, Eviction::Fifo]),
        ahead: dice.below(4),
        behind: dice.below(3),
    };
    ChunkedStage {
        layout: ChunkLayout::Aligned,
        chunk_elements: 500 << dice.below(6),
        order: pick(dice, &ChunkOrder::ALL),
        host_copy: pick(dice, &HostCopy::ALL),
        staging: 1 + dice.below(3),
        moves: ChunkMoves::Dropped,
        update: UpdateTime::OnArrival,
        kernel: StepKernel::OnePass,
        on_device: Vec::new(),
        residency: ChunkResidency::Paged(paging),
        host_memory: Bytes(16 << 30),
    }
}

fn whole(model: &Model, training: TrainingSpec) -> Run {
    let position =
        SoloStage { stage: StageConfig::single(0, model.layers().len() - 1), stage_count: 1, stage_index: 0 };
    Run { training, position, pipeline: None }
}

fn train(run: &Run, model: &Model, chunks: &ChunkedStage, capacity: u64) -> Measurement {
    let folder = tempfile::Builder::new().prefix("lmc").tempdir().unwrap();
    let mut spec = run.spec(model, 0, folder.path());
    spec.chunks = Some(Box::new(chunks.clone()));
    (spec.device.capacity, spec.device.physical) = (Bytes(capacity), Bytes(capacity));
    end(start(&spec))
}

/// From recordings of single layers alone the planner knows what every step of a chunked training needs, in both orders,
/// with and without recomputation, tied weights or none; plans its chunks for a device that has next to no byte more; and the
/// rank needs exactly that.
#[test]
fn every_step_of_a_training_in_chunks_needs_what_was_predicted() {
    let mut dice = Sampler::new(5);
    let gpt = |untied_head| {
        Zoo::Gpt2(Gpt2 {
            blocks: 3,
            hidden_size: 16,
            heads: 2,
            sequence_length: 12,
            positions: 20,
            vocabulary_size: 50,
            untied_head,
            dropout: 0.1,
        })
    };
    let vgg = Vgg { image_size: 32, classes: 10, classifier_width: 16 };
    let bert = Bert {
        blocks: 2,
        hidden_size: 16,
        heads: 2,
        sequence_length: 12,
        positions: 20,
        vocabulary_size: 50,
        classes: 3,
        dropout: 0.1,
    };
    let amoeba = AmoebaNet { cells: 3, filters: 16, image_size: 64, classes: 10 };
    for zoo in [gpt(true), gpt(false), Zoo::Bert(bert), Zoo::Vgg11(vgg), Zoo::AmoebaNetD(amoeba)] {
        let model = zoo.build().unwrap();
        let precision = pick(&mut dice, &[Precision::Fp32, Precision::Bf16]);
        let training = TrainingSpec { precision, optimizer: ADAM, micro_batch_size: 2, ..training() };
        let component = profile(&model, training, &[2], &[WHOLE]);
        for _ in 0..4 {
            let training = TrainingSpec {
                micro_batches: 1 + dice.below(4) as u32,
                recompute: pick(&mut dice, &[RecomputePolicy::None, RecomputePolicy::Layer]),
                schedule: pick(&mut dice, &[Schedule::Gpipe, Schedule::OneFOneB]),
                ..training
            };
            let mut stage = chunked(&mut dice);
            let count = stage.lay_out(&model, &training).unwrap().layout.chunks().len();
            stage.on_device = (0..count).filter(|_| dice.below(4) == 0).collect();
            let chunks = stage.lay_out(&model, &training).unwrap();
            let run = whole(&model, training);
            let SoloStage { stage: config, stage_count, stage_index } = run.position;
            let setting = StageSetting { stage: config, stage_index, stage_count, training };
            let moments = component.moments(&setting, &chunks).unwrap();
            let other: Vec<u64> = moments.curve.iter().map(|step| step.most.total()).collect();

            // What the steps need at once is what there must be; some of them have half as much again.
            let bare = stage.bare_visits(&chunks).unwrap();
            let resident = |visits: &[_]| {
                let visits = stage.told(&chunks, visits).unwrap();
                visits.resident(|chunk| chunks.payload_bytes(chunk))
            };
            let stays = chunks.on_device_bytes();
            let peak = |resident: Vec<u64>| {
                other.iter().zip(resident).map(|(other, chunks)| other + chunks + stays).max().unwrap()
            };
            let least = peak(resident(&bare));
            let capacity = least + pick(&mut dice, &[0, least / 2, 1 << 30]);
            let room: Vec<u64> = other.iter().map(|other| capacity - other).collect();
            let visits = stage.visits(&chunks, &room).unwrap();
            let planned =
                ChunkedStage { residency: ChunkResidency::Planned(visits.clone()), ..stage.clone() };
            let measured = train(&run, &model, &planned, capacity);
            let told = measured.chunks.as_ref().unwrap();
            let what = format!("{} {training:?} {stage:?}", model.family());
            let differing =
                told.other_bytes.iter().zip(&other).enumerate().filter(|(_, (told, of))| told != of);
            let differing: Vec<_> =
                differing.map(|(step, of)| (chunks.steps.all()[step], of)).take(5).collect();
            assert!(differing.is_empty(), "{what}: {differing:?}");
            assert_eq!(measured.peak_allocated.0, peak(resident(&visits)), "{what}");
            assert!(!told.is_replanned, "{what}");
        }
    }
}
