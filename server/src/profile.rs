//! What a stored profile says: the planning rules applied to the store's records.

use std::collections::HashMap;

use loadmaster_memory::chunks::ChunkCheck;
use loadmaster_predict::capture::metrics::Metrics;
use loadmaster_predict::lacks::{self, PredictorLacks};
use loadmaster_predict::profiling::follow_up::follow_up;
use loadmaster_predict::profiling::remaining_runs::{Attempt, AttemptOutcome, remaining};
use loadmaster_predict::profiling::runs::Layout;
use loadmaster_predict::profiling::{KeyedRun, ProfilingError, Purpose};
use loadmaster_proto::measure::disturbance::Disturbance;
use loadmaster_proto::measure::environment::Environment;
use loadmaster_proto::measure::measurement::Measurement;
use loadmaster_proto::model::Model;
use loadmaster_proto::name::ProfileName;

use crate::store::records::{
    AttemptRecord, MeasuredRun, MeasurementRecord, NewRun, ProfileRecord, ProfileSettings, ReusedRun,
    RunState,
};
use crate::store::{Store, StoreError};

/// All that predictors are made from.
#[derive(Debug, Clone)]
pub struct StoredProfile {
    /// What was asked for.
    pub settings: ProfileSettings,
    pub model: Model,
    /// What was measured, reused runs included, in order of stage and micro-batch size. Indices of layers
    /// are those of `model`, whatever model a reused run was made for, and
    /// [`MeasurementRecord::name`] says where each came from.
    pub measurements: Vec<MeasurementRecord>,
}

impl StoredProfile {
    /// A profile with its model and measurements.
    ///
    /// # Errors
    /// [`StoreError::NotFound`].
    pub async fn load(store: &Store, name: &ProfileName) -> Result<(ProfileRecord, Self), StoreError> {
        let record = store.get_profile(name).await?;
        let stored = Self::of(store, &record).await?;
        Ok((record, stored))
    }

    /// The model and measurements of a profile.
    ///
    /// # Errors
    /// When the database fails.
    pub async fn of(store: &Store, record: &ProfileRecord) -> Result<Self, StoreError> {
        let settings = record.settings.clone();
        let model = store.get_model(&settings.model).await?.model;
        let measurements = store.profile_measurements(&settings.name).await?;
        Ok(Self { settings, model, measurements })
    }

    /// What predictors are made from.
    pub fn fitted(&self) -> Vec<&Measurement> {
        let fitted = self.measurements.iter().filter(|record| !record.held_out);
        fitted.map(|record| &record.measurement).filter(|of| of.chunks.is_none()).collect()
    }

    /// The software and devices that it was measured on, each once, in the order in which they occur; what
    /// happened during one run does not count.
    pub fn environments(&self) -> Vec<Environment> {
        let mut environments = Vec::new();
        for record in &self.measurements {
            let of = record.measurement.environment.lasting();
            if !environments.contains(&of) {
                environments.push(of);
            }
        }
        environments
    }

    /// What made the seconds of its measurements longer than those of devices of their own.
    pub fn disturbance(&self) -> Disturbance {
        disturbance(&self.measurements)
    }

    /// Isolated and added memory of the layers, and what is missing.
    ///
    /// # Errors
    /// When the settings make no campaign.
    pub fn metrics(&self) -> Result<Metrics, ProfilingError> {
        Ok(Layout::new(&self.settings, &self.model)?.metrics(&self.model, &self.fitted()))
    }

    /// The runs to add to a profile all of whose runs, `attempts`, have ended, because of what they showed.
    pub fn follow_up(&self, attempts: &[AttemptRecord]) -> Vec<NewRun> {
        let Ok(layout) = Layout::new(&self.settings, &self.model) else { return Vec::new() };
        let attempts = attempts_of(attempts);
        let more = follow_up(&layout, &self.settings, &self.model, &attempts, &self.fitted());
        more.into_iter().map(|keyed| new_run(&self.settings, keyed)).collect()
    }

