use clap::CommandFactory;
use loadmaster_proto::wire::DESCRIPTORS;
use prost_reflect::{DescriptorPool, FieldDescriptor, Kind, MessageDescriptor};
use tonic::{Code, Status};
use tonic_types::{ErrorDetails, StatusExt};

use super::*;
use crate::verbs::tests::Cli;

/// What is told of a filter are fields of rows and what was typed: no options.
#[test]
fn filters_are_told_as_they_were_typed() {
    let mut details = ErrorDetails::new();
    let why = "at character 1: \"page_size\" is no field (fields: device_kind), SCHEDULE_ONE_F_ONE_B is none";
    details.add_bad_request_violation("filter", why);
    let status = Status::with_error_details(Code::InvalidArgument, format!("filter: {why}"), details);
    assert_eq!(in_options(&status, PLAN_ERRORS, None, None).message(), format!("--filter: {why}"));
}

/// Helps tell what needs and excludes what, in options of the command alone.
#[test]
fn helps_tell_what_excludes_what() {
    let told = with_exclusions("Examples", PLAN_RECOMMEND);
    let (needs, excludes) = told.split_once("Options that conflict").unwrap();
    assert!(
        needs.contains("\n  --copy-rates: --pipeline-layout\n")
            && needs.contains("\n  --memory-mode: --host-memory\n"),
        "{told}"
    );
    assert!(
        excludes.contains("\n  --virtual-stages: ")
            && excludes.contains("\n  --optimizations: --framework, --memory-mode"),
        "{told}"
    );
    assert!(!told.contains("--stage:") && !told.contains("NAME"), "{told}");
}

/// Fields of a recommendation that only a request file sets.
const ONLY_IN_FILES: &[&str] = &[
    "memory.chunked_training",
    "memory.blocks",
    "memory.min_block_bytes",
    "memory.chunk_options",
    "memory.cpu_optimizer_rate",
    "objective.memory_unit",
    "objective.candidate_profiles",
    "objective.model_scaling",
    "constraints.recompute_per_stage",
    "constraints.layer_pins",
    "constraints.uncut_layer_ranges",
    "constraints.stage_end_layers",
    "constraints.excluded_devices",
    "constraints.node_spanning",
    "search.seed",
    "search.layer_group_count",
    "output.alternative_count",
    "output.skip_comparisons",
];

/// Fields of `Problem` and `MemoryOptions` that `PredictPlan` refuses, or that only a request file sets.
const ONLY_RECOMMENDED: &[&str] = &[
    "problem.other_profiles",
    "problem.cluster",
    "problem.framework_version",
    "problem.global_batch_size",
    "problem.virtual_stage_count",
    "problem.communication_overlap",
    "problem.calibrate",
    "memory.optimizations",
    "memory.blocks",
    "memory.min_block_bytes",
    "memory.chunk_options",
    "memory.cpu_optimizer_rate",
];

