//! `Infinity`, `-Infinity` and `NaN`, which Python writes into JSON and JSON does not have.

use std::borrow::Cow;

const LITERALS: [&str; 3] = ["-Infinity", "Infinity", "NaN"];

/// Returns the text with these literals as texts in quotation marks.
///
/// A key that is computed with is then refused with its value, and any other key is treated as it is.
pub(super) fn quoted(text: &str) -> Cow<'_, str> {
    if !LITERALS.iter().any(|literal| text.contains(literal)) {
        return Cow::Borrowed(text);
    }
    let mut quoted = String::with_capacity(text.len() + 64);
    let mut rest = text;
    let mut is_text = false;
    while let Some(first) = rest.chars().next() {
        let literal = LITERALS.iter().find(|literal| !is_text && rest.starts_with(**literal));
        let taken = match (literal, first) {
            (Some(literal), _) => {
                quoted.push('"');
                quoted.push_str(literal);
                quoted.push('"');
                literal.len()
            }
            // The escaped character does not end the text.
            (None, '\\') if is_text => {
                let length = first.len_utf8() + rest.chars().nth(1).map_or(0, char::len_utf8);
                quoted.push_str(rest.get(..length).unwrap_or(rest));
                length
            }
            (None, _) => {
                is_text ^= first == '"';
                quoted.push(first);
                first.len_utf8()
            }
        };
        rest = rest.get(taken..).unwrap_or_default();
    }
    Cow::Owned(quoted)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn literals_of_python_become_texts_and_texts_stay() {
        let python = r#"{"a": [0.0, Infinity, -Infinity], "b": NaN, "NaN": "Infinity \" NaN", "c\\": NaN}"#;
        let json =
            r#"{"a": [0.0, "Infinity", "-Infinity"], "b": "NaN", "NaN": "Infinity \" NaN", "c\\": "NaN"}"#;
        assert_eq!(quoted(python), json);
        assert_eq!(quoted("{\"a\": 1}"), "{\"a\": 1}");
        assert_eq!(quoted("\"NaN\\"), "\"NaN\\");
    }
}
