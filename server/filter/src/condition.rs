//! A filter that a list can answer: comparisons of its own fields with values of their kinds.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::field::Field;

/// What rows must be.
#[derive(Debug, Clone, PartialEq)]
pub enum Condition {
    /// All of these.
    All(Vec<Condition>),
    /// One of these at least.
    Any(Vec<Condition>),
    /// Not this; a comparison with what is not set is false, so this is true then.
    Not(Box<Condition>),
    /// This is true of a field.
    Test(Test),
}

/// A question about one field.
#[derive(Debug, Clone, PartialEq)]
pub struct Test {
    /// Of these fields.
    pub field: &'static Field,
    /// Of labels: the key that is meant.
    pub key: Option<String>,
    /// What is asked of it.
    pub relation: Relation,
}

/// What is asked of a field.
#[derive(Debug, Clone, PartialEq)]
pub enum Relation {
    /// It is set.
    Set,
    /// It is set and compares so with the value; [`Comparison::NotEqual`] is true also where it is not set.
    Is(Comparison, Value),
    /// A text that is set and begins so.
    StartsWith(String),
    /// A text that is set and has this part.
    Contains(String),
    /// Texts with commas between them that have this with commas at both ends, too: `,n1,`, or `,n1` of one that begins so.
    HasEntry(String),
}

/// How two values compare.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Comparison {
    /// `=`
    Equal,
    /// `!=`
    NotEqual,
    /// `<`
    Less,
    /// `<=`
    AtMost,
    /// `>`
    Greater,
    /// `>=`
    AtLeast,
}

impl Comparison {
    /// All of them, those first that begin with another one.
    pub(crate) const ALL: [Self; 6] =
        [Self::NotEqual, Self::AtMost, Self::AtLeast, Self::Equal, Self::Less, Self::Greater];

    /// As filters and statements write it.
    pub fn sign(self) -> &'static str {
        match self {
            Self::Equal => "=",
            Self::NotEqual => "!=",
            Self::Less => "<",
            Self::AtMost => "<=",
            Self::Greater => ">",
            Self::AtLeast => ">=",
        }
    }
}

/// A value of a field. Written and reread it is the same, so that it may travel in a page token.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Value {
    /// Without control characters.
    Text(String),
    /// A count, or bytes.
    Integer(i64),
    /// Finite; seconds among others.
    Real(f64),
    /// From 1970 on, in whole microseconds.
    Time(Timestamp),
    /// Yes or no.
    Truth(bool),
}
