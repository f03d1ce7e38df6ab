//! The stream to the planner: one connection at a time, reopened whenever it ends.
//!
//! [`Link::next`] yields what happens on it; the daemon answers [`LinkEvent::Due`] with a fresh hello,
//! because only the daemon knows what it holds at that moment.

mod backoff;
mod refusal;
mod stream;

use std::time::Duration;

use loadmaster_proto::wire::worker_v1;
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep_until, timeout};
use tokio_util::task::AbortOnDropHandle;
use tonic::transport::{Endpoint, Uri};
use tracing::{info, warn};
use worker_v1::planner_message::Message as FromPlanner;
use worker_v1::worker_message::Message as ToPlanner;

use crate::state::Terms;
use backoff::Backoff;
use refusal::Ending;

/// Messages that wait to be sent. A planner that lets this many pile up is as good as gone.
const OUTGOING: usize = 512;
/// Messages of the planner that wait to be looked at; more wait in the network.
const INCOMING: usize = 64;
/// A connection that lasted this long was a good one.
const STABLE: Duration = Duration::from_secs(10);
/// How long a last message may take to leave.
const CLOSE: Duration = Duration::from_secs(2);

/// What happens on the link.
#[derive(Debug)]
pub(crate) enum LinkEvent {
    /// Time to dial: call [`Link::open`].
    Due,
    /// The planner took the hello.
    Welcomed(Terms),
    /// The planner said something.
    Message(Box<FromPlanner>),
    /// The connection, or the attempt at one, ended. It will be dialled again.
    Lost,
    /// The planner wants nothing to do with this worker.
    Refused(String),
}

/// The link to the planner.
pub(crate) struct Link {
    endpoint: Endpoint,
    backoff: Backoff,
    /// Where the worker must be back soon.
    longest_wait: Option<Duration>,
    phase: Phase,
}

enum Phase {
    Waiting(Instant),
    Open(Connection),
}

struct Connection {
    events: mpsc::Receiver<StreamEvent>,
    outgoing: mpsc::Sender<worker_v1::WorkerMessage>,
    welcomed: Option<Instant>,
    _task: AbortOnDropHandle<()>,
}

/// What the task of a connection tells.
#[derive(Debug)]
enum StreamEvent {
    Welcomed(Terms),
    Message(Box<FromPlanner>),
    Ended(Ending),
}

impl Link {
    /// A link that dials at once.
    pub(crate) fn new(server: Uri) -> Self {
        let endpoint = Endpoint::from(server)
            .connect_timeout(Duration::from_secs(5))
            .tcp_nodelay(true)
            .tcp_keepalive(Some(Duration::from_secs(15)))
            // A silent planner is found out within ten seconds, also while nothing is being sent:
            // without `while_idle` the client never asks.
            .http2_keep_alive_interval(Duration::from_secs(5))
            .keep_alive_timeout(Duration::from_secs(5))
            .keep_alive_while_idle(true);
        let phase = Phase::Waiting(Instant::now());
        Self { endpoint, backoff: Backoff::new(), longest_wait: None, phase }
    }

    /// From now on no wait is longer than this, whatever the planner asks for; none: as long as it takes.
    pub(crate) fn limit_wait(&mut self, longest: Option<Duration>) {
        self.longest_wait = longest;
    }

    /// Dials, and introduces the worker with `hello`.
    pub(crate) fn open(&mut self, hello: worker_v1::Hello) {
        let (outgoing, to_send) = mpsc::channel(OUTGOING);
        let (heard, events) = mpsc::channel(INCOMING);
        let endpoint = self.endpoint.clone();
        let task = tokio::spawn(async move {
            let ending = stream::hold(&endpoint, hello, to_send, &heard).await;
            // The daemon may have dropped the connection already.
            let _ = heard.send(StreamEvent::Ended(ending)).await;
        });
        let _task = AbortOnDropHandle::new(task);
        self.phase = Phase::Open(Connection { events, outgoing, welcomed: None, _task });
    }

    /// The next event. May be dropped and called again without losing one.
    pub(crate) async fn next(&mut self) -> LinkEvent {
        match &mut self.phase {
            Phase::Waiting(until) => {
                sleep_until(*until).await;
                // Not a second time, should the daemon not call `open`.
                *until = Instant::now() + Backoff::MAX;
                LinkEvent::Due
            }
            Phase::Open(connection) => match connection.events.recv().await {
                Some(StreamEvent::Welcomed(terms)) => {
                    connection.welcomed = Some(Instant::now());
                    info!(
                        server.address = %self.endpoint.uri(),
                        heartbeat_seconds = terms.heartbeat.as_secs_f64(),
                        lease_seconds = terms.lease.as_secs_f64(),
                        "connected to the planner"
                    );
                    LinkEvent::Welcomed(terms)
                }
                Some(StreamEvent::Message(message)) => LinkEvent::Message(message),
                Some(StreamEvent::Ended(ending)) => self.ended(ending),
                None => self.ended(Ending::lost("the planner does not read the worker's messages")),
            },
        }
    }

    fn ended(&mut self, ending: Ending) -> LinkEvent {
        let welcomed = match &self.phase {
            Phase::Open(connection) => connection.welcomed,
            Phase::Waiting(_) => None,
        };
        if welcomed.is_some_and(|since| since.elapsed() >= STABLE) {
            self.backoff.reset();
        }
        let longest = self.longest_wait.unwrap_or(Backoff::MAX);
        let delay = self.backoff.next(rand::random::<f64>(), longest);
        let (event, delay) = match ending {
            Ending::Refused { why } => (LinkEvent::Refused(why), Backoff::MAX),
            Ending::Lost { why, wait } => {
                let asked = wait.unwrap_or_default();
                let delay = self.longest_wait.map_or(asked, |longest| asked.min(longest)).max(delay);
                warn!(
                    server.address = %self.endpoint.uri(),
                    retry_seconds = delay.as_secs_f64(),
                    "not connected to the planner: {why}"
                );
                (LinkEvent::Lost, delay)
            }
        };
        self.phase = Phase::Waiting(Instant::now() + delay);
        event
    }

    /// Queues a message. Where that fails, the connection is given up, and [`Link::next`] says so;
    /// whatever matters is resent on the next one.
    pub(crate) fn send(&mut self, message: ToPlanner) {
        if let Phase::Open(connection) = &mut self.phase
            && connection.outgoing.try_send(worker_v1::WorkerMessage { message: Some(message) }).is_err()
        {
            connection.events.close();
        }
    }

    /// Lets what is queued leave, then hangs up.
    pub(crate) async fn close(self) {
        let Phase::Open(connection) = self.phase else { return };
        let Connection { mut events, outgoing, _task, .. } = connection;
        // Ends the worker's half of the stream; the planner answers by ending its own.
        drop(outgoing);
        let drained = async {
            while let Some(event) = events.recv().await {
                if matches!(event, StreamEvent::Ended(_)) {
                    break;
                }
            }
        };
        if timeout(CLOSE, drained).await.is_err() {
            warn!("the planner did not close the stream in time");
        }
    }
}
