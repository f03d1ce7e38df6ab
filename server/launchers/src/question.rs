//! What is exported, and the way from there to a framework's files.

use loadmaster_proto::model::Model;
use loadmaster_proto::name::{PlanName, is_device_uuid, is_host};
use loadmaster_proto::plan::objective::PlanShape;
use loadmaster_proto::plan::{PlacedDevice, Plan};
use loadmaster_proto::training::sharding::StateSharding;
use loadmaster_proto::training::{RecomputePolicy, Schedule};

use crate::allocation::{self, Allocation};
use crate::cut::Cut;
use crate::export_parts::Export;
use crate::framework::{Exporter, Written, exporters, frameworks_with, rules, variants};
use crate::grid::Grid;
use crate::manifest::Manifest;
use crate::rules::Rules;
use crate::target::{Target, Variant, Version};
use crate::transformer::Transformer;
use crate::{Refusal, StageRefusal, local_order, memory, program_settings};

/// A plan that is to be exported.
#[derive(Debug, Clone, Copy)]
pub struct ExportQuestion<'a> {
    /// Its name, which files carry.
    pub name: &'a PlanName,
    /// The plan.
    pub plan: &'a Plan,
    /// Its model; none where it is a chain of named layers that no one else knows.
    pub model: Option<&'a Model>,
    /// For whom.
    pub target: Target,
    /// The version that the framework has, which may be newer than that of the target; none where no one says.
    pub named: Option<Version>,
    /// In which of its ways.
    pub variant: Variant,
}

/// Exports a plan.
///
/// # Errors
/// The framework cannot express it; nothing is rounded.
pub fn export(question: &ExportQuestion<'_>) -> Result<Export, Box<Refusal>> {
    let Some(exporter) = exporters().iter().find(|exporter| exporter.target == question.target) else {
        let none = StageRefusal::of_plan(
            "cannot be exported to this version of the framework. Set another `framework_version`",
        );
        return Err(refusal(question, PlanShape::PerStageMesh, vec![none]));
    };
    let Exporter { target, verified, proof, write, .. } = *exporter;
    let shape = rules(target.framework).shape;
    if question.variant != Variant::Usual && !variants(target.framework).contains(&question.variant) {
        let none = StageRefusal::of_plan(
            "cannot be exported with this `variant`, because the framework does not have it. Remove `variant`",
        );
        return Err(refusal(question, shape, vec![none]));
    }
    let hostile = hostile_places(question.plan);
    if !hostile.is_empty() {
        return Err(refusal(question, shape, hostile));
    }
    if question.plan.is_interleaved() && !rules(target.framework).takes_turns {
        return Err(refusal(question, shape, vec![in_turn(question.plan)]));
    }
    if question.is_sequence_parallel() && !rules(target.framework).sequence_parallel {
        let why = format!(
            "has sequence parallelism, which {} does not support. Export to {}, or plan with a layer table without \
             sequence_parallel",
            target.framework,
            frameworks_with(|rules| rules.sequence_parallel)
        );
        return Err(refusal(question, shape, vec![StageRefusal::of_plan(why)]));
    }
    let foreign = foreign_shardings(question.plan, &rules(target.framework));
    if !foreign.is_empty() {
        return Err(refusal(question, shape, foreign));
    }
    let Written { files, command, runs_once, environment, ranks, mut warnings, held, sets_numerics } =
        write(question).map_err(|stages| refusal(question, shape, stages))?;
    let memory = memory::of_stages(question, held.as_ref());
    warnings.extend(memory::warnings(question.plan, memory.as_deref(), target.framework));
    warnings.extend(program_settings::warnings(question, sets_numerics));
    warnings.extend(program_settings::optimizer_warning(target.framework, question.plan.training.optimizer));
    warnings.extend(local_order::warning(target.framework, &ranks));
    warnings.extend(allocation::warning(&ranks));
    warnings.extend(proof.and_then(|proof| proof.caveat(target.framework, question.named)));
    let allocation = Allocation::of(&ranks);
    Ok(Export {
        target,
        files,
        command,
        runs_once,
        environment,
        ranks,
        allocation,
        warnings,
        verified,
        proof,
        memory,
    })
}

