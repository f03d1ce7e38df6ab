//! Which libtorch this process runs with.

use loadmaster_proto::measure::environment::Environment;
use loadmaster_proto::measure::rank::{Probe, RankDevice};

use crate::error::RankError;
use crate::ffi;

/// The version of the libtorch that is loaded, for example `2.11.0`.
pub fn version() -> String {
    dotted(ffi::loaded_version())
}

/// Refuses to work with another libtorch than the one that this program was built for: the C++
/// interface has no stable layout, so the result would be wrong at best.
///
/// # Errors
/// Names both versions.
pub fn check_version() -> Result<(), RankError> {
    let (loaded, compiled) = (ffi::loaded_version(), ffi::compiled_version());
    if loaded == compiled {
        Ok(())
    } else {
        Err(RankError::WrongLibtorch { loaded: dotted(loaded), compiled: dotted(compiled) })
    }
}

/// The CUDA version of libtorch's CUDA half, or empty while that is not loaded.
pub fn cuda_version() -> String {
    if !tch::utils::has_cuda() {
        return String::new();
    }
    match tch::utils::version_cudart() {
        version if version > 0 => format!("{}.{}", version / 1000, version % 1000 / 10),
        _ => String::new(),
    }
}

/// What this program links and finds.
pub fn probe() -> Probe {
    // Without it there is no CUDA device to speak of, which is what the answer says.
    let loaded = ffi::load_cuda().is_ok();
    let devices = if loaded { tch::Cuda::device_count() } else { 0 };
    Probe {
        loadmaster_version: env!("CARGO_PKG_VERSION").to_owned(),
        libtorch_version: version(),
        cuda_version: if loaded { cuda_version() } else { String::new() },
        cuda_devices: u32::try_from(devices).unwrap_or(0),
    }
}

/// What a measurement on this device says of where it was made.
pub(crate) fn environment(device: &RankDevice, threads: u32) -> Environment {
    Environment {
        device_kind: device.kind.clone(),
        libtorch_version: version(),
        cuda_version: cuda_version(),
        driver_version: device.driver_version.clone(),
        loadmaster_version: env!("CARGO_PKG_VERSION").to_owned(),
        threads,
        ..Environment::default()
    }
}

fn dotted([major, minor, patch]: [u32; 3]) -> String {
    format!("{major}.{minor}.{patch}")
}
