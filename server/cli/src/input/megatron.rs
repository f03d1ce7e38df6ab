//! What Megatron-LM writes of a training into its log: seconds of iterations (the last rank, every `--log-interval`
//! iterations), and peaks of memory (the first replica of every stage and shard, `report_memory`).
//!
//! Whatever a framework or a scheduler puts before a line does not matter, nor do all other lines.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader};
use std::path::Path;

use crate::failure::Failure;

const SECONDS: &str = "elapsed time per iteration (ms):";
const BATCH: &str = "global batch size:";
const MEMORY: &str = "iterations) memory (MB)";
/// Megatron's MB are these.
const MEBIBYTE: f64 = 1_048_576.0;

/// What a log says of a training.
#[derive(Debug, Clone, PartialEq, Default)]
pub(crate) struct MegatronLog {
    /// Iterations that the seconds are of.
    pub(crate) iterations: i64,
    /// Mean seconds of one of them.
    pub(crate) iteration_seconds: f64,
    /// Samples of each of the last iterations; none where it does not say.
    pub(crate) global_batch: Option<i64>,
    /// Highest peaks of the ranks that told any.
    pub(crate) peaks: BTreeMap<i32, Peaks>,
}

/// The most that a rank's tensors took, and that its allocator held, bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Peaks {
    pub(crate) allocated: i64,
    pub(crate) reserved: i64,
}

/// Reads a log.
pub(crate) fn read(path: &Path) -> Result<MegatronLog, Failure> {
    let wrong = |why: String| Failure::Usage(format!("--megatron-log {}: {why}", path.display()));
    let file = std::fs::File::open(path).map_err(|error| wrong(error.to_string()))?;
    let mut lines = LogLines::default();
    for line in BufReader::new(file).split(b'\n') {
        // Programs of many kinds write into one log, not all of them UTF-8.
        lines.take(&String::from_utf8_lossy(&line.map_err(|error| wrong(error.to_string()))?));
    }
    lines.end().ok_or_else(|| {
        wrong(format!(
            "no line contains \"{SECONDS}\". Only the last rank prints this text: use the log of the last node."
        ))
    })
}

/// The lines that were read so far.
#[derive(Debug, Default)]
struct LogLines {
    /// Iterations of each line, and milliseconds of one of them: those behind another line of the same start.
    intervals: Vec<(i64, f64)>,
    /// The first line of each start: how many iterations it is of is not known.
    firsts: Vec<f64>,
    last: Option<i64>,
    global_batch: Option<i64>,
    peaks: BTreeMap<i32, Peaks>,
}

impl LogLines {
    fn take(&mut self, line: &str) {
        if let Some((iteration, milliseconds)) = timed(line) {
            // A training that starts again from a checkpoint goes back; its first iterations are slow again.
            match self.last.filter(|&last| last < iteration) {
                Some(last) => self.intervals.push((iteration - last, milliseconds)),
                None => self.firsts.push(milliseconds),
            }
            self.last = Some(iteration);
            self.global_batch = batch(line).or(self.global_batch);
        } else if let Some((rank, told)) = memory(line) {
            let most = self.peaks.entry(rank).or_default();
            most.allocated = most.allocated.max(told.allocated);
            most.reserved = most.reserved.max(told.reserved);
        }
    }

    /// What the lines say together; none where no iteration was timed.
    fn end(self) -> Option<MegatronLog> {
        let Self { intervals, firsts, global_batch, peaks, .. } = self;
        // The first line contains what is done once; where there is nothing else it has to do.
        let counted = if intervals.is_empty() {
            firsts.into_iter().map(|milliseconds| (1, milliseconds)).collect()
        } else {
            intervals
        };
        let iterations = counted.iter().try_fold(0_i64, |sum, (count, _)| sum.checked_add(*count))?;
        if iterations == 0 {
            return None;
        }
        let milliseconds: f64 = counted.iter().map(|&(count, of_one)| count as f64 * of_one).sum();
        let iteration_seconds = milliseconds / iterations as f64 / 1000.0;
        Some(MegatronLog { iterations, iteration_seconds, global_batch, peaks })
    }
}

/// The number of an iteration, and the milliseconds of one: `iteration 20/ 500 | … | elapsed time per iteration (ms): 283.9 |`.
fn timed(line: &str) -> Option<(i64, f64)> {
    let (before, after) = line.split_once(SECONDS)?;
    let (_, numbers) = before.split_once("iteration ")?;
    let iteration = numbers.split('/').next()?.trim().parse().ok().filter(|&number: &i64| number > 0)?;
    Some((iteration, number(after).filter(|&milliseconds| milliseconds > 0.0)?))
}

/// The samples of an iteration: `… | global batch size:   128 | …`.
fn batch(line: &str) -> Option<i64> {
    let (_, after) = line.split_once(BATCH)?;
    after.split('|').next()?.trim().parse().ok().filter(|&samples: &i64| samples > 0)
}

/// A rank and its peaks: `[Rank 0] (after 1 iterations) memory (MB) | … | max allocated: 63359.77 | … | max reserved: 66802.0`.
fn memory(line: &str) -> Option<(i32, Peaks)> {
    let (before, figures) = line.split_once(MEMORY)?;
    let (_, rank) = before.rsplit_once("[Rank ")?;
    let rank = rank.split(']').next()?.trim().parse().ok().filter(|&rank: &i32| rank >= 0)?;
    let of = |name: &str| {
        let figure = figures.split('|').find_map(|part| part.trim().strip_prefix(name)?.strip_prefix(':'))?;
        let bytes = number(figure)? * MEBIBYTE;
        (0.0..9.2e18).contains(&bytes).then_some(bytes.round() as i64)
    };
    Some((rank, Peaks { allocated: of("max allocated")?, reserved: of("max reserved")? }))
}

