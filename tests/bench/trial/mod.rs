//! Plans that are trained on CPU slots: who makes them, and the bytes and seconds that they take.

pub(crate) mod comparison;
pub(crate) mod largest;
pub(crate) mod scene;

use loadmaster_tests::Trial;

use crate::table::{error, mib, or_dash};

/// Who makes a plan.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Rule {
    pub(crate) name: &'static str,
    /// Options of `plan recommend`.
    pub(crate) options: &'static str,
}

/// Titles of [`cells`].
const TITLES: [&str; 9] =
    ["stages", "device", "host", "for others", "as predicted", "predicted", "measured", "error", "cores"];

/// Titles of a table of trials.
pub(crate) fn titles<'a>(own: &[&'a str]) -> Vec<&'a str> {
    [own, &TITLES].concat()
}

/// A trial as a table has it, or that there is no plan: bytes of the fullest device, and of all stages together in the host's
/// memory and set aside for others; then seconds of an iteration, of which several trials may have been measured.
pub(crate) fn cells(trial: Option<&Trial>, measured: Option<f64>) -> Vec<String> {
    let Some(trial) = trial else { return vec!["no plan".to_owned()] };
    let predicted = trial.predicted.most();
    let mut cells = vec![trial.stages.clone()];
    cells.extend(predicted.map(mib));
    if !trial.failure.is_empty() {
        let first = trial.failure.lines().next().unwrap_or_default();
        cells.push(format!("DID NOT TRAIN: {first}"));
        return cells;
    }
    cells.push(match (&trial.measured, trial.is_exact()) {
        (None, _) => "not trained".to_owned(),
        (Some(_), true) => "to the byte".to_owned(),
        (Some(measured), false) => {
            let most = measured.most();
            let [device, host, peer_pools] = most.map(mib);
            format!(
                "NO: {device} ({}), {host}, {peer_pools}",
                error(predicted[0] as f64 / most[0] as f64 - 1.0)
            )
        }
    });
    let text = |seconds| format!("{seconds:.4} s");
    cells.extend([text(trial.predicted_seconds), or_dash(measured, text)]);
    cells.push(or_dash(measured, |seconds| error(trial.predicted_seconds / seconds - 1.0)));
    cells.push(if trial.contended { "contended" } else { "" }.to_owned());
    cells
}
