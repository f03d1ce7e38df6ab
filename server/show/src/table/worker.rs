//! Workers and their devices.

use loadmaster_proto::cluster::quantity;
use loadmaster_proto::wire::v1::worker::State;
use loadmaster_proto::wire::v1::{Backend, CopyBandwidth, Device, LinkClass, Worker};

use super::grid::Side::{Left, Right};
use super::grid::{Facts, Grid};
use super::{id, or_none};
use crate::show;
use crate::text::terminal_abilities::Look;
use crate::text::{bytes, plain, plural, time, word};

show!(Worker as one);
show!(ListWorkersResponse of workers as list);

fn one(worker: &Worker, look: Look) -> String {
    let mut facts = Facts::default();
    facts.add("worker", &worker.name);
    facts.add("state", state(worker));
    facts.add("host", or_none(&worker.host, look));
    facts.add("version", or_none(&worker.version, look));
    facts.add("libtorch", or_none(&worker.libtorch_version, look));
    if worker.core_count > 0 {
        let threads = plural(worker.thread_count, "thread");
        facts.add("cores", format!("{}, {threads} per rank", worker.core_count));
    }
    facts.add("host memory", host_memory(worker, look));
    if let Some(pace) = &worker.copy_bandwidth {
        facts.add("copies", copies(pace));
    }
    facts.add("commands", or_none(&worker.custom_profilers.join(", "), look));
    facts.add("first contact", time(worker.create_time.as_ref(), look));
    facts.add("last contact", time(worker.heartbeat_time.as_ref(), look));
    facts.add("runs", or_none(&worker.runs.join(", "), look));
    if worker.devices.is_empty() {
        return facts.render();
    }
    let mut grid = Grid::new(
        &[
            ("device", Left),
            ("backend", Left),
            ("kind", Left),
            ("capacity (allowed to training)", Right),
            ("physical (device)", Right),
            ("driver", Left),
        ],
        look,
    );
    for device in &worker.devices {
        let backend = Backend::try_from(device.backend)
            .map_or_else(|_| "unknown".to_owned(), |backend| word(backend.as_str_name(), "BACKEND_"));
        grid.row([
            plain(&device.id),
            backend,
            plain(&device.kind),
            bytes(device.capacity_bytes),
            bytes(device.physical_bytes),
            or_none(&device.driver_version, look),
        ]);
    }
    facts.render() + "\n" + &grid.render() + &links(worker, look)
}

/// What the driver says of the links between the GPUs; what was measured of them, `cluster links` shows.
fn links(worker: &Worker, look: Look) -> String {
    if worker.gpu_links.is_empty() {
        return String::new();
    }
    let columns = [
        ("between GPUs (driver)", Left),
        ("", Left),
        ("class", Left),
        ("NVLinks", Right),
        ("compute capability", Right),
        ("PCIe generation", Right),
        ("lanes", Right),
    ];
    let mut grid = Grid::new(&columns, look);
    let device = |uuid: &str| {
        let known = worker.devices.iter().find(|device| device.uuid == uuid);
        known.map_or_else(|| plain(uuid), |device| plain(&device.id))
    };
    let known = |value: i32| if value > 0 { value.to_string() } else { look.none().to_owned() };
    for link in &worker.gpu_links {
        let class = LinkClass::try_from(link.link_class)
            .map_or_else(|_| "unknown".to_owned(), |class| word(class.as_str_name(), "LINK_CLASS_"));
        grid.row([
            device(&link.a_uuid),
            device(&link.b_uuid),
            class,
            known(link.nvlink_count),
            known(link.compute_capability),
            known(link.pcie_generation),
            known(link.pcie_lanes),
        ]);
    }
    format!("\n{}", grid.render())
}

fn list(workers: &[Worker], look: Look) -> String {
    if workers.is_empty() {
        return "no workers\n".to_owned();
    }
    grid(workers, look).render()
}

