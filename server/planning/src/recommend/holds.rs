//! What launchers hold of every parameter, beside what predictions count.
//!
//! Predictions count what Loadmaster's own ranks hold: parameters, gradients and the optimizer's state as precision
//! and optimizer have them, on every replica. Launchers keep gradients in another format, flat copies for their
//! optimizers, or share all of that among replicas. Until plans can say which, each names both figures.
//!
//! Sources: Megatron-LM's `report_theoretical_memory` (18 bytes, or 6 + 12/d with the distributed optimizer);
//! DeepSpeed's `BF16_Optimizer` (fp32 gradients of the whole stage, main weights and states of a d-th) and
//! `DeepSpeedZeroOptimizer` of stage 1, which in fp32 holds a copy of its part of the weights, and of its
//! gradients in the step; torchtitan, whose FSDP keeps gathered weights and fp32 gradients of a stage through its
//! micro-batches, and gives up the latter layer by layer as it shares them out, among as many data shards as exports say.

use loadmaster_launchers::framework_named;
use loadmaster_proto::bytes::Bytes;
use loadmaster_proto::plan::objective::Launcher;
use loadmaster_proto::training::{Optimizer, Precision, StaticBytes, TrainingSpec};

use super::ask::ProfiledChain;
use crate::predict::{Breakdown, Prediction, StageSetting};

/// One way in which a launcher trains.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct TrainingWay {
    /// How it is started, as part of a sentence.
    pub setting: &'static str,
    /// Bytes per parameter, by what they are, and whether replicas share them.
    parts: &'static [(&'static str, f64, bool)],
    /// Whether replicas share the optimizer's state.
    shares_state: bool,
    /// What else differs, or nothing.
    besides: &'static str,
}

const MEGATRON_BF16: [TrainingWay; 2] = [
    TrainingWay {
        setting: "by default",
        parts: &[("weights", 2.0, false), ("gradients", 4.0, false), ("main weights", 4.0, false)],
        shares_state: false,
        besides: "",
    },
    TrainingWay {
        setting: "with its distributed optimizer",
        parts: &[("weights", 2.0, false), ("gradients", 4.0, false), ("main weights", 4.0, true)],
        shares_state: true,
        besides: "",
    },
];

/// As exported: gradients are added up in bf16, and copied to fp32 for the step.
const MEGATRON_BF16_GRADIENTS: [TrainingWay; 2] = [
    TrainingWay {
        setting: "with `--grad-reduce-in-bf16`",
        parts: &[("weights", 2.0, false), ("gradients", 2.0, false), ("main weights", 4.0, false)],
        shares_state: false,
        besides: "; 4 more in the step, when activations are gone",
    },
    TrainingWay {
        setting: "without it",
        parts: &[("weights", 2.0, false), ("gradients", 4.0, false), ("main weights", 4.0, false)],
        shares_state: false,
        besides: "",
    },
];

const MEGATRON_FP32: [TrainingWay; 2] = [
    TrainingWay {
        setting: "by default",
        parts: &[("weights", 4.0, false), ("gradients", 4.0, false)],
        shares_state: false,
        besides: "",
    },
    TrainingWay {
        setting: "with its distributed optimizer",
        parts: &[("weights", 4.0, false), ("gradients", 4.0, false)],
        shares_state: true,
        besides: "",
    },
];

const DEEPSPEED_BF16: [TrainingWay; 1] = [TrainingWay {
    setting: "with its bf16 optimizer",
    parts: &[("weights", 2.0, false), ("gradients", 4.0, false), ("main weights", 4.0, true)],
    shares_state: true,
    besides: "; 2 more where gradients are not taken over at once",
}];

const DEEPSPEED_FP32: [TrainingWay; 2] = [
    TrainingWay {
        setting: "without ZeRO",
        parts: &[("weights", 4.0, false), ("gradients", 4.0, false)],
        shares_state: false,
        besides: "",
    },
    TrainingWay {
        setting: "with ZeRO 1",
        parts: &[
            ("weights", 4.0, false),
            ("gradients", 4.0, false),
            ("copy of the weights", 4.0, true),
            ("copy of the gradients", 4.0, true),
        ],
        shares_state: true,
        besides: "",
    },
];

/// As exported: 0.3 shards nothing among replicas (`data_parallel_shard_degree=1`), 0.2 shards among the replicas of stages and of
/// tensor shards, which it trains in no other way.
const TORCHTITAN_BF16: [TrainingWay; 3] = [
    TrainingWay {
        setting: "by 0.3, with a data shard degree of 1",
        parts: &[
            ("cast weights", 2.0, false),
            ("gradients of all micro-batches", 4.0, false),
            ("weights", 4.0, false),
        ],
        shares_state: false,
        besides: "",
    },
    TrainingWay {
        setting: "by 0.2 with replicas of stages or shards, which FSDP shards",
        parts: &[
            ("gathered weights", 2.0, false),
            ("gradients of all micro-batches", 4.0, false),
            ("weights", 4.0, true),
        ],
        shares_state: true,
        besides: "",
    },
    TrainingWay {
        setting: "by 0.2 with replicas alone",
        parts: &[("weights", 4.0, false), ("gradients", 4.0, false)],
        shares_state: false,
        besides: "; stages and shards of one replica are trained by 0.2 in bf16 alone, which is less",
    },
];

