//! One connected worker: claims runs for its free devices, and stores what it reports and which leases it holds.

mod reports;

use std::collections::BTreeSet;
use std::ops::ControlFlow;

use loadmaster_proto::cluster::device::Device;
use loadmaster_proto::error::Invalid;
use loadmaster_proto::measure::failure::{FailureKind, RunFailure};
use loadmaster_proto::name::{RunName, WorkerName};
use loadmaster_proto::wire::worker_v1;
use loadmaster_proto::wire::worker_v1::planner_message::Message as ToWorker;
use loadmaster_proto::wire::worker_v1::worker_message::Message as FromWorker;
use tokio::sync::mpsc;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tonic::{Status, Streaming};

use super::Dispatcher;
use super::ledger::{DeviceLedger, LeaseKey};
use crate::store::StoreError;
use crate::store::records::{Claim, HeldLease, Renewal, WorkerState};

/// Messages from a worker.
pub type Inbox = Streaming<worker_v1::WorkerMessage>;
/// Messages to a worker.
pub type Outbox = mpsc::Sender<Result<worker_v1::PlannerMessage, Status>>;

/// What a worker said of itself.
#[derive(Debug, Clone)]
pub struct Introduction {
    /// Its name.
    pub worker: WorkerName,
    /// Random per process start.
    pub session_id: String,
    /// Random per stream.
    pub connection: String,
    /// What it offers.
    pub devices: Vec<Device>,
    /// CPU slots that can work at once, each with its own cores; none where it did not say.
    pub slots_at_once: Option<u32>,
    /// Leases that it still holds, with their devices.
    pub held: Vec<(HeldLease, Vec<String>)>,
    /// How the store knows it.
    pub state: WorkerState,
}

/// Serves the worker until its stream ends, it falls silent, a newer session replaces it, or the
/// planner stops. Its leases outlive the session: they end by themselves unless the worker returns.
pub(super) async fn run(
    dispatcher: &Dispatcher,
    introduction: Introduction,
    mut inbox: Inbox,
    outbox: Outbox,
    replaced: CancellationToken,
) {
    let mut queue = dispatcher.queue_version.subscribe();
    let mut board = dispatcher.board.subscribe();
    let mut session = Session::new(dispatcher, introduction, outbox);
    tracing::info!(worker.name = %session.worker, "worker connected");

    // The hello counts as a heartbeat: a worker that is back just in time keeps what it holds.
    let mut step = session.begin().await;
    let reason = loop {
        if let ControlFlow::Break(reason) = step {
            break reason;
        }
        let deaf_after = session.heard + dispatcher.terms.lease;
        step = tokio::select! {
            () = dispatcher.stopping.cancelled() => ControlFlow::Break("the planner stops"),
            () = replaced.cancelled() => ControlFlow::Break("a new connection replaced this one, or the worker was deleted"),
            () = tokio::time::sleep_until(deaf_after) => {
                ControlFlow::Break("the worker sent no message for the duration of a lease")
            }
            message = inbox.message() => match message {
                Ok(Some(message)) => session.receive(message).await,
                Ok(None) => ControlFlow::Break("the worker closed the stream"),
                Err(status) => {
                    tracing::debug!(worker.name = %session.worker, %status, "stream broke");
                    // A peer that is still there ends with the error; nothing else reads it.
                    let _ = session.outbox.try_send(Err(status));
                    ControlFlow::Break("the stream broke")
                }
            },
            changed = queue.changed() => match changed {
                Ok(()) => session.queue_changed().await,
                Err(_) => ControlFlow::Break("the planner stops"),
            },
            changed = board.changed() => match changed {
                Ok(()) => session.looked().await,
                Err(_) => ControlFlow::Break("the planner stops"),
            },
        };
    };
    tracing::info!(worker.name = %session.worker, reason, "worker disconnected");
}