/// Commands, their requests, and what these hold that the command line does not fill.
fn commands() -> Vec<(&'static str, &'static str, OptionTable, &'static [&'static str])> {
    // Lists are read in the view that the output shows.
    let list: &[&str] = &["view"];
    // Slurm itself starts what its jobs are.
    let unwrapped: &[&str] = &["variant", "placement", "manifest", "manifest_options"];
    vec![
        ("profile run", "CreateProfileRequest", PROFILE_RUN, list),
        ("profile resume", "ResumeProfileRequest", PROFILE_RESUME, list),
        ("profile list", "ListProfilesRequest", LIST, list),
        ("profile label", "UpdateProfileRequest", PROFILE_LABEL, list),
        ("profile show", "GetProfileRequest", NAME, list),
        ("profile export", "ExportProfileRequest", NAME, list),
        ("profile import", "ImportProfileRequest", PROFILE_IMPORT, list),
        ("profile measurements", "ListMeasurementsRequest", PROFILE_MEASUREMENTS, list),
        ("plan predict", "PredictPlanRequest", PLAN_PREDICT, ONLY_RECOMMENDED),
        ("plan recommend", "RecommendPlanRequest", PLAN_RECOMMEND, ONLY_IN_FILES),
        ("plan predict", "PredictPlanRequest", PLAN_PREDICT_GPUS, ONLY_RECOMMENDED),
        ("plan recommend", "RecommendPlanRequest", PLAN_RECOMMEND_GPUS, ONLY_IN_FILES),
        ("plan show", "GetPlanRequest", PLAN_SHOW, list),
        // What is drawn is asked for; neither value can be wrong.
        ("plan show", "SimulatePlanRequest", PLAN_SHOW, &["include_memory"]),
        ("plan compare", "ComparePlansRequest", PLAN_COMPARE, &["include_memory"]),
        ("plan list", "ListPlansRequest", LIST, list),
        ("plan export", "ExportPlanRequest", PLAN_EXPORT, list),
        // All of them are listed.
        ("plan export", "ListFrameworksRequest", PLAN_EXPORTERS, &["page_size", "page_token"]),
        ("plan placements", "GetPlacementRequest", PLAN_PLACEMENTS, list),
        ("plan placements", "ListPlacementsRequest", PLAN_PLACEMENTS, list),
        ("plan label", "UpdatePlanRequest", PLAN_LABEL, list),
        // What is asked of Slurm is the same whoever runs the plan.
        (
            "slurm request",
            "ExportPlanRequest",
            SLURM_REQUEST,
            &["framework", "framework_version", "variant", "placement", "manifest", "manifest_options"],
        ),
        ("slurm script", "ExportPlanRequest", SLURM_SCRIPT, unwrapped),
        // The nodes are those of the job.
        (
            "slurm place",
            "CreatePlacementRequest",
            SLURM_PLACE,
            &["nodes", "node_list", "other_profiles", "validate_only"],
        ),
        ("slurm place", "ExportPlanRequest", SLURM_PLACE, unwrapped),
        ("plan trial", "StartTrialRequest", PLAN_TRIAL, list),
        ("plan report", "CreateReportRequest", PLAN_REPORT, list),
        ("plan reports", "ListReportsRequest", REPORTS, list),
        ("plan errors", "ListPredictionErrorsRequest", PLAN_ERRORS, list),
        ("plan errors", "ListPredictionPairsRequest", PLAN_ERRORS, list),
        ("model list", "ListModelsRequest", LIST, list),
        ("model show", "GetModelRequest", NAME, list),
        ("model create", "CreateModelRequest", MODEL_CREATE, list),
        ("model import", "CreateModelRequest", MODEL_IMPORT, list),
        // Bytes do not depend on how an update rule is tuned.
        (
            "model chunks",
            "ComputeChunkLayoutRequest",
            MODEL_CHUNKS,
            &[
                "spec.optimizer.adam",
                "spec.optimizer.adamw",
                "spec.optimizer.learning_rate",
                "spec.optimizer.weight_decay",
            ],
        ),
        ("cluster import", "CreateClusterRequest", CLUSTER_IMPORT, &["cluster", "request_id"]),
        // Links and tiers have no options; `file` is another command's.
        (
            "cluster create",
            "CreateClusterRequest",
            CLUSTER_CREATE,
            &[
                "file",
                "request_id",
                "cluster.name",
                "cluster.tiers",
                "cluster.links",
                "cluster.create_time",
                "cluster.source",
                "cluster.warnings",
                "cluster.assumptions",
            ],
        ),
        // Links and tiers have no options.
        (
            "cluster update",
            "UpdateClusterRequest",
            CLUSTER_UPDATE,
            &["cluster.tiers", "cluster.create_time", "cluster.source", "cluster.warnings"],
        ),
        ("cluster delete", "DeleteClusterRequest", CLUSTER_DELETE, list),
        ("model delete", "DeleteModelRequest", NAME, list),
        ("history purge", "PurgeHistoryRequest", HISTORY_PURGE, list),
        ("plan delete", "DeletePlacementRequest", PLAN_DELETE, list),
        ("plan reports", "GetReportRequest", REPORTS, list),
        ("profile measurements", "GetMeasurementRequest", PROFILE_MEASUREMENTS, list),
        ("cluster discover", "DiscoverClusterRequest", CLUSTER_DISCOVER, &["request_id"]),
        ("cluster measure", "MeasureLinksRequest", CLUSTER_MEASURE, list),
        ("cluster links", "ListLinkMeasurementsRequest", CLUSTER_LINKS, list),
        ("cluster list", "ListClustersRequest", LIST, list),
        ("cluster show", "GetClusterRequest", NAME, list),
        ("run list", "ListRunsRequest", RUN_LIST, list),
        ("run show", "GetRunRequest", NAME, list),
        ("worker list", "ListWorkersRequest", LIST, list),
        ("worker show", "GetWorkerRequest", NAME, list),
        ("worker cordon", "CordonWorkerRequest", NAME, list),
        ("worker uncordon", "UncordonWorkerRequest", NAME, list),
        ("worker delete", "DeleteWorkerRequest", NAME, list),
        ("plan delete", "DeletePlanRequest", PLAN_DELETE, list),
        ("plan delete", "DeleteReportRequest", PLAN_DELETE, list),
        ("profile delete", "DeleteProfileRequest", PROFILE_DELETE, list),
        ("history watch", "WatchChangesRequest", HISTORY_WATCH, list),
    ]
}

