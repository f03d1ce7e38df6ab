//! `loadmaster-lint`: checks the repository's prose and its API. Exits with 1 after a finding.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::{Command, ExitCode};

use anyhow::{Context, Result, bail};

use exceptions::Difference;

mod api;
mod exceptions;
mod passages;
mod prose;
mod rust;
mod sentences;

const USAGE: &str = "\
usage: loadmaster-lint [prose|api] [--all] [--write]
       loadmaster-lint draw SEED

Without a subcommand both checks are made.
  prose    lengths and words of Markdown, proto comments, Rust documentation, help texts and messages
  api      Google's AIP rules, of the compiled descriptor set
  draw     print 30 messages of at least 8 words at random, for a reader to judge. SEED: a hash, such as the tree's
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
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if let [draw, seed] = arguments.as_slice()
        && draw == "draw"
    {
        enter_repository()?;
        return print_drawn(seed);
    }
    if let Some(wrong) =
        arguments.iter().find(|one| !["prose", "api", "--all", "--write"].contains(&one.as_str()))
    {
        bail!("{wrong:?} is not an argument.\n{USAGE}");
    }
    let has = |argument: &str| arguments.iter().any(|one| one == argument);
    enter_repository()?;
    let mut passed = true;
    if has("prose") || !has("api") {
        passed &= check_prose(has("--all"), has("--write"))?;
    }
    if has("api") || !has("prose") {
        passed &= check_api()?;
    }
    Ok(passed)
}

/// Makes the repository's folder the current one, where git knows it.
fn enter_repository() -> Result<()> {
    let git = Command::new("git").args(["rev-parse", "--show-toplevel"]).output();
    if let Some(git) = git.ok().filter(|git| git.status.success()) {
        std::env::set_current_dir(String::from_utf8(git.stdout)?.trim_end())?;
    }
    Ok(())
}

/// Prints messages in an order that the seed decides: by their hashes with it.
fn print_drawn(seed: &str) -> Result<bool> {
    let mut messages: Vec<_> = passages::tracked()?
        .into_iter()
        .filter(|one| one.kind == passages::Kind::Message && sentences::words(&one.paragraph.text) >= 8)
        .collect();
    messages.sort_by_cached_key(|one| {
        let key = format!("{seed} {} {}", one.path, one.paragraph.text);
        key.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
        })
    });
    for (number, one) in (1..=30).zip(&messages) {
        // As the source has it: the check leaves code out of sentences.
        let texts = rust::prose(&std::fs::read_to_string(&one.path)?, false).texts;
        let literal =
            texts.iter().find(|(_, line, _)| *line == one.paragraph.line).map(|(.., text)| text.as_str());
        println!(
            "{number:>2}  {}:{}  {}",
            one.path,
            one.paragraph.line,
            literal.unwrap_or(&one.paragraph.text)
        );
    }
    Ok(true)
}

fn check_prose(all: bool, write: bool) -> Result<bool> {
    if !Path::new(".git").exists() {
        println!("SKIPPED: prose: this is no git checkout");
        return Ok(true);
    }
    let report = prose::check(&passages::tracked()?);
    let found = report.counts();
    let mut allowed = exceptions::counts(&read(PROSE_LIST)?).context(PROSE_LIST)?;
    if write {
        let listed = Path::new(PROSE_LIST).exists();
        allowed = if listed { exceptions::lowered(&found, &allowed) } else { found.clone() };
        std::fs::write(PROSE_LIST, exceptions::list(&allowed)).context(PROSE_LIST)?;
    }
    let differences = exceptions::compare(&found, &allowed);
    let is_more =
        |key: &(String, String)| differences.iter().any(|row| row.key == *key && row.found > row.allowed);
    report.findings.iter().filter(|one| all || is_more(&one.key)).for_each(|one| println!("{one}"));
    print!("{}", report.table());
    for Difference { key: (path, rule), found, allowed } in &differences {
        let shrink = format!(". Shrink {PROSE_LIST} (--write): {path} {rule} {found}");
        let remedy = if found < allowed { &shrink } else { "" };
        println!("{path}: {rule}: {found} findings, {allowed} are allowed{remedy}");
    }
    Ok(differences.is_empty())
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
    if Path::new(path).exists() { Ok(std::fs::read_to_string(path)?) } else { Ok(String::new()) }
}
