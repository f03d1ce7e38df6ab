//! The command that usually comes next, ready to be typed.

use loadmaster_proto::bytes::Bytes;
use loadmaster_proto::wire::v1;

use super::context::Context;
use crate::output::Format;

/// Workers that are asked for their devices, the newest.
const MOST_WORKERS: i32 = 1_000;
/// Devices that are suggested where no worker has any.
const ANY: &str = "4x24GiB";

/// After a profile that is complete, a plan. A remark, outside of standard output.
pub(crate) async fn after_profile(context: &Context, profile: &v1::Profile) {
    let complete = profile.state == i32::from(v1::profile::State::Complete);
    if context.quiet || context.output.format != Format::Table || !complete {
        return;
    }
    let request = v1::ListWorkersRequest { page_size: MOST_WORKERS, ..Default::default() };
    let listed = context.client.call(request).await;
    let workers = listed.map_or_else(|_| Vec::new(), |listed| listed.workers);
    let id = loadmaster_show::text::plain(profile.name.rsplit('/').next().unwrap_or_default());
    context.remark(&format!("next:  {}", recommend(&id, &workers, &profile.device_kind)));
}

/// A plan for all devices of a kind that take runs. What is named without a cluster is taken to be in one node, so those of several
/// workers are made one first.
fn recommend(profile: &str, workers: &[v1::Worker], kind: &str) -> String {
    let alive = workers.iter().filter(|worker| worker.state == i32::from(v1::worker::State::Alive));
    let of = |worker: &v1::Worker| -> Vec<i64> {
        let devices = worker.devices.iter().filter(|device| device.kind == kind);
        devices.map(|device| device.capacity_bytes).filter(|&bytes| bytes > 0).collect()
    };
    let capacities: Vec<Vec<i64>> = alive.map(of).filter(|capacities| !capacities.is_empty()).collect();
    let recommend = format!("loadmaster plan recommend --profile {profile}");
    match capacities.as_slice() {
        [] => format!("{recommend} --devices {ANY}"),
        [only] => {
            let least = only.iter().copied().min().unwrap_or_default();
            format!("{recommend} --devices {}x{}", only.len(), Bytes::from_wire(least).exact())
        }
        _ => format!("loadmaster cluster discover --id workers && {recommend} --cluster workers"),
    }
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
        let none = "loadmaster plan recommend --profile p --devices 4x24GiB";
        let told = |workers: &[v1::Worker], kind| recommend("p", workers, kind);
        assert_eq!(
            told(&[alive.clone(), gone.clone()], "cpu"),
            "loadmaster plan recommend --profile p --devices 3x1536MiB"
        );
        assert_eq!(told(&[gone], "cpu"), none);
        assert_eq!(told(std::slice::from_ref(&alive), "NVIDIA H200"), none);
        // Nodes of their own, which no number of devices says.
        assert_eq!(
            told(&[alive.clone(), alive], "cpu"),
            "loadmaster cluster discover --id workers && loadmaster plan recommend --profile p --cluster workers"
        );
    }
}
