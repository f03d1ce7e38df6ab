//! Hints for words of other tools: which command, option or value of this program they stand for.

use clap::builder::StyledStr;
use clap::error::{ContextKind, ContextValue, ErrorKind};

/// Blocks of words and their hint. A block begins with `command`, `option`, `profile-option`, or the option that has these values.
const HINTS: &str = include_str!("hints.txt");

/// Returns the hint for a word of this kind.
fn hint(kind: &str, word: &str) -> Option<String> {
    let mut blocks = HINTS.split("\n\n").filter_map(|block| block.split_once('\n'));
    let is_of = |words: &str| {
        words.strip_prefix(kind).is_some_and(|rest| rest.split(' ').skip(1).any(|of| of == word))
    };
    let (_, text) = blocks.find(|(words, _)| is_of(words))?;
    Some(text.split_whitespace().collect::<Vec<_>>().join(" "))
}

/// Returns an error of the command line with a hint, where its word is another tool's. `words` is the command line.
#[must_use]
pub fn hinted(mut error: clap::Error, words: &[String]) -> clap::Error {
    let text = |kind| match error.get(kind) {
        Some(ContextValue::String(text)) => text.split(' ').next().unwrap_or_default().to_owned(),
        _ => String::new(),
    };
    let found = match error.kind() {
        ErrorKind::InvalidSubcommand => of_command(&text(ContextKind::InvalidSubcommand), words),
        ErrorKind::UnknownArgument => of_option(&text(ContextKind::InvalidArg), words),
        ErrorKind::InvalidValue => hint(&text(ContextKind::InvalidArg), &text(ContextKind::InvalidValue)),
        _ => None,
    };
    if let Some(hint) = found {
        let others =
            [ContextKind::SuggestedSubcommand, ContextKind::SuggestedArg, ContextKind::SuggestedValue];
        others.into_iter().chain([ContextKind::Usage]).for_each(|similar| {
            error.remove(similar);
        });
        error.insert(ContextKind::Suggested, ContextValue::StyledStrs(vec![StyledStr::from(hint)]));
    }
    error
}

fn of_command(word: &str, words: &[String]) -> Option<String> {
    let before = words.iter().position(|of| of == word).and_then(|at| words.get(at.checked_sub(1)?));
    match before.map(String::as_str) {
        Some("plan" | "plans") => Some(hint("command", word).unwrap_or_else(|| first_profile(word))),
        Some("profile" | "profiles") => {
            Some(format!("`loadmaster profile run --model {word}` measures a model"))
        }
        _ => hint("command", word),
    }
}

fn of_option(option: &str, words: &[String]) -> Option<String> {
    let plans = words.iter().any(|word| word == "recommend" || word == "predict");
    if plans && matches!(option, "--model" | "--model-name" | "--hf-model" | "--model-path") {
        let inline = words.iter().find_map(|word| word.strip_prefix(option)?.strip_prefix('='));
        let next = words.iter().skip_while(|word| *word != option).nth(1);
        return Some(first_profile(inline.or_else(|| next.map(String::as_str)).unwrap_or("MODEL")));
    }
    // The options of a profile are not missing there.
    hint("option", option).or_else(|| if plans { hint("profile-option", option) } else { None })
}

fn first_profile(model: &str) -> String {
    format!(
        "plans are made from a profile: run `loadmaster profile run --model {model} --micro-batch-size 1 --micro-batches 8 --id \
         NAME`, then `loadmaster recommend --profile NAME --gpus 8xH100`"
    )
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::verbs::tests::Cli;

    #[test]
    fn words_of_other_tools_are_answered_with_ours() {
        for (line, hint) in [
            ("estimate gpt2", "loadmaster predict"),
            ("login", "--address"),
            ("tune", "loadmaster recommend"),
            ("search", "loadmaster recommend"),
            ("plan gpt2", "loadmaster profile run --model gpt2 "),
            ("profile gpt2", "loadmaster profile run --model gpt2"),
            ("plan recommend --model gpt2 --gpus 8", "loadmaster profile run --model gpt2 "),
            ("recommend --model=gpt2", "loadmaster profile run --model gpt2 "),
            ("plan recommend --zero 1", "--state-sharding optimizer"),
            ("plan recommend --state-sharding zero3", "use optimizer"),
            ("plan recommend --fsdp", "--memory-mode chunks"),
            ("plan recommend --num-gpus 8", "--gpus 8xH100"),
            ("plan predict --tp 2", "--pipeline-layout"),
            ("plan recommend --cp 2", "not planned"),
            ("plan recommend --sp", "8t4s"),
            ("plan recommend --precision bf16", "loadmaster profile run"),
            ("plan recommend --partition 7-7", "--pipeline-layout"),
            ("plan recommend --recompute selective", "--optimizations recompute"),
            ("plan recommend --recompute block", "--stage-optimization"),
            ("plan recommend --schedule interleaved", "--virtual-stages 2"),
            ("profile run --precision fp16", "use bf16"),
        ] {
            let words: Vec<String> = format!("loadmaster {line}").split(' ').map(str::to_owned).collect();
            let error = Cli::try_parse_from(&words).unwrap_err();
            let text = hinted(error, &words).to_string();
            assert!(text.contains("tip: ") && text.contains(hint), "{line}: {text}");
            assert!(!text.contains("similar argument") && !text.contains("--verbose"), "{line}: {text}");
        }
        let words = ["loadmaster".to_owned(), "plan".to_owned(), "lst".to_owned()];
        let error = Cli::try_parse_from(&words).unwrap_err();
        assert_eq!(hinted(error, &["loadmaster".to_owned()]).kind(), ErrorKind::InvalidSubcommand);
    }
}
