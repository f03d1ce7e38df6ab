//! The bytes that frameworks hold of every parameter, besides those that predictions count.
//!
//! Predictions count the bytes of Loadmaster's own ranks: parameters, gradients and the optimizer's state as precision and optimizer
//! have them, on every replica. Frameworks keep gradients in another format, flat copies for their optimizers, or share all of that
//! among replicas. Each framework's folder has its ways to train, once: exports count the first of them, and the notes on plans and
//! predictions give the figures of all.

use loadmaster_proto::bytes::Bytes;
use loadmaster_proto::plan::Plan;
use loadmaster_proto::plan::objective::Framework;
use loadmaster_proto::training::sharding::StateSharding;
use loadmaster_proto::training::{Optimizer, TrainingSpec};
use loadmaster_proto::warning::{Warning, WarningCode};

use super::Held;
use crate::framework::{framework_named, rules};
use crate::question::sharding_of;
use crate::rules::Rules;

/// A part of the bytes of a parameter: its name, and how many bytes.
pub(crate) type Part = (&'static str, u64);

/// The main weights of mixed precision.
pub(crate) const MAIN_WEIGHTS: &[Part] = &[("main weights", 4)];

/// One way in which a framework trains.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct TrainingWay {
    /// How it is started, as part of a sentence.
    pub(crate) setting: &'static str,
    /// The weights that passes compute with.
    pub(crate) weights: Part,
    pub(crate) gradients: Part,
    /// Further parts that every replica has.
    pub(crate) copies: &'static [Part],
    /// Further parts that replicas share, with the optimizer's state; none where every replica has that, too.
    pub(crate) shared: Option<&'static [Part]>,
    /// Bytes of copies of the gradients that are there in the step, when activations are gone.
    pub(crate) in_step: u64,
    /// Another difference, or nothing.
    pub(crate) besides: &'static str,
}

impl TrainingWay {
    pub(crate) const fn new(setting: &'static str, weights: u64, gradients: u64) -> Self {
        Self {
            setting,
            weights: ("weights", weights),
            gradients: ("gradients", gradients),
            copies: &[],
            shared: None,
            in_step: 0,
            besides: "",
        }
    }

    pub(crate) const fn copying(self, copies: &'static [Part]) -> Self {
        Self { copies, ..self }
    }

    pub(crate) const fn sharing(self, shared: &'static [Part]) -> Self {
        Self { shared: Some(shared), ..self }
    }

    /// Returns the parts with the optimizer's state, and whether replicas share them.
    fn parts(&self, optimizer: &Optimizer) -> impl Iterator<Item = (Part, bool)> {
        let state = ("optimizer state", 4 * optimizer.state_scalars());
        let whole = [self.weights, self.gradients].into_iter().chain(self.copies.iter().copied());
        let shared = self.shared.unwrap_or_default().iter().map(|&part| (part, true));
        whole.map(|part| (part, false)).chain(shared).chain([(state, self.shared.is_some())])
    }

    /// Returns the bytes that every replica holds, and those that they share.
    fn split(&self, optimizer: &Optimizer) -> (u64, u64) {
        self.parts(optimizer).fold((0, 0), |(whole, shared), ((_, bytes), is_shared)| {
            if is_shared { (whole, shared + bytes) } else { (whole + bytes, shared) }
        })
    }

    /// Returns the bytes of copies of the gradients in the step on a device of a stage of so many replicas, rounded up.
    fn in_step(&self, data_degree: u32) -> u64 {
        self.in_step.div_ceil(if self.shared.is_some() { data_degree.max(1).into() } else { 1 })
    }

    /// Returns the bytes per parameter on a device of a stage of so many replicas.
    fn bytes(&self, optimizer: &Optimizer, data_degree: u32) -> f64 {
        let (whole, shared) = self.split(optimizer);
        whole as f64 + shared as f64 / f64::from(data_degree.max(1))
    }