struct Session<'a> {
    dispatcher: &'a Dispatcher,
    worker: WorkerName,
    session_id: String,
    connection: String,
    /// When it began.
    since: Instant,
    kinds: BTreeSet<String>,
    ledger: DeviceLedger,
    /// As last reported, for renewing between heartbeats.
    held: Vec<HeldLease>,
    /// It takes no more runs because an operator cordoned it.
    cordoned: bool,
    /// It takes no more runs and leaves.
    leaving: bool,
    /// Cancelled runs that the worker was told to stop and still named in its last heartbeat.
    stopping: Vec<LeaseKey>,
    /// When the worker last said something.
    heard: Instant,
    outbox: Outbox,
}

type Step = ControlFlow<&'static str>;

impl<'a> Session<'a> {
    fn new(dispatcher: &'a Dispatcher, introduction: Introduction, outbox: Outbox) -> Self {
        let patience = dispatcher.terms.heartbeat * 2;
        let kinds = introduction.devices.iter().map(|device| device.kind.clone()).collect();
        let mut ledger = DeviceLedger::new(introduction.devices, introduction.slots_at_once, patience);
        let mut held = Vec::new();
        for (lease, devices) in introduction.held {
            ledger.adopt((lease.run.clone(), lease.lease_token), devices, Instant::now());
            held.push(lease);
        }
        Self {
            dispatcher,
            worker: introduction.worker,
            session_id: introduction.session_id,
            connection: introduction.connection,
            since: Instant::now(),
            kinds,
            ledger,
            held,
            cordoned: introduction.state == WorkerState::Cordoned,
            leaving: introduction.state == WorkerState::Gone,
            stopping: Vec::new(),
            heard: Instant::now(),
            outbox,
        }
    }

    async fn begin(&mut self) -> Step {
        self.renew_held().await?;
        if !self.dispatcher.board.borrow().knows(&self.kinds) {
            // No one offered such devices before: runs may wait for them.
            self.dispatcher.wanted.notify_one();
        }
        self.claim().await
    }

    async fn receive(&mut self, message: worker_v1::WorkerMessage) -> Step {
        self.heard = Instant::now();
        match message.message {
            Some(FromWorker::Heartbeat(heartbeat)) => self.heartbeat(heartbeat).await,
            Some(FromWorker::Result(result)) => self.result(result).await,
            Some(FromWorker::Failed(failed)) => self.failed(failed).await,
            Some(FromWorker::Goodbye(worker_v1::Goodbye {})) => self.goodbye().await,
            Some(FromWorker::Hello(_)) => self.refuse("hello", "was sent twice").await,
            None => {
                let why = "has no content, or belongs to a newer protocol. Install the same Loadmaster on worker and \
                           planner.";
                self.refuse("message", why).await
            }
        }
    }

    async fn heartbeat(&mut self, heartbeat: worker_v1::Heartbeat) -> Step {
        let held = match held_leases("held_runs", heartbeat.held_runs) {
            Ok(held) => held,
            Err(invalid) => return self.refuse("heartbeat", &invalid.to_string()).await,
        };
        self.dispatcher.beats.note(&self.worker, &self.connection);
        let (held, devices): (Vec<HeldLease>, Vec<Vec<String>>) = held.into_iter().unzip();
        let alive = held.iter().zip(devices).map(|(of, devices)| ((of.run.clone(), of.lease_token), devices));
        self.ledger.heartbeat(alive.collect(), Instant::now());
        self.held = held;
        self.note_stopped().await?;
        self.renew_held().await?;
        self.follow_cordon().await?;
        self.claim().await
    }

    /// Renews what the worker holds and stops what is not its own any more.
    async fn renew(&mut self) -> Step {
        let terms = self.dispatcher.terms;
        let renewals = match self.dispatcher.store.renew_leases(&self.worker, &self.held, terms.lease).await {
            Ok(renewals) => renewals,
            Err(error) => return self.store_trouble("renew leases", &error),
        };
        let cancelled =
            self.held.iter().zip(&renewals).filter(|(_, (_, renewal))| *renewal == Renewal::Cancelled);
        self.stopping = cancelled.map(|(lease, _)| (lease.run.clone(), lease.lease_token)).collect();
        for (lease, reason) in to_stop(&self.held, &renewals) {
            if let Some(left_out) = self.dispatcher.may_log(&self.worker) {
                tracing::info!(
                    run.id = lease.run.id(),
                    lease.token = lease.lease_token,
                    worker.name = %self.worker,
                    reason,
                    left_out,
                    "run is stopped"
                );
            }
            let (run, lease_token) = (lease.run.to_string(), lease.lease_token);
            self.send(ToWorker::Kill(worker_v1::Kill { run, lease_token, reason: reason.to_owned() }))
                .await?;
        }
        ControlFlow::Continue(())
    }

