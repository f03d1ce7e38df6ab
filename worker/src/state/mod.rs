//! What the daemon holds and decides. Pure: events and the time go in, actions come out.
//!
//! A claim lives in one of two places. In `held` its processes may be running and its devices are
//! taken; it leaves only when all its processes are gone. In `reports` it has ended, and its result
//! or failure is sent until the planner acknowledges it, over as many connections as that takes.
//! Both are named in heartbeats, because the planner may not give a run to another worker while its
//! result is on the way.

mod admission;
mod event;
mod reports;
#[cfg(test)]
pub(crate) mod tests;

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use admission::Room;
use loadmaster_proto::bytes::Bytes;
use loadmaster_proto::cluster::device::Device;
use loadmaster_proto::measure::failure::{Phase, RunFailure};
use loadmaster_proto::name::RunName;
use loadmaster_proto::quote::{in_one_line, quoted};
use loadmaster_proto::wire::worker_v1;
use reports::Reports;
use tracing::{debug, info, warn};
use worker_v1::planner_message::Message as FromPlanner;
use worker_v1::worker_message::Message as ToPlanner;

use crate::run::{Claim, Outcome, handed_back};

pub(crate) use event::{Action, Event, Terms};

/// How long to wait for acknowledgements before leaving in a hurry.
const FLUSH: Duration = Duration::from_secs(3);
/// Most characters of a notice that are logged.
const NOTICE: usize = 1_000;
/// While leases live without a connection, at least so many attempts to connect fit into what a lease lasts.
const ATTEMPTS_PER_LEASE: u32 = 4;

/// See the head of this file.
#[derive(Debug)]
pub(crate) struct State {
    devices: Vec<Device>,
    /// Memory of the host that runs may take.
    host_memory: Bytes,
    drain_timeout: Duration,
    connected: bool,
    terms: Option<Terms>,
    heartbeat_due: Option<Instant>,
    /// Until when the planner keeps the leases without hearing from this worker.
    leases_end: Option<Instant>,
    held: BTreeMap<Claim, Held>,
    reports: Reports,
    mode: Mode,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Mode {
    /// Takes runs.
    Serving,
    /// Takes no more runs and stays connected: the planner cordoned this worker.
    Cordoned,
    /// Takes no more runs, ends those it holds, then leaves.
    Leaving { until: Instant },
    /// Everything was killed; leaves when the planner knows, or when it takes too long.
    Stopping { flush_until: Option<Instant> },
}

#[derive(Debug)]
struct Held {
    device_ids: Vec<String>,
    /// What it takes of the host's memory; it goes with its processes.
    host_memory: Bytes,
    since: Instant,
    fraction: f64,
    phase: Phase,
    ending: Option<Fate>,
}

/// What becomes of a run that is being killed.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Fate {
    /// No one waits for it any more.
    Forgotten,
    /// Someone else shall do it.
    HandedBack(&'static str),
}

impl State {
    /// A worker with these devices, and so much of the host's memory, that holds nothing.
    pub(crate) fn new(devices: Vec<Device>, host_memory: Bytes, drain_timeout: Duration) -> Self {
        Self {
            devices,
            host_memory,
            drain_timeout,
            connected: false,
            terms: None,
            heartbeat_due: None,
            leases_end: None,
            held: BTreeMap::new(),
            reports: Reports::default(),
            mode: Mode::Serving,
        }
    }

    pub(crate) fn devices(&self) -> &[Device] {
        &self.devices
    }

    pub(crate) fn host_memory(&self) -> Bytes {
        self.host_memory
    }

    /// Takes note of an event and of the time, and says what to do.
    pub(crate) fn on(&mut self, event: Event, now: Instant) -> Vec<Action> {
        let mut actions = Vec::new();
        match event {
            Event::Welcomed(terms) => self.welcomed(terms, now, &mut actions),
            Event::Lost => self.connected = false,
            Event::Refused => {
                self.connected = false;
                self.mode = Mode::Stopping { flush_until: None };
                self.kill_all(&Fate::Forgotten, &mut actions);
            }
            Event::Planner(message) => self.heard(*message, now, &mut actions),
            Event::Progress { claim, fraction, phase } => {
                if let Some(held) = self.held.get_mut(&claim) {
                    held.fraction =
                        if fraction.is_finite() { fraction.clamp(0.0, 1.0) } else { held.fraction };
                    held.phase = phase;
                }
            }
            Event::Ended { claim, outcome } => self.ended(claim, outcome, now, &mut actions),
            Event::Stop => self.asked_to_stop(now, &mut actions),
            Event::Tick => {}
        }
        self.passed(now, &mut actions);
        actions
    }

