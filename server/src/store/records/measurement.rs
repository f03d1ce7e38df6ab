//! What runs measured.

use jiff::Timestamp;
use loadmaster_proto::measure::measurement::Measurement;
use loadmaster_proto::name::{ProfileName, RunName};
use sqlx::FromRow;

use crate::store::columns::Stored;
use crate::store::error::{Result, StoreError};
use crate::store::time::Time;

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
            StoreError::corrupt(format!("layer {index} of a reused measurement cannot be moved by {offset}"))
        })
    };
    measurement.stage.first_layer = layer(measurement.stage.first_layer)?;
    measurement.stage.last_layer = layer(measurement.stage.last_layer)?;
    for times in &mut measurement.layers {
        times.layer = layer(times.layer)?;
    }
    if let Some(tape) = &mut measurement.tape {
        tape.layer = layer(tape.layer)?;
    }
    Ok(measurement)
}
