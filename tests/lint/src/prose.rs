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
    pub(crate) path: String,
    line: usize,
    pub(crate) rule: &'static str,
    text: String,
    write: String,
}

impl std::fmt::Display for Finding {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { path, line, rule, text, write } = self;
        let place = if *line > 0 { format!("{path}:{line}") } else { path.clone() };
        let cut: String = text.chars().take(100).collect();
        let more = if cut.len() < text.len() { "…" } else { "" };
        write!(f, "{place}: {rule}: {cut}{more} (write: {write})")
    }
}

/// Figures of one kind of text.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Figures {
    sentences: usize,
    words: usize,
    long_sentences: usize,
    long_paragraphs: usize,
    banned: usize,
}

#[derive(Debug)]
pub(crate) struct Report {
    pub(crate) findings: Vec<Finding>,
    pub(crate) figures: BTreeMap<Kind, Figures>,
}

pub(crate) fn check(passages: &[Passage]) -> Report {
    let mut report = Report { findings: Vec::new(), figures: BTreeMap::new() };
    for passage in passages {
        let figures = report.figures.entry(passage.kind).or_default();
        read(passage, figures, &mut report.findings);
    }
    for (kind, figures) in &report.figures {
        let mean = figures.mean();
        if mean > MEAN {
            let text = format!("{mean:.1} words in a sentence on average");
            let write = format!("at most {MEAN}");
            report.findings.push(Finding {
                path: format!("[{}]", kind.name()),
                line: 0,
                rule: "mean",
                text,
                write,
            });
        }
    }
    report
}

fn read(passage: &Passage, figures: &mut Figures, findings: &mut Vec<Finding>) {
    let mut find = |rule, text: &str, write: String| {
        let (path, text) = (passage.path.clone(), text.to_owned());
        findings.push(Finding { path, line: passage.paragraph.line, rule, text, write });
    };
    let text = &passage.paragraph.text;
    for sentence in sentences(text) {
        let count = words(sentence);
        figures.sentences += 1;
        figures.words += count;
        if count > SENTENCE {
            figures.long_sentences += 1;
            find("long-sentence", sentence, format!("at most {SENTENCE} words, it has {count}"));
        }
    }
    let count = words(text);
    if count > PARAGRAPH {
        figures.long_paragraphs += 1;
        find("long-paragraph", text, format!("at most {PARAGRAPH} words, it has {count}"));
    }
    let folded = text.to_ascii_lowercase().replace(|c: char| c.is_ascii_digit(), "0");
    let is_letter = |c: Option<char>| c.is_some_and(|c| c.is_alphanumeric() || c == '_');
    for (phrase, write) in
        BANNED.iter().flat_map(|(list, write)| list.split('|').map(move |phrase| (phrase, write)))
    {
        for (at, _) in folded.match_indices(phrase) {
            let (before, after) = (&text[..at], &text[at + phrase.len()..]);
            let is_part = phrase.ends_with(char::is_alphabetic) && is_letter(after.chars().next());
            if !is_part && !is_letter(before.chars().next_back()) {
                figures.banned += 1;
                let start = before.char_indices().rev().nth(30).map_or(0, |(at, _)| at);
                let part: String = text[start..].chars().take(phrase.len() + 61).collect();
                find(
                    "banned-word",
                    &format!("{:?} in {part:?}", &text[at..at + phrase.len()]),
                    (*write).to_owned(),
                );
            }
        }
    }
}

impl Figures {
    fn mean(&self) -> f64 {
        self.words as f64 / self.sentences.max(1) as f64
    }
}

impl Kind {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Markdown => "markdown",
            Self::Proto => "proto",
            Self::Rust => "rust",
            Self::Help => "help",
            Self::Message => "message",
        }
    }
}

impl Report {
    pub(crate) fn counts(&self) -> Counts {
        let mut counts = Counts::new();
        for finding in &self.findings {
            *counts.entry((finding.path.clone(), finding.rule.to_owned())).or_default() += 1;
        }
        counts
    }

    /// Returns one line of figures for each kind of text.
    pub(crate) fn table(&self) -> String {
        let mut table = format!(
            "{:<10}{:>11}{:>7}{:>10}{:>17}{:>14}\n",
            "kind", "sentences", "mean", "over 35", "long paragraphs", "banned words"
        );
        for (kind, figures) in &self.figures {
            let Figures { sentences, long_sentences, long_paragraphs, banned, .. } = figures;
            let (kind, mean) = (kind.name(), figures.mean());
            table += &format!(
                "{kind:<10}{sentences:>11}{mean:>7.1}{long_sentences:>10}{long_paragraphs:>17}{banned:>14}\n"
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
    fn rules(text: &str) -> Vec<&'static str> {
        let paragraph = Paragraph { line: 7, text: text.to_owned() };
        let report = check(&[Passage { kind: Kind::Proto, path: "a.proto".to_owned(), paragraph }]);
        report.findings.iter().map(|finding| finding.rule).collect()
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
                .ends_with("help                1    4.0         0                0             1\n")
        );
    }
}
