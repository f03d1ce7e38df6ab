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

/// A path and rule whose number of findings is not the allowed one.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Difference {
    pub(crate) key: (String, String),
    pub(crate) found: usize,
    pub(crate) allowed: usize,
}

pub(crate) fn compare(found: &Counts, allowed: &Counts) -> Vec<Difference> {
    let count = |counts: &Counts, key| counts.get(key).copied().unwrap_or(0);
    let keys: BTreeSet<_> = found.keys().chain(allowed.keys()).collect();
    let rows = keys.into_iter().map(|key| Difference {
        key: key.clone(),
        found: count(found, key),
        allowed: count(allowed, key),
    });
    rows.filter(|row| row.found != row.allowed).collect()
}

/// Returns the allowed counts, none above the number of findings.
pub(crate) fn lowered(found: &Counts, allowed: &Counts) -> Counts {
    let keys = found.keys().filter(|key| allowed.contains_key(*key));
    keys.map(|key| (key.clone(), found[key].min(allowed[key]))).collect()
}

/// Returns the list of `counts`.
pub(crate) fn list(counts: &Counts) -> String {
    let head = "# Findings of `loadmaster-lint prose` that are allowed: path, rule, count. `--write` lowers the counts.\n";
    let lines = counts.iter().map(|((path, rule), count)| format!("{path} {rule} {count}\n"));
    head.to_owned() + &lines.collect::<String>()
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
        let rows = compare(&found, &allowed);
        let rows: Vec<_> = rows.iter().map(|row| (row.key.0.as_str(), row.found, row.allowed)).collect();
        assert_eq!(rows, [("a.md", 3, 2), ("b.md", 0, 1)]);
        assert_eq!(compare(&allowed, &allowed), []);
    }

    #[test]
    fn a_list_is_not_raised() {
        let allowed = counts("a.md banned-word 2\nb.md mean 1").unwrap();
        let found = counts("a.md banned-word 1\nc.md mean 1").unwrap();
        assert_eq!(lowered(&found, &allowed), counts("a.md banned-word 1").unwrap());
        assert_eq!(
            lowered(&counts("a.md banned-word 3").unwrap(), &allowed),
            counts("a.md banned-word 2").unwrap()
        );
        assert_eq!(counts(&list(&allowed)).unwrap(), allowed);
    }

    #[test]
    fn malformed_lines_are_errors() {
        assert!(counts("a.md banned-word").is_err());
        assert!(counts("a.md banned-word many").is_err());
        assert!(reasons("AIP-140 loadmaster.v1.Plan.a").is_err());
        assert_eq!(reasons("AIP-140 a.b  SQL's own word").unwrap().len(), 1);
    }
}
