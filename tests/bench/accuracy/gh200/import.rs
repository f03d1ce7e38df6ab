//! Sailor's files as a profile document and plans.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{Context, Result, ensure};
use loadmaster_planning::predict::layer_table::TablePredictor;
use loadmaster_proto::profile::document::{BytesRow, LayerRows, LayerTable, ProfileDocument, TimesRow};
use loadmaster_proto::training::{Optimizer, Precision, RecomputePolicy, Schedule, TrainingSpec};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::json;

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

#[derive(Deserialize)]
struct PlansFile {
    plans: Vec<PlanEntry>,
}

#[derive(Deserialize)]
struct PlanEntry {
    source: String,
    micro_batch: u32,
    global_batch: u32,
    measured_iteration_seconds: f64,
    measured_peak_bytes: u64,
    nodes: u32,
    pipelines: Vec<PipelineEntry>,
}

#[derive(Deserialize)]
struct PipelineEntry {
    layers_per_stage: Vec<Vec<usize>>,
    replicas_per_stage: Vec<Vec<ReplicaEntry>>,
    data_degree_per_stage: Vec<u32>,
}

#[derive(Deserialize)]
struct ReplicaEntry {
    tensor_degree: u32,
}

/// Micro-batch, then tensor degree, then layer: forward, backward and update seconds.
type Times = BTreeMap<u32, BTreeMap<u32, BTreeMap<usize, [f64; 3]>>>;

#[derive(Deserialize)]
struct ProfileFile {
    model: ModelEntry,
    profile: Times,
    /// Tensor degree, then layer.
    layers: BTreeMap<u32, BTreeMap<usize, LayerEntry>>,
}

#[derive(Deserialize)]
struct ModelEntry {
    name: String,
}

/// One layer at a tensor degree, for one sample.
#[derive(Deserialize)]
struct LayerEntry {
    params_bytes: u64,
    act_input_bytes: u64,
    act_output_bytes: u64,
    act_mem_bytes: u64,
}

impl Imported {
    pub(crate) fn read(folder: &Path) -> Result<Self> {
        let profile: ProfileFile = parse(&folder.join("opt-350m-gh200-layer-profile.json"))?;
        let plans: PlansFile = parse(&folder.join("opt-350m-gh200-plans.json"))?;
        let plans = plans.plans.into_iter().map(plan).collect::<Result<_>>()?;
        Ok(Self { document: document(&profile)?, plans })
    }

    /// The predictor, with this many bytes on every device besides tensors.
    pub(crate) fn table(&self, overhead: u64) -> Result<TablePredictor> {
        self.table_with_copies(overhead, 0)
    }

    /// The same, with this many bytes of every parameter besides what precision and optimizer make.
    pub(crate) fn table_with_copies(&self, overhead: u64, copies: u32) -> Result<TablePredictor> {
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

fn plan(entry: PlanEntry) -> Result<Plan> {
    let [pipeline] = &entry.pipelines[..] else {
        anyhow::bail!("{}: not one kind of pipeline", entry.source);
    };
    let replicas = pipeline.data_degree_per_stage.first().copied().unwrap_or(1);
    ensure!(pipeline.data_degree_per_stage.iter().all(|&other| other == replicas), "{}", entry.source);
    let degrees: Vec<u32> = pipeline.replicas_per_stage.iter().flatten().map(|of| of.tensor_degree).collect();
    let tensor_degree = *degrees.first().context("a plan without devices")?;
    ensure!(degrees.iter().all(|&other| other == tensor_degree), "{}", entry.source);
    let stages: Option<Vec<(usize, usize)>> =
        pipeline.layers_per_stage.iter().map(|layers| Some((*layers.first()?, *layers.last()?))).collect();
    let micro_batches = entry.global_batch / entry.micro_batch / replicas;
    Ok(Plan {
        name: entry.source.rsplit('/').next().unwrap_or_default().trim_end_matches(".json").to_owned(),
        training: training(entry.micro_batch, micro_batches),
        stages: stages.with_context(|| format!("{}: a stage without layers", entry.source))?,
        tensor_degree,
        replicas: u64::from(replicas),
        measured_peak: entry.measured_peak_bytes,
        measured_seconds: entry.measured_iteration_seconds,
        nodes: entry.nodes,
    })
}

/// As the authors' scripts start Megatron-DeepSpeed: neither half precision nor recomputation, `AdamW`,
/// DeepSpeed's 1F1B.
fn training(micro_batch_size: u32, micro_batches: u32) -> TrainingSpec {
    TrainingSpec {
        precision: Precision::Fp32,
        optimizer: Optimizer::AdamW {
            learning_rate: 1e-5,
            beta1: 0.9,
            beta2: 0.999,
            epsilon: 1e-8,
            weight_decay: 4e-5,
        },
        schedule: Schedule::OneFOneB,
        micro_batch_size,
        micro_batches,
        recompute: RecomputePolicy::None,
        seed: 0,
    }
}

fn document(file: &ProfileFile) -> Result<ProfileDocument> {
    let count = file.layers.values().map(BTreeMap::len).max().unwrap_or(0);
    let layers = (0..count).map(|layer| layer_rows(file, layer)).collect();
    let names: Vec<_> = (0..count)
        .map(|layer| match layer {
            0 => json!({"name": "embedding"}),
            last if last + 1 == count => json!({"name": "head"}),
            block => json!({"name": format!("block.{}", block - 1)}),
        })
        .collect();
    let mut document: ProfileDocument = serde_json::from_value(json!({
        "format": loadmaster_proto::profile::document::FORMAT,
        "provenance": {
            "source": "eth-easl/sailor, commit cf2c8e3, MIT licence",
            "tool": "sailor",
            "device_kind": "GH200 96 GB",
            "framework": "Megatron-DeepSpeed",
            "ledger": "device"
        },
        "model": {"opaque": {"name": file.model.name, "layers": names}},
    }))?;
    document.layer_table = Some(LayerTable {
        ledger: None,
        overhead_bytes: None,
        // The authors' profiler trains with shards.
        times_without_collectives: Some(false),
        margin: None,
        copies_bytes_per_parameter: None,
        layers,
    });
    // As every document from outside: by its text, with all checks.
    Ok(ProfileDocument::parse(&document.to_text()?)?)
}

fn layer_rows(file: &ProfileFile, layer: usize) -> LayerRows {
    let bytes = file.layers.iter().filter_map(|(&tensor_degree, layers)| {
        let entry = layers.get(&layer)?;
        Some(BytesRow {
            micro_batch_size: 1,
            tensor_degree,
            parameter_bytes: Some(entry.params_bytes),
            activation_bytes: Some(entry.act_mem_bytes),
            transient_bytes: None,
            input_bytes: Some(entry.act_input_bytes),
            output_bytes: Some(entry.act_output_bytes),
            exchanged_bytes: None,
        })
    });
    let times = file.profile.iter().flat_map(|(&micro_batch_size, degrees)| {
        degrees.iter().filter_map(move |(&tensor_degree, layers)| {
            let &[forward_seconds, backward_seconds, update] = layers.get(&layer)?;
            let update_seconds = Some(update);
            Some(TimesRow {
                micro_batch_size,
                tensor_degree,
                forward_seconds,
                backward_seconds,
                update_seconds,
            })
        })
    });
    LayerRows {
        first_layer: layer,
        last_layer: layer,
        times: times.collect(),
        bytes: bytes.collect(),
        memory: Vec::new(),
    }
}
