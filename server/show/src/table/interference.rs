//! Seconds that were measured on devices that were not the run's alone.

use loadmaster_proto::measure::disturbance::Disturbance;

/// What follows seconds that are too long.
pub(super) fn mark(contended: bool, oversubscribed: bool) -> &'static str {
    match (contended, oversubscribed) {
        (true, true) => " (contended, oversubscribed)",
        (true, false) => " (contended)",
        (false, true) => " (oversubscribed)",
        (false, false) => "",
    }
}

/// The warnings about measurements during which others used the devices, up to `share` of the cores of CPU slots, and about
/// those whose ranks had fewer cores than threads.
pub(super) fn warnings(contended: i32, share: f64, oversubscribed: i32) -> String {
    let number = |of: i32| u32::try_from(of).unwrap_or_default();
    let disturbance = Disturbance {
        contended: number(contended),
        others_share: share,
        oversubscribed: number(oversubscribed),
    };
    disturbance.warnings().iter().map(|warning| format!("warning: {warning}\n")).collect()
}
