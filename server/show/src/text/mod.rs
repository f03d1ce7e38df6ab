//! Small texts: numbers with units, and strings of others made safe to print.

pub mod bar;
pub mod label;
pub mod terminal_abilities;

use loadmaster_proto::amounts::Seconds;
pub use loadmaster_proto::amounts::{count, plural};
use loadmaster_proto::bytes::Bytes;
use loadmaster_proto::name::is_invisible;
use loadmaster_proto::plan::prediction::UNUSABLE_MARGIN;
use loadmaster_proto::wire::v1::{self, MemoryInterval};

use terminal_abilities::Look;

/// `text` without control, format and separator characters: neither a planner nor a worker writes to our user's terminal
/// anything but text. Line breaks become spaces, so that one fact stays on one line.
pub fn plain(text: &str) -> String {
    text.trim().chars().filter_map(visible_character).collect()
}

/// The word for the severity of a warning, which stands before its message.
pub fn severity(warning: &v1::Warning) -> &'static str {
    match warning.severity() {
        v1::Severity::Info => "note",
        v1::Severity::Warning | v1::Severity::Unspecified => "warning",
        v1::Severity::Error => "error",
    }
}

/// A warning as one line: `warning: predicted beyond the profiled micro-batch sizes`.
pub fn warned(warning: &v1::Warning) -> String {
    format!("{}: {}", severity(warning), plain(&warning.message))
}

/// Warnings with the worst first, as many as are named. One that several stages have is one line: `warning: stages 0, 2: …`.
pub fn folded(warnings: &[v1::Warning], most: usize) -> Vec<String> {
    let mut groups: Vec<(&v1::Warning, Vec<i32>)> = Vec::new();
    for warning in warnings {
        let same = |(of, _): &&mut (&v1::Warning, Vec<i32>)| {
            of.severity == warning.severity && of.message == warning.message
        };
        match groups.iter_mut().find(same) {
            Some((_, stages)) => stages.extend(warning.stage),
            None => groups.push((warning, warning.stage.into_iter().collect())),
        }
    }
    groups.sort_by_key(|(of, _)| std::cmp::Reverse(of.severity()));
    let line = |(of, stages): &(&v1::Warning, Vec<i32>)| match stages.as_slice() {
        [] | [_] => warned(of),
        several => {
            let stages: Vec<String> = several.iter().map(ToString::to_string).collect();
            format!("{}: stages {}: {}", severity(of), stages.join(", "), plain(&of.message))
        }
    };
    let mut lines: Vec<String> = groups.iter().take(most).map(line).collect();
    if groups.len() > most {
        lines.push(format!("warning: {} more warnings", groups.len() - most));
    }
    lines
}

/// The headline of a summary, with the characters that can be shown.
pub fn headline(summary: Option<&v1::PlanSummary>, look: Look) -> Vec<String> {
    summary.map_or_else(Vec::new, |of| of.headline_lines.iter().map(|line| shown(line, look)).collect())
}

/// Whether it fits, by the first line of the headline.
pub fn fit(summary: Option<&v1::PlanSummary>) -> String {
    summary.and_then(|of| of.headline_lines.first()).map_or_else(String::new, |line| plain(line))
}

/// The title of a plan; empty without a summary.
pub fn title(summary: Option<&v1::PlanSummary>, look: Look) -> String {
    summary.map_or_else(String::new, |of| shown(&of.title, look))
}

/// A text of the planner in the characters that can be shown.
fn shown(text: &str, look: Look) -> String {
    let text = plain(text);
    if look.unicode {
        return text;
    }
    [("·", "-"), ("±", "+-"), ("–", "-"), ("…", "~")]
        .iter()
        .fold(text, |text, (one, other)| text.replace(one, other))
}

/// What is shown of a character: a space of control characters, nothing of others that nobody sees.
pub(crate) fn visible_character(c: char) -> Option<char> {
    match c {
        c if c.is_control() => Some(' '),
        c => (!is_invisible(c)).then_some(c),
    }
}

/// A byte count with its unit, negative ones too.
pub fn bytes(count: i64) -> String {
    let magnitude = Bytes(count.unsigned_abs());
    if count < 0 { format!("-{magnitude}") } else { magnitude.to_string() }
}

/// A byte count that may be missing.
pub fn maybe_bytes(count: Option<i64>, look: Look) -> String {
    count.map_or_else(|| look.none().to_owned(), bytes)
}

/// Seconds with three significant digits or so.
pub fn seconds(value: f64) -> String {
    Seconds(value).to_string()
}

/// How long something may still take, roughly.
pub fn about(seconds: f64) -> String {
    match seconds {
        s if s < 1.5 => "about 1 s".to_owned(),
        s if s < 90.0 => format!("about {s:.0} s"),
        s if s < 5400.0 => format!("about {:.0} min", s / 60.0),
        s => format!("about {:.1} h", s / 3600.0),
    }
}

/// A relative error with its sign.
pub fn ratio(value: f64) -> String {
    format!("{:+.1} %", value * 100.0)
}

/// A share of a whole.
pub fn percent(value: f64) -> String {
    format!("{:.1} %", value * 100.0)
}

/// Half an interval as a share of its middle: `±12.0 %`, `±?` where nobody knows.
pub fn margin(share: Option<f64>, look: Look) -> String {
    let sign = if look.unicode { "±" } else { "+-" };
    share.map_or_else(|| format!("{sign}?"), |share| format!("{sign}{}", percent(share)))
}

