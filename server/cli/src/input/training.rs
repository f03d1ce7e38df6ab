//! Training settings on the command line, and the memory optimizations that may be chosen.

use clap::{Args, ValueEnum};
use loadmaster_proto::measure::offload::CopyPace;
use loadmaster_proto::training::actions::{StageActions, StagedAction};
use loadmaster_proto::wire::v1;

use super::parse::choice;
use crate::failure::Failure;

/// How the model is trained.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Training")]
pub(crate) struct TrainingArgs {
    /// Samples of one micro-batch.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(i32).range(1..=1_000_000))]
    micro_batch_size: i32,

    /// Number of micro-batches per iteration. Times the micro-batch size it is the global batch size.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(i32).range(1..=10_000),
          required_unless_present = "global_batch_size")]
    micro_batches: Option<i32>,

    /// Samples per iteration, instead of --micro-batches.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(i64).range(1..))]
    global_batch_size: Option<i64>,

    /// Pipeline schedule: the order of forward and backward passes.
    #[arg(long, value_parser = choice::<v1::Schedule>(), default_value = "gpipe")]
    schedule: v1::Schedule,

    /// Activation recomputation: activations that the backward pass recomputes.
    #[arg(long, value_parser = choice::<v1::RecomputePolicy>(), default_value = "none")]
    recompute: v1::RecomputePolicy,

    /// Number formats of parameters, gradients and activations.
    #[arg(long, value_parser = choice::<v1::Precision>(), default_value = "fp32")]
    precision: v1::Precision,

    /// Number format of gradient accumulation. Megatron's default with bf16 parameters is fp32 [default: that of
    /// --precision].
    #[arg(long, value_parser = choice::<v1::Precision>())]
    gradient_precision: Option<v1::Precision>,

    /// Optimizer.
    #[arg(long, value_enum, default_value_t = OptimizerKind::Sgd)]
    optimizer: OptimizerKind,

    /// Learning rate [default: 0.01 for sgd, 0.001 for adam and adamw].
    #[arg(long, value_name = "RATE")]
    learning_rate: Option<f64>,

    /// Weight decay: an L2 penalty [default: 0], and for adamw decoupled from the gradient [default: 0.01].
    #[arg(long, value_name = "RATE")]
    weight_decay: Option<f64>,

    /// For sgd: momentum; 0 needs no state [default: 0.9].
    #[arg(long, value_name = "SHARE")]
    momentum: Option<f64>,

    /// For adam and adamw: decay of the first moment [default: 0.9].
    #[arg(long, value_name = "SHARE")]
    beta1: Option<f64>,

    /// For adam and adamw: decay of the second moment [default: 0.999].
    #[arg(long, value_name = "SHARE")]
    beta2: Option<f64>,

    /// For adam and adamw: added to the denominator [default: 1e-8].
    #[arg(long, value_name = "VALUE")]
    epsilon: Option<f64>,

    /// Seed of parameters, data and dropout.
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = clap::value_parser!(i64).range(0..))]
    seed: i64,
}

/// An optimizer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum OptimizerKind {
    /// Stochastic gradient descent.
    Sgd,
    /// Adam.
    Adam,
    /// Adam with decoupled weight decay.
    Adamw,
}

impl TrainingArgs {
    /// As a message.
    pub(crate) fn spec(&self) -> Result<v1::TrainingSpec, Failure> {
        Ok(v1::TrainingSpec {
            precision: self.precision.into(),
            gradient_precision: self.gradient_precision.unwrap_or_default().into(),
            optimizer: Some(self.optimizer()?),
            schedule: self.schedule.into(),
            micro_batch_size: self.micro_batch_size,
            micro_batch_count: self.micro_batches.unwrap_or_default(),
            global_batch_size: self.global_batch_size.unwrap_or_default(),
            recompute: self.recompute.into(),
            seed: self.seed,
        })
    }

