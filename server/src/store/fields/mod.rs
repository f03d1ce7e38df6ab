//! What lists are filtered and ordered by, list by list: a table of the fields that callers name, with the columns where they
//! are. The protocol documents the names; a test holds both to each other.

mod short_lists;
#[cfg(test)]
mod tests;

use loadmaster_filter::{Field, Kind};
use loadmaster_proto::choice::Choice;
use loadmaster_proto::plan::objective::{Framework, Objective, PlanShape};
use loadmaster_proto::training::{Precision, RecomputePolicy, Schedule};
use serde::Serialize;
use serde_json::Value;

use crate::store::records::{ProfileState, ProfilingMode, RunState};

pub use short_lists::{
    CLUSTERS, LINK_MEASUREMENTS, MEASUREMENTS, MODELS, OPERATIONS, PLACEMENTS, REPORTS, WORKERS,
};

/// A field that every row has.
const fn always(name: &'static str, kind: Kind, column: &'static str) -> Field {
    Field { name, kind, column, is_always_set: true }
}

/// A field that rows may lack.
const fn perhaps(name: &'static str, kind: Kind, column: &'static str) -> Field {
    Field { name, kind, column, is_always_set: false }
}

/// What people call the variants of an enum, and what documents write.
fn words<T: Choice + Serialize>() -> Vec<(&'static str, String)> {
    let stored = |choice: T| match serde_json::to_value(choice) {
        Ok(Value::String(word)) => word,
        _ => choice.word().to_owned(),
    };
    T::all().iter().map(|&choice| (choice.word(), stored(choice))).collect()
}

/// The words of an enum of the tables' own, which are what tables write.
fn states<T: Choice>() -> Vec<(&'static str, String)> {
    T::words().map(|word| (word, word.to_owned())).collect()
}

/// Update rules, by the word in their documents.
fn optimizers() -> Vec<(&'static str, String)> {
    ["sgd", "adam", "adamw"].map(|word| (word, word.to_owned())).to_vec()
}

/// Of exporters.
pub static EXPORTERS: &[Field] = &[
    always("framework", Kind::Word(states::<Framework>), ""),
    always("first_version", Kind::Text, ""),
    always("description", Kind::Text, ""),
    always("verified", Kind::Word(proofs), ""),
    perhaps("variants", Kind::Text, ""),
    perhaps("manifests", Kind::Texts, ""),
];

fn proofs() -> Vec<(&'static str, String)> {
    ["none", "parsed", "built", "trained"].map(|word| (word, word.to_owned())).to_vec()
}

/// Of pairs.
pub static PAIRS: &[Field] = &[
    always("plan", Kind::Id("plans/"), ""),
    always("profile", Kind::Id("profiles/"), ""),
    always("model", Kind::Id("models/"), ""),
    always("device_kind", Kind::Text, ""),
    always("predictor", Kind::Text, ""),
    always("quantity", Kind::Word(quantities), ""),
    perhaps("link", Kind::Word(links), ""),
    always("source", Kind::Text, ""),
    always("predicted", Kind::Number, ""),
    always("measured", Kind::Number, ""),
    perhaps("error", Kind::Number, ""),
    perhaps("difference", Kind::Number, ""),
    always("create_time", Kind::Time, ""),
];

fn quantities() -> Vec<(&'static str, String)> {
    written(&["peak-bytes", "iteration-seconds", "waited-seconds", "copied-bytes"])
}

fn links() -> Vec<(&'static str, String)> {
    written(&["host", "peers"])
}

