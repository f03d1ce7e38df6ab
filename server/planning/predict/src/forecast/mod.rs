//! "Will it fit?": what each device of given stages needs, against what it has.

mod actions;
mod exclusions;
mod warnings;

use std::collections::BTreeSet;

use loadmaster_proto::amounts::plural;
use loadmaster_proto::bytes::Bytes;
use loadmaster_proto::error::Invalid;
pub use loadmaster_proto::plan::verdict::Verdict;
use loadmaster_proto::training::TrainingSpec;
use loadmaster_proto::training::stage::Partitioning;

use crate::{ActionsError, Interval, Margin, Prediction, PredictionError, Predictor, StageSetting};
pub use actions::{ActionsForecast, with_actions};
pub use exclusions::{Excluded, excluded};
pub use warnings::{on_top, warnings};

/// What given stages need.
#[derive(Debug, Clone, PartialEq)]
pub struct Forecast {
    /// The stages in order.
    pub stages: Vec<StageForecast>,
    /// What to know before trusting the numbers, each once.
    pub warnings: Vec<String>,
    /// Names of the measurements behind the numbers, in order and each once.
    pub sources: Vec<String>,
}

/// What the devices of a stage need.
#[derive(Debug, Clone, PartialEq)]
pub struct StageForecast {
    /// The stage as it will be trained.
    pub setting: StageSetting,
    /// What its fullest device needs.
    pub prediction: Prediction,
    /// Between which bytes the real peak is expected; none where no margin is known, or where the figures are not
    /// all that a device holds.
    pub interval: Option<Interval>,
    /// Position of its first device in the order of the pipeline.
    pub first_device: usize,
    /// What the smallest of its devices allows, and which one that is; none where nobody said.
    pub smallest: Option<SmallestDevice>,
}

/// A device in the order of the pipeline.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SmallestDevice {
    /// Its position.
    pub index: usize,
    /// Bytes that it allows.
    pub capacity: Bytes,
}

/// Why nothing is forecast.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum ForecastError {
    /// A stage cannot be predicted.
    #[error(transparent)]
    Prediction(#[from] PredictionError),
    /// Memory actions that make no sense.
    #[error(transparent)]
    Actions(#[from] Invalid),
    /// The devices are not as many as the stages ask for.
    #[error(
        "the stages need {}, and {given} {} given: name one capacity for each device",
        plural(*.needed, "device"),
        if *.given == 1 { "is" } else { "are" }
    )]
    DeviceCount {
        /// The degrees of the stages, added up.
        needed: usize,
        /// Capacities given.
        given: usize,
    },
}

impl StageForecast {
    /// The bytes that have to fit: the upper end of the interval, or what is predicted where there is none.
    pub fn needed(&self) -> Bytes {
        self.interval.map_or(self.prediction.bytes, |interval| interval.high)
    }

    /// Capacity less the bytes that have to fit; negative where they do not.
    pub fn slack(&self) -> Option<i128> {
        self.smallest.map(|device| i128::from(device.capacity.0) - i128::from(self.needed().0))
    }

    /// Whether it fits.
    pub fn verdict(&self) -> Verdict {
        let capacity = self.smallest.map(|device| device.capacity);
        Verdict::of(self.prediction.bytes, self.interval, capacity)
    }
}

impl Forecast {
    /// The worst of the stages.
    pub fn verdict(&self) -> Verdict {
        self.stages.iter().map(StageForecast::verdict).max().unwrap_or(Verdict::NotAsked)
    }

    /// The first device, in pipeline order, that has the worst verdict; none where all fit with the margin
    /// or nobody asked.
    pub fn first_too_small(&self) -> Option<usize> {
        let worst = self.verdict();
        if worst <= Verdict::Fits {
            return None;
        }
        let stage = self.stages.iter().find(|stage| stage.verdict() == worst)?;
        stage.smallest.map(|device| device.index)
    }
}

/// Forecasts stages in order on devices of the given capacities: none, or one for each device that the
/// stages' degrees add up to.
///
/// # Errors
/// A stage cannot be predicted, or the capacities are not as many as the devices.
pub fn forecast(
    predictor: &(impl Predictor + ?Sized),
    settings: &[StageSetting],
    capacities: &[Bytes],
    margin: Margin,
) -> Result<Forecast, ForecastError> {
    check_devices(settings, capacities)?;
    let predictions: Result<Vec<Prediction>, PredictionError> =
        settings.iter().map(|setting| predictor.stage(setting)).collect();
    Ok(of_predictions(predictor, settings, predictions?, capacities, margin))
}

pub fn check_devices(settings: &[StageSetting], capacities: &[Bytes]) -> Result<(), ForecastError> {
    let (needed, given) = (devices(settings), capacities.len());
    if given > 0 && given != needed {
        return Err(ForecastError::DeviceCount { needed, given });
    }
    Ok(())
}

pub fn of_predictions(
    predictor: &(impl Predictor + ?Sized),
    settings: &[StageSetting],
    predictions: Vec<Prediction>,
    capacities: &[Bytes],
    margin: Margin,
) -> Forecast {
    let mut first_device = 0;
    let mut stages = Vec::with_capacity(settings.len());
    for (&setting, &prediction) in settings.iter().zip(&predictions) {
        let next = first_device + setting.stage.devices() as usize;
        let own = capacities.get(first_device..next).unwrap_or_default();
        // The first of several, so that the answer names the first device that is too small.
        let smallest = (first_device..next).zip(own).min_by_key(|&(_, capacity)| capacity);
        stages.push(StageForecast {
            setting,
            prediction,
            interval: margin.interval_of(predictor, &prediction),
            first_device,
            smallest: smallest.map(|(index, &capacity)| SmallestDevice { index, capacity }),
        });
        first_device = next;
    }
    let sources: BTreeSet<String> = settings.iter().flat_map(|setting| predictor.sources(setting)).collect();
    Forecast {
        warnings: warnings(predictor, settings, &predictions, margin),
        sources: sources.into_iter().collect(),
        stages,
    }
}

impl From<ActionsError> for ForecastError {
    fn from(error: ActionsError) -> Self {
        match error {
            ActionsError::Invalid(invalid) => invalid.into(),
            ActionsError::Prediction(error) => error.into(),
        }
    }
}

/// Devices that stages take in all.
pub fn devices(settings: &[StageSetting]) -> usize {
    settings.iter().map(|setting| setting.stage.devices() as usize).sum()
}

/// The stages of a partitioning as they will be trained.
pub fn settings(training: &TrainingSpec, partitioning: &Partitioning) -> Vec<StageSetting> {
    let stage_count = u32::try_from(partitioning.stages().len()).unwrap_or(u32::MAX);
    (0..stage_count)
        .zip(partitioning.stages())
        .map(|(stage_index, &stage)| StageSetting { stage, stage_index, stage_count, training: *training })
        .collect()
}

#[cfg(test)]
mod tests;
