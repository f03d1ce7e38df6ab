//! Peaks that others measured on 4 to 128 GH200, predicted from a table of layers that they published.
//!
//! The plans and the table are Sailor's (SOSP'25; eth-easl/sailor, MIT, commit `cf2c8e3`; `gh200_tables.py`): OPT-350M under Megatron-DeepSpeed in
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

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use loadmaster_predict::layer_table::TablePredictor;
use loadmaster_predict::{Predictor, StageSetting};
use loadmaster_proto::accounting::Accounting;
use loadmaster_proto::profile::document::ProfileDocument;
use loadmaster_proto::training::stage::StageConfig;
use loadmaster_proto::training::{Optimizer, Schedule, TrainingSpec};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use crate::accuracy::row::{Answer, Group, Row};
use crate::accuracy::suite::Scope;
use crate::report::{Report, or_unmeasured};
use crate::stats::Distribution;
use crate::table::percent;
use loadmaster_samples as samples;

/// Bytes that the authors' simulator states for a device of this platform besides tensors.
const STATED_OVERHEAD: u64 = 4_760_000_000 + 300_000_000;
/// Bytes of every parameter that `DeepSpeed`'s `ZeRO` 1 keeps on one replica in fp32: copies of weights and gradients.
const ZERO_COPIES: u32 = 8;
/// Its name.
pub(crate) const STUDY: &str = "gh200";

/// Compares; says loudly where the data is missing.
pub(crate) fn study(report: &mut Report, _: Scope) -> Result<Vec<Row>> {
    let Some(imported) = Imported::read(STUDY)? else { return Ok(Vec::new()) };
    let (compared, alone): (Vec<&Plan>, Vec<&Plan>) =
        imported.plans.iter().partition(|plan| plan.is_compared());
    let rows = compare(&imported, &compared, STATED_OVERHEAD, 0)?;
    let names: Vec<&str> = alone.iter().map(|plan| plan.name.as_str()).collect();
    report.print(format!(
        "GH200, {} plans of OPT-350M, device ledger; left out: {}",
        compared.len(),
        names.join(", ")
    ));
    report.print(line("overhead as the authors state it, 5.06 GB", &rows));
    if let [plan] = alone[..] {
        let without = peak(&imported.table(0, 0)?, plan)?.bytes;
        let shown = plan.measured_peak.saturating_sub(without);
        let what = format!("overhead as the plan left out shows it, {:.2} GB", shown as f64 / 1e9);
        report.print(line(&what, &compare(&imported, &compared, shown, 0)?));
    }
    let copies = compare(&imported, &compared, STATED_OVERHEAD, ZERO_COPIES)?;
    report.print(line("overhead as stated, and 24 bytes per parameter", &copies));
    let none = compare(&imported, &compared, 0, 0)?;
    report.print(line("no overhead at all (for orientation)", &none));
    Ok(rows)
}

fn line(what: &str, rows: &[Row]) -> String {
    let errors: Vec<f64> = rows.iter().filter_map(Row::error).collect();
    let margin = rows.iter().filter_map(Row::margin).fold(0.0, f64::max);
    let covered = rows.iter().filter(|row| row.is_covered() == Some(true)).count();
    let within = rows.iter().filter(|row| is_within(row)).count();
    format!(
        "  {what}: {}; at a margin of {}: {covered} of {} had room, {within} peaks within",
        or_unmeasured(Distribution::of(&errors), |found| found.to_string()),
        percent(margin),
        rows.len()
    )
}

/// Whether the measured peak is within the margin of the prediction, on either side.
fn is_within(row: &Row) -> bool {
    let Ok(Answer { bytes, margin: Some(margin) }) = row.answer else { return false };
    row.measured.abs_diff(bytes) as f64 <= margin * bytes as f64
}

fn compare(imported: &Imported, plans: &[&Plan], overhead: u64, copies: u32) -> anyhow::Result<Vec<Row>> {
    let table = imported.table(overhead, copies)?;
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
                ledger: Accounting::Device,
                measured: plan.measured_peak,
                answer: Ok(Answer { bytes, margin }),
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
            stage: StageConfig {
                tensor_degree: plan.tensor_degree,
                ..StageConfig::single(first_layer, last_layer)
            },
            stage_index,
            stage_count,
            training: plan.training,
        })
        .collect()
}

