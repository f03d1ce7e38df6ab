//! The trials of a validation, side by side.

use loadmaster_proto::wire::v1::run::State;
use loadmaster_proto::wire::v1::{MemoryFigure, Trial, Trials};

use crate::table::grid::Grid;
use crate::table::grid::Side::{Left, Right};
use crate::table::{accounting, common_accounting, figure, id, interference};
use crate::text::terminal_abilities::Look;
use crate::text::{plain, ratio, seconds, word};

/// A row per plan, in the order of the predictions: its places, peaks and times, predicted and measured.
pub fn all(trials: &Trials, look: Look) -> String {
    let rows = &trials.trials;
    let figures = rows.iter().flat_map(|trial| [&trial.predicted_peak, &trial.measured_peak]).flatten();
    let common = common_accounting(figures);
    let note = common.map_or_else(String::new, |common| format!(" ({})", accounting(common)));
    let mut grid = Grid::new(
        &[
            ("predicted", Right),
            ("measured", Right),
            ("plan", Left),
            (&format!("predicted peak{note}"), Right),
            ("measured", Right),
            ("error", Right),
            ("predicted iteration", Right),
            ("measured", Right),
            ("error", Right),
            ("run", Left),
        ],
        look,
    );
    for trial in rows {
        let bytes = |of: &Option<MemoryFigure>| or_nothing(of.as_ref().map(|of| figure(of, common)), look);
        let mark = interference::mark(trial.contended, trial.oversubscribed);
        grid.row([
            place(trial.predicted_rank, look),
            place(trial.measured_rank, look),
            what(trial),
            bytes(&trial.predicted_peak),
            bytes(&trial.measured_peak),
            or_nothing(trial.peak_error_ratio.map(ratio), look),
            or_nothing(trial.predicted_iteration_seconds.map(seconds), look),
            or_nothing(trial.measured_iteration_seconds.map(|taken| seconds(taken) + mark), look),
            or_nothing(trial.iteration_error_ratio.map(ratio), look),
            run(trial),
        ]);
    }
    let mut text = grid.render();
    if !trials.ranking_quantity.is_empty() {
        text.push_str(&format!("ranked by {}\n", plain(&trials.ranking_quantity)));
    }
    for trial in rows.iter().filter(|trial| !trial.failure_message.is_empty()) {
        text.push_str(&format!("{} failed: {}\n", what(trial), plain(&trial.failure_message)));
    }
    text
}

fn or_nothing(text: Option<String>, look: Look) -> String {
    text.unwrap_or_else(|| look.none().to_owned())
}

/// The plan, or which stage of it was trained alone.
fn what(trial: &Trial) -> String {
    match trial.stage {
        Some(stage) => format!("{} stage {stage}", id(&trial.plan)),
        None => id(&trial.plan),
    }
}

fn place(rank: i32, look: Look) -> String {
    or_nothing((rank > 0).then(|| format!("#{rank}")), look)
}

fn run(trial: &Trial) -> String {
    match trial.state() {
        State::Succeeded => id(&trial.run),
        state => format!("{} {}", id(&trial.run), word(state.as_str_name(), "")),
    }
}

/// `trial 2 of 3`, as long as one of them is running; how many are done otherwise.
pub fn progress(trials: &[Trial]) -> String {
    let with = |states: &[State]| trials.iter().filter(|trial| states.contains(&trial.state())).count();
    let running = with(&[State::Running]);
    let done = with(&[State::Succeeded, State::OutOfMemory, State::Failed, State::Cancelled]);
    let failed = with(&[State::OutOfMemory, State::Failed]);
    let all = trials.len();
    let mut text = match running {
        0 => format!("{done} of {all} trials done"),
        1 => format!("trial {} of {all}", done + 1),
        _ => format!("trials {} to {} of {all}", done + 1, done + running),
    };
    if failed > 0 {
        text.push_str(&format!(", {failed} failed"));
    }
    text
}

#[cfg(test)]
mod tests {
    use loadmaster_proto::wire::v1::MemoryAccounting;

    use super::*;

    fn peak(bytes: i64) -> Option<MemoryFigure> {
        Some(MemoryFigure {
            bytes,
            accounting: MemoryAccounting::Allocated.into(),
            ..MemoryFigure::default()
        })
    }

    fn trial(plan: &str, predicted_rank: i32, state: State) -> Trial {
        Trial {
            plan: format!("plans/{plan}"),
            run: format!("runs/{plan}1"),
            state: state.into(),
            predicted_rank,
            predicted_peak: peak(1 << 20),
            predicted_iteration_seconds: Some(0.5),
            ..Trial::default()
        }
    }

    /// Places, errors and a failure: nothing that a trial showed is left out.
    #[test]
    fn trials_are_side_by_side() {
        let good = Trial {
            measured_rank: 1,
            measured_peak: peak(2 << 20),
            peak_error_ratio: Some(-0.5),
            measured_iteration_seconds: Some(0.4),
            iteration_error_ratio: Some(0.25),
            ..trial("b", 2, State::Succeeded)
        };
        let failed =
            Trial { failure_message: "asked for 8 B".to_owned(), ..trial("a", 1, State::OutOfMemory) };
        let trials =
            Trials { trials: vec![failed, good], ranking_quantity: "measured peak bytes".to_owned() };
        assert_eq!(
            all(&trials, Look::PLAIN),
            "predicted  measured  plan  predicted peak (allocated)  measured    error  predicted iteration  measured    error  run\n       \
             #1         -  a                       1.00 MiB         -        -             500.0 ms         -        -  a1 out of memory\n       \
             #2        #1  b                       1.00 MiB  2.00 MiB  -50.0 %             500.0 ms  400.0 ms  +25.0 %  b1\n\
             ranked by measured peak bytes\n\
             a failed: asked for 8 B\n"
        );
    }

    /// Pins that seconds of a trial that was disturbed, or whose ranks shared cores, are flagged.
    #[test]
    fn seconds_that_are_too_long_are_marked() {
        let measured = |contended, oversubscribed| Trial {
            measured_iteration_seconds: Some(0.4),
            contended,
            oversubscribed,
            ..trial("a", 1, State::Succeeded)
        };
        let shown = |trial| all(&Trials { trials: vec![trial], ..Trials::default() }, Look::PLAIN);
        assert!(!shown(measured(false, false)).contains("400.0 ms ("));
        assert!(shown(measured(true, false)).contains("400.0 ms (contended)"));
        assert!(shown(measured(false, true)).contains("400.0 ms (oversubscribed)"));
        assert!(shown(measured(true, true)).contains("400.0 ms (contended, oversubscribed)"));
    }

    /// Progress counts trials, not runs, and names failures as they come.
    #[test]
    fn progress_counts_trials() {
        let of = |states: &[State]| {
            progress(&states.iter().map(|&state| trial("a", 1, state)).collect::<Vec<_>>())
        };
        assert_eq!(of(&[State::Queued, State::Queued]), "0 of 2 trials done");
        assert_eq!(of(&[State::Succeeded, State::Running, State::Queued]), "trial 2 of 3");
        assert_eq!(of(&[State::Failed, State::Running, State::Running]), "trials 2 to 3 of 3, 1 failed");
        assert_eq!(of(&[State::Succeeded, State::OutOfMemory]), "2 of 2 trials done, 1 failed");
    }
}
