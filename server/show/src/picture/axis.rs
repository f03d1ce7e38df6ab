//! Marks of an axis at round numbers.

use loadmaster_proto::bytes::Bytes;

/// A mark: where it is in the axis' unit, and its text with the unit.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Mark {
    pub(super) at: f64,
    pub(super) text: String,
}

/// At most `most` marks of seconds within a range, at multiples of 1, 2 or 5 times a power of ten.
pub(super) fn seconds(low: f64, high: f64, most: usize) -> Vec<Mark> {
    let step = decimal_step((high - low) / most.max(1) as f64);
    let (unit, scale) = match high {
        high if high >= 1.0 => ("s", 1.0),
        high if high >= 1e-3 => ("ms", 1e-3),
        _ => ("us", 1e-6),
    };
    let decimals = (-(step / scale * 1.001).log10().floor()).clamp(0.0, 9.0) as usize;
    marks(low, high, step, most, |at| format!("{:.decimals$} {unit}", at / scale))
}

/// At most `most` marks of things that are counted, at multiples of 1, 2 or 5 times a power of ten.
pub(super) fn counts(low: f64, high: f64, most: usize) -> Vec<Mark> {
    let step = decimal_step((high - low) / most.max(1) as f64).max(1.0);
    marks(low, high, step, most, |at| format!("{at:.0}"))
}

/// At most `most` marks of bytes within a range, at multiples of a power of two.
pub(super) fn bytes(low: f64, high: f64, most: usize) -> Vec<Mark> {
    let wanted = ((high - low) / most.max(1) as f64).max(1.0);
    let step = wanted.log2().ceil().exp2();
    marks(low, high, step, most, |at| Bytes(at.max(0.0) as u64).to_string().replace(".00", ""))
}

fn decimal_step(wanted: f64) -> f64 {
    if !wanted.is_finite() || wanted <= 0.0 {
        return 1.0;
    }
    let power = 10_f64.powi(wanted.log10().floor().clamp(-300.0, 300.0) as i32);
    [1.0, 2.0, 5.0]
        .into_iter()
        .map(|of| of * power)
        .find(|&step| step >= wanted * 0.999)
        .unwrap_or(10.0 * power)
}

fn marks(low: f64, high: f64, step: f64, most: usize, text: impl Fn(f64) -> String) -> Vec<Mark> {
    if !(low.is_finite() && high.is_finite() && step.is_finite() && step > 0.0 && low <= high) {
        return Vec::new();
    }
    let first = (low / step).ceil();
    (0..=most)
        .map(|index| (first + index as f64) * step)
        .take_while(|&at| at <= high + step * 1e-9)
        .map(|at| Mark { at, text: text(at) })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(marks: &[Mark]) -> Vec<&str> {
        marks.iter().map(|mark| mark.text.as_str()).collect()
    }

    #[test]
    fn marks_are_round_and_have_units() {
        assert_eq!(texts(&seconds(0.0, 1.1, 6)), ["0.0 s", "0.2 s", "0.4 s", "0.6 s", "0.8 s", "1.0 s"]);
        assert_eq!(texts(&seconds(0.0, 12.0, 4)), ["0 s", "5 s", "10 s"]);
        assert_eq!(texts(&seconds(0.0, 0.012, 4)), ["0 ms", "5 ms", "10 ms"]);
        assert_eq!(texts(&seconds(0.0, 0.000_04, 4)), ["0 us", "10 us", "20 us", "30 us", "40 us"]);
        assert_eq!(texts(&counts(0.0, 48.0, 5)), ["0", "10", "20", "30", "40"]);
        assert_eq!(texts(&counts(0.0, 3.0, 40)), ["0", "1", "2", "3"]);
        let gib = f64::from(1 << 30);
        assert_eq!(texts(&bytes(0.0, 3.0 * gib, 3)), ["0 B", "1 GiB", "2 GiB", "3 GiB"]);
        assert_eq!(texts(&bytes(0.9 * gib, 2.1 * gib, 3)), ["1 GiB", "1.50 GiB", "2 GiB"]);
    }

    #[test]
    fn strange_ranges_have_few_marks() {
        for (low, high) in
            [(0.0, 0.0), (f64::NAN, 1.0), (0.0, f64::INFINITY), (0.0, 1e300), (5.0, 1.0), (-1e300, 1e300)]
        {
            for most in [0, 1, 7] {
                assert!(seconds(low, high, most).len() <= most + 1, "{low} {high}");
                assert!(bytes(low, high, most).len() <= most + 1, "{low} {high}");
                assert!(counts(low, high, most).len() <= most + 1, "{low} {high}");
            }
        }
    }
}
