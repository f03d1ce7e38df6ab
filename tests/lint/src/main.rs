//! `loadmaster-lint`: checks the repository's prose and its API. Exits with 1 after a finding.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::{Command, ExitCode};

use anyhow::{Context, Result, bail};

mod api;
mod exceptions;
mod passages;
mod prose;
mod rust;
mod sentences;

const USAGE: &str = "\
usage: loadmaster-lint [prose|api] [--all] [--write]

Without a subcommand both checks are made.
  prose    lengths and words of Markdown, proto comments, Rust documentation, help texts and messages
  api      Google's AIP rules, of the compiled descriptor set
  --all    also print the findings of prose that tests/lint/exceptions.txt allows
  --write  lower the counts of tests/lint/exceptions.txt to the findings; write the list if the file is missing";

const PROSE_LIST: &str = "tests/lint/exceptions.txt";
const API_LIST: &str = "tests/lint/api-exceptions.txt";

fn main() -> ExitCode {
    match run() {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::from(2)
        }
    }
}

/// Returns whether all checks passed.
fn run() -> Result<bool> {
    let (mut prose, mut api, mut all, mut write) = (false, false, false, false);
    for argument in std::env::args().skip(1) {
        match argument.as_str() {
            "prose" => prose = true,
            "api" => api = true,
            "--all" => all = true,
            "--write" => write = true,
            "--help" | "-h" => {
                println!("{USAGE}");
                return Ok(true);
            }
            _ => bail!("{argument:?} is not an argument.\n{USAGE}"),
        }
    }
    let git = Command::new("git")
        .args(["rev-parse", "--show-toplevel"])
        .output()
        .context("git cannot be started")?;
    if git.status.success() {
        std::env::set_current_dir(String::from_utf8(git.stdout)?.trim_end())?;
    }
    let mut passed = true;
    if prose || !api {
        passed &= check_prose(all, write)?;
    }
    if api || !prose {
        passed &= check_api()?;
    }
    Ok(passed)
}

fn check_prose(all: bool, write: bool) -> Result<bool> {
    if !Path::new(".git").exists() {
        println!("SKIPPED: prose: this is no git checkout");
        return Ok(true);
    }
    let report = prose::check(&passages::tracked()?);
    let found = report.counts();
    let listed = Path::new(PROSE_LIST).exists();
    let allowed = exceptions::counts(&read(PROSE_LIST)?).context(PROSE_LIST)?;
    let difference = exceptions::compare(&found, &allowed);
    let written = if write { exceptions::lowered(&found, listed.then_some(&allowed)) } else { None };
    let is_new = |path: &str, rule: &str| difference.more.iter().any(|(p, r, ..)| p == path && r == rule);
    if written.is_none() || all {
        report
            .findings
            .iter()
            .filter(|one| all || is_new(&one.path, one.rule))
            .for_each(|one| println!("{one}"));
    }
    print!("{}", report.table());
    if let Some(list) = written {
        std::fs::write(PROSE_LIST, list).context(PROSE_LIST)?;
        println!("{PROSE_LIST}: {} findings are allowed", report.findings.len());
        return Ok(true);
    }
    for (path, rule, found, allowed) in &difference.more {
        println!("{path}: {rule}: {found} findings, {allowed} are allowed");
    }
    for (path, rule, found, allowed) in &difference.fewer {
        println!(
            "{path}: {rule}: {found} findings, {allowed} are allowed. Shrink {PROSE_LIST} (--write): {path} {rule} {found}"
        );
    }
    if write {
        println!("{PROSE_LIST} is not written: its counts only go down");
    }
    Ok(difference == exceptions::Difference::default())
}

fn check_api() -> Result<bool> {
    let mut findings = api::check(loadmaster_proto::wire::DESCRIPTORS)?;
    let excepted = exceptions::reasons(&read(API_LIST)?).context(API_LIST)?;
    let mut unused = excepted.clone();
    findings.retain(|finding| {
        let key = (finding.rule(), finding.element.clone());
        unused.remove(&key);
        !excepted.contains(&key)
    });
    let mut rules: BTreeMap<String, usize> = BTreeMap::new();
    for finding in &findings {
        println!("{finding}");
        *rules.entry(finding.rule()).or_default() += 1;
    }
    for (rule, element) in &unused {
        println!("{API_LIST}: no finding needs this exception, delete it: {rule} {element}");
    }
    println!("{:<10}{:>9}", "rule", "findings");
    rules.iter().for_each(|(rule, count)| println!("{rule:<10}{count:>9}"));
    println!("{:<10}{:>9}", "all", findings.len());
    Ok(findings.is_empty() && unused.is_empty())
}

/// Returns the text of a list, which is empty where there is none.
fn read(path: &str) -> Result<String> {
    if Path::new(path).exists() {
        std::fs::read_to_string(path).context(path.to_owned())
    } else {
        Ok(String::new())
    }
}
