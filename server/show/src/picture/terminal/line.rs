//! Lines of coloured text.

use crate::picture::tint::Tint;
use crate::text::label::{cells, take};
use crate::text::terminal_abilities::Look;

/// One line, made from left to right.
#[derive(Debug, Clone, PartialEq, Default)]
pub(super) struct Line(Vec<(String, Option<Tint>)>);

impl Line {
    /// A line of plain text.
    pub(super) fn plain(text: impl Into<String>) -> Self {
        Self(vec![(text.into(), None)])
    }

    /// A line in one colour.
    pub(super) fn all(text: impl Into<String>, tint: Tint) -> Self {
        Self(vec![(text.into(), Some(tint))])
    }

    pub(super) fn text(&mut self, text: impl Into<String>) {
        self.0.push((text.into(), None));
    }

    pub(super) fn tinted(&mut self, text: impl Into<String>, tint: impl Into<Option<Tint>>) {
        self.0.push((text.into(), tint.into()));
    }

    /// Adds all of another line.
    pub(super) fn append(&mut self, other: Self) {
        self.0.extend(other.0);
    }

    /// Cells that it takes.
    pub(super) fn cells(&self) -> usize {
        self.0.iter().map(|(text, _)| cells(text)).sum()
    }

    /// Adds spaces up to so many cells.
    pub(super) fn pad(&mut self, width: usize) {
        let missing = width.saturating_sub(self.cells());
        self.text(" ".repeat(missing));
    }

    /// The text, in at most `width` cells, ended.
    pub(super) fn render(&self, width: usize, look: Look) -> String {
        let is_cut = self.cells() > width;
        let mut left = if is_cut { width.saturating_sub(1) } else { width };
        // Spaces at the end of a line are noise, but for those that are coloured.
        let end = self.0.iter().rposition(|(span, tint)| tint.is_some() || !span.trim_end().is_empty());
        let mut text = String::new();
        for (index, (span, tint)) in self.0.iter().enumerate().take(end.map_or(0, |end| end + 1)) {
            let whole = if Some(index) == end && tint.is_none() { span.trim_end() } else { span };
            let kept = take(whole, left);
            left -= cells(kept);
            match tint {
                Some(tint) if look.color && !kept.is_empty() => {
                    text.push_str(&format!("\u{1b}[{}m{kept}\u{1b}[0m", tint.sgr()));
                }
                Some(_) | None => text.push_str(kept),
            }
            if kept.len() < whole.len() {
                break;
            }
        }
        if is_cut {
            text.push(look.cut());
        }
        text.push('\n');
        text
    }
}

/// `text` in lines of at most `width` cells, broken between words, all but the first indented.
pub(super) fn wrapped(text: &str, width: usize, tint: Option<Tint>) -> Vec<Line> {
    const INDENT: &str = "  ";
    let mut lines = Vec::new();
    let mut current = String::new();
    for word in text.split(' ').filter(|word| !word.is_empty()) {
        let fits = cells(&current) + 1 + cells(word) <= width;
        if current.trim().is_empty() {
            current.push_str(word);
        } else if fits {
            current.push(' ');
            current.push_str(word);
        } else {
            lines.push(std::mem::replace(&mut current, format!("{INDENT}{word}")));
        }
    }
    if !current.is_empty() {
        lines.push(current);
    }
    lines.into_iter().map(|line| Line(vec![(line, tint)])).collect()
}

/// Signs and what they mean, in as many lines as they need.
pub(super) fn legend(entries: &[(&str, Tint, &str)], width: usize) -> Vec<Line> {
    const SPACE: &str = "   ";
    let mut lines: Vec<Line> = Vec::new();
    for &(sign, tint, meaning) in entries {
        let wide = SPACE.len() + cells(sign) + 1 + cells(meaning);
        match lines.last_mut().filter(|line| line.cells() + wide <= width) {
            Some(line) => line.text(SPACE),
            None => lines.push(Line::default()),
        }
        if let Some(line) = lines.last_mut() {
            line.tinted(sign, tint);
            line.text(format!(" {meaning}"));
        }
    }
    lines
}

/// Texts of an axis below `room` cells, each beginning at its mark, or ending at the last cell. Those for which
/// there is no room are left out.
pub(super) fn axis_texts(marks: &[(usize, &str)], room: usize) -> String {
    let mut texts = String::new();
    for &(at, text) in marks {
        let begin = at.min(room.saturating_sub(cells(text)));
        let used = cells(&texts);
        if used == 0 || used + 2 <= begin {
            texts.push_str(&" ".repeat(begin.saturating_sub(used)));
            texts.push_str(text);
        }
    }
    texts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_cut_at_the_edge_and_says_so() {
        let mut line = Line::plain("layers ");
        line.tinted("0..7", Tint::Forward);
        assert_eq!(line.render(20, Look::PLAIN), "layers 0..7\n");
        assert_eq!(line.render(9, Look::PLAIN), "layers 0~\n");
        assert_eq!(line.render(7, Look::PLAIN), "layers~\n");
    }

    #[test]
    fn colours_end_where_they_should() {
        let look = Look { unicode: true, color: true, width: None };
        let mut line = Line::default();
        line.tinted("W", Tint::Part(0));
        line.text(" x  ");
        assert_eq!(line.render(10, look), "\u{1b}[30;48;5;68mW\u{1b}[0m x\n");
    }

    #[test]
    fn sentences_are_broken_between_words() {
        let lines = wrapped("one two three", 8, None);
        let texts: Vec<String> = lines.iter().map(|line| line.render(8, Look::PLAIN)).collect();
        assert_eq!(texts, ["one two\n", "  three\n"]);
    }
}
