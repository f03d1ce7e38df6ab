//! Lines of progress in a command's output: `loadmaster: progress 0.40 forward`.

use loadmaster_proto::phase::Phase;

/// What such a line has, wherever in the line: launchers put the rank before it.
const MARK: &str = "loadmaster: progress ";

/// Share of the work done, 0 to 1, and what the command does; `None` for any other line.
pub(super) fn parse(line: &str) -> Option<(f64, Phase)> {
    let (_, rest) = line.split_once(MARK)?;
    let mut words = rest.split_whitespace();
    let fraction: f64 = words.next()?.parse().ok()?;
    let phase = match words.next()? {
        "setup" => Phase::Setup,
        "forward" => Phase::Forward,
        "backward" => Phase::Backward,
        "step" => Phase::Step,
        _ => return None,
    };
    fraction.is_finite().then(|| (fraction.clamp(0.0, 1.0), phase))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_of_progress_is_found_behind_a_launchers_prefix() {
        assert_eq!(parse("[rank0]: loadmaster: progress 0.25 backward"), Some((0.25, Phase::Backward)));
        assert_eq!(parse("loadmaster: progress 7 step"), Some((1.0, Phase::Step)));
        for other in [
            "",
            "progress 0.5 step",
            "loadmaster: progress x step",
            "loadmaster: progress 0.5",
            "loadmaster: progress NaN step",
            "loadmaster: progress 0.5 lunch",
        ] {
            assert_eq!(parse(other), None, "{other:?}");
        }
    }
}
