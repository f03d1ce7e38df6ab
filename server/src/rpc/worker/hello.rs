//! What a worker says of itself, checked: every byte of it is stored, and shown to whoever lists workers.

use loadmaster_proto::WORKER_PROTOCOL_VERSION;
use loadmaster_proto::bytes::Bytes;
use loadmaster_proto::cluster::device::{Device, GpuLink};
use loadmaster_proto::error::{Invalid, in_range};
use loadmaster_proto::measure::environment::ranks_at_once;
use loadmaster_proto::measure::offload::CopyPace;
use loadmaster_proto::name::{CommandName, WorkerName, checked_host, is_invisible};
use loadmaster_proto::wire::{field, worker_v1};

use super::super::error::ApiError;
use super::super::limits::{MAX_COMMANDS, MAX_CORES, MAX_HOST_MEMORY, MAX_WORKER_TEXT};
use crate::dispatch::{Introduction, MAX_DEVICES, held_leases};
use crate::store::records::{NewWorker, WorkerState};

/// A checked `hello`.
pub(super) struct Hello {
    /// For the session.
    pub(super) introduction: Introduction,
    /// For the store.
    pub(super) worker: NewWorker,
}

/// Checks every field, its length included.
///
/// # Errors
/// Names the field.
pub(super) fn check(hello: worker_v1::Hello) -> Result<Hello, ApiError> {
    // First of all: fields of another version may mean something else.
    if hello.protocol_version != WORKER_PROTOCOL_VERSION {
        return Err(ApiError::ProtocolVersion {
            theirs: hello.protocol_version,
            ours: WORKER_PROTOCOL_VERSION,
        });
    }
    Ok(checked(hello)?)
}

fn checked(hello: worker_v1::Hello) -> Result<Hello, Invalid> {
    let name = WorkerName::parse("hello.worker", &hello.worker)?;
    // The host becomes the name of a node, which exports write for ssh and shells.
    if !hello.host.is_empty() {
        checked_host("hello.host", &hello.host)?;
    }
    for (field, text) in [
        ("hello.version", &hello.version),
        ("hello.libtorch_version", &hello.libtorch_version),
        ("hello.cuda_version", &hello.cuda_version),
        ("hello.session_id", &hello.session_id),
    ] {
        if text.len() > MAX_WORKER_TEXT || text.contains(is_invisible) {
            let why = format!(
                "not valid. Use a line of at most {MAX_WORKER_TEXT} bytes without control, format or separator characters."
            );
            return Err(Invalid::field(field, why));
        }
    }
    let devices: Vec<Device> = each("hello.devices", hello.devices, MAX_DEVICES)?;
    for (index, device) in devices.iter().enumerate() {
        if devices.iter().take(index).any(|other| other.id == device.id) {
            let field = format!("hello.devices[{index}].id");
            return Err(Invalid::field(field, format!("{:?} is present twice. Use it once.", device.id)));
        }
    }
    let links: Vec<GpuLink> = each("hello.links", hello.gpu_links, GpuLink::MOST)?;
    let commands = commands(&hello.custom_profilers)?;
    let held = held_leases("hello.held_runs", hello.held_runs)?;
    let count = |name: &str, value: i32| in_range(name, field::<u32, _>(name, value)?, 0..=MAX_CORES);
    let (threads, cores) =
        (count("hello.threads", hello.thread_count)?, count("hello.cores", hello.core_count)?);
    let host_memory: Bytes = field("hello.host_memory_bytes", hello.host_memory_bytes)?;
    in_range("hello.host_memory_bytes", host_memory.0, 0..=MAX_HOST_MEMORY.0)?;
    let copy_pace: Option<CopyPace> = field("hello.copy_pace", hello.copy_bandwidth)?;
    let connection = format!("{:032x}", rand::random::<u128>());
    Ok(Hello {
        worker: NewWorker {
            name: name.clone(),
            devices: devices.clone(),
            links,
            version: hello.version,
            libtorch_version: hello.libtorch_version,
            cuda_version: hello.cuda_version,
            threads,
            cores,
            host: hello.host,
            session_id: hello.session_id.clone(),
            connection: connection.clone(),
            commands,
            host_memory: host_memory.0,
            copy_pace: copy_pace.unwrap_or_default(),
        },
        introduction: Introduction {
            worker: name,
            session_id: hello.session_id,
            connection,
            devices,
            slots_at_once: ranks_at_once(cores, threads),
            held,
            state: WorkerState::Alive,
        },
    })
}