    /// The runs that a profile still needs of its campaign, in order of the queue.
    ///
    /// # Errors
    /// When the settings make no campaign.
    pub fn remaining(
        settings: &ProfileSettings,
        model: &Model,
        attempts: &[AttemptRecord],
    ) -> Result<Vec<KeyedRun>, ProfilingError> {
        let planned = Layout::new(settings, model)?.keyed(settings, model);
        Ok(remaining(&planned, &attempts_of(attempts)))
    }

    /// What each predictor lacks.
    ///
    /// # Errors
    /// When the settings make no campaign.
    pub fn needs(&self) -> Result<Vec<PredictorLacks>, ProfilingError> {
        let mut all = lacks::of_all(&self.settings, &self.model, &self.fitted())?;
        let is_measured = self.chunk_check().is_some();
        all.extend(lacks::of_chunks(&self.settings, is_measured));
        Ok(all)
    }

    /// What its run in chunks taught; none where it has none, or not yet.
    pub fn chunk_check(&self) -> Option<ChunkCheck> {
        let named = self.measurements.iter().map(|record| (record.name(), &record.measurement));
        ChunkCheck::last_of(named, self.model.parameter_count())
    }

    /// What the predictor lacks that the campaign is for.
    ///
    /// # Errors
    /// When the settings make no campaign.
    pub fn missing(&self) -> Result<Vec<String>, ProfilingError> {
        lacks::of_profiling(&self.settings, &self.model, &self.fitted())
    }
}

/// What made the seconds of these measurements longer than those of devices of their own.
pub fn disturbance(measurements: &[MeasurementRecord]) -> Disturbance {
    Disturbance::of(measurements.iter().map(|record| &record.measurement.environment))
}

/// What becomes of the runs that a profile needs.
#[derive(Debug, Clone, Default)]
pub struct Prepared {
    /// To be made, in order of the queue.
    pub runs: Vec<NewRun>,
    /// Made before, for others.
    pub reused: Vec<ReusedRun>,
}

impl Prepared {
    /// Sorts the needed runs by whether `measured` has one that measured the same.
    pub fn new(settings: &ProfileSettings, needed: Vec<KeyedRun>, measured: &[MeasuredRun]) -> Self {
        let measured: HashMap<(&str, u32), &MeasuredRun> =
            measured.iter().map(|of| ((of.work_key.as_str(), of.micro_batch_size), of)).collect();
        let mut prepared = Self::default();
        for keyed in needed {
            let run = &keyed.run;
            let Some(made) = measured.get(&(keyed.key.as_str(), run.strategy.training.micro_batch_size))
            else {
                prepared.runs.push(new_run(settings, keyed));
                continue;
            };
            let index = |layer: usize| i32::try_from(layer).unwrap_or(i32::MAX);
            prepared.reused.push(ReusedRun {
                run: made.run.clone(),
                layer_offset: index(run.first_layer()).saturating_sub(index(made.first_layer)),
                held_out: run.purpose == Purpose::Check,
            });
        }
        prepared
    }
}

/// A planned run of a profile, as it is queued.
fn new_run(settings: &ProfileSettings, KeyedRun { key, run }: KeyedRun) -> NewRun {
    NewRun {
        iterations: settings.iterations,
        command: settings.command.clone(),
        device_kind: settings.device_kind.clone(),
        device_count: run.device_count(),
        min_capacity: settings.min_capacity,
        deadline_seconds: settings.deadline_seconds,
        work_key: Some(key),
        smallest_micro_batch_size: run.smallest_micro_batch_size(),
        held_out: run.purpose == Purpose::Check,
        strategy: run.strategy,
    }
}

fn attempts_of(attempts: &[AttemptRecord]) -> Vec<Attempt<'_>> {
    attempts
        .iter()
        .map(|AttemptRecord { work_key, micro_batch_size, state, failed }| Attempt {
            key: work_key,
            micro_batch_size: *micro_batch_size,
            outcome: match state {
                RunState::Succeeded => AttemptOutcome::Measured,
                RunState::OutOfMemory => AttemptOutcome::TooLarge,
                RunState::Queued | RunState::Running => AttemptOutcome::Pending,
                RunState::Cancelled if !failed => AttemptOutcome::GivenUp,
                RunState::Failed | RunState::Cancelled => AttemptOutcome::Failed,
            },
        })
        .collect()
}
