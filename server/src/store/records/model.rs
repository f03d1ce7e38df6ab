//! Models.

use jiff::Timestamp;
use loadmaster_proto::model::Model;
use loadmaster_proto::model::import::ModelSource;
use loadmaster_proto::name::ModelName;

/// A model with what it was built from.
#[derive(Debug, Clone, PartialEq)]
pub struct ModelRecord {
    /// Content-derived name.
    pub name: ModelName,
    /// The model.
    pub model: Model,
    /// What it was built from.
    pub source: ModelSource,
    /// When it was first stored.
    pub create_time: Timestamp,
}
