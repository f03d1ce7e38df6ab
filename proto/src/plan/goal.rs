//! What a plan was asked for.

use serde::{Deserialize, Serialize};

use crate::name::ClusterName;
use crate::plan::constraints::Constraints;
use crate::plan::objective::{Launcher, MemoryUnit, Objective, PlanShape};

/// What a plan was asked for.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Goal {
    /// What it should be best at; none for a partitioning that the request named.
    pub objective: Option<Objective>,
    /// What peaks are compared as.
    pub memory_unit: MemoryUnit,
    /// The shape that the search was restricted to.
    pub shape: PlanShape,
    /// The launcher that it is for.
    pub launcher: Option<Launcher>,
    /// Version of the launcher, or empty.
    pub launcher_version: String,
    /// What else restricted it.
    pub constraints: Constraints,
    /// The cluster that it is on.
    pub cluster: Option<ClusterName>,
}
