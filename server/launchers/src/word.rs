//! What several launchers call the same thing.

use loadmaster_proto::training::{Precision, Schedule};

/// A schedule of one stage per rank, as torch.distributed.pipelining and what stands on it calls it.
pub(crate) fn torch_schedule(schedule: Schedule) -> &'static str {
    match schedule {
        Schedule::Gpipe => "GPipe",
        Schedule::OneFOneB | Schedule::PipeDream => "1F1B",
    }
}

/// The format that layers compute in: `fp32` or `bf16`.
pub(crate) fn format(precision: Precision) -> &'static str {
    match precision {
        Precision::Fp32 => "fp32",
        Precision::Bf16 | Precision::Bf16Fp32Gradients => "bf16",
    }
}

/// Numbers with commas between them.
pub(crate) fn listed(numbers: &[usize]) -> String {
    let words: Vec<String> = numbers.iter().map(ToString::to_string).collect();
    words.join(", ")
}
