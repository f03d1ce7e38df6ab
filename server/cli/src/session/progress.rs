//! How far an operation is, on standard error: a bar on a terminal, now and then a line elsewhere.

use std::io::IsTerminal;
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressFinish, ProgressStyle};
use loadmaster_proto::wire::v1::{RunMetadata, Trials};

use crate::output::to_stderr;
use loadmaster_show::table::operation::runs;
use loadmaster_show::table::plan::trial;
use loadmaster_show::text::terminal_abilities::Look;
use loadmaster_show::text::{about, plain};

const STEPS: u64 = 1000;
/// Without a terminal: the least change worth a line, and the least time between two.
const LEAST_CHANGE: f64 = 0.05;
const LEAST_GAP: Duration = Duration::from_secs(1);

#[derive(Debug)]
pub(crate) struct Progress {
    estimate: Estimate,
    display: Display,
}

#[derive(Debug)]
enum Display {
    Silent,
    Lines(ProgressLines),
    Bar(ProgressBar),
}

impl Progress {
    /// Shows progress on standard error in the way that suits it. Where calls are reported there too
    /// (`verbose`), a bar would be torn by them.
    pub(crate) fn new(quiet: bool, verbose: bool) -> Self {
        let stderr = std::io::stderr();
        let display = match (quiet, stderr.is_terminal() && !verbose) {
            (true, _) => Display::Silent,
            (false, false) => Display::Lines(ProgressLines::default()),
            (false, true) => Display::Bar(bar(Look::of(&stderr))),
        };
        Self { estimate: Estimate::default(), display }
    }

    /// Shows the state of an operation that goes on.
    pub(crate) fn update(&mut self, metadata: &RunMetadata, now: Instant) {
        let share = share(metadata);
        // The planner knows how long the runs take; until it does, the pace that was seen here must do.
        let left = metadata.remaining_seconds.or_else(|| self.estimate.left(share, now));
        match &mut self.display {
            Display::Silent => {}
            Display::Lines(lines) => {
                if lines.wants(share, &metadata.message, now) {
                    to_stderr(&format!("{}\n", line(metadata, left)));
                }
            }
            Display::Bar(bar) => {
                bar.set_position((share * STEPS as f64) as u64);
                bar.set_message(line(metadata, left));
            }
        }
    }

    pub(crate) fn end(&mut self, metadata: &RunMetadata, now: Instant) {
        match &mut self.display {
            Display::Silent => {}
            Display::Lines(lines) => {
                if lines.wants_end(share(metadata), &metadata.message, now) {
                    to_stderr(&format!("{}\n", line(metadata, None)));
                }
            }
            Display::Bar(bar) => bar.finish_and_clear(),
        }
    }

    /// Says something besides the progress.
    pub(crate) fn say(&self, text: &str) {
        match &self.display {
            Display::Silent => {}
            Display::Lines(_) => to_stderr(&format!("{text}\n")),
            Display::Bar(bar) => bar.suspend(|| to_stderr(&format!("{text}\n"))),
        }
    }
}

fn bar(look: Look) -> ProgressBar {
    let (template, glyphs) = if look.unicode {
        ("{bar:24} {wide_msg}", "█▉▊▋▌▍▎▏·")
    } else {
        ("[{bar:24}] {wide_msg}", "##.")
    };
    let style = ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar());
    ProgressBar::with_draw_target(Some(STEPS), ProgressDrawTarget::stderr_with_hz(8))
        .with_style(style.progress_chars(glyphs))
        // Dropped when the user interrupts: what follows starts on a clean line.
        .with_finish(ProgressFinish::AndClear)
}

/// The share done, 0 to 1 whatever the planner says.
fn share(metadata: &RunMetadata) -> f64 {
    if metadata.progress.is_finite() { metadata.progress.clamp(0.0, 1.0) } else { 0.0 }
}

/// Target, share, runs, time left, message.
fn line(metadata: &RunMetadata, left: Option<f64>) -> String {
    let mut text = format!("{}  {:3.0} %", plain(&metadata.target), share(metadata) * 100.0);
    match (&metadata.trials, &metadata.run_counts) {
        (Some(Trials { trials, .. }), _) if trials.len() > 1 => {
            text.push_str(&format!("  {}", trial::progress(trials)));
        }
        (_, Some(counts)) => text.push_str(&format!("  {}", runs(counts))),
        (_, None) => {}
    }
    if let Some(left) = left {
        text.push_str(&format!("  {} left", about(left)));
    }
    if !metadata.message.is_empty() {
        text.push_str(&format!("  {}", plain(&metadata.message)));
    }
    text
}

