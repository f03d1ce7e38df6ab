//! What the device of a plan in chunks holds as text, step by step.

use super::line::{Line, legend, wrapped};
use super::residency::{columns, room, steps};
use super::stack::Stack;
use crate::picture::figure::step_bytes::StepBytes;
use crate::picture::tint::Tint;
use crate::text::terminal_abilities::Look;

/// The letters of what is there besides chunks, and of chunks.
const OTHER: char = 'N';
const CHUNKS: char = 'R';

pub(super) fn draw(of: &StepBytes, width: usize, look: Look) -> Vec<Line> {
    let (names, room) = room(of.names, width);
    let stack = Stack { names, scale_bytes: of.scale_bytes, capacity_bytes: of.capacity_bytes, look };
    let (held, measured) = (of.columns(room), of.measured_columns(room));
    let columns = columns(held.len(), room);
    let parts = |cell: usize| {
        let held = columns.get(cell).and_then(|&column| held.get(column)).copied().unwrap_or_default();
        [(held.other, OTHER, Tint::OTHER), (held.chunks, CHUNKS, Tint::Resident)].into_iter()
    };
    let mark = |cell: usize| columns.get(cell).and_then(|&column| measured.get(column)).copied();
    let mut lines = wrapped(&of.label, width, None);
    lines.extend(stack.lines(room, parts, mark));
    lines.extend(steps(of.steps, names, room));
    lines.extend(signs(of, &stack, width));
    lines.extend(of.meaning(held.len()).iter().flat_map(|text| wrapped(text, width, None)));
    lines
}

fn signs(of: &StepBytes, stack: &Stack, width: usize) -> Vec<Line> {
    let (other, chunks) = (format!("besides chunks ({})", of.source), format!("chunks ({})", of.source));
    let mark = stack.mark().to_string();
    let mut entries = vec![("N", Tint::OTHER, other.as_str()), ("R", Tint::Resident, chunks.as_str())];
    if of.capacity_bytes.is_some() {
        entries.push((if stack.look.unicode { "──" } else { "--" }, Tint::Capacity, "allowed to training"));
    }
    if !of.measured.is_empty() {
        entries.push((mark.as_str(), Tint::Measured, "measured, both"));
    }
    legend(&entries, width)
}
