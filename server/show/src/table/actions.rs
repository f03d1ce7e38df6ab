//! What stages do so that they hold less: a row per action, and what goes where.

use loadmaster_proto::training::actions::Action;
use loadmaster_proto::wire::v1::{CopyTraffic, OffloadTraffic, StageMemoryOptimizations};

use super::grid::Grid;
use super::grid::Side::{Left, Right};
use crate::text::bytes;
use crate::text::seconds;
use crate::text::terminal_abilities::Look;

/// Most actions of a stage that are listed.
const MOST: usize = 12;

/// A stage's actions, what they are predicted to move, and what they moved.
#[derive(Debug, Clone, Copy)]
pub(super) struct StageActionFigures<'a> {
    pub(super) actions: Option<&'a StageMemoryOptimizations>,
    pub(super) predicted: Option<&'a OffloadTraffic>,
    pub(super) measured: Option<&'a OffloadTraffic>,
    /// Whether an iteration was simulated.
    pub(super) is_timed: bool,
}

/// The actions of stages in order; nothing where none has any.
pub(super) fn of_stages(stages: &[StageActionFigures<'_>], look: Look) -> String {
    if stages.iter().all(|stage| stage.actions.is_none()) {
        return String::new();
    }
    listed(stages, look) + &copies(stages, look)
}

fn listed(stages: &[StageActionFigures<'_>], look: Look) -> String {
    let columns = [
        ("stage", Left),
        ("actions (layers@slots = what : where : steps to leave, to come back)", Left),
        ("host pool", Right),
        ("set aside for others", Right),
    ];
    let mut grid = Grid::new(&columns, look);
    for (index, stage) in stages.iter().enumerate() {
        let Some(actions) = stage.actions else { continue };
        let mut lines: Vec<String> =
            actions.optimizations.iter().take(MOST).map(|of| notation(of.clone(), look)).collect();
        let more = actions.optimizations.len().saturating_sub(MOST);
        if more > 0 {
            lines.push(format!("and {more} more"));
        }
        let peer_pools: i64 = actions.peer_pools.iter().fold(0, |sum, of| sum.saturating_add(of.bytes));
        let some = |amount: i64| if amount > 0 { bytes(amount) } else { look.none().to_owned() };
        let first = lines.first().cloned().unwrap_or_else(|| look.none().to_owned());
        grid.row([index.to_string(), first, some(actions.host_pool_bytes), some(peer_pools)]);
        for line in lines.into_iter().skip(1) {
            grid.row([String::new(), line, String::new(), String::new()]);
        }
    }
    grid.render()
}

/// As it is typed after `--stage-optimization STAGE/`; one that a newer planner knows is shown as it came.
fn notation(action: loadmaster_proto::wire::v1::MemoryOptimization, look: Look) -> String {
    Action::try_from(action).map_or_else(|_| look.none().to_owned(), |action| action.to_string())
}

/// What goes where in an iteration, and how long devices wait for it.
fn copies(stages: &[StageActionFigures<'_>], look: Look) -> String {
    let is_measured = stages.iter().any(|stage| stage.measured.is_some());
    // A prediction of bytes alone simulates no iteration.
    let is_timed = stages.iter().any(|stage| stage.is_timed);
    let mut columns = vec![
        ("stage", Left),
        ("copies to", Left),
        ("at most there", Right),
        ("out per iteration", Right),
        ("back", Right),
    ];
    if is_timed {
        columns.push(("waits", Right));
    }
    if is_measured {
        columns.extend([("measured there", Right), ("out", Right), ("waited", Right)]);
    }
    let mut grid = Grid::new(&columns, look);
    let mut is_empty = true;
    for (index, stage) in stages.iter().enumerate() {
        let Some(predicted) = stage.predicted else { continue };
        for copies in &predicted.copy_traffic {
            is_empty = false;
            let mut cells = vec![
                index.to_string(),
                copies.peer.map_or_else(|| "host".to_owned(), |stage| format!("stage {stage}")),
                there(predicted, copies, look),
                bytes(copies.sent_bytes),
                bytes(copies.received_bytes),
            ];
            if is_timed {
                cells.push(seconds(copies.waited_seconds));
            }
            if is_measured {
                let own = stage
                    .measured
                    .and_then(|of| Some((of, of.copy_traffic.iter().find(|of| of.peer == copies.peer)?)));
                let none = || look.none().to_owned();
                cells.push(own.map_or_else(none, |(of, copies)| there(of, copies, look)));
                cells.push(own.map_or_else(none, |(_, copies)| bytes(copies.sent_bytes)));
                cells.push(own.map_or_else(none, |(_, copies)| seconds(copies.waited_seconds)));
            }
            grid.rows(cells);
        }
        if let Some(cells) = lent(index, stage, (is_timed, is_measured), look) {
            is_empty = false;
            grid.rows(cells);
        }
    }
    if is_empty { String::new() } else { grid.render() }
}

/// What other stages have on this one's devices at most, if it lends them any.
fn lent(
    index: usize,
    stage: &StageActionFigures<'_>,
    (is_timed, is_measured): (bool, bool),
    look: Look,
) -> Option<Vec<String>> {
    let predicted = stage.predicted.map(|of| of.peer_pool_peak_bytes).filter(|&bytes| bytes > 0)?;
    let none = || look.none().to_owned();
    let mut cells = vec![index.to_string(), "from others".to_owned(), bytes(predicted), none(), none()];
    cells.extend(is_timed.then(none));
    if is_measured {
        cells.push(stage.measured.map_or_else(none, |of| bytes(of.peer_pool_peak_bytes)));
        cells.extend([none(), none()]);
    }
    Some(cells)
}

/// The most bytes in the host's pool; on peers it is theirs to tell.
fn there(of: &OffloadTraffic, copies: &CopyTraffic, look: Look) -> String {
    if copies.peer.is_none() { bytes(of.host_peak_bytes) } else { look.none().to_owned() }
}

#[cfg(test)]
mod tests {
    use loadmaster_proto::training::actions::{StageActions as Domain, StagedAction};

    use super::*;

    /// An action is shown as it is typed, and its copies by where they go.
    #[test]
    fn actions_are_listed_as_they_are_typed() {
        let typed: Vec<StagedAction> =
            ["1/3..5=recompute", "1/0..2@0=activations:host:1,2", "1/3=inputs:0@50%,2@50%"]
                .iter()
                .map(|text| text.parse().unwrap())
                .collect();
        let all = Domain::by_stage(typed);
        let actions = StageMemoryOptimizations { host_pool_bytes: 3 << 20, ..(&all[1]).into() };
        let copies = |peer, sent_bytes| CopyTraffic {
            peer,
            sent_bytes,
            received_bytes: 1 << 10,
            waited_seconds: 0.25,
        };
        let predicted = OffloadTraffic {
            host_peak_bytes: 2 << 20,
            peer_pool_peak_bytes: 0,
            copy_traffic: vec![copies(None, 5 << 20), copies(Some(2), 7 << 20)],
        };
        let none = StageActionFigures { actions: None, predicted: None, measured: None, is_timed: true };
        let stage = StageActionFigures {
            actions: Some(&actions),
            predicted: Some(&predicted),
            measured: None,
            is_timed: true,
        };
        let text = of_stages(&[none, stage], Look::PLAIN);
        for part in [
            "3..5=recompute",
            "0..2@0=activations:host:1,2",
            "3=inputs:0@50%,2@50%",
            "3.00 MiB",
            "stage 2",
            "7.00 MiB",
        ] {
            assert!(text.contains(part), "{part} in\n{text}");
        }
        assert!(!text.contains("measured"), "{text}");
        assert_eq!(of_stages(&[none, none], Look::PLAIN), "");
        let measured = of_stages(&[StageActionFigures { measured: Some(&predicted), ..stage }], Look::PLAIN);
        assert!(measured.contains("measured there") && measured.contains("waited"), "{measured}");
    }
}
