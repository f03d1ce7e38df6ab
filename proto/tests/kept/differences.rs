//! What changed between a kept answer and today's, by the path of each field: a reader sees at once which one.

use serde_json::Value;

/// Most differences that are shown.
const SHOWN: usize = 20;

/// The differences of two JSON texts, one on each line; both texts where they are not JSON.
pub(crate) fn differences(kept: &str, now: &str) -> String {
    let (Ok(old), Ok(new)) = (serde_json::from_str(kept), serde_json::from_str(now)) else {
        return format!("  kept {kept}\n  now  {now}\n");
    };
    let mut found = Vec::new();
    walk("", &old, &new, &mut found);
    if found.is_empty() {
        // Content ids are made of the text, so the order of fields matters too.
        return format!("  the fields are equal and their order is not:\n  kept {kept}\n  now  {now}\n");
    }
    let more = found.len().saturating_sub(SHOWN);
    found.truncate(SHOWN);
    if more > 0 {
        found.push(format!("  and {more} more\n"));
    }
    found.concat()
}

fn walk(path: &str, old: &Value, new: &Value, found: &mut Vec<String>) {
    match (old, new) {
        (Value::Object(old), Value::Object(new)) => {
            let gone = old.keys().filter(|key| !new.contains_key(*key));
            found.extend(gone.map(|key| format!("  {path}.{key}: kept {}, now missing\n", short(&old[key]))));
            for (key, value) in new {
                match old.get(key) {
                    Some(before) => walk(&format!("{path}.{key}"), before, value, found),
                    None => found.push(format!("  {path}.{key}: not kept, now {}\n", short(value))),
                }
            }
        }
        (Value::Array(old), Value::Array(new)) if old.len() == new.len() => {
            for (index, (old, new)) in old.iter().zip(new).enumerate() {
                walk(&format!("{path}[{index}]"), old, new, found);
            }
        }
        (old, new) if old == new => {}
        (old, new) => found.push(format!("  {path}: kept {}, now {}\n", short(old), short(new))),
    }
}

fn short(value: &Value) -> String {
    let text = value.to_string();
    match text.char_indices().nth(200) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text,
    }
}
