//! Rules of prose: length of sentences and paragraphs, and words that another word replaces.

use std::collections::BTreeMap;

use crate::exceptions::Counts;
use crate::passages::{Kind, Passage};
use crate::sentences::{sentences, words};

const MEAN: f64 = 17.0;
const SENTENCE: usize = 35;
const PARAGRAPH: usize = 90;

/// Words, by what to write in their place. In a text, 0 is any digit and `{` a placeholder.
const BANNED: [(&str, &str); 15] = [
    ("compute again|computed again", "recompute"),
    ("park|parked", "offloaded"),
    ("perceptron|perceptrons", "MLP"),
    ("ledger|ledgers", "memory accounting (allocated, reserved, device)"),
    ("tape|tapes", "allocation trace"),
    ("deed|deeds", "action"),
    ("for people", "human-readable"),
    ("in turn", "interleaved"),
    ("lack 0|lacks 0|lack {|lacks {", "needs N more bytes"),
    ("nobody|somebody|whoever", "the subject's name"),
    ("draw lots|draws lots", "randomized"),
    ("fullest", "device with the highest peak memory"),
    ("rest on|rests on", "is referenced by"),
    ("is told|are told|tells", "reports"),
    ("again", "recompute, retry or repeat"),
];

#[derive(Debug, Clone)]
pub(crate) struct Finding {
    kind: Kind,
    /// Path and rule: a kind of text in brackets, where it is the mean of that kind.
    pub(crate) key: (String, String),
    line: usize,
    text: String,
    write: String,
}

impl std::fmt::Display for Finding {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { key: (path, rule), line, text, write, .. } = self;
        let cut: String = text.chars().take(100).collect();
        let more = if cut.len() < text.len() { "…" } else { "" };
        write!(f, "{path}:{line}: {rule}: {cut}{more} (write: {write})")
    }
}

#[derive(Debug, Default)]
pub(crate) struct Report {
    pub(crate) findings: Vec<Finding>,
    /// Sentences and words by kind.
    sizes: BTreeMap<Kind, (usize, usize)>,
}

pub(crate) fn check(passages: &[Passage]) -> Report {
    let mut report = Report::default();
    passages.iter().for_each(|passage| report.read(passage));
    for (kind, (sentences, words)) in report.sizes.clone() {
        if words as f64 > MEAN * sentences as f64 {
            let text = format!("{:.1} words in a sentence on average", words as f64 / sentences as f64);
            let key = (format!("[{}]", kind.name()), "mean".to_owned());
            report.findings.push(Finding { kind, key, line: 0, text, write: format!("at most {MEAN}") });
        }
    }
    report
}

impl Report {
    fn read(&mut self, Passage { kind, path, paragraph }: &Passage) {
        let mut find = |rule: &str, text: &str, write: String| {
            let (key, text) = ((path.clone(), rule.to_owned()), text.to_owned());
            self.findings.push(Finding { kind: *kind, key, line: paragraph.line, text, write });
        };
        let text = &paragraph.text;
        let size = self.sizes.entry(*kind).or_default();
        for sentence in sentences(text) {
            let count = words(sentence);
            *size = (size.0 + 1, size.1 + count);
            if count > SENTENCE {
                find("long-sentence", sentence, format!("at most {SENTENCE} words, it has {count}"));
            }
        }
        let count = words(text);
        if count > PARAGRAPH {
            find("long-paragraph", text, format!("at most {PARAGRAPH} words, it has {count}"));
        }
        let folded = text.to_ascii_lowercase().replace(|c: char| c.is_ascii_digit(), "0");
        let is_letter = |c: Option<char>| c.is_some_and(|c| c.is_alphanumeric() || c == '_');
        for (phrase, write) in
            BANNED.iter().flat_map(|(list, write)| list.split('|').map(move |one| (one, write)))
        {
            for (at, _) in folded.match_indices(phrase) {
                let (before, after) = (&text[..at], &text[at + phrase.len()..]);
                let is_part = phrase.ends_with(char::is_alphabetic) && is_letter(after.chars().next());
                if !is_part && !is_letter(before.chars().next_back()) {
                    let start = before.char_indices().rev().nth(30).map_or(0, |(at, _)| at);
                    let part: String = text[start..].chars().take(phrase.len() + 61).collect();
                    let text = format!("{:?} in {part:?}", &text[at..at + phrase.len()]);
                    find("banned-word", &text, (*write).to_owned());
                }
            }
        }
    }

