//! Of plans.

use loadmaster_filter::{Field, Kind};
use loadmaster_proto::plan::objective::{Launcher, Objective, PlanShape};
use loadmaster_proto::training::{Precision, RecomputePolicy, Schedule};

use super::{always, optimizers, perhaps, words};

/// Of `plan_facts`.
pub static PLANS: &[Field] = &[
    always("name", Kind::Id("plans/"), "id"),
    always("profile", Kind::Id("profiles/"), "profile_id"),
    always("model", Kind::Id("models/"), "model_id"),
    perhaps("cluster", Kind::Id("clusters/"), "cluster_id"),
    perhaps("device_kind", Kind::Text, "device_kind"),
    perhaps("device_count", Kind::Count, "device_count"),
    perhaps("objective", Kind::Word(words::<Objective>), "objective"),
    perhaps("launcher", Kind::Word(words::<Launcher>), "launcher"),
    perhaps("shape", Kind::Word(words::<PlanShape>), "shape"),
    perhaps("partition", Kind::Text, "partition"),
    perhaps("solver", Kind::Text, "solver"),
    perhaps("predictor", Kind::Text, "predictor"),
    perhaps("precision", Kind::Word(words::<Precision>), "\"precision\""),
    perhaps("optimizer", Kind::Word(optimizers), "optimizer"),
    perhaps("schedule", Kind::Word(words::<Schedule>), "schedule"),
    perhaps("recompute", Kind::Word(words::<RecomputePolicy>), "recompute"),
    perhaps("micro_batch_size", Kind::Count, "micro_batch_size"),
    perhaps("micro_batches", Kind::Count, "micro_batches"),
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
