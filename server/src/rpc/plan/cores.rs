//! What answers in seconds say of CPU slots that share cores.

use std::collections::BTreeMap;

use loadmaster_proto::cluster::device::CPU_KIND;

use loadmaster_planning::cores::note;
use loadmaster_proto::measure::environment::Host;
use loadmaster_proto::plan::Plan;

/// Of a plan, whenever it was stored; none where it has no seconds, or no two of its slots share a core.
pub(super) fn of_plan(content: &Plan) -> Option<String> {
    content.stages.iter().find(|stage| stage.seconds.is_some())?;
    // Slots of the node that has most of them. Devices that were named without a cluster are of one node.
    let mut slots: BTreeMap<&str, u32> = BTreeMap::new();
    for stage in &content.stages {
        // Plans name their devices, but for those that were stored without.
        if stage.devices.is_empty() && content.device_kind == CPU_KIND {
            *slots.entry("").or_default() += stage.config.devices();
        }
        let kind =
            |kind: &str| if kind.is_empty() { content.device_kind == CPU_KIND } else { kind == CPU_KIND };
        for device in stage.devices.iter().filter(|device| kind(&device.kind)) {
            *slots.entry(&device.node).or_default() += 1;
        }
    }
    note(slots.into_values().max()?, content.found.host)
}

/// Of stages that are asked about on this kind of device: as many slots as they take, or as their pipeline has
/// stages.
pub(super) fn of_stages(
    device_kind: &str,
    devices: usize,
    stages: u32,
    host: Option<Host>,
) -> Option<String> {
    let devices = u32::try_from(devices).unwrap_or(u32::MAX);
    (device_kind == CPU_KIND).then(|| note(devices.max(stages), host)).flatten()
}
