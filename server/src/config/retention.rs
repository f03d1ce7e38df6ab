//! The schedule by which history is pruned.

use std::time::Duration;

use anyhow::Context;
use clap::Args;

use crate::retention::{Rule, Schedule};

/// Settings of retention: off unless an age is given.
#[derive(Debug, Clone, Args)]
pub struct RetentionArgs {
    /// Delete what is older and what nothing that stays refers to, as `loadmaster history prune` does, at least a day: 90d.
    /// Planners that share a database take turns. Default: nothing is deleted.
    #[arg(long, env = "LOADMASTER_PRUNE_OLDER_THAN", value_name = "DURATION", value_parser = loadmaster_cli::age)]
    pub prune_older_than: Option<Duration>,

    /// Only what fits this filter, of the lists that know its fields: 'NOT labels:keep'.
    #[arg(
        long,
        env = "LOADMASTER_PRUNE_FILTER",
        value_name = "FILTER",
        requires = "prune_older_than",
        default_value = "",
        hide_default_value = true
    )]
    pub prune_filter: String,

    /// Time from one pruning to the next.
    #[arg(long, env = "LOADMASTER_PRUNE_EVERY", value_name = "DURATION", requires = "prune_older_than",
          default_value = "1d", value_parser = loadmaster_cli::age)]
    pub prune_every: Duration,
}

impl RetentionArgs {
    /// What is done from time to time, if anything.
    ///
    /// # Errors
    /// An age below a day, or a filter that no list knows.
    pub fn schedule(&self) -> anyhow::Result<Option<Schedule>> {
        let Some(age) = self.prune_older_than else { return Ok(None) };
        let rule = Rule::new(age, &self.prune_filter, &[])
            .context("--prune-older-than and --prune-filter do not say what may be deleted")?;
        Ok(Some(Schedule { rule, period: self.prune_every }))
    }
}
