//! Imported profiles: the documents that they came in, and the chains that those are about.

use loadmaster_proto::document::{OpaqueModel, ProfileDocument, Subject};
use loadmaster_proto::import::{LayerList, ModelSource};
use loadmaster_proto::model::Model;
use loadmaster_proto::name::{ModelName, ProfileName};
use serde_json::{Value, json};
use sqlx::types::Json;
use uuid::Uuid;

use super::Store;
use super::error::{Result, StoreError};
use super::json::document;
use super::records::{MeasurementRecord, ProfileSettings};

/// Model, profile, a finished operation and the document in one statement: all, or nothing where the
/// profile's name is taken.
const IMPORT: &str = "
WITH chain AS (
    INSERT INTO models (id, model, source, opaque) VALUES ($1, $2, $3, $4) ON CONFLICT (id) DO NOTHING
), profile AS (
    INSERT INTO profiles (id, model_id, settings, state, end_time) VALUES ($5, $1, $6, 'complete', now())
    ON CONFLICT (id) DO NOTHING RETURNING id
), operation AS (
    INSERT INTO operations (id, profile_id, state, end_time) SELECT $7, id, 'succeeded', now() FROM profile
)
INSERT INTO documents (profile_id, digest, document) SELECT id, $8, $9 FROM profile";

impl Store {
    /// Stores a document as the profile of these settings. The same document under the same name is
    /// stored once.
    ///
    /// # Errors
    /// [`StoreError::AlreadyExists`] when the name is that of another profile, [`StoreError::Corrupt`] when
    /// the model's name is that of another model.
    pub async fn import_profile(
        &self,
        settings: &ProfileSettings,
        imported: &ProfileDocument,
        digest: &str,
    ) -> Result<()> {
        let (chain, source, opaque) = chain(&imported.model)?;
        sqlx::query(IMPORT)
            .bind(settings.model.id())
            .bind(&chain)
            .bind(source)
            .bind(opaque)
            .bind(settings.name.id())
            .bind(document(settings)?)
            .bind(Uuid::now_v7().to_string())
            .bind(digest)
            .bind(document(imported)?)
            .execute(&self.pool)
            .await?;
        let stored: Option<String> = sqlx::query_scalar("SELECT digest FROM documents WHERE profile_id = $1")
            .bind(settings.name.id())
            .fetch_optional(&self.pool)
            .await?;
        if stored.as_deref() != Some(digest) {
            return Err(StoreError::AlreadyExists { what: settings.name.to_string() });
        }
        let same: bool = sqlx::query_scalar("SELECT model = $2 AND opaque = $3 FROM models WHERE id = $1")
            .bind(settings.model.id())
            .bind(&chain)
            .bind(opaque)
            .fetch_one(&self.pool)
            .await?;
        if same {
            Ok(())
        } else {
            Err(StoreError::corrupt(format!("{} is the name of another model already", settings.model)))
        }
    }

    /// The document that a profile came in; none for a profile that was measured here.
    ///
    /// # Errors
    /// When the database fails.
    pub async fn find_document(&self, profile: &ProfileName) -> Result<Option<ProfileDocument>> {
        let found: Option<Json<ProfileDocument>> =
            sqlx::query_scalar("SELECT document FROM documents WHERE profile_id = $1")
                .bind(profile.id())
                .fetch_optional(&self.pool)
                .await?;
        Ok(found.map(|found| found.0))
    }

    /// The chain of layers of a model's name, be it one that ranks can train or not.
    ///
    /// # Errors
    /// [`StoreError::NotFound`].
    pub async fn get_subject(&self, name: &ModelName) -> Result<Subject> {
        let found: Option<(Json<Value>, bool)> =
            sqlx::query_as("SELECT model, opaque FROM models WHERE id = $1")
                .bind(name.id())
                .fetch_optional(&self.pool)
                .await?;
        let (Json(content), opaque) = found.ok_or_else(|| StoreError::not_found(name))?;
        let damaged =
            |error: serde_json::Error| StoreError::corrupt(format!("{name} cannot be read: {error}"));
        if opaque {
            serde_json::from_value::<OpaqueModel>(content).map(Subject::Opaque).map_err(damaged)
        } else {
            serde_json::from_value::<Model>(content).map(Subject::Known).map_err(damaged)
        }
    }

    /// The measurements of Loadmaster's own runs in an imported profile, in the order of the document; none
    /// for a profile that was measured here.
    ///
    /// # Errors
    /// When the database fails.
    pub(super) async fn imported_measurements(
        &self,
        profile: &ProfileName,
    ) -> Result<Option<Vec<MeasurementRecord>>> {
        let Some(found) = self.find_document(profile).await? else { return Ok(None) };
        let time = self.get_profile(profile).await?.create_time;
        let record = |of: loadmaster_proto::document::RunMeasurement| MeasurementRecord {
            run: of.run,
            profile: Some(profile.clone()),
            held_out: of.held_out,
            measurement: of.measurement,
            time,
        };
        Ok(Some(found.measurements.into_iter().map(record).collect()))
    }
}

/// The row of a chain: content, what it was built from, and whether it is opaque.
fn chain(subject: &Subject) -> Result<(Value, Value, bool)> {
    match subject {
        Subject::Known(model) => {
            let content = document(model)?;
            let source = ModelSource::LayerList(LayerList { document: content.to_string() });
            Ok((content, document(&source)?, false))
        }
        Subject::Opaque(opaque) => Ok((document(opaque)?, json!({}), true)),
    }
}
