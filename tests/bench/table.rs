//! Tables and figures as people read them.

use std::fmt;

/// Left-aligned columns, two spaces apart; the last cell of a line may be as long as it likes.
#[derive(Debug)]
pub(crate) struct Table(Vec<Vec<String>>);

impl Table {
    pub(crate) fn new(head: &[&str]) -> Self {
        let mut table = Self(Vec::new());
        table.row(head);
        table
    }

    pub(crate) fn row(&mut self, cells: impl IntoIterator<Item = impl ToString>) {
        self.0.push(cells.into_iter().map(|cell| cell.to_string()).collect());
    }

    /// Whether it has a head alone.
    pub(crate) fn is_empty(&self) -> bool {
        self.0.len() < 2
    }
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(lines) = self;
        let columns = lines.iter().map(Vec::len).max().unwrap_or(0);
        let width = |column: usize| {
            let lines = lines.iter().filter(|line| column + 1 < line.len());
            lines.filter_map(|line| line.get(column)).map(|cell| cell.chars().count()).max().unwrap_or(0)
        };
        let widths: Vec<usize> = (0..columns).map(width).collect();
        for line in lines {
            let cells = line.iter().zip(&widths).map(|(cell, width)| format!("{cell:<width$}"));
            writeln!(f, "{}", cells.collect::<Vec<_>>().join("  ").trim_end())?;
        }
        Ok(())
    }
}

/// A figure, or a dash where there is none.
pub(crate) fn or_dash<T>(value: Option<T>, show: impl FnOnce(T) -> String) -> String {
    value.map_or_else(|| "-".to_owned(), show)
}

/// `1.25 %`.
pub(crate) fn percent(share: f64) -> String {
    format!("{:.2} %", 100.0 * share)
}

/// A relative error with its sign: `-3.1 %`.
pub(crate) fn error(share: f64) -> String {
    format!("{:+.1} %", 100.0 * share)
}

/// A value beside a baseline: `1.253×`.
pub(crate) fn ratio(value: f64, baseline: Option<f64>) -> String {
    or_dash(baseline.filter(|&baseline| baseline > 0.0), |baseline| times(value / baseline))
}

/// `1.253×`.
pub(crate) fn times(ratio: f64) -> String {
    format!("{ratio:.3}×")
}

pub(crate) fn mib(bytes: u64) -> String {
    format!("{:.2} MiB", bytes as f64 / f64::from(1 << 20))
}

/// `6.86 M`.
pub(crate) fn millions(count: u64) -> String {
    format!("{:.2} M", count as f64 / 1e6)
}

/// Seconds in a unit that reads well.
pub(crate) fn seconds(seconds: f64) -> String {
    match seconds {
        s if !s.is_finite() => "-".to_owned(),
        s if s < 1e-3 => format!("{:.0} µs", s * 1e6),
        s if s < 1.0 => format!("{:.1} ms", s * 1e3),
        s => format!("{s:.2} s"),
    }
}
