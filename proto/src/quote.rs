//! Text of a peer or a user, on its way into a line of a log.

/// `text` in quotes and cut to `most` characters. Whatever is no visible character is escaped, so that it neither begins a new
/// line nor changes how the rest of its own is shown.
pub fn quoted(text: &str, most: usize) -> String {
    match text.char_indices().nth(most) {
        // A part of a text of megabytes is escaped, not the whole.
        Some((end, _)) => {
            let left_out = text.len() - end;
            format!("{:?}… ({left_out} more bytes)", text.get(..end).unwrap_or_default())
        }
        None => format!("{text:?}"),
    }
}

/// The same without quotes, for a sentence of a peer that has quotes of its own: these stay as they are.
pub fn in_one_line(text: &str, most: usize) -> String {
    let mut line = String::with_capacity(text.len().min(most));
    for (index, c) in text.chars().enumerate() {
        match c {
            _ if index == most => return line + "…",
            '"' | '\'' | '\\' => line.push(c),
            _ => line.extend(c.escape_debug()),
        }
    }
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_stays_within_its_quotes_and_its_line() {
        assert_eq!(quoted("out of memory", 20), "\"out of memory\"");
        assert_eq!(
            quoted("a\" ERROR b\n2026-01-01T00:00:00Z \u{1b}[31m", 90),
            r#""a\" ERROR b\n2026-01-01T00:00:00Z \u{1b}[31m""#
        );
        assert_eq!(quoted("\u{202e}\u{2028}\u{200b}", 9), r#""\u{202e}\u{2028}\u{200b}""#);
        assert_eq!(in_one_line("field \"a\"\n\u{202e}", 90), "field \"a\"\\n\\u{202e}");
        assert_eq!(in_one_line("ääää", 2), "ää…");
        assert_eq!(quoted("ääää", 2), "\"ää\"… (4 more bytes)");
    }
}
