//! `ClusterService`.

mod discover;
mod links;
mod message;
mod update;

use jiff::Timestamp;
use loadmaster_proto::cluster::Cluster;
use loadmaster_proto::cluster::import::{ClusterFormat, ImportOptions, import_while};
use loadmaster_proto::error::{Invalid, required};
use loadmaster_proto::name::{ClusterName, WorkerName};
use loadmaster_proto::wire::longrunning::Operation;
use loadmaster_proto::wire::v1;
use loadmaster_proto::wire::v1::cluster_service_server::ClusterService;
use loadmaster_proto::wire::v1::create_cluster_request::Subject;
use loadmaster_search::Stop;
use tonic::{Request, Response, Status};

use super::blocking::blocking;
use super::error::ApiError;
use super::imports::Imports;
use super::limits::MAX_PAGE_LINKS;
use super::messages::request_key;
use super::page::{Listing, View, listing, read_each};
use crate::store::records::{ClusterRecord, PageRequest, RequestKey};
use crate::store::{Store, fields};
pub(super) use message::measured;

/// The parent of all link measurements (AIP-159).
const ALL_WORKERS: &str = "workers/-";

/// Stores, discovers and lists clusters, and measures links.
#[derive(Debug, Clone)]
pub(super) struct Clusters {
    pub(super) store: Store,
    pub(super) imports: Imports,
}

impl Clusters {
    async fn create(&self, mut request: v1::CreateClusterRequest) -> Result<v1::Cluster, ApiError> {
        let id = std::mem::take(&mut request.request_id);
        let key = request_key(&id, &request)?;
        if let Some(first) = self.first_answer(key.as_ref(), request.validate_only).await? {
            return Ok(first);
        }
        let v1::CreateClusterRequest { subject, cluster_id, validate_only, request_id: _ } = request;
        let subject = required("cluster", subject)?;
        let cluster = self.imports.run("a cluster cannot be read", move |stop| read(subject, stop)).await?;
        self.keep(cluster, &cluster_id, validate_only, key).await
    }

    async fn whole(&self, name: &ClusterName) -> Result<v1::Cluster, ApiError> {
        whole(self.store.get_cluster(name).await?).await
    }

    /// The cluster of an earlier call with the same request id.
    async fn first_answer(
        &self,
        key: Option<&RequestKey>,
        validate_only: bool,
    ) -> Result<Option<v1::Cluster>, ApiError> {
        if validate_only {
            return Ok(None);
        }
        match self.store.find_cluster_request(key).await? {
            Some(first) => Ok(Some(whole(self.store.get_cluster(&first).await?).await?)),
            None => Ok(None),
        }
    }

    /// Stores a cluster unless it is only to be checked.
    async fn keep(
        &self,
        cluster: Cluster,
        id: &str,
        validate_only: bool,
        key: Option<RequestKey>,
    ) -> Result<v1::Cluster, ApiError> {
        let asked = match id {
            "" => None,
            id => Some(ClusterName::from_id(id).map_err(|invalid| invalid.under("cluster_id"))?),
        };
        let record = unstored_record(asked, cluster).await?;
        if validate_only {
            return unstored(record).await;
        }
        let ClusterRecord { name, cluster, .. } = record;
        whole(self.store.put_cluster(&name, cluster, key.as_ref()).await?).await
    }
}

/// What failed where a cluster cannot be made a message, which is done beside the calls: one may have 20,000 nodes.
const SHOWING: &str = "a cluster cannot be shown";

/// The message of a cluster.
async fn whole(record: ClusterRecord) -> Result<v1::Cluster, ApiError> {
    blocking(SHOWING, move || Ok::<_, ApiError>(message::cluster(&record))).await
}

/// A cluster as it would be stored, under its digest unless it has a name.
async fn unstored_record(name: Option<ClusterName>, cluster: Cluster) -> Result<ClusterRecord, ApiError> {
    let record = blocking(SHOWING, move || {
        let digest = cluster.id();
        let name = name.map_or_else(|| ClusterName::from_id(digest.clone()), Ok)?;
        let (create_time, update_time) = (Timestamp::UNIX_EPOCH, Timestamp::UNIX_EPOCH);
        Ok::<_, Invalid>(ClusterRecord { name, cluster, digest, create_time, update_time })
    });
    record.await
}

/// The message of a cluster that was only checked: it has no times.
async fn unstored(record: ClusterRecord) -> Result<v1::Cluster, ApiError> {
    Ok(v1::Cluster { create_time: None, update_time: None, ..whole(record).await? })
}

