//! Clusters.

use loadmaster_filter::Query;
use loadmaster_proto::cluster::Cluster;
use loadmaster_proto::name::ClusterName;

use super::Store;
use super::columns::{Time, beside, document, name as stored_name, read};
use super::error::{Result, StoreError};
use super::find::ListSql;
use super::idempotency::{once, refused};
use super::records::{ClusterRecord, ClusterRow, Page, PageRequest, RequestKey};

const INSERT: &str = "
INSERT INTO clusters (id, digest, cluster, node_count, device_count, request_id, request_fingerprint)
VALUES ($1, $2, $3::text::jsonb, $4, $5, $6, $7) ON CONFLICT (id) DO NOTHING";

const LIST: ListSql = ListSql {
    select: "SELECT id, digest, cluster - 'nodes' - 'domains' AS summary, node_count, device_count, create_time",
    from: "FROM clusters",
    id: "id",
    around: "",
};

impl Store {
    /// Stores a cluster, or finds it. The same cluster under the same name is stored once; the same request
    /// key returns the first call's cluster.
    ///
    /// # Errors
    /// [`StoreError::AlreadyExists`] when the name is that of another cluster, [`StoreError::RequestIdReused`].
    pub async fn put_cluster(
        &self,
        name: &ClusterName,
        cluster: Cluster,
        request: Option<&RequestKey>,
    ) -> Result<ClusterRecord> {
        let create = async {
            let (nodes, devices) = (cluster.nodes().len(), cluster.device_count());
            // A large cluster takes a while to write.
            let (written, digest) =
                beside(move || Ok((document(&cluster)?.to_string(), cluster.id()))).await?;
            let inserted = sqlx::query(INSERT)
                .bind(name.id())
                .bind(&digest)
                .bind(written)
                .bind(i32::try_from(nodes).unwrap_or(i32::MAX))
                .bind(i32::try_from(devices).unwrap_or(i32::MAX))
                .bind(request.map(|request| request.id))
                .bind(request.map(|request| &request.fingerprint))
                .execute(&self.pool)
                .await;
            inserted.map_err(|error| refused(error, "clusters_request_id_key"))?;
            let stored: String = sqlx::query_scalar("SELECT digest FROM clusters WHERE id = $1")
                .bind(name.id())
                .fetch_one(&self.pool)
                .await?;
            if stored != digest {
                return Err(StoreError::AlreadyExists { what: name.to_string() });
            }
            Ok(name.clone())
        };
        let name = once(|| self.find_cluster_request(request), create).await?;
        self.get_cluster(&name).await
    }

    /// The cluster of an earlier call with the same key.
    ///
    /// # Errors
    /// [`StoreError::RequestIdReused`] when that call asked for something else.
    pub async fn find_cluster_request(&self, request: Option<&RequestKey>) -> Result<Option<ClusterName>> {
        const SQL: &str = "SELECT id, request_fingerprint FROM clusters WHERE request_id = $1";
        self.find_first(SQL, request).await?.map(|id| stored_name(ClusterName::from_id(id))).transpose()
    }

    /// One cluster.
    ///
    /// # Errors
    /// [`StoreError::NotFound`].
    pub async fn get_cluster(&self, name: &ClusterName) -> Result<ClusterRecord> {
        let found: Option<(String, String, Time)> =
            sqlx::query_as("SELECT cluster::text, digest, create_time FROM clusters WHERE id = $1")
                .bind(name.id())
                .fetch_optional(&self.pool)
                .await?;
        let (cluster, digest, Time(create_time)) = found.ok_or_else(|| StoreError::not_found(name))?;
        let name = name.clone();
        beside(move || Ok(ClusterRecord { cluster: read(&name, &cluster)?, name, digest, create_time })).await
    }

    /// Clusters, without nodes and domains: those that are asked for, of [`fields::CLUSTERS`](super::fields::CLUSTERS).
    ///
    /// # Errors
    /// When the database fails.
    pub async fn list_clusters(&self, query: &Query, request: &PageRequest) -> Result<Page<ClusterRow>> {
        LIST.page(self, query, request, |_| {}).await
    }
}
