//! Training settings, with their documented defaults.

use crate::error::{Invalid, in_range, required};
use crate::message;
use crate::training::{Optimizer, Precision, RecomputePolicy, Schedule, TrainingSpec};
use crate::wire::{ToWire, field, v1};

message! { TrainingSpec <=> v1::TrainingSpec }

impl From<&TrainingSpec> for v1::TrainingSpec {
    fn from(training: &TrainingSpec) -> Self {
        let (precision, gradient_precision) = match training.precision {
            Precision::Fp32 => (v1::Precision::Fp32, v1::Precision::Fp32),
            Precision::Bf16 => (v1::Precision::Bf16, v1::Precision::Bf16),
            Precision::Bf16Fp32Gradients => (v1::Precision::Bf16, v1::Precision::Fp32),
        };
        Self {
            precision: precision.into(),
            optimizer: Some(training.optimizer.into()),
            schedule: training.schedule.to_wire(),
            micro_batch_size: training.micro_batch_size.to_wire(),
            micro_batch_count: training.micro_batches.to_wire(),
            recompute: training.recompute.to_wire(),
            seed: training.seed.to_wire(),
            global_batch_size: training.global_batch_size().to_wire(),
            gradient_precision: gradient_precision.into(),
        }
    }
}

impl TryFrom<v1::TrainingSpec> for TrainingSpec {
    type Error = Invalid;

    fn try_from(wire: v1::TrainingSpec) -> Result<Self, Invalid> {
        let precision = precision(&wire)?;
        let schedule: Option<Schedule> = field("schedule", wire.schedule)?;
        let recompute: Option<RecomputePolicy> = field("recompute", wire.recompute)?;
        let optimizer: Option<Optimizer> = field("optimizer", wire.optimizer)?;
        let micro_batch_size = field("micro_batch_size", wire.micro_batch_size)?;
        Self {
            precision,
            optimizer: optimizer.unwrap_or_default(),
            schedule: schedule.unwrap_or_default(),
            micro_batch_size,
            micro_batches: micro_batches(&wire, micro_batch_size)?,
            recompute: recompute.unwrap_or_default(),
            seed: field("seed", wire.seed)?,
        }
        .checked()
    }
}

/// The number formats of parameters and of gradients as one.
fn precision(wire: &v1::TrainingSpec) -> Result<Precision, Invalid> {
    let unknown = |field: &str, value: i32| invalid!(field, "{value} is not a known value");
    let own = v1::Precision::try_from(wire.precision).map_err(|_| unknown("precision", wire.precision))?;
    let gradients = v1::Precision::try_from(wire.gradient_precision)
        .map_err(|_| unknown("gradient_precision", wire.gradient_precision))?;
    match (own, gradients) {
        (v1::Precision::Unspecified | v1::Precision::Fp32, v1::Precision::Bf16) => Err(Invalid::field(
            "gradient_precision",
            "is bf16, but the precision of the training is fp32. Use fp32 gradients, or leave the gradient precision \
             unset",
        )),
        (v1::Precision::Unspecified | v1::Precision::Fp32, _) => Ok(Precision::Fp32),
        (v1::Precision::Bf16, v1::Precision::Fp32) => Ok(Precision::Bf16Fp32Gradients),
        (v1::Precision::Bf16, _) => Ok(Precision::Bf16),
    }
}

/// Stage passes per iteration, from either way of saying it.
fn micro_batches(wire: &v1::TrainingSpec, micro_batch_size: u32) -> Result<u32, Invalid> {
    let named: u32 = field("micro_batch_count", wire.micro_batch_count)?;
    let global: u64 = field("global_batch_size", wire.global_batch_size)?;
    if global == 0 || micro_batch_size == 0 {
        return in_range("micro_batch_count", named, 1..=TrainingSpec::MAX_MICRO_BATCHES);
    }
    let refuse = |why: String| Err(invalid!("global_batch_size", "{global} is not valid: {why}"));
    if !global.is_multiple_of(micro_batch_size.into()) {
        return refuse(format!("use a multiple of micro_batch_size ({micro_batch_size})"));
    }
    match u32::try_from(global / u64::from(micro_batch_size)) {
        Ok(implied) if named == 0 || named == implied => Ok(implied),
        Ok(implied) => refuse(format!(
            "global_batch_size / micro_batch_size is {implied}, but micro_batch_count is \
            {named}. Use {implied} micro-batches, or leave micro_batch_count unset"
        )),
        Err(_) => refuse(format!("it gives more than {} micro-batches", TrainingSpec::MAX_MICRO_BATCHES)),
    }
}

message! { Optimizer <=> v1::Optimizer }

impl From<&Optimizer> for v1::Optimizer {
    fn from(optimizer: &Optimizer) -> Self {
        use v1::optimizer::Kind;
        let (kind, learning_rate, weight_decay) = match *optimizer {
            Optimizer::Sgd { learning_rate, momentum, weight_decay } => {
                (Kind::Sgd(v1::Sgd { momentum: Some(momentum) }), learning_rate, weight_decay)
            }
            Optimizer::Adam { learning_rate, beta1, beta2, epsilon, weight_decay } => {
                let adam = v1::Adam { beta1: Some(beta1), beta2: Some(beta2), epsilon: Some(epsilon) };
                (Kind::Adam(adam), learning_rate, weight_decay)
            }
            Optimizer::AdamW { learning_rate, beta1, beta2, epsilon, weight_decay } => {
                let adamw = v1::AdamW { beta1: Some(beta1), beta2: Some(beta2), epsilon: Some(epsilon) };
                (Kind::Adamw(adamw), learning_rate, weight_decay)
            }
        };
        Self { kind: Some(kind), learning_rate: Some(learning_rate), weight_decay: Some(weight_decay) }
    }
}