    /// A cancelled run that heartbeats name no more has stopped: its operation need not wait for the
    /// lease to expire. The devices are the ledger's business.
    async fn note_stopped(&mut self) -> Step {
        for (run, lease_token) in std::mem::take(&mut self.stopping) {
            if self.held.iter().any(|lease| lease.run == run && lease.lease_token == lease_token) {
                continue; // Renewing it says again that it is to stop.
            }
            self.give_back(&run, lease_token, "stopped, because its operation was cancelled").await?;
        }
        ControlFlow::Continue(())
    }

    async fn renew_held(&mut self) -> Step {
        if self.held.is_empty() { ControlFlow::Continue(()) } else { self.renew().await }
    }

    /// Whether heartbeats fail to come: the worker may be frozen, or gone behind a half-open connection.
    /// What it has ends with its lease, and more is not given to it before it is heard of again.
    fn is_silent(&self) -> bool {
        self.heard.elapsed() > self.dispatcher.terms.heartbeat * 2
    }

    /// Sends a change of the cordon to the worker. Another planner may have made it, so it is read from the board.
    async fn follow_cordon(&mut self) -> Step {
        let wanted = self.dispatcher.board.borrow().is_cordoned(&self.worker, self.since);
        match wanted {
            Some(cordoned) if cordoned != self.cordoned => {
                self.cordoned = cordoned;
                tracing::info!(worker.name = %self.worker, cordoned, "a worker was cordoned or uncordoned");
                self.send(if cordoned {
                    ToWorker::Cordon(worker_v1::Cordon {})
                } else {
                    ToWorker::Uncordon(worker_v1::Uncordon {})
                })
                .await
            }
            Some(_) | None => ControlFlow::Continue(()),
        }
    }

    async fn queue_changed(&mut self) -> Step {
        if self.is_silent() {
            return ControlFlow::Continue(());
        }
        // A change may be a cancellation of what this worker holds.
        self.renew_held().await?;
        self.looked().await
    }

    /// After a look at the queue for all sessions.
    async fn looked(&mut self) -> Step {
        if self.is_silent() {
            return ControlFlow::Continue(());
        }
        self.follow_cordon().await?;
        self.claim().await
    }

    /// Whether it is worth asking for a run.
    fn may_claim(&self) -> bool {
        let takes_runs = !self.cordoned && !self.leaving && !self.is_silent();
        takes_runs && self.dispatcher.board.borrow().waits_for(&self.kinds)
    }

    /// Claims runs while devices are free and one fits.
    async fn claim(&mut self) -> Step {
        while self.may_claim() {
            let free = self.ledger.free();
            if free.is_empty() {
                break;
            }
            let lease = self.dispatcher.terms.lease;
            let all = self.ledger.all();
            match self.dispatcher.store.claim_run(&self.worker, &free, &all, lease).await {
                Ok(Some(claim)) => self.hand_out(claim).await?,
                Ok(None) => break,
                Err(error) => return self.store_trouble("claim a run", &error),
            }
        }
        ControlFlow::Continue(())
    }