/// The cluster that a request describes, unless no one waits for it any more.
fn read(subject: Subject, stop: &Stop) -> Result<Cluster, Invalid> {
    let wanted = || !stop.is_requested();
    match subject {
        Subject::Cluster(cluster) => {
            Cluster::from_wire_while(cluster, &wanted).map_err(|invalid| invalid.under("cluster"))
        }
        Subject::File(file) => {
            let v1::ClusterFile { document, format, options } = file;
            let format = ClusterFormat::of_document("format", format, &document);
            let options = ImportOptions::try_from(options.unwrap_or_default())
                .map_err(|invalid| invalid.under("options"));
            format
                .and_then(|format| import_while(format, &document, &options?, &wanted))
                .map_err(|invalid| invalid.under("file"))
        }
    }
}

#[tonic::async_trait]
impl ClusterService for Clusters {
    async fn create_cluster(
        &self,
        request: Request<v1::CreateClusterRequest>,
    ) -> Result<Response<v1::Cluster>, Status> {
        Ok(Response::new(self.create(request.into_inner()).await?))
    }

    async fn get_cluster(
        &self,
        request: Request<v1::GetClusterRequest>,
    ) -> Result<Response<v1::Cluster>, Status> {
        let v1::GetClusterRequest { name, view } = request.into_inner();
        let name = ClusterName::parse("name", &name).map_err(ApiError::from)?;
        let view = View::of_one(view).map_err(ApiError::from)?;
        let record = self.store.get_cluster(&name).await.map_err(ApiError::from)?;
        let cluster = whole(record).await?;
        Ok(Response::new(match view {
            View::Basic => message::basic(cluster),
            View::Full => cluster,
        }))
    }

    async fn list_clusters(
        &self,
        request: Request<v1::ListClustersRequest>,
    ) -> Result<Response<v1::ListClustersResponse>, Status> {
        let request = request.into_inner();
        let (listing, page) = listing!(request, "ListClusters", &[], CLUSTERS);
        let (view, page) = View::of_list(request.view, page).map_err(ApiError::from)?;
        let page = self.store.list_clusters(listing.query(), &page).await.map_err(ApiError::from)?;
        let (clusters, next_page_token) = match view {
            View::Basic => listing.answer(page, message::row),
            View::Full => read_each!(listing, page, |row| self.whole(&row.name).await),
        };
        Ok(Response::new(v1::ListClustersResponse { clusters, next_page_token }))
    }

    async fn update_cluster(
        &self,
        request: Request<v1::UpdateClusterRequest>,
    ) -> Result<Response<v1::Cluster>, Status> {
        Ok(Response::new(self.update(request.into_inner()).await?))
    }

    async fn delete_cluster(
        &self,
        request: Request<v1::DeleteClusterRequest>,
    ) -> Result<Response<()>, Status> {
        let v1::DeleteClusterRequest { name, etag, force } = request.into_inner();
        let name = ClusterName::parse("name", &name).map_err(ApiError::from)?;
        self.store.delete_cluster(&name, &etag, force).await.map_err(ApiError::from)?;
        Ok(Response::new(()))
    }

    async fn discover_cluster(
        &self,
        request: Request<v1::DiscoverClusterRequest>,
    ) -> Result<Response<v1::Cluster>, Status> {
        Ok(Response::new(self.discover(request.into_inner()).await?))
    }

    async fn measure_links(
        &self,
        request: Request<v1::MeasureLinksRequest>,
    ) -> Result<Response<Operation>, Status> {
        Ok(Response::new(self.measure(request.into_inner()).await?))
    }

    async fn list_link_measurements(
        &self,
        request: Request<v1::ListLinkMeasurementsRequest>,
    ) -> Result<Response<v1::ListLinkMeasurementsResponse>, Status> {
        let request = request.into_inner();
        let worker = match request.parent.as_str() {
            ALL_WORKERS => None,
            name => Some(WorkerName::parse("parent", name).map_err(ApiError::from)?),
        };
        let (listing, page) =
            listing!(request, "ListLinkMeasurements", &[&request.parent], LINK_MEASUREMENTS);
        let page = PageRequest { size: page.size.min(MAX_PAGE_LINKS), ..page };
        let page = self
            .store
            .list_link_measurements(worker.as_ref(), listing.query(), &page)
            .await
            .map_err(ApiError::from)?;
        let (link_measurements, next_page_token) = listing.answer(page, message::link_measurement);
        Ok(Response::new(v1::ListLinkMeasurementsResponse { link_measurements, next_page_token }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whoever left waits for no cluster, in whatever form it was sent.
    #[test]
    fn a_cluster_that_nobody_waits_for_is_not_read() {
        let document = "SwitchName=s Nodes=n[0-3]".to_owned();
        let file = v1::ClusterFile { document, ..v1::ClusterFile::default() };
        for subject in [Subject::File(file), Subject::Cluster(v1::Cluster::default())] {
            let stop = Stop::default();
            stop.request();
            let refused = read(subject, &stop).unwrap_err();
            assert!(refused.to_string().contains("was cancelled"), "{refused}");
        }
    }
}
