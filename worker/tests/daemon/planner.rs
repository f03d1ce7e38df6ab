//! A planner that says what the test tells it to.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use loadmaster_proto::WORKER_PROTOCOL_VERSION;
use loadmaster_proto::wire::{v1, worker_v1};
pub(crate) use loadmaster_samples::run as spec;
use tokio::net::TcpListener;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio::time::timeout;
use tokio_stream::wrappers::{ReceiverStream, TcpListenerStream};
use tonic::{Request, Response, Status, Streaming};
use worker_v1::planner_message::Message as FromPlanner;
use worker_v1::session_service_server::{SessionService, SessionServiceServer};
use worker_v1::worker_message::Message as ToPlanner;

/// Longer than anything takes on a busy machine. Only failing tests wait this long.
pub(crate) const PATIENCE: Duration = Duration::from_secs(40);

type Outgoing = mpsc::Sender<Result<worker_v1::PlannerMessage, Status>>;

pub(crate) struct Planner {
    pub(crate) address: SocketAddr,
    refusal: Arc<Mutex<Option<Status>>>,
    connections: mpsc::Receiver<(Streaming<worker_v1::WorkerMessage>, Outgoing)>,
    server: JoinHandle<()>,
}

impl Drop for Planner {
    fn drop(&mut self) {
        self.server.abort();
    }
}

struct Service {
    refusal: Arc<Mutex<Option<Status>>>,
    connections: mpsc::Sender<(Streaming<worker_v1::WorkerMessage>, Outgoing)>,
}

#[tonic::async_trait]
impl SessionService for Service {
    type ConnectStream = ReceiverStream<Result<worker_v1::PlannerMessage, Status>>;

    async fn connect(
        &self,
        request: Request<Streaming<worker_v1::WorkerMessage>>,
    ) -> Result<Response<Self::ConnectStream>, Status> {
        if let Some(status) = self.refusal.lock().unwrap().clone() {
            return Err(status);
        }
        let (outgoing, stream) = mpsc::channel(16);
        self.connections
            .send((request.into_inner(), outgoing))
            .await
            .map_err(|_| Status::cancelled("over"))?;
        Ok(Response::new(ReceiverStream::new(stream)))
    }
}

impl Planner {
    pub(crate) async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let refusal = Arc::new(Mutex::new(None));
        let (accepted, connections) = mpsc::channel(16);
        let service = Service { refusal: Arc::clone(&refusal), connections: accepted };
        let server = tokio::spawn(async move {
            tonic::transport::Server::builder()
                .add_service(SessionServiceServer::new(service))
                .serve_with_incoming(TcpListenerStream::new(listener))
                .await
                .unwrap();
        });
        Self { address, refusal, connections, server }
    }

    /// Answers every hello with this status from now on; `None` lets workers in again.
    pub(crate) fn refuse(&self, status: impl Into<Option<Status>>) {
        *self.refusal.lock().unwrap() = status.into();
    }

    /// The next connection, welcomed, with leases that outlast the test.
    pub(crate) async fn welcome(&mut self) -> Connection {
        self.welcome_for(PATIENCE.as_secs_f64() * 10.0).await
    }

    /// The next connection, welcomed.
    pub(crate) async fn welcome_for(&mut self, lease_seconds: f64) -> Connection {
        let (incoming, outgoing) =
            timeout(PATIENCE, self.connections.recv()).await.expect("no worker connects").unwrap();
        let mut connection = Connection { hello: worker_v1::Hello::default(), incoming, outgoing };
        match connection.next().await {
            Some(ToPlanner::Hello(hello)) => connection.hello = hello,
            other => panic!("the first message is {other:?}"),
        }
        let welcome = worker_v1::Welcome {
            protocol_version: WORKER_PROTOCOL_VERSION,
            heartbeat_seconds: 0.1,
            lease_seconds,
        };
        connection.say(FromPlanner::Welcome(welcome)).await;
        connection
    }
}

/// One stream of a worker. Dropping it ends the stream.
pub(crate) struct Connection {
    pub(crate) hello: worker_v1::Hello,
    incoming: Streaming<worker_v1::WorkerMessage>,
    outgoing: Outgoing,
}

impl Connection {
    pub(crate) async fn say(&self, message: FromPlanner) {
        self.outgoing.send(Ok(worker_v1::PlannerMessage { message: Some(message) })).await.unwrap();
    }

    /// The worker's next message; `None` when it has hung up.
    pub(crate) async fn next(&mut self) -> Option<ToPlanner> {
        let message = timeout(PATIENCE, self.incoming.message()).await.expect("the worker says nothing");
        message.ok()??.message
    }

    /// The next message that is no heartbeat.
    pub(crate) async fn next_report(&mut self) -> ToPlanner {
        loop {
            match self.next().await {
                Some(ToPlanner::Heartbeat(_)) => {}
                Some(other) => return other,
                None => panic!("the worker hung up"),
            }
        }
    }

    pub(crate) async fn next_result(&mut self) -> worker_v1::RunResult {
        match self.next_report().await {
            ToPlanner::Result(result) => result,
            other => panic!("not a result: {other:?}"),
        }
    }

    pub(crate) async fn next_failure(&mut self) -> v1::RunFailure {
        match self.next_report().await {
            ToPlanner::Failed(failed) => failed.failure.unwrap(),
            other => panic!("not a failure: {other:?}"),
        }
    }

    /// Reads heartbeats until one fits. Anything else is an error.
    pub(crate) async fn heartbeat_where(
        &mut self,
        fits: impl Fn(&worker_v1::Heartbeat) -> bool,
    ) -> worker_v1::Heartbeat {
        let search = async {
            loop {
                match self.next().await {
                    Some(ToPlanner::Heartbeat(heartbeat)) if fits(&heartbeat) => return heartbeat,
                    Some(ToPlanner::Heartbeat(_)) => {}
                    other => panic!("not a heartbeat: {other:?}"),
                }
            }
        };
        timeout(PATIENCE, search).await.expect("no such heartbeat")
    }

    /// Leases a pipeline of one stage per device, or a stage alone on a single one.
    pub(crate) async fn lease(&self, run: &str, token: i64, devices: &[&str]) {
        self.lease_until(run, token, devices, 600.0).await;
    }

    pub(crate) async fn lease_until(&self, run: &str, token: i64, devices: &[&str], deadline_seconds: f64) {
        self.lease_run(run, token, devices, &spec(devices.len()), deadline_seconds).await;
    }

    pub(crate) async fn lease_run(
        &self,
        run: &str,
        token: i64,
        devices: &[&str],
        spec: impl Into<v1::RunSpec>,
        deadline_seconds: f64,
    ) {
        self.say(FromPlanner::Lease(worker_v1::Lease {
            run: format!("runs/{run}"),
            lease_token: token,
            device_ids: devices.iter().map(|&id| id.to_owned()).collect(),
            spec: Some(spec.into()),
            deadline_seconds,
        }))
        .await;
    }

    pub(crate) async fn kill(&self, run: &str, token: i64) {
        let kill =
            worker_v1::Kill { run: format!("runs/{run}"), lease_token: token, reason: "cancelled".into() };
        self.say(FromPlanner::Kill(kill)).await;
    }

    pub(crate) async fn acknowledge(&self, run: &str, token: i64) {
        let run = format!("runs/{run}");
        self.say(FromPlanner::Acknowledged(worker_v1::Acknowledged {
            run,
            lease_token: token,
            applied: true,
        }))
        .await;
    }

    /// Reads until the worker has hung up.
    pub(crate) async fn hung_up(&mut self) {
        while self.next().await.is_some() {}
    }
}
