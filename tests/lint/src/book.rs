//! Source of the book: the guide, the documents that it links to, and generated reference pages.
//!
//! Files have their paths of the repository, so links stay as they are. mdBook renders what `SUMMARY.md` lists and
//! copies every other file.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use anyhow::{Context, Result};

use crate::api::pages::Page;
use crate::links::{GUIDE, SUMMARY, broken, links, read, resolved};

/// Writes the source of the book into `folder`, which it replaces, and checks its links.
pub(crate) fn write(
    folder: &Path,
    guide: &BTreeSet<String>,
    reference: &[(&str, Vec<Page>)],
) -> Result<Vec<String>> {
    let mut texts = BTreeMap::new();
    let mut others = BTreeSet::new();
    let mut open: Vec<String> = guide.iter().cloned().collect();
    while let Some(path) = open.pop() {
        if Path::new(&path).is_dir() || texts.contains_key(&path) {
            continue;
        }
        if !path.ends_with(".md") {
            others.insert(path);
            continue;
        }
        let text = read(Path::new("."), &path)?;
        open.extend(links(&text).map(|(_, link)| resolved(&path, link).0));
        texts.insert(path, text);
    }
    let summary = texts.remove(SUMMARY).context("deploy/guide has no SUMMARY.md")?;
    let mut generated = String::new();
    for (title, pages) in reference {
        let place = |page: &Page| {
            format!("{GUIDE}/reference/{}/{}", title.to_lowercase().replace(' ', "-"), page.file)
        };
        let first = pages.first().with_context(|| format!("{title}: there is no page"))?;
        generated += &format!("- [{title}]({})\n", place(first));
        pages[1..].iter().for_each(|page| generated += &format!("  - [{}]({})\n", page.title, place(page)));
        texts.extend(pages.iter().map(|page| (place(page), page.text.clone())));
    }
    let mut listed: BTreeSet<String> = links(&summary).map(|(_, link)| resolved(SUMMARY, link).0).collect();
    // The first chapter is the book's index, too, so it stands in the root.
    listed.insert("README.md".to_owned());
    let is_more = |path: &&String| !listed.contains(*path) && !path.starts_with(GUIDE);
    let more: Vec<_> = texts.keys().filter(is_more).map(|path| format!("- [{path}]({path})\n")).collect();
    let mut lines = "[Loadmaster](README.md)\n".to_owned();
    for line in summary.lines().skip_while(|line| !line.contains("](")) {
        // Behind the last page of the reference.
        if line == "# Results" {
            lines += &format!("{}\n", std::mem::take(&mut generated));
        }
        match line.split_once("](").and_then(|(name, link)| Some((name, link.strip_suffix(')')?))) {
            Some((name, link)) => lines += &format!("{name}]({})\n", resolved(SUMMARY, link).0),
            None => lines += &format!("{line}\n"),
        }
    }
    texts.insert("SUMMARY.md".to_owned(), format!("{lines}\n# Repository\n\n{}", more.concat()));

    if folder.exists() {
        std::fs::remove_dir_all(folder).with_context(|| folder.display().to_string())?;
    }
    let place = |path: &str| -> Result<_> {
        let place = folder.join(path);
        std::fs::create_dir_all(place.parent().context("a file has a folder")?)?;
        Ok(place)
    };
    texts.iter().try_for_each(|(path, text)| std::fs::write(place(path)?, text).context(path.clone()))?;
    for path in &others {
        std::fs::copy(path, place(path)?).with_context(|| path.clone())?;
    }
    broken(folder, &texts.into_keys().collect())
}
