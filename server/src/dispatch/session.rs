//! One connected worker: claims runs for its free devices and stores what it reports.

use std::ops::ControlFlow;

use loadmaster_proto::convert::failure_from_wire;
use loadmaster_proto::device::Device;
use loadmaster_proto::error::Invalid;
use loadmaster_proto::measurement::Measurement;
use loadmaster_proto::name::{RunName, WorkerName};
use loadmaster_proto::run::{FailureKind, RunFailure};
use loadmaster_proto::wire::v1;
use loadmaster_proto::wire::v1::planner_message::Message as ToWorker;
use loadmaster_proto::wire::v1::worker_message::Message as FromWorker;
use tokio::sync::mpsc;
use tokio::time::{Instant, MissedTickBehavior};
use tokio_util::sync::CancellationToken;
use tonic::{Status, Streaming};

use super::Dispatcher;
use super::ledger::{DeviceLedger, LeaseKey};
use crate::store::StoreError;
use crate::store::records::{Claim, Fenced, HeldLease, Renewal, WorkerState};

/// Messages from a worker.
pub type Inbox = Streaming<v1::WorkerMessage>;
/// Messages to a worker.
pub type Outbox = mpsc::Sender<Result<v1::PlannerMessage, Status>>;

/// What a worker said of itself.
#[derive(Debug, Clone)]
pub struct Introduction {
    /// Its name.
    pub worker: WorkerName,
    /// Random per process start.
    pub session_id: String,
    /// What it offers.
    pub devices: Vec<Device>,
    /// Leases that it still holds, with their devices.
    pub held: Vec<(HeldLease, Vec<String>)>,
    /// It may take runs.
    pub accepts_runs: bool,
}

/// A lease as a worker names it in a message.
///
/// # Errors
/// When the run's name is not one.
pub fn held_lease(wire: &v1::HeldRun) -> Result<HeldLease, Invalid> {
    Ok(HeldLease {
        run: RunName::parse("run", &wire.run)?,
        lease_token: wire.lease_token,
        progress: if wire.progress.is_finite() { wire.progress.clamp(0.0, 1.0) } else { 0.0 },
        phase: wire.phase.chars().take(200).collect(),
    })
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
    let mut session = Session::new(dispatcher, introduction, outbox);
    let mut queue = dispatcher.queue_version.subscribe();
    let mut deaf_after = Instant::now() + dispatcher.terms.lease;
    // A missed notification must not leave a run waiting while devices idle.
    let mut poll = tokio::time::interval(dispatcher.terms.heartbeat);
    poll.set_missed_tick_behavior(MissedTickBehavior::Delay);
    tracing::info!(worker.name = %session.worker, "worker connected");

    let reason = loop {
        let step = tokio::select! {
            () = dispatcher.stopping.cancelled() => ControlFlow::Break("the planner stops"),
            () = replaced.cancelled() => ControlFlow::Break("a newer connection of the worker took over"),
            () = tokio::time::sleep_until(deaf_after) => ControlFlow::Break("nothing heard for a lease"),
            message = inbox.message() => match message {
                Ok(Some(message)) => {
                    deaf_after = Instant::now() + dispatcher.terms.lease;
                    session.receive(message).await
                }
                Ok(None) => ControlFlow::Break("the worker closed the stream"),
                Err(status) => {
                    tracing::debug!(worker.name = %session.worker, %status, "stream broke");
                    ControlFlow::Break("the stream broke")
                }
            },
            changed = queue.changed() => match changed {
                Ok(()) => session.queue_changed().await,
                Err(_) => ControlFlow::Break("the planner stops"),
            },
            _ = poll.tick() => session.claim().await,
        };
        if let ControlFlow::Break(reason) = step {
            break reason;
        }
    };
    tracing::info!(worker.name = %session.worker, reason, "worker disconnected");
}

struct Session<'a> {
    dispatcher: &'a Dispatcher,
    worker: WorkerName,
    session_id: String,
    ledger: DeviceLedger,
    /// As last reported, for renewing between heartbeats.
    held: Vec<HeldLease>,
    accepts_runs: bool,
    outbox: Outbox,
}

type Step = ControlFlow<&'static str>;

impl<'a> Session<'a> {
    fn new(dispatcher: &'a Dispatcher, introduction: Introduction, outbox: Outbox) -> Self {
        let patience = dispatcher.terms.heartbeat * 2;
        let mut ledger = DeviceLedger::new(introduction.devices, patience);
        let mut held = Vec::new();
        for (lease, devices) in introduction.held {
            ledger.adopt((lease.run.clone(), lease.lease_token), devices, Instant::now());
            held.push(lease);
        }
        Self {
            dispatcher,
            worker: introduction.worker,
            session_id: introduction.session_id,
            ledger,
            held,
            accepts_runs: introduction.accepts_runs,
            outbox,
        }
    }

