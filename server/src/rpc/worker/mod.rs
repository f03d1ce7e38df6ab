//! `WorkerService` and `SessionService`, and workers as messages.

mod hello;

use loadmaster_proto::WORKER_PROTOCOL_VERSION;
use loadmaster_proto::error::Invalid;
use loadmaster_proto::name::WorkerName;
use loadmaster_proto::wire::v1::worker_service_server::WorkerService;
use loadmaster_proto::wire::worker_v1::session_service_server::SessionService;
use loadmaster_proto::wire::{ToWire, v1, worker_v1};
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Request, Response, Status, Streaming};

use super::error::ApiError;
use super::limits::{HELLO_TIMEOUT, MAX_OUTBOX};
use super::messages::{count, time};
use super::page::{Listing, View, listing};
use crate::dispatch::Dispatcher;
use crate::store::records::{NewWorker, WorkerRecord, WorkerState};
use crate::store::{Store, StoreError, fields};
use hello::Hello;

/// Connects and lists workers.
#[derive(Debug, Clone)]
pub(super) struct Workers {
    pub(super) store: Store,
    pub(super) dispatcher: Dispatcher,
}

impl Workers {
    /// Takes note of a worker, unless another process has its name: then both are told.
    async fn admit(&self, worker: &NewWorker) -> Result<WorkerRecord, ApiError> {
        let admitted = self.store.upsert_worker(worker, self.dispatcher.terms().lease).await;
        if let Err(StoreError::NameTaken { host, heartbeat_time, .. }) = &admitted {
            if let Some(left_out) = self.dispatcher.may_log(&worker.name) {
                tracing::warn!(
                    worker.name = %worker.name, host = worker.host, other.host = host,
                    other.heartbeat_time = %heartbeat_time, left_out,
                    "rejected a second process with the name of a connected worker"
                );
            }
            self.dispatcher.tell_of_namesake(&worker.name, &worker.host);
        }
        Ok(admitted?)
    }

    /// Lets a worker take runs, or no more runs.
    async fn set_state(&self, name: &str, state: WorkerState) -> Result<Response<v1::Worker>, Status> {
        let name = WorkerName::parse("name", name).map_err(ApiError::from)?;
        let record = self.store.get_worker(&name).await.map_err(ApiError::from)?;
        self.store.set_worker_state(&name, &record.session_id, state).await.map_err(ApiError::from)?;
        self.dispatcher.wake();
        let record = self.store.get_worker(&name).await.map_err(ApiError::from)?;
        Ok(Response::new(worker_message(&record)))
    }
}

#[tonic::async_trait]
impl SessionService for Workers {
    type ConnectStream = ReceiverStream<Result<worker_v1::PlannerMessage, Status>>;

    async fn connect(
        &self,
        request: Request<Streaming<worker_v1::WorkerMessage>>,
    ) -> Result<Response<Self::ConnectStream>, Status> {
        if self.dispatcher.is_stopping() {
            return Err(ApiError::Stopping.into());
        }
        let mut inbox = request.into_inner();
        let first = tokio::time::timeout(HELLO_TIMEOUT, inbox.message())
            .await
            .map_err(|_| ApiError::NoHello { waited: HELLO_TIMEOUT })??;
        let Some(worker_v1::worker_message::Message::Hello(hello)) = first.and_then(|first| first.message)
        else {
            return Err(ApiError::from(Invalid::field("hello", "not the first message of the stream")).into());
        };
        let Hello { mut introduction, worker } = hello::check(hello)?;
        introduction.state = self.admit(&worker).await?.state;

        let terms = self.dispatcher.terms();
        let (outbox, messages) = mpsc::channel(MAX_OUTBOX);
        let welcome = worker_v1::planner_message::Message::Welcome(worker_v1::Welcome {
            protocol_version: WORKER_PROTOCOL_VERSION,
            heartbeat_seconds: terms.heartbeat.as_secs_f64(),
            lease_seconds: terms.lease.as_secs_f64(),
        });
        outbox
            .try_send(Ok(worker_v1::PlannerMessage { message: Some(welcome) }))
            .map_err(|_| Status::internal("the first message of a stream cannot be sent"))?;
        self.dispatcher.connect(introduction, inbox, outbox);
        Ok(Response::new(ReceiverStream::new(messages)))
    }
}

#[tonic::async_trait]
impl WorkerService for Workers {
    async fn get_worker(
        &self,
        request: Request<v1::GetWorkerRequest>,
    ) -> Result<Response<v1::Worker>, Status> {
        let v1::GetWorkerRequest { name, view } = request.into_inner();
        let name = WorkerName::parse("name", &name).map_err(ApiError::from)?;
        let view = View::of_one(view).map_err(ApiError::from)?;
        let record = self.store.get_worker(&name).await.map_err(ApiError::from)?;
        Ok(Response::new(in_view(view, &record)))
    }

