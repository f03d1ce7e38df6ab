//! A text, character by character, and what is wrong with it where.

use std::fmt;

use crate::MAX_CHARACTERS;

/// Longest part of a text that an error repeats, characters.
const MOST_SHOWN: usize = 40;

/// What is wrong at a character of a text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Fault {
    /// Characters before it.
    at: usize,
    what: String,
}

impl Fault {
    pub(crate) fn new(at: usize, what: impl Into<String>) -> Self {
        Self { at, what: what.into() }
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "at character {}: {}", self.at + 1, self.what)
    }
}

/// A part of a text in an error: quoted, and cut.
pub(crate) fn shown(text: &str) -> String {
    match text.char_indices().nth(MOST_SHOWN) {
        None => format!("{text:?}"),
        Some((end, _)) => format!("{:?}…", &text[..end]),
    }
}

/// Reads a text once, from its beginning.
pub(crate) struct Scanner {
    characters: Vec<char>,
    /// Characters that were read.
    at: usize,
}

impl Scanner {
    /// # Errors
    /// A text that is too long, or has characters that no name and no text of a row has.
    pub(crate) fn new(text: &str) -> Result<Self, Fault> {
        let characters: Vec<char> = text.chars().take(MAX_CHARACTERS + 1).collect();
        if characters.len() > MAX_CHARACTERS {
            return Err(Fault::new(MAX_CHARACTERS, format!("more than {MAX_CHARACTERS} characters")));
        }
        let is_bad = |&character: &char| character.is_control() && !character.is_whitespace();
        match characters.iter().position(is_bad) {
            Some(at) => Err(Fault::new(at, "control characters are not valid here. Remove them.")),
            None => Ok(Self { characters, at: 0 }),
        }
    }

    pub(crate) fn at(&self) -> usize {
        self.at
    }

    pub(crate) fn peek(&self) -> Option<char> {
        self.characters.get(self.at).copied()
    }

    pub(crate) fn next(&mut self) -> Option<char> {
        let next = self.peek();
        self.at += usize::from(next.is_some());
        next
    }

    /// Reads a character if it is this one.
    pub(crate) fn take(&mut self, wanted: char) -> bool {
        let is_there = self.peek() == Some(wanted);
        self.at += usize::from(is_there);
        is_there
    }

    pub(crate) fn take_while(&mut self, of: impl Fn(char) -> bool) -> String {
        let rest = self.characters.get(self.at..).unwrap_or_default();
        let taken: String = rest.iter().copied().take_while(|&character| of(character)).collect();
        self.at += taken.chars().count();
        taken
    }

    pub(crate) fn skip_space(&mut self) {
        self.take_while(char::is_whitespace);
    }

    /// Reads a word in capital letters if it is this one, whole.
    pub(crate) fn take_keyword(&mut self, keyword: &str) -> bool {
        let rest = self.characters.get(self.at..).unwrap_or_default();
        let length = keyword.chars().count();
        let is_there = rest.iter().copied().take(length).eq(keyword.chars())
            && rest.get(length).is_none_or(|&next| next.is_whitespace() || matches!(next, '(' | ')'));
        self.at += if is_there { length } else { 0 };
        is_there
    }
}
