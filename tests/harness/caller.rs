//! The command line, with errors instead of panics.

use std::sync::atomic::Ordering;

use anyhow::{Context, Result, bail};
use loadmaster_tests::{Planner, cli};
use serde_json::Value;

use crate::INTERRUPTED;

/// Calls one planner.
pub(crate) struct Caller<'a> {
    planner: &'a Planner,
}

/// A command that did not succeed.
#[derive(Debug)]
pub(crate) struct Refused {
    /// Exit code.
    pub(crate) code: i32,
    /// What it said.
    pub(crate) message: String,
}

/// Exit code of "no feasible plan".
pub(crate) const NO_PLAN: i32 = 5;

impl<'a> Caller<'a> {
    pub(crate) fn new(planner: &'a Planner) -> Self {
        Self { planner }
    }

    /// What a command prints as JSON, or why it was refused.
    ///
    /// # Errors
    /// After an interruption, or when what it prints is no JSON.
    pub(crate) fn ask(&self, arguments: &[&str]) -> Result<Result<Value, Refused>> {
        let mut all = arguments.to_vec();
        all.extend(["-o", "json"]);
        let output = cli(self.planner, &all);
        if INTERRUPTED.load(Ordering::Relaxed) {
            bail!("interrupted");
        }
        if output.code != 0 {
            let message = output.stderr.trim().to_owned();
            return Ok(Err(Refused { code: output.code, message }));
        }
        let answer = serde_json::from_str(&output.stdout);
        Ok(Ok(answer.with_context(|| format!("{all:?} printed {:?}", output.stdout))?))
    }

    /// What a command prints that has to succeed.
    ///
    /// # Errors
    /// Also when it does not.
    pub(crate) fn get(&self, arguments: &[&str]) -> Result<Value> {
        match self.ask(arguments)? {
            Ok(answer) => Ok(answer),
            Err(refused) => bail!("loadmaster {}: {}", arguments.join(" "), refused.message),
        }
    }
}
