//! What runs measured.

use jiff::Timestamp;
use loadmaster_filter::Value;
use loadmaster_proto::measure::measurement::Measurement;
use loadmaster_proto::name::{ProfileName, RunName};
use sqlx::FromRow;

use crate::store::columns::{Stored, Time};
use crate::store::error::{Result, StoreError};

/// A measurement with where it belongs.
#[derive(Debug, Clone, PartialEq, FromRow)]
pub struct MeasurementRecord {
    #[sqlx(rename = "run_id", try_from = "Stored<String>")]
    pub run: RunName,
    /// The profile that it was asked for.
    #[sqlx(rename = "profile_id", try_from = "Stored<Option<String>>")]
    pub profile: Option<ProfileName>,
    /// Predictions of that profile are held against it, and nothing is learnt from it.
    pub held_out: bool,
    #[sqlx(flatten, try_from = "MeasurementRow")]
    pub measurement: Measurement,
    /// When it was stored.
    #[sqlx(rename = "create_time", try_from = "Time")]
    pub time: Timestamp,
}

impl MeasurementRecord {
    /// `runs/{run}/measurements/{stage_index}-{shard}`.
    pub fn name(&self) -> String {
        let Measurement { stage_index, shard, .. } = self.measurement;
        format!("{}/measurements/{stage_index}-{shard}", self.run)
    }
}

impl MeasurementRecord {
    /// What a field of [`MEASUREMENTS`](crate::store::fields::MEASUREMENTS) is in a row that is at hand.
    pub(in crate::store) fn value(&self, field: &str) -> Option<Value> {
        let of = &self.measurement;
        let count = |count: usize| i64::try_from(count).ok().map(Value::Integer);
        let text = |text: &str| Some(Value::Text(text.to_owned()));
        match field {
            "run" => text(self.run.id()),
            "stage_index" => Some(Value::Integer(of.stage_index.into())),
            "stage_count" => Some(Value::Integer(of.stage_count.into())),
            "shard" => Some(Value::Integer(of.shard.into())),
            "solo" => Some(Value::Truth(of.solo)),
            "first_layer" => count(of.stage.first_layer),
            "last_layer" => count(of.stage.last_layer),
            "data_parallel_size" => Some(Value::Integer(of.stage.data_degree.into())),
            "tensor_parallel_size" => Some(Value::Integer(of.stage.tensor_degree.into())),
            "micro_batch_size" => Some(Value::Integer(of.micro_batch_size.into())),
            "in_flight_micro_batch_count" => Some(Value::Integer(of.in_flight.into())),
            "held_out" => Some(Value::Truth(self.held_out)),
            "device_kind" => text(&of.environment.device_kind),
            "peak" => i64::try_from(of.peak_allocated.0).ok().map(Value::Integer),
            "iteration_seconds" => Some(Value::Real(of.iteration_seconds)),
            "create_time" => Some(Value::Time(self.time)),
            _ => None,
        }
    }
}

/// A measurement, as a profile has it.
#[derive(FromRow)]
pub(super) struct MeasurementRow {
    layer_offset: i32,
    #[sqlx(json)]
    measurement: Measurement,
    losses: Vec<f64>,
}

impl TryFrom<MeasurementRow> for Measurement {
    type Error = StoreError;

    fn try_from(row: MeasurementRow) -> Result<Self> {
        let MeasurementRow { layer_offset, measurement, losses } = row;
        moved(Self { losses, ..measurement }, layer_offset)
    }
}

/// The measurement of an equal stage elsewhere in a chain: every index of a layer is another one.
fn moved(mut measurement: Measurement, offset: i32) -> Result<Measurement> {
    let layer = |index: usize| {
        let moved = i64::try_from(index).ok().and_then(|index| index.checked_add(i64::from(offset)));
        moved.and_then(|index| usize::try_from(index).ok()).ok_or_else(|| {
            StoreError::corrupt(format!(
                "a stored measurement of layer {index} is reused for another layer with offset {offset}. {index} plus \
                 {offset} is not a valid layer index"
            ))
        })
    };
    measurement.stage.first_layer = layer(measurement.stage.first_layer)?;
    measurement.stage.last_layer = layer(measurement.stage.last_layer)?;
    for times in &mut measurement.layers {
        times.layer = layer(times.layer)?;
    }
    if let Some(trace) = &mut measurement.trace {
        trace.layer = layer(trace.layer)?;
    }
    Ok(measurement)
}
