//! Why a plan is not exported.

use std::fmt;

use loadmaster_proto::plan::objective::PlanShape;

use crate::envelope::Envelope;
use crate::target::Target;

/// A plan is something that a launcher cannot express, or an envelope not start.
#[derive(Debug, Clone, PartialEq)]
pub struct Refusal {
    /// Which launcher.
    pub target: Target,
    /// What was to start it.
    pub envelope: Envelope,
    /// The most general shape that it runs.
    pub required_shape: PlanShape,
    /// Whether the plan was recommended for this launcher, so that asking for such a one is no way out.
    pub is_for_it: bool,
    /// What it is that cannot be expressed, stage by stage; of the plan as a whole where there is no stage. Never empty.
    pub stages: Vec<StageRefusal>,
}

/// What a launcher cannot express of a plan.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StageRefusal {
    /// Of which stage; none of the plan as a whole.
    pub stage: Option<usize>,
    /// What it is, and what to do.
    pub why: String,
}

impl StageRefusal {
    pub(crate) fn of_plan(why: impl Into<String>) -> Self {
        Self { stage: None, why: why.into() }
    }

    pub(crate) fn of_stage(stage: usize, why: impl Into<String>) -> Self {
        Self { stage: Some(stage), why: why.into() }
    }
}

impl fmt::Display for StageRefusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.stage {
            Some(stage) => write!(f, "stage {stage} {}", self.why),
            None => write!(f, "the plan {}", self.why),
        }
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.envelope {
            Envelope::Torchrun => write!(f, "{} cannot run this plan", self.target)?,
            envelope => write!(f, "{envelope} cannot start {} with this plan", self.target)?,
        }
        for (index, stage) in self.stages.iter().enumerate() {
            write!(f, "{} {stage}", if index == 0 { ":" } else { ";" })?;
        }
        match self.envelope {
            Envelope::Torchrun if self.is_for_it => f.write_str("; export to another launcher"),
            Envelope::Torchrun => {
                f.write_str("; recommend one for this launcher (`launcher`), or export to another")
            }
            _ => Ok(()),
        }
    }
}

impl std::error::Error for Refusal {}
