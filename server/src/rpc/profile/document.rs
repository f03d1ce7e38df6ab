//! `ExportProfile` and `ImportProfile`.

use loadmaster_predict::choose::imported_profile;
use loadmaster_proto::error::Invalid;
use loadmaster_proto::name::ProfileName;
use loadmaster_proto::profile::document::{ProfileDocument, Provenance};
use loadmaster_proto::wire::{ToWire, v1};

use super::{Profiles, message};
use crate::document::{DocumentFault, Import, export};
use crate::profile::StoredProfile;
use crate::rpc::blocking::blocking;
use crate::rpc::error::ApiError;
use crate::rpc::imports::Imports;
use crate::store::records::RunCounts;

impl Imports {
    /// A checked document, from the field `field` of a request.
    ///
    /// # Errors
    /// Names the key that is wrong, or too many documents are read already.
    pub(in crate::rpc) async fn document(
        &self,
        field: &'static str,
        text: String,
        id: Option<ProfileName>,
    ) -> Result<Import, ApiError> {
        self.run("a document cannot be read", move |stop| {
            Import::check_while(&text, id, &|| !stop.is_requested()).map_err(|invalid| invalid.under(field))
        })
        .await
    }
}

impl Profiles {
    /// The document of a profile.
    pub(super) async fn export(
        &self,
        request: v1::ExportProfileRequest,
    ) -> Result<v1::ExportProfileResponse, ApiError> {
        let name = ProfileName::parse("name", &request.name)?;
        let document = export(&self.store, &name).await.map_err(|fault| ApiError::document("name", fault))?;
        // Traces of large models take a while to write: heartbeats must not wait for it.
        let document = blocking("a document cannot be written", move || {
            document.to_text().map_err(|why| {
                ApiError::document("name", DocumentFault::TooLarge { profile: name.to_string(), why })
            })
        })
        .await?;
        Ok(v1::ExportProfileResponse { document })
    }

    /// The profile of a document, stored unless it is there or only to be checked.
    pub(super) async fn import(&self, request: v1::ImportProfileRequest) -> Result<v1::Profile, ApiError> {
        let id = match request.profile_id.as_str() {
            "" => None,
            id => Some(ProfileName::from_id(id).map_err(|invalid| invalid.under("profile_id"))?),
        };
        let import = self.imports.document("document", request.document, id).await?;
        if request.validate_only {
            let row = message::new(&import.settings, RunCounts::default());
            return Ok(described(row, &import.document, &import.row.digest));
        }
        import.store(&self.store).await?;
        self.whole(&import.settings.name).await
    }

    /// An imported profile: what its own measurements say, or else its numbers as they came, and where they
    /// come from.
    pub(super) async fn imported(
        &self,
        name: &ProfileName,
        document: ProfileDocument,
    ) -> Result<v1::Profile, ApiError> {
        let record = self.store.get_profile(name).await?;
        let stored = match document.measurements.as_slice() {
            [] => None,
            _ => Some(StoredProfile::of(&self.store, &record).await?),
        };
        blocking("a profile cannot be shown", move || {
            let digest = document.digest().map_err(Invalid::from)?;
            match stored {
                None => Ok::<_, ApiError>(described(message::row(&record), &document, &digest)),
                Some(stored) => Ok(v1::Profile {
                    provenance: Some(provenance(&document, &digest)),
                    ..message::profile(&record, &stored)?
                }),
            }
        })
        .await
    }
}

/// A row with what its document says.
fn described(row: v1::Profile, document: &ProfileDocument, digest: &str) -> v1::Profile {
    let (metrics, ledger) = imported_profile::layer_metrics(document);
    v1::Profile {
        layer_memory: metrics.iter().map(|of| message::layer_memory(of, ledger)).collect(),
        provenance: Some(provenance(document, digest)),
        ..row
    }
}

fn provenance(document: &ProfileDocument, digest: &str) -> v1::Provenance {
    let Provenance {
        source,
        tool,
        tool_version,
        measured_at,
        device_kind,
        driver_version,
        cuda_version,
        framework,
        framework_version,
        ledger,
        notes,
    } = document.provenance.clone();
    let count = |count: usize| i32::try_from(count).unwrap_or(i32::MAX);
    let table_layers = if document.layer_table.is_some() { document.model.layer_count() } else { 0 };
    v1::Provenance {
        source,
        tool,
        tool_version,
        measure_date: measured_at,
        device_kind,
        driver_version,
        cuda_version,
        framework,
        framework_version,
        accounting: ledger.to_wire(),
        notes,
        digest: digest.to_owned(),
        stage_count: count(document.stages.len()),
        table_layer_count: count(table_layers),
        measurement_count: count(document.measurements.len()),
    }
}
