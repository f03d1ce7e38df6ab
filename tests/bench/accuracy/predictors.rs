//! The predictors of a study, made from what was measured as a planner makes them from its store.

use loadmaster_planning::campaign::{PlannedRun, Purpose};
use loadmaster_planning::predict::choose::stored::predictor;
use loadmaster_planning::predict::choose::{AnyPredictor, Evidence, PredictorKind, Profiled};
use loadmaster_proto::measure::run::Campaign;

use crate::accuracy::cost;
use crate::accuracy::measure::{Job, Measured, Outcome};
use crate::accuracy::report::Cost;
use crate::accuracy::study::Study;

/// A predictor, where it can be made, and what its profile cost.
pub(crate) struct Made {
    pub(crate) predictor: Option<AnyPredictor>,
    pub(crate) cost: Cost,
}

/// `component`, from the `minimal` campaign.
pub(crate) fn component(
    study: &Study,
    measured: &Measured,
    problems: &mut Vec<String>,
) -> anyhow::Result<Made> {
    make(study, measured, problems, ("minimal", Campaign::Minimal), PredictorKind::Component)
}

/// `capture`, from the `stages` campaign. The stages of the paper's partitionings are measured alone, which
/// gives the same peaks byte for byte; the cost of running whole partitionings is counted apart.
pub(crate) fn capture(
    study: &Study,
    measured: &Measured,
    problems: &mut Vec<String>,
) -> anyhow::Result<Made> {
    make(study, measured, problems, ("stages", Campaign::Stages), PredictorKind::Capture)
}

fn make(
    study: &Study,
    measured: &Measured,
    problems: &mut Vec<String>,
    (name, campaign): (&'static str, Campaign),
    kind: PredictorKind,
) -> anyhow::Result<Made> {
    let settings = study.settings(campaign)?;
    let runs = study.layout(campaign)?.runs;
    let evidence = evidence(study, &runs, measured, problems);
    let made =
        predictor(Profiled { settings: &settings, model: &study.model, evidence: &evidence }, Some(kind));
    let predictor = match made {
        Ok(predictor) => Some(predictor),
        Err(error) => {
            problems.push(format!("{}: no predictor from campaign {name}: {error}", study.name));
            None
        }
    };
    Ok(Made { predictor, cost: cost::measured(study, name, &runs, measured) })
}

/// What the runs measured; those that failed are problems.
fn evidence(
    study: &Study,
    runs: &[PlannedRun],
    measured: &Measured,
    problems: &mut Vec<String>,
) -> Vec<Evidence> {
    let mut all = Vec::new();
    for (number, run) in runs.iter().enumerate() {
        let job = Job::new(&study.model, run);
        match measured.of(&job) {
            Some(Outcome::Measured { measurements, .. }) => {
                all.extend(measurements.iter().map(|measurement| Evidence {
                    name: format!(
                        "runs/{number}/measurements/{}-{}",
                        measurement.stage_index, measurement.shard
                    ),
                    measurement: measurement.clone(),
                    held_out: run.purpose == Purpose::Check,
                }));
            }
            Some(Outcome::Failed(why)) => {
                problems.push(format!("{}: {} was not profiled: {why}", study.name, job.describe()));
            }
            None => problems.push(format!("{}: {} was not run", study.name, job.describe())),
        }
    }
    all
}
