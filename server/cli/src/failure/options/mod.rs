//! Errors in the words of the command line: a planner names fields of a request, a user has typed options.

mod change;
mod tables;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use loadmaster_proto::plan::compatibility::{CONTRADICTIONS, Setting};
use loadmaster_show::choice::word_of;
use tonic::Status;
use tonic_types::{ErrorDetails, StatusExt};

use crate::input::file_name;

pub(crate) use change::typed;
pub(crate) use tables::{
    CLUSTER_CREATE, CLUSTER_DELETE, CLUSTER_DISCOVER, CLUSTER_IMPORT, CLUSTER_LINKS, CLUSTER_MEASURE,
    CLUSTER_UPDATE, HISTORY_PURGE, HISTORY_WATCH, LIST, MODEL_CHUNKS, MODEL_CREATE, MODEL_IMPORT, NAME,
    PLAN_COMPARE, PLAN_DELETE, PLAN_ERRORS, PLAN_EXPORT, PLAN_EXPORTERS, PLAN_LABEL, PLAN_PLACE,
    PLAN_PLACEMENTS, PLAN_PREDICT, PLAN_PREDICT_GPUS, PLAN_RECOMMEND, PLAN_RECOMMEND_GPUS, PLAN_REPORT,
    PLAN_SHOW, PLAN_TRIAL, PROFILE_DELETE, PROFILE_IMPORT, PROFILE_LABEL, PROFILE_MEASUREMENTS,
    PROFILE_RESUME, PROFILE_RUN, PROFILED, REPORTS, RUN_LIST, SLURM_PLACE, SLURM_REQUEST, SLURM_SCRIPT,
};

/// Paths of fields and the options that fill them, in parts that commands share. What belongs to a field below
/// belongs to its option. A star in a path is any one name. An option with a colon names a document, whose own fields are
/// told; behind the colon is what each of its entries is of. One that ends with a star takes several values, of which the one
/// is told.
pub(crate) type OptionTable = &'static [&'static [(&'static str, &'static str)]];

/// Positional argument that names the file which a request carries.
const DOCUMENT: &str = "PATH";

/// The same status with options in place of fields, and with the file in place of its argument's name. Fields of a request file keep
/// their names behind that of the file, unless their options were typed.
pub(crate) fn in_options(
    status: &Status,
    table: OptionTable,
    document: Option<&Path>,
    request: Option<&(PathBuf, BTreeSet<String>)>,
) -> Status {
    let document = document.map(file_name);
    let of_file = |field: &str| {
        let (path, typed) = request?;
        let option = place(field, table);
        let is_typed = option
            .is_some_and(|option| option.split([' ', ':']).next().is_some_and(|word| typed.contains(word)));
        (!is_typed && !field.is_empty()).then(|| format!("{}: {field}", file_name(path)))
    };
    let named = |place: String| match (place.strip_prefix(DOCUMENT), &document) {
        (Some(below), Some(file)) if below.is_empty() || below.starts_with(':') => format!("{file}{below}"),
        _ => place,
    };
    let mut details: ErrorDetails = status.get_error_details();
    let violations: Vec<(String, String)> = details
        .bad_request()
        .iter()
        .flat_map(|request| &request.field_violations)
        .map(|of| (of.field.clone(), of.description.clone()))
        .collect();
    let told: Vec<(String, String)> = violations
        .iter()
        .map(|(field, description)| {
            // Of a filter it tells what was typed, and fields of rows.
            let is_typed = matches!(field.as_str(), "filter" | "order_by");
            let description = if is_typed { description.clone() } else { words(description, table) };
            let place = of_file(field).or_else(|| place(field, table).map(&named));
            (place.unwrap_or_else(|| field.clone()), description)
        })
        .collect();
    // A planner makes its message of the violations.
    let is_made_of = joined(&violations) == status.message()
        || matches!(violations.as_slice(), [(_, only)] if only == status.message());
    let message = if is_made_of { joined(&told) } else { words(status.message(), table) };
    if !told.is_empty() {
        details.set_bad_request(Vec::new());
        for (field, description) in told {
            details.add_bad_request_violation(field, description);
        }
    }
    Status::with_error_details(status.code(), message, details)
}

/// A help with the options of its command whose values need or exclude values of others, by the table of contradictions.
pub(crate) fn with_exclusions(help: &str, table: OptionTable) -> String {
    let option = |setting: Setting| {
        find(setting.field(), table).map(|option| option.split([':', '*']).next().unwrap_or(option))
    };
    let (mut needs, mut excludes) = (BTreeMap::new(), BTreeMap::new());
    for row in CONTRADICTIONS.iter().filter(|row| row.with != Setting::ChosenByNobody) {
        for &setting in row.options {
            let (Some(own), Some(other)) = (option(setting), option(row.with)) else { continue };
            let (all, own, other) = match (setting.is_absence(), row.with.is_absence()) {
                (true, _) => (&mut needs, other, own),
                (false, true) => (&mut needs, own, other),
                (false, false) => (&mut excludes, own, other),
            };
            if own != other {
                all.entry(own).or_insert_with(BTreeSet::new).insert(other);
            }
        }
    }
    let lines = |all: &BTreeMap<&str, BTreeSet<&str>>| -> String {
        let line = |(own, others): (&&str, &BTreeSet<&str>)| {
            format!("\n  {own}: {}", others.iter().copied().collect::<Vec<_>>().join(", "))
        };
        all.iter().map(line).collect()
    };
    let (needs, excludes) = (lines(&needs), lines(&excludes));
    format!(
        "{}\n\nOptions that need another option:{needs}\n\nOptions that conflict with some values of another option \
         (the error states a remedy):{excludes}\n",
        help.trim_end()
    )
}

