//! Findings that are still allowed: numbers of them in prose, which only go down, and reasons in the API.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context, Result, bail};

/// Number of findings by path and rule.
pub(crate) type Counts = BTreeMap<(String, String), usize>;

/// Reads lines `path rule count`. Paths have no spaces.
pub(crate) fn counts(text: &str) -> Result<Counts> {
    let read = |line: &str| {
        let words: Vec<&str> = line.split_whitespace().collect();
        let [path, rule, count] = words[..] else { bail!("{line:?} is not `path rule count`") };
        Ok((
            (path.to_owned(), rule.to_owned()),
            count.parse().with_context(|| format!("{line:?}: not a number"))?,
        ))
    };
    entries(text).map(read).collect()
}

/// Returns the lines of an exception list.
fn entries(text: &str) -> impl Iterator<Item = &str> {
    text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#'))
}

/// Difference between the findings and the allowed ones.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Difference {
    /// Path, rule, found, allowed.
    pub(crate) more: Vec<(String, String, usize, usize)>,
    pub(crate) fewer: Vec<(String, String, usize, usize)>,
}

pub(crate) fn compare(found: &Counts, allowed: &Counts) -> Difference {
    let mut difference = Difference::default();
    let keys: BTreeSet<_> = found.keys().chain(allowed.keys()).collect();
    for key in keys {
        let count = |counts: &Counts| counts.get(key).copied().unwrap_or(0);
        let row = (key.0.clone(), key.1.clone(), count(found), count(allowed));
        match row.2.cmp(&row.3) {
            std::cmp::Ordering::Greater => difference.more.push(row),
            std::cmp::Ordering::Less => difference.fewer.push(row),
            std::cmp::Ordering::Equal => {}
        }
    }
    difference
}

/// Returns the list of `found`, or nothing if that raises a count.
pub(crate) fn lowered(found: &Counts, allowed: Option<&Counts>) -> Option<String> {
    if allowed.is_some_and(|allowed| !compare(found, allowed).more.is_empty()) {
        return None;
    }
    let head = "# Findings of `loadmaster-lint prose` that are still allowed: path, rule, count. The counts only go down (`--write`).\n";
    let lines = found.iter().map(|((path, rule), count)| format!("{path} {rule} {count}\n"));
    Some(head.to_owned() + &lines.collect::<String>())
}

/// Reads lines `AIP-NNN element  reason`. Returns the rules and elements.
pub(crate) fn reasons(text: &str) -> Result<BTreeSet<(String, String)>> {
    let read = |line: &str| {
        let mut words = line.split_whitespace();
        let (Some(rule), Some(element), Some(_)) = (words.next(), words.next(), words.next()) else {
            bail!("{line:?} is not `AIP-NNN element  reason`")
        };
        Ok((rule.to_owned(), element.to_owned()))
    };
    entries(text).map(read).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_must_be_equal() {
        let allowed = counts("# list\na.md banned-word 2\n\nb.md mean 1\n").unwrap();
        let found = counts("a.md banned-word 3\n").unwrap();
        let difference = compare(&found, &allowed);
        assert_eq!(difference.more, [("a.md".to_owned(), "banned-word".to_owned(), 3, 2)]);
        assert_eq!(difference.fewer, [("b.md".to_owned(), "mean".to_owned(), 0, 1)]);
        assert_eq!(compare(&allowed, &allowed), Difference::default());
    }

    #[test]
    fn a_list_is_not_raised() {
        let allowed = counts("a.md banned-word 2\nb.md mean 1").unwrap();
        let lower = lowered(&counts("a.md banned-word 1").unwrap(), Some(&allowed)).unwrap();
        assert_eq!(counts(&lower).unwrap(), counts("a.md banned-word 1").unwrap());
        let higher = counts("a.md banned-word 3").unwrap();
        assert_eq!(lowered(&higher, Some(&allowed)), None);
        assert!(lowered(&higher, None).is_some(), "the first list is written from the findings");
    }

    #[test]
    fn malformed_lines_are_errors() {
        assert!(counts("a.md banned-word").is_err());
        assert!(counts("a.md banned-word many").is_err());
        assert!(reasons("AIP-140 loadmaster.v1.Plan.a").is_err());
        assert_eq!(reasons("AIP-140 a.b  SQL's own word").unwrap().len(), 1);
    }
}
