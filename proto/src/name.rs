//! Resource names: `profiles/vgg11-3f2a`, `runs/0197…`.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::error::Invalid;

const MAX_ID: usize = 63;

/// Longest name of anything that people name (layers, models, nodes, kinds of devices), bytes.
pub const MAX_NAME_BYTES: usize = 253;
/// Longest name of a kind of device, bytes: every run has a copy.
pub const MAX_KIND_BYTES: usize = 128;

/// The rule for names that people give, of layers, models, nodes and kinds of devices: 1 to `most` bytes without
/// control characters, which no terminal and no database should meet, and without slashes, which part the names of
/// resources and stages.
///
/// # Errors
/// What is wrong with it; the violation's path is `field`.
pub fn checked_name(field: &str, name: &str, most: usize) -> Result<(), Invalid> {
    let refused = |why: String| Err(Invalid::field(field, why));
    match name.chars().find(|&c| c.is_control() || c == '/') {
        _ if name.is_empty() => refused("is empty".to_owned()),
        _ if name.len() > most => refused(format!("is {} bytes long, must be 1 to {most}", name.len())),
        _ if name.trim() != name => refused(format!("is {name:?}, must not begin or end with spaces")),
        Some('/') => refused(format!("is {name:?}, must not have slashes")),
        Some(_) => refused(format!("is {name:?}, must not have control characters")),
        None => Ok(()),
    }
}

/// [`checked_name`] of a kind of device.
///
/// # Errors
/// As there.
pub fn checked_kind(field: &str, kind: &str) -> Result<(), Invalid> {
    checked_name(field, kind, MAX_KIND_BYTES)
}

/// Text of a caller as a message may quote it: all, or how long it is.
fn quoted(text: &str) -> String {
    if text.len() <= MAX_NAME_BYTES { format!("{text:?}") } else { format!("a text of {} bytes", text.len()) }
}

/// Whether `id` may be the last part of a resource name: 1 to 63 of `a-z`, `0-9`, `-`, not starting
/// or ending with `-`.
pub fn is_valid_id(id: &str) -> bool {
    let allowed = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-';
    !id.is_empty()
        && id.len() <= MAX_ID
        && id.bytes().all(allowed)
        && !id.starts_with('-')
        && !id.ends_with('-')
}

macro_rules! resource_name {
    ($(#[$doc:meta])* $type:ident, $collection:literal) => {
        $(#[$doc])*
        #[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(try_from = "String", into = "String")]
        pub struct $type(String);

        impl $type {
            /// The collection, the part before the id.
            pub const COLLECTION: &'static str = $collection;

            /// A name from its id alone.
            ///
            /// # Errors
            /// When the id breaks the rules of [`is_valid_id`].
            pub fn from_id(id: impl Into<String>) -> Result<Self, Invalid> {
                let id = id.into();
                if is_valid_id(&id) {
                    Ok(Self(id))
                } else {
                    Err(Invalid::field("", format!(
                        "{} is not an id: write 1 to 63 of a-z, 0-9 and '-', not '-' at the ends", quoted(&id)
                    )))
                }
            }

            /// A full name: the collection, a slash and the id.
            ///
            /// # Errors
            /// When it is not of this collection or the id is not valid; the violation's path is
            /// `field`.
            pub fn parse(field: &str, name: &str) -> Result<Self, Invalid> {
                name.strip_prefix(concat!($collection, "/"))
                    .filter(|id| is_valid_id(id))
                    .map(|id| Self(id.to_owned()))
                    .ok_or_else(|| Invalid::field(field, format!(
                        "is {}, must be of the form {}/ID", quoted(name), $collection
                    )))
            }

            /// The part after the slash.
            pub fn id(&self) -> &str {
                &self.0
            }
        }

        impl fmt::Display for $type {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!($collection, "/{}"), self.0)
            }
        }

        impl From<$type> for String {
            fn from(name: $type) -> Self {
                name.to_string()
            }
        }

        impl TryFrom<String> for $type {
            type Error = Invalid;

            fn try_from(name: String) -> Result<Self, Invalid> {
                Self::parse("", &name)
            }
        }
    };
}

resource_name!(/** Name of a model. */ ModelName, "models");
resource_name!(/** Name of a cluster. */ ClusterName, "clusters");
resource_name!(/** Name of a profile. */ ProfileName, "profiles");
resource_name!(/** Name of a plan. */ PlanName, "plans");
resource_name!(/** Name of a binding of a plan to devices. */ BindingName, "bindings");
resource_name!(/** Name of a run. */ RunName, "runs");
resource_name!(/** Name of a worker. */ WorkerName, "workers");
resource_name!(/** Name of an operation. */ OperationName, "operations");

/// Name of a command that a worker's operator lists in the worker's configuration: 1 to 63 of `a-z`,
/// `0-9`, `-`. No resource: what it runs is the worker's business alone.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct CommandName(String);

impl CommandName {
    /// A checked name.
    ///
    /// # Errors
    /// When it breaks the rules of [`is_valid_id`]; the violation's path is `field`.
    pub fn parse(field: &str, name: impl Into<String>) -> Result<Self, Invalid> {
        let name = name.into();
        if is_valid_id(&name) {
            Ok(Self(name))
        } else {
            Err(Invalid::field(
                field,
                format!(
                    "is {}, must be the name of a worker's command: 1 to 63 of a-z, 0-9 and '-'",
                    quoted(&name)
                ),
            ))
        }
    }

    /// The name.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for CommandName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl From<CommandName> for String {
    fn from(name: CommandName) -> Self {
        name.0
    }
}

impl TryFrom<String> for CommandName {
    type Error = Invalid;

    fn try_from(name: String) -> Result<Self, Invalid> {
        Self::parse("", name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_survives_its_text() {
        let name = PlanName::from_id("7f3c-1").unwrap();
        assert_eq!(name.to_string(), "plans/7f3c-1");
        assert_eq!(PlanName::parse("name", "plans/7f3c-1"), Ok(name));
    }

    #[test]
    fn a_name_of_another_collection_names_the_field() {
        let error = PlanName::parse("plan", "profiles/x").unwrap_err();
        assert_eq!(error.violations()[0].field, "plan");
        assert!(error.to_string().contains("plans/ID"));
    }

    /// A terminal, a path and a database meet these names.
    #[test]
    fn names_have_no_control_characters_no_slashes_and_no_end() {
        for wrong in ["", "a\0b", "a\nb", "a\u{1b}[2J", "a\u{9b}", "a/b", " a", "a ", &"x".repeat(254)] {
            let invalid = checked_name("name", wrong, MAX_NAME_BYTES).unwrap_err();
            assert_eq!(invalid.violations()[0].field, "name", "{wrong:?}");
            assert!(!invalid.to_string().contains(char::is_control), "{wrong:?}");
        }
        for right in ["conv1", "block 0", "transformer.h.0", "NVIDIA H100 80GB HBM3", "层"] {
            assert_eq!(checked_name("name", right, MAX_NAME_BYTES), Ok(()));
        }
        let long = PlanName::parse("plan", &"\0".repeat(1 << 20)).unwrap_err();
        assert!(long.to_string().len() < 200, "an error is never as long as what caused it");
    }

    #[test]
    fn ids_are_dns_labels() {
        for bad in ["", "-a", "a-", "A", "a_b", "a/b", &"x".repeat(64)] {
            assert!(!is_valid_id(bad), "{bad:?}");
        }
        assert!(is_valid_id(&"x".repeat(63)));
    }
}
