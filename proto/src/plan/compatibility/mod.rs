//! Options of requests that contradict each other, in one table: checks of requests and helps of commands are made from it.
//!
//! Code that reads a request adds its [`Setting`]s, with the words of the user ([`Settings`]). A [`Contradiction`] lists options that do
//! not go with another one. [`Settings::check`] refuses the first pair of them, in the order of [`CONTRADICTIONS`].

mod table;

use std::fmt::Display;

use crate::error::Invalid;
pub use table::{CONTRADICTIONS, Contradiction, Setting};

/// What a request says, as far as rows of the table are about it.
///
/// ```
/// use loadmaster_proto::plan::compatibility::{Setting, Settings};
///
/// let asked = Settings::default().when(true, Setting::VirtualStages).when(true, Setting::Chunks);
/// let refused = asked.check().unwrap_err();
/// assert_eq!(refused.violations()[0].field, "problem.virtual_stage_count");
/// assert!(refused.to_string().ends_with("Remove this field, or `memory.mode`"));
/// ```
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Settings {
    made: Vec<SettingValue>,
}

/// A setting of a request, with its value in words.
#[derive(Debug, Clone, PartialEq, Eq)]
struct SettingValue {
    setting: Setting,
    /// Where it is not the usual one.
    field: Option<String>,
    says: String,
    can: String,
}

impl Settings {
    /// Adds a setting where the request makes it.
    #[must_use]
    pub fn when(self, is_made: bool, setting: Setting) -> Self {
        if is_made { self.says(setting, "") } else { self }
    }

    /// Adds a setting with what the request says.
    #[must_use]
    pub fn says(self, setting: Setting, says: impl Display) -> Self {
        self.says_instead(setting, says, "")
    }

    /// Adds a setting with what the request says, where it says something.
    #[must_use]
    pub fn says_some(self, setting: Setting, says: Option<impl Display>) -> Self {
        match says {
            Some(says) => self.says(setting, says),
            None => self,
        }
    }

    /// Adds a setting with what the request says, and what would be right instead.
    #[must_use]
    pub fn says_instead(mut self, setting: Setting, says: impl Display, can: impl Display) -> Self {
        let (says, can) = (says.to_string(), can.to_string());
        self.made.push(SettingValue { setting, field: None, says, can });
        self
    }

    /// Names the field of a setting, if it was added, where it is not the usual one.
    #[must_use]
    pub fn in_field(mut self, setting: Setting, field: impl Into<String>) -> Self {
        if let Some(value) = self.made.iter_mut().find(|value| value.setting == setting) {
            value.field = Some(field.into());
        }
        self
    }

    /// Checks that no two settings contradict each other.
    ///
    /// # Errors
    /// Names the field of an option that another one excludes: the first by the order of [`CONTRADICTIONS`].
    pub fn check(&self) -> Result<(), Invalid> {
        let made = |setting: Setting| self.made.iter().find(|made| made.setting == setting);
        for row in CONTRADICTIONS {
            let Some(with) = made(row.with) else { continue };
            if let Some(option) = row.options.iter().find_map(|&option| made(option)) {
                let field = option.field.as_deref().unwrap_or_else(|| option.setting.field());
                return Err(Invalid::contradiction(field, row.text(option, with)));
            }
        }
        Ok(())
    }
}

impl Contradiction {
    /// Returns the refusal in words: the reason, and what to do.
    fn text(&self, option: &SettingValue, with: &SettingValue) -> String {
        let can = if option.can.is_empty() { &with.can } else { &option.can };
        let text = format!("{}. {}", self.why, self.remedy);
        // Values may have braces of their own, so that each place is filled once.
        let mut told = String::with_capacity(text.len());
        let mut rest = text.as_str();
        while let Some((before, after)) = rest.split_once('{') {
            told.push_str(before);
            let (name, after) = after.split_once('}').unwrap_or((after, ""));
            told.push_str(match name {
                "option" => &option.says,
                "with" => &with.says,
                _ => can,
            });
            rest = after;
        }
        told + rest
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    /// Every setting is in a row, no pair is there twice, and each row says why and what to do.
    #[test]
    fn every_setting_has_a_row_and_every_pair_one() {
        let mut pairs = BTreeSet::new();
        for Contradiction { options, with, why, remedy } in CONTRADICTIONS {
            assert!(!why.is_empty() && !remedy.is_empty() && !options.is_empty());
            for option in *options {
                assert_ne!(option, with);
                assert!(
                    pairs.insert(format!("{option:?} {with:?}")),
                    "{option:?} × {with:?} is listed twice. List it once"
                );
                assert!(
                    !pairs.contains(&format!("{with:?} {option:?}")),
                    "{option:?} × {with:?} is listed twice. List it once"
                );
            }
        }
        for setting in Setting::ALL {
            let has = |row: &Contradiction| row.with == *setting || row.options.contains(setting);
            assert!(CONTRADICTIONS.iter().any(has), "{setting:?}");
        }
    }

    /// Of all pairs of settings those of the table are refused, by the field of the option, and no others.
    #[test]
    fn pairs_of_the_table_are_refused_and_no_others() {
        for (index, &one) in Setting::ALL.iter().enumerate() {
            for &other in &Setting::ALL[index + 1..] {
                let asked =
                    Settings::default().says_instead(one, "{one}", "").says_instead(other, "{other}", "");
                let refused = asked.check();
                let of = |a: Setting, b: Setting| {
                    CONTRADICTIONS.iter().any(|row| row.with == b && row.options.contains(&a))
                };
                match (of(one, other), of(other, one)) {
                    (false, false) => assert_eq!(refused, Ok(())),
                    (is_first, _) => {
                        let field = if is_first { one.field() } else { other.field() };
                        assert_eq!(refused.unwrap_err().violations()[0].field, field);
                    }
                }
            }
        }
    }

    /// An error message prints a user's words unchanged, whatever braces they contain.
    #[test]
    fn values_are_told_as_they_are() {
        let asked = Settings::default()
            .says_instead(Setting::ForeignWay, "{can}", "host")
            .in_field(Setting::ForeignWay, "memory.optimizations[1]")
            .says(Setting::Framework, "megatron");
        let told = asked.check().unwrap_err().to_string();
        let expected = "memory.optimizations[1]: {can} cannot be expressed in the exported files of megatron. Use host, or remove `problem.framework`";
        assert_eq!(told, expected);
    }
}
