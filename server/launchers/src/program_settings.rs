//! Settings that an export may leave to the user's program: of the model those that change values, and neither memory nor time, and
//! the optimizer. A warning names each that it does not set.

use loadmaster_proto::model::numerics::RotaryScaling;
use loadmaster_proto::plan::objective::Framework;
use loadmaster_proto::training::Optimizer;
use loadmaster_proto::warning::{Warning, WarningCode};

use crate::framework::MegatronScaling;
use crate::question::ExportQuestion;

/// Positions of the original model where Megatron and torchtitan scale as Llama 3 does, and which frequencies they leave alone:
/// Megatron has no words for others.
const LLAMA3: [(&str, f64); 3] =
    [("low_freq_factor", 1.0), ("high_freq_factor", 4.0), ("original_max_position_embeddings", 8192.0)];

/// The settings of a plan's model that its export does not set as they are, by name. Whether it describes the model in Megatron's
/// words.
pub(crate) fn warnings(question: &ExportQuestion<'_>, is_megatrons: bool) -> Vec<Warning> {
    let Some(model) = question.model else { return Vec::new() };
    let numerics = model.numerics();
    let scaling = numerics.rotary_scaling.as_ref().and_then(|scaling| {
        match MegatronScaling::of(Some(model)).filter(|_| is_megatrons) {
            Some(MegatronScaling::Llama3(_)) => other_than_llama3(scaling),
            Some(MegatronScaling::Interpolated(_)) => None,
            None if sets_llama3(question) && scaling.kind == "llama3" => None,
            None => Some(format!(
                "the model's rotary positions are scaled by {scaling}, which this export does not set. Set it in the program \
                 that builds the model, or positions differ from those of the pretrained weights"
            )),
        }
    });
    let range = numerics.initializer_range.filter(|_| !is_megatrons).map(|range| {
        format!(
            "the model's initial parameters have a standard deviation of {range} (initializer_range), which this export does \
             not set. Set it in the program that builds the model"
        )
    });
    scaling.into_iter().chain(range).map(|why| WarningCode::TrainingDiffers.says(why)).collect()
}

/// Whether the export's file has all parameters of Llama 3's scaling.
fn sets_llama3(question: &ExportQuestion<'_>) -> bool {
    let target = question.target;
    target.framework == Framework::Torchtitan && (target.version.major, target.version.minor) == (0, 2)
}

/// What of Llama 3's scaling Megatron does otherwise; none where nothing is.
fn other_than_llama3(scaling: &RotaryScaling) -> Option<String> {
    let other = LLAMA3.iter().filter_map(|&(name, own)| {
        let asked = scaling.parameter(name).filter(|&asked| asked != own)?;
        Some(format!("{name} {own} instead of {asked}"))
    });
    let other: Vec<String> = other.collect();
    (!other.is_empty()).then(|| {
        format!(
            "the model's rotary positions are scaled by {scaling}, but Megatron's --use-rope-scaling uses {}. \
             Positions differ from those of the pretrained weights unless you change Megatron's code",
            other.join(", ")
        )
    })
}

/// Returns the warning that names the optimizer of a plan's bytes, where an export leaves it to the user's program; none where the
/// export names it: Megatron's flags and Bridge's file say it, and the whole plan is in the document for others.
pub(crate) fn optimizer_warning(framework: Framework, optimizer: Optimizer) -> Option<Warning> {
    if matches!(framework, Framework::Megatron | Framework::MegatronBridge | Framework::Other) {
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
    Some(WarningCode::SetupNeeded.says(format!(
        "the plan's memory is predicted for {what}. Use this optimizer in your program: another optimizer has state of \
         another size"
    )))
}
