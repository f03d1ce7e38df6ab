//! `WorkerService`.

use std::time::Duration;

use loadmaster_proto::WORKER_PROTOCOL_VERSION;
use loadmaster_proto::convert::unsigned;
use loadmaster_proto::device::{Device, GpuLink};
use loadmaster_proto::environment::ranks_at_once;
use loadmaster_proto::error::Invalid;
use loadmaster_proto::name::{CommandName, WorkerName};
use loadmaster_proto::wire::v1;
use loadmaster_proto::wire::v1::worker_service_server::WorkerService;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Request, Response, Status, Streaming};

use super::error::ApiError;
use super::messages;
use super::page::Listing;
use crate::dispatch::{Dispatcher, Introduction, held_lease};
use crate::store::Store;
use crate::store::records::{NewWorker, WorkerState};

/// How long a new stream may take to introduce itself.
const HELLO_TIMEOUT: Duration = Duration::from_secs(10);
/// Messages that wait for a worker to read them.
const OUTBOX: usize = 64;
/// Most devices of a worker, and most runs that it may hold.
const MAX_DEVICES: usize = 1_024;
/// Most training commands that a worker may offer.
const MAX_COMMANDS: usize = 64;

/// Connects and lists workers.
#[derive(Debug, Clone)]
pub(super) struct Workers {
    pub(super) store: Store,
    pub(super) dispatcher: Dispatcher,
}

/// A checked `hello`.
struct Hello {
    introduction: Introduction,
    worker: NewWorker,
}

fn check(hello: v1::Hello) -> Result<Hello, ApiError> {
    // First of all: fields of another version may mean something else.
    if hello.protocol_version != WORKER_PROTOCOL_VERSION {
        return Err(ApiError::ProtocolVersion {
            theirs: hello.protocol_version,
            ours: WORKER_PROTOCOL_VERSION,
        });
    }
    let name = WorkerName::parse("hello.worker", &hello.worker)?;
    for (field, count, most) in [
        ("hello.devices", hello.devices.len(), MAX_DEVICES),
        ("hello.held_runs", hello.held_runs.len(), MAX_DEVICES),
        ("hello.links", hello.links.len(), GpuLink::MOST),
    ] {
        if count > most {
            return Err(Invalid::field(field, format!("has {count} entries, at most {most}")).into());
        }
    }
    for (field, text) in [
        ("hello.host", &hello.host),
        ("hello.version", &hello.version),
        ("hello.libtorch_version", &hello.libtorch_version),
        ("hello.cuda_version", &hello.cuda_version),
        ("hello.session_id", &hello.session_id),
    ] {
        if text.len() > 256 {
            return Err(Invalid::field(field, "is longer than 256 bytes").into());
        }
    }
    let devices = hello
        .devices
        .into_iter()
        .enumerate()
        .map(|(index, device)| {
            device.try_into().map_err(|e: Invalid| e.under(&format!("hello.devices[{index}]")))
        })
        .collect::<Result<Vec<Device>, Invalid>>()?;
    for (index, device) in devices.iter().enumerate() {
        if devices.iter().take(index).any(|other| other.id == device.id) {
            let field = format!("hello.devices[{index}].id");
            return Err(Invalid::field(field, format!("{:?} is there twice", device.id)).into());
        }
    }
    let links = hello
        .links
        .into_iter()
        .enumerate()
        .map(|(index, link)| link.try_into().map_err(|e: Invalid| e.under(&format!("hello.links[{index}]"))))
        .collect::<Result<Vec<GpuLink>, Invalid>>()?;
    let commands = commands(&hello.commands)?;
    let held = hello
        .held_runs
        .iter()
        .map(|run| Ok((held_lease(run)?, run.device_ids.clone())))
        .collect::<Result<Vec<_>, Invalid>>()
        .map_err(|invalid| invalid.under("hello.held_runs"))?;
    let threads = unsigned("hello.threads", hello.threads)?;
    let cores = unsigned("hello.cores", hello.cores)?;
    Ok(Hello {
        worker: NewWorker {
            name: name.clone(),
            devices: devices.clone(),
            links,
            version: hello.version,
            libtorch_version: hello.libtorch_version,
            cuda_version: hello.cuda_version,
            threads,
            cores,
            host: hello.host,
            session_id: hello.session_id.clone(),
            commands,
        },
        introduction: Introduction {
            worker: name,
            session_id: hello.session_id,
            devices,
            slots_at_once: ranks_at_once(cores, threads),
            held,
            accepts_runs: true,
        },
    })
}

