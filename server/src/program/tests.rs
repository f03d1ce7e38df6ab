//! Every example can be pasted: it is a command that a shell and this program understand.

use clap::{CommandFactory, Parser};

use super::Program;

#[test]
fn the_command_line_is_consistent() {
    Program::command().debug_assert();
}

#[test]
fn every_verb_teaches_by_example() {
    fn check(command: &clap::Command) {
        let leaf = command.get_subcommands().next().is_none();
        assert!(
            !leaf || command.get_name() == "help" || command.get_after_help().is_some(),
            "`{}` has no examples",
            command.get_name()
        );
        command.get_subcommands().for_each(check);
    }
    check(&Program::command());
}

/// Without a terminal help is as wide as this, and wrapped once more where it is wider.
#[test]
fn no_help_is_wrapped_twice() {
    for (name, text) in texts() {
        let wide = text.lines().find(|line| line.chars().count() > 100);
        assert_eq!(wide, None, "in the help of `{name}`");
    }
}

/// The help texts of all commands.
fn texts() -> Vec<(String, String)> {
    fn collect(command: &clap::Command, above: &str, texts: &mut Vec<(String, String)>) {
        let name = format!("{above} {}", command.get_name()).trim().to_owned();
        let all = [command.get_after_help(), command.get_after_long_help()];
        texts.extend(all.into_iter().flatten().map(|text| (name.clone(), text.to_string())));
        command.get_subcommands().for_each(|below| collect(below, &name, texts));
    }
    let mut texts = Vec::new();
    collect(&Program::command(), "", &mut texts);
    texts
}

/// The examples of a text: indented lines, with the lines that continue them. What explains an example ends with a
/// colon or begins with a capital letter.
fn examples(text: &str) -> Vec<String> {
    let start = text.find("Examples:").or_else(|| text.find("Start here:")).unwrap_or(text.len());
    let end = text[start..].find("\n\n").map_or(text.len(), |length| start + length);
    let mut examples: Vec<String> = Vec::new();
    let mut continues = false;
    for line in text[start..end].lines().skip(1) {
        let (line, more) = match line.trim().strip_suffix('\\') {
            Some(line) => (line.trim_end(), true),
            None => (line.trim(), false),
        };
        match examples.last_mut().filter(|_| continues) {
            Some(last) => last.push_str(&format!(" {line}")),
            None if line.ends_with(':') || line.starts_with(char::is_uppercase) && !line.contains('=') => {}
            None => examples.push(line.to_owned()),
        }
        continues = more;
    }
    examples
}

/// The simple commands of a line of shell, as words: split at pipes, lists and substitutions; without assignments
/// and redirections.
fn commands(line: &str) -> Vec<Vec<String>> {
    let mut commands = vec![Vec::new()];
    let mut word: Option<String> = None;
    let mut quote = None;
    let mut characters = line.chars().peekable();
    let push = |commands: &mut Vec<Vec<String>>, word: &mut Option<String>| {
        if let (Some(word), Some(command)) = (word.take(), commands.last_mut()) {
            command.push(word);
        }
    };
    while let Some(c) = characters.next() {
        match (quote, c) {
            (Some(open), c) if c == open => quote = None,
            (Some(_), c) => word.get_or_insert_default().push(c),
            (None, '\'' | '"') => {
                quote = Some(c);
                word.get_or_insert_default();
            }
            (None, '$') if characters.peek() == Some(&'(') => {
                characters.next();
                word = None;
                commands.push(Vec::new());
            }
            (None, '|' | '&' | ')') => {
                push(&mut commands, &mut word);
                commands.push(Vec::new());
            }
            (None, c) if c.is_whitespace() => push(&mut commands, &mut word),
            (None, c) => word.get_or_insert_default().push(c),
        }
    }
    assert_eq!(quote, None, "a quote is open in {line}");
    push(&mut commands, &mut word);
    let is_assignment = |word: &String| word.split_once('=').is_some_and(|(name, _)| !name.starts_with('-'));
    for command in &mut commands {
        while command.first().is_some_and(is_assignment) {
            command.remove(0);
        }
        if let Some(redirection) = command.iter().position(|word| word == ">") {
            command.truncate(redirection);
        }
    }
    commands.retain(|command| !command.is_empty());
    commands
}

