//! The run in chunks that a profile may have besides: the whole model on one device, with what a training in chunks needs of
//! the host.
//!
//! How fast the host updates chunks, and what a device holds besides them, does not follow from layers that are trained alone.
//! So it has nothing else to wait for: chunks come when they are needed, layers are recomputed, all state is on the host.
//! Predictors learn nothing from it, for its peak is no plain stage's.

use loadmaster_proto::bytes::Bytes;
use loadmaster_proto::chunks::layout::Lists;
use loadmaster_proto::chunks::packing::{ChunkLayout, Packing};
use loadmaster_proto::chunks::sequence::Sequence;
use loadmaster_proto::chunks::stage::ChunkedStage;
use loadmaster_proto::error::Invalid;
use loadmaster_proto::measure::run::{SoloStage, Work};
use loadmaster_proto::model::Model;
use loadmaster_proto::profile::ProfileSettings;
use loadmaster_proto::training::stage::StageConfig;
use loadmaster_proto::training::strategy::Strategy;
use loadmaster_proto::training::{RecomputePolicy, TrainingSpec};

use super::minimal::CHECKED_MICRO_BATCHES;
use super::planned_run::{PlannedRun, Purpose};

/// Chunks of the model, where its largest parameter group is in one of them.
const PARTS: u64 = 16;

/// The run of these settings; none where they name no memory of the host.
///
/// # Errors
/// The training cannot be in chunks, or the host's memory does not hold the model: `training.…` or `host_memory_bytes`.
pub fn in_chunks(settings: &ProfileSettings, model: &Model) -> Result<Option<PlannedRun>, Invalid> {
    let Some(host_memory) = settings.host_memory else { return Ok(None) };
    let training = TrainingSpec {
        micro_batches: settings.training.micro_batches.min(CHECKED_MICRO_BATCHES),
        recompute: RecomputePolicy::Layer,
        seed: 0,
        ..settings.training
    };
    let lists = Lists::new(training.precision, &training.optimizer).map_err(|of| of.under("training"))?;
    // All of the host that there is: what it takes of that is known when its chunks are laid out.
    let chunks = ChunkedStage::on_demand(chunk_elements(model, lists).map_err(named)?, Bytes(u64::MAX));
    let stage = StageConfig::single(0, model.layers().len().saturating_sub(1));
    let laid = chunks.lay_out_stage(model, &training, (&stage, 1))?;
    if laid.host.bytes > host_memory.0 {
        let why = format!(
            "{host_memory} is too little for the model in chunks, which needs {} of CPU memory. Use at least {} bytes, or \
             remove this field",
            Bytes(laid.host.bytes),
            laid.host.bytes
        );
        return Err(named(Invalid::field("", why)));
    }
    let work = Work::Solo(SoloStage { stage, stage_count: 1, stage_index: 0 });
    let chunks = Box::new(ChunkedStage { host_memory, ..chunks });
    let strategy = Strategy::plain(training, work).with_chunks(Some(chunks));
    Ok(Some(PlannedRun { strategy, purpose: Purpose::Check }))
}

fn named(invalid: Invalid) -> Invalid {
    invalid.under("host_memory_bytes")
}

/// A few chunks, and none larger than the others because of a single parameter group.
fn chunk_elements(model: &Model, lists: Lists) -> Result<u64, Invalid> {
    let sequence = Sequence::of_model(model);
    let packing = Packing::new(&sequence, ChunkLayout::Aligned, lists)?;
    let all: u64 = packing.extents().fold(0, u64::saturating_add);
    packing.checked_size(packing.largest_atom().max(all / PARTS))
}

#[cfg(test)]
mod tests {
    use loadmaster_proto::measure::run::ProfilingMode;
    use loadmaster_proto::model::zoo::{Gpt2, Vgg, Zoo};
    use loadmaster_proto::training::{Optimizer, Precision, Schedule};

    use super::*;
    use crate::profiling::runs::Layout;
    use crate::tests::{settings, training};

    fn gpt2(blocks: i64) -> Model {
        Zoo::Gpt2(Gpt2 { blocks, hidden_size: 64, heads: 2, vocabulary_size: 512, ..Gpt2::default() })
            .build()
            .unwrap()
    }

    fn asked(host_memory: Option<u64>) -> ProfileSettings {
        let training = training(Schedule::OneFOneB, 8, 12);
        ProfileSettings {
            host_memory: host_memory.map(Bytes),
            ..settings(ProfilingMode::PerLayer, training, None)
        }
    }

