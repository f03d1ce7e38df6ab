//! Peaks that others measured on 4 to 128 GH200, predicted from a table of layers that they published.
//!
//! The plans and the table are Sailor's (SOSP'25; eth-easl/sailor, MIT): OPT-350M under Megatron-DeepSpeed in
//! fp32 with `AdamW`, tensor degree 4, up to 4 stages under 1F1B. Peaks are `nvidia-smi`'s, the device
//! ledger. One plan of the 15, with a global batch of one sample, is left out of the comparison, as in the
//! authors' own.
//!
//! Nothing is fitted on the peaks that are compared: bytes per parameter follow from precision and
//! optimizer, activations and edges from the table, transient bytes from `table/2`'s rule. What a device
//! holds besides tensors cannot follow from a table; it is taken from the authors' simulator, which states
//! 4.76 GB for kernels on this platform and 0.3 GB more. As a check the same is done with the bytes that
//! the plan left out shows, with the copies that `DeepSpeed` keeps under `ZeRO` 1 in fp32 (24 bytes per parameter instead
//! of 16), and with no overhead at all.
//!
//! Whether the default margin of imported tables holds is counted both ways: whether devices had room for the
//! prediction and its margin, and whether the peaks were within it.

pub(crate) mod import;

use std::path::{Path, PathBuf};

use loadmaster_planning::predict::layer_table::TablePredictor;
use loadmaster_planning::predict::{Predictor, StageSetting};
use loadmaster_proto::ledger::Ledger;
use loadmaster_proto::training::stage::StageConfig;

use crate::accuracy::goals::percent;
use crate::accuracy::row::{Answer, Group, Row};
use crate::accuracy::stats::Distribution;
use import::{Imported, Plan};

/// Bytes that the authors' simulator states for a device of this platform besides tensors.
const STATED_OVERHEAD: u64 = 4_760_000_000 + 300_000_000;
/// Bytes of every parameter that `DeepSpeed`'s `ZeRO` 1 keeps on one replica in fp32: copies of weights and gradients.
const ZERO_COPIES: u32 = 8;
/// Its name.
pub(crate) const STUDY: &str = "gh200";

/// Where the published measurements are; none where they are not.
pub(crate) fn folder() -> Option<PathBuf> {
    let base = match std::env::var_os("LOADMASTER_DATA") {
        Some(folder) => PathBuf::from(folder),
        None => Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2)?.join("shared/data"),
    };
    let measured = base.join("measured");
    measured.is_dir().then_some(measured)
}

/// Compares; says loudly where the data is missing.
///
/// # Errors
/// The files are there and make no sense.
pub(crate) fn rows() -> anyhow::Result<Vec<Row>> {
    let Some(folder) = folder() else {
        eprintln!(
            "SKIPPED: the GH200 plans: ../shared/data/measured is not there; name its parent with \
             LOADMASTER_DATA"
        );
        return Ok(Vec::new());
    };
    let imported = Imported::read(&folder)?;
    let (alone, compared): (Vec<&Plan>, Vec<&Plan>) =
        imported.plans.iter().partition(|plan| plan.training.global_batch_size() * plan.replicas == 1);
    let rows = compare(&imported, &compared, STATED_OVERHEAD, 0)?;
    println!("GH200, {} plans of OPT-350M, device ledger; left out: {}", compared.len(), names(&alone));
    print_line("overhead as the authors state it, 5.06 GB", &rows);
    if let [plan] = alone[..] {
        let without = peak(&imported.table(0)?, plan)?.bytes;
        let shown = plan.measured_peak.saturating_sub(without);
        let calibrated = compare(&imported, &compared, shown, 0)?;
        print_line(
            &format!("overhead as the plan left out shows it, {:.2} GB", shown as f64 / 1e9),
            &calibrated,
        );
    }
    let copies = compare(&imported, &compared, STATED_OVERHEAD, ZERO_COPIES)?;
    print_line("overhead as stated, and 24 bytes per parameter", &copies);
    print_line("no overhead at all (for orientation)", &compare(&imported, &compared, 0, 0)?);
    println!();
    Ok(rows)
}

fn names(plans: &[&Plan]) -> String {
    plans.iter().map(|plan| plan.name.as_str()).collect::<Vec<_>>().join(", ")
}

fn print_line(what: &str, rows: &[Row]) {
    let errors: Vec<f64> = rows.iter().filter_map(Row::error).collect();
    if let Some(found) = Distribution::of(&errors) {
        let margin = rows.iter().filter_map(Row::margin).fold(0.0, f64::max);
        let covered = rows.iter().filter(|row| row.is_covered() == Some(true)).count();
        let within = rows.iter().filter(|row| is_within(row)).count();
        println!(
            "  {what}: mean {}, bias {:+.2} %, lowest {}, max {}; at a margin of {}: {covered} of {} had room, \
             {within} peaks within",
            percent(found.mean),
            100.0 * found.bias,
            percent(found.lowest),
            percent(found.max),
            percent(margin),
            rows.len()
        );
    }
}

/// Whether the measured peak is within the margin of the prediction, on either side.
fn is_within(row: &Row) -> bool {
    match row.answer {
        Answer::Bytes { bytes, margin: Some(margin) } => {
            row.measured.abs_diff(bytes) as f64 <= margin * bytes as f64
        }
        _ => false,
    }
}

fn compare(imported: &Imported, plans: &[&Plan], overhead: u64, copies: u32) -> anyhow::Result<Vec<Row>> {
    let table = imported.table_with_copies(overhead, copies)?;
    plans
        .iter()
        .map(|plan| {
            let Peak { stage, bytes, margin } = peak(&table, plan)?;
            Ok(Row {
                study: STUDY.to_owned(),
                model: "opt-350m".to_owned(),
                parallelism: format!("tensor {}", plan.tensor_degree),
                group: Group::Imported,
                predictor: table.name(),
                stage: format!("{} (stage {stage})", plan.name),
                micro_batch_size: plan.training.micro_batch_size,
                in_flight: settings(plan)[stage].in_flight(),
                ledger: Ledger::Device,
                measured: plan.measured_peak,
                answer: Answer::Bytes { bytes, margin },
            })
        })
        .collect()
}

/// The fullest stage of a plan.
#[derive(Debug, Default)]
struct Peak {
    stage: usize,
    /// Predicted.
    bytes: u64,
    margin: Option<f64>,
}

fn peak(table: &TablePredictor, plan: &Plan) -> anyhow::Result<Peak> {
    let mut fullest = Peak::default();
    for (stage, setting) in settings(plan).iter().enumerate() {
        let predicted = table.stage(setting)?;
        if predicted.bytes.0 > fullest.bytes {
            fullest = Peak { stage, bytes: predicted.bytes.0, margin: predicted.margin };
        }
    }
    Ok(fullest)
}

/// The stages of one pipeline of a plan; its replicas are alike.
fn settings(plan: &Plan) -> Vec<StageSetting> {
    let stage_count = plan.stages.len() as u32;
    (0..stage_count)
        .zip(&plan.stages)
        .map(|(stage_index, &(first_layer, last_layer))| StageSetting {
            stage: StageConfig { first_layer, last_layer, data_degree: 1, tensor_degree: plan.tensor_degree },
            stage_index,
            stage_count,
            training: plan.training,
        })
        .collect()
}