impl TryFrom<v1::Optimizer> for Optimizer {
    type Error = Invalid;

    fn try_from(wire: v1::Optimizer) -> Result<Self, Invalid> {
        use v1::optimizer::Kind;
        let weight_decay = wire.weight_decay.unwrap_or(0.0);
        Ok(match required("kind", wire.kind)? {
            Kind::Sgd(sgd) => Self::Sgd {
                learning_rate: wire.learning_rate.unwrap_or(0.01),
                momentum: sgd.momentum.unwrap_or(0.9),
                weight_decay,
            },
            Kind::Adam(adam) => Self::Adam {
                learning_rate: wire.learning_rate.unwrap_or(0.001),
                beta1: adam.beta1.unwrap_or(0.9),
                beta2: adam.beta2.unwrap_or(0.999),
                epsilon: adam.epsilon.unwrap_or(1e-8),
                weight_decay,
            },
            Kind::Adamw(adamw) => Self::AdamW {
                learning_rate: wire.learning_rate.unwrap_or(0.001),
                beta1: adamw.beta1.unwrap_or(0.9),
                beta2: adamw.beta2.unwrap_or(0.999),
                epsilon: adamw.epsilon.unwrap_or(1e-8),
                // PyTorch's default.
                weight_decay: wire.weight_decay.unwrap_or(0.01),
            },
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wire(micro_batch_size: i32, micro_batches: i32, global_batch_size: i64) -> v1::TrainingSpec {
        v1::TrainingSpec {
            micro_batch_size,
            micro_batch_count: micro_batches,
            global_batch_size,
            ..Default::default()
        }
    }

    #[test]
    fn a_global_batch_is_another_way_to_say_micro_batches() {
        for request in [wire(4, 0, 32), wire(4, 8, 0), wire(4, 8, 32)] {
            assert_eq!(TrainingSpec::try_from(request).unwrap().micro_batches, 8);
        }
    }

    #[test]
    fn a_micro_batch_of_zero_or_one_that_does_not_divide_is_named() {
        for (request, field) in [
            (wire(0, 4, 0), "micro_batch_size"),
            (wire(-1, 4, 0), "micro_batch_size"),
            (wire(4, 0, 0), "micro_batch_count"),
            (wire(5, 0, 32), "global_batch_size"),
            (wire(4, 7, 32), "global_batch_size"),
        ] {
            let error = TrainingSpec::try_from(request).unwrap_err();
            assert_eq!(error.violations()[0].field, field);
        }
    }

    #[test]
    fn settings_survive_the_wire() {
        let request = v1::TrainingSpec {
            optimizer: Some(v1::Optimizer {
                kind: Some(v1::optimizer::Kind::Adam(v1::Adam::default())),
                ..Default::default()
            }),
            schedule: v1::Schedule::OneFOneB.into(),
            precision: v1::Precision::Bf16.into(),
            recompute: v1::RecomputePolicy::Layer.into(),
            ..wire(2, 3, 0)
        };
        let training = TrainingSpec::try_from(request).unwrap();
        assert_eq!(TrainingSpec::try_from(v1::TrainingSpec::from(training)).unwrap(), training);
    }

    /// Gradients in fp32 beside bf16 parameters are a choice; gradients that are less precise than parameters are a
    /// mistake.
    #[test]
    fn the_precision_of_gradients_is_another_setting() {
        let of = |precision: v1::Precision, gradients: v1::Precision| {
            let wire = v1::TrainingSpec {
                precision: precision.into(),
                gradient_precision: gradients.into(),
                ..wire(2, 3, 0)
            };
            TrainingSpec::try_from(wire).map(|training| {
                let again = TrainingSpec::try_from(v1::TrainingSpec::from(training)).unwrap();
                assert_eq!(again, training);
                training.precision
            })
        };
        use v1::Precision::{Bf16, Fp32, Unspecified};
        assert_eq!(of(Bf16, Unspecified), Ok(Precision::Bf16));
        assert_eq!(of(Bf16, Bf16), Ok(Precision::Bf16));
        assert_eq!(of(Bf16, Fp32), Ok(Precision::Bf16Fp32Gradients));
        assert_eq!(of(Unspecified, Unspecified), Ok(Precision::Fp32));
        assert_eq!(of(Fp32, Fp32), Ok(Precision::Fp32));
        assert_eq!(of(Fp32, Bf16).unwrap_err().violations()[0].field, "gradient_precision");
    }

    #[test]
    fn adamw_survives_the_wire_and_decays_by_default() {
        let kind = Some(v1::optimizer::Kind::Adamw(v1::AdamW::default()));
        let request = v1::TrainingSpec {
            optimizer: Some(v1::Optimizer { kind, ..Default::default() }),
            ..wire(2, 3, 0)
        };
        let training = TrainingSpec::try_from(request).unwrap();
        assert!(matches!(training.optimizer, Optimizer::AdamW { weight_decay: 0.01, .. }), "{training:?}");
        assert_eq!(TrainingSpec::try_from(v1::TrainingSpec::from(training)).unwrap(), training);
    }
}
