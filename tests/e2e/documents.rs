//! What documents and targets name is there.

use std::path::{Path, PathBuf};

/// Documents that name files and folders of the repository, besides the guide's pages.
const DOCUMENTS: [&str; 6] = [
    "README.md",
    "ARCHITECTURE.md",
    "CONTRIBUTING.md",
    "deploy/errors.md",
    "server/planning/DECISIONS.md",
    "worker/rank/README.md",
];
/// The guide's pages.
const GUIDE: &str = "deploy/guide";
/// The README has at most this many bytes: details belong into the guide.
const README_BYTES: usize = 9 << 10;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// Words in backticks that look like a path of sources from the root: `a/b.rs`, `a/b/`.
fn paths(text: &str) -> Vec<&str> {
    let is_path = |word: &&str| {
        let plain = word.chars().all(|c| c.is_ascii_alphanumeric() || "_-./".contains(c));
        plain
            && word.contains('/')
            && !word.starts_with(['/', '.'])
            && (word.ends_with(".rs") || word.ends_with('/'))
    };
    text.split('`').skip(1).step_by(2).filter(is_path).collect()
}

/// The Markdown files of the guide and of its folders, from the root.
fn pages() -> Vec<String> {
    let (mut folders, mut pages) = (vec![GUIDE.to_owned()], Vec::new());
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(root().join(&folder)).unwrap() {
            let entry = entry.unwrap();
            let path = format!("{folder}/{}", entry.file_name().to_str().unwrap());
            if entry.file_type().unwrap().is_dir() {
                folders.push(path);
            } else if Path::new(&path).extension().is_some_and(|extension| extension == "md") {
                pages.push(path);
            }
        }
    }
    assert!(pages.len() > 30, "{pages:?}");
    pages
}

fn documents() -> Vec<String> {
    DOCUMENTS.into_iter().map(str::to_owned).chain(pages()).collect()
}

/// Where links to other documents, pictures and headings lead.
fn links(text: &str) -> Vec<&str> {
    let targets = text.split("](").skip(1).filter_map(|rest| rest.split_once(')')).map(|(target, _)| target);
    targets.filter(|target| !target.starts_with("http")).collect()
}

/// What a heading is called in links to it.
fn anchors(text: &str) -> Vec<String> {
    let headings = text.lines().filter(|line| line.starts_with('#'));
    let anchor = |line: &str| {
        let heading = line.trim_start_matches('#').trim().to_lowercase();
        let kept = heading.chars().filter(|&c| c.is_alphanumeric() || " -_".contains(c));
        kept.map(|c| if c == ' ' { '-' } else { c }).collect()
    };
    headings.map(anchor).collect()
}

/// Links to files and headings resolve, relative to the folder of the document.
#[test]
fn documents_link_to_what_is_there() {
    let read = |path: &Path| std::fs::read_to_string(path).unwrap();
    let mut checked = 0;
    for document in documents() {
        let path = root().join(&document);
        for link in links(&read(&path)) {
            let (file, heading) = link.split_once('#').unwrap_or((link, ""));
            let target = if file.is_empty() { path.clone() } else { path.parent().unwrap().join(file) };
            assert!(target.exists(), "{document} links to {link}");
            assert!(
                heading.is_empty() || anchors(&read(&target)).iter().any(|anchor| anchor == heading),
                "{document} links to {link}, a heading that is not there"
            );
            checked += 1;
        }
    }
    assert!(checked > 40, "only {checked} links were found");
}

/// A reader of the README finds the guide, and the README takes a few minutes to read.
#[test]
fn the_readme_is_short_and_links_to_the_guide() {
    let readme = std::fs::read_to_string(root().join("README.md")).unwrap();
    assert!(links(&readme).contains(&"deploy/guide/README.md"), "the README has no link to the guide");
    assert!(readme.len() <= README_BYTES, "the README has {} of {README_BYTES} bytes", readme.len());
}

/// mdBook renders the pages that `SUMMARY.md` lists.
#[test]
fn the_summary_lists_every_page_of_the_guide() {
    let summary = std::fs::read_to_string(root().join(GUIDE).join("SUMMARY.md")).unwrap();
    let listed = links(&summary);
    for page in pages() {
        let page = page.strip_prefix(GUIDE).unwrap().trim_start_matches('/');
        assert!(page == "SUMMARY.md" || listed.contains(&page), "SUMMARY.md does not list {page}");
    }
}

#[test]
fn documents_name_files_that_are_there() {
    let mut checked = 0;
    for document in documents() {
        let text = std::fs::read_to_string(root().join(&document)).unwrap();
        let missing: Vec<&str> =
            paths(&text).into_iter().filter(|path| !root().join(path).exists()).collect();
        assert!(missing.is_empty(), "{document} names {missing:?}");
        checked += paths(&text).len();
    }
    assert!(checked > 60, "only {checked} paths were found");
}

/// Every group of packages that a target installs is one that the script knows: what it refuses is skipped for ever.
#[test]
fn targets_install_packages_that_there_are() {
    let read = |path: &str| std::fs::read_to_string(root().join(path)).unwrap();
    let known = read("deploy/setup/packages.sh");
    let mut groups = Vec::new();
    for text in [read("Makefile"), read(".ci/run")] {
        for asked in text.split("packages.sh ").skip(1) {
            let words = asked.lines().next().unwrap_or_default().split_whitespace();
            groups.extend(words.take_while(|word| word.chars().all(char::is_alphabetic)).map(str::to_owned));
        }
    }
    assert!(groups.len() > 4, "{groups:?}");
    for group in groups {
        assert!(known.contains(&format!("    {group}) need_{group} ;;\n")), "{group}");
    }
}
