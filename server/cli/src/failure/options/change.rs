//! Changes of a request as options, or as fields of a request file where no option sets them.

use loadmaster_proto::bytes::Bytes;
use loadmaster_proto::wire::v1;
use loadmaster_show::choice::word_of;
use prost_types::value::Kind;

use super::{OptionTable, find};

/// Returns a change as an option with its value; as a line of a request file where no option sets the field.
pub(crate) fn typed(change: &v1::FieldChange, table: OptionTable) -> String {
    let is_bytes = change.field.ends_with("_bytes");
    let option = find(&change.field, table).map(|option| option.split([':', '*']).next().unwrap_or(option));
    let Some(option) = option else {
        let value = change.value.as_ref().and_then(|value| value.kind.as_ref());
        let value = value.map_or_else(|| "null".to_owned(), |value| in_file(value, is_bytes));
        return format!("in a request file (-f), {}: {value}", change.field);
    };
    match change.value.as_ref().and_then(|value| value.kind.as_ref()) {
        Some(Kind::BoolValue(true)) => option.to_owned(),
        None | Some(Kind::BoolValue(false) | Kind::NullValue(_)) => format!("without {option}"),
        Some(Kind::ListValue(list)) if list.values.is_empty() => format!("without {option}"),
        Some(value) => {
            let value = value_of(value, is_bytes);
            let is_plain = !value.contains(|letter: char| letter.is_whitespace() || letter == '\'');
            if is_plain { format!("{option} {value}") } else { format!("{option} '{value}'") }
        }
    }
}

/// A value in YAML.
fn in_file(value: &Kind, is_bytes: bool) -> String {
    let kind = |value: &prost_types::Value| {
        value.kind.as_ref().map(|kind| in_file(kind, is_bytes)).unwrap_or_default()
    };
    match value {
        Kind::NullValue(_) => "null".to_owned(),
        Kind::StringValue(text) => text.clone(),
        Kind::ListValue(list) => format!("[{}]", list.values.iter().map(kind).collect::<Vec<_>>().join(", ")),
        Kind::StructValue(group) => {
            let fields = group.fields.iter().map(|(name, value)| format!("{name}: {}", kind(value)));
            format!("{{{}}}", fields.collect::<Vec<_>>().join(", "))
        }
        Kind::BoolValue(_) | Kind::NumberValue(_) => value_of(value, is_bytes),
    }
}

fn value_of(value: &Kind, is_bytes: bool) -> String {
    match value {
        Kind::NullValue(_) => String::new(),
        Kind::BoolValue(is) => is.to_string(),
        Kind::NumberValue(number) if is_bytes => Bytes(whole(*number)).exact(),
        Kind::NumberValue(number) => number.to_string(),
        Kind::StringValue(text) => word_of(text).unwrap_or_else(|| text.clone()),
        Kind::ListValue(list) => {
            let kinds = list.values.iter().filter_map(|value| value.kind.as_ref());
            kinds.map(|kind| value_of(kind, is_bytes)).collect::<Vec<_>>().join(",")
        }
        Kind::StructValue(group) => {
            let kind = |name: &str| group.fields.get(name).and_then(|value| value.kind.as_ref());
            let number = |name: &str| match kind(name) {
                Some(Kind::NumberValue(number)) => whole(*number),
                _ => 0,
            };
            let name = match kind("kind") {
                Some(Kind::StringValue(name)) if !name.is_empty() => format!(":{name}"),
                _ => String::new(),
            };
            format!("{}x{}{name}", number("count"), Bytes(number("capacityBytes")).exact())
        }
    }
}

/// A number of the planner's, which is no negative one.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "the cast saturates")]
fn whole(number: f64) -> u64 {
    number as u64
}

#[cfg(test)]
mod tests {
    use super::super::PLAN_RECOMMEND;
    use super::*;
    use loadmaster_proto::plan::change::FieldChange;
    use serde_json::json;

    #[test]
    fn changes_are_written_as_options() {
        let written = |field, value: serde_json::Value| {
            typed(&(&FieldChange::new(field, value)).into(), PLAN_RECOMMEND)
        };
        assert_eq!(written("problem.micro_batch_size", json!(2)), "--micro-batch-size 2");
        assert_eq!(written("problem.schedule", json!("SCHEDULE_ONE_F_ONE_B")), "--schedule 1f1b");
        assert_eq!(written("memory.host_memory_bytes", json!(3 << 20)), "--host-memory 3MiB");
        assert_eq!(written("constraints.allow_idle_devices", json!(true)), "--allow-idle-devices");
        let groups = json!([{ "count": 5, "capacityBytes": 2u64 << 30, "kind": "NVIDIA H200" }]);
        assert_eq!(written("problem.devices", groups), "--devices '5x2GiB:NVIDIA H200'");
        let blocks = json!(["MEMORY_BLOCK_ACTIVATIONS", "MEMORY_BLOCK_WEIGHTS"]);
        assert_eq!(
            written("memory.blocks", blocks),
            "in a request file (-f), memory.blocks: [MEMORY_BLOCK_ACTIVATIONS, MEMORY_BLOCK_WEIGHTS]"
        );
        assert_eq!(
            written("memory.min_block_bytes", json!(3 << 20)),
            "in a request file (-f), memory.min_block_bytes: 3MiB"
        );
        assert_eq!(written("memory.optimizations", json!([])), "without --optimizations");
    }
}