fn joined(violations: &[(String, String)]) -> String {
    let one = |(field, description): &(String, String)| match field.as_str() {
        "" => description.clone(),
        field => format!("{field}: {description}"),
    };
    violations.iter().map(one).collect::<Vec<_>>().join("; ")
}

/// The option that a field was filled from, if it was.
fn place(field: &str, table: OptionTable) -> Option<String> {
    let parts = parts(field);
    (1..=parts.len()).rev().find_map(|length| {
        let (above, below) = parts.split_at(length);
        let names: Vec<&str> = above.iter().map(|part| without_index(part).0).collect();
        let option = find(&names.join("."), table)?;
        let index = above.last().and_then(|last| without_index(last).1);
        Some(match (option.split_once(':'), option.strip_suffix('*')) {
            (Some((document, of)), _) => {
                let entry = index.filter(|_| !of.is_empty()).map(|index| format!("{of} {index}"));
                let field = (!below.is_empty()).then(|| below.join("."));
                [Some(document.to_owned()), entry, field].into_iter().flatten().collect::<Vec<_>>().join(": ")
            }
            (None, Some(option)) => option.to_owned() + &which(index),
            (None, None) => option.to_owned(),
        })
    })
}

fn find(path: &str, table: OptionTable) -> Option<&'static str> {
    table.iter().copied().flatten().find(|(of, _)| is(of, path)).map(|&(_, option)| option)
}

/// Whether a path is the one of a table.
fn is(pattern: &str, path: &str) -> bool {
    let (mut names, mut wanted) = (path.split('.'), pattern.split('.'));
    names.by_ref().zip(wanted.by_ref()).all(|(name, wanted)| wanted == "*" || wanted == name)
        && pattern.split('.').count() == path.split('.').count()
}

/// Which of an option's values.
fn which(index: Option<&str>) -> String {
    match index.map(str::parse::<usize>) {
        None => String::new(),
        Some(Ok(index)) => format!(" (value {})", index.saturating_add(1)),
        Some(Err(_)) => format!(" ({})", index.unwrap_or_default()),
    }
}

/// The names between the dots of a path; dots in brackets belong to a key.
fn parts(field: &str) -> Vec<&str> {
    let mut depth = 0_usize;
    field
        .split(|c: char| {
            match c {
                '[' => depth += 1,
                ']' => depth = depth.saturating_sub(1),
                _ => {}
            }
            c == '.' && depth == 0
        })
        .collect()
}

/// `pins[3]` is `pins` and `3`.
fn without_index(part: &str) -> (&str, Option<&str>) {
    match part.split_once('[') {
        Some((name, index)) => (name, index.strip_suffix(']')),
        None => (part, None),
    }
}

/// A text with options in place of the names of fields: of those that cannot be taken for words, which have an
/// underscore or stand in back quotes. Constants of the protocol are told as what is typed.
pub(crate) fn words(text: &str, table: OptionTable) -> String {
    in_words(text, table, |name| name.contains('_'))
}

/// Returns the text of an answer with options in place of field names in back quotes, and with the words of options in place of the
/// protocol's constants. Other names with underscores are those of models and layers, and stay.
pub(crate) fn answer(text: &str, table: OptionTable) -> String {
    in_words(text, table, |name| word_of(name).is_some())
}

fn in_words(text: &str, table: OptionTable, is_field: impl Fn(&str) -> bool) -> String {
    let is_name = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '.');
    let mut told = String::with_capacity(text.len());
    let mut rest = text;
    while !rest.is_empty() {
        let end = rest.find(|c| !is_name(c)).unwrap_or(rest.len());
        let (word, after) = rest.split_at(end);
        let name = word.trim_end_matches('.');
        let is_quoted = told.ends_with('`') && after.starts_with('`');
        let option = |option: &str| option.split([':', '*']).next().unwrap_or(option).to_owned();
        let typed =
            || known(name, table).or_else(|| known(name, PROFILED)).map(option).or_else(|| word_of(name));
        match (is_quoted || is_field(name)).then(typed).flatten() {
            Some(typed) => told.push_str(&(typed + &word[name.len()..])),
            None => told.push_str(word),
        }
        let other = after.find(is_name).unwrap_or(after.len());
        told.push_str(&after[..other]);
        rest = &after[other..];
    }
    told
}

/// The option of a field that is named by its path or by the end of it.
fn known(name: &str, table: OptionTable) -> Option<&'static str> {
    let ends =
        |path: &str| path.strip_suffix(name).is_some_and(|above| above.is_empty() || above.ends_with('.'));
    find(name, table)
        .or_else(|| table.iter().copied().flatten().find(|(path, _)| ends(path)).map(|&(_, option)| option))
}

#[cfg(test)]
mod tests;
