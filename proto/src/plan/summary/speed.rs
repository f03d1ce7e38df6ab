//! Rates that follow from the seconds of an iteration.

use super::SummarizedPlan;
use crate::cluster::catalog;
use crate::wire::v1;

/// FLOPs of a teraFLOP.
const TERA: f64 = 1e12;

/// Fills in the rates of a plan with usable seconds, and the reason why some are not known.
pub(super) fn fill(message: &mut v1::PlanSummary, of: &SummarizedPlan<'_>, seconds: f64) {
    let rate = message.global_batch_size as f64 / seconds;
    message.samples_per_second = Some(rate);
    message.iteration_price = message.hourly_price.map(|price| price * seconds / 3600.0);
    let devices = of.devices() as f64;
    let Some(tokens) = of.model.tokens_per_sample else {
        message.throughput_note = format!("no tokens/s: {}", of.model.without_tokens);
        return;
    };
    message.tokens_per_second = Some(rate * tokens as f64);
    let Some(flops) = of.model.flops_per_sample.filter(|_| devices > 0.0) else {
        message.throughput_note = "no MFU: FLOPs of a layer unknown".to_owned();
        return;
    };
    message.device_tokens_per_second = Some(rate * tokens as f64 / devices);
    let teraflops = rate * flops / devices / TERA;
    message.device_teraflops_per_second = Some(teraflops);
    match peak(of) {
        Ok(peak) => message.model_flops_utilization = Some(teraflops / (peak / devices)),
        Err(why) => message.throughput_note = why,
    }
}

/// Peak rate of all devices together, 10¹² FLOPs per second, in the number format of the training.
fn peak(of: &SummarizedPlan<'_>) -> Result<f64, String> {
    let (is_bf16, format) = match of.plan.training.unwrap_or_default().precision() {
        v1::Precision::Bf16 => (true, "bf16"),
        v1::Precision::Fp32 | v1::Precision::Unspecified => (false, "fp32"),
    };
    let rate = |group: &v1::DeviceGroup| {
        let unknown = || match group.kind.as_str() {
            "" => "no MFU: device kind unknown".to_owned(),
            kind => format!("no MFU: {format} FLOP/s of {kind} unknown"),
        };
        let row = catalog::find(&group.kind).ok_or_else(unknown)?;
        let rate = if is_bf16 { row.peak.bf16 } else { row.peak.fp32 };
        rate.map(|rate| rate * f64::from(group.count.max(0))).ok_or_else(unknown)
    };
    of.plan.devices.iter().map(rate).sum()
}
