//! Rust source as tokens, and the prose in its production code: documentation, help texts and messages.

use crate::passages::Kind;

/// Keys of clap's attributes that take a help text.
const HELP: [&str; 7] =
    ["about", "after_help", "after_long_help", "before_help", "help", "long_about", "long_help"];

#[derive(Debug, Clone, PartialEq, Eq)]
enum Token {
    Doc(String),
    Text(String),
    Name(String),
    Mark(char),
}

use Token::{Doc, Mark, Name, Text};

/// Prose of one file.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Prose {
    /// Lines of documentation, and literals with their first lines.
    pub(crate) texts: Vec<(Kind, usize, String)>,
    /// Modules that are declared under `#[cfg(test)]` and have files of their own.
    pub(crate) test_modules: Vec<String>,
}

/// Returns the prose of `source` outside of test code. `help_file`: its string constants are help texts.
pub(crate) fn prose(source: &str, help_file: bool) -> Prose {
    let tokens = tokens(source);
    let (mut prose, mut at) = (Prose::default(), 0);
    while let Some((line, token)) = tokens.get(at) {
        at += 1;
        match token {
            Doc(text) => prose.texts.push((Kind::Rust, *line, text.clone())),
            Text(text) if help_file => prose.texts.push((Kind::Help, *line, text.clone())),
            Text(text) => prose.texts.push((Kind::Message, *line, text.clone())),
            Mark('#') => {
                let inner = mark(&tokens, at) == Some('!');
                let open = at + usize::from(inner);
                if mark(&tokens, open) != Some('[') {
                    continue;
                }
                at = close(&tokens, open);
                let attribute = &tokens[open + 1..at];
                if !is_test(attribute) {
                    prose.texts.extend(attribute_texts(attribute));
                } else if inner {
                    return Prose::default();
                } else {
                    at = skip_item(&tokens, at + 1, &mut prose.test_modules);
                }
            }
            _ => {}
        }
    }
    prose
}

/// Help texts of clap, and the message of `#[error("…")]`.
fn attribute_texts(tokens: &[(usize, Token)]) -> Vec<(Kind, usize, String)> {
    let name = |at: usize| match tokens.get(at) {
        Some((_, Name(name))) => name.as_str(),
        _ => "",
    };
    let read = |(at, (line, token)): (usize, &(usize, Token))| {
        let Text(text) = token else { return None };
        let is_value = at > 1 && mark(tokens, at - 1) == Some('=');
        let kind = match is_value && HELP.contains(&name(at - 2)) {
            true => Kind::Help,
            false if name(0) == "error" => Kind::Message,
            false => return None,
        };
        Some((kind, *line, text.clone()))
    };
    tokens.iter().enumerate().filter_map(read).collect()
}

fn mark(tokens: &[(usize, Token)], at: usize) -> Option<char> {
    match tokens.get(at) {
        Some((_, Mark(mark))) => Some(*mark),
        _ => None,
    }
}

/// Returns the index of the bracket that closes the one at `open`.
fn close(tokens: &[(usize, Token)], open: usize) -> usize {
    let mut depth = 0;
    for at in open..tokens.len() {
        match mark(tokens, at) {
            Some('[' | '(' | '{') => depth += 1,
            Some(']' | ')' | '}') => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            return at;
        }
    }
    tokens.len().saturating_sub(1)
}

fn is_test(attribute: &[(usize, Token)]) -> bool {
    let has = |word: &str| attribute.iter().any(|(_, token)| matches!(token, Name(name) if name == word));
    matches!(attribute.first(), Some((_, Name(name))) if name == "cfg") && has("test") && !has("not")
}

/// Returns the index after the item, field or statement at `at`.
fn skip_item(tokens: &[(usize, Token)], mut at: usize, modules: &mut Vec<String>) -> usize {
    let mut is_item = false;
    while at < tokens.len() {
        match &tokens[at].1 {
            Name(name) if name == "mod" => {
                is_item = true;
                if let (Some((_, Name(module))), Some(';')) = (tokens.get(at + 1), mark(tokens, at + 2)) {
                    modules.push(module.clone());
                }
            }
            Name(name) => {
                is_item |= ["const", "enum", "fn", "impl", "static", "struct", "use"].contains(&name.as_str())
            }
            Mark('{') => return close(tokens, at) + 1,
            Mark('(' | '[') => at = close(tokens, at),
            Mark(';') => return at + 1,
            Mark(',') if !is_item => return at + 1,
            Mark('}') => return at,
            _ => {}
        }
        at += 1;
    }
    at
}

fn tokens(source: &str) -> Vec<(usize, Token)> {
    let (mut tokens, mut at, mut line) = (Vec::new(), 0, 1);
    while let Some(c) = source[at..].chars().next() {
        let rest = &source[at..];
        let end = |found: Option<usize>| found.unwrap_or(rest.len());
        let word = end(rest.find(|c: char| !c.is_alphanumeric() && c != '_'));
        let (length, token) = if rest.starts_with("//") {
            let length = end(rest.find('\n'));
            (length, documentation(&rest[..length]))
        } else if rest.starts_with("/*") {
            (block_comment(rest), None)
        } else if let Some(literal) = literal(rest) {
            literal
        } else if let Some(escaped) = rest.strip_prefix("'\\") {
            (
                escaped.char_indices().skip(1).find(|(_, c)| *c == '\'').map_or(rest.len(), |(at, _)| at + 3),
                None,
            )
        } else if c == '\'' {
            // Two quotes around one character, or a lifetime.
            let width = rest[1..].chars().next().map_or(0, char::len_utf8);
            (if rest[1 + width..].starts_with('\'') { width + 2 } else { 1 }, None)
        } else if word > 0 {
            (word, Some(Name(rest[..word].to_owned())).filter(|_| !c.is_ascii_digit()))
        } else {
            (c.len_utf8(), Some(Mark(c)).filter(|_| !c.is_whitespace()))
        };
        tokens.extend(token.map(|token| (line, token)));
        let length = length.min(rest.len());
        line += rest[..length].matches('\n').count();
        at += length;
    }
    tokens
}

