//! Slurm's variables in the environment of a task.

use std::collections::BTreeMap;
use std::str::FromStr;

use crate::failure::Failure;

/// Variables by their names.
#[derive(Debug, Clone, Default)]
pub(super) struct Variables(BTreeMap<String, String>);

impl Variables {
    /// Those of this process. What is no text is none of Slurm's.
    pub(super) fn of_this_process() -> Self {
        let text = |(name, value): (std::ffi::OsString, std::ffi::OsString)| {
            Some((name.into_string().ok()?, value.into_string().ok()?))
        };
        Self(std::env::vars_os().filter_map(text).collect())
    }

    /// A variable that says something.
    pub(super) fn get(&self, name: &str) -> Option<&str> {
        self.0.get(name).map(String::as_str).filter(|value| !value.is_empty())
    }

    /// A variable that every task of Slurm's has.
    ///
    /// # Errors
    /// This is no task of Slurm's.
    pub(super) fn needed(&self, name: &str) -> Result<&str, Failure> {
        self.get(name).ok_or_else(|| {
            Failure::Usage(format!(
                "{name} is not set. Run this command inside a Slurm job, for example in the script of `loadmaster \
                 slurm script`."
            ))
        })
    }

    /// A number that every task of Slurm's has.
    ///
    /// # Errors
    /// It is not there, or no number.
    pub(super) fn number<T: FromStr>(&self, name: &str) -> Result<T, Failure> {
        let text = self.needed(name)?;
        text.parse().map_err(|_| {
            anyhow::anyhow!("{name} is {text:?}, expected a number. Run this command inside a Slurm job.")
                .into()
        })
    }

    /// What stands between the commas; nothing where the variable is not there.
    pub(super) fn list(&self, name: &str) -> Vec<&str> {
        self.get(name).map_or_else(Vec::new, |text| text.split(',').map(str::trim).collect())
    }

    /// Components of this job, if it is a heterogeneous one.
    pub(super) fn components(&self) -> Option<u32> {
        self.number("SLURM_HET_SIZE").ok().filter(|components| *components > 1)
    }

    /// The job, or the first component of a heterogeneous one.
    ///
    /// # Errors
    /// There is no job.
    pub(super) fn job(&self) -> Result<u32, Failure> {
        let name = if self.get("SLURM_HET_JOB_ID").is_some() { "SLURM_HET_JOB_ID" } else { "SLURM_JOB_ID" };
        self.number(name)
    }
}

#[cfg(test)]
impl<const N: usize> From<[(&str, &str); N]> for Variables {
    fn from(of: [(&str, &str); N]) -> Self {
        Self(of.into_iter().map(|(name, value)| (name.to_owned(), value.to_owned())).collect())
    }
}