fn refusal(
    question: &ExportQuestion<'_>,
    required_shape: PlanShape,
    stages: Vec<StageRefusal>,
) -> Box<Refusal> {
    let target = question.target;
    let is_for_it = question.plan.asked.framework == Some(target.framework);
    Box::new(Refusal { target, manifest: Manifest::Torchrun, required_shape, is_for_it, stages })
}

/// Stages whose devices have names or UUIDs that ssh or a shell would take for something else. Requests are checked for them; plans
/// and placements of earlier releases were not.
fn hostile_places(plan: &Plan) -> Vec<StageRefusal> {
    let stages = plan.stages.iter().enumerate();
    let refused = stages.filter_map(|(index, stage)| {
        let is_hostile = |device: &&PlacedDevice| {
            !(device.node.is_empty() || is_host(&device.node))
                || !(device.uuid.is_empty() || is_device_uuid(&device.uuid))
        };
        let device = stage.devices.iter().find(is_hostile)?;
        let (what, name, rule) = if device.node.is_empty() || is_host(&device.node) {
            ("device", &device.uuid, "device UUID")
        } else {
            ("node", &device.node, "host name")
        };
        let why = format!(
            "has the {what} {name:?}, which is not a valid {rule}. Store the cluster with valid names and recommend a \
             new plan, or place this plan on other nodes"
        );
        Some(StageRefusal::of_stage(index, why))
    });
    refused.collect()
}

/// Stages whose replicas divide states as the framework cannot, or otherwise than those of the first stage.
fn foreign_shardings(plan: &Plan, rules: &Rules) -> Vec<StageRefusal> {
    let first = sharding_of(plan);
    let own = rules.shardings(&plan.training.optimizer);
    let can: Vec<&str> = own.iter().map(|of| of.as_str()).collect();
    let refused = plan.stages.iter().enumerate().filter_map(|(index, stage)| {
        let sharding = stage.config.sharding;
        let why = if !own.contains(&sharding) {
            format!(
                "has the state sharding {sharding}, but with the plan's optimizer {} supports only {}. Export to another \
                 framework, or request a plan with one of these",
                rules.framework,
                can.join(" or ")
            )
        } else if stage.config.data_degree > 1 && sharding != first && !rules.sharding_per_stage {
            format!(
                "has the state sharding {sharding}, but another stage has {first}. {} needs the same one in all stages with \
                 several replicas. Request a plan with one of the two, or export to other",
                rules.framework
            )
        } else {
            return None;
        };
        Some(StageRefusal::of_stage(index, why))
    });
    refused.collect()
}

/// Returns the state sharding of a plan's first stage with several replicas; none where there is no such stage.
pub(crate) fn sharding_of(plan: &Plan) -> StateSharding {
    let mut shared = plan.stages.iter().map(|stage| stage.config).filter(|stage| stage.data_degree > 1);
    shared.next().map_or(StateSharding::None, |stage| stage.sharding)
}

/// What is said of a plan whose devices have several interleaved stages to frameworks that cannot.
fn in_turn(plan: &Plan) -> StageRefusal {
    StageRefusal::of_plan(format!(
        "has {} virtual pipeline stages per device, which files of this framework cannot express. Export to megatron, or \
         request a plan with one stage per device",
        plan.virtual_stages
    ))
}

/// What cannot be expressed of a plan: of several stages at once where several are concerned.
pub(crate) type Refused = Vec<StageRefusal>;

impl<'a> ExportQuestion<'a> {
    /// The plan's grid.
    ///
    /// # Errors
    /// It has none.
    pub(crate) fn grid(&self) -> Result<Grid, Refused> {
        Grid::of(self.plan)
    }

