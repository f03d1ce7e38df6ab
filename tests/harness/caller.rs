//! The command line, with errors instead of panics, for programs that go on where a command was refused.

use anyhow::{Context, Result, bail};
use serde_json::Value;

use crate::cli::{Output, command};
use crate::interruption::is_interrupted;
use crate::planner::Planner;

/// Calls one planner.
#[derive(Debug)]
pub struct Caller<'a> {
    planner: &'a Planner,
}

/// A command that did not succeed.
#[derive(Debug)]
pub struct Refused {
    /// Exit code.
    pub code: i32,
    /// What it said.
    pub message: String,
}

/// Exit code of "no feasible plan".
pub const NO_PLAN: i32 = 5;

impl<'a> Caller<'a> {
    /// A caller of this planner.
    pub fn new(planner: &'a Planner) -> Self {
        Self { planner }
    }

    /// What a command prints as JSON, or why it was refused.
    ///
    /// # Errors
    /// After an interruption, or when what it prints is no JSON.
    pub fn ask(&self, arguments: &[&str]) -> Result<Result<Value, Refused>> {
        let mut all = arguments.to_vec();
        all.extend(["-o", "json"]);
        let output = Output::unless(&mut command(self.planner, &all), is_interrupted)?;
        let Some(output) = output.filter(|_| !is_interrupted()) else { bail!("interrupted") };
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
    pub fn get(&self, arguments: &[&str]) -> Result<Value> {
        match self.ask(arguments)? {
            Ok(answer) => Ok(answer),
            Err(refused) => bail!("loadmaster {}: {}", arguments.join(" "), refused.message),
        }
    }
}

impl Refused {
    /// The reason, without progress that was shown before it and what names the error for programs.
    pub fn reason(&self) -> &str {
        let lines = self.message.lines();
        let told = lines.filter_map(|line| line.strip_prefix("error: ")).next();
        told.or_else(|| self.message.lines().next()).unwrap_or_default()
    }
}
