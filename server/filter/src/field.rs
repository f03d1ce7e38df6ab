//! The fields of a list: what callers may compare and order by.

use crate::condition::Value;
use crate::scan::shown;

/// Rows are written before it, seconds since 1970.
const YEAR_9000: i64 = 221_845_392_000;
/// Names that differ in more than this share of their letters are not taken for one another.
const NEAR: f64 = 0.6;

/// What is said of a name that is none of a list's fields.
pub const NO_FIELD: &str = "is not a field";

/// A field of a list.
#[derive(Debug, PartialEq)]
pub struct Field {
    /// As filters and orders name it.
    pub name: &'static str,
    /// What its values are.
    pub kind: Kind,
    /// Where the list has it: a part of a statement.
    pub column: &'static str,
    /// Every row has it.
    pub is_always_set: bool,
}

/// The words of an enum: what people say, and what is stored.
pub type Words = fn() -> Vec<(&'static str, String)>;

/// What values a field has.
#[derive(Debug, Clone, Copy)]
pub enum Kind {
    /// Any text.
    Text,
    /// Texts, as one with commas between them; `:` asks for one of them, whole.
    Texts,
    /// The id of a resource, which may be written with its collection: `plans/`.
    Id(&'static str),
    /// One of an enum's words.
    Word(Words),
    /// A whole number.
    Count,
    /// A whole number of bytes.
    Bytes,
    /// A number.
    Number,
    /// A number of seconds.
    Seconds,
    /// A time.
    Time,
    /// Yes or no.
    Truth,
    /// Texts by keys.
    Labels,
}

impl PartialEq for Kind {
    fn eq(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Id(one), Self::Id(other)) => one == other,
            (Self::Word(one), Self::Word(other)) => one() == other(),
            _ => std::mem::discriminant(self) == std::mem::discriminant(other),
        }
    }
}

impl Kind {
    /// Whether rows can be ordered by it.
    pub fn is_ordered(self) -> bool {
        !matches!(self, Self::Labels)
    }

    /// Whether a value is one that a field of this kind has: of no other one it is a position in an order.
    pub fn admits(self, value: &Value) -> bool {
        match (self, value) {
            (Self::Text | Self::Texts | Self::Id(_) | Self::Word(_), Value::Text(text)) => {
                !text.contains('\0')
            }
            (Self::Count | Self::Bytes, Value::Integer(_)) | (Self::Truth, Value::Truth(_)) => true,
            (Self::Number | Self::Seconds, Value::Real(number)) => number.is_finite(),
            (Self::Time, Value::Time(time)) => (0..YEAR_9000).contains(&time.as_second()),
            _ => false,
        }
    }
}

/// The field of that name.
///
/// # Errors
/// Says that there is none, which one may be meant, and which there are.
pub(crate) fn find(fields: &'static [Field], name: &str) -> Result<&'static Field, String> {
    if let Some(found) = fields.iter().find(|field| field.name == name) {
        return Ok(found);
    }
    let likeness = |field: &Field| strsim::normalized_damerau_levenshtein(field.name, &name.to_lowercase());
    let nearest = fields.iter().max_by(|one, other| likeness(one).total_cmp(&likeness(other)));
    let is_near = |field: &&Field| likeness(field) > NEAR || field.name.contains(&name.to_lowercase());
    let meant =
        nearest.filter(is_near).map_or_else(String::new, |field| format!("; did you mean {}?", field.name));
    let names: Vec<&str> = fields.iter().map(|field| field.name).collect();
    Err(format!("{} {NO_FIELD}{meant} (fields: {})", shown(name), names.join(", ")))
}
