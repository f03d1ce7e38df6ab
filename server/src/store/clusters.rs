//! Clusters.

use loadmaster_proto::cluster::Cluster;
use loadmaster_proto::name::ClusterName;
use sqlx::FromRow;
use sqlx::types::Json;

use super::Store;
use super::error::{Result, StoreError, broken_constraint};
use super::json::document;
use super::records::{ClusterRecord, ClusterRow, ClusterSummary, Page, PageRequest, RequestKey};
use super::runs::{name, unsigned};
use super::time::Time;

#[derive(FromRow)]
struct WholeRow {
    id: String,
    cluster: Json<Cluster>,
    create_time: Time,
}

impl TryFrom<WholeRow> for ClusterRecord {
    type Error = StoreError;

    fn try_from(row: WholeRow) -> Result<Self> {
        let WholeRow { id, cluster, create_time } = row;
        Ok(Self { name: name(ClusterName::from_id(id))?, cluster: cluster.0, create_time: create_time.0 })
    }
}

#[derive(FromRow)]
struct SummaryRow {
    id: String,
    digest: String,
    summary: Json<ClusterSummary>,
    node_count: i32,
    device_count: i32,
    create_time: Time,
}

impl TryFrom<SummaryRow> for ClusterRow {
    type Error = StoreError;

    fn try_from(row: SummaryRow) -> Result<Self> {
        let SummaryRow { id, digest, summary, node_count, device_count, create_time } = row;
        Ok(Self {
            name: name(ClusterName::from_id(id))?,
            summary: summary.0,
            node_count: unsigned(node_count)?,
            device_count: unsigned(device_count)?,
            digest,
            create_time: create_time.0,
        })
    }
}

impl Store {
    /// Stores a cluster, or finds it. The same cluster under the same name is stored once; the same request
    /// key returns the first call's cluster.
    ///
    /// # Errors
    /// [`StoreError::AlreadyExists`] when the name is that of another cluster, [`StoreError::RequestIdReused`].
    pub async fn put_cluster(
        &self,
        name: &ClusterName,
        cluster: &Cluster,
        request: Option<&RequestKey>,
    ) -> Result<ClusterRecord> {
        if let Some(first) = self.find_cluster_request(request).await? {
            return self.get_cluster(&first).await;
        }
        let inserted = sqlx::query(
            "INSERT INTO clusters (id, digest, cluster, node_count, device_count, request_id, request_fingerprint)
             VALUES ($1, $2, $3, $4, $5, $6, $7) ON CONFLICT (id) DO NOTHING",
        )
        .bind(name.id())
        .bind(cluster.id())
        .bind(document(cluster)?)
        .bind(i32::try_from(cluster.nodes().len()).unwrap_or(i32::MAX))
        .bind(i32::try_from(cluster.device_count()).unwrap_or(i32::MAX))
        .bind(request.map(|request| request.id))
        .bind(request.map(|request| &request.fingerprint))
        .execute(&self.pool)
        .await;
        match inserted {
            Ok(_) => {}
            // A twin of this call came at the same moment.
            Err(error) if broken_constraint(&error) == Some("clusters_request_id_key") => {
                return match self.find_cluster_request(request).await? {
                    Some(first) => self.get_cluster(&first).await,
                    None => Err(StoreError::Conflict),
                };
            }
            Err(error) => return Err(error.into()),
        }
        let digest: String = sqlx::query_scalar("SELECT digest FROM clusters WHERE id = $1")
            .bind(name.id())
            .fetch_one(&self.pool)
            .await?;
        if digest != cluster.id() {
            return Err(StoreError::AlreadyExists { what: name.to_string() });
        }
        self.get_cluster(name).await
    }

    /// The cluster of an earlier call with the same key.
    ///
    /// # Errors
    /// [`StoreError::RequestIdReused`] when that call asked for something else.
    pub async fn find_cluster_request(&self, request: Option<&RequestKey>) -> Result<Option<ClusterName>> {
        let Some(request) = request else { return Ok(None) };
        let first: Option<(String, String)> =
            sqlx::query_as("SELECT id, request_fingerprint FROM clusters WHERE request_id = $1")
                .bind(request.id)
                .fetch_optional(&self.pool)
                .await?;
        match first {
            None => Ok(None),
            Some((id, fingerprint)) if fingerprint == request.fingerprint => {
                name(ClusterName::from_id(id)).map(Some)
            }
            Some(_) => Err(StoreError::RequestIdReused),
        }
    }

    /// One cluster.
    ///
    /// # Errors
    /// [`StoreError::NotFound`].
    pub async fn get_cluster(&self, name: &ClusterName) -> Result<ClusterRecord> {
        let row: Option<WholeRow> =
            sqlx::query_as("SELECT id, cluster, create_time FROM clusters WHERE id = $1")
                .bind(name.id())
                .fetch_optional(&self.pool)
                .await?;
        row.ok_or_else(|| StoreError::not_found(name))?.try_into()
    }

    /// Clusters, newest first, without nodes and domains.
    ///
    /// # Errors
    /// When the database fails.
    pub async fn list_clusters(&self, request: &PageRequest) -> Result<Page<ClusterRow>> {
        const SQL: &str =
            "SELECT id, digest, cluster - 'nodes' - 'domains' AS summary, node_count, device_count,
                    create_time
             FROM clusters
             WHERE (create_time, id) < ($1, $2)
             ORDER BY create_time DESC, id DESC LIMIT $3";
        request.fetch::<SummaryRow, _>(&self.pool, SQL).await
    }
}