/// So many messages at most, each checked.
fn each<W, T: TryFrom<W, Error = Invalid>>(
    field: &str,
    wires: Vec<W>,
    most: usize,
) -> Result<Vec<T>, Invalid> {
    if wires.len() > most {
        return Err(Invalid::field(field, format!("{} entries are more than {most}", wires.len())));
    }
    let each = wires.into_iter().enumerate();
    each.map(|(index, wire)| {
        wire.try_into().map_err(|invalid: Invalid| invalid.under(&format!("{field}[{index}]")))
    })
    .collect()
}

/// The training commands that a worker offers, each once.
fn commands(names: &[String]) -> Result<Vec<CommandName>, Invalid> {
    if names.len() > MAX_COMMANDS {
        let why = format!("{} entries are more than {MAX_COMMANDS}", names.len());
        return Err(Invalid::field("hello.commands", why));
    }
    let mut commands = names
        .iter()
        .enumerate()
        .map(|(index, name)| CommandName::parse(&format!("hello.commands[{index}]"), name))
        .collect::<Result<Vec<_>, _>>()?;
    commands.sort();
    commands.dedup();
    Ok(commands)
}

#[cfg(test)]
mod tests {
    use loadmaster_proto::wire::v1;

    use super::*;

    fn device() -> v1::Device {
        v1::Device {
            id: "gpu0".to_owned(),
            backend: v1::Backend::Cuda.into(),
            kind: "NVIDIA H200".to_owned(),
            capacity_bytes: 1 << 30,
            physical_bytes: 1 << 30,
            ..v1::Device::default()
        }
    }

    fn hello() -> worker_v1::Hello {
        worker_v1::Hello {
            protocol_version: WORKER_PROTOCOL_VERSION,
            worker: "workers/w".to_owned(),
            devices: vec![device()],
            ..worker_v1::Hello::default()
        }
    }

    fn refused(hello: worker_v1::Hello) -> String {
        match check(hello) {
            Err(ApiError::Invalid(invalid)) => invalid.violations()[0].field.clone(),
            Err(other) => panic!("{other}"),
            Ok(_) => panic!("it is taken"),
        }
    }

    /// A worker that says nothing of its host offers none of its memory, and paces nothing.
    #[test]
    fn what_a_worker_offers_of_its_host_is_taken_as_it_says() {
        let worker = |hello| check(hello).unwrap_or_else(|error| panic!("{error}")).worker;
        let plain = worker(hello());
        assert!(plain.host_memory == 0 && plain.copy_pace.is_free());
        let pace = v1::CopyBandwidth { host_bytes_per_second: Some(1e9), peer_bytes_per_second: None };
        let offering =
            worker(worker_v1::Hello { host_memory_bytes: 64 << 30, copy_bandwidth: Some(pace), ..hello() });
        assert_eq!(offering.host_memory, 64 << 30);
        assert_eq!(offering.copy_pace, CopyPace { host: Some(1e9), peer: None });
    }

    /// A worker that does not know memory actions would train as if there were none.
    #[test]
    fn a_worker_of_an_earlier_release_is_refused_before_it_is_given_anything() {
        for version in [1, 2, 3] {
            let old = worker_v1::Hello { protocol_version: version, ..hello() };
            assert!(matches!(check(old), Err(ApiError::ProtocolVersion { theirs, .. }) if theirs == version));
        }
    }

    /// Workers may be anybody: a host of theirs reaches ssh and shells through exports of plans for a discovered cluster.
    #[test]
    fn a_worker_whose_host_is_no_host_name_is_refused() {
        for host in [
            "-oProxyCommand=touch${IFS}x",
            "$(touch x)",
            "`touch x`",
            "a;b",
            "a|b",
            "a..b",
            "..",
            "*",
            "a b",
            "a/b",
            "n\u{202e}a",
            "n\u{200b}",
            "n\u{2028}a",
            "层",
            &"x".repeat(254),
        ] {
            assert_eq!(
                refused(worker_v1::Hello { host: host.to_owned(), ..hello() }),
                "hello.host",
                "{host:?}"
            );
        }
        for host in ["", "gpu-01.example.com", "10.0.0.7", "fd00::1", "my_node"] {
            assert!(check(worker_v1::Hello { host: host.to_owned(), ..hello() }).is_ok(), "{host:?}");
        }
    }

