//! Whether a condition holds of a row that is at hand, for lists that no database answers. The same as [`Condition`] says.

use std::cmp::Ordering;

use crate::condition::{Comparison, Condition, Relation, Test, Value};
use crate::field::Field;

impl Condition {
    /// Whether this is true of a row, whose `value` of a field, and of a key of labels, is told; none where it is not set.
    pub fn holds(&self, value: &impl Fn(&'static Field, Option<&str>) -> Option<Value>) -> bool {
        match self {
            Self::All(parts) => parts.iter().all(|part| part.holds(value)),
            Self::Any(parts) => parts.iter().any(|part| part.holds(value)),
            Self::Not(part) => !part.holds(value),
            Self::Test(test) => test.holds(value(test.field, test.key.as_deref())),
        }
    }
}

impl Test {
    fn holds(&self, value: Option<Value>) -> bool {
        let Some(value) = value else {
            return matches!(self.relation, Relation::Is(Comparison::NotEqual, _));
        };
        match (&self.relation, &value) {
            (Relation::Set, _) => true,
            (Relation::Is(comparison, of), _) => compares(*comparison, order(&value, of)),
            (Relation::StartsWith(start), Value::Text(text)) => text.starts_with(start),
            (Relation::Contains(part), Value::Text(text)) => text.contains(part),
            (Relation::StartsWith(_) | Relation::Contains(_), _) => false,
        }
    }
}

fn compares(comparison: Comparison, order: Option<Ordering>) -> bool {
    match comparison {
        Comparison::Equal => order == Some(Ordering::Equal),
        Comparison::NotEqual => order != Some(Ordering::Equal),
        Comparison::Less => order == Some(Ordering::Less),
        Comparison::AtMost => matches!(order, Some(Ordering::Less | Ordering::Equal)),
        Comparison::Greater => order == Some(Ordering::Greater),
        Comparison::AtLeast => matches!(order, Some(Ordering::Greater | Ordering::Equal)),
    }
}

/// Values of one kind; none of two kinds.
fn order(one: &Value, other: &Value) -> Option<Ordering> {
    match (one, other) {
        (Value::Text(one), Value::Text(other)) => Some(one.cmp(other)),
        (Value::Integer(one), Value::Integer(other)) => Some(one.cmp(other)),
        (Value::Real(one), Value::Real(other)) => one.partial_cmp(other),
        (Value::Time(one), Value::Time(other)) => Some(one.cmp(other)),
        (Value::Truth(one), Value::Truth(other)) => Some(one.cmp(other)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use crate::field::Kind;
    use crate::{Field, Query};

    use super::*;

    static FIELDS: &[Field] = &[
        Field { name: "predictor", kind: Kind::Text, column: "", is_always_set: true },
        Field { name: "error", kind: Kind::Number, column: "", is_always_set: false },
        Field { name: "labels", kind: Kind::Labels, column: "", is_always_set: true },
    ];

    fn holds(filter: &str, error: Option<f64>) -> bool {
        let condition = Query::parse(FIELDS, filter, "").unwrap().condition.unwrap();
        condition.holds(&|field, key| match (field.name, key) {
            ("predictor", _) => Some(Value::Text("component/3".to_owned())),
            ("error", _) => error.map(Value::Real),
            (_, Some("team")) => Some(Value::Text("vision".to_owned())),
            _ => None,
        })
    }

    /// What is not set equals nothing, differs from everything, and is neither less nor more.
    #[test]
    fn rows_at_hand_are_judged_as_rows_of_a_table() {
        for (filter, of_some, of_none) in [
            ("error > 0.1", true, false),
            ("NOT error > 0.1", false, true),
            ("error != 0.2", false, true),
            ("error = 0.2", true, false),
            ("error <= 0.2 AND error >= 0.2", true, false),
            ("error < 0.2 OR error:*", true, false),
            ("predictor = component* AND -predictor:capture", true, true),
            ("labels.team = vision labels:team", true, true),
            ("labels:stage", false, false),
            ("labels.stage != release", true, true),
        ] {
            assert_eq!((holds(filter, Some(0.2)), holds(filter, None)), (of_some, of_none), "{filter}");
        }
    }
}