fn documentation(comment: &str) -> Option<Token> {
    let outer = || comment.strip_prefix("///").filter(|rest| !rest.starts_with('/'));
    comment.strip_prefix("//!").or_else(outer).map(|text| Doc(text.to_owned()))
}

/// Length of the comment at the beginning of `rest`, with the comments in it.
fn block_comment(rest: &str) -> usize {
    let (mut depth, mut at) = (0, 0);
    while let Some(pair) = rest.as_bytes().get(at..at + 2) {
        let step = match pair {
            b"/*" => 1,
            b"*/" => -1,
            _ => 0,
        };
        depth += step;
        at += if step == 0 { 1 } else { 2 };
        if depth == 0 {
            return at;
        }
    }
    rest.len()
}

/// Length of the string literal at the beginning of `rest`, and its text. Byte and C strings have none.
fn literal(rest: &str) -> Option<(usize, Option<Token>)> {
    let quoted = rest.trim_start_matches(['b', 'c', 'r']);
    let prefix = &rest[..rest.len() - quoted.len()];
    let body = quoted.trim_start_matches('#');
    let hashes = &quoted[..quoted.len() - body.len()];
    let body = body.strip_prefix('"').filter(|_| hashes.is_empty() || prefix.ends_with('r'))?;
    let (length, text) = match prefix {
        "r" | "br" | "cr" => {
            let length = body.find(&format!("\"{hashes}"))?;
            (length, body[..length].to_owned())
        }
        "" | "b" | "c" => {
            let mut escaped = false;
            let is_end = |c: char| {
                let end = c == '"' && !escaped;
                escaped = c == '\\' && !escaped;
                end
            };
            let length = body.find(is_end)?;
            (length, unescaped(&body[..length]))
        }
        _ => return None,
    };
    let total = prefix.len() + 2 * (hashes.len() + 1) + length;
    Some((total, Some(Text(text)).filter(|_| prefix.is_empty() || prefix == "r")))
}

fn unescaped(literal: &str) -> String {
    let (mut text, mut chars) = (String::new(), literal.chars().peekable());
    while let Some(c) = chars.next() {
        match (c, chars.peek()) {
            ('\\', Some('\n')) => while chars.next_if(|c| c.is_whitespace()).is_some() {},
            ('\\', Some(code)) => {
                text.push(match code {
                    'n' => '\n',
                    't' | '0' => ' ',
                    'u' | 'x' => '?',
                    c => *c,
                });
                chars.next();
            }
            _ => text.push(c),
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pieces<const N: usize>(pieces: [(Kind, usize, &str); N]) -> Vec<(Kind, usize, String)> {
        pieces.map(|(kind, line, text)| (kind, line, text.to_owned())).into()
    }

    #[test]
    fn literals_end_where_the_compiler_ends_them() {
        let source = r###"let a = "x \" // y"; let b = r#"raw "q" text"#; let c = '"'; let d = '\''; fn e<'a>(r#type: &'a str) {}
            let f = b"bytes"; /* "comment" /* nested */ "still" */ let g = "one \
               line"; let h = "last";"###;
        let texts = ["x \" // y", "raw \"q\" text", "one line", "last"];
        let found = prose(source, false);
        assert_eq!(found.texts.iter().map(|(_, _, text)| text.as_str()).collect::<Vec<_>>(), texts);
        assert_eq!(found.texts[3].1, 3, "a continued literal counts its lines");
        assert!(tokens(source).contains(&(1, Name("type".to_owned()))), "a raw identifier is no literal");
    }

    #[test]
    fn documentation_is_not_code_and_plain_comments_are_not_documentation() {
        let found = prose("//! Module.\n/// Item.\n// Plain.\n//// Rule.\nconst A: &str = \"///\";", false);
        let expected = [(Kind::Rust, 1, " Module."), (Kind::Rust, 2, " Item."), (Kind::Message, 5, "///")];
        assert_eq!(found.texts, pieces(expected));
    }

    #[test]
    fn code_of_tests_is_skipped() {
        let found = prose(
            "#[cfg(test)]\n#[allow(x)]\nmod tests { fn a() { b(\"in a test\"); } }\n#[cfg(test)]\npub(crate) mod cases;\n\
             struct S { #[cfg(test)] a: u8, b: u8 }\n#[cfg(not(test))]\nconst C: &str = \"in production\";",
            false,
        );
        assert_eq!(found.texts, pieces([(Kind::Message, 8, "in production")]));
        assert_eq!(found.test_modules, ["cases"]);
        assert_eq!(prose("#![cfg(test)]\n//! Doc.", false), Prose::default());
    }

    #[test]
    fn help_texts_and_errors_are_read_from_attributes() {
        let found = prose(
            "#[command(name = \"x\", about = \"Helps\")]\n#[error(\"it failed\")]\n#[serde(rename = \"y\")]\nstruct S;",
            false,
        );
        assert_eq!(found.texts, pieces([(Kind::Help, 1, "Helps"), (Kind::Message, 2, "it failed")]));
        assert_eq!(prose("const A: &str = \"Text\";", true).texts, pieces([(Kind::Help, 1, "Text")]));
    }
}
