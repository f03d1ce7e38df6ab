//! What devices hold over time as text: columns of letters below the line of the capacity, and a row for each pool.

use super::line::{Line, legend};
use super::schedule::scale;
use crate::output::picture::figure::over_time::{Chart, Level, OverTime, POOLS};
use crate::output::picture::tint::Tint;
use crate::text::bytes;
use crate::text::label::{cells, column};
use crate::text::terminal_abilities::Look;

/// Lines of a chart.
const HEIGHT: usize = 8;
/// Cells of a chart that is still worth drawing.
const LEAST_CELLS: usize = 16;

pub(super) fn draw(over_time: &OverTime, width: usize, look: Look) -> Vec<Line> {
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

fn one(chart: &Chart, over_time: &OverTime, (names, room): (usize, usize), look: Look) -> Vec<Line> {
    let held = over_time.columns(chart, room);
    let row_of = |amount: i64| {
        let rows = amount as f64 / over_time.scale_bytes as f64 * HEIGHT as f64;
        HEIGHT.saturating_sub(1 + rows as usize)
    };
    let capacity = over_time.shown_capacity(chart);
    let bar = if look.unicode { "│" } else { "|" };
    let framed = |name: &str, cells: Vec<(char, Option<Tint>)>| {
        let padding = " ".repeat(names.saturating_sub(self::cells(name)));
        let mut line = Line::plain(format!("{padding}{} ", column(name, self::cells(name).min(names), look)));
        line.tinted(bar, Tint::Faint);
        for run in cells.chunk_by(|a, b| a.1 == b.1) {
            line.tinted(run.iter().map(|&(c, _)| c).collect::<String>(), run[0].1);
        }
        line.tinted(bar, Tint::Faint);
        line
    };
    let mut lines = Vec::with_capacity(HEIGHT + POOLS.len());
    for row in 0..HEIGHT {
        let limit = capacity.filter(|&capacity| row_of(capacity) == row);
        let name = match limit {
            Some(capacity) => bytes(capacity),
            None if row == 0 => bytes(over_time.scale_bytes),
            None if row + 1 == HEIGHT => "0 B".to_owned(),
            None => String::new(),
        };
        let blank = match limit {
            Some(_) => (if look.unicode { '─' } else { '-' }, Some(Tint::Capacity)),
            None => (' ', None),
        };
        let cell = |held: &Option<Level>| {
            held.and_then(|held| letter(&held, over_time, HEIGHT - 1 - row)).unwrap_or(blank)
        };
        lines.push(framed(&name, held.iter().map(cell).collect()));
    }
    for pool in over_time.pools(chart) {
        let most = chart.pools[pool];
        let cell = |held: &Option<Level>| {
            (share(held.map_or(0, |held| held.pools[pool]), most, look), Some(Tint::Strong))
        };
        lines.push(framed(POOLS[pool], held.iter().map(cell).collect()));
    }
    lines
}

/// What is held at the middle of a row, counted from the bottom; a column that holds anything has a cell.
fn letter(held: &Level, over_time: &OverTime, row: usize) -> Option<(char, Option<Tint>)> {
    let (total, height) = (held.total() as f64, over_time.scale_bytes as f64 / HEIGHT as f64);
    let middle = if row == 0 { (0.5 * height).min(total * 0.5) } else { (row as f64 + 0.5) * height };
    if total <= 0.0 || middle > total {
        return None;
    }
    let mut sum = 0_i64;
    over_time.parts.iter().find_map(|&(place, letter, _)| {
        sum = sum.saturating_add(held.parts.get(place).copied().unwrap_or(0));
        (sum as f64 >= middle).then_some((letter, Some(Tint::Part(place))))
    })
}

/// How full a pool is, against its most.
fn share(bytes: i64, most: i64, look: Look) -> char {
    const UNICODE: [char; 9] = [' ', '▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
    const ASCII: [char; 9] = [' ', '1', '2', '3', '4', '5', '6', '7', '8'];
    let eighths = (bytes as f64 / most.max(1) as f64 * 8.0).ceil().clamp(0.0, 8.0) as usize;
    if look.unicode { UNICODE[eighths] } else { ASCII[eighths] }
}

fn signs(over_time: &OverTime, width: usize, look: Look) -> Vec<Line> {
    let letters: Vec<String> = over_time.parts.iter().map(|part| part.1.to_string()).collect();
    let parts = over_time.parts.iter().zip(&letters);
    let mut entries: Vec<(&str, Tint, &str)> =
        parts.map(|(&(place, _, name), letter)| (letter.as_str(), Tint::Part(place), name)).collect();
    if over_time.charts.iter().any(|chart| over_time.shown_capacity(chart).is_some()) {
        entries.push((if look.unicode { "──" } else { "--" }, Tint::Capacity, "allowed to training"));
    }
    let used = |pool: usize| over_time.charts.iter().any(|chart| chart.pools[pool] > 0);
    let meaning = ["own blocks at the host, by their most", "others' blocks here, by their most"];
    for pool in (0..POOLS.len()).filter(|&pool| used(pool)) {
        entries.push((POOLS[pool], Tint::Strong, meaning[pool]));
    }
    legend(&entries, width)
}
