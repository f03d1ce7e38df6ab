//! Prose of the repository: which files and parts of files are read, and as which kind of text.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;
use std::sync::LazyLock;

use anyhow::{Context, Result, ensure};
use regex_lite::Regex;

use crate::rust;
use crate::sentences::{Paragraph, paragraphs, printed, regex, words};

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Kind {
    Markdown,
    Proto,
    Rust,
    Help,
    Message,
}

impl Kind {
    pub(crate) fn name(self) -> String {
        format!("{self:?}").to_lowercase()
    }
}

#[derive(Debug, Clone)]
pub(crate) struct Passage {
    pub(crate) kind: Kind,
    pub(crate) path: String,
    pub(crate) paragraph: Paragraph,
}

/// Returns the tracked files below the current folder, without those that were deleted.
pub(crate) fn tracked() -> Result<BTreeSet<String>> {
    let git = Command::new("git").args(["ls-files", "-z"]).output().context("git cannot be started")?;
    ensure!(git.status.success(), "git ls-files failed: {}", String::from_utf8_lossy(&git.stderr).trim());
    let listed = String::from_utf8(git.stdout).context("a tracked file's name is not UTF-8")?;
    let files = listed.split_terminator('\0').filter(|path| Path::new(path).is_file());
    Ok(files.map(str::to_owned).collect())
}

/// Returns all prose of `files`.
pub(crate) fn read(files: &BTreeSet<String>) -> Result<Vec<Passage>> {
    let read = |path: &String| {
        let text = std::fs::read_to_string(path).with_context(|| path.clone())?;
        Ok((path.clone(), text))
    };
    let files: Vec<_> = files.iter().filter(|path| is_read(path)).map(read).collect::<Result<_>>()?;
    Ok(passages(&files))
}

fn is_read(path: &str) -> bool {
    let root = path.split('/').next().unwrap_or_default();
    let mut folders = path.split('/').rev().skip(1);
    match path.rsplit_once('.') {
        Some((_, "md")) => true,
        Some((_, "proto")) => path.starts_with("proto/loadmaster/"),
        Some((_, "txt")) => path.starts_with("server/cli/src/verbs/"),
        Some((stem, "rs")) => {
            ["proto", "server", "worker"].contains(&root)
                && !folders
                    .any(|folder| ["tests", "testing", "benches", "examples", "samples"].contains(&folder))
                && !["/tests", "/testing", "/build"].iter().any(|file| stem.ends_with(file))
        }
        _ => false,
    }
}

fn passages(files: &[(String, String)]) -> Vec<Passage> {
    let mut passages = Vec::new();
    let mut test_modules = BTreeSet::new();
    for (path, text) in files {
        let mut add = |kind, paragraphs: Vec<Paragraph>| {
            passages.extend(paragraphs.into_iter().map(|paragraph| Passage {
                kind,
                path: path.clone(),
                paragraph,
            }));
        };
        let lines = (1..).zip(text.lines());
        if path.ends_with(".md") {
            add(Kind::Markdown, paragraphs(lines, false));
        } else if path.ends_with(".proto") {
            let comments =
                lines.filter_map(|(line, text)| Some((line, text.trim_start().strip_prefix("//")?)));
            add(Kind::Proto, paragraphs(comments, false));
        } else if path.ends_with(".txt") {
            add(Kind::Help, paragraphs(lines, true));
        } else {
            let prose = rust::prose(text, path.ends_with("/help.rs"));
            let folder = module_folder(path);
            test_modules.extend(prose.test_modules.iter().map(|module| format!("{folder}/{module}")));
            let docs = prose.texts.iter().filter(|(kind, ..)| *kind == Kind::Rust);
            add(Kind::Rust, paragraphs(docs.map(|(_, line, text)| (*line, text.as_str())), false));
            for (kind, line, text) in prose.texts.iter().filter(|(kind, ..)| *kind != Kind::Rust) {
                let is_help = *kind == Kind::Help;
                let text = if is_help { text.clone() } else { printed(text) };
                if is_help || is_message(&text) {
                    add(*kind, paragraphs((*line..).zip(text.lines()), is_help));
                }
            }
        }
    }
    passages.retain(|passage| {
        let stem = passage.path.trim_end_matches(".rs");
        !test_modules.iter().any(|module| {
            stem.strip_prefix(module.as_str()).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        })
    });
    passages
}

