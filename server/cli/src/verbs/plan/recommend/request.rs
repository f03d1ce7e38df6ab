//! The options of `loadmaster plan recommend` as a request.

use loadmaster_proto::wire::v1;

use super::Recommend;
use crate::failure::Failure;
use crate::input::parse::{StageCounts, named_devices, sent};
use crate::input::request_file::{set, set_all, set_choice};

impl Recommend {
    /// Returns the request: that of the file, with options in place of its fields.
    ///
    /// # Errors
    /// A file cannot be read.
    pub(super) fn request(self) -> Result<v1::RecommendPlanRequest, Failure> {
        let mut request: v1::RecommendPlanRequest = self.file.read()?;
        let Self {
            file: _,
            profile,
            devices,
            objective,
            training,
            constraints,
            memory,
            search,
            actions,
            dry_run,
        } = self;
        request.validate_only |= dry_run;
        let problem = request.problem.get_or_insert_default();
        let limits = request.constraints.get_or_insert_default();
        if let Some(profile) = profile {
            profile.name_in(problem)?;
        }
        let named = named_devices(devices.gpus, devices.devices);
        if named.is_some() || devices.cluster.is_some() {
            problem.devices = named.unwrap_or_default();
            problem.cluster = devices.cluster.unwrap_or_default();
        }
        set_all(&mut problem.other_profiles, devices.other_profiles);
        if let Some(framework) = objective.framework {
            (problem.framework, problem.framework_version) = (framework.id, framework.version);
        }
        set(&mut problem.communication_overlap, objective.communication_overlap);
        set_choice(&mut problem.micro_batch_size, &mut limits.micro_batch_sizes, training.micro_batch_size);
        set(&mut problem.micro_batch_count, training.micro_batches);
        set(&mut problem.global_batch_size, training.global_batch_size);
        set_choice(&mut problem.schedule, &mut limits.schedules, training.schedule);
        set(&mut problem.virtual_stage_count, training.virtual_stages);
        set_choice(&mut problem.recompute, &mut limits.recompute_policies, training.recompute);
        set(&mut problem.safety_margin, constraints.safety_margin.map(Some));
        set(&mut problem.predictor, search.predictor);
        problem.calibrate |= search.calibrate;

        set_all(&mut limits.tensor_parallel_sizes, constraints.tensor_parallel_sizes);
        set_all(&mut limits.data_parallel_sizes, constraints.data_parallel_sizes);
        set_all(&mut limits.state_shardings, constraints.state_sharding);
        if let Some(StageCounts { min, max }) = constraints.pipeline_parallel_sizes {
            (limits.min_stage_count, limits.max_stage_count) = (min, max);
        }
        set(&mut limits.max_iteration_time, constraints.max_iteration_time.map(sent));
        set(&mut limits.max_peak_bytes, constraints.max_peak);
        limits.allow_idle_devices |= devices.allow_idle_devices;
        set(&mut limits.parallelism_layout, objective.layout);
        set(&mut limits.pipeline_layout, constraints.pipeline_layout.map(Some));

        let best = request.objective.get_or_insert_default();
        set(&mut best.kind, objective.objective);
        if !devices.hourly_price.is_empty() {
            best.hourly_prices = devices.hourly_price.into_iter().collect();
        }
        let options = request.memory.get_or_insert_default();
        set_all(&mut options.stage_memory_optimizations, actions.by_stage());
        set(&mut options.copy_bandwidth, memory.copy_rates.map(Some));
        set_all(&mut options.optimizations, memory.optimizations);
        set(&mut options.host_memory_bytes, memory.host_memory);
        set(&mut options.mode, memory.memory_mode);
        let how = request.search.get_or_insert_default();
        set(&mut how.mode, search.search_mode);
        set(&mut how.time_limit, search.search_time.map(sent));
        Ok(request)
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use clap::CommandFactory;

    use super::*;
    use crate::verbs::tests::{Cli, parsed};

    fn typed(options: &str) -> Result<v1::RecommendPlanRequest, String> {
        let parsed = parsed::<Recommend>(options).map_err(|error| error.to_string())?;
        parsed.request().map_err(|error| format!("{error:?}"))
    }

    fn request(options: &str) -> Result<v1::RecommendPlanRequest, String> {
        typed(&format!("--profile p {options}"))
    }

    fn written(text: &str) -> tempfile::NamedTempFile {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all(text.as_bytes()).unwrap();
        file
    }

    fn with_file(text: &str, options: &str) -> Result<v1::RecommendPlanRequest, String> {
        let file = written(text);
        typed(&format!("-f {} {options}", file.path().display()))
    }

    const OPTIONS: &str = "--profile p --cluster c --other-profiles q,r --hourly-price a=1.5 --allow-idle-devices --objective min-cost \
         --layout equal-devices --framework galvatron@2 --communication-overlap off --micro-batches 8 --global-batch-size 64 \
         --micro-batch-size 4,8 --schedule gpipe,1f1b --virtual-stages 2 --recompute none,layer --data-parallel-sizes 1,2 --state-sharding none,optimizer \
         --tensor-parallel-sizes 4 --pipeline-parallel-sizes 2..6 --max-iteration-time 800ms --max-peak 1GiB --safety-margin 5% \
         --predictor table --calibrate --search-mode capture --search-time 3s --pipeline-layout 2-2 \
         --optimizations recompute --memory-mode chunks --host-memory 64GiB --copy-rates host=12GB/s --dry-run";

    /// The same as [`OPTIONS`].
    const FILE: &str = "
problem: {profile: profiles/p, cluster: clusters/c, other_profiles: [profiles/q, profiles/r], framework: galvatron,
  framework_version: '2', communicationOverlap: COMMUNICATION_OVERLAP_OFF, micro_batch_count: 8, global_batch_size: 64,
  virtual_stage_count: 2, safety_margin: 0.05, predictor: PREDICTOR_KIND_TABLE, calibrate: true}
objective: {kind: OBJECTIVE_MIN_COST, hourly_prices: {a: 1.5}}
constraints:
  micro_batch_sizes: [4, 8]
  schedules: [SCHEDULE_GPIPE, SCHEDULE_ONE_F_ONE_B]
  recompute_policies: [RECOMPUTE_POLICY_NONE, RECOMPUTE_POLICY_LAYER]
  data_parallel_sizes: [1, 2]
  state_shardings: [STATE_SHARDING_NONE, STATE_SHARDING_OPTIMIZER]
  tensor_parallel_sizes: [4]
  min_stage_count: 2
  max_stage_count: 6
  max_iteration_time: 0.8s
  maxPeakBytes: 1073741824
  allow_idle_devices: true
  parallelism_layout: PARALLELISM_LAYOUT_EQUAL_DEVICES
  pipeline_layout: {stages: [
    {first_layer: 0, last_layer: 1, data_parallel_size: 1, tensor_parallel_size: 1, state_sharding: STATE_SHARDING_NONE},
    {first_layer: 2, last_layer: 3, data_parallel_size: 1, tensor_parallel_size: 1, state_sharding: STATE_SHARDING_NONE}]}
memory: {mode: MEMORY_MODE_CHUNKS, optimizations: [MEMORY_OPTIMIZATION_KIND_RECOMPUTE], host_memory_bytes: 64GiB,
  copy_bandwidth: {host_bytes_per_second: 12e9}}
search: {mode: SEARCH_MODE_CAPTURE, time_limit: 3s}
validate_only: true
";

    /// Every option has its field.
    #[test]
    fn options_and_a_file_make_the_same_request() {
        let asked = typed(OPTIONS).unwrap();
        assert_eq!(with_file(FILE, "").unwrap(), asked);
        assert_eq!(asked.problem().framework, "galvatron");
        assert_eq!((asked.constraints().schedules.len(), asked.constraints().max_peak_bytes), (2, 1 << 30));
        // JSON is YAML, and has numbers of 64 bits in quotes.
        let json = r#"{"problem": {"profile": "profiles/p"}, "constraints": {"maxPeakBytes": "1073741824"}}"#;
        assert_eq!(with_file(json, "").unwrap().constraints().max_peak_bytes, 1 << 30);
    }

    #[test]
    fn options_replace_fields_of_a_file() {
        let asked = with_file(
            FILE,
            "--gpus 8xH100 --schedule 1f1b --pp 4 --objective throughput --micro-batch-size 2 --safety-margin 0",
        );
        let asked = asked.unwrap();
        assert_eq!(asked.problem().cluster, "");
        let gpus = v1::DeviceGroup { count: 8, kind: "H100".to_owned(), ..Default::default() };
        assert_eq!(asked.problem().devices, [gpus]);
        assert_eq!(
            (asked.problem().schedule(), asked.constraints().schedules.len()),
            (v1::Schedule::OneFOneB, 0)
        );
        assert_eq!((asked.problem().micro_batch_size, asked.constraints().micro_batch_sizes.len()), (2, 0));
        assert_eq!((asked.constraints().min_stage_count, asked.constraints().max_stage_count), (4, 4));
        assert_eq!(asked.objective().kind(), v1::Objective::MinIterationTime);
        assert_eq!(
            (asked.problem().safety_margin, asked.problem().profile.as_str()),
            (Some(0.0), "profiles/p")
        );
    }

    #[test]
    fn a_wrong_file_is_named_with_its_field() {
        for (text, part) in [
            ("problem: {profil: p}", "profil"),
            ("problem: {micro_batch_size: many}", "micro_batch_size"),
            ("objective: {kind: FASTEST}", "FASTEST"),
            ("memory: {host_memory_bytes: 64 parsecs}", "host_memory_bytes"),
            ("- 1", "RecommendPlanRequest"),
            ("problem: {", "RecommendPlanRequest"),
        ] {
            let refused = with_file(text, "").unwrap_err();
            assert!(refused.contains(part) && refused.contains("/tmp"), "{text}: {refused}");
        }
        assert!(typed("-f /does/not/exist").unwrap_err().contains("/does/not/exist"));
    }

    /// The words of other tools make the same requests.
    #[test]
    fn words_of_other_tools_are_options() {
        for (theirs, ours) in [
            (
                "--tp 2 --dp 4 --pp 2..8",
                "--tensor-parallel-sizes 2 --data-parallel-sizes 4 --pipeline-parallel-sizes 2..8",
            ),
            ("--tensor-model-parallel-size 2", "--tensor-parallel-sizes 2"),
            ("--gbs 64 --mbs 2", "--global-batch-size 64 --micro-batch-size 2"),
            ("--global-batch 64", "--global-batch-size 64"),
            ("--recompute full", "--recompute layer"),
            ("--objective throughput", "--objective min-iteration-time"),
            ("--objective latency", "--objective min-iteration-time"),
            ("--objective memory", "--objective min-peak-memory"),
            ("--schedule 1F1B", "--schedule 1f1b"),
            ("--schedule dapple", "--schedule 1f1b"),
        ] {
            let theirs = request(&format!("--gpus 8xH100 {theirs}"));
            assert_eq!(theirs, request(&format!("--gpus 8xH100 {ours}")), "{ours}");
            assert!(theirs.is_ok(), "{theirs:?}");
        }
    }

    /// One value settles it, several leave a choice.
    #[test]
    fn one_schedule_is_no_choice() {
        let asked = request("--devices 2x1GiB --schedule 1f1b --recompute stage").unwrap();
        assert_eq!(asked.problem().schedule(), v1::Schedule::OneFOneB);
        assert_eq!(asked.problem().recompute(), v1::RecomputePolicy::Stage);
        assert_eq!(*asked.constraints(), v1::Constraints::default());
        assert_eq!(*asked.memory(), v1::MemoryOptions::default());
    }

    #[test]
    fn what_cannot_be_meant_is_refused() {
        for wrong in [
            "",
            "--devices 2x1GiB --cluster c",
            "--devices 2x1GiB --gpus 2xH100",
            "--gpus 2xH100 --cluster c",
            "--gpus 8",
            "--gpus x",
            "--gpus 0xH100",
            "--devices 8",
            "--devices 8x80",
            "--devices 8xH100",
            "--devices 2x1GiB --max-peak 80",
            "--devices 2x1GiB --max-peak 0",
            "--devices 2x1GiB --host-memory 80",
            "--devices 2x1GiB --pipeline-parallel-sizes 0",
            "--devices 2x1GiB --pipeline-parallel-sizes 4..2",
            "--devices 2x1GiB --pipeline-parallel-sizes ..",
            "--devices 2x1GiB --hourly-price 3",
            "--devices 2x1GiB --hourly-price a=-1",
            "--devices 2x1GiB --memory-mode elsewhere",
        ] {
            assert!(request(wrong).is_err(), "{wrong:?}");
        }
        let without = typed("--gpus 8xH100").unwrap_err();
        assert!(without.contains("--profile"), "{without}");
    }

    /// The options are few enough to be read, and the short help has twelve.
    #[test]
    fn options_are_few() {
        let program = Cli::command();
        let plan = program.find_subcommand("plan").unwrap();
        for (verb, most) in [("recommend", 35), ("predict", 25)] {
            let own =
                || plan.find_subcommand(verb).unwrap().get_arguments().filter(|arg| arg.get_id() != "help");
            let count = own().filter(|arg| arg.get_id() != "file").count();
            assert!(count <= most, "{verb}: {count}");
            let short = own().filter(|arg| !arg.is_hide_short_help_set()).count();
            assert_eq!(short, 12, "{verb}");
        }
    }
}