    /// Returns `18 bytes by default (weights 2, …)`, or `6 + 12/d = 9 bytes at data degree 4 with …`.
    fn text(&self, optimizer: &Optimizer, data_degree: u32) -> String {
        let (whole, shared) = self.split(optimizer);
        let figure = match (shared, data_degree) {
            (0, _) => format!("{whole} bytes"),
            (_, 2..) => format!(
                "{whole} + {shared}/d = {} bytes at data-parallel size {data_degree}",
                // With as many digits as it takes.
                (100.0 * self.bytes(optimizer, data_degree)).round() / 100.0
            ),
            _ => format!("{} bytes ({whole} + {shared}/d at data-parallel size d)", whole + shared),
        };
        let parts = self.parts(optimizer).filter(|((_, bytes), _)| *bytes > 0);
        let parts: Vec<String> = parts
            .map(|((name, bytes), is_shared)| format!("{name} {bytes}{}", if is_shared { "/d" } else { "" }))
            .collect();
        let in_step = match self.in_step(data_degree) {
            0 => String::new(),
            bytes => format!("; {bytes} more in the optimizer step, when activations are freed"),
        };
        format!("{figure} {} ({}){in_step}{}", self.setting, parts.join(", "), self.besides)
    }
}

impl Held {
    /// Returns the bytes of parameters that a framework holds besides in the way in which exports of a plan start it.
    pub(crate) fn per_parameter(rules: &Rules, plan: &Plan) -> Self {
        let precision = plan.training.precision;
        let data_degree = plan.stages.first().map_or(1, |stage| stage.config.data_degree);
        way_of((rules.ways)(precision), sharding_of(plan)).map_or_else(Self::default, |way| Self {
            wider_gradients: way.gradients.1.saturating_sub(precision.gradient_bytes()),
            step_gradients: way.in_step(data_degree),
            ..Self::default()
        })
    }
}

/// The way in which exports start a framework: the first where optimizer states are whole, and where they are sharded the
/// first that shards them.
fn way_of(ways: &[TrainingWay], sharding: StateSharding) -> Option<&TrainingWay> {
    let shards = ways.iter().find(|way| way.shared.is_some() && !sharding.is_none());
    shards.or_else(|| ways.first())
}

/// A stage with its predicted bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PredictedStage {
    /// Its replicas.
    pub data_degree: u32,
    /// States that its replicas divide.
    pub sharding: StateSharding,
    /// The predicted peak.
    pub bytes: Bytes,
    /// Bytes of its weights within that; none where they are not known.
    pub weights: Option<u64>,
}

/// Returns the warnings about bytes per parameter of predictions by a profile: for the framework that is to train them, and of the
/// one that the profile was made with. `stated` are the bytes of copies that the profile states.
pub fn parameter_notes(
    framework: Option<Framework>,
    profiled: &str,
    training: &TrainingSpec,
    stated: Option<u32>,
    stages: &[PredictedStage],
) -> Vec<Warning> {
    let wanted = framework.and_then(|framework| note(framework, training, stages, stated.unwrap_or(0)));
    let wanted = wanted.map(|why| WarningCode::ParameterBytesDiffer.says(why));
    let unstated = if stated.is_none() { unstated(profiled, training) } else { None };
    wanted.into_iter().chain(unstated.map(|why| WarningCode::ParameterBytesUnstated.says(why))).collect()
}

/// Returns the warning about a layer table that states no copies, of a framework that keeps some; none of other frameworks.
fn unstated(profiled: &str, training: &TrainingSpec) -> Option<String> {
    let framework = framework_named(profiled)?;
    let counted = training.static_bytes(1).total();
    let bytes = |way: &TrainingWay| {
        let (whole, shared) = way.split(&training.optimizer);
        whole + shared
    };
    let most = (rules(framework).ways)(training.precision).iter().max_by_key(|way| bytes(way))?;
    let more = bytes(most).checked_sub(counted).filter(|&more| more > 0)?;
    Some(format!(
        "layer_table.copies_bytes_per_parameter is missing, and the profile was made with {profiled}. The predictions \
         count {counted} bytes per parameter, but {framework} uses up to {more} more, in total {}. Set the field to \
         the additional bytes per parameter, or to 0",
        most.text(&training.optimizer, 1)
    ))
}