    /// When to come back with [`Event::Tick`] if nothing happens before.
    pub(crate) fn wake(&self) -> Option<Instant> {
        let resend = self.reports.due().filter(|_| self.connected);
        let heartbeat = self.heartbeat_due.filter(|_| self.connected);
        let leases = self.leases_end.filter(|_| !self.connected && self.has_living());
        let mode = match self.mode {
            Mode::Serving | Mode::Cordoned => None,
            Mode::Leaving { until } => Some(until),
            Mode::Stopping { flush_until } => flush_until,
        };
        [resend, heartbeat, leases, mode].into_iter().flatten().min()
    }

    /// The longest wait between two attempts to connect, where there is a hurry: before its leases end, a worker
    /// that holds runs, or results that the planner does not know, must be back.
    pub(crate) fn longest_wait(&self, now: Instant) -> Option<Duration> {
        let terms = self.terms?;
        let is_in_time = self.leases_end.is_some_and(|end| now < end);
        let is_awaited = self.has_living() || !self.reports.is_empty();
        (is_in_time && is_awaited).then(|| terms.lease / ATTEMPTS_PER_LEASE)
    }

    /// All that it holds, for hellos and heartbeats.
    pub(crate) fn held_runs(&self) -> Vec<worker_v1::HeldRun> {
        let held = self.held.iter().map(|(claim, held)| worker_v1::HeldRun {
            run: claim.run.to_string(),
            lease_token: claim.token,
            device_ids: held.device_ids.clone(),
            progress: held.fraction,
            phase: if held.ending.is_some() { "ending" } else { held.phase.as_str() }.to_owned(),
        });
        // Its devices are free, but its lease must live until the report has arrived.
        let reported = self.reports.claims().map(|claim| worker_v1::HeldRun {
            run: claim.run.to_string(),
            lease_token: claim.token,
            device_ids: Vec::new(),
            progress: 1.0,
            phase: "report".to_owned(),
        });
        held.chain(reported).collect()
    }

    fn welcomed(&mut self, terms: Terms, now: Instant, actions: &mut Vec<Action>) {
        self.connected = true;
        self.terms = Some(terms);
        // The hello named what is held, as a heartbeat does.
        self.renewed(now);
        actions.extend(self.reports.all(now).map(Action::Send));
        if matches!(self.mode, Mode::Leaving { .. } | Mode::Stopping { .. }) {
            actions.push(Action::Send(ToPlanner::Goodbye(worker_v1::Goodbye {})));
        }
    }

    fn renewed(&mut self, now: Instant) {
        if let Some(terms) = self.terms {
            self.heartbeat_due = Some(now + terms.heartbeat);
            self.leases_end = Some(now + terms.lease);
        }
    }

    fn heartbeat(&mut self, now: Instant, actions: &mut Vec<Action>) {
        if self.connected {
            self.renewed(now);
            actions.push(Action::Send(ToPlanner::Heartbeat(worker_v1::Heartbeat {
                held_runs: self.held_runs(),
            })));
        }
    }

    fn heard(&mut self, message: FromPlanner, now: Instant, actions: &mut Vec<Action>) {
        match message {
            FromPlanner::Lease(lease) => self.offered(lease, now, actions),
            FromPlanner::Kill(kill) => {
                let Some(claim) = claim(&kill.run, kill.lease_token) else { return };
                info!(
                    run.id = claim.run.id(),
                    lease.token = claim.token,
                    reason = %quoted(&kill.reason, NOTICE),
                    "the planner stops a run"
                );
                if self.held.contains_key(&claim) {
                    self.kill(&claim, &Fate::Forgotten, actions);
                } else {
                    // Nothing to kill; the planner learns that from the next heartbeat: this one.
                    self.heartbeat(now, actions);
                }
            }
            FromPlanner::Acknowledged(acknowledged) => {
                let Some(claim) = claim(&acknowledged.run, acknowledged.lease_token) else { return };
                if self.reports.acknowledged(&claim) && !acknowledged.applied {
                    warn!(
                        run.id = claim.run.id(),
                        lease.token = claim.token,
                        "the planner rejected a report, because the run is no longer assigned to this worker"
                    );
                }
            }
            FromPlanner::Cordon(worker_v1::Cordon {}) => {
                if self.mode == Mode::Serving {
                    info!("the planner cordoned this worker; it accepts no more runs");
                    self.mode = Mode::Cordoned;
                }
            }
            FromPlanner::Uncordon(worker_v1::Uncordon {}) => {
                if self.mode == Mode::Cordoned {
                    info!("the planner uncordoned this worker; it accepts runs");
                    self.mode = Mode::Serving;
                }
            }
            FromPlanner::Notice(worker_v1::Notice { text }) => {
                warn!("notice from the planner: {}", in_one_line(&text, NOTICE));
            }
            FromPlanner::Welcome(_) => debug!("ignored a second welcome"),
        }
    }