#[test]
fn every_example_of_every_help_text_is_a_valid_command() {
    let mut checked = 0;
    for (name, text) in texts() {
        let examples = examples(&text);
        assert!(!examples.is_empty(), "`{name}` has no examples");
        for example in examples {
            let commands = commands(&example);
            let ours: Vec<_> = commands.iter().filter(|words| words[0].starts_with("loadmaster")).collect();
            assert!(!ours.is_empty(), "`{name}`: {example} is no command of ours");
            for words in ours.iter().filter(|words| words[0] == "loadmaster") {
                // What an earlier command printed: a name.
                let words = words.iter().map(|word| if word.starts_with('$') { "name" } else { word });
                let parsed = Program::try_parse_from(words);
                assert!(parsed.is_ok(), "`{name}`: {example}\n{}", parsed.unwrap_err());
                checked += 1;
            }
        }
    }
    assert!(checked > 80, "only {checked} examples were found");
}

/// A line that the help itself has to break is no command any more.
#[test]
fn examples_fit_a_terminal_of_80_columns() {
    for (name, text) in texts() {
        let start = text.find("Examples:").or_else(|| text.find("Start here:")).unwrap_or(text.len());
        let lines = text[start..].lines().skip(1).take_while(|line| !line.is_empty());
        for line in lines.filter(|line| !line.ends_with(':')) {
            assert!(line.chars().count() < 80, "`{name}`: {line}");
        }
    }
}

/// What is in angle brackets or an ellipsis cannot be pasted.
#[test]
fn examples_have_no_gaps() {
    for (name, text) in texts() {
        for example in examples(&text) {
            let gap = ["<", "...", "…", "PROFILE", "PLAN ", "("].iter().find(|gap| example.contains(**gap));
            let substitution = example.contains("$(");
            assert!(gap.is_none() || substitution, "`{name}`: {example} has {gap:?}");
        }
    }
}

#[test]
fn a_line_of_shell_is_taken_apart() {
    let taken = commands("a=$(x --b 'c d' | jq .e) && DATABASE_URL=u y \"$a\" > f");
    let taken: Vec<String> = taken.iter().map(|words| words.join(" ")).collect();
    assert_eq!(taken, ["x --b c d", "jq .e", "y $a"]);
}

/// Options with one name and several kinds of values, with the reason.
const SEVERAL_MEANINGS: &[(&str, &str)] = &[
    ("chunk-size", "model chunks: one size or auto; plans: sizes to choose from"),
    ("format", "of the file that the command reads: of a model, or of a cluster"),
    ("framework", "plan predict: its bytes do not depend on the version"),
    ("hourly-price", "cluster: of its only kind of device; plan recommend: by kind"),
    ("iterations", "to train, or that were trained"),
    ("limit", "of rows, or of the sizes of model chunks, of which there is no 0"),
    ("micro-batch-size", "plan recommend: several to choose from"),
    ("schedule", "of the training; plan show: only to draw, with more values"),
    ("to", "a folder, or a file"),
];

/// A name of an option has one meaning in all commands: values of one kind, under one name.
#[test]
fn an_option_has_one_meaning() {
    use std::collections::{BTreeMap, BTreeSet};
    fn collect(command: &clap::Command, found: &mut BTreeMap<String, BTreeSet<String>>) {
        for arg in command.get_arguments().filter(|arg| !arg.is_hide_set()) {
            let Some(long) = arg.get_long() else { continue };
            let value = match arg.get_action().takes_values() {
                true => format!("{:?} {:?}", arg.get_value_names(), arg.get_value_parser().type_id()),
                false => "flag".to_owned(),
            };
            found.entry(long.to_owned()).or_default().insert(value);
        }
        command.get_subcommands().for_each(|below| collect(below, found));
    }
    let mut found = BTreeMap::new();
    collect(&Program::command(), &mut found);
    let known = |name: &str| SEVERAL_MEANINGS.iter().any(|(of, _)| *of == name);
    let unknown: Vec<_> = found.iter().filter(|(name, values)| values.len() > 1 && !known(name)).collect();
    assert!(unknown.is_empty(), "these options have several meanings: {unknown:#?}");
}