const TORCHTITAN_FP32: [TrainingWay; 2] = [
    TrainingWay {
        setting: "by 0.3, with a data shard degree of 1, and by 0.2 without replicas of stages or shards",
        parts: &[("weights", 4.0, false), ("gradients", 4.0, false)],
        shares_state: false,
        besides: "",
    },
    TrainingWay {
        setting: "by 0.2 with replicas of stages or shards, which FSDP shards",
        parts: &[
            ("gathered weights", 4.0, false),
            ("gradients of all micro-batches", 4.0, false),
            ("weights", 4.0, true),
        ],
        shares_state: true,
        besides: "",
    },
];

/// The ways in which a launcher trains in a precision, the usual one first; none where it is not known what it
/// holds.
pub fn ways(launcher: Launcher, precision: Precision) -> &'static [TrainingWay] {
    let is_fp32 = precision == Precision::Fp32;
    match launcher {
        Launcher::Megatron | Launcher::MegatronBridge | Launcher::Accelerate if is_fp32 => &MEGATRON_FP32,
        Launcher::Megatron | Launcher::Accelerate if precision == Precision::Bf16 => &MEGATRON_BF16_GRADIENTS,
        Launcher::Megatron | Launcher::MegatronBridge | Launcher::Accelerate => &MEGATRON_BF16,
        Launcher::Deepspeed if is_fp32 => &DEEPSPEED_FP32,
        Launcher::Deepspeed => &DEEPSPEED_BF16,
        Launcher::Torchtitan if is_fp32 => &TORCHTITAN_FP32,
        Launcher::Torchtitan => &TORCHTITAN_BF16,
        Launcher::TorchPipelining
        | Launcher::ColossalAi
        | Launcher::Galvatron
        | Launcher::Torchgpipe
        | Launcher::Trainer
        | Launcher::Other => &[],
    }
}

impl TrainingWay {
    /// Bytes per parameter on a device of a stage of so many replicas.
    pub fn bytes(&self, optimizer: &Optimizer, data_degree: u32) -> f64 {
        let (whole, shared) = self.split(optimizer);
        whole + shared / f64::from(data_degree.max(1))
    }

    /// Bytes that every replica holds, and those that they share.
    fn split(&self, optimizer: &Optimizer) -> (f64, f64) {
        let state = (state_bytes(optimizer), self.shares_state);
        let parts = self.parts.iter().map(|&(_, bytes, is_shared)| (bytes, is_shared)).chain([state]);
        parts.fold(
            (0.0, 0.0),
            |(whole, shared), (bytes, is_shared)| {
                if is_shared { (whole, shared + bytes) } else { (whole + bytes, shared) }
            },
        )
    }

    /// `18 bytes by default (weights 2, …)`, or `6 + 12/d = 9 bytes at data degree 4 with …`.
    fn text(&self, optimizer: &Optimizer, data_degree: u32) -> String {
        let (whole, shared) = self.split(optimizer);
        let figure = match (shared > 0.0, data_degree) {
            (true, 2..) => format!(
                "{whole} + {shared}/d = {} bytes at data degree {data_degree}",
                rounded(self.bytes(optimizer, data_degree))
            ),
            (true, _) => format!("{} bytes ({whole} + {shared}/d at data degree d)", whole + shared),
            (false, _) => format!("{whole} bytes"),
        };
        let state = ("optimizer state", state_bytes(optimizer), self.shares_state);
        let parts: Vec<String> = self
            .parts
            .iter()
            .copied()
            .chain([state])
            .filter(|&(_, bytes, _)| bytes > 0.0)
            .map(|(what, bytes, is_shared)| format!("{what} {bytes}{}", if is_shared { "/d" } else { "" }))
            .collect();
        format!("{figure} {} ({}){}", self.setting, parts.join(", "), self.besides)
    }
}

fn state_bytes(optimizer: &Optimizer) -> f64 {
    4.0 * optimizer.state_scalars() as f64
}

/// With as many digits as it takes.
fn rounded(bytes: f64) -> f64 {
    (100.0 * bytes).round() / 100.0
}

/// Bytes of one parameter that a prediction counts, copies that a profile states included.
pub fn assumed(training: &TrainingSpec, copies: u32) -> u64 {
    training.static_bytes(1).total() + u64::from(copies)
}

