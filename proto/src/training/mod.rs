//! How a model is trained.

pub mod actions;
pub mod boundaries;
pub mod chunk_order;
pub mod gradient_buckets;
pub mod notation;
pub mod overlap;
pub mod reshard;
pub mod scenario;
pub mod schedule;
pub mod shard;
pub mod sharding;
pub mod stage;
pub mod step_kind;
pub mod strategy;
mod wire;

use serde::de::value::{MapAccessDeserializer, MapDeserializer};
use serde::de::{MapAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize};

use crate::choice;
use crate::error::{Invalid, in_range};
use crate::model::Model;
use crate::wire::v1;

/// Number formats.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Precision {
    /// 32-bit everywhere.
    #[default]
    Fp32,
    /// bfloat16 parameters, activations and gradients; fp32 master weights and optimizer state.
    Bf16,
    /// As [`Precision::Bf16`], with gradients that are accumulated in fp32 beside the bfloat16 parameters
    /// (Megatron's default): what a backward pass computes of a parameter is added to them and freed.
    Bf16Fp32Gradients,
}

// On the wire it is two fields, see `wire`.
choice! { Precision { Fp32, Bf16, Bf16Fp32Gradients = "bf16 with fp32 gradients" } }

impl Precision {
    /// Bytes of one scalar of a parameter or activation, and of what a backward pass computes.
    pub fn scalar_bytes(self) -> u64 {
        match self {
            Self::Fp32 => 4,
            Self::Bf16 | Self::Bf16Fp32Gradients => 2,
        }
    }

    /// Bytes of one scalar of a parameter's gradient, as it is held from the first backward pass of an iteration to
    /// the step, and summed over replicas.
    pub fn gradient_bytes(self) -> u64 {
        match self {
            Self::Fp32 | Self::Bf16Fp32Gradients => 4,
            Self::Bf16 => 2,
        }
    }

    /// Whether an fp32 copy of the parameters is kept beside them.
    pub fn has_master_weights(self) -> bool {
        self != Self::Fp32
    }

    /// Whether gradients are held in another format than backward passes compute them in.
    pub fn has_main_gradients(self) -> bool {
        self == Self::Bf16Fp32Gradients
    }
}

/// Order of forward and backward passes; see [`crate::training::schedule`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Schedule {
    /// All forward, then all backward passes.
    #[default]
    Gpipe,
    /// One forward, one backward (PipeDream-Flush, DAPPLE).
    OneFOneB,
    /// 1F1B that never flushes: weights are updated behind every backward pass, and each micro-batch in flight goes
    /// back through the version of them that it went forward with.
    #[serde(rename = "pipedream")]
    PipeDream,
}

// Stored as "one_f_one_b".
choice! {
    Schedule = v1::Schedule { Gpipe, OneFOneB = "1f1b", PipeDream = "pipedream" as Pipedream }
}

/// What the backward pass recomputes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RecomputePolicy {
    /// Nothing.
    #[default]
    None,
    /// Everything inside a stage; only the stage's input is kept.
    Stage,
    /// Everything inside a layer; each layer's input is kept.
    Layer,
}

choice! { RecomputePolicy = v1::RecomputePolicy { None, Stage, Layer } }

/// The update rule.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
pub enum Optimizer {
    /// Stochastic gradient descent.
    Sgd {
        /// Step size.
        learning_rate: f64,
        /// 0 keeps no state.
        momentum: f64,
        /// L2 penalty.
        weight_decay: f64,
    },
    /// Adam.
    Adam {
        /// Step size.
        #[serde(default = "defaults::learning_rate")]
        learning_rate: f64,
        /// Decay of the first moment.
        #[serde(default = "defaults::beta1")]
        beta1: f64,
        /// Decay of the second moment.
        #[serde(default = "defaults::beta2")]
        beta2: f64,
        /// Added to the denominator.
        #[serde(default = "defaults::epsilon")]
        epsilon: f64,
        /// L2 penalty.
        #[serde(default)]
        weight_decay: f64,
    },
    /// Adam with decoupled weight decay (Loshchilov and Hutter): weights shrink by a share of themselves before the
    /// update, and gradients stay as they are.
    #[serde(rename = "adamw")]
    AdamW {
        /// Step size.
        #[serde(default = "defaults::learning_rate")]
        learning_rate: f64,
        /// Decay of the first moment.
        #[serde(default = "defaults::beta1")]
        beta1: f64,
        /// Decay of the second moment.
        #[serde(default = "defaults::beta2")]
        beta2: f64,
        /// Added to the denominator.
        #[serde(default = "defaults::epsilon")]
        epsilon: f64,
        /// Share of the weights, times the step size, that each step takes away.
        #[serde(default = "defaults::decoupled_weight_decay")]
        weight_decay: f64,
    },
}

