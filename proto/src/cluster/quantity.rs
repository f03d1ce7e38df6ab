//! Bandwidths and latencies human-readable: `371GB/s`, `400Gb/s`, `3us`.

/// Bytes per second of a text: a number and `B/s`, `kB/s`, `MB/s`, `GB/s`, `TB/s` (powers of 1,000), `KiB/s` to
/// `TiB/s` (of 1,024), or bits as `Mb/s`, `Gb/s`, `Tb/s` (`Gbit/s`, `Gbps`). A bare number is bytes per second.
///
/// # Errors
/// Says what to write. A negative number is read, so that the caller's check can report it.
pub fn bytes_per_second(text: &str) -> Result<f64, String> {
    let (number, unit) = split(text);
    let unit = unit.trim_end_matches("/s").trim_end_matches("ps");
    let factor = match unit {
        "" | "B" => 1.0,
        "kB" | "KB" => 1e3,
        "MB" => 1e6,
        "GB" => 1e9,
        "TB" => 1e12,
        "KiB" => 1024.0,
        "MiB" => 1024.0 * 1024.0,
        "GiB" => 1024.0 * 1024.0 * 1024.0,
        "TiB" => 1024.0 * 1024.0 * 1024.0 * 1024.0,
        "Mb" | "Mbit" => 1e6 / 8.0,
        "Gb" | "Gbit" => 1e9 / 8.0,
        "Tb" | "Tbit" => 1e12 / 8.0,
        _ => f64::NAN,
    };
    scaled(number, factor)
        .ok_or_else(|| format!("{text:?} is not a bandwidth. Use for example 371GB/s, 12.5GiB/s or 400Gb/s"))
}

/// Seconds of a text: a number and `s`, `ms`, `us`, `ns`; a bare number is seconds.
///
/// # Errors
/// Says what to write.
pub fn seconds(text: &str) -> Result<f64, String> {
    let (number, unit) = split(text);
    let factor = match unit {
        "" | "s" => 1.0,
        "ms" => 1e-3,
        "us" | "µs" | "μs" => 1e-6,
        "ns" => 1e-9,
        _ => f64::NAN,
    };
    scaled(number, factor).ok_or_else(|| format!("{text:?} is not a latency. Use for example 3us or 800ns"))
}

/// Parameters per second of a text: a number above 0 and `k`, `M` or `G` for thousands, millions or billions, with or without `/s`.
///
/// # Errors
/// Says what to write.
pub fn parameters_per_second(text: &str) -> Result<f64, String> {
    let bare = text.trim().trim_end_matches("/s").trim_end();
    let units = [('k', 1e3), ('M', 1e6), ('G', 1e9)];
    let (number, unit) = units
        .into_iter()
        .find_map(|(letter, unit)| Some((bare.strip_suffix(letter)?, unit)))
        .unwrap_or((bare, 1.0));
    let rate = number.trim_end().parse::<f64>().ok().map(|number| number * unit);
    rate.filter(|rate| rate.is_finite() && *rate > 0.0)
        .ok_or_else(|| "use parameters per second above 0, for example 150M/s (M is a million)".to_owned())
}

/// Human-readable: `150.0 M parameters/s`.
pub fn show_parameters_per_second(value: f64) -> String {
    format!("{:.1} M parameters/s", value / 1e6)
}

/// Human-readable: `371 GB/s`.
pub fn show_bytes_per_second(value: f64) -> String {
    let units = [("TB/s", 1e12), ("GB/s", 1e9), ("MB/s", 1e6), ("kB/s", 1e3), ("B/s", 1.0)];
    show(value, &units)
}

/// Human-readable: `3 µs`, in ASCII `3 us`.
pub fn show_seconds(value: f64, unicode: bool) -> String {
    let micro = if unicode { "µs" } else { "us" };
    show(value, &[("s", 1.0), ("ms", 1e-3), (micro, 1e-6), ("ns", 1e-9)])
}

fn show(value: f64, units: &[(&str, f64)]) -> String {
    let fitting = units.iter().find(|(_, size)| value >= *size).or_else(|| units.last());
    let (unit, size) = fitting.copied().unwrap_or(("", 1.0));
    format!("{} {unit}", digits(value / size))
}

/// Three digits: as much as is known of a link.
pub fn digits(value: f64) -> String {
    let text = match value {
        _ if value >= 100.0 => format!("{value:.0}"),
        _ if value >= 10.0 => format!("{value:.1}"),
        _ => format!("{value:.2}"),
    };
    let text = if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.') } else { &text };
    text.to_owned()
}

fn split(text: &str) -> (&str, &str) {
    let text = text.trim();
    let is_number = |c: char| c.is_ascii_digit() || matches!(c, '.' | '-' | '+');
    let end = text.find(|c: char| !is_number(c)).unwrap_or(text.len());
    let (number, unit) = text.split_at(end);
    (number.trim(), unit.trim())
}

fn scaled(number: &str, factor: f64) -> Option<f64> {
    let value = number.parse::<f64>().ok()? * factor;
    value.is_finite().then_some(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bits_are_eighths_of_bytes_and_units_are_decimal_unless_written_binary() {
        assert_eq!(bytes_per_second("371GB/s"), Ok(371e9));
        assert_eq!(bytes_per_second("400 Gb/s"), Ok(50e9));
        assert_eq!(bytes_per_second("400Gbps"), Ok(50e9));
        assert_eq!(bytes_per_second("400Gbit/s"), Ok(50e9));
        assert_eq!(bytes_per_second("1GiB/s"), Ok(1024.0 * 1024.0 * 1024.0));
        assert_eq!(bytes_per_second("1000"), Ok(1000.0));
        assert_eq!(bytes_per_second("-1GB/s"), Ok(-1e9));
        for wrong in ["", "GB/s", "fast", "1 parsec", "1e999", "inf", "nan", "1..2GB/s"] {
            assert!(bytes_per_second(wrong).is_err(), "{wrong:?}");
        }
        assert_eq!(seconds("800ns").map(|s| (s * 1e9).round()), Ok(800.0));
        assert_eq!(seconds("3us").map(|s| (s * 1e6).round()), Ok(3.0));
        assert!(seconds("3 minutes").is_err());
    }

    #[test]
    fn a_rate_of_updates_is_in_powers_of_a_thousand() {
        for (text, rate) in [("150M/s", 150e6), ("1.5G/s", 1.5e9), ("800 k/s", 8e5), ("2e8", 2e8)] {
            assert_eq!(parameters_per_second(text), Ok(rate), "{text}");
        }
        for wrong in ["", "0", "-1M/s", "M/s", "150MB/s", "nan", "inf", "fast", "1e308G"] {
            assert!(parameters_per_second(wrong).is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn three_digits_and_a_unit() {
        assert_eq!(show_bytes_per_second(370.8e9), "371 GB/s");
        assert_eq!(show_bytes_per_second(12e9), "12 GB/s");
        assert_eq!(show_bytes_per_second(20.6e9), "20.6 GB/s");
        assert_eq!(show_seconds(3e-6, false), "3 us");
        assert_eq!(show_seconds(0.0, true), "0 ns");
    }
}
