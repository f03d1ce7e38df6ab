//! What a filter and an order mean, told a second time: questions that are written as filters, and answered by looking at rows.
//! Shares nothing with the language's reader or the statements.

use std::cmp::Ordering;
use std::collections::BTreeMap;

use rand::RngExt;
use rand::rngs::StdRng;

/// What a row has in a field.
#[derive(Debug, Clone, PartialEq, PartialOrd)]
pub(crate) enum Has {
    Text(String),
    Number(f64),
    /// Microseconds since 1970.
    Time(i64),
}

/// A row: the fields that are set.
pub(crate) type Row = BTreeMap<&'static str, Has>;

/// A question.
#[derive(Debug, Clone)]
pub(crate) enum Ask {
    And(Vec<Ask>),
    Or(Vec<Ask>),
    Not(Box<Ask>),
    Set(&'static str),
    Is(&'static str, &'static str, Has),
    Starts(&'static str, String),
    Has(&'static str, String),
}

impl Ask {
    /// Whether a row is one of those that are asked for.
    pub(crate) fn fits(&self, row: &Row) -> bool {
        let text = |field| match row.get(field) {
            Some(Has::Text(text)) => Some(text),
            _ => None,
        };
        match self {
            Self::And(parts) => parts.iter().all(|part| part.fits(row)),
            Self::Or(parts) => parts.iter().any(|part| part.fits(row)),
            Self::Not(part) => !part.fits(row),
            Self::Set(field) => row.contains_key(field),
            Self::Starts(field, start) => text(field).is_some_and(|text| text.starts_with(start)),
            Self::Has(field, part) => text(field).is_some_and(|text| text.contains(part)),
            Self::Is("!=", field, value) => row.get(field) != Some(value),
            Self::Is(sign, field, value) => match row.get(field).and_then(|has| has.partial_cmp(value)) {
                None => false,
                Some(order) => match *sign {
                    "=" => order == Ordering::Equal,
                    "<" => order == Ordering::Less,
                    "<=" => order != Ordering::Greater,
                    ">" => order == Ordering::Greater,
                    _ => order != Ordering::Less,
                },
            },
        }
    }

    /// As a filter, in one of the ways to write it.
    pub(crate) fn filter(&self, random: &mut StdRng) -> String {
        match self {
            Self::And(parts) => {
                let parts: Vec<String> = parts.iter().map(|part| part.within(random)).collect();
                parts.join(if random.random() { " AND " } else { " " })
            }
            Self::Or(parts) => {
                let parts: Vec<String> = parts.iter().map(|part| part.within(random)).collect();
                parts.join(" OR ")
            }
            Self::Not(part) => {
                let part = part.within(random);
                if random.random() { format!("NOT {part}") } else { format!("-{part}") }
            }
            Self::Set(field) => format!("{field}:*"),
            Self::Is(sign, field, value) => {
                let space = if random.random() { " " } else { "" };
                format!("{field}{space}{sign}{space}{}", written(value, random))
            }
            Self::Starts(field, start) => format!("{field} = \"{}*\"", escaped(start)),
            Self::Has(field, part) => format!("{field}:\"{}\"", escaped(part)),
        }
    }

    fn within(&self, random: &mut StdRng) -> String {
        match self {
            Self::And(_) | Self::Or(_) | Self::Not(_) => format!("({})", self.filter(random)),
            _ => self.filter(random),
        }
    }
}

fn escaped(text: &str) -> String {
    text.replace('\\', r"\\").replace('*', r"\*")
}

fn written(value: &Has, random: &mut StdRng) -> String {
    let text = match value {
        Has::Text(text) => escaped(text),
        Has::Number(number) => number.to_string(),
        Has::Time(microseconds) => jiff::Timestamp::from_microsecond(*microseconds).unwrap().to_string(),
    };
    match random.random_range(0..3) {
        _ if text.contains(' ') => format!("\"{text}\""),
        0 => format!("\"{text}\""),
        1 => format!("'{text}'"),
        _ => text,
    }
}

/// The order of two rows: what is not set comes last, whichever way.
pub(crate) fn order(one: &Row, other: &Row, keys: &[(&'static str, bool)]) -> Ordering {
    let by_key = |&(field, is_descending): &(&'static str, bool)| match (one.get(field), other.get(field)) {
        (None, None) => Ordering::Equal,
        (None, Some(_)) => Ordering::Greater,
        (Some(_), None) => Ordering::Less,
        (Some(one), Some(other)) => {
            let order = one.partial_cmp(other).unwrap();
            if is_descending { order.reverse() } else { order }
        }
    };
    let created = |row: &Row| (row["create_time"].clone(), row["name"].clone());
    let by_creation = created(one).partial_cmp(&created(other)).unwrap();
    let is_newest_first = keys.last().is_none_or(|&(_, is_descending)| is_descending);
    let ties = if is_newest_first { by_creation.reverse() } else { by_creation };
    keys.iter().map(by_key).find(|order| order.is_ne()).unwrap_or(ties)
}