/// PyTorch's defaults of what a document leaves out.
mod defaults {
    pub(super) fn learning_rate() -> f64 {
        0.001
    }

    pub(super) fn beta1() -> f64 {
        0.9
    }

    pub(super) fn beta2() -> f64 {
        0.999
    }

    pub(super) fn epsilon() -> f64 {
        1e-8
    }

    pub(super) fn decoupled_weight_decay() -> f64 {
        0.01
    }
}

/// Reads an update rule: its fields, or its kind as a word with PyTorch's defaults.
fn optimizer_or_word<'de, D: Deserializer<'de>>(from: D) -> Result<Optimizer, D::Error> {
    struct Rule;

    impl<'de> Visitor<'de> for Rule {
        type Value = Optimizer;

        fn expecting(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            out.write_str("an optimizer object with a kind field, or one of the words sgd, adam and adamw")
        }

        fn visit_str<E: serde::de::Error>(self, kind: &str) -> Result<Optimizer, E> {
            if kind == "sgd" {
                return Ok(Optimizer::default());
            }
            let entries = std::iter::once(("kind", kind));
            Optimizer::deserialize(MapDeserializer::new(entries))
        }

        fn visit_map<A: MapAccess<'de>>(self, fields: A) -> Result<Optimizer, A::Error> {
            Optimizer::deserialize(MapAccessDeserializer::new(fields))
        }
    }

    from.deserialize_any(Rule)
}

impl Default for Optimizer {
    fn default() -> Self {
        Self::Sgd { learning_rate: 0.01, momentum: 0.9, weight_decay: 0.0 }
    }
}

impl Optimizer {
    /// fp32 scalars of state per parameter, master weights not included.
    pub fn state_scalars(&self) -> u64 {
        match *self {
            Self::Sgd { momentum: 0.0, .. } => 0,
            Self::Sgd { .. } => 1,
            Self::Adam { .. } | Self::AdamW { .. } => 2,
        }
    }

    pub(crate) fn check(&self) -> Result<(), Invalid> {
        let share = |field: &str, value: f64| {
            if (0.0..1.0).contains(&value) {
                Ok(())
            } else {
                Err(invalid!(field, "{value} is out of range. Use 0 or more, and less than 1"))
            }
        };
        let above_zero = |field: &str, value: f64| {
            if value.is_finite() && value > 0.0 {
                Ok(())
            } else {
                Err(invalid!(field, "{value} is not valid. Use a value above 0"))
            }
        };
        let (learning_rate, weight_decay) = match *self {
            Self::Sgd { learning_rate, momentum, weight_decay } => {
                share("sgd.momentum", momentum)?;
                (learning_rate, weight_decay)
            }
            Self::Adam { learning_rate, beta1, beta2, epsilon, weight_decay } => {
                share("adam.beta1", beta1)?;
                share("adam.beta2", beta2)?;
                above_zero("adam.epsilon", epsilon)?;
                (learning_rate, weight_decay)
            }
            Self::AdamW { learning_rate, beta1, beta2, epsilon, weight_decay } => {
                share("adamw.beta1", beta1)?;
                share("adamw.beta2", beta2)?;
                above_zero("adamw.epsilon", epsilon)?;
                (learning_rate, weight_decay)
            }
        };
        above_zero("learning_rate", learning_rate)?;
        if weight_decay.is_finite() && weight_decay >= 0.0 {
            Ok(())
        } else {
            Err(invalid!("weight_decay", "{weight_decay} is not valid. Use 0 or more"))
        }
    }
}

/// Everything about training that memory and time depend on, besides the model and the plan.
///
/// ```
/// use loadmaster_proto::training::{Optimizer, Precision, RecomputePolicy, Schedule, TrainingSpec};
///
/// let training = TrainingSpec {
///     precision: Precision::Bf16,
///     optimizer: Optimizer::Adam { learning_rate: 1e-3, beta1: 0.9, beta2: 0.999, epsilon: 1e-8, weight_decay: 0.0 },
///     schedule: Schedule::OneFOneB,
///     micro_batch_size: 4,
///     micro_batches: 8,
///     recompute: RecomputePolicy::None,
///     seed: 0,
/// }
/// .checked()?;
/// assert_eq!(training.global_batch_size(), 32);
/// assert_eq!(training.static_bytes(1).total(), 16, "2 + 4 of the parameter, 2 of its gradient, 8 of Adam");
/// # Ok::<(), loadmaster_proto::error::Invalid>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TrainingSpec {
    /// Number formats.
    pub precision: Precision,
    /// Update rule.
    #[serde(deserialize_with = "optimizer_or_word")]
    pub optimizer: Optimizer,
    /// Order of the passes.
    pub schedule: Schedule,
    /// Samples of one stage pass.
    pub micro_batch_size: u32,
    /// Stage passes per iteration.
    pub micro_batches: u32,
    /// What is recomputed.
    pub recompute: RecomputePolicy,
    /// Seed of parameters, data and dropout.
    pub seed: u64,
}

