//! How fast a node's host updates parameters: a line for each kind of step.

use loadmaster_proto::cluster::quantity;
use loadmaster_proto::training::step_kind::StepKind;
use loadmaster_proto::wire::v1::{self, HostUpdate};

use super::speed::origin;
use crate::table::grid::Grid;
use crate::table::grid::Side::{Left, Right};
use crate::text::terminal_abilities::Look;
use crate::text::word;

pub(super) fn draw(updates: &[HostUpdate], look: Look) -> String {
    let columns = [
        ("step", Left),
        ("for one device alone", Right),
        ("for all devices at once", Right),
        ("origin", Left),
    ];
    let mut grid = Grid::new(&columns, look);
    for update in updates {
        let together = update.together_per_second.map(quantity::show_parameters_per_second);
        grid.row([
            step(update.step),
            quantity::show_parameters_per_second(update.parameters_per_second),
            together.unwrap_or_else(|| "each as alone".to_owned()),
            origin(update.origin),
        ]);
    }
    grid.render()
}

/// As documents have it: `adam-bf16`.
fn step(step: i32) -> String {
    let Ok(known) = v1::StepKind::try_from(step) else { return "unknown".to_owned() };
    let own = StepKind::ALL.into_iter().find(|&own| v1::StepKind::from(own) == known);
    own.map_or_else(|| word(known.as_str_name(), "STEP_KIND_"), |own| own.as_str().to_owned())
}
