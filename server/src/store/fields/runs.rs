//! Of runs.

use loadmaster_filter::{Field, Kind};

use super::{always, perhaps, states};
use crate::store::records::RunState;

/// Of `runs`.
pub static RUNS: &[Field] = &[
    always("name", Kind::Id("runs/"), "id"),
    always("operation", Kind::Id("operations/"), "operation_id"),
    perhaps("profile", Kind::Id("profiles/"), "profile_id"),
    perhaps("plan", Kind::Id("plans/"), "plan_id"),
    perhaps("model", Kind::Id("models/"), "model_id"),
    perhaps("worker", Kind::Id("workers/"), "worker_id"),
    always("state", Kind::Word(states::<RunState>), "state"),
    always("device_kind", Kind::Text, "device_kind"),
    always("device_count", Kind::Count, "device_count::bigint"),
    perhaps("command", Kind::Text, "command"),
    perhaps("micro_batch_size", Kind::Count, "micro_batch_size::bigint"),
    always("iterations", Kind::Count, "iterations::bigint"),
    always("attempts", Kind::Count, "attempts::bigint"),
    always("progress", Kind::Number, "progress"),
    always("device_seconds", Kind::Seconds, "device_seconds"),
    always("host_memory", Kind::Bytes, "host_memory_bytes"),
    always("create_time", Kind::Time, "create_time"),
    perhaps("start_time", Kind::Time, "start_time"),
    perhaps("end_time", Kind::Time, "end_time"),
];
