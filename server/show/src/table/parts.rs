//! What predicted bytes are, and predicted times: a row per stage.

use loadmaster_proto::wire::v1::{MemoryBreakdown, StageSeconds};

use super::grid::Grid;
use super::grid::Side::{Left, Right};
use crate::text::terminal_abilities::Look;
use crate::text::{maybe_bytes, seconds, seconds_margin};

/// The parts of a breakdown in the order of bars, with their letters.
pub fn parts(breakdown: &MemoryBreakdown) -> [(char, &'static str, i64); 8] {
    [
        ('W', "weights", breakdown.weights_bytes),
        ('G', "gradients", breakdown.gradients_bytes),
        ('O', "optimizer", breakdown.optimizer_bytes),
        ('A', "activations", breakdown.activations_bytes),
        ('P', "P2P", breakdown.p2p_bytes),
        ('C', "communication", breakdown.communication_bytes),
        ('T', "transient", breakdown.transient_bytes),
        ('V', "overhead", breakdown.overhead_bytes),
    ]
}

/// The parts of each stage in bytes, without those that no stage has; nothing where none is known.
pub(super) fn bytes_of(stages: &[Option<&MemoryBreakdown>], look: Look) -> String {
    let all: Vec<Option<_>> = stages.iter().map(|stage| stage.map(parts)).collect();
    let Some(names) = all.iter().flatten().next() else { return String::new() };
    let shown: Vec<usize> =
        (0..names.len()).filter(|&part| all.iter().flatten().any(|parts| parts[part].2 != 0)).collect();
    let mut columns = vec![("stage", Left)];
    columns.extend(shown.iter().map(|&part| (names[part].1, Right)));
    let mut grid = Grid::new(&columns, look);
    for (index, parts) in all.iter().enumerate() {
        let mut cells = vec![index.to_string()];
        cells.extend(shown.iter().map(|&part| maybe_bytes(parts.map(|parts| parts[part].2), look)));
        grid.rows(cells);
    }
    grid.render()
}

/// Times of one stage, how far they may be off, and its micro-batches in flight.
pub(super) type Times<'a> = (Option<&'a StageSeconds>, Option<f64>, i32);

/// Times and micro-batches in flight of each stage; nothing where no time is known.
pub(super) fn times_of(stages: &[Times<'_>], look: Look) -> String {
    if stages.iter().all(|(of, ..)| of.is_none()) {
        return String::new();
    }
    let mut grid = Grid::new(
        &[
            ("stage", Left),
            ("forward", Right),
            ("backward", Right),
            ("step", Right),
            ("margin", Right),
            ("in flight", Right),
        ],
        look,
    );
    for (index, (of, share, in_flight)) in stages.iter().enumerate() {
        let time = |value: Option<f64>| value.map_or_else(|| look.none().to_owned(), seconds);
        grid.row([
            index.to_string(),
            time(of.map(|of| of.forward_seconds)),
            time(of.map(|of| of.backward_seconds)),
            time(of.map(|of| of.optimizer_step_seconds)),
            of.map_or_else(|| look.none().to_owned(), |_| seconds_margin(*share, look)),
            in_flight.to_string(),
        ]);
    }
    grid.render()
}