/// Every field of a message as errors name it.
fn paths(message: &MessageDescriptor, above: &str, depth: usize) -> Vec<String> {
    let path = |field: &FieldDescriptor| {
        if above.is_empty() { field.name().to_owned() } else { format!("{above}.{}", field.name()) }
    };
    let below = |field: FieldDescriptor| match field.kind() {
        Kind::Message(inner)
            if !field.is_map() && depth < 6 && inner.full_name().starts_with("loadmaster") =>
        {
            paths(&inner, &path(&field), depth + 1)
        }
        _ => vec![path(&field)],
    };
    message.fields().flat_map(below).collect()
}

/// A field that is added to a request needs its option, or a word here that it has none.
#[test]
fn every_field_that_a_command_fills_has_its_option() {
    let pool = DescriptorPool::decode(DESCRIPTORS).unwrap();
    for (command, request, table, unfilled) in commands() {
        let message = pool.get_message_by_name(&format!("loadmaster.v1.{request}")).unwrap();
        for path in paths(&message, "", 0) {
            let left_out = unfilled.iter().any(|of| path == *of || path.starts_with(&format!("{of}.")));
            assert!(
                left_out || place(&path, table).is_some(),
                "`{command}`: {path} of {request} has no option"
            );
        }
    }
}

#[test]
fn every_option_of_a_table_is_one_of_its_command() {
    let program = Cli::command();
    for (line, _, table, _) in commands() {
        let command = line.split(' ').fold(&program, |command, word| command.find_subcommand(word).unwrap());
        for (_, option) in table.iter().copied().flatten() {
            let option = option.split([':', '*']).next().unwrap();
            let known = command.get_arguments().any(|argument| match option.strip_prefix("--") {
                Some(long) => argument.get_long() == Some(long),
                None => {
                    let names = argument.get_value_names().unwrap_or_default();
                    argument.is_positional() && names.iter().any(|name| name.as_str() == option)
                }
            });
            assert!(known, "`loadmaster {line}` has no {option}");
        }
    }
}

#[test]
fn a_field_becomes_the_option_that_filled_it() {
    let told = |field: &str, table| place(field, table).unwrap_or_default();
    assert_eq!(told("training.micro_batch_size", PROFILE_RUN), "--micro-batch-size");
    assert_eq!(told("problem.devices[1].count", PLAN_RECOMMEND_GPUS), "--gpus (value 2)");
    assert_eq!(told("objective.hourly_prices[A 1.5]", PLAN_RECOMMEND), "--hourly-price (A 1.5)");
    assert_eq!(told("cluster.kinds[0].memory_bytes", CLUSTER_CREATE), "--device-memory");
    assert_eq!(told("source.layer_list.document.layers[3].kernel", MODEL_IMPORT), "PATH: layers[3].kernel");
    assert_eq!(told("memory.mode", PLAN_RECOMMEND), "--memory-mode");
    assert_eq!(told("constraints.min_stage_count", PLAN_RECOMMEND), "--pipeline-parallel-sizes");
    assert_eq!(told("objective.model_scaling.max_value", PLAN_RECOMMEND), "");
    assert_eq!(
        told("memory.chunked_training.planned_residency.intervals[3]", PLAN_PREDICT),
        "--chunks: planned_residency.intervals[3]"
    );
    let of_stage = told("memory.stage_memory_optimizations[2].optimizations[0].swap.block", PLAN_PREDICT);
    assert_eq!(of_stage, "--stage-optimization: stage 2: optimizations[0].swap.block");
    assert_eq!(told("memory.stage_memory_optimizations", PLAN_PREDICT), "--stage-optimization");
    for of_nodes in ["nodes", "nodes[1]", "nodes[0].name", "nodes[0].device_uuids[1]", "node_list"] {
        assert_eq!(told(of_nodes, PLAN_PLACE), "--nodes", "{of_nodes}");
    }
    assert_eq!(told("nodes[0].device_indices[1]", PLAN_PLACE), "--device-indices");
    assert_eq!(told("something.else", PLAN_RECOMMEND), "");
}

