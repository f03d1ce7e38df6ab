//! What devices are that nobody describes: those that the plan was made for, as far as these are alike.

use std::collections::BTreeMap;

use loadmaster_proto::bytes::Bytes;
use loadmaster_proto::plan::Plan;

/// The kinds of a plan's devices, and the bytes that each of them allows; none where some allow more than others, since nobody says
/// then how many a device has that was given.
pub fn usual_kinds(plan: &Plan) -> BTreeMap<&str, Option<Bytes>> {
    let mut kinds: BTreeMap<&str, Option<Bytes>> = BTreeMap::new();
    let mut add = |kind, capacity| {
        let known = kinds.entry(kind).or_insert(Some(Bytes(capacity)));
        *known = known.filter(|&known| known == Bytes(capacity));
    };
    for stage in &plan.stages {
        if stage.devices.is_empty() {
            add(plan.device_kind.as_str(), stage.capacity);
        }
        for device in &stage.devices {
            let kind = Some(device.kind.as_str()).filter(|kind| !kind.is_empty());
            add(kind.unwrap_or(&plan.device_kind), device.capacity);
        }
    }
    kinds
}
