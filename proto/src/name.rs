//! Resource names: `profiles/vgg11-3f2a`, `runs/0197…`.

use std::fmt;
use std::net::Ipv6Addr;

use serde::{Deserialize, Serialize};
use unicode_properties::{GeneralCategory, UnicodeGeneralCategory as _};

use crate::error::Invalid;

const MAX_ID: usize = 63;

/// Longest name of anything that people name (layers, models, nodes, kinds of devices), bytes.
pub const MAX_NAME_BYTES: usize = 253;
/// Longest name of a kind of device, bytes: every run has a copy.
pub const MAX_KIND_BYTES: usize = 128;

/// Returns whether a character is displayed as nothing, or changes how its neighbours are displayed: control (Cc), format (Cf),
/// line separator (Zl) and paragraph separator (Zp) of Unicode. Two names that differ only in these look alike.
pub fn is_invisible(c: char) -> bool {
    match c {
        ' '..='~' => false,
        c => matches!(
            c.general_category(),
            GeneralCategory::Control
                | GeneralCategory::Format
                | GeneralCategory::LineSeparator
                | GeneralCategory::ParagraphSeparator
        ),
    }
}

/// The refusal of a text with a character that [`is_invisible`].
pub(crate) const INVISIBLE: &str = "has control, format or line separator characters. Remove them";

