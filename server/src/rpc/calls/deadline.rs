//! How long a call may take: as long as its client waits, and no longer than the planner lets.

use std::time::Duration;

use tonic::codegen::http::HeaderMap;

/// What is left of a client's patience for the way of the answer, so that it learns why there is none.
const WAY_BACK: Duration = Duration::from_millis(20);

/// The shorter of both.
pub(super) fn limit(headers: &HeaderMap, most: Duration) -> Duration {
    let asked = headers.get("grpc-timeout").and_then(|value| read(value.to_str().ok()?));
    asked.map_or(most, |asked| most.min(asked - WAY_BACK.min(asked / 10)))
}

/// The `grpc-timeout` header: up to 8 digits and a unit.
fn read(text: &str) -> Option<Duration> {
    let (digits, unit) = text.split_at_checked(text.len().checked_sub(1)?)?;
    if digits.is_empty() || digits.len() > 8 || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let count: u64 = digits.parse().ok()?;
    match unit {
        "H" => Some(Duration::from_secs(count * 3_600)),
        "M" => Some(Duration::from_secs(count * 60)),
        "S" => Some(Duration::from_secs(count)),
        "m" => Some(Duration::from_millis(count)),
        "u" => Some(Duration::from_micros(count)),
        "n" => Some(Duration::from_nanos(count)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_shorter_patience_counts_and_leaves_time_for_the_way_back() {
        let of = |value: &str| {
            let mut headers = HeaderMap::new();
            headers.insert("grpc-timeout", value.parse().unwrap());
            limit(&headers, Duration::from_secs(60)).as_micros()
        };
        assert_eq!(limit(&HeaderMap::new(), Duration::from_secs(60)), Duration::from_secs(60));
        assert_eq!(of("5S"), 4_980_000);
        assert_eq!(of("10m"), 9_000);
        assert_eq!(of("99999999H"), 60_000_000);
        for nonsense in ["", "S", "123456789S", "1.5S", "-1S", "15"] {
            assert_eq!(of(nonsense), 60_000_000, "{nonsense:?}");
        }
    }
}