    async fn receive(&mut self, message: v1::WorkerMessage) -> Step {
        match message.message {
            Some(FromWorker::Heartbeat(heartbeat)) => self.heartbeat(heartbeat).await,
            Some(FromWorker::Result(result)) => self.result(result).await,
            Some(FromWorker::Failed(failed)) => self.failed(failed).await,
            Some(FromWorker::Goodbye(v1::Goodbye {})) => self.goodbye().await,
            Some(FromWorker::Hello(_)) => self.refuse("hello", "was sent twice").await,
            None => self.refuse("message", "is empty or of a newer protocol").await,
        }
    }

    async fn heartbeat(&mut self, heartbeat: v1::Heartbeat) -> Step {
        let mut held = Vec::new();
        for run in &heartbeat.held_runs {
            match held_lease(run) {
                Ok(lease) => held.push(lease),
                Err(invalid) => return self.refuse("heartbeat.held_runs", &invalid.to_string()).await,
            }
        }
        let keys: Vec<LeaseKey> = held.iter().map(|lease| (lease.run.clone(), lease.lease_token)).collect();
        self.ledger.heartbeat(&keys, Instant::now());
        self.held = held;
        self.renew().await?;
        self.follow_drain().await?;
        self.claim().await
    }

    /// Renews what the worker holds and stops what is not its own any more.
    async fn renew(&mut self) -> Step {
        let terms = self.dispatcher.terms;
        let renewals = match self.dispatcher.store.renew_leases(&self.worker, &self.held, terms.lease).await {
            Ok(renewals) => renewals,
            Err(error) => return self.store_trouble("renew leases", &error),
        };
        for (run, renewal) in renewals {
            let reason = match renewal {
                Renewal::Renewed => continue,
                Renewal::Cancelled => "its operation was cancelled",
                Renewal::Lost => "its lease was lost or its deadline passed",
            };
            let token = self.held.iter().find(|lease| lease.run == run).map_or(0, |lease| lease.lease_token);
            tracing::info!(run.id = run.id(), lease.token = token, reason, "run is stopped");
            let kill = v1::Kill { run: run.to_string(), lease_token: token, reason: reason.to_owned() };
            self.send(ToWorker::Kill(kill)).await?;
        }
        ControlFlow::Continue(())
    }

    /// Another planner's caller may have drained the worker: the store knows.
    async fn follow_drain(&mut self) -> Step {
        let draining = match self.dispatcher.store.get_worker(&self.worker).await {
            Ok(record) => record.state == WorkerState::Draining,
            Err(error) => return self.store_trouble("read the worker's state", &error),
        };
        if draining && self.accepts_runs {
            self.accepts_runs = false;
            self.send(ToWorker::Drain(v1::Drain {})).await?;
        }
        ControlFlow::Continue(())
    }

    async fn queue_changed(&mut self) -> Step {
        // A change may be a cancellation of what this worker holds.
        if !self.held.is_empty() {
            self.renew().await?;
        }
        self.follow_drain().await?;
        self.claim().await
    }