/// Returns predicted seconds with half their interval: `1.30 s ±12.0 %`, `1.30 s (interval unknown)`, and beyond
/// [`UNUSABLE_MARGIN`] `unusable (1.30 s ±122.0 %)`.
pub fn predicted_seconds(value: f64, share: Option<f64>, look: Look) -> String {
    match share {
        None => format!("{} (interval unknown)", seconds(value)),
        Some(wide) if wide > UNUSABLE_MARGIN => {
            format!("unusable ({} {})", seconds(value), margin(share, look))
        }
        Some(_) => format!("{} {}", seconds(value), margin(share, look)),
    }
}

/// Returns half the interval of predicted seconds in a column of its own: `±12.0 %`, `unknown`, `unusable ±122.0 %`.
pub fn seconds_margin(share: Option<f64>, look: Look) -> String {
    match share {
        None => "unknown".to_owned(),
        Some(wide) if wide > UNUSABLE_MARGIN => format!("unusable {}", margin(share, look)),
        Some(_) => margin(share, look),
    }
}

/// Returns half the interval of predicted bytes: `±12.0 %`, in bytes where it is wider than they are (`±3.20 GiB`), and `±?` where
/// no interval is known.
pub fn bytes_margin(interval: Option<&MemoryInterval>, predicted: i64, look: Look) -> String {
    let sign = if look.unicode { "±" } else { "+-" };
    match interval {
        Some(of) if of.margin_ratio > 1.0 => {
            format!("{sign}{}", bytes(of.high_bytes.saturating_sub(predicted)))
        }
        Some(of) => margin(Some(of.margin_ratio), look),
        None => margin(None, look),
    }
}

/// A point in time, UTC.
pub fn time(timestamp: Option<&prost_types::Timestamp>, look: Look) -> String {
    timestamp
        .and_then(|t| jiff::Timestamp::new(t.seconds, 0).ok())
        .map_or_else(|| look.none().to_owned(), |t| t.to_string())
}

/// The constant of an enum as people write it: `MEMORY_ACCOUNTING_ALLOCATED` is `allocated`.
pub fn word(constant: &str, prefix: &str) -> String {
    constant.strip_prefix(prefix).unwrap_or(constant).to_ascii_lowercase().replace('_', " ")
}

/// `text` with lines that are too long broken between words; what follows stands under its value.
pub fn wrapped(text: &str, width: Option<usize>) -> String {
    let Some(width) = width else { return text.to_owned() };
    text.lines().map(|line| broken(line, width)).collect()
}

fn broken(line: &str, width: usize) -> String {
    if visible(line) <= width {
        return format!("{line}\n");
    }
    // Facts have two spaces between name and value.
    let value = line.find("  ").map_or(2, |gap| {
        let rest = &line[gap..];
        visible(&line[..gap]) + rest.len() - rest.trim_start().len()
    });
    let indent = if value < width / 2 { value } else { 2 };
    let mut lines = String::new();
    let mut used = 0;
    for (index, word) in line.split(' ').enumerate() {
        let gap = usize::from(index > 0);
        if used + gap + visible(word) > width && used > indent {
            lines.push_str(&format!("\n{:indent$}{word}", ""));
            used = indent + visible(word);
        } else {
            lines.push_str(if gap > 0 { " " } else { "" });
            lines.push_str(word);
            used += gap + visible(word);
        }
    }
    lines + "\n"
}

/// Cells of a text without its escape sequences.
fn visible(text: &str) -> usize {
    let mut cells = 0;
    for (index, part) in text.split('\u{1b}').enumerate() {
        let shown = if index == 0 { part } else { part.split_once('m').map_or("", |(_, rest)| rest) };
        cells += unicode_width::UnicodeWidthStr::width(shown);
    }
    cells
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_units() {
        assert_eq!(bytes(-1536), "-1.50 KiB");
        assert_eq!(bytes(i64::MIN), format!("-{}", Bytes(1 << 63)));
        assert_eq!(about(130.0), "about 2 min");
        assert_eq!(ratio(0.0149), "+1.5 %");
        assert_eq!(
            (margin(Some(0.12), Look::UNICODE).as_str(), margin(None, Look::PLAIN).as_str()),
            ("±12.0 %", "+-?")
        );
        assert_eq!(word("OUT_OF_MEMORY", ""), "out of memory");
    }

    #[test]
    fn lines_are_broken_between_words() {
        assert_eq!(wrapped("ä b c\nd\n", None), "ä b c\nd\n");
        assert_eq!(
            wrapped("warning: one two three\nshort\n", Some(14)),
            "warning: one\n  two three\nshort\n"
        );
        assert_eq!(wrapped("kind  one two three\n", Some(14)), "kind  one two\n      three\n");
        assert_eq!(wrapped("\u{1b}[1mbold\u{1b}[0m\n", Some(4)), "\u{1b}[1mbold\u{1b}[0m\n");
        assert_eq!(wrapped(&"x".repeat(20), Some(4)), format!("{}\n", "x".repeat(20)), "a name stays whole");
    }

    /// The worst come first, and equal ones of several stages are one line.
    #[test]
    fn warnings_are_folded() {
        let warning = |severity: v1::Severity, stage, message: &str| v1::Warning {
            severity: severity.into(),
            stage,
            message: message.to_owned(),
            ..v1::Warning::default()
        };
        let all = [
            warning(v1::Severity::Info, None, "a"),
            warning(v1::Severity::Warning, Some(0), "b"),
            warning(v1::Severity::Error, Some(1), "c"),
            warning(v1::Severity::Warning, Some(2), "b"),
        ];
        assert_eq!(folded(&all, 9), ["error: c", "warning: stages 0, 2: b", "note: a"]);
        assert_eq!(folded(&all, 1), ["error: c", "warning: 2 more warnings"]);
    }

    #[test]
    fn control_characters_do_not_pass() {
        assert_eq!(plain("a\u{1b}[2J\nb\n"), "a [2J b");
        assert_eq!(plain("a\u{202e}b\u{200b}c\u{2028}d"), "abcd");
    }
}
