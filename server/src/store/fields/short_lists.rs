//! Of the lists that are short mostly.

use loadmaster_filter::{Field, Kind};

use loadmaster_proto::cluster::ClusterSource;

use super::{always, perhaps, states, words};
use crate::store::records::WorkerState;

/// Of a row that is of a plan, what that plan is of: a column of `plan_facts`.
macro_rules! of_plan {
    ($column:literal) => {
        concat!("(SELECT plan_facts.", $column, " FROM plan_facts WHERE plan_facts.id = plan_id)")
    };
}

/// Of a row that is of a profile or of a plan, what that is of: a column of both.
macro_rules! of_either {
    ($column:literal) => {
        concat!(
            "coalesce((SELECT profiles.",
            $column,
            " FROM profiles WHERE profiles.id = profile_id), ",
            of_plan!($column),
            ")"
        )
    };
}

/// The distinct texts that the objects of a list have by a key, with commas between them.
macro_rules! joined {
    ($list:literal, $key:literal) => {
        concat!(
            "(SELECT string_agg(DISTINCT (item ->> '",
            $key,
            "') COLLATE \"C\", ',' ORDER BY (item ->> '",
            $key,
            "') COLLATE \"C\") FROM jsonb_array_elements(",
            $list,
            ") AS item)"
        )
    };
}

/// Of `placements`.
pub static PLACEMENTS: &[Field] = &[
    always("name", Kind::Id("placements/"), "id"),
    always("plan", Kind::Id("plans/"), "plan_id"),
    perhaps("profile", Kind::Id("profiles/"), of_plan!("profile_id")),
    perhaps("model", Kind::Id("models/"), of_plan!("model_id")),
    perhaps("device_kind", Kind::Text, of_plan!("device_kind")),
    perhaps("cluster", Kind::Id("clusters/"), "substr(summary ->> 'cluster', length('clusters/') + 1)"),
    always("nodes", Kind::Texts, "array_to_string(nodes, ',')"),
    always("node_count", Kind::Count, "cardinality(nodes)::bigint"),
    perhaps("iteration_seconds", Kind::Seconds, "(summary ->> 'seconds')::double precision"),
    perhaps("planned_iteration_seconds", Kind::Seconds, "(summary ->> 'planned')::double precision"),
    perhaps("optimality_gap", Kind::Number, "(summary ->> 'gap')::double precision"),
    always("optimal", Kind::Truth, "(summary ->> 'is_proven')::boolean"),
    always("create_time", Kind::Time, "create_time"),
];

/// Of `clusters`.
pub static CLUSTERS: &[Field] = &[
    always("name", Kind::Id("clusters/"), "id"),
    always("node_count", Kind::Count, "node_count::bigint"),
    always("device_count", Kind::Count, "device_count::bigint"),
    perhaps("device_kind", Kind::Text, joined!("cluster -> 'kinds'", "name")),
    always("source", Kind::Word(words::<ClusterSource>), "cluster ->> 'source'"),
    always("create_time", Kind::Time, "create_time"),
];

/// Of `link_measurements`.
pub static LINK_MEASUREMENTS: &[Field] = &[
    always("run", Kind::Id("runs/"), "run_id"),
    always("worker", Kind::Id("workers/"), "worker_id"),
    perhaps("device_kind", Kind::Text, "measurement #>> '{environment,device_kind}'"),
    always("create_time", Kind::Time, "create_time"),
];

