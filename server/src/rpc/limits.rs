//! Checks that several services share.

use loadmaster_proto::error::{Invalid, in_range};
use loadmaster_proto::model::layer::fingerprint;
use prost::Message;
use uuid::Uuid;

use crate::store::records::RequestKey;

const DEFAULT_DEADLINE_SECONDS: i32 = 600;
const MAX_DEADLINE_SECONDS: i32 = 86_400;

/// The key of a call that may be retried; none without a `request_id`. `request` is the call without
/// its id.
///
/// # Errors
/// When the id is not a UUID.
pub(super) fn request_key(request_id: &str, request: &impl Message) -> Result<Option<RequestKey>, Invalid> {
    if request_id.is_empty() {
        return Ok(None);
    }
    let id = Uuid::parse_str(request_id)
        .map_err(|_| Invalid::field("request_id", format!("is {request_id:?}, must be a UUID")))?;
    Ok(Some(RequestKey { id, fingerprint: fingerprint(&request.encode_to_vec()) }))
}

/// The hard limit of one attempt, seconds.
///
/// # Errors
/// When it is negative or longer than a day.
pub(super) fn deadline_seconds(seconds: i32) -> Result<u32, Invalid> {
    let seconds = if seconds == 0 { DEFAULT_DEADLINE_SECONDS } else { seconds };
    in_range("run_deadline_seconds", seconds, 1..=MAX_DEADLINE_SECONDS).map(i32::unsigned_abs)
}

/// A count where 0 means `default`.
///
/// # Errors
/// When it is negative or above `max`.
pub(super) fn count_or(field: &str, value: i32, default: u32, max: u32) -> Result<u32, Invalid> {
    match u32::try_from(value) {
        Ok(0) => Ok(default),
        Ok(value) => in_range(field, value, 1..=max),
        Err(_) => Err(Invalid::field(field, format!("is {value}, must be 1 to {max}"))),
    }
}