/// Returns the note on predictions for a framework: its bytes per parameter, those that were counted, and the difference on the
/// stage with the highest peak. None where they agree, and where the framework's are not known.
fn note(
    framework: Framework,
    training: &TrainingSpec,
    stages: &[PredictedStage],
    copies: u32,
) -> Option<String> {
    let (index, fullest) = stages.iter().enumerate().max_by_key(|(_, stage)| stage.bytes)?;
    let (optimizer, data_degree) = (&training.optimizer, fullest.data_degree.max(1));
    let parts = fullest.sharding.optimizer_parts(data_degree);
    let of_parts = training.divided_bytes(parts.into(), parts);
    let per_parameter = |bytes: u64| bytes as f64 / f64::from(parts);
    let counted = per_parameter(of_parts.total()) + f64::from(copies);
    let all = (rules(framework).ways)(training.precision);
    let usual = way_of(all, fullest.sharding)?;
    // Of a plan that shards there is one way to train it.
    let ways = if fullest.sharding.is_none() { all } else { std::slice::from_ref(usual) };
    let agrees = |way: &TrainingWay| {
        way.bytes(optimizer, data_degree) == counted && way.in_step == 0 && way.besides.is_empty()
    };
    if ways.iter().all(agrees) {
        return None;
    }
    let texts: Vec<String> = ways.iter().map(|way| way.text(optimizer, data_degree)).collect();
    let difference = usual.bytes(optimizer, data_degree) - counted;
    let on_fullest = match fullest.weights {
        Some(weights) if difference != 0.0 => {
            let parameters = weights as f64 / per_parameter(of_parts.parameters).max(1.0);
            let bytes = Bytes((difference.abs() * parameters).round() as u64);
            let more = if difference > 0.0 { "more" } else { "less" };
            format!(
                "; {framework} {} uses {bytes} {more} than predicted on stage {index}, which has the highest peak",
                usual.setting
            )
        }
        _ => String::new(),
    };
    Some(format!(
        "bytes per parameter: {framework} holds {}; these figures count {}{on_fullest}",
        texts.join(", or "),
        (100.0 * counted).round() / 100.0
    ))
}

#[cfg(test)]
mod tests {
    use loadmaster_proto::training::{Precision, Schedule};

    use super::*;

    const ADAM: Optimizer =
        Optimizer::Adam { learning_rate: 0.1, beta1: 0.9, beta2: 0.99, epsilon: 1e-8, weight_decay: 0.0 };

    fn adam(precision: Precision) -> TrainingSpec {
        TrainingSpec { precision, optimizer: ADAM, ..loadmaster_samples::training(Schedule::OneFOneB, 1, 8) }
    }

    fn bytes(framework: Framework, precision: Precision, data_degree: u32) -> Vec<f64> {
        (rules(framework).ways)(precision).iter().map(|way| way.bytes(&ADAM, data_degree)).collect()
    }

    /// Published and documented figures: Megatron's own report, DeepSpeed's optimizers.
    #[test]
    fn frameworks_hold_the_bytes_that_are_known_of_them() {
        let added_up = Precision::Bf16Fp32Gradients;
        assert_eq!(bytes(Framework::Megatron, added_up, 1), [18.0, 18.0]);
        assert_eq!(bytes(Framework::Megatron, added_up, 4), [18.0, 6.0 + 12.0 / 4.0]);
        assert_eq!(bytes(Framework::Megatron, Precision::Bf16, 4), [16.0, 18.0, 4.0 + 12.0 / 4.0]);
        assert_eq!(bytes(Framework::Megatron, Precision::Fp32, 2), [16.0, 12.0]);
        assert_eq!(bytes(Framework::Deepspeed, Precision::Fp32, 1), [16.0, 24.0]);
        assert_eq!(bytes(Framework::Deepspeed, Precision::Bf16, 2), [12.0]);
        assert_eq!(bytes(Framework::Torchtitan, Precision::Bf16, 4), [18.0, 6.0 + 12.0 / 4.0, 16.0]);
        assert_eq!(bytes(Framework::Torchtitan, Precision::Fp32, 4), [16.0, 8.0 + 12.0 / 4.0]);
        for same in [Framework::MegatronBridge, Framework::Accelerate] {
            assert_eq!(bytes(same, added_up, 4), bytes(Framework::Megatron, added_up, 4));
        }
        assert_eq!(bytes(Framework::MegatronBridge, Precision::Bf16, 1), [18.0, 18.0]);
        assert!(bytes(Framework::Galvatron, Precision::Bf16, 1).is_empty());
    }