    fn offered(&mut self, lease: worker_v1::Lease, now: Instant, actions: &mut Vec<Action>) {
        let Some(claim) = claim(&lease.run, lease.lease_token) else { return };
        if self.held.contains_key(&claim) {
            return;
        }
        if let Some(report) = self.reports.again(&claim, now) {
            actions.push(Action::Send(report));
            return;
        }
        let older: Vec<Claim> = self
            .held
            .keys()
            .filter(|held| held.run == claim.run && held.token < claim.token)
            .cloned()
            .collect();
        for stale in &older {
            self.kill(stale, &Fate::Forgotten, actions);
        }
        let admitted = match self.mode {
            Mode::Serving => admission::admit(claim.clone(), lease, &self.room()),
            Mode::Cordoned | Mode::Leaving { .. } | Mode::Stopping { .. } => {
                Err(handed_back("this worker accepts no more runs"))
            }
        };
        match admitted {
            Ok(job) => {
                let device_ids = job.lease.devices.iter().map(|device| device.id.clone()).collect();
                info!(run.id = claim.run.id(), lease.token = claim.token, devices = ?device_ids, "leased");
                let held = Held {
                    device_ids,
                    host_memory: job.task.host_memory(),
                    since: now,
                    fraction: 0.0,
                    phase: Phase::Setup,
                    ending: None,
                };
                self.held.insert(claim, held);
                actions.push(Action::Start(Box::new(job)));
            }
            Err(failure) => {
                warn!(
                    run.id = claim.run.id(),
                    lease.token = claim.token,
                    "lease refused: {}",
                    failure.message
                );
                self.report_failure(claim, &failure, 0.0, now, actions);
            }
        }
    }

    /// What the runs that it holds leave of what it offers, those included whose processes are being ended.
    fn room(&self) -> Room<'_> {
        let held = self.held.values();
        Room {
            devices: &self.devices,
            taken: held.clone().flat_map(|held| held.device_ids.iter().map(String::as_str)).collect(),
            host_memory: self.host_memory,
            host_memory_taken: Bytes(held.map(|held| held.host_memory.0).fold(0, u64::saturating_add)),
        }
    }

    fn ended(&mut self, claim: Claim, outcome: Outcome, now: Instant, actions: &mut Vec<Action>) {
        let Some(held) = self.held.remove(&claim) else { return };
        let seconds = now.saturating_duration_since(held.since).as_secs_f64();
        match (held.ending, outcome) {
            // The planner frees the devices when a heartbeat no longer names the run.
            (Some(Fate::Forgotten), _) => self.heartbeat(now, actions),
            (_, Outcome::Measured(measurements)) => {
                let message = ToPlanner::Result(worker_v1::RunResult {
                    run: claim.run.to_string(),
                    lease_token: claim.token,
                    measurements: measurements.iter().map(Into::into).collect(),
                    link_measurement: None,
                    seconds,
                });
                info!(run.id = claim.run.id(), lease.token = claim.token, seconds, "measured");
                self.report(claim, message, now, actions);
            }
            (_, Outcome::Links(links)) => {
                let message = ToPlanner::Result(worker_v1::RunResult {
                    run: claim.run.to_string(),
                    lease_token: claim.token,
                    measurements: Vec::new(),
                    link_measurement: Some(Box::new(links.as_ref().into())),
                    seconds,
                });
                info!(run.id = claim.run.id(), lease.token = claim.token, seconds, "links measured");
                self.report(claim, message, now, actions);
            }
            (Some(Fate::HandedBack(why)), Outcome::Failed(_) | Outcome::Stopped) => {
                self.report_failure(claim, &handed_back(why), seconds, now, actions);
            }
            (None, Outcome::Failed(failure)) => {
                warn!(
                    run.id = claim.run.id(),
                    lease.token = claim.token,
                    seconds,
                    "failed: {}",
                    failure.message
                );
                self.report_failure(claim, &failure, seconds, now, actions);
            }
            (None, Outcome::Stopped) => {
                self.report_failure(claim, &handed_back("the run was stopped"), seconds, now, actions);
            }
        }
    }

