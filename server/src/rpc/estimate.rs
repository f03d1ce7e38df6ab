//! What a campaign that nobody has begun would cost, as far as earlier runs tell.

use loadmaster_proto::wire::v1;

use crate::store::records::{NewRun, Pace};

/// Writes the estimate of `runs` into the profile that they would make.
pub(super) fn write(profile: &mut v1::Profile, runs: &[NewRun], pace: Option<Pace>) {
    let kind = &profile.device_kind;
    let Some(pace) = pace else {
        profile.estimate_origin = match runs {
            [] => String::new(),
            _ => format!("no run has ended on {kind} devices yet, so nobody knows how long one takes"),
        };
        return;
    };
    let devices: f64 = runs.iter().map(|run| f64::from(run.device_count)).sum();
    let device_seconds = devices * pace.seconds;
    profile.estimated_device_seconds = Some(device_seconds);
    // Shorter than its longest run nothing gets, however many devices there are.
    let least = if runs.is_empty() { 0.0 } else { pace.seconds };
    profile.estimated_seconds =
        (profile.runs_at_once > 0).then(|| (device_seconds / f64::from(profile.runs_at_once)).max(least));
    let what = if pace.same_model { "of this model" } else { "of other models" };
    profile.estimate_origin =
        format!("as long as the {} newest runs {what} held {kind} devices on average", pace.runs);
    if pace.runs == 1 {
        profile.estimate_origin = format!("as long as the only run {what} held {kind} devices");
    }
}