    fn optimizer(&self) -> Result<v1::Optimizer, Failure> {
        let foreign = |kind: &str, given: &[(&str, bool)]| match given.iter().find(|(_, given)| *given) {
            Some((option, _)) => {
                Failure::usage(format!("{option} is not valid with --optimizer {kind}. Leave {option} out."))
            }
            None => Ok(()),
        };
        let kind = match self.optimizer {
            OptimizerKind::Sgd => {
                foreign(
                    "sgd",
                    &[
                        ("--beta1", self.beta1.is_some()),
                        ("--beta2", self.beta2.is_some()),
                        ("--epsilon", self.epsilon.is_some()),
                    ],
                )?;
                v1::optimizer::Kind::Sgd(v1::Sgd { momentum: self.momentum })
            }
            OptimizerKind::Adam => {
                foreign("adam", &[("--momentum", self.momentum.is_some())])?;
                v1::optimizer::Kind::Adam(v1::Adam {
                    beta1: self.beta1,
                    beta2: self.beta2,
                    epsilon: self.epsilon,
                })
            }
            OptimizerKind::Adamw => {
                foreign("adamw", &[("--momentum", self.momentum.is_some())])?;
                v1::optimizer::Kind::Adamw(v1::AdamW {
                    beta1: self.beta1,
                    beta2: self.beta2,
                    epsilon: self.epsilon,
                })
            }
        };
        Ok(v1::Optimizer {
            kind: Some(kind),
            learning_rate: self.learning_rate,
            weight_decay: self.weight_decay,
        })
    }
}

/// Given memory optimizations of stages.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Memory")]
pub(crate) struct Actions {
    /// Memory optimization of a stage; may be repeated. `STAGE/LAYERS[@SLOTS]=recompute` recomputes these layers together.
    /// `STAGE/LAYERS[@SLOTS]=BLOCK:TO[:AFTER,BEFORE]` offloads a block of each layer between its uses. Blocks are activations,
    /// inputs (of recomputed layers), versions (asynchronous 1F1B), weights, gradients and optimizer. TO is host, or devices of
    /// other stages (`2@60%,3@40%`). The copy may take AFTER steps out and BEFORE steps back. SLOTS are micro-batches in flight
    /// [default: all].
    ///
    /// For example: `--stage-optimization 0/3..5=recompute --stage-optimization 0/0..2=activations:host:1,2`
    #[arg(long, value_name = "OPTIMIZATION", hide_short_help = true)]
    stage_optimization: Vec<StagedAction>,
}

impl Actions {
    /// The actions of each stage, as the wire carries them.
    pub(crate) fn by_stage(self) -> Vec<v1::StageMemoryOptimizations> {
        StageActions::by_stage(self.stage_optimization).iter().map(Into::into).collect()
    }
}

/// How fast copies are, as the wire carries it.
pub(crate) fn copy_pace(text: &str) -> Result<v1::CopyBandwidth, String> {
    text.parse::<CopyPace>().map(Into::into)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::verbs::tests::parsed;

    fn spec(options: &str) -> Result<v1::TrainingSpec, Failure> {
        let line = format!("--micro-batch-size 8 --micro-batches 4 {options}");
        parsed::<TrainingArgs>(&line).unwrap().spec()
    }

    #[test]
    fn options_become_the_message() {
        let spec = spec("--schedule 1f1b --optimizer adam --beta2 0.95 --precision bf16").unwrap();
        assert_eq!(spec.schedule(), v1::Schedule::OneFOneB);
        assert_eq!(spec.precision(), v1::Precision::Bf16);
        let adam = v1::Adam { beta2: Some(0.95), ..v1::Adam::default() };
        assert_eq!(spec.optimizer.unwrap().kind, Some(v1::optimizer::Kind::Adam(adam)));
    }

    #[test]
    fn adamw_and_fp32_gradients_are_options() {
        let spec =
            spec("--optimizer adamw --weight-decay 0.1 --precision bf16 --gradient-precision fp32").unwrap();
        assert_eq!((spec.precision(), spec.gradient_precision()), (v1::Precision::Bf16, v1::Precision::Fp32));
        let optimizer = spec.optimizer.unwrap();
        assert_eq!(optimizer.kind, Some(v1::optimizer::Kind::Adamw(v1::AdamW::default())));
        assert_eq!(optimizer.weight_decay, Some(0.1));
    }

    #[test]
    fn an_option_of_the_other_optimizer_is_refused() {
        assert!(matches!(spec("--beta1 0.9"), Err(Failure::Usage(text)) if text.contains("--beta1")));
        assert!(matches!(spec("--optimizer adam --momentum 0"), Err(Failure::Usage(_))));
        assert!(matches!(spec("--optimizer adamw --momentum 0"), Err(Failure::Usage(_))));
    }
}
