//! Rows that are at hand, for lists that no database answers: whether a condition holds of them, and their order. The same as
//! [`Condition`] and [`Query`] say.

use std::cmp::Ordering;

use crate::condition::{Comparison, Condition, Relation, Test, Value};
use crate::field::Field;
use crate::{MAX_ORDERED_CHARACTERS, Query};

/// What a row is ordered by, field by field; none where it is not set.
type Place = Vec<Option<Value>>;

impl Query {
    /// Rows that come in the order of their creation, in this order, each with what it is ordered by; a `value` that is not set is
    /// none. Without an order they stay as they are.
    pub fn sorted<T>(
        &self,
        mut rows: Vec<T>,
        value: impl Fn(&T, &'static Field) -> Option<Value>,
    ) -> Vec<(T, Place)> {
        // Those that are equal go the way that the last field goes.
        if self.order.last().is_some_and(|key| key.is_descending) {
            rows.reverse();
        }
        let place = |row: T| {
            let place = self.order.iter().map(|key| value(&row, key.field).map(cut)).collect();
            (row, place)
        };
        let mut rows: Vec<(T, Place)> = rows.into_iter().map(place).collect();
        rows.sort_by(|(_, one), (_, other)| self.compare(one, other));
        rows
    }

    fn compare(&self, one: &Place, other: &Place) -> Ordering {
        let orders = self.order.iter().zip(one.iter().zip(other)).map(|(key, values)| match values {
            (Some(one), Some(other)) => {
                let order = order(one, other).unwrap_or(Ordering::Equal);
                if key.is_descending { order.reverse() } else { order }
            }
            // What is not set comes last, whichever way.
            (one, other) => one.is_none().cmp(&other.is_none()),
        });
        orders.fold(Ordering::Equal, Ordering::then)
    }
}

/// As much of a value as rows are ordered by.
fn cut(value: Value) -> Value {
    match value {
        Value::Text(text) => Value::Text(text.chars().take(MAX_ORDERED_CHARACTERS).collect()),
        value => value,
    }
}

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
            (Relation::HasEntry(entry), Value::Text(text)) => format!(",{text},").contains(entry),
            (Relation::StartsWith(_) | Relation::Contains(_) | Relation::HasEntry(_), _) => false,
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
    use super::*;
    use crate::field::Kind;

    static FIELDS: &[Field] = &[
        Field { name: "predictor", kind: Kind::Text, column: "", is_always_set: true },
        Field { name: "error", kind: Kind::Number, column: "", is_always_set: false },
        Field { name: "labels", kind: Kind::Labels, column: "", is_always_set: true },
        Field { name: "nodes", kind: Kind::Texts, column: "", is_always_set: true },
    ];

    fn holds(filter: &str, error: Option<f64>) -> bool {
        let condition = Query::parse(FIELDS, filter, "").unwrap().condition.unwrap();
        condition.holds(&|field, key| match (field.name, key) {
            ("predictor", _) => Some(Value::Text("component/4".to_owned())),
            ("error", _) => error.map(Value::Real),
            ("nodes", _) => Some(Value::Text("n1,n17".to_owned())),
            (_, Some("team")) => Some(Value::Text("vision".to_owned())),
            _ => None,
        })
    }

    #[test]
    fn rows_at_hand_are_ordered_as_rows_of_a_table() {
        let rows =
            || vec![("b", Some(0.2)), ("a", None), ("a", Some(0.1)), ("b", Some(0.1)), ("a", Some(0.2))];
        let sorted = |order_by: &str| {
            let query = Query::parse(FIELDS, "", order_by).unwrap();
            let value = |row: &(&str, Option<f64>), field: &'static Field| match field.name {
                "predictor" => Some(Value::Text(row.0.to_owned())),
                _ => row.1.map(Value::Real),
            };
            query.sorted(rows(), value)
        };
        let of = |order_by: &str| sorted(order_by).into_iter().map(|(row, _)| row).collect::<Vec<_>>();
        let [b2, a, a1, b1, a2] = rows()[..] else { panic!("there are five") };
        assert_eq!(of(""), rows());
        assert_eq!(of("error"), [a1, b1, b2, a2, a]);
        assert_eq!(of("error desc"), [a2, b2, b1, a1, a]);
        assert_eq!(of("predictor, error desc"), [a2, a1, a, b2, b1]);
        assert_eq!(of("error desc, predictor"), [a2, b2, a1, b1, a]);
        let (_, place) = &sorted("predictor desc, error")[0];
        assert_eq!(place[..], [Some(Value::Text("b".to_owned())), Some(Value::Real(0.1))]);
        let (_, place) = &sorted("error")[4];
        assert_eq!(place[..], [None]);
        let long = "ä".repeat(1_000);
        assert_eq!(cut(Value::Text(long)), Value::Text("ä".repeat(MAX_ORDERED_CHARACTERS)));
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
            ("nodes:n1 -nodes:n2 nodes:n17 -nodes:n nodes:n* -nodes:17*", true, true),
        ] {
            assert_eq!((holds(filter, Some(0.2)), holds(filter, None)), (of_some, of_none), "{filter}");
        }
    }
}
