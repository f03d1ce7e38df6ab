//! A rank whose seconds are those of another machine: starts `loadmaster-rank` beside itself and multiplies all seconds that it
//! reports with `LOADMASTER_TEST_SECONDS`, or with `fixed` replaces each of them by the same figure.
//!
//! End-to-end tests use it in place of the rank where that variable is set: a test that passes at 0.2, 1, 5 and `fixed` does not
//! depend on the speed of the machine (`LOADMASTER_TEST_SECONDS=5 cargo nextest run -p loadmaster-tests chunk_plans::`).

use std::io::{BufRead, BufReader, Write};
use std::os::unix::process::CommandExt;
use std::process::{Command, ExitCode, Stdio};

use loadmaster_tests::{SECONDS_OF_RANKS, binary};
use serde_json::Value;

/// What each figure becomes with `fixed`.
const FIXED_SECONDS: f64 = 0.004;

/// How reported seconds are changed.
#[derive(Debug, Clone, Copy)]
enum Change {
    Factor(f64),
    Fixed,
}

impl Change {
    fn of(text: &str) -> Option<Self> {
        match text {
            "fixed" => Some(Self::Fixed),
            factor => factor
                .parse()
                .ok()
                .filter(|factor: &f64| factor.is_finite() && *factor > 0.0)
                .map(Self::Factor),
        }
    }

    fn apply(self, seconds: f64) -> f64 {
        match self {
            Self::Factor(factor) => seconds * factor,
            // What takes no time takes none on any machine.
            Self::Fixed => {
                if seconds > 0.0 {
                    FIXED_SECONDS
                } else {
                    seconds
                }
            }
        }
    }

    /// Changes every number below a key that ends in `seconds`.
    fn apply_to(self, value: &mut Value, is_seconds: bool) {
        match value {
            Value::Object(fields) => {
                for (key, value) in fields {
                    self.apply_to(value, key.ends_with("seconds"));
                }
            }
            Value::Array(values) => values.iter_mut().for_each(|value| self.apply_to(value, is_seconds)),
            Value::Number(number) if is_seconds => {
                if let Some(changed) =
                    number.as_f64().and_then(|of| serde_json::Number::from_f64(self.apply(of)))
                {
                    *number = changed;
                }
            }
            _ => {}
        }
    }
}

fn main() -> ExitCode {
    let text = std::env::var(SECONDS_OF_RANKS).unwrap_or_else(|_| "1".to_owned());
    let Some(change) = Change::of(&text) else {
        eprintln!("{SECONDS_OF_RANKS}: is {text:?}. Use a factor above 0, or fixed.");
        return ExitCode::from(64);
    };
    let mut command = Command::new(binary("loadmaster-rank"));
    command.args(std::env::args_os().skip(1));
    if std::env::args().nth(1).is_none_or(|verb| verb != "train" && verb != "links") {
        panic!("the rank could not be started: {}", command.exec());
    }
    let mut rank = command.stdout(Stdio::piped()).spawn().expect("the rank can be started");
    let events = BufReader::new(rank.stdout.take().expect("its output is piped"));
    let mut out = std::io::stdout().lock();
    for line in events.lines() {
        let line = line.expect("the rank's output can be read");
        let changed = match serde_json::from_str::<Value>(&line) {
            Ok(mut event) => {
                change.apply_to(&mut event, false);
                event.to_string()
            }
            Err(_) => line,
        };
        writeln!(out, "{changed}").and_then(|()| out.flush()).expect("the worker reads");
    }
    let status = rank.wait().expect("the rank can be waited for");
    ExitCode::from(u8::try_from(status.code().unwrap_or(1)).unwrap_or(1))
}