/// In a table, names with underscores are those of a model, so only what stands in back quotes is a field.
#[test]
fn answers_name_options_in_place_of_quoted_fields() {
    let text = "layer micro_batch_size  copies at 5.00 GB/s; set `memory.copy_bandwidth`, `profiling_mode` PROFILING_MODE_PER_LAYER";
    assert_eq!(
        answer(text, PLAN_RECOMMEND),
        "layer micro_batch_size  copies at 5.00 GB/s; set `--copy-rates`, `--profiling-mode` per-layer"
    );
}

#[test]
fn errors_name_options_in_all_their_parts() {
    let mut details = ErrorDetails::with_error_info("INVALID_FIELD", "loadmaster.dev", []);
    details.add_bad_request_violation(
        "source.zoo.gpt2.heads",
        "5 does not divide hidden_size (32). Use a divisor",
    );
    let message = "source.zoo.gpt2.heads: 5 does not divide hidden_size (32). Use a divisor";
    let status = Status::with_error_details(Code::InvalidArgument, message, details);
    let told = in_options(&status, PROFILE_RUN, None, None);
    assert_eq!(told.message(), "--heads: 5 does not divide --hidden-size (32). Use a divisor");
    let violation = &told.get_details_bad_request().unwrap().field_violations[0];
    assert_eq!(violation.field, "--heads");
    assert_eq!(told.get_details_error_info().unwrap().reason, "INVALID_FIELD");

    // A document is named by its file.
    let details = ErrorDetails::with_bad_request_violation("source.hugging_face.config.hidden_size", "is 0");
    let status = Status::with_error_details(Code::InvalidArgument, "is 0", details);
    let of_file = |path| in_options(&status, MODEL_IMPORT, path, None).message().to_owned();
    assert_eq!(of_file(Some(Path::new("a/config.json"))), "a/config.json: hidden_size: is 0");
    assert_eq!(of_file(Some(Path::new("-"))), "standard input: hidden_size: is 0");
    assert_eq!(of_file(None), "PATH: hidden_size: is 0");

    let words =
        |text| in_options(&Status::failed_precondition(text), PROFILE_RUN, None, None).message().to_owned();
    assert_eq!(
        words("start loadmaster-worker, or name device_kind."),
        "start loadmaster-worker, or name --device-kind."
    );
    assert_eq!(words("the devices of my_model"), "the devices of my_model");
    assert_eq!(words("leave `iteration_count` to it"), "leave `--iterations` to it");
    // Values, too, are told as they are typed; what no one types stays as it is.
    assert_eq!(
        words("name SCHEDULE_ONE_F_ONE_B or PROFILING_MODE_WHOLE_PIPELINE."),
        "name 1f1b or whole-pipeline."
    );
    assert_eq!(
        words("of SCHEDULE_UNSPECIFIED in My_model: GPT_2"),
        "of SCHEDULE_UNSPECIFIED in My_model: GPT_2"
    );

    // A message that is its only violation without the field.
    let details = ErrorDetails::with_bad_request_violation("parallel_sizes", "4 does not divide 6");
    let status = Status::with_error_details(Code::InvalidArgument, "4 does not divide 6", details);
    assert_eq!(
        in_options(&status, PROFILE_RUN, None, None).message(),
        "--parallel-sizes: 4 does not divide 6"
    );
}

/// A request file is named with the field, unless the option of the field was typed.
#[test]
fn fields_of_a_request_file_are_named_with_it() {
    let request = (PathBuf::from("a/request.yaml"), BTreeSet::from(["--schedule".to_owned()]));
    let told = |field: &str| {
        let details = ErrorDetails::with_bad_request_violation(field, "is 0");
        let status = Status::with_error_details(Code::InvalidArgument, format!("{field}: is 0"), details);
        in_options(&status, PLAN_RECOMMEND, None, Some(&request)).message().to_owned()
    };
    assert_eq!(told("problem.schedule"), "--schedule: is 0");
    assert_eq!(told("problem.recompute"), "a/request.yaml: problem.recompute: is 0");
    assert_eq!(
        told("constraints.layer_pins[1].layer"),
        "a/request.yaml: constraints.layer_pins[1].layer: is 0"
    );
}
