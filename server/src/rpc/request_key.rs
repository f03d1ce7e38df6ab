//! Calls that may be retried.

use loadmaster_proto::error::Invalid;
use loadmaster_proto::model::layer::fingerprint;
use prost::Message;
use uuid::Uuid;

use crate::store::records::RequestKey;

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
