//! What is wrong with a message, field by field.

use std::fmt;

/// One field and what is wrong with it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Violation {
    /// Path from the request, for example `training.micro_batch_size`.
    pub field: String,
    /// What is wrong and what would be right.
    pub description: String,
}

/// A message that is not valid: at least one [`Violation`].
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub struct Invalid {
    violations: Vec<Violation>,
}

impl Invalid {
    /// A single violation.
    pub fn field(field: impl Into<String>, description: impl Into<String>) -> Self {
        Self { violations: vec![Violation { field: field.into(), description: description.into() }] }
    }

    /// A field that another option excludes. Only the table of [`crate::plan::compatibility`] makes them.
    pub(crate) fn contradiction(field: &str, description: String) -> Self {
        Self::field(field, description)
    }

    /// The same violations, with their paths below `parent`.
    #[must_use]
    pub fn under(mut self, parent: &str) -> Self {
        for violation in &mut self.violations {
            violation.field = match violation.field.as_str() {
                "" => parent.to_owned(),
                field => format!("{parent}.{field}"),
            };
        }
        self
    }

    /// The same violations, each told anew.
    #[must_use]
    pub fn map(self, told: impl FnMut(Violation) -> Violation) -> Self {
        Self { violations: self.violations.into_iter().map(told).collect() }
    }

    /// The same violations in the entry `index` of a list: paths like `[3].first_layer`, for [`Invalid::of_field`].
    #[must_use]
    pub(crate) fn of_entry(self, index: usize) -> Self {
        self.under(&format!("[{index}]"))
    }

    /// The same violations in the field `name` of a message, whose lists may have entries: `stages[3].first_layer`.
    #[must_use]
    pub(crate) fn of_field(self, name: &str) -> Self {
        let mut named = self.under(name);
        let (list, entry) = (format!("{name}.["), format!("{name}["));
        for violation in &mut named.violations {
            if let Some(rest) = violation.field.strip_prefix(&list) {
                violation.field = format!("{entry}{rest}");
            }
        }
        named
    }

    /// What is wrong, in the order in which it was found.
    pub fn violations(&self) -> &[Violation] {
        &self.violations
    }

    /// Adds the violations of `other`.
    pub fn merge(&mut self, other: Invalid) {
        self.violations.extend(other.violations);
    }
}

impl fmt::Display for Invalid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (position, violation) in self.violations.iter().enumerate() {
            if position > 0 {
                write!(f, "; ")?;
            }
            match violation.field.as_str() {
                "" => write!(f, "{}", violation.description)?,
                field => write!(f, "{field}: {}", violation.description)?,
            }
        }
        Ok(())
    }
}

/// Returns a violation of a field, with a description that is formatted like a text of `format!`.
macro_rules! invalid {
    ($field:expr, $($description:tt)+) => {
        $crate::error::Invalid::field($field, format!($($description)+))
    };
}

/// `Ok` when `value` lies in `range`, else a violation of `field` that states the range.
pub fn in_range<T>(field: &str, value: T, range: std::ops::RangeInclusive<T>) -> Result<T, Invalid>
where
    T: PartialOrd + fmt::Display,
{
    if range.contains(&value) {
        Ok(value)
    } else {
        // Names of fields in seconds end so, and a user who typed minutes should see which unit they became.
        let unit = if field.ends_with("seconds") { " s" } else { "" };
        Err(invalid!(field, "{value}{unit} is out of range. Use {} to {}{unit}", range.start(), range.end()))
    }
}

/// The value, or a violation of `field` that says it is required.
pub fn required<T>(field: &str, value: Option<T>) -> Result<T, Invalid> {
    value.ok_or_else(|| Invalid::field(field, "is required"))
}
