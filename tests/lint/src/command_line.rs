//! Reference pages of the command line, from the programs' own `--help`: one page per noun.

use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, ensure};

use crate::api::pages::Page;

/// Returns the pages of the programs in `folder`.
pub(crate) fn pages(folder: &Path) -> Result<Vec<Page>> {
    let planner = Program { path: &folder.join("loadmaster"), name: "loadmaster" };
    let worker = Program { path: &folder.join("loadmaster-worker"), name: "loadmaster-worker" };
    let root = planner.help(&[])?;
    let mut first = page("loadmaster", &format!("```text\n{root}\n```\n"));
    let mut pages = Vec::new();
    for noun in verbs(&root) {
        let help = planner.help(&[noun])?;
        if verbs(&help).is_empty() {
            first.text += &section(&format!("loadmaster {noun}"), &help, &root);
            continue;
        }
        let mut page = page(&format!("loadmaster {noun}"), &format!("```text\n{}\n```\n", own(&help, &root)));
        for verb in verbs(&help) {
            page.text += &section(&format!("loadmaster {noun} {verb}"), &planner.help(&[noun, verb])?, &root);
        }
        pages.push(page);
    }
    pages.insert(0, first);
    let help = worker.help(&[])?;
    let mut last = page("loadmaster-worker", &format!("```text\n{help}\n```\n"));
    for verb in verbs(&help) {
        last.text += &section(&format!("loadmaster-worker {verb}"), &worker.help(&[verb])?, &help);
    }
    pages.push(last);
    Ok(pages)
}

fn page(title: &str, text: &str) -> Page {
    let file = format!("{}.md", title.rsplit(' ').next().unwrap_or(title));
    Page { file, title: title.to_owned(), text: format!("# {title}\n\n{text}") }
}

fn section(title: &str, help: &str, root: &str) -> String {
    format!("\n## {title}\n\n```text\n{}\n```\n", own(help, root))
}

struct Program<'a> {
    path: &'a Path,
    name: &'a str,
}

impl Program<'_> {
    fn help(&self, verbs: &[&str]) -> Result<String> {
        let mut command = Command::new(self.path);
        let done = command.args(verbs).arg("--help").env_clear().output();
        let done = done.with_context(|| format!("{} cannot be started", self.path.display()))?;
        ensure!(done.status.success(), "{} {} --help failed", self.name, verbs.join(" "));
        let text = String::from_utf8(done.stdout).context("a help text is not UTF-8")?;
        Ok(text.lines().map(str::trim_end).collect::<Vec<_>>().join("\n").trim().to_owned())
    }
}

/// Names below `Commands:`, without `help`.
fn verbs(help: &str) -> Vec<&str> {
    let lines = help.lines().skip_while(|line| *line != "Commands:").skip(1);
    let lines = lines.take_while(|line| !line.is_empty());
    let names = lines.filter_map(|line| {
        line.strip_prefix("  ")?.split_whitespace().next().filter(|_| !line.starts_with("   "))
    });
    names.filter(|name| *name != "help").collect()
}

/// The help of a verb without the sections that that of the program has, too.
fn own(help: &str, root: &str) -> String {
    let common: Vec<_> = sections(root);
    let kept: Vec<_> = sections(help).into_iter().filter(|section| !common.contains(section)).collect();
    kept.join("\n\n")
}

/// Pieces of a help text that begin with a line without indentation behind an empty one.
fn sections(help: &str) -> Vec<String> {
    let mut sections: Vec<String> = Vec::new();
    for block in help.split("\n\n") {
        match sections.last_mut() {
            Some(last) if block.starts_with(' ') => *last += &format!("\n\n{block}"),
            _ => sections.push(block.to_owned()),
        }
    }
    sections
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sections_of_the_program_are_left_out_of_its_verbs() {
        let root = "Plans.\n\nCommands:\n  plan  Plans\n        a lot\n  help  Helps\n\nClient:\n  --address <A>\n      Where\n\n  --quiet\n      Less";
        let verb = "Lists.\n\nOptions:\n  --all\n      All\n\n  --some\n      Some\n\nClient:\n  --address <A>\n      Where\n\n  --quiet\n      Less";
        assert_eq!(verbs(root), ["plan"]);
        assert_eq!(own(verb, root), "Lists.\n\nOptions:\n  --all\n      All\n\n  --some\n      Some");
    }
}