/// A row for each.
pub fn grid(workers: &[Worker], look: Look) -> Grid {
    let mut grid = Grid::new(
        &[
            ("worker", Left),
            ("state", Left),
            ("host", Left),
            ("devices (capacity)", Left),
            ("host memory", Right),
            ("version", Left),
            ("runs", Right),
            ("last contact", Left),
        ],
        look,
    );
    for worker in workers {
        grid.row([
            id(&worker.name),
            state(worker),
            or_none(&worker.host, look),
            or_none(&devices(&worker.devices, look), look),
            host_memory(worker, look),
            or_none(&worker.version, look),
            worker.runs.len().to_string(),
            time(worker.heartbeat_time.as_ref(), look),
        ]);
    }
    grid
}

fn state(worker: &Worker) -> String {
    State::try_from(worker.state).map_or_else(|_| "unknown".to_owned(), |s| word(s.as_str_name(), ""))
}

/// What it offers of its host's memory.
fn host_memory(worker: &Worker, look: Look) -> String {
    if worker.host_memory_bytes > 0 { bytes(worker.host_memory_bytes) } else { look.none().to_owned() }
}

/// `CPU slots at most 1 GB/s with the host, 8 GB/s with a peer, each way`.
fn copies(pace: &CopyBandwidth) -> String {
    let rate = |rate: Option<f64>, with: &str| {
        rate.map(|rate| format!("{} with {with}", quantity::show_bytes_per_second(rate)))
    };
    let rates = [rate(pace.host_bytes_per_second, "the host"), rate(pace.peer_bytes_per_second, "a peer")];
    format!("CPU slots at most {}, each way", rates.into_iter().flatten().collect::<Vec<_>>().join(", "))
}

/// Equal devices together: `4 × cpu 2.00 GiB`.
fn devices(devices: &[Device], look: Look) -> String {
    let mut groups: Vec<(&str, i64, usize)> = Vec::new();
    for device in devices {
        let same =
            |group: &&mut (&str, i64, usize)| group.0 == device.kind && group.1 == device.capacity_bytes;
        match groups.iter_mut().find(same) {
            Some(group) => group.2 += 1,
            None => groups.push((&device.kind, device.capacity_bytes, 1)),
        }
    }
    let group = |(kind, capacity, count): (&str, i64, usize)| {
        format!("{count} {} {} {}", look.times(), plain(kind), bytes(capacity))
    };
    groups.into_iter().map(group).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_devices_are_counted() {
        let device = |kind: &str, gib: i64| Device {
            kind: kind.to_owned(),
            capacity_bytes: gib << 30,
            ..Device::default()
        };
        let worker = Worker {
            name: "workers/node1".to_owned(),
            state: State::Alive.into(),
            devices: vec![device("cpu", 2), device("cpu", 2), device("cpu", 4)],
            runs: vec!["runs/1".to_owned()],
            ..Worker::default()
        };
        assert_eq!(
            list(&[worker], Look::UNICODE),
            "worker  state  host  devices (capacity)                  host memory  version  runs  last contact\n\
             node1   alive  –     2 × cpu 2.00 GiB, 1 × cpu 4.00 GiB            –  –           1  –\n"
        );
        assert_eq!(list(&[], Look::PLAIN), "no workers\n");
    }

    #[test]
    fn what_a_worker_offers_of_its_host_has_units() {
        let pace = CopyBandwidth { host_bytes_per_second: Some(1e9), peer_bytes_per_second: Some(8.5e9) };
        let worker = Worker { host_memory_bytes: 64 << 30, copy_bandwidth: Some(pace), ..Worker::default() };
        let shown = one(&worker, Look::PLAIN);
        for told in ["64.00 GiB", "CPU slots at most 1 GB/s with the host, 8.5 GB/s with a peer, each way"] {
            assert!(shown.contains(told), "{told}:\n{shown}");
        }
        assert!(list(&[worker], Look::PLAIN).contains("64.00 GiB"));
        let half = CopyBandwidth { host_bytes_per_second: None, peer_bytes_per_second: Some(8e9) };
        assert_eq!(copies(&half), "CPU slots at most 8 GB/s with a peer, each way");
    }
}