    /// Whatever a worker says of itself is short, or refused by its name.
    #[test]
    fn no_word_of_a_worker_is_longer_than_its_field() {
        assert!(check(hello()).is_ok());
        let long = "x".repeat(12 << 20);
        let with = |device: v1::Device| worker_v1::Hello { devices: vec![device], ..hello() };
        let paced = |host, peer| {
            let pace = v1::CopyBandwidth { host_bytes_per_second: host, peer_bytes_per_second: peer };
            worker_v1::Hello { copy_bandwidth: Some(pace), ..hello() }
        };
        for (hello, field) in [
            (with(v1::Device { id: long.clone(), ..device() }), "hello.devices[0].id"),
            (with(v1::Device { kind: long.clone(), ..device() }), "hello.devices[0].kind"),
            (with(v1::Device { uuid: long.clone(), ..device() }), "hello.devices[0].uuid"),
            (
                with(v1::Device { driver_version: long.clone(), ..device() }),
                "hello.devices[0].driver_version",
            ),
            (with(v1::Device { pci_bus_id: long.clone(), ..device() }), "hello.devices[0].pci_bus_id"),
            (with(v1::Device { uuid: "a\0b".to_owned(), ..device() }), "hello.devices[0].uuid"),
            (worker_v1::Hello { worker: long.clone(), ..hello() }, "hello.worker"),
            (worker_v1::Hello { host: long.clone(), ..hello() }, "hello.host"),
            (worker_v1::Hello { host: "a\nb".to_owned(), ..hello() }, "hello.host"),
            (worker_v1::Hello { version: "1\u{202e}2".to_owned(), ..hello() }, "hello.version"),
            (worker_v1::Hello { session_id: "a\u{2028}b".to_owned(), ..hello() }, "hello.session_id"),
            (with(v1::Device { kind: "H200\u{200b}".to_owned(), ..device() }), "hello.devices[0].kind"),
            (with(v1::Device { id: "gpu\u{2028}0".to_owned(), ..device() }), "hello.devices[0].id"),
            (with(v1::Device { uuid: "GPU-$(touch x)".to_owned(), ..device() }), "hello.devices[0].uuid"),
            (with(v1::Device { uuid: "GPU-1,GPU-2".to_owned(), ..device() }), "hello.devices[0].uuid"),
            (worker_v1::Hello { version: long.clone(), ..hello() }, "hello.version"),
            (worker_v1::Hello { session_id: long.clone(), ..hello() }, "hello.session_id"),
            (worker_v1::Hello { custom_profilers: vec![long], ..hello() }, "hello.commands[0]"),
            (worker_v1::Hello { custom_profilers: vec!["a".to_owned(); 65], ..hello() }, "hello.commands"),
            (worker_v1::Hello { devices: vec![device(); 1_025], ..hello() }, "hello.devices"),
            (worker_v1::Hello { devices: vec![device(); 2], ..hello() }, "hello.devices[1].id"),
            (worker_v1::Hello { gpu_links: vec![v1::GpuLink::default(); 8_129], ..hello() }, "hello.links"),
            (
                worker_v1::Hello { held_runs: vec![worker_v1::HeldRun::default(); 100_000], ..hello() },
                "hello.held_runs",
            ),
            (worker_v1::Hello { core_count: i32::MAX, ..hello() }, "hello.cores"),
            (worker_v1::Hello { thread_count: -1, ..hello() }, "hello.threads"),
            (worker_v1::Hello { host_memory_bytes: -1, ..hello() }, "hello.host_memory_bytes"),
            (worker_v1::Hello { host_memory_bytes: i64::MAX, ..hello() }, "hello.host_memory_bytes"),
            (paced(Some(0.0), None), "hello.copy_pace.host_bytes_per_second"),
            (paced(None, Some(f64::NAN)), "hello.copy_pace.peer_bytes_per_second"),
        ] {
            assert_eq!(refused(hello), field);
        }
    }
}