impl TrainingSpec {
    /// Most samples of one stage pass.
    pub const MAX_MICRO_BATCH_SIZE: u32 = 1_000_000;
    /// Most stage passes per iteration.
    pub const MAX_MICRO_BATCHES: u32 = 10_000;

    /// Checks the ranges.
    ///
    /// # Errors
    /// Names the first field that is out of range.
    pub fn checked(self) -> Result<Self, Invalid> {
        in_range("micro_batch_size", self.micro_batch_size, 1..=Self::MAX_MICRO_BATCH_SIZE)?;
        in_range("micro_batches", self.micro_batches, 1..=Self::MAX_MICRO_BATCHES)?;
        in_range("seed", self.seed, 0..=i64::MAX as u64)?;
        self.optimizer.check().map_err(|invalid| invalid.under("optimizer"))?;
        Ok(self)
    }

    /// Checks that a model can be trained in this way.
    ///
    /// # Errors
    /// Names the field, and what would be right.
    pub fn check_model(&self, model: &Model) -> Result<(), Invalid> {
        if self.schedule.updates_always() && model.has_tied_head() {
            let why = format!(
                "{} updates the token embedding and the tied head at different times, but both share one weight. Untie \
                 the head, or use the schedule 1f1b",
                self.schedule
            );
            return Err(Invalid::field("schedule", why));
        }
        Ok(())
    }

    /// Samples per iteration of one replica.
    pub fn global_batch_size(&self) -> u64 {
        u64::from(self.micro_batch_size) * u64::from(self.micro_batches)
    }

    /// The same training at another micro-batch size.
    #[must_use]
    pub fn with_micro_batch_size(self, micro_batch_size: u32) -> Self {
        Self { micro_batch_size, ..self }
    }

    /// Bytes of parameters (master weights included), gradients and optimizer state of `scalars`
    /// trained scalars.
    pub fn static_bytes(&self, scalars: u64) -> StaticBytes {
        self.sharded_bytes(scalars, scalars)
    }

    /// Returns the same for a device that updates `updated` of them: it has master weights and optimizer state of these alone.
    pub fn sharded_bytes(&self, scalars: u64, updated: u64) -> StaticBytes {
        let master = if self.precision.has_master_weights() { 4 } else { 0 };
        let weights = scalars.saturating_mul(self.precision.scalar_bytes());
        StaticBytes {
            parameters: weights.saturating_add(updated.saturating_mul(master)),
            gradients: scalars.saturating_mul(self.precision.gradient_bytes()),
            optimizer: updated.saturating_mul(4 * self.optimizer.state_scalars()),
            buffers: 0,
        }
    }

    /// Returns the same for a device that updates one of so many equal parts of them, rounded up.
    pub fn divided_bytes(&self, scalars: u64, parts: u32) -> StaticBytes {
        self.sharded_bytes(scalars, sharding::part_length(scalars, parts))
    }

    /// Bytes of buffers of `scalars` scalars: they have the parameters' number format.
    pub fn buffer_bytes(&self, scalars: u64) -> u64 {
        scalars.saturating_mul(self.precision.scalar_bytes())
    }
}

/// Bytes that a stage holds whatever the batch. Sums stop at the largest number instead of restarting at 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct StaticBytes {
    /// Parameters, master weights included.
    pub parameters: u64,
    /// Gradients.
    pub gradients: u64,
    /// Optimizer state.
    pub optimizer: u64,
    /// Tensors that are held but not trained: running statistics, tables of rotary positions.
    #[serde(default)]
    pub buffers: u64,
}

