//! vTrain's single-node measurements (MICRO'24; VIA-Research/vTrain, MIT): GPT under Megatron-LM on A100.
//!
//! The runs of tensor degree 2, 4 and 8 without data and pipeline degrees give layer times: for each hidden
//! size h and tensor degree, `T = m · (L · block(b) + ends(b)) + L · update + rest`, with L blocks and m
//! micro-batches of b samples. Runs of tensor degree 1 have no such counterpart and are left out, as in the
//! comparison that this one is held against. The ends' time is given to the head, which has nearly all of its
//! arithmetic; a third of a pass is forward, as in AMP's own tables.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::path::Path;

use anyhow::{Context, Result, ensure};
use loadmaster::planning::table::Table;
use loadmaster_proto::document::ProfileDocument;
use loadmaster_proto::training::{Optimizer, Precision, RecomputePolicy, Schedule, TrainingSpec};
use serde_json::{Value, json};

use super::case::{Case, Plan, predict};
use super::fit::least_squares;

/// Megatron-LM's padded vocabulary of GPT-2: decides how many gradients the ends sum, nothing else.
const VOCABULARY: u64 = 51_200;
/// `NVLink` 3 with all links of an A100, one way, by data sheet.
const BYTES_PER_SECOND: f64 = 300e9;
/// Half precision.
const SCALAR_BYTES: u64 = 2;
/// Micro-batch sizes of the file.
const SIZES: [u32; 4] = [1, 2, 4, 8];

/// What is compared.
#[derive(Debug)]
pub(super) struct Found {
    pub(super) cases: Vec<Case>,
    /// Runs that layer times were fitted on.
    pub(super) fitted: usize,
    /// Largest relative error on those.
    pub(super) residual: f64,
}

/// A line of the file.
#[derive(Debug, Clone, Copy)]
struct Run {
    devices: u32,
    global_batch: u32,
    micro_batch: u32,
    hidden: u64,
    layers: u32,
    sequence: u64,
    tensor: u32,
    data: u32,
    pipeline: u32,
    seconds: f64,
}

impl Run {
    fn parse(line: &str) -> Result<Self> {
        let cells: Vec<f64> = line
            .split(',')
            .map(|cell| cell.trim().parse().context(cell.to_owned()))
            .collect::<Result<_>>()?;
        let [
            devices,
            global_batch,
            micro_batch,
            hidden,
            _heads,
            layers,
            sequence,
            tensor,
            data,
            pipeline,
            ms,
        ] = cells[..]
        else {
            anyhow::bail!("{} cells instead of 11: {line}", cells.len());
        };
        Ok(Self {
            devices: devices as u32,
            global_batch: global_batch as u32,
            micro_batch: micro_batch as u32,
            hidden: hidden as u64,
            layers: layers as u32,
            sequence: sequence as u64,
            tensor: tensor as u32,
            data: data as u32,
            pipeline: pipeline as u32,
            seconds: ms / 1_000.0,
        })
    }

    fn is_plain(&self) -> bool {
        self.data == 1 && self.pipeline == 1
    }

    fn micro_batches(&self) -> u32 {
        self.global_batch / self.micro_batch / self.data
    }

    /// What its time is made of, in the order of [`Times`]: blocks and ends by micro-batch size, updates, rest.
    fn factors(&self) -> Vec<f64> {
        let (layers, count) = (f64::from(self.layers), f64::from(self.micro_batches()));
        let of_size = |value: f64| SIZES.map(|size| if size == self.micro_batch { value } else { 0.0 });
        [&of_size(count * layers)[..], &of_size(count)[..], &[layers, 1.0]].concat()
    }
}

/// Seconds at one hidden size and tensor degree.
#[derive(Debug, Clone)]
struct Times(Vec<f64>);

impl Times {
    fn fit(runs: &[&Run]) -> Result<Self> {
        let rows: Vec<(Vec<f64>, f64)> = runs.iter().map(|run| (run.factors(), run.seconds)).collect();
        let times = least_squares(&rows).context("the runs do not tell layer times")?;
        ensure!(times.iter().all(|&seconds| seconds >= 0.0), "negative layer times: {times:?}");
        Ok(Self(times))
    }

    fn error(&self, run: &Run) -> f64 {
        let said: f64 = self.0.iter().zip(run.factors()).map(|(seconds, factor)| seconds * factor).sum();
        (said / run.seconds - 1.0).abs()
    }
}

