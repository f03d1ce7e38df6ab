//! Bounds of what a worker tells in words about a measurement: every byte of it is stored and shown.

use loadmaster_proto::error::{Invalid, in_range};
use loadmaster_proto::measure::environment::Environment;

/// Most bytes of a text.
const MOST_TEXT: usize = 256;
/// Most reasons for which a GPU was throttled.
const MOST_REASONS: usize = 64;

/// Checks the lengths of all texts.
pub(super) fn environment(environment: &Environment) -> Result<(), Invalid> {
    for (field, text) in [
        ("device_kind", &environment.device_kind),
        ("libtorch_version", &environment.libtorch_version),
        ("cuda_version", &environment.cuda_version),
        ("driver_version", &environment.driver_version),
        ("loadmaster_version", &environment.loadmaster_version),
        ("command", &environment.command),
        ("framework", &environment.framework),
        ("framework_version", &environment.framework_version),
    ] {
        line(field, text)?;
    }
    for (field, sample) in [("before", &environment.before), ("after", &environment.after)] {
        let reasons = sample.as_ref().map(|sample| sample.throttle_reasons.as_slice()).unwrap_or_default();
        let field = format!("{field}.throttle_reasons");
        in_range(&field, reasons.len(), 0..=MOST_REASONS)?;
        reasons.iter().try_for_each(|reason| line(&field, reason))?;
    }
    Ok(())
}

fn line(field: &str, text: &str) -> Result<(), Invalid> {
    if text.len() > MOST_TEXT {
        return Err(Invalid::field(field, format!("has {} bytes, at most {MOST_TEXT}", text.len())));
    }
    Ok(())
}
