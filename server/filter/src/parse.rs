//! The tree of a filter, and how it is read from text.

use crate::condition::Comparison;
use crate::scan::{Fault, Scanner, shown};
use crate::{MAX_COMPARISONS, MAX_DEPTH};

/// What a text asks; none where it is empty.
///
/// # Errors
/// Where it is none of the language.
pub(crate) fn expression(text: &str) -> Result<Option<Expression>, Fault> {
    let mut parser = Parser { scanner: Scanner::new(text)?, comparisons: 0 };
    parser.scanner.skip_space();
    if parser.scanner.peek().is_none() {
        return Ok(None);
    }
    let expression = parser.expression(0)?;
    match parser.scanner.peek() {
        None => Ok(Some(expression)),
        Some(_) => Err(Fault::new(parser.scanner.at(), "`)` has no matching `(`. Add or remove one.")),
    }
}

struct Parser {
    scanner: Scanner,
    /// Comparisons so far.
    comparisons: usize,
}

impl Parser {
    /// Ends at a `)` or at the end of the text.
    fn expression(&mut self, depth: usize) -> Result<Expression, Fault> {
        let mut parts = vec![self.factor(depth)?];
        loop {
            self.scanner.skip_space();
            if matches!(self.scanner.peek(), None | Some(')')) {
                return Ok(one_or(parts, Expression::All));
            }
            self.scanner.take_keyword("AND");
            parts.push(self.factor(depth)?);
        }
    }

    fn factor(&mut self, depth: usize) -> Result<Expression, Fault> {
        let mut parts = vec![self.term(depth)?];
        loop {
            self.scanner.skip_space();
            if !self.scanner.take_keyword("OR") {
                return Ok(one_or(parts, Expression::Any));
            }
            parts.push(self.term(depth)?);
        }
    }

    fn term(&mut self, depth: usize) -> Result<Expression, Fault> {
        self.scanner.skip_space();
        let is_negated = self.scanner.take_keyword("NOT") || self.scanner.take('-');
        self.scanner.skip_space();
        let at = self.scanner.at();
        let term = if self.scanner.take('(') {
            if depth == MAX_DEPTH {
                return Err(Fault::new(at, format!("more than {MAX_DEPTH} nested parentheses. Use fewer.")));
            }
            let inner = self.expression(depth + 1)?;
            if !self.scanner.take(')') {
                return Err(Fault::new(at, "`(` has no matching `)`. Add `)`."));
            }
            inner
        } else {
            Expression::Restriction(self.restriction()?)
        };
        Ok(if is_negated { Expression::Not(Box::new(term)) } else { term })
    }

    fn restriction(&mut self) -> Result<Restriction, Fault> {
        let path = self.path()?;
        self.comparisons += 1;
        if self.comparisons > MAX_COMPARISONS {
            return Err(Fault::new(path.at, format!("more than {MAX_COMPARISONS} comparisons. Use fewer.")));
        }
        if self.scanner.peek() == Some('(') {
            return Err(Fault::new(path.at, "functions are not supported. Compare a field with a value."));
        }
        self.scanner.skip_space();
        let comparator = self.comparator(&path)?;
        self.scanner.skip_space();
        let argument = self.argument(comparator)?;
        Ok(Restriction { path, comparator, argument })
    }

    fn path(&mut self) -> Result<Path, Fault> {
        let at = self.scanner.at();
        let mut parts = Vec::new();
        loop {
            let here = self.scanner.at();
            let part = match self.scanner.peek() {
                Some('"' | '\'') => match self.quoted()? {
                    Argument { is_open: true, .. } => {
                        return Err(Fault::new(
                            here,
                            "a key cannot end with `*`. Use \\* for a literal star.",
                        ));
                    }
                    Argument { text, .. } => text,
                },
                _ => self.scanner.take_while(is_of_path),
            };
            if part.is_empty() {
                return Err(Fault::new(here, self.instead_of_a_field()));
            }
            parts.push(part);
            if !self.scanner.take('.') {
                return Ok(Path { at, parts });
            }
        }
    }

    /// What stands where the name of a field should.
    fn instead_of_a_field(&self) -> String {
        match self.scanner.peek() {
            None => {
                "the filter ends where a field is expected. Use, for example, `state = running`.".to_owned()
            }
            Some(')') => "the parentheses are empty. Add a comparison.".to_owned(),
            Some(character) => format!("{character:?} is where a field is expected"),
        }
    }

