//! Elements of SVG and HTML as text: well-formed, with everything escaped.

use std::fmt::Write;

/// A document under construction. Elements are closed in the order in which they must be.
#[derive(Debug, Default)]
pub(super) struct Xml {
    text: String,
}

impl Xml {
    /// An element with what `inner` writes into it.
    pub(super) fn element(&mut self, name: &str, attributes: &[(&str, &str)], inner: impl FnOnce(&mut Self)) {
        self.begin(name, attributes);
        self.text.push('>');
        inner(self);
        self.text.push_str("</");
        self.text.push_str(name);
        self.text.push('>');
    }

    /// An element without content.
    pub(super) fn empty(&mut self, name: &str, attributes: &[(&str, &str)]) {
        self.begin(name, attributes);
        self.text.push_str("/>");
    }

    /// An element with text in it.
    pub(super) fn leaf(&mut self, name: &str, attributes: &[(&str, &str)], text: &str) {
        self.element(name, attributes, |xml| xml.text(text));
    }

    pub(super) fn text(&mut self, text: &str) {
        escape(text, &mut self.text);
    }

    /// A line break, for people who read the file.
    pub(super) fn line(&mut self) {
        self.text.push('\n');
    }

    /// A style sheet or a declaration of this program's own. Never for anything that came from outside.
    pub(super) fn own(&mut self, text: &'static str) {
        self.text.push_str(text);
    }

    /// A style sheet of this program's own. HTML does not undo escapes in it, so it must need none.
    pub(super) fn style(&mut self, rules: &str) {
        debug_assert!(!rules.contains(['&', '<', '>', '"', '\'']), "{rules}");
        self.leaf("style", &[], rules);
        self.line();
    }

    pub(super) fn finish(self) -> String {
        self.text
    }

    fn begin(&mut self, name: &str, attributes: &[(&str, &str)]) {
        self.text.push('<');
        self.text.push_str(name);
        for (key, value) in attributes {
            self.text.push(' ');
            self.text.push_str(key);
            self.text.push_str("=\"");
            escape(value, &mut self.text);
            self.text.push('"');
        }
    }
}

/// Escaped for text and for attributes in double quotes. Characters that XML cannot hold at all become
/// U+FFFD.
fn escape(text: &str, into: &mut String) {
    for c in text.chars() {
        match c {
            '&' => into.push_str("&amp;"),
            '<' => into.push_str("&lt;"),
            '>' => into.push_str("&gt;"),
            '"' => into.push_str("&quot;"),
            '\'' => into.push_str("&#39;"),
            '\n' | '\t' => into.push(c),
            '\u{fffe}' | '\u{ffff}' => into.push('\u{fffd}'),
            c if c.is_control() => into.push('\u{fffd}'),
            c => into.push(c),
        }
    }
}

/// A number as short as a picture needs it.
pub(super) fn number(value: f64) -> String {
    let mut text = String::new();
    let value = if value.is_finite() { value } else { 0.0 };
    // Writing into a string cannot fail.
    let _ = write!(text, "{value:.2}");
    let short = text.trim_end_matches('0').trim_end_matches('.');
    if short == "-0" { "0".to_owned() } else { short.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn markup_of_others_is_text() {
        let mut xml = Xml::default();
        xml.element("g", &[("data-x", "\"><script>'&\u{0}")], |xml| xml.text("</g><script>\u{ffff}"));
        assert_eq!(
            xml.finish(),
            "<g data-x=\"&quot;&gt;&lt;script&gt;&#39;&amp;\u{fffd}\">&lt;/g&gt;&lt;script&gt;\u{fffd}</g>"
        );
    }

    #[test]
    fn numbers_are_short() {
        assert_eq!([1.0, 0.125, -0.001, f64::NAN, 1e6].map(number), ["1", "0.12", "0", "0", "1000000"]);
    }
}
