//! Iteration times by AMP's formula, from the table's seconds alone.

use anyhow::{Context, Result};
use loadmaster::planning::predictor::Predictor;

use super::import::{Imported, Plan};
use super::settings;
use crate::goals::percent;
use crate::stats::Distribution;

/// Errors of `(m − 1) · max t_i + Σ t_i` plus the slowest stage's update (AMP, eq. 4). Messages between
/// stages and replicas are left out: the files have no bandwidths.
pub(super) fn summary(imported: &Imported, plans: &[&Plan]) -> Result<String> {
    let table = imported.table(0)?;
    let mut errors = Vec::new();
    for plan in plans {
        let stages = settings(plan)
            .iter()
            .map(|setting| table.stage(setting)?.seconds.context("the table has no times"))
            .collect::<Result<Vec<_>>>()?;
        let each = || stages.iter().map(|stage| stage.forward + stage.backward);
        let (slowest, all) = (each().fold(0.0, f64::max), each().sum::<f64>());
        let update = stages.iter().map(|stage| stage.step).fold(0.0, f64::max);
        let predicted = f64::from(plan.training.micro_batches - 1) * slowest + all + update;
        errors.push(predicted / plan.measured_seconds - 1.0);
    }
    let found = Distribution::of(&errors).context("no plan")?;
    Ok(format!("mean error {}, bias {:+.2} %", percent(found.mean), 100.0 * found.bias))
}
