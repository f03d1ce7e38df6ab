//! Models.

use jiff::Timestamp;
use loadmaster_proto::model::Model;
use loadmaster_proto::model::import::ModelSource;
use loadmaster_proto::name::ModelName;
use loadmaster_proto::profile::document::Subject;

use super::Store;
use super::columns::name as stored_name;
use super::error::{Result, StoreError};
use super::json::{beside, document, read};
use super::records::{ModelRecord, Page, PageRequest};
use super::time::Time;

impl Store {
    /// Stores a model, or finds it: the name is derived from the content.
    ///
    /// # Errors
    /// [`StoreError::Corrupt`] when another model has the same short name.
    pub async fn put_model(&self, model: &Model, source: &ModelSource) -> Result<ModelRecord> {
        let (model, source) = (model.clone(), source.clone());
        let written = beside(move || {
            let name = stored_name(ModelName::from_id(model.id()))?;
            Ok((name, document(&model)?.to_string(), document(&source)?.to_string()))
        });
        let (name, content, source) = written.await?;
        sqlx::query(
            "INSERT INTO models (id, model, source) VALUES ($1, $2::text::jsonb, $3::text::jsonb)
             ON CONFLICT (id) DO NOTHING",
        )
        .bind(name.id())
        .bind(&content)
        .bind(source)
        .execute(&self.pool)
        .await?;
        let same: bool = sqlx::query_scalar("SELECT model = $2::text::jsonb FROM models WHERE id = $1")
            .bind(name.id())
            .bind(&content)
            .fetch_one(&self.pool)
            .await?;
        if !same {
            return Err(StoreError::corrupt(format!("{name} is the name of another model already")));
        }
        self.get_model(&name).await
    }

    /// One model.
    ///
    /// # Errors
    /// [`StoreError::NotFound`], [`StoreError::Opaque`] where the chain has no layers that could be trained.
    pub async fn get_model(&self, name: &ModelName) -> Result<ModelRecord> {
        let row: Option<(String, String, Time)> = sqlx::query_as(
            "SELECT model::text, source::text, create_time FROM models WHERE id = $1 AND NOT opaque",
        )
        .bind(name.id())
        .fetch_optional(&self.pool)
        .await?;
        // The commonest call needs one query; the other one says why there is no model.
        let Some((model, source, Time(create_time))) = row else {
            return match self.get_subject(name).await? {
                Subject::Opaque(_) => Err(StoreError::Opaque { what: name.to_string() }),
                Subject::Known(_) => Err(StoreError::Conflict),
            };
        };
        let name = name.clone();
        beside(move || record(name, &model, &source, create_time)).await
    }

    /// Models, newest first, without the texts that they were imported from.
    ///
    /// # Errors
    /// When the database fails.
    pub async fn list_models(&self, request: &PageRequest) -> Result<Page<ModelRecord>> {
        const SQL: &str = "SELECT id, model::text, listed_source::text, create_time
             FROM models
             WHERE (create_time, id) < ($1, $2) AND NOT opaque
             ORDER BY create_time DESC, id DESC LIMIT $3";
        let rows: Vec<(String, String, String, Time)> = sqlx::query_as(SQL)
            .bind(request.before_time())
            .bind(request.before_id())
            .bind(request.limit())
            .fetch_all(&self.pool)
            .await?;
        // A model may have 10,000 layers.
        let records = beside(move || {
            let records = rows.into_iter().map(|(id, model, source, Time(create_time))| {
                record(stored_name(ModelName::from_id(id))?, &model, &source, create_time)
            });
            records.collect()
        });
        Ok(request.page(records.await?))
    }
}

fn record(name: ModelName, model: &str, source: &str, create_time: Timestamp) -> Result<ModelRecord> {
    Ok(ModelRecord { model: read(&name, model)?, source: read(&name, source)?, name, create_time })
}