    async fn hand_out(&mut self, claim: Claim) -> Step {
        let key = (claim.run.clone(), claim.lease_token);
        let Claim { device_kind, min_capacity, device_count, .. } = &claim;
        let taken = self.ledger.take(key, device_kind, *min_capacity, *device_count, Instant::now());
        let Some(device_ids) = taken else {
            // The claim and the ledger use the same rule, so this is a defect; the run must not wait
            // for its lease to expire.
            tracing::error!(run.id = claim.run.id(), "a claimed run does not fit the worker's free devices");
            let why = "the planner found no free devices for the run";
            self.give_back(&claim.run, claim.lease_token, why).await?;
            return ControlFlow::Break("the planner's list of free devices differs from the database");
        };
        tracing::info!(run.id = claim.run.id(), lease.token = claim.lease_token,
            worker.name = %self.worker, devices = device_ids.join(","), "run leased");
        self.held.push(HeldLease {
            run: claim.run.clone(),
            lease_token: claim.lease_token,
            progress: 0.0,
            phase: "starting".to_owned(),
        });
        let lease = worker_v1::Lease {
            run: claim.run.to_string(),
            lease_token: claim.lease_token,
            device_ids,
            spec: Some((&claim.task).into()),
            deadline_seconds: f64::from(claim.deadline_seconds),
        };
        let sent = self.send(ToWorker::Lease(lease)).await;
        if sent.is_break() {
            // It never left, so no one works on it: no reason to wait, and no attempt.
            let why = "the worker disconnected before it received the run";
            self.give_back(&claim.run, claim.lease_token, why).await?;
        }
        sent
    }

    /// Hands a run back in the worker's name: at no attempt's cost, and for good if it was cancelled.
    async fn give_back(&self, run: &RunName, lease_token: i64, why: &str) -> Step {
        let failure =
            RunFailure { kind: FailureKind::HandedBack, message: why.to_owned(), stage_index: None };
        let store = &self.dispatcher.store;
        match store.fail_run(&self.worker, run, lease_token, &failure, 0.0).await {
            Ok(_) => ControlFlow::Continue(()),
            Err(error) => self.store_trouble("return a run to the queue", &error),
        }
    }

    async fn goodbye(&mut self) -> Step {
        self.leaving = true;
        let store = &self.dispatcher.store;
        match store.set_worker_state(&self.worker, &self.session_id, WorkerState::Gone).await {
            Ok(()) => ControlFlow::Continue(()),
            Err(error) => self.store_trouble("store that the worker left", &error),
        }
    }

    /// Without the store the session cannot keep its promises; the worker reconnects with back-off
    /// and meanwhile keeps its runs and unacknowledged reports.
    fn store_trouble(&self, what: &str, error: &StoreError) -> Step {
        tracing::error!(worker.name = %self.worker, %error, "failed to {what}");
        ControlFlow::Break("the database is not available")
    }

    async fn refuse(&mut self, field: &str, why: &str) -> Step {
        let status = Status::invalid_argument(format!("{field} {why}"));
        // The stream ends either way.
        let _ = self.outbox.send_timeout(Err(status), self.dispatcher.terms.lease).await;
        ControlFlow::Break("the worker sent a message that is not valid")
    }

    /// Sends, but never waits longer than a lease for a worker that does not read.
    async fn send(&self, message: ToWorker) -> Step {
        let message = Ok(worker_v1::PlannerMessage { message: Some(message) });
        match self.outbox.send_timeout(message, self.dispatcher.terms.lease).await {
            Ok(()) => ControlFlow::Continue(()),
            Err(_) => ControlFlow::Break("the worker does not read its stream"),
        }
    }
}

/// What to stop, and why: `renewals` answer for `held` in order. A worker may hold a run under several
/// fences: an old attempt that is being stopped, or whose report is on its way, and a new one.
fn to_stop<'a>(held: &'a [HeldLease], renewals: &[(RunName, Renewal)]) -> Vec<(&'a HeldLease, &'static str)> {
    let pairs = held.iter().zip(renewals);
    pairs
        .filter_map(|(lease, (_, renewal))| match renewal {
            Renewal::Renewed => None,
            Renewal::Cancelled => Some((lease, "its operation was cancelled")),
            Renewal::Lost => Some((lease, "its lease or its deadline has passed")),
        })
        .collect()
}

/// Most devices of a worker, and most devices of a run.
pub const MAX_DEVICES: usize = 1_024;
/// Most runs that a worker names at once: one per device, and as many whose report is on its way.
const MAX_HELD: usize = 2 * MAX_DEVICES;
/// Most bytes of a device's id.
const MAX_ID: usize = 128;
/// Most characters of a phase that are kept.
const MAX_PHASE: usize = 200;

