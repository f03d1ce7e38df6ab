//! CPU slots share the cores of their host, which no simulation of a plan without memory optimizations knows: what
//! to say of seconds on them.

use std::collections::BTreeMap;

use loadmaster_proto::cluster::device::CPU_KIND;
use loadmaster_proto::measure::host::Host;
use loadmaster_proto::plan::Plan;
use loadmaster_proto::warning::{Warning, WarningCode};

/// What to know of seconds on so many CPU slots of a host; none where each has cores of its own.
fn note(slots: u32, host: Option<Host>) -> Option<String> {
    let Some(Host { cores, threads, .. }) = host.filter(|_| slots > 0) else {
        return (slots > 0).then(|| {
            "the devices are CPU slots, which share the cores of their host, but the number of cores is not known. The \
             predicted seconds assume that no two slots share a core"
                .to_owned()
        });
    };
    (slots.saturating_mul(threads) > cores).then(|| {
        let threads = if threads == 1 { String::new() } else { format!(" of {threads} threads") };
        let cores = if cores == 1 { "the 1 core".to_owned() } else { format!("the {cores} cores") };
        format!(
            "{slots} CPU slots{threads} share {cores} of the profiled host. Slots that share a core wait for each \
             other. The predicted seconds do not contain this wait: they assume that no two slots share a core"
        )
    })
}

/// Of a plan, whenever it was stored; none where it has no seconds, its seconds contain what slots wait for cores, or no two of
/// its slots share one.
pub fn of_plan(plan: &Plan) -> Option<Warning> {
    plan.stages.iter().find(|stage| stage.seconds.is_some())?;
    let has_cores = plan.found.copy_rates.as_ref().is_some_and(|rates| !rates.cores.is_empty());
    if has_cores || plan.found.lane_rates.is_some() {
        return None;
    }
    // Slots of the node that has most of them. Devices that were named without a cluster are of one node.
    let mut slots: BTreeMap<&str, u32> = BTreeMap::new();
    for stage in plan.first_stages() {
        // Plans name their devices, but for those that were stored without.
        if stage.devices.is_empty() && plan.device_kind == CPU_KIND {
            *slots.entry("").or_default() += stage.config.devices();
        }
        let kind = |kind: &str| if kind.is_empty() { plan.device_kind == CPU_KIND } else { kind == CPU_KIND };
        for device in stage.devices.iter().filter(|device| kind(&device.kind)) {
            *slots.entry(&device.node).or_default() += 1;
        }
    }
    note(slots.into_values().max()?, plan.found.host).map(|why| WarningCode::CoresShared.says(why))
}

/// Of stages that are asked about on this kind of device: as many slots as they take, or as their pipeline has
/// stages.
pub fn of_stages(device_kind: &str, devices: usize, stages: u32, host: Option<Host>) -> Option<Warning> {
    let devices = u32::try_from(devices).unwrap_or(u32::MAX);
    let why = (device_kind == CPU_KIND).then(|| note(devices.max(stages), host)).flatten();
    why.map(|why| WarningCode::CoresShared.says(why))
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOST: Host = Host { cores: 4, threads: 1, contention_slowdown: 1.0, copies: None };

    /// Slots with cores of their own cause no warning. Slots that share cores, or may share them, cause one.
    #[test]
    fn slots_that_share_cores_are_told() {
        assert_eq!(
            (note(4, Some(HOST)), note(0, None), note(2, Some(Host { threads: 2, ..HOST }))),
            (None, None, None)
        );
        let more = note(5, Some(HOST)).unwrap();
        assert!(more.contains("5 CPU slots share the 4 cores"), "{more}");
        let threads = note(4, Some(Host { threads: 2, ..HOST })).unwrap();
        assert!(threads.contains("4 CPU slots of 2 threads share"), "{threads}");
        assert!(note(1, None).unwrap().contains("not known"));
    }
}