/// The number that a text begins with.
fn number(text: &str) -> Option<f64> {
    let text = text.trim_start();
    let end = text.find(|sign: char| !sign.is_ascii_digit() && sign != '.').unwrap_or(text.len());
    text[..end].parse().ok().filter(|number: &f64| number.is_finite())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn of(log: &str) -> Option<MegatronLog> {
        let mut lines = LogLines::default();
        log.lines().for_each(|line| lines.take(line));
        lines.end()
    }

    /// Lines as versions of three years wrote them: without a date, with one, behind a scheduler's task number, with two
    /// digits, and with what a device holds besides.
    #[test]
    fn lines_of_every_version_are_read() {
        let log = "\
training ...
[before the start of training step] datetime: 2023-07-16 11:34:57
 iteration      100/    5000 | consumed samples:          800 | elapsed time per iteration (ms): 296.8 | learning rate: 3.937E-06 | global batch size:     8 | lm loss: 9.729805E+00 | loss scale: 131072.0 | grad norm: 5.703 | number of skipped iterations:  16 | number of nan iterations:   0 |
[Rank 0] (after 100 iterations) memory (MB) | allocated: 6816.88818359375 | max allocated: 8696.8515625 | reserved: 8786.0 | max reserved: 8786.0
time (ms) | forward-compute: 879.94 | backward-compute: 1373.40
 [2025-09-05 16:08:25] iteration      300/    5000 | consumed samples:          256 | elapsed time per iteration (ms): 11182.0 | throughput per GPU (TFLOP/s/GPU): 128.2 | learning rate: 2.999993E-05 | lm loss: 2.688647E+00 |
 validation loss at iteration 300 | lm loss value: 6.439325E+00 | lm loss PPL: 6.259840E+02 |
12:  [2026-11-23 16:08:36.123456] iteration      400/    5000 | consumed samples:          384 | skipped samples:            8 | elapsed time per iteration (ms): 8182.0 |
6: [Rank 6] (after 2 iterations) memory (MB) | allocated: 53199.10 | max allocated: 84019.37 | reserved: 84732.00 | max reserved: 84732.00 | total device memory used: 86000.00
6: [Rank 6] (after 9 iterations) memory (MB) | allocated: 53199.10 | max allocated: 84020.50 | reserved: 84732.00 | max reserved: 84732.00
[Rank 6] (before save_checkpoint for iteration 9) memory (MB) | allocated: 1.0 | max allocated: 99999.0 | reserved: 1.0 | max reserved: 99999.0
";
        let read = of(log).unwrap();
        assert_eq!((read.iterations, read.global_batch), (300, Some(8)));
        assert!((read.iteration_seconds - (200.0 * 11.182 + 100.0 * 8.182) / 300.0).abs() < 1e-9);
        let first = Peaks { allocated: 9_119_309_824, reserved: 8786 << 20 };
        let sixth = Peaks { allocated: (84020 << 20) + (1 << 19), reserved: 84732 << 20 };
        assert_eq!(read.peaks, BTreeMap::from([(0, first), (6, sixth)]));
    }

    /// A training that goes on from a checkpoint is slow again at first, and counts what it does again.
    #[test]
    fn a_new_start_is_left_out_again() {
        let line = |iteration: i64, milliseconds: i64| {
            format!(
                " iteration {iteration:8}/     100 | elapsed time per iteration (ms): {milliseconds}.0 |\n"
            )
        };
        let log: String = [(10, 900), (20, 100), (30, 100), (20, 900), (30, 200), (40, 200)]
            .into_iter()
            .map(|(iteration, milliseconds)| line(iteration, milliseconds))
            .collect();
        let read = of(&log).unwrap();
        assert_eq!((read.iterations, read.iteration_seconds), (40, 0.15));
        assert_eq!(of(&line(1, 900)).unwrap().iteration_seconds, 0.9, "better than nothing");
    }

    #[test]
    fn other_logs_say_nothing() {
        for log in ["", "iteration 3", " iteration x/ 5 | elapsed time per iteration (ms): 3.0 |", SECONDS] {
            assert_eq!(of(log), None, "{log:?}");
        }
        let no_rank = "[Rank x] (after 1 iterations) memory (MB) | max allocated: 1.0 | max reserved: 1.0\n";
        let huge = "[Rank 1] (after 1 iterations) memory (MB) | max allocated: 1e9 | max reserved: 99999999999999999999.0\n";
        let timed = " iteration 1/ 5 | elapsed time per iteration (ms): 3.0 |\n";
        assert!(of(&format!("{no_rank}{huge}{timed}")).unwrap().peaks.is_empty());
    }

    proptest! {
        /// No line, however it is cut or mixed, ends the program.
        #[test]
        fn any_text_is_survived(parts in proptest::collection::vec(
            prop_oneof![
                Just(SECONDS.to_owned()), Just(MEMORY.to_owned()), Just("[Rank ".to_owned()), Just("iteration ".to_owned()),
                Just("| max allocated:".to_owned()), Just("/".to_owned()), "\\PC{0,8}", "[0-9.]{0,30}",
            ], 0..12)) {
            of(&parts.concat());
        }
    }
}
