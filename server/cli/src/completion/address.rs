//! Which planner a command line that is being typed would ask.

use crate::session::context::USUAL_ADDRESS;

/// The planner's address: of `--address` if that was typed, else of the environment, else the usual one.
pub(super) fn of(words: impl Iterator<Item = String>, environment: Option<String>) -> String {
    // What asks for completions has the words behind a `--`.
    let mut words = words.skip_while(|word| word != "--").skip(1).take_while(|word| word != "--");
    let mut typed = None;
    while let Some(word) = words.next() {
        match word.strip_prefix("--address") {
            Some("") => typed = words.next().or(typed),
            Some(rest) => typed = rest.strip_prefix('=').map(str::to_owned).or(typed),
            None => {}
        }
    }
    let given = [typed, environment].into_iter().flatten();
    given.into_iter().find(|address| !address.is_empty()).unwrap_or_else(|| USUAL_ADDRESS.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_planner_is_the_one_that_the_verb_would_ask() {
        let address = |line: &str, environment: Option<&str>| {
            of(line.split(' ').map(str::to_owned), environment.map(str::to_owned))
        };
        assert_eq!(address("loadmaster -- loadmaster plan show ", None), USUAL_ADDRESS);
        assert_eq!(address("loadmaster -- loadmaster plan show ", Some("db:1")), "db:1");
        assert_eq!(address("loadmaster -- loadmaster --address a:2 plan show ", Some("db:1")), "a:2");
        assert_eq!(address("loadmaster -- loadmaster plan --address=a:2 show ", Some("db:1")), "a:2");
        assert_eq!(address("loadmaster -- loadmaster plan --address a:1 --address b:2 x", None), "b:2");
        assert_eq!(address("loadmaster -- loadmaster plan show --address ", Some("db:1")), "db:1");
        assert_eq!(
            address("loadmaster --address x:1 -- loadmaster slurm exec -- --address y:1", None),
            USUAL_ADDRESS
        );
    }
}
