//! The keys of a configuration, each read once.

use serde_json::{Map, Value};

use super::keys::{self, Treatment};
use crate::error::{Invalid, in_range};
use crate::model::layer::MAX_EXTENT;

/// What has not been read yet, and what a note has to say about the rest.
#[derive(Debug)]
pub(super) struct Fields {
    left: Map<String, Value>,
    unread: Unread,
    /// Whether keys of unknown meaning are ignored.
    ignore_unknown: bool,
}

/// Keys that change nothing that is planned, by their paths, and remarks on others.
#[derive(Debug, Default)]
pub(super) struct Unread {
    /// Keys that change neither arithmetic nor memory.
    neutral: Vec<String>,
    /// Keys of unknown meaning that the caller wants to be ignored.
    unknown: Vec<String>,
    /// Notes on what is read but not planned as the file has it.
    remarks: Vec<String>,
}

/// Most keys that a note names, so that a file full of them does not fill a terminal.
const MAX_NAMED: usize = 32;

impl Unread {
    /// Returns the notes human-readable: at most one per kind.
    pub(super) fn notes(self) -> Vec<String> {
        let named = |keys: &[String]| {
            let names = keys.iter().take(MAX_NAMED).map(String::as_str).collect::<Vec<_>>().join(", ");
            match keys.len().checked_sub(MAX_NAMED) {
                None | Some(0) => names,
                Some(more) => format!("{names} and {more} more"),
            }
        };
        let mut notes = self.remarks;
        if !self.neutral.is_empty() {
            notes.push(format!(
                "ignored keys, which change neither arithmetic nor memory: {}",
                named(&self.neutral)
            ));
        }
        if !self.unknown.is_empty() {
            notes.push(format!("unknown keys, ignored as requested: {}", named(&self.unknown)));
        }
        notes
    }

    fn absorb(&mut self, key: &str, inner: Self) {
        let below = |name: String| format!("{key}.{name}");
        self.neutral.extend(inner.neutral.into_iter().map(below));
        self.unknown.extend(inner.unknown.into_iter().map(below));
        self.remarks.extend(inner.remarks);
    }
}

impl Fields {
    pub(super) fn new(fields: Map<String, Value>, ignore_unknown: bool) -> Self {
        Self { left: fields, unread: Unread::default(), ignore_unknown }
    }

    /// A value that is there and not null. Names after the first are aliases, which must agree with it.
    fn take(&mut self, names: &[&str]) -> Result<Option<(String, Value)>, Invalid> {
        let mut found: Option<(String, Value)> = None;
        for name in names {
            let Some(value) = self.left.remove(*name).filter(|value| !value.is_null()) else { continue };
            match &found {
                Some((other, before)) if *before != value => {
                    return Err(invalid!(*name, "{value} differs from {other}, {before}"));
                }
                Some(_) => {}
                None => found = Some(((*name).to_owned(), value)),
            }
        }
        Ok(found)
    }

    /// A size: a whole number from 1.
    pub(super) fn size(&mut self, names: &[&str], default: i64) -> Result<i64, Invalid> {
        Ok(self.optional_size(names)?.unwrap_or(default))
    }

    pub(super) fn optional_size(&mut self, names: &[&str]) -> Result<Option<i64>, Invalid> {
        let Some((name, value)) = self.take(names)? else { return Ok(None) };
        let Some(size) = value.as_i64() else {
            return Err(invalid!(name, "{value} is not a whole number"));
        };
        in_range(&name, size, 1..=MAX_EXTENT).map(Some)
    }

    /// A whole number from 0.
    pub(super) fn size_from_zero(&mut self, name: &str, default: i64) -> Result<i64, Invalid> {
        let Some((name, value)) = self.take(&[name])? else { return Ok(default) };
        let size = value.as_i64().filter(|size| (0..=MAX_EXTENT).contains(size));
        size.ok_or_else(|| invalid!(name, "{value} is not a whole number of at least 0"))
    }

    /// Whether the key is there without a value.
    pub(super) fn is_null(&self, name: &str) -> bool {
        self.left.get(name).is_some_and(Value::is_null)
    }

    pub(super) fn number(&mut self, name: &str, default: f64) -> Result<f64, Invalid> {
        Ok(self.optional_number(name)?.unwrap_or(default))
    }

    pub(super) fn optional_number(&mut self, name: &str) -> Result<Option<f64>, Invalid> {
        let Some((name, value)) = self.take(&[name])? else { return Ok(None) };
        value.as_f64().map(Some).ok_or_else(|| invalid!(name, "{value} is not a number"))
    }

