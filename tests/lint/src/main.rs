//! `loadmaster-lint`: checks the repository's prose, links and API, and writes the source of the book. Exits with 1 after a
//! finding.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use anyhow::{Context, Result, bail};

use exceptions::Difference;
use passages::{Kind, Passage};

mod api;
mod book;
mod command_line;
mod exceptions;
mod links;
mod passages;
mod prose;
mod rust;
mod sentences;

const USAGE: &str = "\
usage: loadmaster-lint [prose|links|api] [--all] [--write]
       loadmaster-lint book FOLDER
       loadmaster-lint draw SEED [COUNT]

Without a subcommand the three checks are made.
  prose    lengths and words of Markdown, proto comments, Rust documentation, help texts and messages
  links    links and file names in all Markdown files, the guide's list of pages, the size of the README
  api      Google's AIP rules, of the compiled descriptor set
  book     write the guide and the generated reference into FOLDER, for mdBook; the programs stand beside this one
  draw     print 30 messages, or COUNT, at random, for a reader to judge: sentences of at least 8 words. SEED: a hash, such as
           the tree's
  --all    also print the findings of prose that tests/lint/exceptions.txt allows
  --write  lower the counts of tests/lint/exceptions.txt to the findings; write the list if the file is missing";

/// A sentence has one of these words.
const GRAMMAR: [&str; 14] =
    ["a", "an", "and", "are", "for", "has", "in", "is", "no", "not", "of", "or", "the", "to"];

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
    let git = Command::new("git").args(["rev-parse", "--show-toplevel"]).output();
    if let Some(git) = git.ok().filter(|git| git.status.success()) {
        std::env::set_current_dir(String::from_utf8(git.stdout)?.trim_end())?;
    }
    if let [command, folder] = &arguments[..]
        && command == "book"
    {
        return write_book(Path::new(folder));
    }
    if let [command, seed, count @ ..] = &arguments[..]
        && command == "draw"
    {
        let count = count.first().map_or(Ok(30), |count| count.parse()).context("COUNT")?;
        print_drawn(seed, count, &passages::read(&passages::tracked()?)?)?;
        return Ok(true);
    }
    let known = ["prose", "links", "api", "--all", "--write"];
    if let Some(wrong) = arguments.iter().find(|one| !known.contains(&one.as_str())) {
        bail!("{wrong:?} is not an argument.\n{USAGE}");
    }
    let has = |argument: &str| arguments.iter().any(|one| one == argument);
    let every = arguments.iter().all(|one| one.starts_with("--"));
    let mut passed = true;
    if every || has("prose") || has("links") {
        if Path::new(".git").exists() {
            let files = passages::tracked()?;
            passed &= !(every || has("prose")) || check_prose(&files, has("--all"), has("--write"))?;
            passed &=
                !(every || has("links")) || print(&links::check(Path::new("."), &markdown(&files, ""))?);
        } else {
            println!("SKIPPED: prose, links: this is no git checkout");
        }
    }
    if every || has("api") {
        passed &= check_api()?;
    }
    Ok(passed)
}

/// Markdown files below a folder.
fn markdown(files: &BTreeSet<String>, folder: &str) -> BTreeSet<String> {
    files.iter().filter(|path| path.starts_with(folder) && path.ends_with(".md")).cloned().collect()
}

/// Prints findings, and returns whether there are none.
fn print(findings: &[String]) -> bool {
    findings.iter().for_each(|finding| println!("{finding}"));
    findings.is_empty()
}

fn write_book(folder: &Path) -> Result<bool> {
    let programs =
        std::env::current_exe()?.parent().map(PathBuf::from).context("this program has no folder")?;
    let reference = [
        ("Command line", command_line::pages(&programs)?),
        ("API", api::pages::pages(loadmaster_proto::wire::DESCRIPTORS)?),
    ];
    let guide = markdown(&passages::tracked()?, links::GUIDE);
    Ok(print(&book::write(folder, &guide, &reference)?))
}

/// Prints messages in an order that the seed decides: by their hashes with it.
fn print_drawn(seed: &str, count: usize, all: &[Passage]) -> Result<()> {
    let is_drawn = |Passage { kind, paragraph, .. }: &&Passage| {
        // Lists of columns or of header values are no sentences.
        let has_grammar = paragraph.text.split(' ').any(|word| GRAMMAR.contains(&word));
        *kind == Kind::Message && has_grammar && sentences::words(&paragraph.text) >= 8
    };
    let mut messages: Vec<_> = all.iter().filter(is_drawn).collect();
    messages.sort_by_cached_key(|one| {
        let key = format!("{seed} {} {}", one.path, one.paragraph.text);
        key.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
        })
    });
    for (number, Passage { path, paragraph, .. }) in (1..=count).zip(messages) {
        // As the source has it: the check leaves code out of sentences.
        let texts = rust::prose(&std::fs::read_to_string(path)?, false).texts;
        let literals = texts.iter().filter(|(_, line, _)| *line == paragraph.line).map(|(.., text)| text);
        let text = literals.max_by_key(|text| text.len()).unwrap_or(&paragraph.text);
        println!("{number:>2}  {path}:{}  {text}", paragraph.line);
    }
    Ok(())
}

fn check_prose(files: &BTreeSet<String>, all: bool, write: bool) -> Result<bool> {
    let report = prose::check(&passages::read(files)?);
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