/// Of the measurements of a profile, and of documents, whose rows are at hand.
pub static MEASUREMENTS: &[Field] = &[
    always("run", Kind::Id("runs/"), "measurements.run_id"),
    always("stage_index", Kind::Count, "measurements.stage_index::bigint"),
    always("stage_count", Kind::Count, "measurements.stage_count::bigint"),
    always("shard", Kind::Count, "measurements.shard::bigint"),
    always("solo", Kind::Truth, "measurements.solo"),
    always("first_layer", Kind::Count, "(measurements.first_layer + links.layer_offset)::bigint"),
    always("last_layer", Kind::Count, "(measurements.last_layer + links.layer_offset)::bigint"),
    always("data_parallel_size", Kind::Count, "measurements.data_degree::bigint"),
    always("tensor_parallel_size", Kind::Count, "measurements.tensor_degree::bigint"),
    always("micro_batch_size", Kind::Count, "measurements.micro_batch_size::bigint"),
    always("in_flight_micro_batch_count", Kind::Count, "measurements.in_flight::bigint"),
    always("held_out", Kind::Truth, "links.held_out"),
    always("device_kind", Kind::Text, "measurements.device_kind"),
    always("peak", Kind::Bytes, "measurements.peak_allocated_bytes"),
    always("iteration_seconds", Kind::Seconds, "measurements.iteration_seconds"),
    always("create_time", Kind::Time, "measurements.create_time"),
];

/// Of `models`.
pub static MODELS: &[Field] = &[
    always("name", Kind::Id("models/"), "id"),
    perhaps("family", Kind::Text, "model ->> 'family'"),
    perhaps("layer_count", Kind::Count, "jsonb_array_length(model -> 'layers')::bigint"),
    always("create_time", Kind::Time, "create_time"),
];

/// Of `reports`.
pub static REPORTS: &[Field] = &[
    always("plan", Kind::Id("plans/"), "plan_id"),
    perhaps("profile", Kind::Id("profiles/"), of_plan!("profile_id")),
    perhaps("model", Kind::Id("models/"), of_plan!("model_id")),
    always("device_kind", Kind::Text, "device_kind"),
    perhaps("source", Kind::Text, "report ->> 'source'"),
    perhaps("iteration_count", Kind::Count, "(report ->> 'iterations')::bigint"),
    perhaps("iteration_seconds", Kind::Seconds, "(report ->> 'iteration_seconds')::double precision"),
    always("create_time", Kind::Time, "create_time"),
];

/// Of `operations`. Filters alone name these: the standard's request has no order, and its comments are not ours, so that the help
/// of `loadmaster operation list` and `deploy/guide/tasks/browse-history.md` document them.
pub static OPERATIONS: &[Field] = &[
    always("name", Kind::Id("operations/"), "id"),
    always("state", Kind::Word(operation_states), "state"),
    always("done", Kind::Truth, "(state <> 'running')"),
    perhaps("profile", Kind::Id("profiles/"), "profile_id"),
    perhaps("plan", Kind::Id("plans/"), "plan_id"),
    perhaps("model", Kind::Id("models/"), of_either!("model_id")),
    perhaps("device_kind", Kind::Text, of_either!("device_kind")),
    always("create_time", Kind::Time, "create_time"),
    perhaps("end_time", Kind::Time, "end_time"),
];

fn operation_states() -> Vec<(&'static str, String)> {
    ["running", "succeeded", "failed", "cancelled"].map(|word| (word, word.to_owned())).to_vec()
}

/// Of `workers`.
pub static WORKERS: &[Field] = &[
    always("name", Kind::Id("workers/"), "id"),
    always("state", Kind::Word(states::<WorkerState>), "state"),
    always("host", Kind::Text, "host"),
    always("version", Kind::Text, "version"),
    always("libtorch_version", Kind::Text, "libtorch_version"),
    always("cuda_version", Kind::Text, "cuda_version"),
    perhaps("device_kind", Kind::Text, joined!("devices", "kind")),
    always("device_count", Kind::Count, "jsonb_array_length(devices)::bigint"),
    always("core_count", Kind::Count, "cores::bigint"),
    always("thread_count", Kind::Count, "threads::bigint"),
    always("host_memory", Kind::Bytes, "host_memory_bytes"),
    always("custom_profilers", Kind::Texts, "array_to_string(commands, ',')"),
    always("create_time", Kind::Time, "create_time"),
    always("heartbeat_time", Kind::Time, "heartbeat_time"),
];
