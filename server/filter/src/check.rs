//! From the tree of a filter to a condition on the fields of a list, with values by the kinds of these fields.

use jiff::civil::Date;
use jiff::tz::TimeZone;
use jiff::{SignedDuration, Timestamp};
use loadmaster_proto::bytes::Bytes;

use crate::condition::{Comparison, Condition, Relation, Test, Value};
use crate::field::{Field, Kind, Words, find};
use crate::parse::{Argument, Asked, Comparator, Expression, Path, Restriction};
use crate::scan::{Fault, shown};

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
            return Ok(test(Relation::Contains(id_of(collection, &argument.text).to_owned())));
        }
        (Asked::Has, _) => Comparison::Equal,
        (Asked::Compares(comparison), _) => comparison,
    };
    let is_equality = matches!(comparison, Comparison::Equal | Comparison::NotEqual);
    if !is_equality && matches!(kind, Kind::Text | Kind::Texts | Kind::Id(_) | Kind::Word(_) | Kind::Truth) {
        let what = format!("{} has no order. Use = or !=.", field.name);
        return Err(Fault::new(comparator.at, what));
    }
    if !argument.is_open {
        let value = read_value(kind, &argument.text).map_err(|what| Fault::new(argument.at, what))?;
        return Ok(test(Relation::Is(comparison, value)));
    }
    let start = match kind {
        Kind::Text | Kind::Texts => argument.text.clone(),
        Kind::Id(collection) => id_of(collection, &argument.text).to_owned(),
        _ => {
            let what = format!(
                "{} is not a text field, so its value cannot end with `*`. Use {}:* for any value.",
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
        return Err(Fault::new(path.at, "a field is missing here"));
    };
    let field = find(fields, name).map_err(|what| Fault::new(path.at, what))?;
    match (field.kind, rest) {
        (_, []) => Ok((field, None)),
        (Kind::Labels, [key]) => Ok((field, Some(key.clone()))),
        (Kind::Labels, _) => {
            let what = format!("a label key with dots needs quotes. Use {name}.{:?}.", rest.join("."));
            Err(Fault::new(path.at, what))
        }
        _ => Err(Fault::new(path.at, format!("{name} has no subfields. Use {name} alone."))),
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
                "{name} are compared by key. Use {name}.KEY = VALUE, or {name}:KEY for rows that have the key."
            ),
        )),
    }
}

/// The value of a text.
///
/// # Errors
/// What is wrong and what to write.
fn read_value(kind: Kind, text: &str) -> Result<Value, String> {
    let example = |what: &str| format!("{} is not a {what}", shown(text));
    match kind {
        Kind::Text | Kind::Texts | Kind::Labels => Ok(Value::Text(text.to_owned())),
        Kind::Id(collection) => Ok(Value::Text(id_of(collection, text).to_owned())),
        Kind::Word(words) => word(words, text).map(Value::Text),
        Kind::Count => {
            text.parse().map(Value::Integer).map_err(|_| example("whole number. Use, for example, 4."))
        }
        Kind::Bytes => {
            // A message has bytes as a plain number.
            let with_unit = || i64::try_from(text.parse::<Bytes>().ok()?.0).ok();
            let bytes = text.parse().ok().or_else(with_unit);
            bytes
                .map(Value::Integer)
                .ok_or_else(|| example("number of bytes. Use, for example, 1.5GiB or 1048576."))
        }
        Kind::Number => real(text).map(Value::Real).ok_or_else(|| example("number. Use, for example, 2.")),
        Kind::Seconds => {
            let duration = || Some(text.parse::<SignedDuration>().ok()?.as_secs_f64());
            // A duration has nine decimals at most, and answers have numbers of more.
            let of_answer = || real(text.strip_suffix('s')?);
            let seconds = real(text).or_else(duration).or_else(of_answer);
            seconds.map(Value::Real).ok_or_else(|| example("duration. Use, for example, 1.5s, 200ms or 2m."))
        }
        Kind::Time => time(text).map(Value::Time),
        Kind::Truth => match text {
            "true" => Ok(Value::Truth(true)),
            "false" => Ok(Value::Truth(false)),
            _ => Err(example("Boolean. Use true or false.")),
        },
    }
}

/// An id, with or without its collection.
pub(crate) fn id_of<'t>(collection: &str, text: &'t str) -> &'t str {
    text.strip_prefix(collection).unwrap_or(text)
}

fn real(text: &str) -> Option<f64> {
    text.parse().ok().filter(|number: &f64| number.is_finite())
}

/// What is stored for a word, which may be written as people, messages or the database do: `1f1b`, `SCHEDULE_ONE_F_ONE_B`,
/// `one_f_one_b`.
fn word(words: Words, text: &str) -> Result<String, String> {
    let same = |text: &str| text.to_lowercase().replace('_', "-");
    let asked = same(text);
    let words = words();
    let found =
        words.iter().find(|(said, stored)| same(said) == asked || same(stored) == asked).or_else(|| {
            // A constant has the name of its enum in front, which is not known here.
            let is_constant = text.chars().all(|c| c.is_ascii_uppercase() || c.is_ascii_digit() || c == '_');
            let ends =
                |word: &str| asked.strip_suffix(&same(word)).is_some_and(|before| before.ends_with('-'));
            let of = words.iter().filter(|(said, stored)| is_constant && (ends(said) || ends(stored)));
            of.max_by_key(|(_, stored)| stored.len())
        });
    found.map(|(_, stored)| stored.clone()).ok_or_else(|| {
        let said: Vec<&str> = words.iter().map(|&(said, _)| said).collect();
        format!("{} is not a value of this field. Use one of {}.", shown(text), said.join(", "))
    })
}

/// A day is its first moment, in UTC.
fn time(text: &str) -> Result<Timestamp, String> {
    let day = || text.parse::<Date>().ok()?.to_zoned(TimeZone::UTC).ok().map(|day| day.timestamp());
    let read = if text.contains(['T', 't', ' ']) { text.parse().ok() } else { day() };
    let Some(time) = read else {
        return Err(format!(
            "{} is not a time. Use, for example, 2026-11-01 or 2026-11-01T08:00:00Z.",
            shown(text)
        ));
    };
    // Rows are written after 1970, in microseconds.
    let known = Timestamp::from_microsecond(time.as_microsecond()).ok();
    known
        .filter(|time| *time >= Timestamp::UNIX_EPOCH)
        .ok_or_else(|| format!("{} is before 1970. Use a later time.", shown(text)))
}
