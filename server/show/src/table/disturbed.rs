//! Seconds that were measured on devices that were not the run's alone.

use crate::text::percent;

/// What follows seconds that are too long.
pub(super) fn mark(contended: bool, oversubscribed: bool) -> &'static str {
    match (contended, oversubscribed) {
        (true, true) => " (contended, oversubscribed)",
        (true, false) => " (contended)",
        (false, true) => " (oversubscribed)",
        (false, false) => "",
    }
}

/// What to know of measurements during which others used the devices, up to `share` of the cores of CPU slots,
/// and of those whose ranks had fewer cores than threads.
pub(super) fn warnings(contended: i32, share: f64, oversubscribed: i32) -> String {
    let mut text = String::new();
    if contended > 0 {
        let who = if share > 0.0 {
            format!("others used up to {} of the cores during", percent(share))
        } else {
            "another process used the GPU of".to_owned()
        };
        text.push_str(&format!(
            "warning: {who} {contended} of the measurements: their bytes are right, their seconds too long; another \
             profile measures them again, or takes them for their bytes with --reuse-contended\n"
        ));
    }
    if oversubscribed > 0 {
        text.push_str(&format!(
            "warning: the ranks of {oversubscribed} of the measurements had more threads than there are cores: their \
             seconds are longer than on devices of their own\n"
        ));
    }
    text
}
