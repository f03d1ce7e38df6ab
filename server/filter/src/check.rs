//! From the tree of a filter to a condition on the fields of a list.

use crate::condition::{Comparison, Condition, Relation, Test};
use crate::field::{Field, Kind, find};
use crate::parse::{Argument, Asked, Comparator, Expression, Path, Restriction};
use crate::scan::Fault;
use crate::value;

/// What an expression asks of these fields.
///
/// # Errors
/// Where it names a field that there is not, or compares one as its kind cannot be.
pub(crate) fn condition(fields: &'static [Field], of: Expression) -> Result<Condition, Fault> {
    let all = |parts: Vec<Expression>| -> Result<Vec<Condition>, Fault> {
        parts.into_iter().map(|part| condition(fields, part)).collect()
    };
    Ok(match of {
        Expression::All(parts) => Condition::All(all(parts)?),
        Expression::Any(parts) => Condition::Any(all(parts)?),
        Expression::Not(part) => Condition::Not(Box::new(condition(fields, *part)?)),
        Expression::Restriction(restriction) => test(fields, &restriction)?,
    })
}

fn test(fields: &'static [Field], of: &Restriction) -> Result<Condition, Fault> {
    let Restriction { path, comparator, argument } = of;
    let (field, key) = field(fields, path)?;
    let (kind, key) = match (field.kind, key) {
        (Kind::Labels, None) => return has_key(field, *comparator, argument),
        (Kind::Labels, Some(key)) => (Kind::Text, Some(key)),
        (kind, _) => (kind, None),
    };
    let test = |relation| Condition::Test(Test { field, key: key.clone(), relation });
    if comparator.asks == Asked::Has && argument.is_open && argument.text.is_empty() {
        return Ok(test(Relation::Set));
    }
    let comparison = match (comparator.asks, kind) {
        (Asked::Has, Kind::Texts) => {
            let end = if argument.is_open { "" } else { "," };
            return Ok(test(Relation::HasEntry(format!(",{}{end}", argument.text))));
        }
        (Asked::Has, Kind::Text | Kind::Id(_)) if argument.is_open => Comparison::Equal,
        (Asked::Has, Kind::Text) => return Ok(test(Relation::Contains(argument.text.clone()))),
        // `profile:profiles/gpt`, where the column has ids.
        (Asked::Has, Kind::Id(collection)) => {
            return Ok(test(Relation::Contains(value::id(collection, &argument.text).to_owned())));
        }
        (Asked::Has, _) => Comparison::Equal,
        (Asked::Compares(comparison), _) => comparison,
    };
    let is_equality = matches!(comparison, Comparison::Equal | Comparison::NotEqual);
    if !is_equality && matches!(kind, Kind::Text | Kind::Texts | Kind::Id(_) | Kind::Word(_) | Kind::Truth) {
        let what = format!("{} has no less and no more: write = or !=", field.name);
        return Err(Fault::new(comparator.at, what));
    }
    if !argument.is_open {
        let value = value::read(kind, &argument.text).map_err(|what| Fault::new(argument.at, what))?;
        return Ok(test(Relation::Is(comparison, value)));
    }
    let start = match kind {
        Kind::Text | Kind::Texts => argument.text.clone(),
        Kind::Id(collection) => value::id(collection, &argument.text).to_owned(),
        _ => {
            let what = format!(
                "{} has no beginning: only texts may end with a star; write {}:* for any value",
                field.name, field.name
            );
            return Err(Fault::new(argument.at, what));
        }
    };
    let starts = test(Relation::StartsWith(start));
    Ok(if comparison == Comparison::NotEqual { Condition::Not(Box::new(starts)) } else { starts })
}

/// The field of a path, and the key in it.
fn field(fields: &'static [Field], path: &Path) -> Result<(&'static Field, Option<String>), Fault> {
    let Some((name, rest)) = path.parts.split_first() else {
        return Err(Fault::new(path.at, "a field should be here"));
    };
    let field = find(fields, name).map_err(|what| Fault::new(path.at, what))?;
    match (field.kind, rest) {
        (_, []) => Ok((field, None)),
        (Kind::Labels, [key]) => Ok((field, Some(key.clone()))),
        (Kind::Labels, _) => {
            let what = format!("a key with dots is written in quotes: {name}.{:?}", rest.join("."));
            Err(Fault::new(path.at, what))
        }
        _ => Err(Fault::new(path.at, format!("{name} has no parts: write {name} alone"))),
    }
}

/// `labels:key`.
fn has_key(field: &'static Field, comparator: Comparator, argument: &Argument) -> Result<Condition, Fault> {
    let name = field.name;
    match comparator.asks {
        Asked::Has if !argument.is_open => {
            let key = Some(argument.text.clone());
            Ok(Condition::Test(Test { field, key, relation: Relation::Set }))
        }
        Asked::Has | Asked::Compares(_) => Err(Fault::new(
            comparator.at,
            format!(
                "{name} are compared key by key: write {name}.KEY = VALUE, or {name}:KEY for those with that key"
            ),
        )),
    }
}
