//! What a worker reports: stored once, then acknowledged.

use loadmaster_predict::profiling::result::{self, Leased};
use loadmaster_proto::cluster::device::Device;
use loadmaster_proto::error::Invalid;
use loadmaster_proto::measure::failure::{FailureKind, RunFailure};
use loadmaster_proto::measure::links::LinkMeasurement;
use loadmaster_proto::measure::measurement::Measurement;
use loadmaster_proto::measure::run::Task;
use loadmaster_proto::name::RunName;
use loadmaster_proto::quote::quoted;
use loadmaster_proto::wire::worker_v1;
use loadmaster_proto::wire::worker_v1::planner_message::Message as ToWorker;

use super::{Session, Step};
use crate::dispatch::{give_up, settle};
use crate::store::StoreError;
use crate::store::records::{AskedRun, Fenced};

/// Most characters of a failure in the log; the run keeps more of it.
const MOST_LOGGED: usize = 300;

/// What a run yielded.
enum Measured {
    /// What stages needed.
    Stages(Vec<Measurement>),
    /// How fast devices exchange bytes.
    Links(Box<LinkMeasurement>),
}

impl Measured {
    /// What was reported, held against what was asked for.
    fn of(result: worker_v1::RunResult, asked: &AskedRun, devices: &[Device]) -> Result<Self, Invalid> {
        let measured = Self::read(result)?;
        let AskedRun { task, device_kind, deadline_seconds } = asked;
        match (task, &measured) {
            (Task::Train(spec), Self::Stages(stages)) => {
                let deadline_seconds = *deadline_seconds;
                result::check(&Leased { spec, device_kind, deadline_seconds, devices }, stages)?;
            }
            (Task::Links(work), Self::Links(links)) => {
                result::check_links(work, device_kind, devices, links)
                    .map_err(|invalid| invalid.under("links"))?;
            }
            (Task::Train(_), Self::Links(_)) => {
                return Err(Invalid::field("links", "not valid, because the run trains stages"));
            }
            (Task::Links(_), Self::Stages(_)) => {
                return Err(Invalid::field("measurements", "not valid, because the run measures links"));
            }
        }
        Ok(measured)
    }

    fn read(result: worker_v1::RunResult) -> Result<Self, Invalid> {
        if let Some(links) = result.link_measurement {
            let links = LinkMeasurement::try_from(*links).map_err(|invalid| invalid.under("links"))?;
            return Ok(Self::Links(Box::new(links)));
        }
        let measurements = result.measurements.into_iter().enumerate();
        let stages = measurements
            .map(|(index, measurement)| {
                let path = format!("measurements[{index}]");
                measurement.try_into().map_err(|invalid: Invalid| invalid.under(&path))
            })
            .collect::<Result<Vec<Measurement>, _>>()?;
        if stages.is_empty() {
            return Err(Invalid::field(
                "measurements",
                "empty. Send one measurement for each device of each stage.",
            ));
        }
        Ok(Self::Stages(stages))
    }
}

impl Session<'_> {
    pub(super) async fn result(&mut self, result: worker_v1::RunResult) -> Step {
        let run = match RunName::parse("result.run", &result.run) {
            Ok(run) => run,
            Err(invalid) => return self.refuse("result.run", &invalid.to_string()).await,
        };
        let (lease_token, took) = (result.lease_token, seconds(result.seconds));
        let stored = match self.dispatcher.store.asked_run(&run).await {
            Ok(asked) => self.store_result(&run, lease_token, result, &asked).await,
            Err(error) => Err(error),
        };
        let stored = match stored {
            // However often it is sent: it must not come back with every connection.
            Err(StoreError::Corrupt { what }) => self.store_refused(&run, lease_token, &what, took).await,
            stored => stored,
        };
        self.acknowledge(run, lease_token, stored).await
    }

    pub(super) async fn failed(&mut self, failed: worker_v1::RunFailed) -> Step {
        let run = match RunName::parse("failed.run", &failed.run) {
            Ok(run) => run,
            Err(invalid) => return self.refuse("failed.run", &invalid.to_string()).await,
        };
        let failure = failed
            .failure
            .ok_or_else(|| Invalid::field("failure", "is required"))
            .and_then(RunFailure::try_from)
            .unwrap_or_else(|invalid| RunFailure {
                kind: FailureKind::Exited { code: 0 },
                message: format!("the worker's failure report is not valid: {invalid}"),
                stage_index: None,
            });
        let stored = self.store_failure(&run, failed.lease_token, &failure, failed.seconds).await;
        self.acknowledge(run, failed.lease_token, stored).await
    }

    async fn store_result(
        &self,
        run: &RunName,
        lease_token: i64,
        result: worker_v1::RunResult,
        asked: &AskedRun,
    ) -> Result<Fenced, StoreError> {
        let took = seconds(result.seconds);
        let store = &self.dispatcher.store;
        match Measured::of(result, asked, self.ledger.devices()) {
            Ok(Measured::Stages(measurements)) => {
                store.complete_run(&self.worker, run, lease_token, &measurements, took).await
            }
            Ok(Measured::Links(links)) => {
                store.complete_links(&self.worker, run, lease_token, &links, took).await
            }
            Err(why) => self.store_refused(run, lease_token, &why.to_string(), took).await,
        }
    }

    /// A worker that reports nonsense must not keep the run, and nothing of it may be kept: it counts as a
    /// failed attempt.
    async fn store_refused(
        &self,
        run: &RunName,
        lease_token: i64,
        why: &str,
        took: f64,
    ) -> Result<Fenced, StoreError> {
        let failure = RunFailure {
            kind: FailureKind::ResultRefused,
            message: format!("the worker's result does not match its run: {why}"),
            stage_index: None,
        };
        self.store_failure(run, lease_token, &failure, took).await
    }

    async fn store_failure(
        &self,
        run: &RunName,
        lease_token: i64,
        failure: &RunFailure,
        took: f64,
    ) -> Result<Fenced, StoreError> {
        if let Some(left_out) = self.dispatcher.may_log(&self.worker) {
            let failure = quoted(&failure.message, MOST_LOGGED);
            tracing::warn!(run.id = run.id(), lease.token = lease_token, worker.name = %self.worker,
                failure = %failure, left_out, "run failed");
        }
        let store = &self.dispatcher.store;
        let stored = store.fail_run(&self.worker, run, lease_token, failure, seconds(took)).await?;
        if stored == Fenced::Applied
            && let Err(error) = give_up::consider(store, run).await
        {
            // The failure is stored; the next one leads here again.
            tracing::warn!(run.id = run.id(), %error, "could not compare the failed run with earlier failures");
        }
        Ok(stored)
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
            // Not acknowledged: the worker keeps it and resends it on the next connection.
            Err(error) => return self.store_trouble("store a report", &error),
        };
        if !applied && let Some(left_out) = self.dispatcher.may_log(&self.worker) {
            tracing::warn!(run.id = run.id(), lease.token = lease_token, worker.name = %self.worker, left_out,
                "late report refused");
        }
        let key = (run.clone(), lease_token);
        self.ledger.release(&key);
        self.held.retain(|lease| !(lease.run == key.0 && lease.lease_token == key.1));
        let message = worker_v1::Acknowledged { run: run.to_string(), lease_token, applied };
        self.send(ToWorker::Acknowledged(message)).await?;
        settle::settle_all(&self.dispatcher.store).await;
        self.claim().await
    }
}

fn seconds(reported: f64) -> f64 {
    if reported.is_finite() { reported.max(0.0) } else { 0.0 }
}
