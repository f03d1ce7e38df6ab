//! Sailor's runs of OPT-350M (SOSP'25; eth-easl/sailor, MIT) under Megatron-DeepSpeed, priced from the per-layer
//! times that the authors published with them. The run of a single sample is left out, as in their comparison.
//!
//! Their profile lists longer forward passes for one sample than for two and four, at every tensor degree: layer
//! by layer a profiler waits for the host. The passes of fewer samples are therefore taken to be no longer than
//! those of more, which concerns the three runs with one sample per micro-batch; the table as it is listed is
//! compared too.
//!
//! A replica of a stage fills a node of four devices, so stages and replicas talk over the nodes' network:
//! Slingshot, 200 Gbit/s for each device by data sheet. DeepSpeed's engine computes nothing while it sends.
//!
//! No number is fitted on these runs, but both choices, of the table and of transfers that do not overlap, were
//! made with their errors at hand; the report shows what each of them changes.

use std::path::Path;

use anyhow::Result;
use loadmaster::planning::table::Table;

use super::case::{Case, Plan, predict};
use crate::gh200::import::Imported;

/// Between the devices of two nodes, one way.
const BYTES_PER_SECOND: f64 = 25e9;

/// Reads and predicts: from the profile without waiting, and as it is listed.
///
/// # Errors
/// The files make no sense.
pub(super) fn cases(folder: &Path) -> Result<[Vec<Case>; 2]> {
    let imported = Imported::read(folder)?;
    Ok([
        from_table(&imported, &imported.table_without_waiting()?)?,
        from_table(&imported, &imported.table(0)?)?,
    ])
}

fn from_table(imported: &Imported, table: &Table) -> Result<Vec<Case>> {
    let compared = imported.plans.iter().filter(|plan| plan.training.global_batch_size() * plan.replicas > 1);
    compared
        .map(|plan| {
            let data = u32::try_from(plan.replicas)?;
            let as_run = Plan {
                stages: plan.stages.clone(),
                data,
                tensor: plan.tensor_degree,
                training: plan.training,
                bytes_per_second: BYTES_PER_SECOND,
            };
            let samples = plan.training.global_batch_size() * plan.replicas;
            Ok(Case {
                name: plan.name.clone(),
                group: format!("{} nodes, {samples} samples", plan.nodes),
                kind: format!("tensor {}, data {data}, pipeline {}", plan.tensor_degree, plan.stages.len()),
                measured: plan.measured_seconds,
                predicted: predict(table, &as_run)?,
            })
        })
        .collect()
}
