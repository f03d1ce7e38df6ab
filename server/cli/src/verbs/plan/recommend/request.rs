//! The options of `loadmaster plan recommend` as a request.

use loadmaster_proto::wire::v1;

use super::Recommend;
use crate::input::parse::sent;
use crate::input::profile::ProfileRef;

impl Recommend {
    /// As a message, but for the document of a profile in a file.
    pub(super) fn request(self) -> v1::RecommendPlanRequest {
        let Self {
            profile,
            on,
            goal,
            batch,
            limits,
            search,
            partition,
            actions,
            copy_rates,
            ways,
            blocks,
            memory,
            host_memory,
            smallest_block,
            dry_run,
        } = self;
        // One value is the training's; several are there to choose from.
        let one = |values: &[i32]| if let [only] = values { *only } else { 0 };
        let several = |values: Vec<i32>| if values.len() > 1 { values } else { Vec::new() };
        let schedules: Vec<i32> = batch.schedule.into_iter().map(Into::into).collect();
        let policies: Vec<i32> = batch.recompute.into_iter().map(Into::into).collect();
        let constraints = v1::Constraints {
            data_parallel_sizes: limits.data_degrees,
            tensor_parallel_sizes: limits.tensor_degrees,
            micro_batch_sizes: batch.micro_batch_sizes,
            schedules: several(schedules.clone()),
            recompute: several(policies.clone()),
            recompute_per_stage: batch.recompute_per_stage,
            min_stage_count: limits.min_stages.unwrap_or_default(),
            max_stage_count: limits.max_stages.unwrap_or_default(),
            layer_pins: limits.pins,
            uncut_layer_ranges: limits.keep_together,
            stage_end_layers: limits.cut_after,
            excluded_devices: on.exclude,
            node_spanning: on.spanning.unwrap_or_default().into(),
            max_iteration_time: limits.max_iteration.and_then(sent),
            max_peak_bytes: limits.max_peak.unwrap_or_default(),
            allow_idle_devices: on.allow_idle_devices,
            parallelism_layout: goal.shape.unwrap_or_default().into(),
            pipeline_layout: partition,
        };
        let framework = goal.framework.unwrap_or_default();
        v1::RecommendPlanRequest {
            problem: Some(v1::Problem {
                profile: profile.map(ProfileRef::name).unwrap_or_default(),
                devices: on.devices.map(|devices| devices.0).unwrap_or_default(),
                cluster: on.cluster.unwrap_or_default(),
                other_profiles: on.other_profiles,
                framework: framework.id,
                framework_version: goal.framework_version.unwrap_or(framework.version),
                communication_overlap: goal.communication_overlap.unwrap_or_default().into(),
                micro_batch_size: batch.micro_batch_size.unwrap_or_default(),
                micro_batch_count: batch.micro_batches.unwrap_or_default(),
                global_batch_size: batch.global_batch.unwrap_or_default(),
                schedule: one(&schedules),
                virtual_stage_count: batch.virtual_stages.unwrap_or_default(),
                recompute: one(&policies),
                safety_margin: limits.margin,
                predictor: search.predictor.unwrap_or_default().into(),
                calibrate: search.correct,
                profile_document: String::new(),
            }),
            objective: Some(v1::ObjectiveOptions {
                hourly_prices: on.prices.into_iter().collect(),
                kind: goal.objective.unwrap_or_default().into(),
                memory_unit: goal.memory_unit.unwrap_or_default().into(),
                candidate_profiles: goal.candidate_profiles,
                model_scaling: memory.grow,
            }),
            constraints: Some(constraints).filter(|constraints| *constraints != v1::Constraints::default()),
            memory: Some(v1::MemoryOptions {
                stage_memory_optimizations: actions.by_stage(),
                copy_bandwidth: copy_rates,
                optimizations: ways.into_iter().map(Into::into).collect(),
                blocks: blocks.into_iter().map(Into::into).collect(),
                host_memory_bytes: host_memory.unwrap_or_default(),
                min_block_bytes: smallest_block.unwrap_or_default(),
                mode: memory.memory.unwrap_or_default().into(),
                chunk_options: memory.chunks.choices(),
                cpu_optimizer_rate: memory.chunks.host_update.unwrap_or_default(),
                ..Default::default()
            }),
            search: Some(v1::SearchOptions {
                mode: search.search_mode.unwrap_or_default().into(),
                seed: search.search_seed.unwrap_or_default(),
                time_limit: search.search_time.and_then(sent),
                layer_group_count: search.merge_layers_to.unwrap_or_default(),
            }),
            output: Some(v1::OutputOptions {
                alternative_count: search.alternatives,
                skip_comparisons: search.brief,
            }),
            validate_only: dry_run,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::verbs::tests::parsed;

    fn request(options: &str) -> Result<v1::RecommendPlanRequest, clap::Error> {
        parsed::<Recommend>(&format!("--profile p {options}")).map(Recommend::request)
    }

    /// Every option reaches the request.
    #[test]
    fn options_become_the_request() {
        let asked = request(
            "--cluster c --other-profiles q,r --price a=1.5 --exclude n1,n2/3 --allow-idle-devices --spanning \
             whole-nodes --objective min-cost --shape equal-devices --framework galvatron@2 \
             --communication-overlap off --memory-unit share --micro-batches 8 --global-batch 64 --micro-batch-sizes 4,8 --schedule gpipe,1f1b \
             --recompute none,layer --recompute-per-stage --data-degrees 1,2 --tensor-degrees 4 --min-stages 2 \
             --max-stages 6 --pin 3@n1/0 --keep-together 1..2 --cut-after 4,5 --max-iteration 800ms --max-peak 1GiB \
             --margin 5% --predictor table --correct --search-mode capture --search-seed 7 --deadline 3s \
             --alternatives 0 --brief --merge-layers-to 12 --dry-run",
        )
        .unwrap();
        let constraints = asked.constraints.clone().unwrap();
        assert_eq!(
            (asked.problem().cluster.as_str(), asked.problem().other_profiles.len()),
            ("clusters/c", 2)
        );
        assert_eq!(asked.objective().hourly_prices.get("a"), Some(&1.5));
        assert_eq!(asked.objective().kind(), v1::Objective::MinCost);
        assert_eq!(asked.constraints().parallelism_layout(), v1::ParallelismLayout::EqualDevices);
        assert_eq!(asked.problem().framework, "galvatron");
        assert_eq!(asked.problem().communication_overlap(), v1::CommunicationOverlap::Off);
        assert_eq!(
            (asked.problem().schedule, asked.problem().recompute, constraints.schedules.len()),
            (0, 0, 2)
        );
        let limit = prost_types::Duration { seconds: 0, nanos: 800_000_000 };
        assert_eq!((constraints.max_iteration_time, constraints.max_peak_bytes), (Some(limit), 1 << 30));
        assert_eq!(constraints.layer_pins, [v1::LayerPin { layer: 3, device: "n1/0".to_owned() }]);
        assert_eq!(constraints.uncut_layer_ranges, [v1::LayerRange { first_layer: 1, last_layer: 2 }]);
        assert_eq!(
            (asked.output().alternative_count, asked.search().time_limit),
            (Some(0), Some(prost_types::Duration { seconds: 3, nanos: 0 }))
        );
        assert!(
            asked.problem().calibrate
                && asked.output().skip_comparisons
                && asked.validate_only
                && constraints.recompute_per_stage
        );
    }

    /// One value settles it, several leave a choice.
    #[test]
    fn one_schedule_is_no_choice() {
        let asked = request("--devices 2x1GiB --schedule 1f1b --recompute stage").unwrap();
        assert_eq!(asked.problem().schedule(), v1::Schedule::OneFOneB);
        assert_eq!(asked.problem().recompute(), v1::RecomputePolicy::Stage);
        assert_eq!(asked.constraints, None);
    }

    #[test]
    fn what_cannot_be_meant_is_refused() {
        for wrong in [
            "",
            "--devices 2x1GiB --cluster c",
            "--devices 2x1GiB --exclude n1",
            "--devices 2x1GiB --pin 3",
            "--devices 2x1GiB --pin x@0",
            "--devices 2x1GiB --keep-together 3",
            "--devices 2x1GiB --price 3",
            "--devices 2x1GiB --price a=-1",
            "--devices 2x1GiB --micro-batch-size 1 --micro-batch-sizes 1,2",
            "--devices 2x1GiB --recompute-per-stage",
            "--devices 2x1GiB --alternatives 21",
            "--devices 2x1GiB --max-peak 0",
            "--devices 2x1GiB --candidate-profiles a,b",
        ] {
            assert!(request(wrong).is_err(), "{wrong:?}");
        }
    }
}
