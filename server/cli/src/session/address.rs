//! Addresses of pages that show what was asked for.

/// The path of a page of a list that asks the same: as a browser writes what its form says.
pub(crate) fn of_list(page: &str, filter: &str, order_by: &str) -> String {
    let asked = [("filter", filter), ("order_by", order_by)];
    let asked: Vec<String> = asked
        .into_iter()
        .filter(|(_, value)| !value.is_empty())
        .map(|(key, value)| format!("{key}={}", escaped(value)))
        .collect();
    if asked.is_empty() { page.to_owned() } else { format!("{page}?{}", asked.join("&")) }
}

/// A value of a form: whatever is not plain, byte for byte.
fn escaped(value: &str) -> String {
    let byte = |byte: u8| match byte {
        b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' | b'.' | b'*' => char::from(byte).to_string(),
        b' ' => "+".to_owned(),
        other => format!("%{other:02X}"),
    };
    value.bytes().map(byte).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_question_is_an_address() {
        assert_eq!(of_list("bindings", "", ""), "bindings");
        assert_eq!(
            of_list("bindings", "nodes = \"gpu&1*\" AND gap:0%", "create_time desc"),
            "bindings?filter=nodes+%3D+%22gpu%261*%22+AND+gap%3A0%25&order_by=create_time+desc"
        );
        assert_eq!(of_list("bindings", "nodes:\u{e4}\u{1b}", ""), "bindings?filter=nodes%3A%C3%A4%1B");
    }
}