/// Table and plans.
#[derive(Debug)]
pub(crate) struct Imported {
    document: ProfileDocument,
    pub(crate) plans: Vec<Plan>,
}

/// A plan that was run.
#[derive(Debug)]
pub(crate) struct Plan {
    /// Name of its file.
    pub(crate) name: String,
    pub(crate) training: TrainingSpec,
    /// First and last layer of each stage.
    pub(crate) stages: Vec<(usize, usize)>,
    pub(crate) tensor_degree: u32,
    /// Equal pipelines.
    pub(crate) replicas: u64,
    /// Bytes that `nvidia-smi` showed.
    pub(crate) measured_peak: u64,
    pub(crate) measured_seconds: f64,
    pub(crate) nodes: u32,
}

impl Plan {
    /// The plan of a single sample is left out, as in the authors' own comparison.
    pub(crate) fn is_compared(&self) -> bool {
        self.training.global_batch_size() * self.replicas > 1
    }
}

/// Micro-batch, then tensor degree, then layer: forward, backward and update seconds.
type Times = BTreeMap<u32, BTreeMap<u32, BTreeMap<usize, [f64; 3]>>>;

#[derive(Deserialize)]
struct ProfileFile {
    model: Value,
    profile: Times,
    /// Tensor degree, then layer: its bytes for one sample.
    layers: BTreeMap<u32, BTreeMap<usize, BTreeMap<String, u64>>>,
}

impl Imported {
    /// Reads the published measurements for a study; none where they are not, which is said loudly.
    pub(crate) fn read(study: &str) -> Result<Option<Self>> {
        let folder = std::env::var_os("LOADMASTER_DATA").map(|folder| PathBuf::from(folder).join("measured"));
        let Some(folder) = folder.filter(|folder| folder.is_dir()) else {
            eprintln!(
                "SKIPPED: {study}: the folder that LOADMASTER_DATA names has no folder measured. Clone eth-easl/sailor at commit \
                 cf2c8e3 from GitHub, then make the tables: tests/bench/accuracy/gh200_tables.py CLONE FOLDER"
            );
            return Ok(None);
        };
        let profile: ProfileFile = parse(&folder.join("opt-350m-gh200-layer-profile.json"))?;
        let plans: Value = parse(&folder.join("opt-350m-gh200-plans.json"))?;
        let plans = plans["plans"].as_array().context("there are no plans")?.iter().map(plan);
        let plans = plans.collect::<Result<_>>()?;
        Ok(Some(Self { document: document(&profile)?, plans }))
    }

    /// The predictor, with this many bytes on every device besides tensors, and of every parameter besides what precision and
    /// optimizer make.
    fn table(&self, overhead: u64, copies: u32) -> Result<TablePredictor> {
        let mut document = self.document.clone();
        if let Some(table) = &mut document.layer_table {
            table.overhead_bytes = Some(overhead);
            table.copies_bytes_per_parameter = (copies > 0).then_some(copies);
        }
        Ok(TablePredictor::new(&document)?)
    }

    /// The document that plans can be made from: it says how the model is trained.
    pub(crate) fn planning_document(&self) -> ProfileDocument {
        ProfileDocument { training: Some(training(1, 1)), ..self.document.clone() }
    }
}

fn parse<T: DeserializeOwned>(path: &Path) -> Result<T> {
    let text = std::fs::read(path).with_context(|| format!("{} cannot be read", path.display()))?;
    serde_json::from_slice(&text).with_context(|| format!("{} is not as expected", path.display()))
}