/// Returns the warnings about bytes per parameter of predictions by a profile: for the launcher that is to train them, and of the
/// framework that the profile was made with.
pub fn notes(
    chain: &ProfiledChain,
    launcher: Option<Launcher>,
    settings: &[StageSetting],
    predictions: &[Prediction],
) -> Vec<String> {
    let stated = chain.predictor.copies_bytes_per_parameter();
    let of_launcher =
        launcher.and_then(|launcher| note(launcher, settings, predictions, stated.unwrap_or(0)));
    let training = settings.first().map(|setting| &setting.training);
    let of_framework =
        training.filter(|_| stated.is_none()).and_then(|training| unstated(&chain.framework, training));
    of_launcher.into_iter().chain(of_framework).collect()
}

/// Returns the warning about a layer table that states no copies, of a framework that keeps some; none of other frameworks.
fn unstated(framework: &str, training: &TrainingSpec) -> Option<String> {
    let launcher = framework_named(framework)?;
    let counted = assumed(training, 0);
    let bytes = |way: &&TrainingWay| way.bytes(&training.optimizer, 1);
    let most =
        ways(launcher, training.precision).iter().max_by(|one, other| bytes(one).total_cmp(&bytes(other)))?;
    let more = bytes(&most) - counted as f64;
    (more > 0.0).then(|| {
        format!(
            "layer_table.copies_bytes_per_parameter is missing, and the profile is of {framework}: these figures count {counted} \
             bytes per parameter, and {launcher} holds up to {} more: {}. State the bytes that it keeps besides, or 0",
            rounded(more),
            most.text(&training.optimizer, 1)
        )
    })
}

/// What to say of predictions for a launcher: its bytes per parameter, those that were counted, and what that makes
/// on the fullest stage. Nothing where they agree, and where nobody knows what it holds.
fn note(
    launcher: Launcher,
    settings: &[StageSetting],
    predictions: &[Prediction],
    copies: u32,
) -> Option<String> {
    let by_bytes = settings.iter().zip(predictions).enumerate();
    let (index, (setting, prediction)) = by_bytes.max_by_key(|(_, (_, prediction))| prediction.bytes)?;
    let (training, data_degree) = (&setting.training, setting.stage.data_degree.max(1));
    let optimizer = &training.optimizer;
    let counted = assumed(training, copies) as f64;
    let ways = ways(launcher, training.precision);
    let usual = ways.first()?;
    if ways.iter().all(|way| way.bytes(optimizer, data_degree) == counted && way.besides.is_empty()) {
        return None;
    }
    let texts: Vec<String> = ways.iter().map(|way| way.text(optimizer, data_degree)).collect();
    let difference = usual.bytes(optimizer, data_degree) - counted;
    let on_fullest = match prediction.breakdown.map(|breakdown| parameters(&breakdown, training)) {
        Some(parameters) if difference != 0.0 => {
            let bytes = Bytes((difference.abs() * parameters as f64).round() as u64);
            let more = if difference > 0.0 { "more" } else { "less" };
            format!("; {}, that is {bytes} {more} on stage {index}, the fullest", usual.setting)
        }
        _ => String::new(),
    };
    Some(format!(
        "bytes per parameter: {launcher} holds {}; these figures count {counted}{on_fullest}",
        texts.join(", or ")
    ))
}

/// Parameters of a device whose bytes are these.
fn parameters(breakdown: &Breakdown, training: &TrainingSpec) -> u64 {
    let StaticBytes { parameters, .. } = training.static_bytes(1);
    breakdown.weights / parameters.max(1)
}

#[cfg(test)]
mod tests {
    use loadmaster_proto::training::Schedule;
    use loadmaster_proto::training::stage::StageConfig;

    use super::*;
    use crate::predict::Origin;
    use crate::testing::training;

    const ADAM: Optimizer =
        Optimizer::Adam { learning_rate: 0.1, beta1: 0.9, beta2: 0.99, epsilon: 1e-8, weight_decay: 0.0 };

    fn adam(precision: Precision) -> TrainingSpec {
        TrainingSpec { precision, optimizer: ADAM, ..training(Schedule::OneFOneB, 1, 8) }
    }

    fn bytes(launcher: Launcher, precision: Precision, data_degree: u32) -> Vec<f64> {
        ways(launcher, precision).iter().map(|way| way.bytes(&ADAM, data_degree)).collect()
    }

