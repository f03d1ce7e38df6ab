//! Clusters.

use loadmaster_filter::Query;
use loadmaster_proto::cluster::Cluster;
use loadmaster_proto::name::ClusterName;

use super::Store;
use super::columns::{Time, beside, document, name as stored_name, read};
use super::error::{Result, StoreError, check_etag, retry};
use super::find::ListSql;
use super::idempotency::{once, refused};
use super::records::{ClusterRecord, ClusterRow, Page, PageRequest, RequestKey};

const INSERT: &str = "
INSERT INTO clusters (id, digest, cluster, node_count, device_count, request_id, request_fingerprint)
VALUES ($1, $2, $3::text::jsonb, $4, $5, $6, $7) ON CONFLICT (id) DO NOTHING";

/// `$6` is the digest of the content that is replaced, or NULL for any content. An equal content changes nothing.
const UPDATE: &str = "
UPDATE clusters
SET digest = $2, cluster = $3::text::jsonb, node_count = $4, device_count = $5,
    update_time = CASE digest WHEN $2 THEN update_time ELSE now() END
WHERE id = $1 AND ($6::text IS NULL OR digest = $6)";

const LIST: ListSql = ListSql {
    select: "SELECT id, digest, cluster - 'nodes' - 'domains' AS summary, node_count, device_count, create_time, update_time",
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
        let found: Option<(String, String, Time, Time)> = sqlx::query_as(
            "SELECT cluster::text, digest, create_time, update_time FROM clusters WHERE id = $1",
        )
        .bind(name.id())
        .fetch_optional(&self.pool)
        .await?;
        let (cluster, digest, Time(create_time), Time(update_time)) =
            found.ok_or_else(|| StoreError::not_found(name))?;
        let name = name.clone();
        let record = move || {
            let cluster = read(&name, &cluster)?;
            Ok(ClusterRecord { name, cluster, digest, create_time, update_time })
        };
        beside(record).await
    }

    /// Replaces the content of a cluster that has the digest `expected`, or any digest.
    ///
    /// # Errors
    /// [`StoreError::NotFound`], [`StoreError::EtagMismatch`].
    pub async fn update_cluster(
        &self,
        name: &ClusterName,
        cluster: Cluster,
        expected: Option<&str>,
    ) -> Result<ClusterRecord> {
        let (nodes, devices) = (cluster.nodes().len(), cluster.device_count());
        let (written, digest) = beside(move || Ok((document(&cluster)?.to_string(), cluster.id()))).await?;
        let updated = retry(|| async {
            let updated = sqlx::query(UPDATE)
                .bind(name.id())
                .bind(&digest)
                .bind(&written)
                .bind(i32::try_from(nodes).unwrap_or(i32::MAX))
                .bind(i32::try_from(devices).unwrap_or(i32::MAX))
                .bind(expected)
                .execute(&self.pool)
                .await?;
            Ok(updated.rows_affected())
        });
        if updated.await? == 0 {
            self.check_cluster_etag(name, expected.unwrap_or_default()).await?;
            return Err(StoreError::Conflict);
        }
        self.get_cluster(name).await
    }

    /// Whether a cluster has this etag, with or without its quotes; an empty one is any.
    ///
    /// # Errors
    /// [`StoreError::NotFound`], [`StoreError::EtagMismatch`].
    pub(super) async fn check_cluster_etag(&self, name: &ClusterName, etag: &str) -> Result<()> {
        let digest: Option<String> = sqlx::query_scalar("SELECT digest FROM clusters WHERE id = $1")
            .bind(name.id())
            .fetch_optional(&self.pool)
            .await?;
        check_etag(name, &digest.ok_or_else(|| StoreError::not_found(name))?, etag)
    }

    /// Clusters, without nodes and domains: those that are asked for, of [`fields::CLUSTERS`](super::fields::CLUSTERS).
    ///
    /// # Errors
    /// When the database fails.
    pub async fn list_clusters(&self, query: &Query, request: &PageRequest) -> Result<Page<ClusterRow>> {
        LIST.page(self, query, request, |_| {}).await
    }
}
