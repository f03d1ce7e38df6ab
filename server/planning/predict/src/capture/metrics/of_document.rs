//! CAPTURE's metrics of a document: listed by layer, or derived from its measured stages.

use std::collections::BTreeSet;

use loadmaster_proto::accounting::Accounting;
use loadmaster_proto::bytes::Bytes;
use loadmaster_proto::profile::document::{MeasuredStage, MemoryRow, ProfileDocument};
use loadmaster_proto::training::scenario::Scenario;

use crate::capture::metrics::{self, AddedMemory, LayerMetrics, Setting, StagePeak};
use crate::profiling::neighbours::Neighbours;

/// Most metrics that are made of a document: a few lines may stand for every layer at every setting.
const MAX_METRICS: usize = 200_000;

/// The metrics with the memory accounting of all of them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DocumentMetrics {
    /// Every layer at every setting.
    pub layers: Vec<LayerMetrics>,
    /// Of all of them.
    pub ledger: Accounting,
}

/// The metrics that a document lists, or else those that follow from the stages that it measured.
///
/// # Errors
/// It has neither, stages that cannot be compared, or far too many settings.
pub fn of(document: &ProfileDocument) -> Result<DocumentMetrics, String> {
    let groups = document.layer_table.iter().flat_map(|table| &table.layers);
    check_count(
        groups
            .map(|rows| (rows.last_layer + 1 - rows.first_layer).saturating_mul(rows.memory.len()))
            .fold(0, usize::saturating_add),
    )?;
    let listed = listed(document);
    if !listed.layers.is_empty() {
        return Ok(listed);
    }
    if document.stages.is_empty() {
        return Err(
            "the profile has neither measured stages nor `memory` rows in its layer_table. The `capture` predictor \
             needs one of them"
                .to_owned(),
        );
    }
    derived(document)
}

fn check_count(count: usize) -> Result<(), String> {
    if count <= MAX_METRICS {
        return Ok(());
    }
    Err(format!(
        "the profile has {count} memory values of layers, but at most {MAX_METRICS} are allowed. Remove micro-batch \
         sizes, or numbers of micro-batches in flight"
    ))
}

fn listed(document: &ProfileDocument) -> DocumentMetrics {
    let table = document.layer_table.as_ref();
    let groups = table.into_iter().flat_map(|table| &table.layers);
    let layers = groups
        .flat_map(|rows| {
            let each = rows.first_layer..=rows.last_layer;
            each.flat_map(|layer| rows.memory.iter().map(move |row| metrics_of(layer, row)))
        })
        .collect();
    let ledger = table.and_then(|table| table.ledger).unwrap_or(document.provenance.ledger);
    DocumentMetrics { layers, ledger }
}

fn metrics_of(layer: usize, row: &MemoryRow) -> LayerMetrics {
    let MemoryRow { micro_batch_size, in_flight, parallelism, degree, isolated_bytes, added_bytes } = *row;
    LayerMetrics {
        layer,
        setting: Setting { scenario: Scenario { parallelism, degree }, micro_batch_size, in_flight },
        isolated: isolated_bytes.map(Bytes),
        // The document does not say beside which layers; the nearest one is the least that can be meant.
        added: (layer > 0)
            .then_some(added_bytes)
            .flatten()
            .map(|bytes| AddedMemory { bytes, neighbour_first_layer: layer.saturating_sub(1) }),
    }
}

/// Peaks of stages that were trained otherwise than the document's training says are left out: nothing may
/// be subtracted across them.
fn derived(document: &ProfileDocument) -> Result<DocumentMetrics, String> {
    let training = document.training;
    let as_trained = |stage: &&MeasuredStage| {
        stage.schedule.is_none_or(|of| training.is_none_or(|training| training.schedule == of))
            && stage.recompute.is_none_or(|of| training.is_none_or(|training| training.recompute == of))
    };
    let stages: Vec<&MeasuredStage> = document.stages.iter().filter(as_trained).collect();
    let mut ledgers = stages.iter().map(|stage| stage.ledger.unwrap_or(document.provenance.ledger));
    let Some(ledger) = ledgers.next() else {
        return Err(
            "no stage of the profile was measured with the schedule and recompute policy of its `training`. Correct \
             `training`, or add stages that were measured with both"
                .to_owned(),
        );
    };
    if ledgers.any(|other| other != ledger) {
        return Err(
            "the stages of the profile were measured with different memory accountings (allocated, reserved or device \
             bytes). Measure all stages with the same accounting"
                .to_owned(),
        );
    }
    let peaks: Vec<StagePeak> = stages
        .iter()
        .map(|stage| StagePeak {
            first_layer: stage.first_layer,
            last_layer: stage.last_layer,
            setting: Setting {
                scenario: stage.scenario(),
                micro_batch_size: stage.micro_batch_size,
                in_flight: stage.in_flight,
            },
            peak: Bytes(stage.peak_bytes),
        })
        .collect();
    let names = document.model.layer_names();
    let settings: BTreeSet<Setting> = peaks.iter().map(|peak| peak.setting).collect();
    check_count(settings.len().saturating_mul(names.len()))?;
    let metrics = metrics::derive(&names, &Neighbours::from_first_layer(names.len()), &[], &peaks);
    Ok(DocumentMetrics { layers: metrics.layers, ledger })
}
