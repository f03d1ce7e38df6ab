//! The enums of the protocol on the command line: which words stand for their values, and what `--help` says
//! about each.

use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use loadmaster_show::choice::Choice;

/// Reads one of the words of a choice.
pub(crate) fn choice<T: Choice>() -> impl TypedValueParser<Value = T> {
    let values = T::ALL.iter().map(|&(value, help)| PossibleValue::new(value.word()).help(help));
    PossibleValuesParser::new(values).try_map(|word| T::of_word(&word).ok_or("is no such value"))
}
