//! Models.

use jiff::Timestamp;
use loadmaster_filter::Query;
use loadmaster_proto::model::Model;
use loadmaster_proto::model::import::ModelSource;
use loadmaster_proto::name::ModelName;
use loadmaster_proto::profile::document::Subject;
use sqlx::{FromRow, Postgres, QueryBuilder};

use super::Store;
use super::columns::{Time, beside, document, name as stored_name, read};
use super::error::{Result, StoreError};
use super::find::ListSql;
use super::records::{Cursor, ModelRecord, Page, PageRequest, Positioned};

const LIST: ListSql = ListSql {
    select: "SELECT id, model::text AS model, listed_source::text AS source, create_time",
    from: "FROM models",
    id: "id",
    around: "",
};

/// As it is stored.
#[derive(FromRow)]
struct ModelRow {
    id: String,
    model: String,
    source: String,
    create_time: Time,
}

impl Positioned for ModelRow {
    fn cursor(&self) -> Cursor {
        Cursor { keys: Vec::new(), time: self.create_time.0, id: self.id.clone() }
    }
}

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
            return Err(StoreError::corrupt(format!("{name} is already the name of another model")));
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

    /// Models, without the texts that they were imported from: those that are asked for, of
    /// [`fields::MODELS`](super::fields::MODELS).
    ///
    /// # Errors
    /// When the database fails.
    pub async fn list_models(&self, query: &Query, request: &PageRequest) -> Result<Page<ModelRecord>> {
        let is_trainable = |sql: &mut QueryBuilder<Postgres>| {
            sql.push(" AND NOT opaque");
        };
        let page: Page<ModelRow> = LIST.page(self, query, request, is_trainable).await?;
        // A model may have 10,000 layers.
        let Page { rows, keys, next } = page;
        let records = beside(move || {
            let records = rows.into_iter().map(|row| {
                let ModelRow { id, model, source, create_time } = row;
                record(stored_name(ModelName::from_id(id))?, &model, &source, create_time.0)
            });
            records.collect()
        });
        Ok(Page { rows: records.await?, keys, next })
    }
}

fn record(name: ModelName, model: &str, source: &str, create_time: Timestamp) -> Result<ModelRecord> {
    Ok(ModelRecord { model: read(&name, model)?, source: read(&name, source)?, name, create_time })
}
