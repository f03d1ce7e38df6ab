//! How long the passes of a stage take, from the time rows of a table.

use loadmaster_proto::document::{LayerRows, TimesRow};
use loadmaster_proto::training::RecomputePolicy;

use super::Table;
use super::cells::{Cell, Scales, read};
use super::memory::Setting;
use crate::planning::predictor::{StageSeconds, StageSetting};

/// Seconds on one device of a stage, collectives not included; none where a layer has no times.
pub(super) fn seconds(table: &Table, setting: &StageSetting) -> Option<StageSeconds> {
    let at = Setting::of(setting);
    let mut seconds = StageSeconds::default();
    for rows in table.groups(setting.stage) {
        let first = rows.first_layer.max(setting.stage.first_layer);
        let count = (rows.last_layer.min(setting.stage.last_layer) + 1 - first) as f64;
        let forward = time(rows, |row| Some(row.forward_seconds), Scales::WithSamples, at)?;
        let backward = time(rows, |row| Some(row.backward_seconds), Scales::WithSamples, at)?;
        let again = if setting.training.recompute == RecomputePolicy::None { 0.0 } else { forward };
        seconds.forward += count * forward;
        seconds.backward += count * (backward + again);
        // A table without optimizer times still tells the passes.
        seconds.step += count * time(rows, |row| row.update_seconds, Scales::Never, at).unwrap_or(0.0);
    }
    Some(seconds)
}

fn time(rows: &LayerRows, field: fn(&TimesRow) -> Option<f64>, scales: Scales, at: Setting) -> Option<f64> {
    let cells: Vec<Cell> = rows
        .times
        .iter()
        .filter_map(|row| {
            let (micro_batch_size, tensor_degree) = (row.micro_batch_size, row.tensor_degree);
            Some(Cell { micro_batch_size, tensor_degree, value: field(row)? })
        })
        .collect();
    Some(read(&cells, scales, at.micro_batch_size, at.tensor_degree)?.0)
}
