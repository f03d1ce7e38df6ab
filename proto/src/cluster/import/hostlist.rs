//! Slurm's lists of names: `n[0-3,7],login`, `rack[1-2]node[01-16]`.

use super::super::{MAX_NAME, MAX_NODES};

/// Most sets of brackets in a name.
const MAX_BRACKETS: usize = 4;

/// The names, in order, at most [`MAX_NODES`].
///
/// # Errors
/// Says what is wrong with the text, or that it names too many.
pub fn expand(text: &str) -> Result<Vec<String>, String> {
    let mut names = Vec::new();
    for part in split(text)? {
        let part = part.trim();
        if part.is_empty() {
            return Err(format!("{text:?} contains an empty name. Remove the extra comma or bracket"));
        }
        append(part, &mut names)?;
    }
    Ok(names)
}

/// At the commas outside brackets.
fn split(text: &str) -> Result<Vec<&str>, String> {
    let mut parts = Vec::new();
    let (mut begin, mut inside) = (0, false);
    for (at, character) in text.char_indices() {
        match character {
            '[' if inside => {
                return Err(format!("{text:?} has brackets within brackets. Use one level of brackets"));
            }
            '[' => inside = true,
            ']' if !inside => {
                return Err(format!(
                    "{text:?} has a closing bracket without an opening one. Add or remove a bracket"
                ));
            }
            ']' => inside = false,
            ',' if !inside => {
                parts.push(text.get(begin..at).unwrap_or_default());
                begin = at + 1;
            }
            _ => {}
        }
    }
    if inside {
        return Err(format!(
            "{text:?} has an opening bracket without a closing one. Add the closing bracket"
        ));
    }
    parts.push(text.get(begin..).unwrap_or_default());
    Ok(parts)
}

fn append(part: &str, names: &mut Vec<String>) -> Result<(), String> {
    let mut heads = vec![String::new()];
    let mut rest = part;
    for _ in 0..MAX_BRACKETS {
        let Some((before, after)) = rest.split_once('[') else { break };
        let (inside, after) = after.split_once(']').ok_or_else(|| {
            format!("{part:?} has an opening bracket without a closing one. Add the closing bracket")
        })?;
        let numbers = numbers(part, inside)?;
        let count = heads.len().saturating_mul(numbers.len());
        if count > MAX_NODES {
            return Err(too_many(part));
        }
        heads = heads
            .iter()
            .flat_map(|head| numbers.iter().map(move |number| format!("{head}{before}{number}")))
            .collect();
        rest = after;
    }
    if rest.contains('[') {
        return Err(format!("{part:?} has more than {MAX_BRACKETS} pairs of brackets. Split the list"));
    }
    if names.len() + heads.len() > MAX_NODES {
        return Err(too_many(part));
    }
    for head in heads {
        let name = head + rest;
        if name.len() > MAX_NAME {
            return Err(format!(
                "{part:?} contains a name of more than {MAX_NAME} bytes. Use a shorter name"
            ));
        }
        names.push(name);
    }
    Ok(())
}

/// The numbers of `0-3,7`, padded as the first one is written.
fn numbers(part: &str, inside: &str) -> Result<Vec<String>, String> {
    let wrong =
        |range: &str| format!("{part:?}: {range:?} is not a range of numbers. Use for example [0-3,7]");
    let mut all = Vec::new();
    for range in inside.split(',') {
        let range = range.trim();
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        let number = |text: &str| {
            let is_number =
                !text.is_empty() && text.len() <= 18 && text.bytes().all(|byte| byte.is_ascii_digit());
            is_number.then(|| text.parse::<u64>().ok()).flatten().ok_or_else(|| wrong(range))
        };
        let (from, to) = (number(first)?, number(last)?);
        if from > to {
            return Err(wrong(range));
        }
        // Before anything is made of it: a range may be huge.
        if to - from >= MAX_NODES as u64 || all.len() as u64 + (to - from) >= MAX_NODES as u64 {
            return Err(too_many(part));
        }
        all.extend((from..=to).map(|number| format!("{number:0width$}", width = first.len())));
    }
    Ok(all)
}

fn too_many(part: &str) -> String {
    format!("{part:?} expands to more than {MAX_NODES} nodes. Use a smaller range")
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn names(text: &str) -> Vec<String> {
        expand(text).unwrap()
    }

    #[test]
    fn ranges_lists_and_padding_are_those_of_slurm() {
        assert_eq!(names("n[0-2,7]"), ["n0", "n1", "n2", "n7"]);
        assert_eq!(names("n[08-10]"), ["n08", "n09", "n10"]);
        assert_eq!(names("a,b[1-2],c"), ["a", "b1", "b2", "c"]);
        assert_eq!(names("r[1-2]n[0-1].x"), ["r1n0.x", "r1n1.x", "r2n0.x", "r2n1.x"]);
    }

    #[test]
    fn what_is_no_list_is_refused() {
        for wrong in [
            "",
            "n[",
            "n]",
            "n[0-",
            "n[3-1]",
            "n[a-b]",
            "n[[0]]",
            "a,,b",
            "n[0-99999999]",
            "n[0-999]m[0-999]",
        ] {
            assert!(expand(wrong).is_err(), "{wrong:?}");
        }
        assert!(expand("n[0-19999]").is_ok());
        assert!(expand("n[0-20000]").is_err());
        assert!(expand("n[0-99999999999999999999]").is_err());
    }

    proptest! {
        /// No text makes it panic or name more nodes than a cluster may have.
        #[test]
        fn any_text_is_expanded_or_refused(text in "[a-z0-9,\\[\\]-]{0,40}") {
            if let Ok(names) = expand(&text) {
                prop_assert!(names.len() <= MAX_NODES);
            }
        }

        #[test]
        fn a_range_has_every_number_once(from in 0_u32..50, more in 0_u32..50) {
            let names = names(&format!("n[{from}-{}]", from + more));
            let expected: Vec<String> = (from..=from + more).map(|number| format!("n{number}")).collect();
            prop_assert_eq!(names, expected);
        }
    }
}