/// Guesses the time left from the pace since we began to look.
#[derive(Debug, Default)]
struct Estimate {
    first: Option<(f64, Instant)>,
}

impl Estimate {
    /// Seconds, once enough was seen to tell.
    fn left(&mut self, share: f64, now: Instant) -> Option<f64> {
        let (from, since) = *self.first.get_or_insert((share, now));
        let seconds = now.duration_since(since).as_secs_f64();
        let gained = share - from;
        (gained >= 0.02 && seconds >= 2.0 && share < 1.0).then(|| seconds / gained * (1.0 - share))
    }
}

/// Decides which states are worth a line.
#[derive(Debug, Default)]
struct ProgressLines {
    last: Option<(f64, String, Instant)>,
}

impl ProgressLines {
    fn wants(&mut self, share: f64, message: &str, now: Instant) -> bool {
        let wanted = self.last.as_ref().is_none_or(|(last_share, last_message, time)| {
            now.duration_since(*time) >= LEAST_GAP
                && ((share - last_share).abs() >= LEAST_CHANGE || message != last_message)
        });
        if wanted {
            self.last = Some((share, message.to_owned(), now));
        }
        wanted
    }

    /// The last state is worth a line unless it was the last line.
    fn wants_end(&mut self, share: f64, message: &str, now: Instant) -> bool {
        let wanted = self.last.as_ref().is_none_or(|last| last.0 != share || last.1 != message);
        self.last = Some((share, message.to_owned(), now));
        wanted
    }
}

#[cfg(test)]
mod tests {
    use loadmaster_proto::wire::v1::RunCounts;

    use super::*;

    fn metadata(progress: f64) -> RunMetadata {
        RunMetadata {
            target: "profiles/p".to_owned(),
            run_counts: Some(RunCounts {
                total_count: 12,
                queued_count: 5,
                running_count: 1,
                succeeded_count: 4,
                out_of_memory_count: 1,
                failed_count: 1,
                ..Default::default()
            }),
            progress,
            message: "runs/7 on workers/a: iteration 3".to_owned(),
            ..RunMetadata::default()
        }
    }

    #[test]
    fn a_line_has_share_runs_time_and_message() {
        assert_eq!(
            line(&metadata(0.5), Some(130.0)),
            "profiles/p   50 %  6 of 12 runs done, 1 failed, 1 out of memory  about 2 min left  \
             runs/7 on workers/a: iteration 3"
        );
        assert_eq!(line(&RunMetadata::default(), None), "    0 %");
    }

    #[test]
    fn lines_come_at_changes_but_not_too_often() {
        let mut lines = ProgressLines::default();
        let start = Instant::now();
        let at = |ms| start + Duration::from_millis(ms);
        assert!(lines.wants(0.0, "a", at(0)), "the first state");
        assert!(!lines.wants(0.5, "b", at(500)), "too soon");
        assert!(lines.wants(0.5, "b", at(1000)));
        assert!(!lines.wants(0.54, "b", at(3000)), "too little");
        assert!(lines.wants(0.54, "c", at(4000)), "a new message");
        assert!(lines.wants_end(1.0, "c", at(4001)), "the end is never left out");
        assert!(!lines.wants_end(1.0, "c", at(4002)));
    }

    #[test]
    fn the_estimate_extrapolates_the_pace() {
        let mut estimate = Estimate::default();
        let start = Instant::now();
        assert_eq!(estimate.left(0.2, start), None);
        assert_eq!(estimate.left(0.4, start + Duration::from_secs(10)), Some(30.0));
        assert_eq!(estimate.left(0.2, start + Duration::from_secs(20)), None, "no pace, no guess");
    }

    #[test]
    fn a_strange_share_is_clamped() {
        assert_eq!(share(&metadata(f64::NAN)), 0.0);
        assert_eq!(share(&metadata(7.0)), 1.0);
    }
}