    fn told(framework: Framework, precision: Precision, data_degree: u32, copies: u32) -> Option<String> {
        let training = adam(precision);
        let stage = |parameters: u64| {
            let weights = training.static_bytes(parameters).parameters;
            PredictedStage {
                data_degree,
                sharding: StateSharding::None,
                bytes: Bytes(weights),
                weights: Some(weights),
            }
        };
        note(framework, &training, &[stage(10), stage(1 << 29)], copies)
    }

    /// Both figures, and the difference on the stage with the highest peak: 2 bytes of 2²⁹ parameters.
    #[test]
    fn a_note_has_both_figures_and_the_bytes_between_them() {
        let said = told(Framework::MegatronBridge, Precision::Bf16, 4, 0).unwrap();
        for part in [
            "megatron-bridge holds 18 bytes by default",
            "6 + 12/d = 9 bytes at data-parallel size 4",
            "count 16",
        ] {
            assert!(said.contains(part), "{part}: {said}");
        }
        assert!(
            said.ends_with(
                "by default uses 1.00 GiB more than predicted on stage 1, which has the highest peak"
            ),
            "{said}"
        );
        let exported = told(Framework::Megatron, Precision::Bf16, 4, 0).unwrap();
        for part in ["16 bytes with `--grad-reduce-in-bf16`", "4 more in the optimizer step", "count 16"] {
            assert!(exported.contains(part), "{part}: {exported}");
        }
        let shared = told(Framework::Deepspeed, Precision::Bf16, 4, 0).unwrap();
        assert!(shared.contains("uses 3.50 GiB less"), "{shared}");
    }

    /// A table of DeepSpeed counts 16 bytes of a parameter in fp32, and DeepSpeed with `ZeRO` 1 holds 24.
    #[test]
    fn copies_of_a_framework_that_no_table_states_are_warned_of() {
        for profiled in ["deepspeed", "Megatron-DeepSpeed"] {
            let told = unstated(profiled, &adam(Precision::Fp32)).unwrap();
            assert!(told.starts_with("layer_table.copies_bytes_per_parameter is missing"), "{told}");
            assert!(
                told.contains("count 16 bytes") && told.contains("deepspeed uses up to 8 more"),
                "{told}"
            );
        }
        for (profiled, precision) in
            [("Megatron-LM", Precision::Fp32), ("", Precision::Bf16), ("a script", Precision::Fp32)]
        {
            assert_eq!(unstated(profiled, &adam(precision)), None, "{profiled}");
        }
    }

    /// Where a profile or a training counts the framework's bytes, there is no note.
    #[test]
    fn figures_that_agree_have_no_note() {
        assert_eq!(told(Framework::Megatron, Precision::Fp32, 1, 0), None);
        assert_eq!(told(Framework::Megatron, Precision::Bf16Fp32Gradients, 1, 0), None);
        assert_eq!(told(Framework::Galvatron, Precision::Bf16, 1, 0), None, "nobody knows");
        let copies = told(Framework::Deepspeed, Precision::Fp32, 1, 8).unwrap();
        assert!(copies.contains("24 bytes") && copies.contains("count 24"), "{copies}");
    }
}