impl StaticBytes {
    /// All four.
    pub fn total(&self) -> u64 {
        let Self { parameters, gradients, optimizer, buffers } = *self;
        parameters.saturating_add(gradients).saturating_add(optimizer).saturating_add(buffers)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::zoo::{Gpt2, Zoo};

    const ADAMW: Optimizer =
        Optimizer::AdamW { learning_rate: 1e-3, beta1: 0.9, beta2: 0.95, epsilon: 1e-8, weight_decay: 0.1 };

    fn training(precision: Precision, optimizer: Optimizer) -> TrainingSpec {
        TrainingSpec {
            precision,
            optimizer,
            schedule: Schedule::Gpipe,
            micro_batch_size: 1,
            micro_batches: 1,
            recompute: RecomputePolicy::None,
            seed: 0,
        }
    }

    /// Sixteen bytes per parameter with Adam in either precision, eighteen where gradients are fp32 beside bf16.
    #[test]
    fn bytes_per_parameter_follow_from_precision_and_update_rule() {
        let bytes = |precision| {
            let StaticBytes { parameters, gradients, optimizer, .. } =
                training(precision, ADAMW).static_bytes(1);
            [parameters, gradients, optimizer]
        };
        assert_eq!(bytes(Precision::Fp32), [4, 4, 8]);
        assert_eq!(bytes(Precision::Bf16), [6, 2, 8]);
        assert_eq!(bytes(Precision::Bf16Fp32Gradients), [6, 4, 8]);
    }

    /// Words of precisions and update rules are part of what is stored.
    #[test]
    fn stored_trainings_name_precision_and_update_rule() {
        let new = training(Precision::Bf16Fp32Gradients, ADAMW);
        let text = serde_json::to_string(&new).unwrap();
        assert!(text.contains(r#""bf16_fp32_gradients""#) && text.contains(r#""kind":"adamw""#), "{text}");
        assert_eq!(serde_json::from_str::<TrainingSpec>(&text).unwrap(), new);
    }

    /// An update rule is its kind as a word, or an object whose constants are optional.
    #[test]
    fn an_update_rule_may_be_a_word_and_its_constants_are_optional() {
        let read = |optimizer: &str| {
            let text = format!(
                r#"{{"precision":"bf16","optimizer":{optimizer},"schedule":"gpipe","micro_batch_size":1,
                     "micro_batches":1,"recompute":"none","seed":0}}"#
            );
            serde_json::from_str::<TrainingSpec>(&text).map(|training| training.optimizer)
        };
        let (learning_rate, beta1, beta2, epsilon) = (0.001, 0.9, 0.999, 1e-8);
        let adam = Optimizer::Adam { learning_rate, beta1, beta2, epsilon, weight_decay: 0.0 };
        let adamw = Optimizer::AdamW { learning_rate, beta1, beta2, epsilon, weight_decay: 0.01 };
        for (text, rule) in [
            (r#""adamw""#, adamw),
            (r#""adam""#, adam),
            (r#""sgd""#, Optimizer::default()),
            (r#"{"kind":"adamw"}"#, adamw),
            (r#"{"kind":"adam","learning_rate":0.001}"#, adam),
        ] {
            assert_eq!(read(text).unwrap(), rule, "{text}");
        }
        for wrong in [r#""lion""#, r#"{"kind":"lion"}"#, "1", r#"{"kind":"adam","beta3":0.1}"#] {
            assert!(read(wrong).is_err(), "{wrong}");
        }
        assert!(read(r#""lion""#).unwrap_err().to_string().contains("adamw"));
    }

    /// The two ends of a tied weight would be updated at different moments.
    #[test]
    fn a_tied_weight_cannot_be_trained_under_pipedream() {
        let gpt =
            |untied_head| Zoo::Gpt2(Gpt2 { blocks: 2, untied_head, ..Gpt2::default() }).build().unwrap();
        for schedule in Schedule::ALL {
            let training = TrainingSpec { schedule, ..training(Precision::Fp32, ADAMW) };
            assert_eq!(training.check_model(&gpt(true)), Ok(()));
            let fields: Vec<String> = match training.check_model(&gpt(false)) {
                Ok(()) => Vec::new(),
                Err(invalid) => invalid.violations().iter().map(|of| of.field.clone()).collect(),
            };
            let expected: &[&str] = if schedule == Schedule::PipeDream { &["schedule"] } else { &[] };
            assert_eq!(fields, expected);
        }
    }

    #[test]
    fn numbers_of_adamw_are_checked_by_field() {
        let wrong = Optimizer::AdamW {
            learning_rate: 1e-3,
            beta1: 1.0,
            beta2: 0.95,
            epsilon: 1e-8,
            weight_decay: 0.0,
        };
        let refused = training(Precision::Fp32, wrong).checked().unwrap_err();
        assert_eq!(refused.violations()[0].field, "optimizer.adamw.beta1");
    }
}
