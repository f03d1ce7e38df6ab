//! What of a request no plan with interleaved stages can do.

use std::collections::BTreeSet;
use std::ops::RangeInclusive;

use loadmaster_launchers::frameworks_with;
use loadmaster_proto::error::Invalid;
use loadmaster_proto::plan::compatibility::{Setting, Settings};
use loadmaster_proto::plan::constraints::Constraints;
use loadmaster_proto::plan::objective::{Objective, PlanShape, SearchMode};
use loadmaster_proto::training::Schedule;
use loadmaster_proto::training::actions::{Allowed, Block, Way};
use loadmaster_proto::training::stage::StageConfig;

use super::InterleavedQuestion;
use crate::objectives::FamilyContext;
use crate::problem::Criteria;

/// # Errors
/// The framework has one stage on each device.
pub(crate) fn check_framework(criteria: &Criteria) -> Result<(), Invalid> {
    let Some(rules) = criteria.rules.filter(|rules| !rules.takes_turns) else { return Ok(()) };
    let can = frameworks_with(|rules| rules.takes_turns);
    interleaved().says_instead(Setting::FrameworkWithoutTurns, rules.framework, can).check()
}

fn interleaved() -> Settings {
    Settings::default().when(true, Setting::VirtualStages)
}

impl InterleavedQuestion<'_> {
    /// # Errors
    /// Names the first field that contradicts interleaved stages, and what to do.
    pub(super) fn check(&self) -> Result<(), Invalid> {
        let FamilyContext { criteria, given, .. } = self.family;
        let Criteria { mode, shape, schedules, is_merged, .. } = criteria;
        let Constraints { recompute_per_stage, min_stages, max_stages, pins, spanning, .. } =
            &criteria.constraints;
        let is_other_schedule = *schedules != [Schedule::OneFOneB];
        let is_named = !criteria.constraints.schedules.is_empty();
        let has_equal_stages =
            given.is_some() || matches!(shape, PlanShape::SinglePipeline | PlanShape::UniformGrid);
        interleaved()
            .when(is_other_schedule && !is_named, Setting::OtherThan1f1b)
            .when(is_other_schedule && is_named, Setting::Schedules)
            .says_some(Setting::OtherMode, (*mode != SearchMode::Exact).then_some(mode))
            .says_some(Setting::UnequalStages, (!has_equal_stages).then_some(shape))
            .when(*recompute_per_stage, Setting::RecomputePerStage)
            .when(min_stages.is_some(), Setting::MinStages)
            .when(max_stages.is_some(), Setting::MaxStages)
            .when(!pins.is_empty(), Setting::Pins)
            .when(spanning.is_some(), Setting::Spanning)
            .when(criteria.constraints.allow_idle_devices, Setting::IdleDevices)
            .says_some(Setting::PassingBlocks, self.passing_blocks())
            .when(*is_merged, Setting::MergeLayers)
            .check()?;
        if !matches!(criteria.objective, Objective::MinDevices | Objective::MinCost) {
            self.check_nodes()?;
        }
        self.check_said()?;
        self.check_kinds()
    }

    /// The blocks that may leave, where none of them leaves a device of interleaved stages.
    fn passing_blocks(&self) -> Option<String> {
        let leave = |allowed: &&Allowed| allowed.ways.iter().any(|way| *way != Way::Recompute);
        let Allowed { blocks, .. } = self.request.allowed.as_ref().filter(leave)?;
        let passes = |block: &Block| block.is_of_micro_batch() && *block != Block::Activations;
        let named: Vec<&str> = blocks.iter().map(|block| block.as_str()).collect();
        blocks.iter().all(passes).then(|| named.join(" and "))
    }

    /// # Errors
    /// The framework starts equally many processes on every node, and all devices are taken, of which nodes have other numbers.
    pub(super) fn check_nodes(&self) -> Result<(), Invalid> {
        let Self { family: FamilyContext { criteria, job, .. }, request, .. } = self;
        let numbers: BTreeSet<u32> = job.fleet.nodes.iter().map(|node| node.devices).collect();
        if job.fleet.is_one_node || numbers.len() < 2 || !criteria.starts_evenly() {
            return Ok(());
        }
        let numbers: Vec<String> = numbers.iter().map(u32::to_string).collect();
        Settings::default()
            .when(true, Setting::EvenFramework)
            .says(Setting::UnevenNodes, numbers.join(", "))
            .in_field(Setting::UnevenNodes, request.goal.devices_field())
            .check()
    }

    /// Checks that the framework can say stages that are given, with what they recompute.
    ///
    /// # Errors
    /// It cannot.
    fn check_said(&self) -> Result<(), Invalid> {
        let Self { family: FamilyContext { criteria, job, given, .. }, request, .. } = self;
        let (Some(rules), Some(partitioning)) = (&criteria.rules, given) else {
            return Ok(());
        };
        let stages: Vec<_> = partitioning.stages().iter().map(StageConfig::layers).collect();
        let may_end = |layers: &&RangeInclusive<usize>| !self.cuts.may_end(*layers.end());
        if let Some(layers) = stages.iter().find(may_end) {
            let why = format!(
                "ends a stage with layer {}, but {} cannot split the model between this layer and the next layer. End \
                 the stage elsewhere, or remove `problem.framework`",
                layers.end(),
                rules.framework
            );
            return Err(Invalid::field("constraints.pipeline_layout", why));
        }
        if request.stage_actions.is_empty() {
            return Ok(());
        }
        rules.check_recomputed(job.model, &stages, &request.stage_actions)
    }

    /// # Errors
    /// Devices are unlike, or the profile is of others.
    fn check_kinds(&self) -> Result<(), Invalid> {
        let Self { family: FamilyContext { context, .. }, request, .. } = self;
        let [(only, _)] = context.kinds else {
            let field = request.goal.devices_field();
            let kinds: BTreeSet<String> = self
                .family
                .job
                .fleet
                .kinds
                .iter()
                .map(|of| format!("{} of {}", of.name, of.capacity))
                .collect();
            let kinds = kinds.into_iter().collect::<Vec<_>>().join(", ");
            return interleaved()
                .says(Setting::UnlikeDevices, kinds)
                .in_field(Setting::UnlikeDevices, field)
                .check();
        };
        if only.profile == context.chain.profile {
            return Ok(());
        }
        let says = format!("{}, but the devices are {}", context.chain.device_kind, only.device_kind);
        interleaved().says_instead(Setting::ForeignProfile, says, &only.profile).check()
    }
}
