//! Values as people write them, by the kind of the field that they are compared with.

use jiff::civil::Date;
use jiff::tz::TimeZone;
use jiff::{SignedDuration, Timestamp};
use loadmaster_proto::bytes::Bytes;

use crate::condition::Value;
use crate::field::{Kind, Words};
use crate::scan::shown;

/// The value of a text.
///
/// # Errors
/// What is wrong and what to write.
pub(crate) fn read(kind: Kind, text: &str) -> Result<Value, String> {
    let example = |what: &str| format!("{} is no {what}", shown(text));
    match kind {
        Kind::Text | Kind::Texts | Kind::Labels => Ok(Value::Text(text.to_owned())),
        Kind::Id(collection) => Ok(Value::Text(id(collection, text).to_owned())),
        Kind::Word(words) => word(words, text).map(Value::Text),
        Kind::Count => {
            text.parse().map(Value::Integer).map_err(|_| example("whole number: write, for example, 4"))
        }
        Kind::Bytes => {
            let bytes = text.parse::<Bytes>().ok().and_then(|bytes| i64::try_from(bytes.0).ok());
            bytes
                .map(Value::Integer)
                .ok_or_else(|| example("number of bytes: write, for example, 1.5GiB or 1048576"))
        }
        Kind::Number => {
            real(text).map(Value::Real).ok_or_else(|| example("number: write, for example, 0.05"))
        }
        Kind::Seconds => {
            let duration = || Some(text.parse::<SignedDuration>().ok()?.as_secs_f64());
            // A duration has nine decimals at most, and answers have numbers of more.
            let of_answer = || real(text.strip_suffix('s')?);
            let seconds = real(text).or_else(duration).or_else(of_answer);
            seconds.map(Value::Real).ok_or_else(|| example("duration: write, for example, 1.5s, 200ms or 2m"))
        }
        Kind::Time => time(text).map(Value::Time),
        Kind::Truth => match text {
            "true" => Ok(Value::Truth(true)),
            "false" => Ok(Value::Truth(false)),
            _ => Err(example("truth: write true or false")),
        },
    }
}

/// An id, with or without its collection.
pub(crate) fn id<'t>(collection: &str, text: &'t str) -> &'t str {
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
        format!("{} is none of {}", shown(text), said.join(", "))
    })
}

/// A day is its first moment, in UTC.
fn time(text: &str) -> Result<Timestamp, String> {
    let day = || text.parse::<Date>().ok()?.to_zoned(TimeZone::UTC).ok().map(|day| day.timestamp());
    let read = if text.contains(['T', 't', ' ']) { text.parse().ok() } else { day() };
    let Some(time) = read else {
        return Err(format!(
            "{} is no time: write, for example, 2026-11-01 or 2026-11-01T08:00:00Z",
            shown(text)
        ));
    };
    // Rows are written after 1970, in microseconds.
    let known = Timestamp::from_microsecond(time.as_microsecond()).ok();
    known
        .filter(|time| *time >= Timestamp::UNIX_EPOCH)
        .ok_or_else(|| format!("{} is before 1970, when nothing was stored", shown(text)))
}
