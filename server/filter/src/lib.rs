//! What lists are asked for: `filter` as in [AIP-160](https://google.aip.dev/160) and `order_by` as in
//! [AIP-132](https://google.aip.dev/132), over fields that each list documents. Pure: texts become conditions on columns, and
//! nothing of a text ever is a part of a statement.
//!
//! ```text
//! expression  = sequence { "AND" sequence }             "AND" may be left out between terms
//! sequence    = factor { factor }
//! factor      = term { "OR" term }                      OR binds closer than AND
//! term        = [ "NOT" | "-" ] ( restriction | "(" expression ")" )
//! restriction = field { "." key } comparator value
//! comparator  = "=" | "!=" | "<" | "<=" | ">" | ">=" | ":"
//! ```
//!
//! * Values are words, numbers, `"quoted"` or `'quoted'` texts (`\` before a quote, a backslash or a star means that
//!   character), bytes (`1.5GiB`), durations (`1.2s`, `3m`), times (`2026-11-01`, `2026-11-01T08:00:00Z`, quoted or not).
//! * A star at the end of a text stands for any end: `name = vgg*`. Nowhere else.
//! * `:` is "has": a text has a part (`solver:exact`), labels have a key (`labels:team`), `field:*` is set at all; of anything
//!   else it means `=`.
//! * What is not set equals nothing, differs from everything (`!=` is `NOT … =`), and is neither less nor greater.
//! * A text alone is refused: what it should be compared with is anybody's guess, and a misspelt field would be one.
//!
//! An order is `field [asc|desc], …`; what is not set comes last, whichever way. Rows that are equal in all of that are in
//! the order of their creation, the way that the last field goes.

mod check;
mod condition;
mod field;
mod look;
mod order;
mod parse;
mod scan;

#[cfg(test)]
mod tests;

pub use condition::{Comparison, Condition, Relation, Test, Value};
pub use field::{Field, Kind, NO_FIELD, Words};
use loadmaster_proto::error::Invalid;
pub use order::SortKey;

/// Most characters of a filter, and of an order: a line of a log.
pub const MAX_CHARACTERS: usize = 4_096;
/// Most comparisons of a filter: each is looked at for every row.
pub const MAX_COMPARISONS: usize = 64;
/// Most parentheses around a comparison.
pub const MAX_DEPTH: usize = 16;
/// Most fields of an order.
pub const MAX_SORT_KEYS: usize = 8;
/// Characters of a text that rows are ordered by: positions travel in page tokens.
pub const MAX_ORDERED_CHARACTERS: usize = 128;

/// Which rows of a list, in which order. The default is all of them, newest first.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Query {
    /// What rows must be; none for all.
    pub condition: Option<Condition>,
    /// What they are ordered by; empty for the newest first.
    pub order: Vec<SortKey>,
}

impl Query {
    /// What `filter` and `order_by` ask of a list with these fields; empty texts ask nothing.
    ///
    /// # Errors
    /// Violations of `filter` and `order_by`, which name the position as the number of a character, from 1 on, and what to
    /// write instead.
    pub fn parse(fields: &'static [Field], filter: &str, order_by: &str) -> Result<Self, Invalid> {
        let named = |field: &'static str| move |fault: scan::Fault| Invalid::field(field, fault.to_string());
        let condition = condition(fields, filter).map_err(named("filter"));
        let order = order::read(fields, order_by).map_err(named("order_by"));
        match (condition, order) {
            (Ok(condition), Ok(order)) => Ok(Self { condition, order }),
            (Err(mut of_filter), Err(of_order)) => {
                of_filter.merge(of_order);
                Err(of_filter)
            }
            (Err(invalid), Ok(_)) | (Ok(_), Err(invalid)) => Err(invalid),
        }
    }
}

fn condition(fields: &'static [Field], filter: &str) -> Result<Option<Condition>, scan::Fault> {
    let expression = parse::expression(filter)?;
    expression.map(|of| check::condition(fields, of)).transpose()
}