/// The rule for names that people give, of layers, models, nodes and kinds of devices. 1 to `most` bytes without
/// invisible characters, which no terminal and no database should meet. No slashes, which part the names of resources and
/// stages.
///
/// # Errors
/// What is wrong with it. The violation's path is `field`.
pub fn checked_name(field: &str, name: &str, most: usize) -> Result<(), Invalid> {
    let refused = |why: String| Err(Invalid::field(field, why));
    match name.chars().find(|&c| is_invisible(c) || c == '/') {
        _ if name.is_empty() => refused("is empty".to_owned()),
        _ if name.len() > most => refused(format!("has {} bytes. Use 1 to {most} bytes", name.len())),
        _ if name.trim() != name => {
            refused(format!("{name:?} begins or ends with a space. Remove the space"))
        }
        Some('/') => refused(format!("{name:?} contains a slash. Remove it")),
        Some(_) => refused(format!("{name:?} has control, format or line separator characters. Remove them")),
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

/// Returns whether a text is a host name or an address: labels of ASCII letters, digits, `-` and `_` with single points between
/// them, none beginning with `-`, or an IPv6 address. Shells, `ssh` and files of frameworks take such a name for nothing else.
pub fn is_host(name: &str) -> bool {
    let is_within = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
    let is_label = |label: &str| !label.is_empty() && !label.starts_with('-') && label.bytes().all(is_within);
    name.len() <= MAX_NAME_BYTES && (name.split('.').all(is_label) || name.parse::<Ipv6Addr>().is_ok())
}

/// The rule for names of nodes, see [`is_host`].
///
/// # Errors
/// The name is no host name; the violation's path is `field`.
pub fn checked_host(field: &str, name: &str) -> Result<(), Invalid> {
    if is_host(name) {
        return Ok(());
    }
    let why = format!(
        "{} is not a host name or an IP address. Use 1 to {MAX_NAME_BYTES} ASCII letters, digits, '-', '_' and '.', not \
         beginning with '-'",
        quoted(name)
    );
    Err(Invalid::field(field, why))
}

/// Returns whether a text is the UUID of a device as a driver reports it: `GPU-6f0c…`, `MIG-GPU-6f0c…/1/0`. It consists of ASCII
/// letters, digits, `-`, `_`, `.`, `:` and `/` and begins with a letter or digit. Exports write it into scripts.
pub fn is_device_uuid(uuid: &str) -> bool {
    let is_within = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.:/".contains(&byte);
    uuid.starts_with(|first: char| first.is_ascii_alphanumeric()) && uuid.bytes().all(is_within)
}

/// The rule for UUIDs of devices, see [`is_device_uuid`]; a device may have none.
///
/// # Errors
/// The text is no UUID; the violation's path is `field`.
pub(crate) fn checked_device_uuid(field: &str, uuid: &str) -> Result<(), Invalid> {
    if uuid.is_empty() || is_device_uuid(uuid) {
        return Ok(());
    }
    let why = format!(
        "{} is not the UUID of a device. Use the UUID that `nvidia-smi -L` prints. It has only ASCII letters, digits and '-_.:/'",
        quoted(uuid)
    );
    Err(Invalid::field(field, why))
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
                        "{} is not a valid id. Use 1 to 63 characters of a-z, 0-9 and '-', without '-' at the ends", quoted(&id)
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
                    .ok_or_else(|| invalid!(field, "{} is not of the form {}/ID", quoted(name), $collection))
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
resource_name!(/** Name of a placement of a plan to devices. */ PlacementName, "placements");
resource_name!(/** Name of a run. */ RunName, "runs");
resource_name!(/** Name of a worker. */ WorkerName, "workers");
resource_name!(/** Name of an operation. */ OperationName, "operations");

/// Plan and id of a report: `plans/{plan}/reports/{report}`.
///
/// # Errors
/// When it has another form; the violation's path is `field`.
pub fn parse_report(field: &str, name: &str) -> Result<(PlanName, String), Invalid> {
    let (plan, id) = parse_below(field, name, PlanName::COLLECTION, "reports")?;
    Ok((PlanName::parse(field, &plan)?, id))
}

/// Run and id of a measurement: `runs/{run}/measurements/{measurement}`. The id consists of the index of its stage and of its
/// device within the stage, with a `-` between them.
///
/// # Errors
/// When it has another form; the violation's path is `field`.
pub fn parse_measurement(field: &str, name: &str) -> Result<(RunName, u32, u32), Invalid> {
    let (run, id) = parse_below(field, name, RunName::COLLECTION, "measurements")?;
    let number = |text: &str| text.parse().ok().filter(|number: &u32| number.to_string() == text);
    let parts = id.split_once('-').and_then(|(stage, shard)| Some((number(stage)?, number(shard)?)));
    let (stage, shard) = parts.ok_or_else(|| {
        invalid!(
            field,
            "{} does not end with the index of a stage and of a device in the stage. Use an ending such as 0-0",
            quoted(name)
        )
    })?;
    Ok((RunName::parse(field, &run)?, stage, shard))
}

/// The parent's name and the id of a resource below another one.
fn parse_below(field: &str, name: &str, above: &str, below: &str) -> Result<(String, String), Invalid> {
    let parts = name.split_once(&format!("/{below}/")).filter(|(parent, id)| {
        let of_parent = parent.strip_prefix(above).and_then(|rest| rest.strip_prefix('/'));
        of_parent.is_some_and(is_valid_id) && is_valid_id(id)
    });
    let (parent, id) =
        parts.ok_or_else(|| invalid!(field, "{} is not of the form {above}/ID/{below}/ID", quoted(name)))?;
    Ok((parent.to_owned(), id.to_owned()))
}

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
                    "{} is not the name of a custom profiler. Use 1 to 63 characters of a-z, 0-9 and '-'",
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

/// Names that programs would take for something else than a host.
#[cfg(test)]
pub(crate) const HOSTILE_HOSTS: [&str; 26] = [
    "",
    "-oProxyCommand=touch${IFS}x",
    "-x",
    "a.-x",
    "$(touch x)",
    "$HOME",
    "`touch x`",
    "a;b",
    "a|b",
    "a&b",
    "a>b",
    "..",
    "a..b",
    ".a",
    "a.",
    "../a",
    "a*",
    "a b",
    "a\tb",
    "#a",
    "a@b",
    "a:b",
    "fd00::1%eth0",
    "a'b",
    "n\u{202e}a",
    "层",
];

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
    fn names_below_others_have_two_ids() {
        let (run, stage, shard) = parse_measurement("name", "runs/7f3c/measurements/2-10").unwrap();
        assert_eq!((run.to_string().as_str(), stage, shard), ("runs/7f3c", 2, 10));
        let (plan, id) = parse_report("name", "plans/a/reports/b-1").unwrap();
        assert_eq!((plan.id(), id.as_str()), ("a", "b-1"));
        for wrong in [
            "runs/a",
            "runs/a/measurements/0",
            "runs/a/measurements/0-01",
            "runs/a/measurements/-1-0",
            "plans/a/measurements/0-0",
        ] {
            assert_eq!(
                parse_measurement("name", wrong).unwrap_err().violations()[0].field,
                "name",
                "{wrong}"
            );
        }
        for wrong in ["plans/a", "plans/A/reports/b", "plans/a/reports/b/c", "runs/a/reports/b"] {
            assert!(parse_report("name", wrong).is_err(), "{wrong}");
        }
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
        let hidden =
            ["a\u{202e}b", "a\u{200b}", "a\u{2028}b", "a\u{2029}b", "\u{feff}a", "a\u{ad}b", "a\u{e0041}"];
        let others = ["", "a\0b", "a\nb", "a\u{1b}[2J", "a\u{9b}", "a/b", " a", "a ", &"x".repeat(254)];
        for wrong in others.into_iter().chain(hidden) {
            let invalid = checked_name("name", wrong, MAX_NAME_BYTES).unwrap_err();
            assert_eq!(invalid.violations()[0].field, "name", "{wrong:?}");
            assert!(!invalid.to_string().contains(is_invisible), "{wrong:?}");
        }
        for right in ["conv1", "block 0", "transformer.h.0", "NVIDIA H100 80GB HBM3", "层"] {
            assert_eq!(checked_name("name", right, MAX_NAME_BYTES), Ok(()));
        }
        let long = PlanName::parse("plan", &"\0".repeat(1 << 20)).unwrap_err();
        assert!(long.to_string().len() < 200, "an error is never as long as what caused it");
    }

    /// What is invisible follows another table of Unicode's categories than the one that names are checked by.
    #[test]
    fn control_format_and_separator_characters_are_invisible() {
        let parsed = regex_syntax::parse(r"[\p{Cc}\p{Cf}\p{Zl}\p{Zp}]").unwrap();
        let regex_syntax::hir::HirKind::Class(regex_syntax::hir::Class::Unicode(class)) = parsed.kind()
        else {
            panic!("a class is expected")
        };
        let mut listed = 0;
        for range in class.iter() {
            for c in range.start()..=range.end() {
                assert!(is_invisible(c), "{c:?}");
                listed += 1;
            }
        }
        let all = ('\0'..=char::MAX).filter(|&c| is_invisible(c)).count();
        assert_eq!(all, listed);
    }

    /// A shell, `ssh`, a hostfile and a path take a name of a host for nothing else.
    #[test]
    fn hosts_are_names_and_addresses_alone() {
        for right in [
            "gpu001",
            "n-1.rack_2.example.com",
            "10.0.0.7",
            "fd00::1",
            "::1",
            "_gateway",
            "0",
            &"x".repeat(253),
        ] {
            assert_eq!(checked_host("host", right), Ok(()), "{right:?}");
        }
        for wrong in HOSTILE_HOSTS {
            let invalid = checked_host("nodes[0].name", wrong).unwrap_err();
            assert_eq!(invalid.violations()[0].field, "nodes[0].name", "{wrong:?}");
            assert!(!invalid.to_string().contains(is_invisible), "{wrong:?}");
        }
        assert!(!is_host(&"x".repeat(254)));
    }

    #[test]
    fn uuids_are_as_drivers_write_them() {
        for right in ["", "GPU-6f0c1f5e-11aa", "MIG-GPU-6f0c1f5e/1/0", "0x740f", "0000:3b:00.0"] {
            assert_eq!(checked_device_uuid("uuid", right), Ok(()), "{right:?}");
        }
        for wrong in ["-x", "$(touch x)", "`x`", "a b", "a,b", "a\"b", "a;b", "}", "GPU\u{200b}", "é"] {
            assert!(checked_device_uuid("uuid", wrong).is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn ids_are_dns_labels() {
        for bad in ["", "-a", "a-", "A", "a_b", "a/b", &"x".repeat(64)] {
            assert!(!is_valid_id(bad), "{bad:?}");
        }
        assert!(is_valid_id(&"x".repeat(63)));
    }
}
