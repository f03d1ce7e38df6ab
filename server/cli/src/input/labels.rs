//! Labels on the command line: `team=vision` sets one, `team-` removes it.

use std::collections::HashMap;

use loadmaster_proto::label::is_valid_key;
use prost_types::FieldMask;

/// A label that is set or removed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct LabelChange {
    key: String,
    /// None removes it.
    value: Option<String>,
}

/// `KEY=VALUE` or `KEY-`.
pub(crate) fn change(text: &str) -> Result<LabelChange, String> {
    let (key, value) = match text.split_once('=') {
        Some((key, value)) => (key, Some(value.to_owned())),
        None => (text.strip_suffix('-').unwrap_or_default(), None),
    };
    if is_valid_key(key) {
        Ok(LabelChange { key: key.to_owned(), value })
    } else {
        Err("use KEY=VALUE to set a label or KEY- to remove it. A key has 1 to 63 characters of a-z, 0-9, '_' and '-', and \
             begins with a letter."
            .to_owned())
    }
}

/// The labels of a request and its mask: each change names its key, so that others stay. Of one key the last change counts.
pub(crate) fn request(changes: Vec<LabelChange>) -> (HashMap<String, String>, Option<FieldMask>) {
    let changes: HashMap<String, Option<String>> = changes.into_iter().map(|of| (of.key, of.value)).collect();
    let paths = changes.keys().map(|key| format!("labels.{key}")).collect();
    let labels = changes.into_iter().filter_map(|(key, value)| Some((key, value?))).collect();
    (labels, Some(FieldMask { paths }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changes_set_and_remove_and_the_last_one_counts() {
        let read = |texts: &[&str]| {
            let (labels, mask) = request(texts.iter().map(|text| change(text).unwrap()).collect());
            let mut labels: Vec<String> =
                labels.into_iter().map(|(key, value)| format!("{key}={value}")).collect();
            let mut paths = mask.unwrap().paths;
            labels.sort();
            paths.sort();
            (labels.join(" "), paths.join(" "))
        };
        assert_eq!(read(&["team=a=b", "old-"]), ("team=a=b".to_owned(), "labels.old labels.team".to_owned()));
        assert_eq!(read(&["a-b-", "x=", "x-"]), (String::new(), "labels.a-b labels.x".to_owned()));
        for text in ["", "-", "=", "=a", "A=b", "a.b=c", "team"] {
            assert!(change(text).is_err(), "{text}");
        }
    }
}
