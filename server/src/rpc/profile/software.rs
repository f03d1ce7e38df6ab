//! The software that the connected workers measure with: it decides which measurements may be reused, and
//! what must not be mixed.

use std::collections::{BTreeMap, BTreeSet};

use loadmaster_proto::cluster::device::Backend;
use loadmaster_proto::measure::environment::Environment;
use loadmaster_proto::name::ProfileName;

use crate::rpc::error::ApiError;
use crate::store::records::{Software, WorkerRecord, WorkerState};

/// The software of the workers that would take runs on this kind of device; none when there is no such
/// worker, and nothing is known of what will measure.
///
/// # Errors
/// [`ApiError::MixedSoftware`] when they differ in versions. They may differ in threads: these change times
/// and no bytes.
pub(super) fn of_workers(workers: &[WorkerRecord], kind: &str) -> Result<Option<Software>, ApiError> {
    let mut versions: BTreeMap<(&str, &str, &str), Vec<String>> = BTreeMap::new();
    let (mut threads, mut cores) = (BTreeSet::new(), BTreeSet::new());
    for worker in workers.iter().filter(|worker| worker.state == WorkerState::Alive) {
        for device in worker.devices.iter().filter(|device| device.kind == kind) {
            let of = (
                worker.libtorch_version.as_str(),
                worker.cuda_version.as_str(),
                device.driver_version.as_str(),
            );
            let names = versions.entry(of).or_default();
            if !names.contains(&worker.name.to_string()) {
                names.push(worker.name.to_string());
            }
            if device.backend == Backend::Cpu {
                threads.insert(worker.threads);
                cores.insert(worker.cores);
            }
        }
    }
    if versions.len() > 1 {
        let differences: Vec<String> = versions
            .iter()
            .map(|(&of, names)| format!("{} {}", names.join(" and "), versions_text(of)))
            .collect();
        return Err(ApiError::MixedSoftware { kind: kind.to_owned(), differences: differences.join("; ") });
    }
    Ok(versions.into_keys().next().map(|(libtorch, cuda, driver)| Software {
        libtorch_version: libtorch.to_owned(),
        cuda_version: cuda.to_owned(),
        driver_version: driver.to_owned(),
        threads: (!threads.is_empty()).then(|| threads.into_iter().collect()),
        cores: (!cores.is_empty() && !cores.contains(&0)).then(|| cores.into_iter().collect()),
    }))
}

/// Whether measurements of `software` compare with those that a profile has.
///
/// # Errors
/// [`ApiError::OtherSoftware`] names both.
pub(super) fn check_same(
    profile: &ProfileName,
    measured: &[Environment],
    software: &Software,
) -> Result<(), ApiError> {
    let today = (
        software.libtorch_version.as_str(),
        software.cuda_version.as_str(),
        software.driver_version.as_str(),
    );
    // What commands measure with is between them and their operators.
    for environment in measured.iter().filter(|of| of.command.is_empty()) {
        let then = (
            environment.libtorch_version.as_str(),
            environment.cuda_version.as_str(),
            environment.driver_version.as_str(),
        );
        if then != today {
            return Err(ApiError::OtherSoftware {
                profile: profile.to_string(),
                measured: versions_text(then),
                today: versions_text(today),
            });
        }
    }
    Ok(())
}

/// Versions of libtorch, CUDA and driver; the last two are empty where there are none.
fn versions_text((libtorch, cuda, driver): (&str, &str, &str)) -> String {
    let mut text = format!("libtorch {libtorch}");
    for (what, version) in [("CUDA", cuda), ("driver", driver)] {
        if !version.is_empty() {
            text.push_str(&format!(", {what} {version}"));
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;
    use loadmaster_proto::bytes::Bytes;
    use loadmaster_proto::cluster::device::Device;
    use loadmaster_proto::name::WorkerName;

    use super::*;

    fn worker(id: &str, libtorch: &str, threads: u32, devices: &[(&str, &str)]) -> WorkerRecord {
        WorkerRecord {
            name: WorkerName::from_id(id).unwrap(),
            state: WorkerState::Alive,
            devices: devices
                .iter()
                .map(|&(kind, driver)| Device {
                    id: "d".to_owned(),
                    backend: if kind == "cpu" { Backend::Cpu } else { Backend::Cuda },
                    kind: kind.to_owned(),
                    capacity: Bytes(1),
                    physical: Bytes(1),
                    uuid: String::new(),
                    ordinal: 0,
                    driver_version: driver.to_owned(),
                    pci_bus_id: String::new(),
                })
                .collect(),
            links: Vec::new(),
            version: "0.1.0".to_owned(),
            libtorch_version: libtorch.to_owned(),
            cuda_version: String::new(),
            threads,
            cores: threads * 4,
            host: String::new(),
            session_id: String::new(),
            commands: Vec::new(),
            host_memory: 0,
            copy_pace: loadmaster_proto::measure::offload::CopyPace::default(),
            create_time: Timestamp::UNIX_EPOCH,
            heartbeat_time: Timestamp::UNIX_EPOCH,
            runs: Vec::new(),
        }
    }

    /// Only who would take the runs counts, and threads do not matter on GPUs.
    #[test]
    fn the_software_is_that_of_the_workers_with_such_devices() {
        let mut gone = worker("gone", "1.0", 9, &[("cpu", "")]);
        gone.state = WorkerState::Lost;
        let workers = [
            worker("a", "2.11.0", 2, &[("cpu", ""), ("cpu", "")]),
            worker("b", "2.11.0", 4, &[("cpu", ""), ("gpu", "550")]),
            worker("c", "2.10.0", 4, &[("other", "1")]),
            gone,
        ];
        let of = |kind| of_workers(&workers, kind).unwrap();
        assert_eq!(of("cpu").unwrap().threads, Some(vec![2, 4]));
        assert_eq!(of("cpu").unwrap().cores, Some(vec![8, 16]));
        assert_eq!((of("gpu").unwrap().threads, of("gpu").unwrap().cores), (None, None));
        assert_eq!(of("gpu").unwrap().driver_version, "550");
        assert_eq!(of("none"), None);
    }

    /// A resumed profile goes on with the software that it began with; threads may differ.
    #[test]
    fn a_profile_is_not_continued_with_other_software() {
        let profile = ProfileName::from_id("p").unwrap();
        let software = of_workers(&[worker("a", "2.11.0", 2, &[("gpu", "550")])], "gpu").unwrap().unwrap();
        let measured = |driver: &str, command: &str| Environment {
            libtorch_version: "2.11.0".to_owned(),
            driver_version: driver.to_owned(),
            command: command.to_owned(),
            threads: 9,
            ..Environment::default()
        };
        let check = |measured| check_same(&profile, &[measured], &software);
        assert!(check(measured("550", "")).is_ok());
        assert!(check(measured("", "train")).is_ok());
        let message = check(measured("535", "")).unwrap_err().to_string();
        assert!(
            message.contains("libtorch 2.11.0, driver 535") && message.contains("driver 550"),
            "{message}"
        );
    }

    #[test]
    fn different_versions_are_refused_and_named() {
        let workers = [
            worker("a", "2.11.0", 2, &[("gpu", "550")]),
            worker("b", "2.11.0", 2, &[("gpu", "550")]),
            worker("c", "2.11.0", 2, &[("gpu", "570")]),
        ];
        let message = of_workers(&workers, "gpu").unwrap_err().to_string();
        assert!(
            message.contains("workers/a and workers/b libtorch 2.11.0, driver 550; workers/c"),
            "{message}"
        );
    }
}
