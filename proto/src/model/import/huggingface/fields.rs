//! The keys of a configuration, each read once.

use serde_json::{Map, Value};

use super::keys;
use crate::error::{Invalid, in_range};
use crate::model::layer::MAX_EXTENT;

/// What has not been read yet.
#[derive(Debug)]
pub(super) struct Fields {
    left: Map<String, Value>,
}

impl Fields {
    pub(super) fn new(fields: Map<String, Value>) -> Self {
        Self { left: fields }
    }

    /// A value that is there and not null. Names after the first are aliases, which must agree with it.
    fn take(&mut self, names: &[&str]) -> Result<Option<(String, Value)>, Invalid> {
        let mut found: Option<(String, Value)> = None;
        for name in names {
            let Some(value) = self.left.remove(*name).filter(|value| !value.is_null()) else { continue };
            match &found {
                Some((other, before)) if *before != value => {
                    return Err(Invalid::field(*name, format!("is {value}, but {other} is {before}")));
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
            return Err(Invalid::field(name, format!("is {value}, must be a whole number")));
        };
        in_range(&name, size, 1..=MAX_EXTENT).map(Some)
    }

    /// A whole number from 0.
    pub(super) fn size_from_zero(&mut self, name: &str, default: i64) -> Result<i64, Invalid> {
        let Some((name, value)) = self.take(&[name])? else { return Ok(default) };
        let size = value.as_i64().filter(|size| (0..=MAX_EXTENT).contains(size));
        size.ok_or_else(|| Invalid::field(name, format!("is {value}, must be a whole number from 0")))
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
        value.as_f64().map(Some).ok_or_else(|| Invalid::field(name, format!("is {value}, must be a number")))
    }

    pub(super) fn flag(&mut self, name: &str, default: bool) -> Result<bool, Invalid> {
        let Some((name, value)) = self.take(&[name])? else { return Ok(default) };
        value.as_bool().ok_or_else(|| Invalid::field(name, format!("is {value}, must be true or false")))
    }

    pub(super) fn text(&mut self, name: &str, default: &str) -> Result<String, Invalid> {
        match self.take(&[name])? {
            Some((_, Value::String(text))) => Ok(text),
            Some((name, value)) => Err(Invalid::field(name, format!("is {value}, must be a text"))),
            None => Ok(default.to_owned()),
        }
    }

    pub(super) fn texts(&mut self, name: &str) -> Result<Vec<String>, Invalid> {
        let Some((name, value)) = self.take(&[name])? else { return Ok(Vec::new()) };
        let texts = value.as_array().and_then(|values| {
            values.iter().map(|value| value.as_str().map(str::to_owned)).collect::<Option<Vec<_>>>()
        });
        texts.ok_or_else(|| Invalid::field(name, format!("is {value}, must be a list of texts")))
    }

    pub(super) fn numbers(&mut self, name: &str) -> Result<Vec<f64>, Invalid> {
        let Some((name, value)) = self.take(&[name])? else { return Ok(Vec::new()) };
        let numbers =
            value.as_array().and_then(|values| values.iter().map(Value::as_f64).collect::<Option<Vec<_>>>());
        numbers.ok_or_else(|| Invalid::field(name, "must be a list of numbers"))
    }

    pub(super) fn object(&mut self, name: &str) -> Result<Option<Fields>, Invalid> {
        match self.take(&[name])? {
            Some((_, Value::Object(fields))) => Ok(Some(Fields::new(fields))),
            Some((name, value)) => Err(Invalid::field(name, format!("is {value}, must be an object"))),
            None => Ok(None),
        }
    }

    /// Refuses what has not been read and could change what is computed.
    ///
    /// # Errors
    /// One violation for each such key.
    pub(super) fn finish(self) -> Result<(), Invalid> {
        let violations = self.left.iter().filter_map(|(key, value)| {
            keys::objection(key, value).map(|objection| Invalid::field(key, objection))
        });
        let all = violations.reduce(|mut all, next| {
            all.merge(next);
            all
        });
        all.map_or(Ok(()), Err)
    }

    /// As [`Self::finish`], but nothing may be left at all.
    pub(super) fn finish_strictly(self, known: &str) -> Result<(), Invalid> {
        match self.left.keys().next() {
            Some(key) => Err(Invalid::field(key, format!("is not known here: only {known} are"))),
            None => Ok(()),
        }
    }
}