/// Reads, fits and predicts.
///
/// # Errors
/// The file makes no sense.
pub(super) fn cases(folder: &Path) -> Result<Found> {
    let path = folder.join("vtrain-a100-single-node.csv");
    let text =
        std::fs::read_to_string(&path).with_context(|| format!("{} cannot be read", path.display()))?;
    let runs =
        text.lines().skip(1).filter(|line| !line.is_empty()).map(Run::parse).collect::<Result<Vec<Run>>>()?;
    let mut plain: BTreeMap<(u64, u32), Vec<&Run>> = BTreeMap::new();
    for run in runs.iter().filter(|run| run.is_plain()) {
        plain.entry((run.hidden, run.tensor)).or_default().push(run);
    }
    let (mut times, mut residual, mut fitted) = (BTreeMap::new(), 0.0_f64, 0);
    for (key, runs) in plain {
        let found = Times::fit(&runs)?;
        residual = runs.iter().map(|run| found.error(run)).fold(residual, f64::max);
        fitted += runs.len();
        times.insert(key, found);
    }
    let mut tables: BTreeMap<(u64, u32), Table> = BTreeMap::new();
    let mut cases = Vec::new();
    for run in runs.iter().filter(|run| !run.is_plain() && times.contains_key(&(run.hidden, run.tensor))) {
        let key = (run.hidden, run.layers);
        let table = match tables.entry(key) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(place) => place.insert(table(run, &times)?),
        };
        let Run { devices, global_batch, micro_batch, hidden, layers, tensor, data, pipeline, .. } = *run;
        cases.push(Case {
            name: format!("{devices} devices, {layers} × {hidden}, {global_batch} samples by {micro_batch}"),
            group: format!("{devices} {hidden} {layers} {global_batch}"),
            kind: format!("tensor {tensor}, data {data}, pipeline {pipeline}"),
            measured: run.seconds,
            predicted: predict(&*table, &plan(run))?,
        });
    }
    Ok(Found { cases, fitted, residual })
}

/// Equal numbers of blocks; the embedding in front, the head behind.
fn plan(run: &Run) -> Plan {
    let (stages, blocks) = (run.pipeline as usize, (run.layers / run.pipeline) as usize);
    let stages = (0..stages).map(|stage| {
        let first = if stage == 0 { 0 } else { 1 + stage * blocks };
        let last = (stage + 1) * blocks + usize::from(stage + 1 == stages);
        (first, last)
    });
    let training = TrainingSpec {
        precision: Precision::Bf16,
        optimizer: Optimizer::Adam {
            learning_rate: 1e-4,
            beta1: 0.9,
            beta2: 0.999,
            epsilon: 1e-8,
            weight_decay: 0.0,
        },
        schedule: Schedule::OneFOneB,
        micro_batch_size: run.micro_batch,
        micro_batches: run.micro_batches(),
        recompute: RecomputePolicy::None,
        seed: 0,
    };
    Plan {
        stages: stages.collect(),
        data: run.data,
        tensor: run.tensor,
        training,
        bytes_per_second: BYTES_PER_SECOND,
    }
}

/// The times of a model's layers as a profile document.
fn table(run: &Run, times: &BTreeMap<(u64, u32), Times>) -> Result<Table> {
    let Run { hidden, layers, sequence, .. } = *run;
    let degrees: Vec<(u32, &Times)> = times
        .iter()
        .filter(|((of, _), _)| *of == hidden)
        .map(|((_, degree), times)| (*degree, times))
        .collect();
    let group = |first: u32, last: u32, parameters: u64, passes: Option<usize>, update: Option<usize>| {
        let at = |times: &Times, index: Option<usize>| {
            index.and_then(|index| times.0.get(index)).copied().unwrap_or(0.0)
        };
        let times = degrees.iter().flat_map(|&(degree, times)| {
            SIZES.iter().enumerate().map(move |(index, size)| {
                let pass = at(times, passes.map(|offset| offset + index));
                json!({"micro_batch_size": size, "tensor_degree": degree, "forward_seconds": pass / 3.0,
                       "backward_seconds": pass * 2.0 / 3.0, "update_seconds": at(times, update)})
            })
        });
        let bytes = degrees.iter().map(|&(degree, _)| {
            // Memory is not asked of it.
            json!({"micro_batch_size": 1, "tensor_degree": degree, "activation_bytes": 0, "input_bytes": 0,
                   "parameter_bytes": parameters * SCALAR_BYTES / u64::from(degree),
                   "output_bytes": hidden * sequence * SCALAR_BYTES})
        });
        json!({"first_layer": first, "last_layer": last, "times": times.collect::<Vec<Value>>(),
               "bytes": bytes.collect::<Vec<Value>>()})
    };
    let sizes = SIZES.len();
    let ends = VOCABULARY * hidden;
    let document = json!({
        "format": loadmaster_proto::document::FORMAT,
        "provenance": {"source": "VIA-Research/vTrain, MIT licence", "tool": "least squares over its runs",
                       "device_kind": "A100", "framework": "Megatron-LM", "ledger": "allocated"},
        "model": {"opaque": {"name": format!("gpt-{layers}-{hidden}"),
                  "layers": (0..layers + 2).map(|layer| json!({"name": format!("layer{layer}")})).collect::<Vec<Value>>()}},
        "layer_table": {"times_without_collectives": false, "layers": [
            group(0, 0, ends, None, None),
            group(1, layers, 12 * hidden * hidden, Some(0), Some(2 * sizes)),
            group(layers + 1, layers + 1, ends, Some(sizes), Some(2 * sizes + 1)),
        ]},
    });
    Ok(Table::new(&ProfileDocument::parse(&document.to_string())?)?)
}
