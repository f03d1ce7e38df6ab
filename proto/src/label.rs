//! What people write on plans and profiles so that they find them: texts by keys.

use std::collections::{BTreeMap, BTreeSet};
use std::hash::BuildHasher;

use crate::error::Invalid;
use crate::name::is_invisible;

/// Most labels of one thing.
pub const MAX_LABELS: usize = 32;
/// Longest key, characters.
pub const MAX_KEY: usize = 63;
/// Longest value, characters.
pub const MAX_VALUE: usize = 200;

/// Whether a text may be a key: 1 to 63 of `a-z`, `0-9`, `_` and `-`, beginning with a letter. So a filter names it without
/// quotes.
pub fn is_valid_key(key: &str) -> bool {
    let allowed = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || matches!(b, b'_' | b'-');
    key.len() <= MAX_KEY
        && key.starts_with(|first: char| first.is_ascii_lowercase())
        && key.bytes().all(allowed)
}

/// What becomes of labels (AIP-134): first some or all of them go, then some are set.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct LabelChange {
    /// All that were there go, also those of other keys.
    pub replaces_all: bool,
    /// These go.
    pub removed: BTreeSet<String>,
    /// These are there afterwards.
    pub set: BTreeMap<String, String>,
}

impl LabelChange {
    /// What a request with these labels and this mask asks for. The paths are `labels` and `*`, which replace all of them, and
    /// `labels.KEY`, which sets one, or removes it where it is not among the labels. No paths at all mean those that are
    /// among them.
    ///
    /// # Errors
    /// Keys, values and paths that cannot be; paths are relative to the request, whose resource is in the field `of`.
    pub fn asked<S: BuildHasher>(
        of: &str,
        labels: std::collections::HashMap<String, String, S>,
        paths: Option<&[String]>,
    ) -> Result<Self, Invalid> {
        let field = format!("{of}.labels");
        let labels: BTreeMap<String, String> = labels.into_iter().collect();
        for (key, value) in &labels {
            check(&field, key, value)?;
        }
        let paths = paths.unwrap_or_default();
        if paths.is_empty() && labels.is_empty() {
            let what = "has no paths. Use `labels`, or `labels.KEY` for each label that is set or removed";
            return Err(Invalid::field("update_mask", what));
        }
        if paths.is_empty() {
            return checked(Self { set: labels, ..Self::default() }, &field);
        }
        if paths.len() > 2 * MAX_LABELS {
            return Err(invalid!("update_mask", "has more than {} paths. Use `labels`", 2 * MAX_LABELS));
        }
        let mut change = Self::default();
        for path in paths {
            match path.strip_prefix("labels.") {
                None if matches!(path.as_str(), "labels" | "*") => {
                    change.replaces_all = true;
                    change.set.extend(labels.clone());
                }
                Some(key) if is_valid_key(key) => match labels.get(key) {
                    Some(value) => drop(change.set.insert(key.to_owned(), value.clone())),
                    None => drop(change.removed.insert(key.to_owned())),
                },
                Some(key) => return Err(Invalid::field("update_mask", bad_key(key))),
                None => {
                    let what = format!("{:?} cannot be changed. Use labels or labels.KEY", cut(path));
                    return Err(Invalid::field("update_mask", what));
                }
            }
        }
        checked(change, &field)
    }
}

fn checked(change: LabelChange, field: &str) -> Result<LabelChange, Invalid> {
    match change.set.len() {
        0..=MAX_LABELS => Ok(change),
        more => Err(invalid!(field, "{more} labels are too many. Use at most {MAX_LABELS}")),
    }
}

fn check(field: &str, key: &str, value: &str) -> Result<(), Invalid> {
    if !is_valid_key(key) {
        return Err(Invalid::field(field, bad_key(key)));
    }
    if value.chars().count() > MAX_VALUE || value.contains(is_invisible) {
        let what = format!(
            "is not a valid label value. Use at most {MAX_VALUE} characters without control, format or line separator \
             characters"
        );
        return Err(Invalid::field(format!("{field}[{key}]"), what));
    }
    Ok(())
}

fn bad_key(key: &str) -> String {
    format!(
        "{:?} is not a valid label key. Use 1 to {MAX_KEY} characters of a-z, 0-9, '_' and '-', beginning with a letter",
        cut(key)
    )
}

fn cut(text: &str) -> &str {
    &text[..text.floor_char_boundary(80)]
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::*;

    fn asked(labels: &[(&str, &str)], paths: &[&str]) -> Result<LabelChange, Invalid> {
        let labels: HashMap<String, String> =
            labels.iter().map(|&(key, value)| (key.to_owned(), value.to_owned())).collect();
        let paths: Vec<String> = paths.iter().map(|&path| path.to_owned()).collect();
        LabelChange::asked("plan", labels, Some(&paths))
    }

    #[test]
    fn a_mask_says_what_goes_and_what_is_set() {
        let told = |change: LabelChange| {
            let removed: Vec<String> = change.removed.into_iter().collect();
            let set: Vec<String> =
                change.set.into_iter().map(|(key, value)| format!("{key}={value}")).collect();
            (change.replaces_all, removed.join(" "), set.join(" "))
        };
        let of = |labels: &[(&str, &str)], paths: &[&str]| told(asked(labels, paths).unwrap());
        assert_eq!(of(&[("a", "1")], &[]), (false, String::new(), "a=1".to_owned()));
        assert_eq!(of(&[("a", "1"), ("b", "")], &["labels"]), (true, String::new(), "a=1 b=".to_owned()));
        assert_eq!(of(&[], &["*"]), (true, String::new(), String::new()));
        assert_eq!(
            of(&[("a", "1"), ("b", "2")], &["labels.a", "labels.c"]),
            (false, "c".to_owned(), "a=1".to_owned())
        );
    }

    #[test]
    fn what_cannot_be_is_refused_by_its_place() {
        let long = "v".repeat(MAX_VALUE + 1);
        let many: Vec<String> = (0..=MAX_LABELS).map(|index| format!("k{index}")).collect();
        let many: Vec<(&str, &str)> = many.iter().map(|key| (key.as_str(), "v")).collect();
        for (labels, paths, field) in [
            (&[][..], &[][..], "update_mask"),
            (&[("a", "1")], &["name"], "update_mask"),
            (&[("a", "1")], &["labels.A"], "update_mask"),
            (&[("a", "1")], &["labels."], "update_mask"),
            (&[("A", "1")], &["labels"], "plan.labels"),
            (&[("", "1")], &["labels"], "plan.labels"),
            (&[("1a", "1")], &["labels"], "plan.labels"),
            (&[("a.b", "1")], &["labels"], "plan.labels"),
            (&[("a", "x\ny")], &["labels"], "plan.labels[a]"),
            (&[("a", "x\u{202e}y")], &["labels"], "plan.labels[a]"),
            (&[("a", "x\u{2028}y")], &["labels"], "plan.labels[a]"),
            (&[("a", "\u{200b}")], &["labels"], "plan.labels[a]"),
            (&[("a", &long)], &["labels.a"], "plan.labels[a]"),
            (&many, &["labels"], "plan.labels"),
        ] {
            assert_eq!(
                asked(labels, paths).unwrap_err().violations()[0].field,
                field,
                "{labels:?} {paths:?}"
            );
        }
    }
}
