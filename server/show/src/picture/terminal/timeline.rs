//! What devices hold over time as text: columns of letters below the line of the capacity, and a row for each pool.

use super::line::{Line, legend};
use super::schedule::scale;
use super::stack::Stack;
use crate::picture::figure::timeline::{Chart, Level, MemoryTimeline, POOLS};
use crate::picture::tint::Tint;
use crate::text::terminal_abilities::Look;

/// Cells of a chart that is still worth drawing.
const LEAST_CELLS: usize = 16;

pub(super) fn draw(over_time: &MemoryTimeline, width: usize, look: Look) -> Vec<Line> {
    let (names, beside) = over_time.columns;
    let names = names.max(over_time.widest()).min(width / 4);
    let room = width.saturating_sub(names + beside.min(width / 3) + 4).max(LEAST_CELLS);
    let mut lines = Vec::new();
    for chart in &over_time.charts {
        lines.extend(super::line::wrapped(&chart.label, width, None));
        lines.extend(one(chart, over_time, (names, room), look));
    }
    lines.extend(scale(over_time.end_seconds, names, room));
    lines.extend(signs(over_time, width, look));
    lines
}

fn one(chart: &Chart, over_time: &MemoryTimeline, (names, room): (usize, usize), look: Look) -> Vec<Line> {
    let held = over_time.columns(chart, room);
    let capacity_bytes = over_time.shown_capacity(chart);
    let stack = Stack { names, scale_bytes: over_time.scale_bytes, capacity_bytes, look };
    let parts = |column: usize| {
        let level = held.get(column).copied().flatten().unwrap_or_default();
        over_time.parts.iter().map(move |&(place, letter, _)| {
            (level.parts.get(place).copied().unwrap_or(0), letter, Tint::Part(place))
        })
    };
    let mut lines = stack.lines(held.len(), parts, |_| None);
    for pool in over_time.pools(chart) {
        let most = chart.pools[pool];
        let cell = |held: &Option<Level>| {
            (share(held.map_or(0, |held| held.pools[pool]), most, look), Some(Tint::Strong))
        };
        lines.push(stack.framed(POOLS[pool], held.iter().map(cell).collect()));
    }
    lines
}

/// How full a pool is, against its most.
fn share(bytes: i64, most: i64, look: Look) -> char {
    const UNICODE: [char; 9] = [' ', '▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
    const ASCII: [char; 9] = [' ', '1', '2', '3', '4', '5', '6', '7', '8'];
    let eighths = (bytes as f64 / most.max(1) as f64 * 8.0).ceil().clamp(0.0, 8.0) as usize;
    if look.unicode { UNICODE[eighths] } else { ASCII[eighths] }
}

fn signs(over_time: &MemoryTimeline, width: usize, look: Look) -> Vec<Line> {
    let letters: Vec<String> = over_time.parts.iter().map(|part| part.1.to_string()).collect();
    let parts = over_time.parts.iter().zip(&letters);
    let mut entries: Vec<(&str, Tint, &str)> =
        parts.map(|(&(place, _, name), letter)| (letter.as_str(), Tint::Part(place), name)).collect();
    if over_time.charts.iter().any(|chart| over_time.shown_capacity(chart).is_some()) {
        entries.push((if look.unicode { "──" } else { "--" }, Tint::Capacity, "allowed to training"));
    }
    let used = |pool: usize| over_time.charts.iter().any(|chart| chart.pools[pool] > 0);
    let meaning =
        ["maximum of this stage's blocks in CPU memory", "maximum of other stages' blocks on this device"];
    for pool in (0..POOLS.len()).filter(|&pool| used(pool)) {
        entries.push((POOLS[pool], Tint::Strong, meaning[pool]));
    }
    legend(&entries, width)
}
