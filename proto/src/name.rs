//! Resource names: `profiles/vgg11-3f2a`, `runs/0197…`.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::error::Invalid;

const MAX_ID: usize = 63;

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
                        "{id:?} is not an id: write 1 to 63 of a-z, 0-9 and '-', not '-' at the ends"
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
                        "is {name:?}, must be of the form {}/ID", $collection
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
                format!("is {name:?}, must be the name of a worker's command: 1 to 63 of a-z, 0-9 and '-'"),
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

    #[test]
    fn ids_are_dns_labels() {
        for bad in ["", "-a", "a-", "A", "a_b", "a/b", &"x".repeat(64)] {
            assert!(!is_valid_id(bad), "{bad:?}");
        }
        assert!(is_valid_id(&"x".repeat(63)));
    }
}
