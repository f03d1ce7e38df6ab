//! JSON and text that Postgres accepts: it stores any character but NUL. And large contents, which take a while.

use std::fmt::Display;

use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::error::{Result, StoreError};
use crate::background::BackgroundThreads;

/// What stands in for a NUL.
const REPLACEMENT: &str = "\u{fffd}";

/// `text` without NULs and with at most `limit` bytes. For what workers send: the last words of a
/// crashed rank may be anything, and must not make its report impossible to store.
pub(super) fn clean(text: &str, limit: usize) -> String {
    let end = text.floor_char_boundary(limit);
    let text = text.get(..end).unwrap_or_default();
    text.replace('\0', REPLACEMENT)
}

/// The document for a value, without NULs.
pub(super) fn document(value: &impl Serialize) -> Result<Value> {
    let mut document =
        serde_json::to_value(value).map_err(|error| StoreError::Internal(error.to_string()))?;
    clean_document(&mut document);
    Ok(document)
}

fn clean_document(value: &mut Value) {
    match value {
        Value::String(text) if text.contains('\0') => *text = text.replace('\0', REPLACEMENT),
        Value::Array(items) => items.iter_mut().for_each(clean_document),
        Value::Object(fields) => fields.values_mut().for_each(clean_document),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

/// What is stored under a name.
pub(super) fn read<T: DeserializeOwned>(name: &impl Display, text: &str) -> Result<T> {
    serde_json::from_str(text).map_err(|error| StoreError::corrupt(format!("{name} cannot be read: {error}")))
}

/// Reads or writes a large content beside the calls: heartbeats must not wait for it.
///
/// # Errors
/// Those of the work.
pub(super) async fn beside<T: Send + 'static>(
    work: impl FnOnce() -> Result<T> + Send + 'static,
) -> Result<T> {
    match BackgroundThreads::shared().spawn(work).await {
        Ok(done) => done,
        Err(error) => Err(StoreError::Internal(format!("a content cannot be read or written: {error}"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_cut_between_characters() {
        assert_eq!(clean("aä\0b", 2), "a");
        assert_eq!(clean("aä\0b", 100), "aä\u{fffd}b");
    }

    #[test]
    fn documents_hold_no_nul() {
        let value = document(&vec![Some("x\0"), None]).unwrap();
        assert_eq!(value.to_string(), "[\"x\u{fffd}\",null]");
    }
}
