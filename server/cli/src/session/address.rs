//! Addresses of pages that show what was asked for.

/// The path of a page of a list that asks the same.
pub(crate) fn of_list(page: &str, filter: &str, order_by: &str) -> String {
    of_form(page, &[("filter", filter), ("order_by", order_by)])
}

/// The path of a page with a form that asks for these values, but for those that are empty: as a browser writes it.
pub(crate) fn of_form(page: &str, asked: &[(&str, &str)]) -> String {
    let asked: Vec<String> = asked
        .iter()
        .filter(|(_, value)| !value.is_empty())
        .map(|(key, value)| format!("{key}={}", escaped(value)))
        .collect();
    if asked.is_empty() { page.to_owned() } else { format!("{page}?{}", asked.join("&")) }
}

/// A filter that also asks for these values of fields, where there are some. They come first, as OR binds closer than AND.
pub(crate) fn narrowed(fields: &[(&str, &str)], filter: &str) -> String {
    let known = fields.iter().filter(|(_, value)| !value.is_empty());
    let known = known.map(|(field, value)| format!("{field} = \"{}\"", quoted(value)));
    let typed = Some(filter.to_owned()).filter(|filter| !filter.trim().is_empty());
    known.chain(typed).collect::<Vec<_>>().join(" AND ")
}

/// A text between quotes of a filter.
fn quoted(value: &str) -> String {
    let letter = |letter: char| match letter {
        '"' | '\\' | '*' => format!("\\{letter}"),
        other => other.to_string(),
    };
    value.chars().map(letter).collect()
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
    fn what_is_known_besides_is_a_part_of_the_filter() {
        assert_eq!(narrowed(&[("plan", "")], " "), "");
        assert_eq!(narrowed(&[("plan", "a1")], ""), "plan = \"a1\"");
        let two = narrowed(&[("operation", "o"), ("state", ""), ("kind", "a\"*")], "b = 1 OR c = 2");
        assert_eq!(two, "operation = \"o\" AND kind = \"a\\\"\\*\" AND b = 1 OR c = 2");
    }

    #[test]
    fn a_question_is_an_address() {
        assert_eq!(of_list("placements", "", ""), "placements");
        assert_eq!(
            of_list("placements", "nodes = \"gpu&1*\" AND gap:0%", "create_time desc"),
            "placements?filter=nodes+%3D+%22gpu%261*%22+AND+gap%3A0%25&order_by=create_time+desc"
        );
        assert_eq!(of_list("placements", "nodes:\u{e4}\u{1b}", ""), "placements?filter=nodes%3A%C3%A4%1B");
    }
}