    /// Published and documented figures: Megatron's own report, DeepSpeed's optimizers.
    #[test]
    fn launchers_hold_what_is_known_of_them() {
        let added_up = Precision::Bf16Fp32Gradients;
        assert_eq!(bytes(Launcher::Megatron, added_up, 1), [18.0, 18.0]);
        assert_eq!(bytes(Launcher::Megatron, added_up, 4), [18.0, 6.0 + 12.0 / 4.0]);
        assert_eq!(bytes(Launcher::Megatron, Precision::Bf16, 4), [16.0, 18.0]);
        assert_eq!(bytes(Launcher::Megatron, Precision::Fp32, 2), [16.0, 12.0]);
        assert_eq!(bytes(Launcher::Deepspeed, Precision::Fp32, 1), [16.0, 24.0]);
        assert_eq!(bytes(Launcher::Deepspeed, Precision::Bf16, 2), [12.0]);
        assert_eq!(bytes(Launcher::Torchtitan, Precision::Bf16, 4), [18.0, 6.0 + 12.0 / 4.0, 16.0]);
        assert_eq!(bytes(Launcher::Torchtitan, Precision::Fp32, 4), [16.0, 8.0 + 12.0 / 4.0]);
        for same in [Launcher::MegatronBridge, Launcher::Accelerate] {
            assert_eq!(ways(same, added_up), ways(Launcher::Megatron, added_up));
        }
        assert_eq!(bytes(Launcher::MegatronBridge, Precision::Bf16, 1), [18.0, 18.0]);
        assert!(ways(Launcher::Galvatron, Precision::Bf16).is_empty());
    }

    fn told(launcher: Launcher, precision: Precision, data_degree: u32, copies: u32) -> Option<String> {
        let training = adam(precision);
        let stage = |index: u32, parameters: u64| {
            let stage = StageConfig { first_layer: 0, last_layer: 0, data_degree, tensor_degree: 1 };
            let setting = StageSetting { stage, stage_index: index, stage_count: 2, training };
            let weights = training.static_bytes(parameters).parameters;
            let prediction = Prediction {
                bytes: Bytes(weights),
                breakdown: Some(Breakdown { weights, ..Breakdown::default() }),
                seconds: None,
                margin: None,
                seconds_margin: None,
                predictor: "test/1",
                origin: Origin::Profiled,
            };
            (setting, prediction)
        };
        let (settings, predictions): (Vec<_>, Vec<_>) = [stage(0, 10), stage(1, 1 << 29)].into_iter().unzip();
        note(launcher, &settings, &predictions, copies)
    }

    /// Both figures, and what the difference is on the fullest stage: 2 bytes of 2²⁹ parameters.
    #[test]
    fn a_note_has_both_figures_and_the_bytes_between_them() {
        let said = told(Launcher::MegatronBridge, Precision::Bf16, 4, 0).unwrap();
        for part in
            ["megatron-bridge holds 18 bytes by default", "6 + 12/d = 9 bytes at data degree 4", "count 16"]
        {
            assert!(said.contains(part), "{part}: {said}");
        }
        assert!(said.ends_with("by default, that is 1.00 GiB more on stage 1, the fullest"), "{said}");
        let exported = told(Launcher::Megatron, Precision::Bf16, 4, 0).unwrap();
        for part in ["16 bytes with `--grad-reduce-in-bf16`", "4 more in the step", "count 16"] {
            assert!(exported.contains(part), "{part}: {exported}");
        }
        let shared = told(Launcher::Deepspeed, Precision::Bf16, 4, 0).unwrap();
        assert!(shared.contains("that is 3.50 GiB less on stage 1"), "{shared}");
    }

    /// A table of DeepSpeed counts 16 bytes of a parameter in fp32, and DeepSpeed with `ZeRO` 1 holds 24.
    #[test]
    fn copies_of_a_framework_that_no_table_states_are_warned_of() {
        for framework in ["deepspeed", "Megatron-DeepSpeed"] {
            let told = unstated(framework, &adam(Precision::Fp32)).unwrap();
            assert!(told.starts_with("layer_table.copies_bytes_per_parameter is missing"), "{told}");
            assert!(
                told.contains("count 16 bytes") && told.contains("deepspeed holds up to 8 more"),
                "{told}"
            );
        }
        for (framework, precision) in
            [("Megatron-LM", Precision::Fp32), ("", Precision::Bf16), ("a script", Precision::Fp32)]
        {
            assert_eq!(unstated(framework, &adam(precision)), None, "{framework}");
        }
    }

    /// Where a profile or a training counts what the launcher holds, there is nothing to say.
    #[test]
    fn what_agrees_is_not_told() {
        assert_eq!(told(Launcher::Megatron, Precision::Fp32, 1, 0), None);
        assert_eq!(told(Launcher::Megatron, Precision::Bf16Fp32Gradients, 1, 0), None);
        assert_eq!(told(Launcher::Galvatron, Precision::Bf16, 1, 0), None, "nobody knows");
        let copies = told(Launcher::Deepspeed, Precision::Fp32, 1, 8).unwrap();
        assert!(copies.contains("24 bytes") && copies.contains("count 24"), "{copies}");
    }
}
