//! Memory actions on the command line.

use clap::Args;
use loadmaster_proto::measure::offload::CopyPace;
use loadmaster_proto::training::actions::{StageActions, StagedAction};
use loadmaster_proto::wire::v1;

/// What stages do so that they hold less.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Memory actions")]
pub(crate) struct Actions {
    /// What a stage does so that it holds less; may be given several times. `STAGE/LAYERS[@SLOTS]=recompute` computes
    /// these layers again as one run; `STAGE/LAYERS[@SLOTS]=BLOCK:TO[:AFTER,BEFORE]` has a block of each layer away
    /// between its uses: activations, inputs (of recomputed runs), versions (under PipeDream), weights, gradients or
    /// optimizer; to host, or to other stages' devices (`2@60%,3@40%`). Its copy has AFTER steps to leave, and BEFORE steps
    /// to come back. SLOTS are micro-batches in flight [default: all].
    ///
    /// For example: `--action 0/3..5=recompute --action 0/0..2=activations:host:1,2`
    #[arg(long = "action", value_name = "ACTION")]
    actions: Vec<StagedAction>,
}

impl Actions {
    /// The actions of each stage, as the wire carries them.
    pub(crate) fn by_stage(self) -> Vec<v1::StageActions> {
        StageActions::by_stage(self.actions).iter().map(Into::into).collect()
    }
}

/// How fast copies are, as the wire carries it.
pub(crate) fn copy_pace(text: &str) -> Result<v1::CopyPace, String> {
    text.parse::<CopyPace>().map(Into::into)
}
