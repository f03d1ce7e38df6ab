//! Imported profiles: the documents that they came in, the chains that those are about, and which version of a profile is stored.

use std::collections::HashMap;

use loadmaster_proto::error::Invalid;
use loadmaster_proto::model::Model;
use loadmaster_proto::model::import::{LayerList, ModelSource};
use loadmaster_proto::name::{ModelName, ProfileName};
use loadmaster_proto::profile::document::{OpaqueModel, ProfileDocument, Subject};
use uuid::Uuid;

use super::Store;
use super::columns::{beside, document, read};
use super::error::{Result, StoreError};
use super::records::{MeasurementRecord, ProfileSettings};

/// Model, profile, a finished operation and the document in one statement: all, or nothing where the
/// profile's name is taken.
const IMPORT: &str = "
WITH chain AS (
    INSERT INTO models (id, model, source, opaque) VALUES ($1, $2::text::jsonb, $3::text::jsonb, $4) ON CONFLICT (id) DO NOTHING
), profile AS (
    INSERT INTO profiles (id, model_id, settings, state, end_time) VALUES ($5, $1, $6, 'complete', now())
    ON CONFLICT (id) DO NOTHING RETURNING id
), operation AS (
    INSERT INTO operations (id, profile_id, state, end_time) SELECT $7, id, 'succeeded', now() FROM profile
)
INSERT INTO documents (profile_id, digest, document) SELECT id, $8, $9::text::jsonb FROM profile";

/// A document and its chain of layers as they are stored. Writing a large one takes a while, so it is done where it
/// was read, and not where calls are answered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DocumentRow {
    /// 16 hexadecimal digits that follow from the content.
    pub digest: String,
    text: String,
    chain: String,
    source: String,
    is_opaque: bool,
}

impl DocumentRow {
    /// The row of a checked document.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn of(imported: &ProfileDocument) -> std::result::Result<Self, Invalid> {
        let unwritable = |error: serde_json::Error| Invalid::field("", error.to_string());
        let (text, digest) = imported.canonical().map_err(Invalid::from)?;
        let (chain, source, is_opaque) = match &imported.model {
            Subject::Known(model) => {
                let chain = serde_json::to_string(model).map_err(unwritable)?;
                let source = ModelSource::LayerList(LayerList { document: chain.clone() });
                (chain, serde_json::to_string(&source).map_err(unwritable)?, false)
            }
            Subject::Opaque(opaque) => {
                (serde_json::to_string(opaque).map_err(unwritable)?, "{}".to_owned(), true)
            }
        };
        Ok(Self { digest, text, chain, source, is_opaque })
    }
}

impl Store {
    /// Stores a document as the profile of these settings. The same document under the same name is
    /// stored once.
    ///
    /// # Errors
    /// [`StoreError::AlreadyExists`] when the name is that of another profile, [`StoreError::Corrupt`] when
    /// the model's name is that of another model.
    pub async fn import_profile(&self, settings: &ProfileSettings, row: &DocumentRow) -> Result<()> {
        let DocumentRow { digest, text, chain, source, is_opaque } = row;
        sqlx::query(IMPORT)
            .bind(settings.model.id())
            .bind(chain)
            .bind(source)
            .bind(is_opaque)
            .bind(settings.name.id())
            .bind(document(settings)?)
            .bind(Uuid::now_v7().to_string())
            .bind(digest)
            .bind(text)
            .execute(&self.pool)
            .await?;
        let stored: Option<String> = sqlx::query_scalar("SELECT digest FROM documents WHERE profile_id = $1")
            .bind(settings.name.id())
            .fetch_optional(&self.pool)
            .await?;
        if stored.as_ref() != Some(digest) {
            return Err(StoreError::AlreadyExists { what: settings.name.to_string() });
        }
        let same: bool =
            sqlx::query_scalar("SELECT model = $2::text::jsonb AND opaque = $3 FROM models WHERE id = $1")
                .bind(settings.model.id())
                .bind(chain)
                .bind(is_opaque)
                .fetch_one(&self.pool)
                .await?;
        if same {
            Ok(())
        } else {
            Err(StoreError::corrupt(format!("{} is already the name of another model", settings.model)))
        }
    }

    /// The document that a profile came in; none for a profile that was measured here.
    ///
    /// # Errors
    /// When the database fails.
    pub async fn find_document(&self, profile: &ProfileName) -> Result<Option<ProfileDocument>> {
        let found: Option<String> =
            sqlx::query_scalar("SELECT document::text FROM documents WHERE profile_id = $1")
                .bind(profile.id())
                .fetch_optional(&self.pool)
                .await?;
        let Some(text) = found else { return Ok(None) };
        let name = profile.clone();
        beside(move || read(&name, &text)).await.map(Some)
    }

    /// The chain of layers of a model's name, be it one that ranks can train or not.
    ///
    /// # Errors
    /// [`StoreError::NotFound`].
    pub async fn get_subject(&self, name: &ModelName) -> Result<Subject> {
        let found: Option<(String, bool)> =
            sqlx::query_as("SELECT model::text, opaque FROM models WHERE id = $1")
                .bind(name.id())
                .fetch_optional(&self.pool)
                .await?;
        let (content, opaque) = found.ok_or_else(|| StoreError::not_found(name))?;
        let name = name.clone();
        beside(move || {
            if opaque {
                read::<OpaqueModel>(&name, &content).map(Subject::Opaque)
            } else {
                read::<Model>(&name, &content).map(Subject::Known)
            }
        })
        .await
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
        let record = |of: loadmaster_proto::profile::document::RunMeasurement| MeasurementRecord {
            run: of.run,
            profile: Some(profile.clone()),
            held_out: of.held_out,
            measurement: of.measurement,
            time,
        };
        Ok(Some(found.measurements.into_iter().map(record).collect()))
    }
}

/// A row that was written anew, or deleted and stored again, has another `xmin`. A profile that is complete has all its
/// runs behind it: what it is made of changes with its row, or never.
const REVISIONS: &str = "
SELECT 'profiles/' || id, xmin::text || '@' || extract(epoch FROM create_time)::text
FROM profiles WHERE id = ANY($1) AND state = 'complete'
UNION ALL
SELECT 'clusters/' || id, xmin::text || '@' || extract(epoch FROM create_time)::text
FROM clusters WHERE id = $2";

impl Store {
    /// By name, the revisions of those of these profiles that are complete, and of the cluster if it is stored: equal
    /// revisions are equal content. Takes the ids.
    ///
    /// # Errors
    /// When the database fails.
    pub async fn revisions(
        &self,
        profiles: &[&str],
        cluster: Option<&str>,
    ) -> Result<HashMap<String, String>> {
        let rows: Vec<(String, String)> =
            sqlx::query_as(REVISIONS).bind(profiles).bind(cluster).fetch_all(&self.pool).await?;
        Ok(rows.into_iter().collect())
    }
}
