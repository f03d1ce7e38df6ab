//! What a request for a recommendation says, as far as its options may contradict each other.

use loadmaster_launchers::{Recomputing, Rules, frameworks_with};
use loadmaster_proto::measure::offload::CopyPace;
use loadmaster_proto::plan::compatibility::{Setting, Settings};
use loadmaster_proto::plan::constraints::Constraints;
use loadmaster_proto::plan::objective::{Objective, PlanShape, SearchMode};
use loadmaster_proto::plan::request::PlanRequest;
use loadmaster_proto::training::RecomputePolicy;
use loadmaster_proto::training::actions::{Allowed, Block, Way};
use loadmaster_proto::training::sharding::StateSharding;
use loadmaster_proto::wire::v1;

/// A request, and what it was read as.
pub(super) struct Read<'a> {
    pub(super) request: &'a v1::RecommendPlanRequest,
    pub(super) asked: &'a PlanRequest,
    /// Ways and blocks as the request names them: without defaults.
    pub(super) named: &'a Allowed,
    pub(super) is_objective_named: bool,
    pub(super) recompute: Option<RecomputePolicy>,
    pub(super) rules: Option<Rules>,
}

/// Returns the first field with which a request has memory actions chosen; none where at most `host_memory_bytes` does, which
/// limits actions that are given.
pub(super) fn chooses(request: &v1::RecommendPlanRequest) -> Option<&'static str> {
    let named = [
        ("memory.optimizations", !request.memory().optimizations.is_empty()),
        ("memory.blocks", !request.memory().blocks.is_empty()),
        ("memory.min_block_bytes", request.memory().min_block_bytes != 0),
        ("search.mode", request.search().mode() == v1::SearchMode::Mpress),
    ];
    named.into_iter().find(|(_, is_named)| *is_named).map(|(field, _)| field)
}

