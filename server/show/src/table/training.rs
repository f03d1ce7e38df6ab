//! Training settings in one line.

use loadmaster_proto::wire::v1::{self, optimizer};

use crate::text::terminal_abilities::Look;
use crate::text::{plain, word};

/// `gpipe · micro-batch 8 × 4 · sgd · fp32`.
pub(super) fn line(spec: &v1::TrainingSpec, look: Look) -> String {
    let schedule = match spec.schedule() {
        v1::Schedule::Unspecified | v1::Schedule::Gpipe => "gpipe",
        v1::Schedule::OneFOneB => "1f1b",
        v1::Schedule::Pipedream => "pipedream",
    };
    let optimizer = match spec.optimizer.as_ref().and_then(|optimizer| optimizer.kind.as_ref()) {
        None | Some(optimizer::Kind::Sgd(_)) => "sgd",
        Some(optimizer::Kind::Adam(_)) => "adam",
        Some(optimizer::Kind::Adamw(_)) => "adamw",
    };
    let mut parts = vec![
        schedule.to_owned(),
        format!("micro-batch {} {} {}", spec.micro_batch_size, look.times(), spec.micro_batch_count),
        optimizer.to_owned(),
        precision(spec).to_owned(),
    ];
    match spec.recompute() {
        v1::RecomputePolicy::Unspecified | v1::RecomputePolicy::None => {}
        policy => {
            parts.push(format!("recompute {}", word(policy.as_str_name(), "RECOMPUTE_POLICY_")));
        }
    }
    parts.join(&format!(" {} ", look.dot()))
}

/// Number formats, with that of gradients where it is another one.
pub(crate) fn precision(spec: &v1::TrainingSpec) -> &'static str {
    match (spec.precision(), spec.gradient_precision()) {
        (v1::Precision::Unspecified | v1::Precision::Fp32, _) => "fp32",
        (v1::Precision::Bf16, v1::Precision::Fp32) => "bf16 with fp32 gradients",
        (v1::Precision::Bf16, _) => "bf16",
    }
}

/// What updates the weights, and of SGD whether it keeps momentum, which takes as many bytes as they; none where nobody says it.
pub(crate) fn update_rule(optimizer: Option<&v1::Optimizer>) -> Option<&'static str> {
    Some(match optimizer?.kind.as_ref()? {
        optimizer::Kind::Sgd(sgd) if sgd.momentum == Some(0.0) => "sgd without momentum",
        optimizer::Kind::Sgd(_) => "sgd with momentum",
        optimizer::Kind::Adam(_) => "adam",
        optimizer::Kind::Adamw(_) => "adamw",
    })
}

/// `3..7`, or `3..7 data 2 tensor 4` when several devices share the stage.
pub(super) fn stage(config: Option<&v1::StageConfig>, look: Look) -> String {
    let Some(config) = config else { return look.none().to_owned() };
    let mut text = format!("{}..{}", config.first_layer, config.last_layer);
    for (name, degree) in [("data", config.data_parallel_size), ("tensor", config.tensor_parallel_size)] {
        if degree > 1 {
            text.push_str(&format!(" {name} {degree}"));
        }
    }
    text
}

/// The same with the names of its first and last layer: `3..7  conv5-pool5`.
pub(super) fn layers(config: Option<&v1::StageConfig>, first: &str, last: &str, look: Look) -> String {
    let (range, first, last) = (stage(config, look), plain(first), plain(last));
    if first == last { format!("{range}  {first}") } else { format!("{range}  {first}{}{last}", look.to()) }
}