/// The leases that a worker names in a hello or heartbeat, each with the ids of its devices.
///
/// # Errors
/// Names the field, below `field`, that is too long or no name.
pub fn held_leases(
    field: &str,
    runs: Vec<worker_v1::HeldRun>,
) -> Result<Vec<(HeldLease, Vec<String>)>, Invalid> {
    if runs.len() > MAX_HELD {
        return Err(Invalid::field(field, format!("{} entries are more than {MAX_HELD}", runs.len())));
    }
    let runs = runs.into_iter().enumerate();
    runs.map(|(index, run)| held_lease(run).map_err(|invalid| invalid.under(&format!("{field}[{index}]"))))
        .collect()
}

fn held_lease(run: worker_v1::HeldRun) -> Result<(HeldLease, Vec<String>), Invalid> {
    let worker_v1::HeldRun { run, lease_token, device_ids, progress, phase } = run;
    if device_ids.len() > MAX_DEVICES {
        let why = format!("{} entries are more than {MAX_DEVICES}", device_ids.len());
        return Err(Invalid::field("device_ids", why));
    }
    if let Some((index, id)) = device_ids.iter().enumerate().find(|(_, id)| id.len() > MAX_ID) {
        let why = format!("{} bytes are more than {MAX_ID}", id.len());
        return Err(Invalid::field(format!("device_ids[{index}]"), why));
    }
    let lease = HeldLease {
        run: RunName::parse("run", &run)?,
        lease_token,
        progress: if progress.is_finite() { progress.clamp(0.0, 1.0) } else { 0.0 },
        phase: phase.chars().take(MAX_PHASE).collect(),
    };
    Ok((lease, device_ids))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_attempt_that_lost_its_lease_is_stopped_and_not_its_successor() {
        let run = RunName::from_id("r").unwrap();
        let held = [2, 1].map(|lease_token| HeldLease {
            run: run.clone(),
            lease_token,
            progress: 0.0,
            phase: String::new(),
        });
        let tokens = |first, second| {
            let renewals = [(run.clone(), first), (run.clone(), second)];
            to_stop(&held, &renewals).iter().map(|(lease, _)| lease.lease_token).collect::<Vec<_>>()
        };
        assert_eq!(tokens(Renewal::Renewed, Renewal::Lost), [1]);
        assert_eq!(tokens(Renewal::Cancelled, Renewal::Lost), [2, 1]);
    }

    fn run(device_ids: Vec<String>) -> worker_v1::HeldRun {
        worker_v1::HeldRun { run: "runs/r".to_owned(), device_ids, ..worker_v1::HeldRun::default() }
    }

    #[test]
    fn what_a_worker_holds_is_bounded_by_name() {
        let field = |runs| held_leases("held_runs", runs).unwrap_err().violations()[0].field.clone();
        assert_eq!(held_leases("held_runs", vec![run(vec!["cpu0".to_owned()]); 2_048]).unwrap().len(), 2_048);
        assert_eq!(field(vec![run(Vec::new()); 2_049]), "held_runs");
        assert_eq!(field(vec![run(Vec::new()), run(vec![String::new(); 1_025])]), "held_runs[1].device_ids");
        assert_eq!(field(vec![run(vec!["x".repeat(129)])]), "held_runs[0].device_ids[0]");
        let nameless = worker_v1::HeldRun { run: "x".repeat(1_000), ..run(Vec::new()) };
        assert_eq!(field(vec![nameless]), "held_runs[0].run");
    }

    #[test]
    fn phases_and_progress_are_cut_to_what_they_can_be() {
        let odd = worker_v1::HeldRun { progress: f64::NAN, phase: "ä".repeat(1_000), ..run(Vec::new()) };
        let held = held_leases("held_runs", vec![odd]).unwrap();
        assert_eq!((held[0].0.progress, held[0].0.phase.chars().count()), (0.0, 200));
    }
}
