//! The optimizer that a plan's bytes are for, where an export leaves it to the user's program.

use loadmaster_proto::plan::objective::Launcher;
use loadmaster_proto::training::Optimizer;

/// Names it. None where the export does: Megatron's flags and Bridge's file say it, and the whole plan is in the document for others.
pub(crate) fn warning(launcher: Launcher, optimizer: Optimizer) -> Option<String> {
    if matches!(launcher, Launcher::Megatron | Launcher::MegatronBridge | Launcher::Other) {
        return None;
    }
    let adam = |name: &str, beta1: f64, beta2: f64, epsilon: f64, weight_decay: f64| {
        format!("{name} (betas {beta1} and {beta2}, epsilon {epsilon:e}, weight decay {weight_decay})")
    };
    let what = match optimizer {
        Optimizer::Sgd { momentum, weight_decay, .. } => {
            format!("SGD (momentum {momentum}, weight decay {weight_decay})")
        }
        Optimizer::Adam { beta1, beta2, epsilon, weight_decay, .. } => {
            adam("Adam", beta1, beta2, epsilon, weight_decay)
        }
        Optimizer::AdamW { beta1, beta2, epsilon, weight_decay, .. } => {
            adam("AdamW", beta1, beta2, epsilon, weight_decay)
        }
    };
    Some(format!(
        "the optimizer is yours to say, and the plan's bytes are for {what}: another one holds other state"
    ))
}