    pub(super) fn flag(&mut self, name: &str, default: bool) -> Result<bool, Invalid> {
        let Some((name, value)) = self.take(&[name])? else { return Ok(default) };
        value.as_bool().ok_or_else(|| invalid!(name, "{value} is not true or false"))
    }

    pub(super) fn text(&mut self, name: &str, default: &str) -> Result<String, Invalid> {
        match self.take(&[name])? {
            Some((_, Value::String(text))) => Ok(text),
            Some((name, value)) => Err(invalid!(name, "{value} is not a text")),
            None => Ok(default.to_owned()),
        }
    }

    pub(super) fn texts(&mut self, name: &str) -> Result<Vec<String>, Invalid> {
        let Some((name, value)) = self.take(&[name])? else { return Ok(Vec::new()) };
        let texts = value.as_array().and_then(|values| {
            values.iter().map(|value| value.as_str().map(str::to_owned)).collect::<Option<Vec<_>>>()
        });
        texts.ok_or_else(|| invalid!(name, "{value} is not a list of texts"))
    }

    pub(super) fn numbers(&mut self, name: &str) -> Result<Vec<f64>, Invalid> {
        let Some((name, value)) = self.take(&[name])? else { return Ok(Vec::new()) };
        let numbers =
            value.as_array().and_then(|values| values.iter().map(Value::as_f64).collect::<Option<Vec<_>>>());
        numbers.ok_or_else(|| Invalid::field(name, "is not a list of numbers"))
    }

    pub(super) fn object(&mut self, name: &str) -> Result<Option<Fields>, Invalid> {
        match self.take(&[name])? {
            Some((_, Value::Object(fields))) => Ok(Some(Self::new(fields, self.ignore_unknown))),
            Some((name, value)) => Err(invalid!(name, "{value} is not an object")),
            None => Ok(None),
        }
    }

    /// Adds a note.
    pub(super) fn remark(&mut self, note: String) {
        self.unread.remarks.push(note);
    }

    /// Returns whether no key is left.
    pub(super) fn is_empty(&self) -> bool {
        self.left.is_empty()
    }

    /// A value without reading it.
    pub(super) fn peek(&self, name: &str) -> Option<&Value> {
        self.left.get(name).filter(|value| !value.is_null())
    }

    /// Takes a value of any kind that changes neither arithmetic nor memory.
    pub(super) fn neutral(&mut self, name: &str) {
        if self.left.remove(name).is_some_and(|value| !value.is_null()) {
            self.unread.neutral.push(name.to_owned());
        }
    }

    /// Ends the reading of an object below `key`, of whose other keys nothing is known.
    ///
    /// # Errors
    /// Names the first key that has not been read, unless unknown keys are ignored.
    pub(super) fn finish_inner(&mut self, key: &str, mut inner: Self, known: &str) -> Result<(), Invalid> {
        let unknown = std::mem::take(&mut inner.left).into_iter().filter(|(_, value)| !value.is_null());
        for (name, _) in unknown {
            if !self.ignore_unknown {
                let why = format!(
                    "is an unknown key and may change the arithmetic. Known keys are {known}. Remove it, or set \
                     `ignore_unknown_keys` to plan without it"
                );
                return Err(Invalid::field(name, why));
            }
            inner.unread.unknown.push(name);
        }
        self.unread.absorb(key, inner.unread);
        Ok(())
    }

    /// Refuses what has not been read and could change what is computed, and returns what a note has to name.
    ///
    /// # Errors
    /// One violation for each such key; unknown keys are none where they are ignored.
    pub(super) fn finish(self) -> Result<Unread, Invalid> {
        let Self { left, mut unread, ignore_unknown } = self;
        let mut violations: Option<Invalid> = None;
        for (key, value) in left {
            let refusal = match keys::treatment(&key, &value) {
                Treatment::Silent => continue,
                Treatment::Noted => {
                    unread.neutral.push(key);
                    continue;
                }
                Treatment::Unknown if ignore_unknown => {
                    unread.unknown.push(key);
                    continue;
                }
                Treatment::Refused(why) => why,
                Treatment::Unknown => "is an unknown key and may change the arithmetic. Remove it, or set \
                    `ignore_unknown_keys` to plan without it"
                    .to_owned(),
            };
            let next = Invalid::field(key, refusal);
            match &mut violations {
                None => violations = Some(next),
                Some(all) => all.merge(next),
            }
        }
        violations.map_or(Ok(unread), Err)
    }
}
