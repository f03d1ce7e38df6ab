//! `HistoryService`.

use loadmaster_proto::error::required;
use loadmaster_proto::wire::longrunning::Operation;
use loadmaster_proto::wire::v1::history_service_server::HistoryService;
use loadmaster_proto::wire::{field, v1};
use tonic::{Request, Response, Status};

use super::changes::{ChangeStream, Changes};
use super::error::ApiError;
use super::messages::{Waiting, operation_message, request_key, time};
use super::transport::StreamTerms;
use crate::retention::{Purges, Rule};
use crate::store::records::{OperationRecord, PurgeRecord};
use crate::store::{Collection, PurgeSettings, Purged, Store};

/// Accepts purges and reports changes.
#[derive(Debug, Clone)]
pub(super) struct History {
    pub(super) store: Store,
    pub(super) purges: Purges,
    pub(super) changes: Changes,
}

impl History {
    async fn purge(&self, mut request: v1::PurgeHistoryRequest) -> Result<Operation, ApiError> {
        let id = std::mem::take(&mut request.request_id);
        let key = request_key(&id, &request)?;
        let v1::PurgeHistoryRequest { older_than, filter, collections, force, request_id: _ } = request;
        let older_than = field("older_than", required("older_than", older_than)?)?;
        let settings = PurgeSettings { older_than, filter, collections, force };
        Rule::of(&settings)?;
        let operation = self.store.create_purge(settings, key.as_ref()).await?;
        self.purges.wake();
        let record = self.store.get_operation(&operation).await?;
        Ok(operation_message(&record, Waiting::default(), None, None))
    }
}

/// The progress of a purge.
pub(super) fn metadata(record: &OperationRecord, purge: &PurgeRecord) -> v1::PurgeHistoryMetadata {
    let PurgeRecord { settings, candidate_count, purge_count, referenced_count, at } = purge;
    let PurgeSettings { older_than, filter, collections, force } = settings.clone();
    let collection = at.as_ref().map(|at| at.collection.clone()).unwrap_or_default();
    v1::PurgeHistoryMetadata {
        candidate_count: candidate_count.unwrap_or(0).cast_signed(),
        purge_count: purge_count.cast_signed(),
        referenced_count: referenced_count.cast_signed(),
        collection: if record.end_time.is_none() { collection } else { String::new() },
        request: Some(v1::PurgeHistoryRequest {
            older_than: prost_types::Duration::try_from(older_than).ok(),
            filter,
            collections,
            force,
            request_id: String::new(),
        }),
        create_time: Some(time(record.create_time)),
        end_time: record.end_time.map(time),
    }
}

/// The result of a purge that has ended.
pub(super) fn response(
    purge: &PurgeRecord,
    mut result: std::collections::BTreeMap<String, Purged>,
) -> v1::PurgeHistoryResponse {
    let collections = Collection::ALL.into_iter().filter_map(|of| {
        let Purged { purge_count, purge_sample, referenced_count, referenced_sample } =
            result.remove(of.word())?;
        let referenced_sample = referenced_sample.into_iter().map(|row| v1::ReferencedResource {
            name: row.name,
            referrers: row.referenced_by,
            reference_count: row.reference_count.cast_signed(),
        });
        Some(v1::PurgedCollection {
            collection: of.word().to_owned(),
            purge_count: purge_count.cast_signed(),
            purge_sample,
            referenced_count: referenced_count.cast_signed(),
            referenced_sample: referenced_sample.collect(),
        })
    });
    v1::PurgeHistoryResponse { collections: collections.collect(), dry_run: !purge.settings.force }
}

#[tonic::async_trait]
impl HistoryService for History {
    type WatchChangesStream = ChangeStream;

    async fn watch_changes(
        &self,
        request: Request<v1::WatchChangesRequest>,
    ) -> Result<Response<Self::WatchChangesStream>, Status> {
        let terms = request.extensions().get::<StreamTerms>();
        Ok(Response::new(self.changes.stream(&request.get_ref().collections, terms)?))
    }

    async fn purge_history(
        &self,
        request: Request<v1::PurgeHistoryRequest>,
    ) -> Result<Response<Operation>, Status> {
        Ok(Response::new(self.purge(request.into_inner()).await?))
    }
}