    /// A worker takes the run, whatever the model: it is the whole of it, at the target micro-batch size, and never repeated at
    /// another one.
    #[test]
    fn the_whole_model_is_trained_in_chunks_on_one_device() {
        let vgg = Zoo::Vgg11(Vgg { image_size: 32, classes: 10, classifier_width: 64 }).build().unwrap();
        for model in [gpt2(1), gpt2(24), vgg] {
            let settings = asked(Some(1 << 40));
            let runs = Layout::new(&settings, &model).unwrap().runs;
            let plain = Layout::new(&asked(None), &model).unwrap().runs;
            assert_eq!(runs[..plain.len()], plain, "besides");
            let [run] = &runs[plain.len()..] else { panic!("one run: {runs:?}") };
            assert_eq!((run.purpose, run.device_count()), (Purpose::Check, 1));
            assert_eq!((run.smallest_micro_batch_size(), run.strategy.training.micro_batch_size), (None, 8));
            let chunks = run.strategy.chunks().cloned().unwrap();
            assert_eq!(chunks.host_memory, Bytes(1 << 40));
            run.strategy.check(&model).unwrap();
            let laid = chunks
                .lay_out_stage(&model, &run.strategy.training, (&run.strategy.positions()[0].stage, 1))
                .unwrap();
            let of_chunks = laid.layout.chunks();
            assert!((1..=2 * PARTS as usize).contains(&of_chunks.len()), "{} chunks", of_chunks.len());
            let equal = of_chunks.iter().all(|of| of.capacity == laid.layout.chunk_elements());
            assert!(equal, "none is larger because of an atom");
            assert_eq!(laid.on_device_bytes(), 0, "the host updates all parameters");
        }
    }

    /// To the byte: what is asked for is enough, and a byte less is not.
    #[test]
    fn a_host_that_does_not_hold_the_model_is_refused_with_what_it_needs() {
        let model = gpt2(2);
        let refused = in_chunks(&asked(Some(1)), &model).unwrap_err();
        assert_eq!(refused.violations()[0].field, "host_memory_bytes");
        let said = &refused.violations()[0].description;
        let needed: u64 = said.split("at least ").nth(1).unwrap().split(' ').next().unwrap().parse().unwrap();
        // SGD keeps a fp32 copy and a momentum of each parameter.
        assert!(needed >= 8 * model.parameter_count(), "{said}");
        assert!(in_chunks(&asked(Some(needed)), &model).unwrap().is_some());
        assert!(in_chunks(&asked(Some(needed - 1)), &model).is_err());
    }

    #[test]
    fn trainings_that_cannot_be_in_chunks_are_refused_by_their_field() {
        let field = |change: &dyn Fn(&mut TrainingSpec)| {
            let mut settings = asked(Some(1 << 40));
            change(&mut settings.training);
            in_chunks(&settings, &gpt2(2)).map_err(|of| of.violations()[0].field.clone())
        };
        assert_eq!(
            field(&|of| of.precision = Precision::Bf16Fp32Gradients),
            Err("training.precision".to_owned())
        );
        assert_eq!(field(&|of| of.schedule = Schedule::PipeDream), Err("training.schedule".to_owned()));
        assert!(field(&|of| of.recompute = RecomputePolicy::Stage).is_ok(), "layers are computed again here");
        assert!(field(&|of| of.optimizer = Optimizer::default()).is_ok());
    }

    /// What chunks may take decides nothing that is measured; all else of them does, and what has none is what it was.
    #[test]
    fn runs_in_chunks_have_keys_of_their_own() {
        let model = gpt2(2);
        let run = |host_memory| in_chunks(&asked(Some(host_memory)), &model).unwrap().unwrap();
        let key = |run: &PlannedRun| run.key(&model, &asked(None));
        assert_eq!(key(&run(1 << 40)), key(&run(1 << 41)));
        let whole = run(1 << 40);
        let plain = PlannedRun { strategy: whole.strategy.with_chunks(None), ..whole };
        let mut other = run(1 << 40);
        other.strategy.stages[0].chunks.as_mut().unwrap().staging += 1;
        let keys = [key(&plain), key(&run(1 << 40)), key(&other)];
        assert!(keys[0] != keys[1] && keys[1] != keys[2] && keys[0] != keys[2], "{keys:?}");
    }
}
