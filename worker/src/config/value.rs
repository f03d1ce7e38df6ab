//! How settings are written, on the command line and in the configuration file alike.

use std::str::FromStr;
use std::time::Duration;

use jiff::SignedDuration;
use loadmaster_proto::bytes::Bytes;
use loadmaster_proto::wire::address;
use tonic::transport::Uri;

/// Most slots per GPU.
pub(crate) const MAX_GPU_SHARES: i64 = 64;

/// `--cpu-slots`: how many of what size.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct CpuSlots {
    pub(crate) count: u32,
    pub(crate) capacity: Bytes,
}

impl CpuSlots {
    /// Most slots of a worker.
    pub(crate) const MAX: u32 = 1_024;
    /// Smallest slot; libtorch alone needs more than this.
    const MIN_CAPACITY: Bytes = Bytes(1 << 20);
}

impl FromStr for CpuSlots {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (count, bytes) = text
            .split_once(['x', 'X'])
            .ok_or("not a number of slots and their size. Use, for example, 4x2GiB.")?;
        let count = count
            .trim()
            .parse()
            .ok()
            .filter(|count| (1..=Self::MAX).contains(count))
            .ok_or_else(|| format!("{count:?} is not a number of slots. Use 1 to {}.", Self::MAX))?;
        let capacity: Bytes = bytes.parse().map_err(|error| format!("{error}"))?;
        if capacity < Self::MIN_CAPACITY || i64::try_from(capacity.0).is_err() {
            return Err(format!("a slot is too small. Use {} or more.", Self::MIN_CAPACITY));
        }
        Ok(Self { count, capacity })
    }
}

/// `--gpus`: which.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum GpuSelection {
    /// Every one.
    All,
    /// Those with these indices or UUIDs.
    Listed(Vec<String>),
}

impl FromStr for GpuSelection {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text == "all" {
            return Ok(Self::All);
        }
        let parts: Vec<String> = text.split(',').map(|part| part.trim().to_owned()).collect();
        let valid = |part: &String| part.parse::<u32>().is_ok() || part.starts_with("GPU-");
        match parts.iter().find(|part| !valid(part)) {
            Some(part) => Err(format!("{part:?} is neither an index nor a UUID (GPU-…) of a GPU")),
            None => Ok(Self::Listed(parts)),
        }
    }
}

/// `--host-memory`: bytes.
pub(crate) fn host_memory(text: &str) -> Result<Bytes, String> {
    let bytes: Bytes = text.parse().map_err(|error| format!("{error}"))?;
    if i64::try_from(bytes.0).is_err() { Err("more than 8 EiB. Use less.".to_owned()) } else { Ok(bytes) }
}

/// The planner's address; its port is the usual one where none is named.
pub(crate) fn server(text: &str) -> Result<Uri, String> {
    let uri: Uri = address::url(text).parse().map_err(|error| format!("{error}"))?;
    match uri.scheme_str() {
        Some("http") => {}
        Some(other) => return Err(format!("the scheme {other} is not supported. Use http://HOST:PORT.")),
        None => return Err("not a URL. Use http://HOST:PORT.".to_owned()),
    }
    Ok(uri)
}

/// A time with its unit, at most a day.
pub(crate) fn duration(text: &str) -> Result<Duration, String> {
    let hint = "not a duration with a unit. Use, for example, 90s or 5m, at most 24h.";
    let span: SignedDuration = text.parse().map_err(|_| hint.to_owned())?;
    Duration::try_from(span)
        .ok()
        .filter(|time| *time <= Duration::from_secs(86_400))
        .ok_or_else(|| hint.to_owned())
}

/// A duration that something can happen in.
pub(crate) fn wait(text: &str) -> Result<Duration, String> {
    duration(text).and_then(|time| {
        if time < Duration::from_millis(100) { Err("less than 100ms".to_owned()) } else { Ok(time) }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_are_a_count_and_a_size() {
        assert_eq!("4x2GiB".parse(), Ok(CpuSlots { count: 4, capacity: Bytes(2 << 30) }));
        for wrong in ["4", "x2GiB", "0x2GiB", "4x", "4x1", "4x2parsecs", "9999x1GiB"] {
            assert!(wrong.parse::<CpuSlots>().is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn host_memory_is_bytes_with_a_unit() {
        assert_eq!(host_memory("64GiB"), Ok(Bytes(64 << 30)));
        assert_eq!(host_memory("64GB"), Ok(Bytes(64_000_000_000)));
        assert_eq!(host_memory("0"), Ok(Bytes(0)));
        for wrong in ["", "much", "-1GiB", "1GB/s", "9999999TiB"] {
            assert!(host_memory(wrong).is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn gpus_are_indices_or_uuids() {
        assert_eq!("all".parse(), Ok(GpuSelection::All));
        assert_eq!("0, GPU-1f".parse(), Ok(GpuSelection::Listed(vec!["0".into(), "GPU-1f".into()])));
        for wrong in ["", "0,", "first", "-1"] {
            assert!(wrong.parse::<GpuSelection>().is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn a_server_may_lack_port_and_scheme() {
        for text in ["planner", "planner:7433", "http://planner"] {
            assert_eq!(server(text).map(|uri| uri.to_string()), Ok("http://planner:7433/".to_owned()));
        }
        for wrong in ["", "https://planner:1", "ftp://x:1"] {
            assert!(server(wrong).is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn times_have_units_and_an_upper_bound() {
        assert_eq!(duration("90s"), Ok(Duration::from_secs(90)));
        assert_eq!(duration("500ms"), Ok(Duration::from_millis(500)));
        assert!(wait("0s").is_err() && wait("1s").is_ok());
        for wrong in ["", "90", "-1s", "48h"] {
            assert!(duration(wrong).is_err(), "{wrong:?}");
        }
    }
}
