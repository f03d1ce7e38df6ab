//! How much time a call has.

use std::time::Duration;

use http::{HeaderMap, HeaderValue};
use tokio::time::Instant;

use super::refusal::Refusal;
use crate::rpc::limits::MAX_STREAM_TIME;

/// Longest time to an answer; streams are bounded by their own rules once open.
pub(in crate::rpc) const CALL_TIMEOUT: Duration = Duration::from_secs(60);

/// Where callers say how much.
pub(in crate::rpc) const HEADER: &str = "grpc-timeout";

/// What is left until `deadline`, as a caller would say it.
pub(super) fn left(deadline: Instant) -> HeaderValue {
    let left = deadline.saturating_duration_since(Instant::now()).as_millis();
    // No call has more than fits.
    HeaderValue::from_str(&format!("{left}m")).unwrap_or(HeaderValue::from_static("1m"))
}

/// What the caller allows, and no more than the planner does.
///
/// # Errors
/// When the header is not one: a time-out that cannot be read, or is negative, must not become the longest one.
pub(super) fn of(headers: &HeaderMap) -> Result<Duration, Refusal> {
    let Some(value) = headers.get(HEADER) else { return Ok(CALL_TIMEOUT) };
    let asked = value.to_str().ok().and_then(parse).ok_or(Refusal::Timeout)?;
    Ok(asked.min(CALL_TIMEOUT))
}

/// What the caller of a stream allows, and no more than the planner does. A header that cannot be read was refused before.
pub(super) fn of_stream(headers: &HeaderMap) -> Duration {
    let asked = headers.get(HEADER).and_then(|value| parse(value.to_str().ok()?));
    asked.map_or(MAX_STREAM_TIME, |asked| asked.min(MAX_STREAM_TIME))
}

/// Up to 8 digits and a unit, as gRPC over HTTP/2 specifies.
pub(in crate::rpc) fn parse(text: &str) -> Option<Duration> {
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

    /// The header of the gRPC specification, and nothing else.
    #[test]
    fn timeouts_of_calls_are_read() {
        assert_eq!(parse("15S"), Some(Duration::from_secs(15)));
        assert_eq!(parse("250m"), Some(Duration::from_millis(250)));
        assert_eq!(parse("1H"), Some(Duration::from_secs(3_600)));
        for wrong in ["", "S", "15", "1.5S", "-1S", "123456789S", "15ſ"] {
            assert_eq!(parse(wrong), None, "{wrong:?}");
        }
    }

    fn limit(text: &str) -> Result<Duration, Refusal> {
        let mut headers = HeaderMap::new();
        headers.insert("grpc-timeout", text.parse().unwrap());
        of(&headers)
    }

    #[test]
    fn a_stream_may_take_longer_than_a_call() {
        let mut headers = HeaderMap::new();
        assert_eq!(of_stream(&headers), MAX_STREAM_TIME);
        headers.insert(HEADER, "10M".parse().unwrap());
        assert_eq!(of_stream(&headers), Duration::from_secs(600));
        headers.insert(HEADER, "100H".parse().unwrap());
        assert_eq!(of_stream(&headers), MAX_STREAM_TIME);
    }

    #[test]
    fn a_time_out_that_makes_no_sense_is_refused_and_not_the_longest() {
        assert_eq!(limit("250m").unwrap(), Duration::from_millis(250));
        assert_eq!(limit("99999999H").unwrap(), CALL_TIMEOUT);
        assert_eq!(of(&HeaderMap::new()).unwrap(), CALL_TIMEOUT);
        assert!(limit(left(Instant::now() + CALL_TIMEOUT).to_str().unwrap()).unwrap() <= CALL_TIMEOUT);
        assert_eq!(limit(left(Instant::now()).to_str().unwrap()).unwrap(), Duration::ZERO);
        for wrong in ["-1S", "S", "15", "1.5S", "123456789S", "1x"] {
            assert!(matches!(limit(wrong), Err(Refusal::Timeout)), "{wrong:?}");
        }
    }
}