/// The training commands that a worker offers, each once.
fn commands(names: &[String]) -> Result<Vec<CommandName>, Invalid> {
    if names.len() > MAX_COMMANDS {
        let why = format!("has {} entries, at most {MAX_COMMANDS}", names.len());
        return Err(Invalid::field("hello.commands", why));
    }
    let mut commands = names
        .iter()
        .enumerate()
        .map(|(index, name)| CommandName::parse(&format!("hello.commands[{index}]"), name))
        .collect::<Result<Vec<_>, _>>()?;
    commands.sort();
    commands.dedup();
    Ok(commands)
}

#[tonic::async_trait]
impl WorkerService for Workers {
    type ConnectStream = ReceiverStream<Result<v1::PlannerMessage, Status>>;

    async fn connect(
        &self,
        request: Request<Streaming<v1::WorkerMessage>>,
    ) -> Result<Response<Self::ConnectStream>, Status> {
        if self.dispatcher.is_stopping() {
            return Err(ApiError::Stopping.into());
        }
        let mut inbox = request.into_inner();
        let first = tokio::time::timeout(HELLO_TIMEOUT, inbox.message())
            .await
            .map_err(|_| ApiError::NoHello { waited: HELLO_TIMEOUT })??;
        let Some(v1::worker_message::Message::Hello(hello)) = first.and_then(|first| first.message) else {
            return Err(ApiError::from(Invalid::field("hello", "must be the first message")).into());
        };
        let Hello { mut introduction, worker } = check(hello)?;
        let record = self.store.upsert_worker(&worker).await.map_err(ApiError::from)?;
        introduction.accepts_runs = record.state == WorkerState::Alive;

        let terms = self.dispatcher.terms();
        let (outbox, messages) = mpsc::channel(OUTBOX);
        let welcome = v1::planner_message::Message::Welcome(v1::Welcome {
            protocol_version: WORKER_PROTOCOL_VERSION,
            heartbeat_seconds: terms.heartbeat.as_secs_f64(),
            lease_seconds: terms.lease.as_secs_f64(),
        });
        outbox
            .try_send(Ok(v1::PlannerMessage { message: Some(welcome) }))
            .map_err(|_| Status::internal("a new stream has no room"))?;
        self.dispatcher.connect(introduction, inbox, outbox);
        Ok(Response::new(ReceiverStream::new(messages)))
    }

    async fn get_worker(
        &self,
        request: Request<v1::GetWorkerRequest>,
    ) -> Result<Response<v1::Worker>, Status> {
        let name = WorkerName::parse("name", &request.into_inner().name).map_err(ApiError::from)?;
        let record = self.store.get_worker(&name).await.map_err(ApiError::from)?;
        Ok(Response::new(messages::worker(&record)))
    }

    async fn list_workers(
        &self,
        request: Request<v1::ListWorkersRequest>,
    ) -> Result<Response<v1::ListWorkersResponse>, Status> {
        let request = request.into_inner();
        let listing = Listing::new("ListWorkers", &[]);
        let page = listing.request(request.page_size, &request.page_token).map_err(ApiError::from)?;
        let page = self.store.list_workers(&page).await.map_err(ApiError::from)?;
        Ok(Response::new(v1::ListWorkersResponse {
            next_page_token: listing.next_token(&page),
            workers: page.rows.iter().map(messages::worker).collect(),
        }))
    }

    async fn drain_worker(
        &self,
        request: Request<v1::DrainWorkerRequest>,
    ) -> Result<Response<v1::Worker>, Status> {
        let name = WorkerName::parse("name", &request.into_inner().name).map_err(ApiError::from)?;
        let record = self.store.get_worker(&name).await.map_err(ApiError::from)?;
        self.store
            .set_worker_state(&name, &record.session_id, WorkerState::Draining)
            .await
            .map_err(ApiError::from)?;
        self.dispatcher.wake();
        let record = self.store.get_worker(&name).await.map_err(ApiError::from)?;
        Ok(Response::new(messages::worker(&record)))
    }
}
