//! What of a request no plan with interleaved stages can do.

use std::collections::BTreeSet;
use std::ops::RangeInclusive;

use loadmaster_launchers::launchers_with;
use loadmaster_proto::error::Invalid;
use loadmaster_proto::plan::constraints::Constraints;
use loadmaster_proto::plan::objective::{Objective, PlanShape, SearchMode};
use loadmaster_proto::training::Schedule;
use loadmaster_proto::training::actions::{Block, Way};
use loadmaster_proto::training::stage::StageConfig;

use super::InterleavedQuestion;
use crate::problem::Criteria;

/// # Errors
/// The launcher has one stage on each device.
pub(crate) fn check_launcher(criteria: &Criteria) -> Result<(), Invalid> {
    let Some(rules) = criteria.rules.filter(|rules| !rules.takes_turns) else { return Ok(()) };
    let why = format!(
        "is {}, of which no file says interleaved stages: name {} or other, or leave it out (`shape` plans a uniform grid), or \
         `virtual_stages`",
        rules.launcher,
        launchers_with(|rules| rules.takes_turns),
    );
    Err(Invalid::field("launcher", why))
}

impl InterleavedQuestion<'_> {
    /// # Errors
    /// Names the first field that contradicts interleaved stages, and what to do.
    pub(super) fn check(&self) -> Result<(), Invalid> {
        let Self { criteria, request, .. } = self;
        let refuse = |field: &str, why: String| Err(Invalid::field(field, why));
        if criteria.schedules != [Schedule::OneFOneB] {
            let why = "must be 1f1b alone where devices have several stages in turn: name it, or leave `virtual_stages` out";
            let named = !criteria.constraints.schedules.is_empty();
            return refuse(if named { "constraints.schedules" } else { "schedule" }, why.to_owned());
        }
        if criteria.mode != SearchMode::Exact {
            let why = format!("is {}, which knows no interleaved stages: leave it out", criteria.mode);
            return refuse("search_mode", why);
        }
        let is_given = request.partitioning.is_some();
        if !is_given && !matches!(criteria.shape, PlanShape::SinglePipeline | PlanShape::UniformGrid) {
            let why = format!(
                "is {}, and interleaved stages have equally many devices: ask for single-pipeline or uniform-grid",
                criteria.shape
            );
            return refuse("shape", why);
        }
        // Stages that are given have as many devices as they have.
        let counts_devices = matches!(criteria.objective, Objective::MinDevices | Objective::MinCost);
        if is_given && request.allowed.is_some() && counts_devices {
            let why = format!(
                "is {}, and the stages that `partitioning` names take as many devices as they say: leave out one of the two",
                criteria.objective
            );
            return refuse("objective", why);
        }
        let Constraints { recompute_per_stage, min_stages, max_stages, pins, allow_idle_devices, .. } =
            &criteria.constraints;
        let contradicts = [
            ("recompute_per_stage", *recompute_per_stage),
            ("min_stages", min_stages.is_some()),
            ("max_stages", max_stages.is_some()),
            ("pins", !pins.is_empty()),
            ("spanning", criteria.constraints.spanning.is_some()),
            ("allow_idle_devices", *allow_idle_devices),
        ];
        if let Some((field, _)) = contradicts.into_iter().find(|(_, contradicts)| *contradicts) {
            let why = "is not known of interleaved stages, of which every device has equally many: leave it out, or \
                       `virtual_stages`";
            return refuse(&format!("constraints.{field}"), why.to_owned());
        }
        if let Some(allowed) =
            request.allowed.as_ref().filter(|of| of.ways.iter().any(|way| *way != Way::Recompute))
            && allowed.blocks.iter().all(|block| block.is_of_micro_batch() && *block != Block::Activations)
        {
            let named: Vec<&str> = allowed.blocks.iter().map(|block| block.as_str()).collect();
            let why = format!(
                "are {}, none of which leaves a device of interleaved stages: add activations, weights, gradients or optimizer, or let \
                 `memory_ways` be recompute alone",
                named.join(" and ")
            );
            return refuse("memory_blocks", why);
        }
        if criteria.is_merged {
            let why = "is not known of interleaved stages: leave it out".to_owned();
            return refuse("merge_layers_to", why);
        }
        if !counts_devices {
            self.check_nodes()?;
        }
        self.check_said()?;
        self.check_kinds()
    }

    /// # Errors
    /// The launcher starts equally many processes on every node, and all devices are taken, of which nodes have other numbers.
    pub(super) fn check_nodes(&self) -> Result<(), Invalid> {
        let Self { criteria, request, job, .. } = self;
        let numbers: BTreeSet<u32> = job.fleet.nodes.iter().map(|node| node.devices).collect();
        if job.fleet.is_one_node || numbers.len() < 2 || !criteria.starts_evenly() {
            return Ok(());
        }
        let numbers: Vec<String> = numbers.iter().map(u32::to_string).collect();
        let why = format!(
            "has nodes of other numbers of devices ({}), all of which interleaved stages take, and the launcher starts as many processes \
             on each: exclude devices, or leave the launcher out",
            numbers.join(", ")
        );
        Err(Invalid::field(if request.goal.cluster.is_some() { "cluster" } else { "devices" }, why))
    }

    /// Checks that the launcher can say stages that are given, with what they compute again.
    ///
    /// # Errors
    /// It cannot.
    fn check_said(&self) -> Result<(), Invalid> {
        let Self { criteria, request, job, .. } = self;
        let (Some(rules), Some(partitioning)) = (&criteria.rules, &request.partitioning) else {
            return Ok(());
        };
        let stages: Vec<_> = partitioning.stages().iter().map(StageConfig::layers).collect();
        let may_end = |layers: &&RangeInclusive<usize>| !self.cuts.may_end(*layers.end());
        if let Some(layers) = stages.iter().find(may_end) {
            let why = format!(
                "ends a stage with layer {}, and {} keeps that with the next one: end it elsewhere, or leave the launcher out",
                layers.end(),
                rules.launcher
            );
            return Err(Invalid::field("partitioning", why));
        }
        if request.stage_actions.is_empty() {
            return Ok(());
        }
        rules.check_recomputed(job.model, &stages, &request.stage_actions)
    }

    /// # Errors
    /// Devices are unlike, or the profile is of others.
    fn check_kinds(&self) -> Result<(), Invalid> {
        let Self { builder, request, .. } = self;
        let (field, have) = match request.goal.cluster {
            Some(_) => ("cluster", "has devices"),
            None => ("devices", "are"),
        };
        let [(only, _)] = builder.kinds else {
            let kinds: BTreeSet<String> =
                self.job.fleet.kinds.iter().map(|of| format!("{} of {}", of.name, of.capacity)).collect();
            let why = format!(
                "{have} of several kinds or sizes ({}), and interleaved stages are planned on equal ones",
                kinds.into_iter().collect::<Vec<_>>().join(", ")
            );
            return Err(Invalid::field(field, why));
        };
        if only.profile != builder.chain.profile {
            let why = format!(
                "is of {}, and the devices are {}: of interleaved stages name the profile of the devices' kind first ({})",
                builder.chain.device_kind, only.device_kind, only.profile
            );
            return Err(Invalid::field("profile", why));
        }
        Ok(())
    }
}
