//! A filter as it is written, before anybody has looked whether there are such fields.

use crate::condition::Comparison;

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