    fn report_failure(
        &mut self,
        claim: Claim,
        failure: &RunFailure,
        seconds: f64,
        now: Instant,
        actions: &mut Vec<Action>,
    ) {
        let message = ToPlanner::Failed(worker_v1::RunFailed {
            run: claim.run.to_string(),
            lease_token: claim.token,
            failure: Some(failure.into()),
            seconds,
        });
        self.report(claim, message, now, actions);
    }

    fn report(&mut self, claim: Claim, message: ToPlanner, now: Instant, actions: &mut Vec<Action>) {
        if self.connected {
            actions.push(Action::Send(message.clone()));
        }
        self.reports.keep(claim, message, now);
    }

    fn asked_to_stop(&mut self, now: Instant, actions: &mut Vec<Action>) {
        match self.mode {
            Mode::Serving | Mode::Cordoned => {
                info!(
                    runs = self.held.len(),
                    reports = self.reports.len(),
                    drain_timeout_seconds = self.drain_timeout.as_secs_f64(),
                    "the worker is stopping: it finishes its runs and accepts no more; a second signal aborts them"
                );
                self.mode = Mode::Leaving { until: now + self.drain_timeout };
                if self.connected {
                    actions.push(Action::Send(ToPlanner::Goodbye(worker_v1::Goodbye {})));
                }
            }
            Mode::Leaving { .. } => self.stop("the worker was stopped", actions),
            Mode::Stopping { .. } => {}
        }
    }

    fn stop(&mut self, why: &'static str, actions: &mut Vec<Action>) {
        warn!(runs = self.held.len(), "{why}; aborting all runs");
        self.mode = Mode::Stopping { flush_until: None };
        self.kill_all(&Fate::HandedBack(why), actions);
    }

    fn kill_all(&mut self, fate: &Fate, actions: &mut Vec<Action>) {
        let claims: Vec<Claim> = self.held.keys().cloned().collect();
        for claim in claims {
            self.kill(&claim, fate, actions);
        }
    }

    fn kill(&mut self, claim: &Claim, fate: &Fate, actions: &mut Vec<Action>) {
        if let Some(held) = self.held.get_mut(claim) {
            if held.ending.is_none() {
                actions.push(Action::Kill(claim.clone()));
            }
            // A run that no one waits for any more is never handed back.
            if held.ending != Some(Fate::Forgotten) {
                held.ending = Some(fate.clone());
            }
        }
    }

    fn has_living(&self) -> bool {
        self.held.values().any(|held| held.ending.is_none())
    }

    /// All that depends on the time alone.
    fn passed(&mut self, now: Instant, actions: &mut Vec<Action>) {
        if self.connected {
            if self.heartbeat_due.is_some_and(|due| due <= now) {
                self.heartbeat(now, actions);
            }
            actions.extend(self.reports.overdue(now).map(Action::Send));
        } else if self.leases_end.is_some_and(|end| end <= now) && self.has_living() {
            warn!(
                runs = self.held.len(),
                "the worker had no contact with the planner for the lease duration. It aborts its runs, because the \
                 planner assigns them to other workers"
            );
            self.kill_all(&Fate::Forgotten, actions);
        }
        if let Mode::Leaving { until } = self.mode
            && until <= now
        {
            self.stop("the drain timeout has passed", actions);
        }
        if let Mode::Stopping { flush_until: flush_until @ None } = &mut self.mode
            && self.held.is_empty()
        {
            *flush_until = Some(now + FLUSH);
        }
        if self.may_exit(now) {
            actions.push(Action::Exit);
        }
    }

    fn may_exit(&self, now: Instant) -> bool {
        match self.mode {
            Mode::Serving | Mode::Cordoned => false,
            Mode::Leaving { .. } => self.held.is_empty() && self.reports.is_empty(),
            Mode::Stopping { flush_until } => {
                let in_vain = !self.connected || flush_until.is_some_and(|until| until <= now);
                self.held.is_empty() && (self.reports.is_empty() || in_vain)
            }
        }
    }
}

/// The claim that a message names; nothing can be answered to one that names none.
fn claim(run: &str, token: i64) -> Option<Claim> {
    RunName::parse("run", run)
        .inspect_err(|error| {
            warn!("ignored a message from the planner: {}", in_one_line(&error.to_string(), NOTICE))
        })
        .ok()
        .map(|run| Claim { run, token })
}