    /// The model as a transformer, and where the plan cuts it: between blocks, with norm and head together.
    ///
    /// # Errors
    /// It is none, or is cut elsewhere.
    pub(crate) fn transformer(&self) -> Result<(Transformer, Cut), Refused> {
        let model = self.model()?;
        let transformer = Transformer::of(model).map_err(|why| vec![StageRefusal::of_plan(why)])?;
        let cut = Cut::of(self.plan, &transformer);
        let parted = cut.parted_heads();
        if parted.is_empty() { Ok((transformer, cut)) } else { Err(parted) }
    }

    pub(crate) fn model(&self) -> Result<&'a Model, Refused> {
        let unknown = "has a model of which only the layers' names are known, but this framework's files contain the whole architecture. Store the model, and profile it";
        self.model.ok_or_else(|| vec![StageRefusal::of_plan(unknown)])
    }

    /// Refuses orders of passes other than these.
    ///
    /// # Errors
    /// The plan's is none of them.
    pub(crate) fn check_schedule(&self, known: &[Schedule]) -> Result<Schedule, Refused> {
        let schedule = self.plan.training.schedule;
        if known.contains(&schedule) || self.plan.stages.len() == 1 && !schedule.updates_always() {
            return Ok(schedule);
        }
        let known: Vec<String> = known.iter().map(ToString::to_string).collect();
        let why = format!("has the schedule {schedule}, but this framework supports {}", known.join(" or "));
        Err(vec![StageRefusal::of_plan(why)])
    }

    /// Refuses what torch's 1F1B does: fewer micro-batches than stages.
    ///
    /// # Errors
    /// The plan has fewer.
    pub(crate) fn check_fills_torch_pipeline(&self) -> Result<(), Refused> {
        let (training, stages) = (self.plan.training, self.plan.stages.len());
        if training.schedule != Schedule::OneFOneB || training.micro_batches as usize >= stages {
            return Ok(());
        }
        let why = format!(
            "has {} micro-batches for {stages} stages, but torch's 1F1B needs at least one per stage. Request a plan with \
             more micro-batches, or with the schedule gpipe",
            training.micro_batches
        );
        Err(vec![StageRefusal::of_plan(why)])
    }

    /// What all stages recompute.
    ///
    /// # Errors
    /// Stages that recompute something else than the first.
    pub(crate) fn recompute(&self) -> Result<RecomputePolicy, Refused> {
        let first = self.plan.stages.first().map_or(RecomputePolicy::None, |stage| stage.recompute);
        let other = self.plan.stages.iter().enumerate().filter(|(_, stage)| stage.recompute != first);
        let refused = other.map(|(index, stage)| {
            let why = format!(
                "has the recompute policy {}, but the first stage has {first}. This framework has one policy for all stages",
                stage.recompute
            );
            StageRefusal::of_stage(index, why)
        });
        all_or(refused.collect()).map(|()| first)
    }

    /// Returns true if tensor-parallel shards divide activations along the sequence.
    pub(crate) fn is_sequence_parallel(&self) -> bool {
        self.plan.stages.iter().any(|stage| stage.config.sequence_parallel)
    }

    /// Returns true if replicas divide optimizer states.
    pub(crate) fn shards_optimizer(&self) -> bool {
        sharding_of(self.plan) == StateSharding::Optimizer
    }

    /// Samples of a micro-batch on each replica.
    pub(crate) fn samples_per_replica(&self, grid: &Grid) -> u32 {
        self.plan.training.micro_batch_size / grid.replicas.max(1)
    }

    /// Samples of an iteration.
    pub(crate) fn samples(&self) -> u64 {
        let training = self.plan.training;
        u64::from(training.micro_batch_size) * u64::from(training.micro_batches)
    }

    /// The first line of files that people may want to edit, behind the sign for comments.
    pub(crate) fn head_line(&self) -> String {
        format!("Written by Loadmaster for {}. Do not edit. Export the plan instead", self.name)
    }
}

pub(crate) fn all_or(refused: Refused) -> Result<(), Refused> {
    if refused.is_empty() { Ok(()) } else { Err(refused) }
}
