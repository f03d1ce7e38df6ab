//! Of profiles.

use loadmaster_filter::{Field, Kind};
use loadmaster_proto::training::{Precision, RecomputePolicy, Schedule};

use super::{always, optimizers, perhaps, states, words};
use crate::store::records::{Campaign, ProfileState};

/// Of `profiles`; what was asked for is read out of its document.
pub static PROFILES: &[Field] = &[
    always("name", Kind::Id("profiles/"), "id"),
    always("model", Kind::Id("models/"), "model_id"),
    always("state", Kind::Word(states::<ProfileState>), "state"),
    always("campaign", Kind::Word(words::<Campaign>), "campaign"),
    always("device_kind", Kind::Text, "device_kind"),
    perhaps("command", Kind::Text, "settings ->> 'command'"),
    perhaps("precision", Kind::Word(words::<Precision>), "settings #>> '{training,precision}'"),
    perhaps("optimizer", Kind::Word(optimizers), "settings #>> '{training,optimizer,kind}'"),
    perhaps("schedule", Kind::Word(words::<Schedule>), "settings #>> '{training,schedule}'"),
    perhaps("recompute", Kind::Word(words::<RecomputePolicy>), "settings #>> '{training,recompute}'"),
    perhaps("micro_batch_size", Kind::Count, "(settings #>> '{training,micro_batch_size}')::bigint"),
    perhaps("micro_batches", Kind::Count, "(settings #>> '{training,micro_batches}')::bigint"),
    always("create_time", Kind::Time, "create_time"),
    perhaps("end_time", Kind::Time, "end_time"),
    always("labels", Kind::Labels, "labels"),
];
