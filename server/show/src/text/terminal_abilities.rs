//! What the terminal can show: colours and characters outside ASCII.

use std::io::IsTerminal;
use std::os::fd::AsFd;

/// How text may look.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Look {
    /// Characters outside ASCII.
    pub unicode: bool,
    /// ANSI escape sequences.
    pub color: bool,
    /// Cells of a line; none where nobody looks at lines, as in a file.
    pub width: Option<usize>,
}

impl Look {
    /// ASCII without colours.
    pub const PLAIN: Self = Self { unicode: false, color: false, width: None };

    /// All characters, no colours.
    #[cfg(test)]
    pub const UNICODE: Self = Self { unicode: true, color: false, width: None };

    /// What files are drawn with: they can show all characters, and have colours of their own.
    pub const FILE: Self = Self { unicode: true, color: false, width: None };

    /// What suits `stream` in this environment.
    pub fn of(stream: &(impl IsTerminal + AsFd)) -> Self {
        let variable = |name: &str| std::env::var(name).ok();
        let width = terminal_size::terminal_size_of(stream).map(|(width, _)| usize::from(width.0));
        Self {
            unicode: speaks_utf8(variable),
            color: wants_color(variable, stream.is_terminal()),
            // A terminal that does not know its width says 0.
            width: width.filter(|&width| width > 0),
        }
    }

    /// A separator between facts.
    pub fn dot(self) -> &'static str {
        if self.unicode { "·" } else { "-" }
    }

    /// Between the two ends of a range.
    pub fn to(self) -> &'static str {
        if self.unicode { "–" } else { "-" }
    }

    /// The sign of a product.
    pub fn times(self) -> &'static str {
        if self.unicode { "×" } else { "x" }
    }

    /// A place without a value.
    pub fn none(self) -> &'static str {
        if self.unicode { "–" } else { "-" }
    }

    /// Where a text was cut.
    pub fn cut(self) -> char {
        if self.unicode { '…' } else { '~' }
    }

    /// `text` in bold red.
    pub fn bold_red(self, text: &str) -> String {
        if self.color { format!("\u{1b}[1;31m{text}\u{1b}[0m") } else { text.to_owned() }
    }
}

/// Whether the locale's characters are UTF-8, by POSIX' order of precedence.
fn speaks_utf8(variable: impl Fn(&str) -> Option<String>) -> bool {
    ["LC_ALL", "LC_CTYPE", "LANG"]
        .into_iter()
        .find_map(|name| variable(name).filter(|value| !value.is_empty()))
        .is_some_and(|locale| {
            let locale = locale.to_ascii_lowercase();
            locale.contains("utf-8") || locale.contains("utf8")
        })
}

/// <https://no-color.org> and <https://bixense.com/clicolors>.
fn wants_color(variable: impl Fn(&str) -> Option<String>, terminal: bool) -> bool {
    let set = |name: &str| variable(name).filter(|value| !value.is_empty());
    if set("NO_COLOR").is_some() {
        return false;
    }
    if set("CLICOLOR_FORCE").is_some_and(|value| value != "0") {
        return true;
    }
    terminal && set("CLICOLOR").is_none_or(|value| value != "0") && set("TERM").is_none_or(|t| t != "dumb")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn environment<'a>(pairs: &'a [(&str, &str)]) -> impl Fn(&str) -> Option<String> + 'a {
        |name| pairs.iter().find(|(key, _)| *key == name).map(|(_, value)| (*value).to_owned())
    }

    #[test]
    fn the_strongest_locale_variable_decides() {
        assert!(speaks_utf8(environment(&[("LANG", "en_US.UTF-8")])));
        assert!(speaks_utf8(environment(&[("LC_ALL", ""), ("LC_CTYPE", "C.utf8")])));
        assert!(!speaks_utf8(environment(&[("LC_ALL", "C"), ("LANG", "en_US.UTF-8")])));
        assert!(!speaks_utf8(environment(&[])));
    }

    #[test]
    fn no_color_wins() {
        assert!(wants_color(environment(&[]), true));
        assert!(!wants_color(environment(&[]), false));
        assert!(wants_color(environment(&[("CLICOLOR_FORCE", "1")]), false));
        assert!(!wants_color(environment(&[("NO_COLOR", "1"), ("CLICOLOR_FORCE", "1")]), true));
    }
}