/// Folder of the modules that the file at `path` declares.
fn module_folder(path: &str) -> &str {
    let (folder, file) = path.rsplit_once('/').unwrap_or(("", path));
    if ["mod.rs", "lib.rs", "main.rs"].contains(&file) { folder } else { path.trim_end_matches(".rs") }
}

/// Whether a literal is a message: at least five words, and no SQL, JSON, markup or code.
fn is_message(text: &str) -> bool {
    static SQL: LazyLock<Regex> = LazyLock::new(|| {
        regex(
            r"\b(SELECT|FROM|WHERE|INSERT|UPDATE|DELETE|VALUES|JOIN|ORDER BY|COALESCE|RETURNING|SET|ON CONFLICT|IS NULL|IS NOT NULL|LIMIT|ALTER|CREATE|CAST)\b|\$\d|::(text|int|bigint|jsonb)",
        )
    });
    static CODE: LazyLock<Regex> =
        LazyLock::new(|| regex(r#"^\s*[\[<#{]["a-z/!]|"\s*:|</|[;{]\s*$|\s=\s|\(\)|=>"#));
    static WORD: LazyLock<Regex> = LazyLock::new(|| regex(r"[A-Za-z]{2}"));
    let prose = text.replace("{X}", " ");
    words(text) >= 5
        && prose.split_whitespace().filter(|word| WORD.is_match(word)).count() >= 3
        && !SQL.is_match(&prose)
        && !CODE.is_match(&prose)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(path: &str, text: &str) -> Vec<(Kind, usize, String)> {
        let found = passages(&[(path.to_owned(), text.to_owned())]);
        found.into_iter().map(|one| (one.kind, one.paragraph.line, one.paragraph.text)).collect()
    }

    #[test]
    fn only_own_production_files_are_read() {
        for path in [
            "README.md",
            "deploy/guide/models.md",
            "proto/loadmaster/v1/plan.proto",
            "worker/rank/src/main.rs",
        ] {
            assert!(is_read(path), "{path}");
        }
        for path in [
            "tests/e2e/log.rs",
            "server/src/tests.rs",
            "server/show/src/tests/a.rs",
            "proto/google/api/http.proto",
            "Makefile",
        ] {
            assert!(!is_read(path), "{path}");
        }
    }

    #[test]
    fn comments_of_protos_end_before_their_element() {
        let text = "// One\n// two.\nint32 a = 1;\n  // Three.\nstring url = 2 [default = \"http://x\"];";
        let expected = [(Kind::Proto, 1, "One two.".to_owned()), (Kind::Proto, 4, "Three.".to_owned())];
        assert_eq!(found("a.proto", text), expected);
    }

    #[test]
    fn messages_have_words() {
        assert!(is_message("{X}: the file has no layers"));
        for text in [
            "{X} of {X}: {X} {X}",
            "too few",
            "SELECT a, b FROM c WHERE d",
            "{\"a\": 1, \"b\": 2, \"c\": 3}",
            "<p>one two three four five</p>",
        ] {
            assert!(!is_message(text), "{text}");
        }
    }

    #[test]
    fn modules_of_tests_in_files_of_their_own_are_skipped() {
        let doc = "//! One two.".to_owned();
        let files =
            [("a/b.rs", "#[cfg(test)]\nmod c;"), ("a/b/c.rs", &doc), ("a/b/c/d.rs", &doc), ("a/c.rs", &doc)];
        let found = passages(&files.map(|(path, text)| (path.to_owned(), text.to_owned())));
        assert_eq!(found.iter().map(|one| one.path.as_str()).collect::<Vec<_>>(), ["a/c.rs"]);
    }
}