    /// Claims runs while devices are free and one fits.
    async fn claim(&mut self) -> Step {
        while self.accepts_runs {
            let free = self.ledger.free();
            if free.is_empty() {
                break;
            }
            let lease = self.dispatcher.terms.lease;
            match self.dispatcher.store.claim_run(&self.worker, &free, lease).await {
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
            tracing::error!(run.id = claim.run.id(), "claimed run does not fit the free devices");
            let failure = RunFailure {
                kind: FailureKind::HandedBack,
                message: "the planner found no free devices for it".to_owned(),
                stage_index: None,
            };
            let store = &self.dispatcher.store;
            return match store.fail_run(&self.worker, &claim.run, claim.lease_token, &failure, 0.0).await {
                Ok(_) => ControlFlow::Break("the device ledger is out of step"),
                Err(error) => self.store_trouble("hand a run back", &error),
            };
        };
        tracing::info!(run.id = claim.run.id(), lease.token = claim.lease_token,
            worker.name = %self.worker, devices = device_ids.join(","), "run leased");
        self.held.push(HeldLease {
            run: claim.run.clone(),
            lease_token: claim.lease_token,
            progress: 0.0,
            phase: "starting".to_owned(),
        });
        let lease = v1::Lease {
            run: claim.run.to_string(),
            lease_token: claim.lease_token,
            device_ids,
            spec: Some((&claim.spec).into()),
            deadline_seconds: f64::from(claim.deadline_seconds),
        };
        self.send(ToWorker::Lease(lease)).await
    }

    async fn result(&mut self, result: v1::RunResult) -> Step {
        let run = match RunName::parse("result.run", &result.run) {
            Ok(run) => run,
            Err(invalid) => return self.refuse("result.run", &invalid.to_string()).await,
        };
        let measurements: Result<Vec<Measurement>, Invalid> =
            result.measurements.into_iter().map(TryInto::try_into).collect();
        let stored = match measurements {
            Ok(measurements) if !measurements.is_empty() => {
                let store = &self.dispatcher.store;
                store
                    .complete_run(
                        &self.worker,
                        &run,
                        result.lease_token,
                        &measurements,
                        seconds(result.seconds),
                    )
                    .await
            }
            // A worker that reports nonsense must not keep the run: it counts as a failed attempt.
            unusable => {
                let why = unusable.err().map_or_else(|| "no measurements".to_owned(), |e| e.to_string());
                let failure = RunFailure {
                    kind: FailureKind::Exited { code: 0 },
                    message: format!("the worker's result is not usable: {why}"),
                    stage_index: None,
                };
                self.store_failure(&run, result.lease_token, &failure, result.seconds).await
            }
        };
        self.acknowledge(run, result.lease_token, stored).await
    }

    async fn failed(&mut self, failed: v1::RunFailed) -> Step {
        let run = match RunName::parse("failed.run", &failed.run) {
            Ok(run) => run,
            Err(invalid) => return self.refuse("failed.run", &invalid.to_string()).await,
        };
        let failure = failed
            .failure
            .ok_or_else(|| Invalid::field("failure", "is required"))
            .and_then(failure_from_wire)
            .unwrap_or_else(|invalid| RunFailure {
                kind: FailureKind::Exited { code: 0 },
                message: format!("the worker's failure report is not usable: {invalid}"),
                stage_index: None,
            });
        let stored = self.store_failure(&run, failed.lease_token, &failure, failed.seconds).await;
        self.acknowledge(run, failed.lease_token, stored).await
    }

    async fn store_failure(
        &self,
        run: &RunName,
        lease_token: i64,
        failure: &RunFailure,
        took: f64,
    ) -> Result<Fenced, StoreError> {
        tracing::warn!(run.id = run.id(), lease.token = lease_token, worker.name = %self.worker,
            failure = failure.message, "run failed");
        self.dispatcher.store.fail_run(&self.worker, run, lease_token, failure, seconds(took)).await
    }

    async fn acknowledge(
        &mut self,
        run: RunName,
        lease_token: i64,
        stored: Result<Fenced, StoreError>,
    ) -> Step {
        let applied = match stored {
            Ok(fenced) => fenced == Fenced::Applied,
            // A run that is not there any more cannot be reported: tell the worker to forget it.
            Err(StoreError::NotFound { .. }) => false,
            // Not acknowledged: the worker keeps it and sends it again on the next connection.
            Err(error) => return self.store_trouble("store a report", &error),
        };
        if !applied {
            tracing::warn!(run.id = run.id(), lease.token = lease_token, "late report refused");
        }
        let key = (run.clone(), lease_token);
        self.ledger.release(&key);
        self.held.retain(|lease| !(lease.run == key.0 && lease.lease_token == key.1));
        let message = v1::Acknowledged { run: run.to_string(), lease_token, applied };
        self.send(ToWorker::Acknowledged(message)).await?;
        super::settle::settle_all(&self.dispatcher.store).await;
        self.claim().await
    }

    async fn goodbye(&mut self) -> Step {
        self.accepts_runs = false;
        let store = &self.dispatcher.store;
        match store.set_worker_state(&self.worker, &self.session_id, WorkerState::Gone).await {
            Ok(()) => ControlFlow::Continue(()),
            Err(error) => self.store_trouble("note that the worker leaves", &error),
        }
    }

    /// Without the store the session cannot keep its promises; the worker reconnects with back-off
    /// and meanwhile keeps its runs and unacknowledged reports.
    fn store_trouble(&self, what: &str, error: &StoreError) -> Step {
        tracing::error!(worker.name = %self.worker, %error, "failed to {what}");
        ControlFlow::Break("the database is in trouble")
    }

    async fn refuse(&mut self, field: &str, why: &str) -> Step {
        let status = Status::invalid_argument(format!("{field} {why}"));
        // The stream ends either way.
        let _ = self.outbox.send(Err(status)).await;
        ControlFlow::Break("the worker sent a message that is not valid")
    }

    /// Sends, but never waits longer than a lease for a worker that does not read.
    async fn send(&mut self, message: ToWorker) -> Step {
        let message = Ok(v1::PlannerMessage { message: Some(message) });
        match self.outbox.send_timeout(message, self.dispatcher.terms.lease).await {
            Ok(()) => ControlFlow::Continue(()),
            Err(_) => ControlFlow::Break("the worker does not read"),
        }
    }
}

fn seconds(reported: f64) -> f64 {
    if reported.is_finite() { reported.max(0.0) } else { 0.0 }
}
