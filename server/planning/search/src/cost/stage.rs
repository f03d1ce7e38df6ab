//! What a choice makes of a stage, as predictors are asked for it.

use loadmaster_proto::model::Model;
use loadmaster_proto::training::stage::StageConfig;
use loadmaster_proto::training::{Schedule, TrainingSpec};

use crate::Choice;
use loadmaster_predict::{Share, StageSetting};

/// Why nothing can be run with this choice at this micro-batch size.
pub(super) fn refusal(choice: Choice, micro_batch_size: u32) -> Option<String> {
    let Choice { data, tensor, .. } = choice;
    if data == 0 || tensor == 0 {
        return Some(format!("{choice} has no devices: degrees are 1 or more"));
    }
    (!micro_batch_size.is_multiple_of(data)).then(|| {
        format!(
            "a micro-batch of {micro_batch_size} cannot be split evenly over {data} replicas: choose a multiple \
             of {data}"
        )
    })
}

/// By layer and one more: how many of the layers before it do not allow this tensor degree. None where all do.
pub(super) fn unfit(model: Option<&Model>, tensor: u32) -> Option<Vec<u32>> {
    if tensor <= 1 {
        return None;
    }
    let mut before = vec![0];
    let mut count = 0;
    for layer in model?.layers() {
        count += u32::from(layer.kind.check_tensor_degree(tensor).is_err());
        before.push(count);
    }
    (count > 0).then_some(before)
}

/// What a device of a stage works on under a choice that is not refused.
pub(super) fn share(choice: Choice, micro_batch_size: u32) -> Share {
    Share { micro_batch_size: micro_batch_size / choice.data.max(1), tensor_degree: choice.tensor }
}

/// A stage with this many micro-batches in flight: as far from the end of its pipeline as that takes under
/// 1F1B, and with as many micro-batches per iteration under GPipe.
pub(super) fn setting(
    training: TrainingSpec,
    choice: Choice,
    first_layer: usize,
    last_layer: usize,
    in_flight: u32,
) -> StageSetting {
    let in_flight = in_flight.max(1);
    let micro_batches = match training.schedule {
        Schedule::Gpipe => in_flight,
        Schedule::OneFOneB => training.micro_batches.max(in_flight),
        Schedule::PipeDream => training.micro_batches,
    };
    let stage_index = u32::from(first_layer > 0);
    StageSetting {
        stage: StageConfig {
            first_layer,
            last_layer,
            data_degree: choice.data,
            tensor_degree: choice.tensor,
        },
        stage_index,
        stage_count: stage_index.saturating_add(in_flight),
        training: TrainingSpec { micro_batches, recompute: choice.recompute, ..training },
    }
}
