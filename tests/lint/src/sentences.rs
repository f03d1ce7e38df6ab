//! Paragraphs of a text, their sentences, and the number of words in each.

use std::sync::LazyLock;

use regex_lite::Regex;

/// A paragraph or list item, without code, links and markup.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Paragraph {
    pub(crate) line: usize,
    pub(crate) text: String,
}

/// Beginnings of lines that are no prose.
const SKIPPED: [&str; 4] = ["```", "|", "#", "<"];

static ITEM: LazyLock<Regex> = LazyLock::new(|| regex(r"^([-*•]|\d+[.)]) +"));
static CODE: LazyLock<Regex> = LazyLock::new(|| regex(r"``.+?``|`[^`]*`"));
static LINK: LazyLock<Regex> = LazyLock::new(|| regex(r"!?\[([^\]]*)\](\([^)]*\)|\[[^\]]*\])?"));
static TAG: LazyLock<Regex> = LazyLock::new(|| regex(r"</?[a-z][^>]*>"));
/// Placeholders of Rust's format strings.
static PLACEHOLDER: LazyLock<Regex> = LazyLock::new(|| regex(r"\{[A-Za-z0-9_.]*(:[^{}]*)?\}"));

/// Compiles a pattern that is part of this program.
#[allow(clippy::expect_used)]
pub(crate) fn regex(pattern: &str) -> Regex {
    Regex::new(pattern).expect("a pattern of this program is valid")
}

/// Collects numbered lines into paragraphs. Tables, headings, code and HTML are left out. In a help text a line of
/// another indentation begins a paragraph, and indented commands are code.
pub(crate) fn paragraphs<'a>(lines: impl Iterator<Item = (usize, &'a str)>, is_help: bool) -> Vec<Paragraph> {
    let mut done: Vec<Paragraph> = Vec::new();
    let (mut last, mut indent, mut fenced, mut open) = (0, 0, false, false);
    for (line, text) in lines {
        let prose = text.trim();
        let spaces = text.len() - text.trim_start().len();
        // A fence that is not closed ends with its comment.
        (open, fenced) = (open && line == last + 1, fenced && line == last + 1);
        last = line;
        fenced ^= prose.starts_with("```");
        let is_command = is_help && (spaces >= 4 || spaces >= 2 && prose.starts_with("loadmaster"));
        let is_code = fenced || is_command || spaces >= 4 && !open;
        if is_code || prose.is_empty() || SKIPPED.iter().any(|sign| prose.starts_with(sign)) {
            open = false;
            continue;
        }
        let item = ITEM.find(prose).map_or(0, |marker| marker.end());
        open &= item == 0 && !(is_help && spaces != indent);
        match done.last_mut().filter(|_| open) {
            Some(paragraph) => paragraph.text = format!("{} {prose}", paragraph.text),
            None => done.push(Paragraph { line, text: prose[item..].to_owned() }),
        }
        (open, indent) = (true, spaces);
    }
    done.iter_mut().for_each(|paragraph| paragraph.text = plain(&paragraph.text));
    done
}

/// Returns `text` without code, links and tags. A piece of code becomes one word, so that identifiers are not read as prose.
fn plain(text: &str) -> String {
    let text = CODE.replace_all(text, "X");
    let text = LINK.replace_all(&text, "$1");
    TAG.replace_all(&text, "").replace("**", "")
}

/// Returns the text that a format string prints, with one word for each placeholder, in braces.
pub(crate) fn printed(format: &str) -> String {
    PLACEHOLDER
        .replace_all(&format.replace("{{", "\u{1}").replace("}}", "\u{2}"), "{X}")
        .replace('\u{1}', "{")
        .replace('\u{2}', "}")
}

/// Splits a paragraph into sentences. A colon ends one, as does a full stop, where a capital or code follows.
pub(crate) fn sentences(text: &str) -> Vec<&str> {
    let mut sentences = Vec::new();
    let mut start = 0;
    for (at, _) in text.match_indices(char::is_whitespace) {
        let before = text[start..at].trim_end_matches([')', '"', '*', '”']);
        let begins = text[at..].trim_start().starts_with(|c: char| c.is_uppercase() || "*[(\"{".contains(c));
        let short = ["e.g.", "i.e.", "cf.", "vs.", "Fig.", "Eq.", "Sec.", "No."];
        let abbreviated = before
            .rsplit(char::is_whitespace)
            .next()
            .is_some_and(|word| short.contains(&word.trim_start_matches('(')));
        if before.ends_with(['.', '!', '?', ':']) && begins && !abbreviated {
            sentences.push(text[start..at].trim());
            start = at;
        }
    }
    sentences.push(text[start..].trim());
    sentences.retain(|sentence| words(sentence) > 1);
    sentences
}

/// Number of words: signs between spaces are none.
pub(crate) fn words(text: &str) -> usize {
    text.split_whitespace().filter(|word| word.contains(char::is_alphanumeric)).count()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str, is_help: bool) -> Vec<(usize, String)> {
        let found = paragraphs((1..).zip(text.lines()), is_help);
        found.into_iter().map(|paragraph| (paragraph.line, paragraph.text)).collect()
    }

    #[test]
    fn items_are_paragraphs_and_tables_and_code_are_none() {
        let text = "# Title\none\ntwo `a b`\n- item\n  more\n2. [next](url)\n\n| a | b |\n```\ncode\n```\n    code\nlast";
        let expected = [(2, "one two X"), (4, "item more"), (6, "next"), (13, "last")];
        assert_eq!(read(text, false), expected.map(|(line, text)| (line, text.to_owned())));
    }

    #[test]
    fn a_gap_between_lines_ends_a_paragraph() {
        assert_eq!(paragraphs([(3, "one"), (5, "two")].into_iter(), false).len(), 2);
        assert_eq!(paragraphs([(3, "```"), (4, "code"), (6, "two")].into_iter(), false).len(), 1);
    }

    #[test]
    fn commands_of_a_help_text_are_code() {
        let text = "Prints it.\n\nExamples:\n  Print all:\n    loadmaster x\n  loadmaster y";
        let expected = [(1, "Prints it."), (3, "Examples:"), (4, "Print all:")];
        assert_eq!(read(text, true), expected.map(|(line, text)| (line, text.to_owned())));
    }

    #[test]
    fn sentences_end_before_a_capital() {
        let text = "It is a plan, e.g. X or Y. It has stages: The first is (see Fig. 2). X ends here? yes.";
        let expected = [
            "It is a plan, e.g. X or Y.",
            "It has stages:",
            "The first is (see Fig. 2).",
            "X ends here? yes.",
        ];
        assert_eq!(sentences(text), expected);
        assert_eq!(sentences("version 1.5 of it. one more"), ["version 1.5 of it. one more"]);
    }

    #[test]
    fn code_is_one_word_and_signs_are_none() {
        assert_eq!(words(&plain("run `cargo test -p x` — or **not** [`a b`](c d)")), 5);
        assert_eq!(printed("{a:?} of {{b}} and {}"), "{X} of {b} and {X}");
    }
}