    pub(crate) fn counts(&self) -> Counts {
        let mut counts = Counts::new();
        self.findings.iter().for_each(|finding| *counts.entry(finding.key.clone()).or_default() += 1);
        counts
    }

    /// Returns one line of figures for each kind of text.
    pub(crate) fn table(&self) -> String {
        let mut table =
            "kind        sentences   mean   over 35   share  long paragraphs  banned words\n".to_owned();
        for (kind, (sentences, words)) in &self.sizes {
            let found =
                |rule| self.findings.iter().filter(|one| one.kind == *kind && one.key.1 == rule).count();
            let [long, paragraphs, banned] = ["long-sentence", "long-paragraph", "banned-word"].map(found);
            let all = (*sentences).max(1) as f64;
            let (kind, mean, share) = (kind.name(), *words as f64 / all, 100.0 * long as f64 / all);
            table += &format!(
                "{kind:<10}{sentences:>11}{mean:>7.1}{long:>10}{share:>6.2} %{paragraphs:>17}{banned:>14}\n"
            );
        }
        table
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sentences::Paragraph;

    /// Rules that `text` breaks.
    fn rules(text: &str) -> Vec<String> {
        let paragraph = Paragraph { line: 7, text: text.to_owned() };
        let report = check(&[Passage { kind: Kind::Proto, path: "a.proto".to_owned(), paragraph }]);
        report.findings.iter().map(|finding| finding.key.1.clone()).collect()
    }

    #[test]
    fn lengths_have_limits() {
        let sentence = |words: usize| format!("A{}.", " word".repeat(words - 1));
        assert_eq!(rules(&sentence(17)), [""; 0]);
        assert_eq!(rules(&sentence(18)), ["mean"]);
        assert_eq!(rules(&sentence(35)), ["mean"]);
        assert_eq!(rules(&sentence(36)), ["long-sentence", "mean"]);
        assert_eq!(rules(&vec![sentence(15); 6].join(" ")), [""; 0]);
        assert_eq!(rules(&(vec![sentence(15); 6].join(" ") + " One.")), ["long-paragraph"]);
    }

    #[test]
    fn every_banned_word_is_found() {
        let texts = [
            "Compute again",
            "parked",
            "a perceptron",
            "ledgers",
            "tape",
            "deed",
            "for people",
            "in turn",
            "lacks {X}",
            "whoever",
            "draws lots",
            "fullest",
            "rests on",
            "tells",
            "once again",
        ];
        for (text, (_, write)) in texts.iter().zip(BANNED) {
            let paragraph = Paragraph { line: 7, text: (*text).to_owned() };
            let report = check(&[Passage { kind: Kind::Rust, path: "a.rs".to_owned(), paragraph }]);
            assert!(report.findings.iter().any(|finding| finding.write == write), "{text}");
        }
        assert_eq!(rules("against taped sparked"), [""; 0]);
    }

    #[test]
    fn a_finding_has_its_place_and_the_word_to_write() {
        let paragraph = Paragraph { line: 7, text: "It tells the size.".to_owned() };
        let report = check(&[Passage { kind: Kind::Help, path: "a.rs".to_owned(), paragraph }]);
        assert_eq!(
            report.findings[0].to_string(),
            "a.rs:7: banned-word: \"tells\" in \"It tells the size.\" (write: reports)"
        );
        assert_eq!(report.counts().len(), 1);
        assert!(
            report
                .table()
                .ends_with("help                1    4.0         0  0.00 %                0             1\n")
        );
    }
}