fn plan(entry: &Value) -> Result<Plan> {
    let source = entry["source"].as_str().unwrap_or_default();
    let number = |value: &Value| {
        let number = value.as_u64().and_then(|number| u32::try_from(number).ok());
        number.with_context(|| format!("{source}: {value} is no number"))
    };
    let list =
        |value: &Value| value.as_array().cloned().with_context(|| format!("{source}: {value} is no list"));
    let pipelines = list(&entry["pipelines"])?;
    let [pipeline] = &pipelines[..] else { anyhow::bail!("{source}: not one kind of pipeline") };
    let replicas = list(&pipeline["data_degree_per_stage"])?;
    let mut degrees = Vec::new();
    for stage in list(&pipeline["replicas_per_stage"])? {
        degrees.extend(list(&stage)?.iter().map(|replica| replica["tensor_degree"].clone()));
    }
    let equal = |values: &[Value]| {
        let first = values.first().with_context(|| format!("{source}: a plan without devices"))?;
        ensure!(values.iter().all(|other| other == first), "{source}: unlike stages");
        number(first)
    };
    let (replicas, tensor_degree) = (equal(&replicas)?, equal(&degrees)?);
    let stage = |layers: &Value| {
        let layers = list(layers)?;
        let ends = layers.first().zip(layers.last());
        let (first, last) = ends.with_context(|| format!("{source}: a stage without layers"))?;
        Ok((number(first)? as usize, number(last)? as usize))
    };
    let micro_batch = number(&entry["micro_batch"])?;
    Ok(Plan {
        name: source.rsplit('/').next().unwrap_or_default().trim_end_matches(".json").to_owned(),
        training: training(micro_batch, number(&entry["global_batch"])? / micro_batch / replicas),
        stages: list(&pipeline["layers_per_stage"])?.iter().map(stage).collect::<Result<_>>()?,
        tensor_degree,
        replicas: replicas.into(),
        measured_peak: entry["measured_peak_bytes"].as_u64().context("no measured peak")?,
        measured_seconds: entry["measured_iteration_seconds"].as_f64().context("no measured seconds")?,
        nodes: number(&entry["nodes"])?,
    })
}

/// As the authors' scripts start Megatron-DeepSpeed: neither half precision nor recomputation, `AdamW`,
/// DeepSpeed's 1F1B.
fn training(micro_batch_size: u32, micro_batches: u32) -> TrainingSpec {
    let optimizer =
        Optimizer::AdamW { learning_rate: 1e-5, beta1: 0.9, beta2: 0.999, epsilon: 1e-8, weight_decay: 4e-5 };
    let usual = samples::training(Schedule::OneFOneB, micro_batch_size, micro_batches);
    TrainingSpec { optimizer, seed: 0, ..usual }
}

fn document(file: &ProfileFile) -> Result<ProfileDocument> {
    let count = file.layers.values().map(BTreeMap::len).max().unwrap_or(0);
    let rows: Vec<Value> = (0..count).map(|layer| rows(file, layer)).collect();
    let names: Vec<_> = (0..count)
        .map(|layer| match layer {
            0 => json!({"name": "embedding"}),
            last if last + 1 == count => json!({"name": "head"}),
            block => json!({"name": format!("block.{}", block - 1)}),
        })
        .collect();
    let document = json!({
        "format": loadmaster_proto::profile::document::FORMAT,
        "provenance": {
            "source": "eth-easl/sailor, commit cf2c8e3, MIT licence",
            "tool": "sailor",
            "device_kind": "GH200 96 GB",
            "framework": "Megatron-DeepSpeed",
            "ledger": "device"
        },
        "model": {"opaque": {"name": file.model["name"], "layers": names}},
        // The authors' profiler trains with shards.
        "layer_table": {"times_without_collectives": false, "layers": rows},
    });
    // As every document from outside: by its text, with all checks.
    Ok(ProfileDocument::parse(&document.to_string())?)
}

fn rows(file: &ProfileFile, layer: usize) -> Value {
    let bytes = file.layers.iter().filter_map(|(degree, layers)| {
        let bytes = layers.get(&layer)?;
        let [parameters, activations, input, output] =
            ["params_bytes", "act_mem_bytes", "act_input_bytes", "act_output_bytes"]
                .map(|key| bytes.get(key));
        Some(json!({"micro_batch_size": 1, "tensor_degree": degree, "parameter_bytes": parameters,
                    "activation_bytes": activations, "input_bytes": input, "output_bytes": output}))
    });
    let times = file.profile.iter().flat_map(|(size, degrees)| {
        degrees.iter().filter_map(move |(degree, layers)| {
            let [forward, backward, update] = layers.get(&layer)?;
            Some(json!({"micro_batch_size": size, "tensor_degree": degree, "forward_seconds": forward,
                        "backward_seconds": backward, "update_seconds": update}))
        })
    });
    let (times, bytes): (Vec<Value>, Vec<Value>) = (times.collect(), bytes.collect());
    json!({"first_layer": layer, "last_layer": layer, "times": times, "bytes": bytes})
}
