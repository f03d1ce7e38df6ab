//! Which rows a list prints, in which order.

use std::time::Duration;

use jiff::Timestamp;

use super::page::Limit;
use super::watch::Shown;
use crate::failure::Failure;
use crate::input::parse;

/// A filter of rows.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct FilterArg {
    /// Only rows that match (AIP-160): fields, = != < <= > >= or : (has), values, joined by AND, OR, NOT and
    /// parentheses. An unknown field is an error that lists the valid ones.
    #[arg(
        long,
        value_name = "FILTER",
        default_value = "",
        hide_default_value = true,
        allow_hyphen_values = true
    )]
    pub(crate) filter: String,
}

/// A filter and an order of rows.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct SelectArgs {
    #[command(flatten)]
    pub(crate) rows: FilterArg,

    /// Fields to order by, each with asc or desc after it. Default: newest first; measurements by stage.
    #[arg(long, value_name = "FIELD,…", default_value = "", hide_default_value = true)]
    pub(crate) order_by: String,
}

/// Which rows a list prints, in which order, and how many.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct ListArgs {
    #[command(flatten)]
    select: SelectArgs,

    /// Only rows that were created within this time before now, for example 7d or 12h.
    #[arg(long, value_name = "DURATION", value_parser = parse::age, allow_hyphen_values = true)]
    since: Option<Duration>,

    #[command(flatten)]
    limit: Limit,

    /// Continue until Ctrl-C: every two seconds, print rows that are new or have changed.
    #[arg(short, long)]
    watch: bool,
}

/// What a list asks the planner for.
#[derive(Debug, Clone)]
pub(crate) struct ListOptions {
    pub(crate) filter: String,
    pub(crate) order_by: String,
    /// How many rows are printed, and how often.
    pub(crate) shown: Shown,
}

impl ListArgs {
    /// What the planner is asked for: the same for all pages.
    ///
    /// # Errors
    /// An age beyond all times.
    pub(crate) fn asked(self) -> Result<ListOptions, Failure> {
        let Self { select: SelectArgs { rows: FilterArg { filter }, order_by }, since, limit, watch } = self;
        let filter = match since {
            None => filter,
            Some(age) => since_then(&filter, age, Timestamp::now())?,
        };
        Ok(ListOptions { filter, order_by, shown: Shown { limit, watch } })
    }
}

/// A filter that leaves what is younger, too. It comes last, so that the planner names the places of what was typed.
fn since_then(filter: &str, age: Duration, now: Timestamp) -> Result<String, Failure> {
    let from = now.checked_sub(age).ok().filter(|from| *from >= Timestamp::UNIX_EPOCH).ok_or_else(|| {
        Failure::Usage("--since goes back to before 1970. Use a shorter time, for example 7d.".to_owned())
    })?;
    let from = format!("create_time >= \"{from}\"");
    Ok(if filter.trim().is_empty() { from } else { format!("{filter} AND {from}") })
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::verbs::tests::Cli;

    /// OR binds closer than AND, so a filter of several parts needs no parentheses, and its places stay.
    #[test]
    fn an_age_is_one_more_condition() {
        let now: Timestamp = "2026-11-08T12:00:00Z".parse().unwrap();
        let asked = |filter: &str, age: &str| since_then(filter, parse::age(age).unwrap(), now);
        assert_eq!(asked("", "7d").unwrap(), "create_time >= \"2026-11-01T12:00:00Z\"");
        assert_eq!(
            asked("a = 1 OR b = 2", "12h").unwrap(),
            "a = 1 OR b = 2 AND create_time >= \"2026-11-08T00:00:00Z\""
        );
        assert!(asked("", "30000d").is_err());
    }

    /// An age that begins with a dash is a wrong value of its option, not another option.
    #[test]
    fn a_negative_age_is_told_by_its_option() {
        let line = ["loadmaster", "plan", "list", "--since", "-1d"];
        let told = Cli::try_parse_from(line).unwrap_err().to_string();
        assert!(told.contains("--since") && told.contains("expected a time above 0"), "{told}");
    }

    #[test]
    fn ages_are_days_and_hours() {
        for (text, seconds) in [("7d", 604_800), ("2w", 1_209_600), ("1h30m", 5_400), ("90s", 90)] {
            assert_eq!(parse::age(text).unwrap().as_secs(), seconds, "{text}");
        }
        assert!(parse::age("7").is_err_and(|why| why.contains("Write 7d, or")));
        for text in ["", "7", "d", "-7d", "0d", "1 month", "99999999w"] {
            assert!(parse::age(text).is_err(), "{text}");
        }
    }
}
