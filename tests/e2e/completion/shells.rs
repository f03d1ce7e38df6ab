//! Real shells with the scripts of the packages, each where a package has it.

use std::path::Path;
use std::process::Command;

use loadmaster_tests::{Planner, binary, json};
use tempfile::TempDir;

use super::terminal::Terminal;
use super::{id, name};

fn has(program: &str) -> bool {
    let found = Command::new(program).arg("--version").output().is_ok_and(|output| output.status.success());
    if !found {
        eprintln!("SKIPPED: completion::shells: there is no {program}: deploy/setup/packages.sh shells");
    }
    found
}

/// Writes the script of a shell to where the shell looks for it.
fn write_script(shell: &str, to: &Path) {
    let made = Command::new(binary("loadmaster")).args(["completion", shell]).output().expect("it starts");
    assert!(made.status.success() && made.stderr.is_empty(), "{made:?}");
    std::fs::create_dir_all(to.parent().expect("it is in a folder")).expect("folders can be made");
    std::fs::write(to, made.stdout).expect("files can be written");
}

/// A planner with a plan, and its id.
fn scene() -> (Planner, String) {
    let planner = Planner::start();
    let table = concat!(env!("CARGO_MANIFEST_DIR"), "/../deploy/profile/table.json");
    json(&planner, &["profile", "import", table, "--id", "small"]);
    let plan = json(&planner, &["plan", "recommend", "--profile", "small", "--devices", "2x80GiB"]);
    let plan = id(&name(&plan)).to_owned();
    (planner, plan)
}

/// What is typed in every shell: verbs, an option's value, a name; and the completed command works.
fn completes(terminal: &mut Terminal, plan: &str) {
    let clear = "\u{15}"; // Ctrl-U: an empty line
    for (typed, wanted) in [
        ("loadmaster plan rec\t", "plan recommend".to_owned()),
        ("loadmaster plan list --output js\t", "--output json".to_owned()),
        ("loadmaster plan list --output=js\t", "--output=json".to_owned()),
        ("loadmaster plan export --framework=deeps\t", "--framework=deepspeed@0.19".to_owned()),
        (&format!("loadmaster plan show {}\t", &plan[..6]), format!("plan show {plan}")),
        (&format!("loadmaster plan show plans/{}\t", &plan[..6]), format!("plan show plans/{plan}")),
    ] {
        let before = terminal.screen().len();
        terminal.types(typed);
        terminal.shows(&wanted, before, "\t");
        if !wanted.contains(plan) {
            terminal.types(clear);
        }
        if wanted.ends_with(plan) {
            // What was completed is a command that works.
            terminal.types(" --output name && echo ri''ght\r");
            terminal.shows("right", before, "");
        }
    }
}

/// Where no planner is nothing is shown but what was typed.
fn is_silent(terminal: &mut Terminal) {
    let before = terminal.screen().len();
    terminal.types("loadmaster plan show 7f\t\t\t");
    terminal.types("3c-end");
    terminal.shows("3c-end", before, "");
    let new = terminal.screen()[before..].to_lowercase();
    for word in ["error", "panic", "refused", "not found", "timed out"] {
        assert!(!new.contains(word), "{new}");
    }
}

const NOBODY: &str = "http://127.0.0.1:1";

/// A shell that loads the script from `path` of its home completes where a planner is, and stays silent where none is.
fn shell_completes(shell: &str, start: &str, path: &str, loads: &str) {
    if !has(shell) {
        return;
    }
    let (planner, plan) = scene();
    let home = TempDir::new().expect("a folder can be made");
    write_script(shell, &home.path().join(path));
    let mut terminals = [planner.address(), NOBODY].map(|address| {
        let mut terminal = Terminal::start(start, home.path(), address);
        terminal.types(&format!("{loads}echo rea''dy\r"));
        terminal.shows("ready", 0, "");
        terminal
    });
    completes(&mut terminals[0], &plan);
    is_silent(&mut terminals[1]);
}

#[test]
fn bash_completes() {
    shell_completes("bash", "bash --noprofile --norc -i", "loadmaster", "source ./loadmaster; ");
}

#[test]
fn zsh_completes() {
    let loads = "fpath=(~/functions $fpath); autoload -U compinit; compinit -u -D; ";
    shell_completes("zsh", "zsh -f -i", "functions/_loadmaster", loads);
}

#[test]
fn fish_completes() {
    shell_completes("fish", "fish -i", ".config/fish/completions/loadmaster.fish", "");
}
