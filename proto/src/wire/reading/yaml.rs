//! YAML: its parser keeps every event of a text, so a text is measured before it is parsed.

use serde_json::Value;

use super::meter::{Limits, Meter};
use super::{Wanted, located};
use crate::error::Invalid;

/// Most signs of a text that may begin or end a value. The parser keeps at most two events of 100 bytes for each.
const MAX_SIGNS: usize = 600_000;
/// Most brackets that are open at once. The parser's time grows with the square of their number, before it
/// refuses what is nested too deeply.
const MAX_OPEN_BRACKETS: usize = 128;

/// # Errors
/// What is wrong with the text, or that it stands for too much.
pub(super) fn parse(text: &str, limits: &Limits, wanted: Wanted<'_>) -> Result<Value, Invalid> {
    check(text).map_err(|why| Invalid::field("", why))?;
    located(serde_yaml_ng::Deserializer::from_str(text), &Meter::new(limits, wanted), "YAML")
}

/// Signs in texts and comments count as well: no one writes so many of them.
fn check(text: &str) -> Result<(), String> {
    let (mut open, mut signs) = (0_usize, 0_usize);
    for byte in text.bytes() {
        match byte {
            b'[' | b'{' => open += 1,
            b']' | b'}' => open = open.saturating_sub(1),
            b',' | b':' | b'-' | b'?' | b'\n' | b'\r' => {}
            _ => continue,
        }
        signs += 1;
        if open > MAX_OPEN_BRACKETS {
            return Err(format!(
                "has more than {MAX_OPEN_BRACKETS} nested brackets. Use fewer levels of lists and \
                maps"
            ));
        }
        if signs > MAX_SIGNS {
            return Err(format!(
                "has more than {MAX_SIGNS} separators (brackets, `,` `:` `-` `?` and line ends). Write the document as \
                 JSON, or make it smaller"
            ));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::always;
    use super::*;

    fn refused(text: &str) -> String {
        parse(text, &Limits::BUILT, &always).unwrap_err().to_string()
    }

    /// Two bytes of a text would be two hundred of its parser.
    #[test]
    fn a_text_of_nothing_but_values_is_refused_before_it_is_parsed() {
        for text in [
            format!("[{}]", "a,".repeat(1 << 20)),
            "- ".repeat(1 << 20),
            "a:\n".repeat(1 << 20),
            "? ".repeat(1 << 20),
            "\n".repeat(1 << 20),
        ] {
            assert!(refused(&text).contains("separators (brackets"), "{}", &text[..8]);
        }
        assert!(refused(&"[".repeat(1_000)).contains("nested brackets"));
    }

    #[test]
    fn limits_hold_for_what_references_unfold_to_and_name_the_place() {
        let limits = Limits { values: 50, ..Limits::BUILT };
        let text = format!("a: &a [1, 2, 3, 4]\nb: [{}]\n", ["*a"; 20].join(", "));
        let invalid = parse(&text, &limits, &always).unwrap_err();
        assert!(invalid.violations()[0].field.starts_with("b["), "{invalid}");
        assert!(invalid.to_string().contains("has more than 50 values"), "{invalid}");
        let nested = parse("a: {b: {c: .nan}}", &Limits::BUILT, &always).unwrap_err();
        assert_eq!(nested.violations()[0].field, "a.b.c", "{nested}");
        assert_eq!(parse("a: \"x\\0\"", &Limits::BUILT, &always).unwrap_err().violations()[0].field, "a");
    }
}
