//! The command that usually comes next, ready to be typed.

use loadmaster_proto::wire::v1;

use super::client::workers;
use super::context::Context;
use crate::output::Format;

/// Workers that are asked for their devices, the newest.
const MOST_WORKERS: i32 = 1_000;
/// Devices that are suggested where nobody has any.
const ANY: &str = "4x24GiB";

/// After a profile that is complete, a plan. A remark, so that it is in nobody's way.
pub(crate) async fn after_profile(context: &Context, profile: &v1::Profile) {
    let complete = profile.state == i32::from(v1::profile::State::Complete);
    if context.quiet || context.output.format != Format::Table || !complete {
        return;
    }
    let request = v1::ListWorkersRequest { page_size: MOST_WORKERS, ..Default::default() };
    let listed =
        context.client.call(request, async |channel, q| workers(channel).list_workers(q).await).await;
    let devices = listed.ok().and_then(|listed| devices(&listed.workers, &profile.device_kind));
    context.remark(&format!(
        "next:  loadmaster plan recommend --profile {} --devices {}",
        loadmaster_show::text::plain(profile.name.rsplit('/').next().unwrap_or_default()),
        devices.unwrap_or_else(|| ANY.to_owned())
    ));
}

/// All devices of a kind that take runs, as `--devices` wants them.
fn devices(workers: &[v1::Worker], kind: &str) -> Option<String> {
    let alive = workers.iter().filter(|worker| worker.state == i32::from(v1::worker::State::Alive));
    let devices = alive.flat_map(|worker| &worker.devices).filter(|device| device.kind == kind);
    let capacities: Vec<i64> =
        devices.map(|device| device.capacity_bytes).filter(|&bytes| bytes > 0).collect();
    let least = capacities.iter().min()?;
    Some(format!("{}x{}", capacities.len(), exact(*least)))
}

/// Bytes in the largest unit that divides them.
fn exact(bytes: i64) -> String {
    [("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)]
        .into_iter()
        .find(|&(_, unit)| bytes % unit == 0)
        .map_or_else(|| bytes.to_string(), |(name, unit)| format!("{}{name}", bytes / unit))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn worker(state: v1::worker::State, capacities: &[i64]) -> v1::Worker {
        let device = |&capacity_bytes: &i64| v1::Device {
            kind: "cpu".to_owned(),
            capacity_bytes,
            ..v1::Device::default()
        };
        v1::Worker {
            state: state.into(),
            devices: capacities.iter().map(device).collect(),
            ..Default::default()
        }
    }

    #[test]
    fn the_devices_that_are_there_are_suggested() {
        let alive = worker(v1::worker::State::Alive, &[2 << 30, 2 << 30, 3 << 29]);
        let gone = worker(v1::worker::State::Gone, &[1 << 20]);
        assert_eq!(devices(&[alive.clone(), gone.clone()], "cpu").as_deref(), Some("3x1536MiB"));
        assert_eq!(devices(&[gone], "cpu"), None);
        assert_eq!(devices(&[alive], "NVIDIA H200"), None);
        assert_eq!(exact(1_000), "1000");
    }
}
