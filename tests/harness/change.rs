//! A request with the changes that a response proposes, made as any client can: in its JSON form.

use anyhow::{Context as _, Result, ensure};
use loadmaster_proto::wire::{DESCRIPTORS, v1};
use prost::Message as _;
use prost_reflect::{DescriptorPool, DynamicMessage};
use serde_json::Value;

/// Returns the request with new values in these fields.
///
/// # Errors
/// A path that the request does not have, or a value that is not one of its field.
pub fn with_changes(
    request: &v1::RecommendPlanRequest,
    changes: &[v1::FieldChange],
) -> Result<v1::RecommendPlanRequest> {
    let pool = DescriptorPool::decode(DESCRIPTORS)?;
    let of = pool.get_message_by_name("loadmaster.v1.RecommendPlanRequest").context("no such message")?;
    let message = DynamicMessage::decode(of.clone(), request.encode_to_vec().as_slice())?;
    let mut json = serde_json::to_value(&message)?;
    for change in changes {
        let value = serde_json::to_value(dynamic(&pool, change)?)?;
        let value = value.get("value").cloned().unwrap_or(Value::Null);
        let mut place = &mut json;
        for name in change.field.split('.') {
            if !place.is_object() {
                *place = Value::Object(serde_json::Map::new());
            }
            place = place.as_object_mut().context("an object")?.entry(camel(name)).or_insert(Value::Null);
        }
        *place = value;
    }
    let text = json.to_string();
    let mut reader = serde_json::Deserializer::from_str(&text);
    let message = DynamicMessage::deserialize(of, &mut reader).with_context(|| text.clone())?;
    let changed: v1::RecommendPlanRequest = message.transcode_to()?;
    ensure!(changed != *request, "{changes:?} change nothing");
    Ok(changed)
}

fn dynamic(pool: &DescriptorPool, change: &v1::FieldChange) -> Result<DynamicMessage> {
    let of = pool.get_message_by_name("loadmaster.v1.FieldChange").context("no such message")?;
    Ok(DynamicMessage::decode(of, change.encode_to_vec().as_slice())?)
}

/// `micro_batch_size` as JSON has it.
fn camel(name: &str) -> String {
    let mut words = name.split('_');
    let first = words.next().unwrap_or_default().to_owned();
    words.fold(first, |name, word| {
        let (initial, rest) = word.split_at(1.min(word.len()));
        name + &initial.to_uppercase() + rest
    })
}