    async fn list_workers(
        &self,
        request: Request<v1::ListWorkersRequest>,
    ) -> Result<Response<v1::ListWorkersResponse>, Status> {
        let request = request.into_inner();
        let (listing, page) = listing!(request, "ListWorkers", &[], WORKERS);
        let (view, page) = View::of_list(request.view, page).map_err(ApiError::from)?;
        let page = self.store.list_workers(listing.query(), &page).await.map_err(ApiError::from)?;
        let (workers, next_page_token) = listing.answer(page, |record| in_view(view, record));
        Ok(Response::new(v1::ListWorkersResponse { workers, next_page_token }))
    }

    async fn cordon_worker(
        &self,
        request: Request<v1::CordonWorkerRequest>,
    ) -> Result<Response<v1::Worker>, Status> {
        self.set_state(&request.into_inner().name, WorkerState::Cordoned).await
    }

    async fn uncordon_worker(
        &self,
        request: Request<v1::UncordonWorkerRequest>,
    ) -> Result<Response<v1::Worker>, Status> {
        self.set_state(&request.into_inner().name, WorkerState::Alive).await
    }

    async fn delete_worker(&self, request: Request<v1::DeleteWorkerRequest>) -> Result<Response<()>, Status> {
        let name = WorkerName::parse("name", &request.into_inner().name).map_err(ApiError::from)?;
        self.store.delete_worker(&name).await.map_err(ApiError::from)?;
        Ok(Response::new(()))
    }
}

/// A worker; links are as many as pairs of devices, so that its basic view has none.
fn in_view(view: View, record: &WorkerRecord) -> v1::Worker {
    let whole = worker_message(record);
    match view {
        View::Basic => v1::Worker { gpu_links: Vec::new(), ..whole },
        View::Full => whole,
    }
}

fn worker_message(record: &WorkerRecord) -> v1::Worker {
    v1::Worker {
        name: record.name.to_string(),
        state: record.state.to_wire(),
        devices: record.devices.iter().map(Into::into).collect(),
        version: record.version.clone(),
        libtorch_version: record.libtorch_version.clone(),
        host: record.host.clone(),
        create_time: Some(time(record.create_time)),
        heartbeat_time: Some(time(record.heartbeat_time)),
        runs: record.runs.iter().map(ToString::to_string).collect(),
        custom_profilers: record.commands.iter().map(ToString::to_string).collect(),
        gpu_links: record.links.iter().map(Into::into).collect(),
        core_count: count(record.cores),
        thread_count: count(record.threads),
        host_memory_bytes: record.host_memory.to_wire(),
        copy_bandwidth: Some(record.copy_pace).filter(|pace| !pace.is_free()).map(Into::into),
        ..v1::Worker::default()
    }
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;
    use loadmaster_proto::bytes::Bytes;
    use loadmaster_proto::cluster::device::{Backend, Device};
    use loadmaster_proto::measure::offload::CopyPace;
    use prost::Message;

    use super::*;
    use crate::store::records::Page;

    /// A worker with as many and as long words as a hello may have.
    fn largest(id: usize) -> WorkerRecord {
        let long = "x".repeat(128);
        let device = Device {
            id: long.clone(),
            backend: Backend::Cuda,
            kind: long.clone(),
            capacity: Bytes(u64::MAX),
            physical: Bytes(u64::MAX),
            uuid: long.clone(),
            ordinal: u32::MAX,
            driver_version: long,
            pci_bus_id: "x".repeat(64),
        };
        WorkerRecord {
            name: WorkerName::from_id(format!("w{id}")).unwrap(),
            state: WorkerState::Alive,
            devices: vec![device; crate::dispatch::MAX_DEVICES],
            links: Vec::new(),
            version: String::new(),
            libtorch_version: String::new(),
            cuda_version: String::new(),
            threads: 1,
            cores: 1,
            host: "x".repeat(253),
            session_id: String::new(),
            commands: Vec::new(),
            host_memory: u64::MAX,
            copy_pace: CopyPace { host: Some(1e9), peer: Some(1e9) },
            create_time: Timestamp::UNIX_EPOCH,
            heartbeat_time: Timestamp::UNIX_EPOCH,
            runs: Vec::new(),
        }
    }

    #[test]
    fn a_page_of_workers_is_never_too_long_for_a_message_and_the_next_one_goes_on() {
        let listing = Listing::of("ListWorkers", &[], fields::WORKERS, ("", "")).unwrap();
        let page = Page { rows: (0..4).map(largest).collect(), keys: Vec::new(), next: None };
        let (workers, next) = listing.answer(page, |record| in_view(View::Basic, record));
        assert!((1..4).contains(&workers.len()));
        assert!(workers.iter().map(Message::encoded_len).sum::<usize>() <= 1 << 20);
        let next = listing.request(10, &next).unwrap().after.unwrap();
        assert_eq!(next.id, format!("w{}", workers.len() - 1));
        let short = Page { rows: vec![largest(0)], keys: Vec::new(), next: None };
        let (workers, next) = listing.answer(short, |record| in_view(View::Basic, record));
        assert_eq!((workers.len(), next.as_str()), (1, ""));
    }
}
