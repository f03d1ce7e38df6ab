//! Profiles as documents: out of this planner, and into it.
//!
//! A document is checked by its domain type
//! ([`ProfileDocument`]); here it becomes a stored profile, or is made of one.

mod import;

use loadmaster_proto::error::Invalid;
use loadmaster_proto::measure::environment::Environment;
use loadmaster_proto::measure::measurement::Measurement;
use loadmaster_proto::name::ProfileName;
use loadmaster_proto::profile::document::{
    DocumentError, FORMAT, ProfileDocument, Provenance, RunMeasurement, Subject,
};

use super::profile::StoredProfile;
use super::store::records::{MeasurementRecord, ProfileRecord, ProfileState};
use super::store::{Store, StoreError};
pub use import::Import;

/// Why a document is not taken, or none can be made.
#[derive(Debug, thiserror::Error)]
pub enum DocumentFault {
    /// The document is not valid; paths are those of its keys.
    #[error("{0}")]
    Invalid(#[from] Invalid),
    /// The store refused.
    #[error("{0}")]
    Store(#[from] StoreError),
    /// A profile that is not complete has no document.
    #[error(
        "{profile} is incomplete and cannot be exported. `loadmaster profile show {profile}` lists what is missing."
    )]
    NotComplete { profile: String },
    /// A profile with more measurements than a document holds.
    #[error("{profile} cannot be exported: {why}")]
    TooLarge {
        profile: String,
        /// How much too large it is.
        why: DocumentError,
    },
}

/// The document of a complete profile: the one that it came in, or one made of its measurements.
///
/// # Errors
/// The profile is missing or not complete.
pub async fn export(store: &Store, name: &ProfileName) -> Result<ProfileDocument, DocumentFault> {
    match store.find_document(name).await? {
        Some(imported) => Ok(imported),
        None => {
            let (record, stored) = StoredProfile::load(store, name).await?;
            if record.state != ProfileState::Complete {
                return Err(DocumentFault::NotComplete { profile: name.to_string() });
            }
            Ok(document_of(record, stored))
        }
    }
}

fn document_of(record: ProfileRecord, stored: StoredProfile) -> ProfileDocument {
    let StoredProfile { settings, model, measurements } = stored;
    let first = measurements.first().map(|record| &record.measurement);
    let environment = first.map(|first| first.environment.clone()).unwrap_or_default();
    let Environment { cuda_version, driver_version, libtorch_version, framework, framework_version, .. } =
        environment;
    let (framework, framework_version) = if framework.is_empty() {
        ("libtorch".to_owned(), libtorch_version)
    } else {
        (framework, framework_version)
    };
    ProfileDocument {
        format: FORMAT.to_owned(),
        provenance: Provenance {
            source: settings.name.to_string(),
            tool: "loadmaster".to_owned(),
            tool_version: env!("CARGO_PKG_VERSION").to_owned(),
            measured_at: record.end_time.unwrap_or(record.create_time).to_string(),
            device_kind: settings.device_kind.clone(),
            driver_version,
            cuda_version,
            framework,
            framework_version,
            ledger: first.map(|first| first.peak_ledger).unwrap_or_default(),
            notes: String::new(),
        },
        model: Subject::Known(model),
        training: Some(settings.training),
        settings: Some(settings),
        stages: Vec::new(),
        layer_table: None,
        measurements: measurements.into_iter().map(measurement).collect(),
    }
}

/// Without its losses: those of a diverging training are no numbers that JSON can write, and planning has no
/// use for them.
fn measurement(record: MeasurementRecord) -> RunMeasurement {
    let MeasurementRecord { run, held_out, measurement, .. } = record;
    RunMeasurement { run, held_out, measurement: Measurement { losses: Vec::new(), ..measurement } }
}