    fn comparator(&mut self, path: &Path) -> Result<Comparator, Fault> {
        let at = self.scanner.at();
        if self.scanner.take(':') {
            return Ok(Comparator { at, asks: Asked::Has });
        }
        let signs = self.scanner.take_while(|character| "=!<>~&|".contains(character));
        if let Some(comparison) = Comparison::ALL.into_iter().find(|of| of.sign() == signs) {
            return Ok(Comparator { at, asks: Asked::Compares(comparison) });
        }
        let word = path.parts.join(".");
        Err(match (signs.as_str(), word.as_str()) {
            ("", "and" | "or" | "not") => {
                Fault::new(path.at, format!("operators are upper case. Use {}.", word.to_uppercase()))
            }
            ("", "AND" | "OR" | "NOT") => Fault::new(
                path.at,
                format!(
                    "expected a comparison, but found {word}. Add a comparison, for example \
                    `state = running`."
                ),
            ),
            ("", _) => Fault::new(
                path.at,
                format!(
                    "{} has no comparison. Use a field, an operator and a value, for example `name:{}`.",
                    shown(&word),
                    word.chars().take(40).filter(|&of| is_of_path(of)).collect::<String>()
                ),
            ),
            ("==", _) => Fault::new(at, "== is not an operator. Use =."),
            ("=~" | "~" | "!~", _) => Fault::new(
                at,
                format!("{signs} is not an operator. Use = with a star at the end, or : for a part."),
            ),
            ("&" | "&&", _) => Fault::new(at, "& is not an operator. Use AND."),
            ("|" | "||", _) => Fault::new(at, "| is not an operator. Use OR."),
            _ => Fault::new(at, format!("{} is not an operator. Use one of = != < <= > >= :", shown(&signs))),
        })
    }

    fn argument(&mut self, comparator: Comparator) -> Result<Argument, Fault> {
        match self.scanner.peek() {
            Some('"' | '\'') => self.quoted(),
            Some('(') => Err(Fault::new(
                self.scanner.at(),
                "expected a value, but found `(`. Repeat the field for each value, with OR between them.",
            )),
            None | Some(')') => {
                let sign = match comparator.asks {
                    Asked::Has => ":",
                    Asked::Compares(comparison) => comparison.sign(),
                };
                Err(Fault::new(comparator.at, format!("the value after {sign} is missing")))
            }
            Some(_) => self.text(None),
        }
    }

    fn quoted(&mut self) -> Result<Argument, Fault> {
        let at = self.scanner.at();
        let quote = self.scanner.next();
        let argument = self.text(quote)?;
        match quote.is_some_and(|quote| self.scanner.take(quote)) {
            true => Ok(Argument { at, ..argument }),
            false => Err(Fault::new(at, "the quoted text has no end. Add the closing quote.")),
        }
    }

    /// A text up to a quote, or up to what no bare text has.
    fn text(&mut self, quote: Option<char>) -> Result<Argument, Fault> {
        let at = self.scanner.at();
        let (mut text, mut star) = (String::new(), None);
        while let Some(character) = self.scanner.peek() {
            let is_end = match quote {
                Some(quote) => character == quote,
                None => !is_of_value(character),
            };
            if is_end {
                break;
            }
            let here = self.scanner.at();
            if let Some(star) = star {
                return Err(Fault::new(
                    star,
                    "`*` is valid only at the end of a value. Move it to the end, or use \\* for a literal star.",
                ));
            }
            self.scanner.next();
            match character {
                '*' => star = Some(here),
                '\\' => match self.scanner.next() {
                    Some(escaped @ ('\\' | '*' | '"' | '\'')) => text.push(escaped),
                    _ => {
                        return Err(Fault::new(
                            here,
                            "a backslash must be followed by a backslash, a star or a quote. \
                        Use \\\\ for a literal backslash.",
                        ));
                    }
                },
                character => text.push(character),
            }
        }
        if quote.is_none() && self.scanner.at() == at {
            let instead = self.scanner.peek().map(String::from).unwrap_or_default();
            return Err(Fault::new(
                at,
                format!("expected a value, but found {}. Put the value in quotes.", shown(&instead)),
            ));
        }
        Ok(Argument { at, text, is_open: star.is_some() })
    }
}

/// The only one of some parts, or all of them together.
fn one_or(mut parts: Vec<Expression>, together: impl Fn(Vec<Expression>) -> Expression) -> Expression {
    match parts.len() {
        1 => parts.remove(0),
        _ => together(parts),
    }
}

fn is_of_path(character: char) -> bool {
    !character.is_whitespace() && !"()<>=!:\"'.,~&|".contains(character)
}

fn is_of_value(character: char) -> bool {
    !character.is_whitespace() && !"()<>=!\"',".contains(character)
}

/// A filter, or a part of one.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Expression {
    All(Vec<Expression>),
    Any(Vec<Expression>),
    Not(Box<Expression>),
    Restriction(Restriction),
}

/// What stands before a comparison, it, and what stands behind it.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Restriction {
    pub(crate) path: Path,
    pub(crate) comparator: Comparator,
    pub(crate) argument: Argument,
}

/// Words with dots between them: a field, and perhaps a key in it.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Path {
    /// Characters before it.
    pub(crate) at: usize,
    pub(crate) parts: Vec<String>,
}

/// What is asked, and where: characters before it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Comparator {
    pub(crate) at: usize,
    pub(crate) asks: Asked,
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Asked {
    Has,
    Compares(Comparison),
}

/// A value as it is written.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Argument {
    /// Characters before it.
    pub(crate) at: usize,
    /// Without quotes, escapes and the star.
    pub(crate) text: String,
    /// It ends with a star, which stands for any end.
    pub(crate) is_open: bool,
}
