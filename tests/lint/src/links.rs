//! Links and file names in documents: each leads to a file, and to a heading, of the repository.

use std::collections::BTreeSet;
use std::path::{Component, Path, PathBuf};

use anyhow::{Context, Result};

/// The guide, and the list of its pages, which mdBook reads.
pub(crate) const GUIDE: &str = "deploy/guide";
pub(crate) const SUMMARY: &str = "deploy/guide/SUMMARY.md";
/// The README has at most this many bytes: details belong into the guide.
const README_BYTES: u64 = 9 << 10;

/// Returns a line for each link without a target, each named file that is missing, and each page of the guide that
/// `SUMMARY.md` leaves out. Documents are Markdown files relative to the root. They name files from the root or from their folder.
pub(crate) fn check(root: &Path, documents: &BTreeSet<String>) -> Result<Vec<String>> {
    let mut findings = broken(root, documents)?;
    for document in documents {
        let text = read(root, document)?;
        let exists = |path: &str| root.join(path).exists() || root.join(resolved(document, path).0).exists();
        let missing = named(&text).filter(|(_, path)| !exists(path));
        findings
            .extend(missing.map(|(line, path)| format!("{document}:{line}: file: {path} does not exist")));
    }
    let summary = read(root, SUMMARY)?;
    let listed: BTreeSet<String> = links(&summary).map(|(_, link)| resolved(SUMMARY, link).0).collect();
    let pages = documents.iter().filter(|path| path.starts_with(GUIDE) && *path != SUMMARY);
    let hidden = pages.filter(|page| !listed.contains(*page));
    findings.extend(hidden.map(|page| format!("{SUMMARY}: it does not list {page}")));
    let bytes = std::fs::metadata(root.join("README.md")).context("README.md")?.len();
    if bytes > README_BYTES {
        findings.push(format!("README.md: it has {bytes} bytes, {README_BYTES} are allowed"));
    }
    Ok(findings)
}

/// Returns a line for each link whose file or heading is missing.
pub(crate) fn broken(root: &Path, documents: &BTreeSet<String>) -> Result<Vec<String>> {
    let mut findings = Vec::new();
    for document in documents {
        for (line, link) in links(&read(root, document)?) {
            let (target, heading) = resolved(document, link);
            if !root.join(&target).exists() {
                findings.push(format!("{document}:{line}: link: {link} leads to no file"));
            } else if !heading.is_empty() && !anchors(&read(root, &target)?).contains(heading) {
                findings.push(format!("{document}:{line}: link: {target} has no heading {heading}"));
            }
        }
    }
    Ok(findings)
}

pub(crate) fn read(root: &Path, path: &str) -> Result<String> {
    std::fs::read_to_string(root.join(path)).with_context(|| path.to_owned())
}

/// Returns line and target of each link to a file, picture or heading.
pub(crate) fn links(text: &str) -> impl Iterator<Item = (usize, &str)> {
    (1..).zip(text.lines()).flat_map(|(line, text)| {
        let targets =
            text.split("](").skip(1).filter_map(|rest| rest.split_once(')')).map(|(target, _)| target);
        targets.filter(|target| !target.contains("://")).map(move |target| (line, target))
    })
}

/// Returns the file, from the root, and the heading that `link` in `document` leads to.
pub(crate) fn resolved<'a>(document: &str, link: &'a str) -> (String, &'a str) {
    let (file, heading) = link.split_once('#').unwrap_or((link, ""));
    if file.is_empty() {
        return (document.to_owned(), heading);
    }
    let mut target = Path::new(document).parent().map(PathBuf::from).unwrap_or_default();
    for part in Path::new(file).components() {
        match part {
            Component::ParentDir if target.pop() => {}
            Component::CurDir => {}
            part => target.push(part),
        }
    }
    (target.to_string_lossy().into_owned(), heading)
}

/// Names of all headings in links, as GitHub and mdBook form them.
fn anchors(text: &str) -> BTreeSet<String> {
    let headings = text.lines().filter(|line| line.starts_with('#'));
    headings.map(|line| anchor(line.trim_start_matches('#'))).collect()
}

pub(crate) fn anchor(heading: &str) -> String {
    let lower = heading.trim().to_lowercase();
    let kept = lower.chars().filter(|&c| c.is_alphanumeric() || " -_".contains(c));
    kept.map(|c| if c == ' ' { '-' } else { c }).collect()
}

/// Returns line and path of each piece of code that looks like a source file or a folder: `a/b.rs`, `a/b/`. A part in
/// capitals stands for any name.
fn named(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let is_path = |word: &&str| {
        word.chars().all(|c| c.is_ascii_alphanumeric() || "_-./".contains(c))
            && word.contains('/')
            && !word.starts_with(['/', '.'])
            && (word.ends_with(".rs") || word.ends_with('/'))
            && !word.split('/').any(|part| part.len() > 1 && part.chars().all(|c| c.is_ascii_uppercase()))
    };
    (1..).zip(text.lines()).flat_map(move |(line, text)| {
        text.split('`').skip(1).step_by(2).filter(is_path).map(move |path| (line, path))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_lead_to_files_and_headings() {
        assert_eq!(resolved("a/b/c.md", "../d.md#e-f"), ("a/d.md".to_owned(), "e-f"));
        assert_eq!(resolved("a/b.md", "#e"), ("a/b.md".to_owned(), "e"));
        assert_eq!(resolved("a.md", "./b/c.svg"), ("b/c.svg".to_owned(), ""));
        assert_eq!(
            anchors("# Run `x_y`, again\n## 8. Upgrade"),
            ["8-upgrade", "run-x_y-again"].map(str::to_owned).into()
        );
    }

    #[test]
    fn every_fault_of_a_document_is_found() {
        let root = std::env::temp_dir().join(format!("loadmaster-links-{}", std::process::id()));
        let texts = [
            (
                "README.md",
                "# A\n[b](deploy/guide/b.md#b) `deploy/guide/`\n[c](c.md) [d](#d) `a/c.rs` [e](http://e)",
            ),
            ("deploy/guide/b.md", "# B\n[up](../../README.md#a)"),
            (SUMMARY, ""),
        ];
        std::fs::create_dir_all(root.join(GUIDE)).unwrap();
        texts.iter().for_each(|(path, text)| std::fs::write(root.join(path), text).unwrap());
        let found = check(&root, &texts.iter().map(|(path, _)| (*path).to_owned()).collect()).unwrap();
        std::fs::remove_dir_all(root).unwrap();
        let expected = [
            "README.md:3: link: c.md leads to no file",
            "README.md:3: link: README.md has no heading d",
            "README.md:3: file: a/c.rs does not exist",
            "deploy/guide/SUMMARY.md: it does not list deploy/guide/b.md",
        ];
        assert_eq!(found, expected);
    }
}