impl Read<'_> {
    /// Returns all that the request says.
    pub(super) fn settings(&self) -> Settings {
        let settings = self.of_framework(self.of_actions(self.of_goal(Settings::default())));
        self.of_chunks(self.of_models(settings))
    }

    fn of_goal(&self, settings: Settings) -> Settings {
        let Self { asked, .. } = self;
        let constraints = &asked.goal.constraints;
        let is_chosen = asked.allowed.is_some() || asked.chunks.is_some();
        // Limits and objectives of which given stages leave something to choose, where actions are chosen for them.
        let of_stages =
            [Objective::MinIterationTime, Objective::MinPeakMemory, Objective::Pareto, Objective::MaxBatch];
        let is_left = is_chosen && of_stages.contains(&asked.objective());
        let &Constraints { max_iteration_seconds, max_peak_bytes, .. } = constraints;
        let limits = Constraints { max_iteration_seconds, max_peak_bytes, ..Constraints::default() };
        let are_left = if is_chosen { limits } else { Constraints::default() };
        let is_plain = !matches!(asked.mode, SearchMode::Exact | SearchMode::Mpress);
        let is_sharded = |of: &StateSharding| !of.is_none();
        let is_listed = constraints.shardings.iter().any(is_sharded);
        let given = asked.partitioning.iter().flat_map(|given| given.stages());
        let is_given = given.into_iter().any(|stage| is_sharded(&stage.sharding));
        let field = if is_listed { Setting::Sharded.field() } else { "constraints.pipeline_layout" };
        settings
            .when(is_listed || is_given, Setting::Sharded)
            .in_field(Setting::Sharded, field)
            .when(
                !constraints.shardings.is_empty() && constraints.shardings.iter().all(is_sharded),
                Setting::OnlySharded,
            )
            .when(constraints.data_degrees == [1], Setting::OneReplica)
            .when(asked.goal.shape == PlanShape::SinglePipeline, Setting::SinglePipeline)
            .when(self.is_objective_named && !is_left, Setting::SearchObjective)
            .when(asked.merge_layers_to.is_some(), Setting::MergeLayers)
            .when(is_plain, Setting::PlainMode)
            .when(asked.mode == SearchMode::Mpress, Setting::MpressMode)
            .when(*constraints != are_left, Setting::SearchConstraints)
            .when(asked.partitioning.is_some(), Setting::Partitioning)
            .when(asked.partitioning.is_none() && !is_chosen, Setting::NoStages)
            .when(asked.virtual_stages > 1, Setting::VirtualStages)
            .when(constraints.recompute_per_stage, Setting::RecomputePerStage)
    }

    fn of_actions(&self, settings: Settings) -> Settings {
        let Self { request, asked, named, .. } = self;
        let constraints = &asked.goal.constraints;
        let repeats = |policy: &RecomputePolicy| *policy != RecomputePolicy::None;
        let is_chosen = asked.allowed.is_some();
        let has_single_devices = is_chosen && asked.goal.shape == PlanShape::SinglePipeline;
        let leaves_out_one = |degrees: &[u32]| !degrees.is_empty() && !degrees.contains(&1);
        let lacks = |ways: &[Way]| {
            !named.ways.is_empty()
                && !ways.iter().any(|way| named.ways.contains(way))
                && asked.chunks.is_none()
        };
        settings
            .says_some(
                Setting::ChosenActions,
                is_chosen.then(|| chooses(request).unwrap_or("memory.host_memory_bytes")),
            )
            .when(!request.memory().stage_memory_optimizations.is_empty(), Setting::StageActions)
            .when(asked.copy_pace != CopyPace::default(), Setting::CopyRates)
            .when(self.recompute.as_ref().is_some_and(repeats), Setting::Recompute)
            .when(constraints.recompute.iter().any(repeats), Setting::RecomputeChoice)
            .when(has_single_devices, Setting::SingleDevices)
            .when(leaves_out_one(&constraints.data_degrees), Setting::ManyReplicas)
            .when(leaves_out_one(&constraints.tensor_degrees), Setting::ManyShards)
            .when(!named.ways.is_empty(), Setting::MemoryWays)
            .says_some(Setting::MemoryBlocks, named.blocks.first())
            .when(named.smallest_block.0 > 0, Setting::SmallestBlock)
            .when(named.host_memory.0 > 0, Setting::HostMemory)
            .when(lacks(&[Way::CpuOffload]), Setting::WaysWithoutHost)
            .when(lacks(&[Way::CpuOffload, Way::PeerSwap]), Setting::WaysWithoutBlocks)
    }

    /// What a framework cannot do of what is named, as its exports say it; of what is not named, the rest is left out later.
    fn of_framework(&self, settings: Settings) -> Settings {
        let Self { asked, named, .. } = self;
        let Some(rules) = self.rules else { return settings };
        let is_alike = !rules.recompute_per_stage;
        let counts = rules.recomputing != Recomputing::Anything && asked.allowed.is_some();
        let mut settings = rules
            .says_foreign_action(settings, &asked.stage_actions)
            .says(Setting::Framework, rules.framework);
        if is_alike {
            let can = frameworks_with(|rules| rules.recompute_per_stage);
            settings = settings.says_instead(Setting::AlikeFramework, rules.framework, can);
        }
        if asked.chunks.is_some() {
            return settings;
        }
        let can = rules.memory_ways();
        if let Some(way) = named.ways.iter().find(|way| !can.contains(way)) {
            let can: Vec<&str> = can.iter().map(|way| way.as_str()).collect();
            settings = settings.says_instead(Setting::ForeignWay, way, can.join(" and "));
        }
        if let Some(block) = named.blocks.iter().find(|block| !rules.offloads.contains(block)) {
            let can: Vec<&str> = rules.offloads.iter().copied().map(Block::as_str).collect();
            settings = settings.says_instead(Setting::ForeignBlock, block, can.join(", "));
        }
        settings
            .says_some(Setting::CountingFramework, counts.then_some(rules.framework))
            .says_some(Setting::FrameworkWithoutBlocks, rules.offloads.is_empty().then_some(rules.framework))
    }

    fn of_chunks(&self, settings: Settings) -> Settings {
        let Self { request, asked, .. } = self;
        let fixed = request.memory().chunk_options.as_ref().map(super::first_choice);
        let settings = settings
            .when(request.memory().cpu_optimizer_rate != 0.0, Setting::HostUpdate)
            .when(fixed.is_some(), Setting::ChunkChoices)
            .in_field(Setting::ChunkChoices, fixed.unwrap_or_default());
        match asked.chunks {
            Some(_) => settings.says_instead(Setting::Chunks, "", "memory.chunk_options.activation_places"),
            None => settings.when(true, Setting::Plain),
        }
    }

    fn of_models(&self, settings: Settings) -> Settings {
        let Self { request, asked, .. } = self;
        let is_largest = asked.objective() == Objective::MaxModel;
        let grows = asked.grow.is_some();
        let or_grown = if asked.allowed.is_some() {
            ""
        } else {
            ", or set `objective.model_scaling` to search for the largest model of one family"
        };
        let has_profile =
            !request.problem().profile.is_empty() || !request.problem().profile_document.is_empty();
        let settings = settings
            .when(grows, Setting::Grow)
            .when(!is_largest, Setting::OtherThanLargestModel)
            .when(is_largest && !grows, Setting::LargestOfModels)
            .when(!request.objective().candidate_profiles.is_empty(), Setting::CandidateProfiles)
            .when(!request.problem().other_profiles.is_empty(), Setting::OtherProfiles)
            .when(!request.problem().devices.is_empty(), Setting::Devices)
            .when(!request.problem().cluster.is_empty(), Setting::Cluster)
            .when(!asked.goal.constraints.excluded_devices.is_empty(), Setting::ExcludedDevices);
        if has_profile { settings.says_instead(Setting::Profile, "", or_grown) } else { settings }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use loadmaster_proto::plan::compatibility::CONTRADICTIONS;
    use loadmaster_proto::training::stage::Partitioning as Stages;

    use super::super::question;
    use super::*;
    use crate::rpc::error::ApiError;

    /// An option with a value: how a request has it, what it says with it, and what it then does not say any more.
    struct Sample {
        set: fn(&mut v1::RecommendPlanRequest),
        says: &'static [Setting],
        takes: &'static [Setting],
    }

    const fn sample(
        set: fn(&mut v1::RecommendPlanRequest),
        says: &'static [Setting],
        takes: &'static [Setting],
    ) -> Sample {
        Sample { set, says, takes }
    }

    fn limited(request: &mut v1::RecommendPlanRequest) -> &mut v1::Constraints {
        request.constraints.get_or_insert_default()
    }

    /// What a request says that has none of the options.
    const EMPTY: [Setting; 4] =
        [Setting::NoStages, Setting::Plain, Setting::OtherThanLargestModel, Setting::SinglePipeline];

    fn samples() -> Vec<Sample> {
        use Setting::*;
        const IN_CHUNKS: &[Setting] = &[
            Plain,
            NoStages,
            ChosenActions,
            SingleDevices,
            WaysWithoutHost,
            WaysWithoutBlocks,
            ForeignWay,
            ForeignBlock,
            CountingFramework,
            FrameworkWithoutBlocks,
        ];
        vec![
            sample(|of| of.objective_mut().kind = v1::Objective::MinDevices.into(), &[SearchObjective], &[]),
            sample(
                |of| of.objective_mut().kind = v1::Objective::MaxModel.into(),
                &[SearchObjective, LargestOfModels],
                &[OtherThanLargestModel],
            ),
            sample(|of| of.search_mut().layer_group_count = 4, &[MergeLayers], &[]),
            sample(|of| of.search_mut().mode = v1::SearchMode::Amp.into(), &[PlainMode], &[]),
            sample(
                |of| of.search_mut().mode = v1::SearchMode::Mpress.into(),
                &[MpressMode, ChosenActions, SingleDevices],
                &[NoStages],
            ),
            sample(
                |of| {
                    of.constraints_mut().pipeline_layout =
                        Some((&Stages::from_sizes(&[2, 2]).unwrap()).into())
                },
                &[Partitioning],
                &[NoStages],
            ),
            sample(|of| limited(of).min_stage_count = 2, &[SearchConstraints], &[]),
            sample(|of| limited(of).data_parallel_sizes = vec![2], &[SearchConstraints, ManyReplicas], &[]),
            sample(|of| limited(of).tensor_parallel_sizes = vec![2], &[SearchConstraints, ManyShards], &[]),
            sample(
                |of| limited(of).recompute_policies = vec![v1::RecomputePolicy::Layer.into()],
                &[SearchConstraints, RecomputeChoice],
                &[],
            ),
            sample(|of| limited(of).data_parallel_sizes = vec![1], &[SearchConstraints, OneReplica], &[]),
            sample(
                |of| limited(of).state_shardings = vec![v1::StateSharding::Optimizer.into()],
                &[SearchConstraints, Sharded, OnlySharded],
                &[],
            ),
            sample(
                |of| {
                    let all = [v1::StateSharding::None, v1::StateSharding::Optimizer];
                    limited(of).state_shardings = all.map(Into::into).to_vec();
                },
                &[SearchConstraints, Sharded],
                &[],
            ),
            sample(|of| limited(of).recompute_per_stage = true, &[SearchConstraints, RecomputePerStage], &[]),
            sample(
                |of| limited(of).excluded_devices = vec!["a".to_owned()],
                &[SearchConstraints, ExcludedDevices],
                &[],
            ),
            sample(|of| of.problem_mut().recompute = v1::RecomputePolicy::Layer.into(), &[Recompute], &[]),
            sample(|of| of.problem_mut().virtual_stage_count = 2, &[VirtualStages], &[]),
            sample(
                |of| {
                    of.memory_mut().stage_memory_optimizations = vec![v1::StageMemoryOptimizations::default()]
                },
                &[StageActions],
                &[],
            ),
            sample(
                |of| {
                    of.memory_mut().copy_bandwidth =
                        Some(v1::CopyBandwidth { host_bytes_per_second: Some(1e9), ..Default::default() })
                },
                &[CopyRates],
                &[],
            ),
            sample(
                |of| of.memory_mut().optimizations = vec![v1::MemoryOptimizationKind::CpuOffload.into()],
                &[MemoryWays, ForeignWay, ChosenActions, SingleDevices],
                &[NoStages],
            ),
            sample(
                |of| of.memory_mut().optimizations = vec![v1::MemoryOptimizationKind::Recompute.into()],
                &[MemoryWays, WaysWithoutHost, WaysWithoutBlocks, ChosenActions, SingleDevices],
                &[NoStages, ForeignWay],
            ),
            sample(
                |of| of.memory_mut().blocks = vec![v1::MemoryBlock::Activations.into()],
                &[MemoryBlocks, ForeignBlock, ChosenActions, SingleDevices],
                &[NoStages],
            ),
            sample(
                |of| of.memory_mut().min_block_bytes = 1,
                &[SmallestBlock, ChosenActions, SingleDevices],
                &[NoStages],
            ),
            sample(
                |of| of.memory_mut().host_memory_bytes = 1,
                &[HostMemory, ChosenActions, SingleDevices],
                &[NoStages],
            ),
            sample(|of| of.memory_mut().mode = v1::MemoryMode::Chunks.into(), &[Chunks], IN_CHUNKS),
            sample(|of| of.memory_mut().mode = v1::MemoryMode::Best.into(), &[Chunks], IN_CHUNKS),
            sample(
                |of| of.memory_mut().chunk_options = Some(v1::ChunkOptions::default()),
                &[ChunkChoices],
                &[],
            ),
            sample(|of| of.memory_mut().cpu_optimizer_rate = 1e8, &[HostUpdate], &[]),
            sample(
                |of| {
                    of.objective_mut().model_scaling =
                        Some(v1::ModelScaling { parameter: "blocks".to_owned(), min_value: 1, max_value: 9 });
                },
                &[Grow],
                &[LargestOfModels],
            ),
            sample(
                |of| of.objective_mut().candidate_profiles = vec!["profiles/a".to_owned()],
                &[CandidateProfiles],
                &[],
            ),
            sample(
                |of| of.problem_mut().other_profiles = vec!["profiles/a".to_owned()],
                &[OtherProfiles],
                &[],
            ),
            sample(|of| of.problem_mut().profile = "profiles/a".to_owned(), &[Profile], &[]),
            sample(|of| of.problem_mut().devices = vec![v1::DeviceGroup::default()], &[Devices], &[]),
            sample(|of| of.problem_mut().cluster = "clusters/a".to_owned(), &[Cluster], &[]),
            sample(
                |of| of.problem_mut().framework = "megatron".to_owned(),
                &[Framework, AlikeFramework, CountingFramework, FrameworkWithoutBlocks],
                // Its layout has stages of several devices.
                &[SingleDevices, SinglePipeline],
            ),
        ]
    }

    /// Every pair of options is refused where the table has it, by the field of the one that the other excludes, and is taken where it
    /// has not.
    #[test]
    fn pairs_of_options_are_refused_as_the_table_says() {
        let samples = samples();
        let mut refusals = 0;
        for (index, one) in samples.iter().enumerate() {
            // The second is set later: of one option with two values it is the only one.
            for other in &samples[index..] {
                let mut request = v1::RecommendPlanRequest::default();
                (one.set)(&mut request);
                let first = request.clone();
                (other.set)(&mut request);
                let mut replaced = v1::RecommendPlanRequest::default();
                (other.set)(&mut replaced);
                let of =
                    if request == replaced && first != replaced { vec![other] } else { vec![one, other] };
                let takes: Vec<Setting> = of.iter().flat_map(|of| of.takes).copied().collect();
                let says: Vec<Setting> = EMPTY
                    .iter()
                    .chain(of.iter().flat_map(|of| of.says))
                    .copied()
                    .filter(|setting| !takes.contains(setting))
                    .collect();
                let rows = CONTRADICTIONS.iter().filter(|row| says.contains(&row.with));
                let excluded = rows.flat_map(|row| row.options).filter(|option| says.contains(option));
                let fields: BTreeSet<&str> = excluded.map(|option| option.field()).collect();
                match question(&request) {
                    Ok(_) => assert!(fields.is_empty(), "{request:?} must not have {fields:?}"),
                    Err(ApiError::Invalid(invalid)) => {
                        let [only] = invalid.violations() else { panic!("{invalid}") };
                        assert!(
                            fields.contains(only.field.as_str()),
                            "{request:?}: {invalid}, not {fields:?}"
                        );
                        assert!(
                            only.description.split_once(". ").is_some_and(|(_, remedy)| remedy.len() > 8)
                        );
                        refusals += 1;
                    }
                    Err(other) => panic!("{request:?}: {other}"),
                }
            }
        }
        assert!(refusals > 100, "{refusals}");
    }
}