fn written(words: &[&'static str]) -> Vec<(&'static str, String)> {
    words.iter().map(|&word| (word, word.to_owned())).collect()
}

/// Of `plan_facts`.
pub static PLANS: &[Field] = &[
    always("name", Kind::Id("plans/"), "id"),
    always("profile", Kind::Id("profiles/"), "profile_id"),
    always("model", Kind::Id("models/"), "model_id"),
    perhaps("cluster", Kind::Id("clusters/"), "cluster_id"),
    perhaps("device_kind", Kind::Text, "device_kind"),
    perhaps("device_count", Kind::Count, "device_count"),
    perhaps("objective", Kind::Word(words::<Objective>), "objective"),
    perhaps("framework", Kind::Word(words::<Framework>), "framework"),
    perhaps("parallelism_layout", Kind::Word(words::<PlanShape>), "shape"),
    perhaps("pipeline_layout", Kind::Text, "partition"),
    perhaps("solver", Kind::Text, "solver"),
    perhaps("predictor", Kind::Text, "predictor"),
    perhaps("precision", Kind::Word(words::<Precision>), "\"precision\""),
    perhaps("optimizer", Kind::Word(optimizers), "optimizer"),
    perhaps("schedule", Kind::Word(words::<Schedule>), "schedule"),
    perhaps("recompute", Kind::Word(words::<RecomputePolicy>), "recompute"),
    perhaps("micro_batch_size", Kind::Count, "micro_batch_size"),
    perhaps("micro_batch_count", Kind::Count, "micro_batches"),
    perhaps("global_batch_size", Kind::Count, "global_batch_size"),
    always("predicted_peak", Kind::Bytes, "predicted_peak_bytes"),
    perhaps("predicted_seconds", Kind::Seconds, "predicted_seconds"),
    perhaps("hourly_price", Kind::Number, "hourly_price"),
    perhaps("measured_peak", Kind::Bytes, "measured_peak_bytes"),
    perhaps("measured_seconds", Kind::Seconds, "measured_seconds"),
    perhaps("peak_error", Kind::Number, "peak_error"),
    perhaps("seconds_error", Kind::Number, "seconds_error"),
    perhaps("reported_seconds", Kind::Seconds, "reported_seconds"),
    perhaps("report_error", Kind::Number, "report_error"),
    always("create_time", Kind::Time, "create_time"),
    always("labels", Kind::Labels, "labels"),
];

/// Of `profiles`; what was asked for is read out of its document.
pub static PROFILES: &[Field] = &[
    always("name", Kind::Id("profiles/"), "id"),
    always("model", Kind::Id("models/"), "model_id"),
    always("state", Kind::Word(states::<ProfileState>), "state"),
    always("profiling_mode", Kind::Word(words::<ProfilingMode>), "profiling_mode"),
    always("device_kind", Kind::Text, "device_kind"),
    perhaps("custom_profiler", Kind::Text, "settings ->> 'command'"),
    perhaps("precision", Kind::Word(words::<Precision>), "settings #>> '{training,precision}'"),
    perhaps("optimizer", Kind::Word(optimizers), "settings #>> '{training,optimizer,kind}'"),
    perhaps("schedule", Kind::Word(words::<Schedule>), "settings #>> '{training,schedule}'"),
    perhaps("recompute", Kind::Word(words::<RecomputePolicy>), "settings #>> '{training,recompute}'"),
    perhaps("micro_batch_size", Kind::Count, "(settings #>> '{training,micro_batch_size}')::bigint"),
    perhaps("micro_batch_count", Kind::Count, "(settings #>> '{training,micro_batches}')::bigint"),
    always("create_time", Kind::Time, "create_time"),
    perhaps("end_time", Kind::Time, "end_time"),
    always("labels", Kind::Labels, "labels"),
];

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
    perhaps("custom_profiler", Kind::Text, "command"),
    perhaps("micro_batch_size", Kind::Count, "micro_batch_size::bigint"),
    always("iteration_count", Kind::Count, "iterations::bigint"),
    always("attempt_count", Kind::Count, "attempts::bigint"),
    always("progress", Kind::Number, "progress"),
    always("device_seconds", Kind::Seconds, "device_seconds"),
    always("host_memory", Kind::Bytes, "host_memory_bytes"),
    always("create_time", Kind::Time, "create_time"),
    perhaps("start_time", Kind::Time, "start_time"),
    perhaps("end_time", Kind::Time, "end_time"),
];
