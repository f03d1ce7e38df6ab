//! Values of the command line that are more than a number or a word.
//!
//! [`choice`] reads the enums of the protocol: which words stand for their values, and what `--help` says about each.

use std::time::Duration;

use clap::builder::{PossibleValue, PossibleValuesParser, StringValueParser, TypedValueParser};
use loadmaster_proto::bytes::Bytes;
use loadmaster_proto::chunks::{ChunkSize, ParseChunkSizeError};
use loadmaster_proto::cluster::{catalog, quantity};
use loadmaster_proto::name::is_valid_id;
use loadmaster_proto::training::stage::{Partitioning as DomainPartitioning, StageConfig as DomainStage};
use loadmaster_proto::wire::ToWire;
use loadmaster_proto::wire::v1::chunk_spec::Size;
use loadmaster_proto::wire::v1::{DeviceGroup, PipelineLayout, StageConfig};
use loadmaster_show::choice::{Choice, FRAMEWORKS, Ids};

/// A condition of a change or a deletion.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct Etag {
    /// Change or delete it only if this is its etag, as `show -o json` prints it [default: whatever its etag is].
    #[arg(long, value_name = "ETAG", default_value = "", hide_default_value = true)]
    pub(crate) etag: String,
}

/// A duration with its unit: `30s`, `2m`, `1h 30m`, `500ms`.
pub fn duration(text: &str) -> Result<Duration, String> {
    has_unit(text, "s", "ms, m or h")?;
    let parsed = text.parse::<jiff::SignedDuration>().ok().and_then(|span| Duration::try_from(span).ok());
    // A deadline is added to a clock, which must not overflow; gRPC has 8 digits for it.
    parsed
        .filter(|span| !span.is_zero() && *span <= Duration::from_secs(99_999_999))
        .ok_or_else(|| "expected a duration above 0 with a unit, for example 30s, 2m or 1h".to_owned())
}

/// Checks that a value is more than a number.
fn has_unit(text: &str, unit: &str, others: &str) -> Result<(), String> {
    match text.trim().parse::<f64>() {
        Ok(_) => Err(format!("the unit is missing. Write {text}{unit}, or another unit: {others}")),
        Err(_) => Ok(()),
    }
}

/// How long ago something was, in weeks, days and smaller: `7d`, `12h`; a day has 24 hours.
pub fn age(text: &str) -> Result<Duration, String> {
    has_unit(text, "d", "m, h or w")?;
    let span = text.parse::<jiff::Span>().ok();
    let exact = span.and_then(|span| span.to_duration(jiff::SpanRelativeTo::days_are_24_hours()).ok());
    exact
        .and_then(|exact| Duration::try_from(exact).ok())
        .filter(|age| !age.is_zero())
        .ok_or_else(|| "expected a time above 0 with a unit, for example 7d, 12h or 30m".to_owned())
}

/// Bytes with a unit, as the wire carries them.
pub(crate) fn bytes(text: &str) -> Result<i64, String> {
    text.parse::<Bytes>().map(Bytes::to_wire).map_err(|error| error.to_string())
}

/// The same, above 0.
pub(crate) fn some_bytes(text: &str) -> Result<i64, String> {
    match bytes(text)? {
        0 => Err("write bytes above 0, for example 512MiB".to_owned()),
        bytes => Ok(bytes),
    }
}

/// A chunk size as the wire carries it; none where it is to be chosen.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct AskedChunkSize(pub(crate) Option<Size>);

/// `auto`, or elements or bytes of a chunk.
pub(crate) fn chunk_size(text: &str) -> Result<AskedChunkSize, String> {
    if text == "auto" {
        return Ok(AskedChunkSize(None));
    }
    let size = match text.parse().map_err(|error: ParseChunkSizeError| format!("{error}; or auto"))? {
        ChunkSize::Elements(elements) => Size::ChunkElements(elements.to_wire()),
        ChunkSize::Bytes(bytes) => Size::ChunkBytes(bytes.to_wire()),
    };
    Ok(AskedChunkSize(Some(size)))
}

/// Elements of a chunk, above 0: `128M`.
pub(crate) fn chunk_elements(text: &str) -> Result<i64, String> {
    match text.parse() {
        Ok(ChunkSize::Elements(elements)) if elements > 0 => Ok(elements.to_wire()),
        Ok(_) | Err(_) => {
            Err("write a chunk size above 0 in elements, for example 128M (M is 2^20)".to_owned())
        }
    }
}

/// Devices: groups of `COUNTxBYTES`, separated by commas, each with an optional `:KIND`.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Devices(pub(crate) Vec<DeviceGroup>);

impl std::str::FromStr for Devices {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        text.split(',').map(|group| device_group(group.trim())).collect::<Result<_, _>>().map(Self)
    }
}

fn device_group(text: &str) -> Result<DeviceGroup, String> {
    let (size, kind) = text.split_once(':').unwrap_or((text, ""));
    let (number, capacity) = size.split_once(['x', '×']).unwrap_or(("1", size));
    let number = number.trim();
    let wrong = |form: &str| format!("{text:?}: write COUNTxBYTES, for example {form}");
    let capacity_bytes = bytes(capacity).map_err(|_| match capacity.trim() {
        amount if amount.parse::<f64>().is_ok() && size.contains(['x', '×']) => {
            wrong(&format!("{number}x{amount}GiB: bytes need a unit"))
        }
        count if count.parse::<u32>().is_ok() => {
            wrong(&format!("{count}x80GiB for {count} devices, or use --gpus {count}xH100"))
        }
        kind if catalog::find(kind).is_some() => {
            wrong(&format!("{number}x80GiB; kinds are for --gpus {number}x{kind}"))
        }
        _ => wrong("4x2GiB or 4x80GiB:KIND. To name GPUs without their memory, use --gpus, for example --gpus 4xH100"),
    })?;
    let count = number.parse().map_err(|_| wrong("4x2GiB"))?;
    if count < 1 || capacity_bytes < 1 {
        return Err(format!("{text:?}: the number of devices and the bytes of each must be above 0"));
    }
    Ok(DeviceGroup { count, capacity_bytes, kind: kind.trim().to_owned() })
}

/// GPUs: groups of `COUNTxKIND`, separated by commas, whose memory the planner has in its catalog.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Gpus(pub(crate) Vec<DeviceGroup>);

impl std::str::FromStr for Gpus {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let group = |part: &str| {
            let (count, kind) = part.split_once(['x', '×'])?;
            let count = count.trim().parse().ok().filter(|&count: &i32| count > 0)?;
            let kind = Some(kind.trim()).filter(|kind| !kind.is_empty())?.to_owned();
            Some(DeviceGroup { count, kind, capacity_bytes: 0 })
        };
        let groups: Option<Vec<DeviceGroup>> = text.split(',').map(group).collect();
        groups.map(Self).ok_or_else(|| {
            let number = text.trim().parse().unwrap_or(8_u32);
            format!("write COUNTxKIND, for example {number}xH100, or 4xH100,4xA100-80")
        })
    }
}

/// The devices of `--gpus` or `--devices`, of which a command line has one; none without both.
pub(crate) fn named_devices(gpus: Option<Gpus>, devices: Option<Devices>) -> Option<Vec<DeviceGroup>> {
    gpus.map(|gpus| gpus.0).or_else(|| devices.map(|devices| devices.0))
}

/// Numbers of stages: `4`, `2..8`, `2..` or `..8`; 0 is an end that is left open.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct StageCounts {
    pub(crate) min: i32,
    pub(crate) max: i32,
}

impl std::str::FromStr for StageCounts {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let end = |text: &str, is_open: bool| match text.trim() {
            "" if is_open => Some(0),
            number => number.parse().ok().filter(|&number: &i32| number > 0),
        };
        let ends = match text.split_once("..") {
            Some((min, max)) => end(min, true).zip(end(max, !min.trim().is_empty())),
            None => end(text, false).map(|count| (count, count)),
        };
        let ends = ends.filter(|&(min, max)| max == 0 || min <= max);
        ends.map(|(min, max)| Self { min, max })
            .ok_or_else(|| "write a number of stages or a range, for example 4, 2..8 or 2..".to_owned())
    }
}

/// A full name of `collection` from a full name or from an id alone.
pub(crate) fn name(collection: &str, text: &str) -> Result<String, String> {
    let id = text.strip_prefix(collection).and_then(|rest| rest.strip_prefix('/')).unwrap_or(text);
    if is_valid_id(id) {
        Ok(format!("{collection}/{id}"))
    } else {
        Err(format!(
            "write {collection}/ID or the ID alone; an id has 1 to 63 characters of a-z, 0-9 and '-'"
        ))
    }
}

pub(crate) fn model(text: &str) -> Result<String, String> {
    name("models", text)
}

pub(crate) fn profile(text: &str) -> Result<String, String> {
    name("profiles", text)
}

pub(crate) fn plan(text: &str) -> Result<String, String> {
    name("plans", text)
}

/// A framework, and its version if one is named.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct NamedFramework {
    pub(crate) id: String,
    pub(crate) version: String,
}

/// `deepspeed`, `deepspeed@0.19`; the planner checks whether it is there.
pub(crate) fn framework(text: &str) -> Result<NamedFramework, String> {
    let (id, version) = text.split_once('@').unwrap_or((text, ""));
    if !is_valid_id(id) {
        return Err(format!("write one of {}", words(FRAMEWORKS)));
    }
    if text.contains('@') && version.is_empty() {
        return Err(format!("write a version after the @, for example {id}@1.0, or leave the @ out"));
    }
    Ok(NamedFramework { id: id.to_owned(), version: version.to_owned() })
}

fn words(ids: Ids) -> String {
    ids.iter().map(|&(id, _)| id).collect::<Vec<_>>().join(", ")
}

/// A plan, a report of one, or a placement by its whole name.
pub(crate) fn plan_or_part(text: &str) -> Result<String, String> {
    if text.starts_with("placements/") { placement(text) } else { plan_or_report(text) }
}

/// A profile, or a measurement by its whole name.
pub(crate) fn profile_or_measurement(text: &str) -> Result<String, String> {
    match text.split_once("/measurements/") {
        None => profile(text).map_err(|why| format!("{why}; or write runs/ID/measurements/STAGE-SHARD")),
        Some((of, id)) if is_valid_id(id) => Ok(format!("{}/measurements/{id}", run(of)?)),
        Some(_) => {
            Err("write runs/ID/measurements/STAGE-SHARD, for example runs/7f3c/measurements/0-0".to_owned())
        }
    }
}

/// A plan, or what was reported of one.
pub(crate) fn plan_or_report(text: &str) -> Result<String, String> {
    match text.split_once("/reports/") {
        None => plan(text).map_err(|why| format!("{why}; or write plans/ID/reports/ID")),
        Some((of, id)) if is_valid_id(id) => Ok(format!("{}/reports/{id}", plan(of)?)),
        Some(_) => Err("write plans/ID/reports/ID, as `plan reports` prints it".to_owned()),
    }
}

pub(crate) fn placement(text: &str) -> Result<String, String> {
    name("placements", text)
}

/// A placement by its whole name, or a plan.
pub(crate) fn plan_or_placement(text: &str) -> Result<String, String> {
    if text.starts_with("placements/") {
        placement(text)
    } else {
        plan(text).map_err(|why| format!("{why}; or placements/ID"))
    }
}

pub(crate) fn run(text: &str) -> Result<String, String> {
    name("runs", text)
}

pub(crate) fn cluster(text: &str) -> Result<String, String> {
    name("clusters", text)
}

/// Bytes per second: `371GB/s`, `400Gb/s`.
pub(crate) fn bandwidth(text: &str) -> Result<f64, String> {
    has_unit(text, "GB/s", "MB/s, GiB/s or Gb/s")?;
    let bytes_per_second = quantity::bytes_per_second(text)?;
    if bytes_per_second > 0.0 { Ok(bytes_per_second) } else { Err(format!("{text:?} must be above 0")) }
}

/// Seconds of a latency: `3us`.
pub(crate) fn latency(text: &str) -> Result<f64, String> {
    has_unit(text, "us", "ns, ms or s")?;
    let seconds = quantity::seconds(text)?;
    if seconds >= 0.0 { Ok(seconds) } else { Err(format!("{text:?} must not be negative")) }
}

pub(crate) fn worker(text: &str) -> Result<String, String> {
    name("workers", text)
}

pub(crate) fn operation(text: &str) -> Result<String, String> {
    name("operations", text)
}

/// A share of a whole, 0 to 1: `0.05` or `5%`.
pub(crate) fn share(text: &str) -> Result<f64, String> {
    let text = text.trim();
    let (number, whole) = text.strip_suffix('%').map_or((text, 1.0), |number| (number.trim_end(), 100.0));
    let share = number.parse::<f64>().ok().map(|number| number / whole);
    share
        .filter(|share| (0.0..=1.0).contains(share))
        .ok_or_else(|| "write a share from 0 to 1, for example 0.05 or 5%".to_owned())
}

/// The stages of a model, as the wire carries them.
pub(crate) fn partitioning(text: &str) -> Result<PipelineLayout, String> {
    text.parse().map(|stages: DomainPartitioning| (&stages).into()).map_err(|error| error.to_string())
}

/// One stage, as the wire carries it.
pub(crate) fn stage(text: &str) -> Result<StageConfig, String> {
    text.parse().map(|stage: DomainStage| stage.into()).map_err(|error| error.to_string())
}

/// A UUID, in its usual spelling.
pub(crate) fn uuid(text: &str) -> Result<String, String> {
    uuid::Uuid::parse_str(text).map(|id| id.to_string()).map_err(|error| error.to_string())
}

/// On the wire 0 means "the default"; on the command line it is a mistake.
pub(crate) fn positive() -> clap::builder::RangedI64ValueParser<i32> {
    clap::value_parser!(i32).range(1..)
}

/// The given id, or a fresh one, so that a repeated call of this command begins nothing twice.
pub(crate) fn request_id(given: Option<&String>) -> String {
    given.cloned().unwrap_or_else(|| uuid::Uuid::new_v4().to_string())
}

/// A duration as it is sent.
pub(crate) fn sent(duration: Duration) -> Option<prost_types::Duration> {
    // Durations of the command line are shorter than those of messages.
    duration.try_into().ok()
}

/// Reads an id: `--help` lists the known ones, and the planner checks it, since it may have more.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Id(pub(crate) Ids);

impl TypedValueParser for Id {
    type Value = String;

    fn parse_ref(
        &self,
        command: &clap::Command,
        arg: Option<&clap::Arg>,
        value: &std::ffi::OsStr,
    ) -> Result<String, clap::Error> {
        let known = self.0;
        let checked = move |text: String| {
            if is_valid_id(&text) { Ok(text) } else { Err(format!("write one of {}", words(known))) }
        };
        StringValueParser::new().try_map(checked).parse_ref(command, arg, value)
    }

    fn possible_values(&self) -> Option<Box<dyn Iterator<Item = PossibleValue> + '_>> {
        Some(Box::new(self.0.iter().map(|&(id, help)| PossibleValue::new(id).help(help))))
    }
}

/// Returns the words of other tools for a value of the protocol, by its constant, or for a noun or verb. Megatron's granularity `full`
/// with the method `uniform` and one layer is the policy `layer`.
pub(crate) fn other_words(of: &str) -> impl Iterator<Item = &'static str> + use<> {
    let line = include_str!("words.txt").lines().find(|line| line.split(' ').next() == Some(of));
    line.into_iter().flat_map(|line| line.split(' ').skip(1))
}

/// Reads one of the words of a choice, or a word of another tool.
pub(crate) fn choice<T: Choice>() -> impl TypedValueParser<Value = T> {
    let values = T::ALL.iter().map(|&(value, help)| {
        PossibleValue::new(value.word()).help(help).aliases(other_words(value.constant()))
    });
    PossibleValuesParser::new(values).try_map(|word| {
        let is_meant =
            |value: &T| value.word() == word || other_words(value.constant()).any(|other| other == word);
        T::ALL.iter().map(|&(value, _)| value).find(is_meant).ok_or("is no such value")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn group(count: i32, capacity_bytes: i64, kind: &str) -> DeviceGroup {
        DeviceGroup { count, capacity_bytes, kind: kind.to_owned() }
    }

    #[test]
    fn devices_are_groups_in_order() {
        assert_eq!("4x2GiB,2x4GiB".parse(), Ok(Devices(vec![group(4, 2 << 30, ""), group(2, 4 << 30, "")])));
        assert_eq!("512MiB".parse(), Ok(Devices(vec![group(1, 512 << 20, "")])));
        assert_eq!("8x80GiB:NVIDIA H200".parse(), Ok(Devices(vec![group(8, 80 << 30, "NVIDIA H200")])));
    }

    #[test]
    fn wrong_devices_are_refused() {
        for text in ["", "4x", "x2GiB", "0x2GiB", "-1x2GiB", "4x2GiB,", "4x0", "99999999999x1GiB", "axb"] {
            assert!(text.parse::<Devices>().is_err(), "{text:?}");
        }
    }

    /// What other tools take is answered with what to write here.
    #[test]
    fn wrong_devices_are_answered_with_the_right_spelling() {
        for (text, right) in
            [("8", "--gpus 8xH100"), ("8x80", "8x80GiB"), ("8xH100", "--gpus 8xH100"), ("axb", "4x2GiB")]
        {
            let refused = text.parse::<Devices>().unwrap_err();
            assert!(refused.contains(right), "{text}: {refused}");
        }
        let gpus = |count, kind: &str| DeviceGroup { count, capacity_bytes: 0, kind: kind.to_owned() };
        assert_eq!("8xH100, 4xA100-80".parse(), Ok(Gpus(vec![gpus(8, "H100"), gpus(4, "A100-80")])));
        assert_eq!("2xNVIDIA GeForce RTX 4090".parse(), Ok(Gpus(vec![gpus(2, "NVIDIA GeForce RTX 4090")])));
        assert!("16".parse::<Gpus>().unwrap_err().contains("16xH100"));
        for wrong in ["", "H100", "0xH100", "8x", "8xH100,"] {
            assert!(wrong.parse::<Gpus>().is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn numbers_of_stages_are_ranges() {
        for (text, min, max) in [("4", 4, 4), ("2..8", 2, 8), ("2..", 2, 0), ("..8", 0, 8)] {
            assert_eq!(text.parse(), Ok(StageCounts { min, max }), "{text}");
        }
        for wrong in ["", "..", "0", "8..2", "2-8", "-1..2", "a"] {
            assert!(wrong.parse::<StageCounts>().is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn a_chunk_size_has_a_unit_or_is_chosen() {
        assert_eq!(chunk_size("auto"), Ok(AskedChunkSize(None)));
        assert_eq!(chunk_size("480M"), Ok(AskedChunkSize(Some(Size::ChunkElements(480 << 20)))));
        assert_eq!(chunk_size("960MiB"), Ok(AskedChunkSize(Some(Size::ChunkBytes(960 << 20)))));
        assert!(chunk_size("480G").is_err_and(|why| why.contains("auto")));
        assert_eq!(chunk_elements("128M"), Ok(128 << 20));
        for wrong in ["128MiB", "0", "auto", "-1"] {
            assert!(chunk_elements(wrong).is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn an_id_stands_for_its_name() {
        assert_eq!(profile("vgg11-1a2b"), Ok("profiles/vgg11-1a2b".to_owned()));
        assert_eq!(profile("profiles/vgg11-1a2b"), Ok("profiles/vgg11-1a2b".to_owned()));
        for wrong in ["plans/x", "", "profiles/", "profiles/A", "profiles/a/b"] {
            assert!(profile(wrong).is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn shares_are_numbers_or_percentages() {
        assert_eq!((share("0.05"), share("5%"), share("0")), (Ok(0.05), Ok(0.05), Ok(0.0)));
        for wrong in ["", "%", "-1%", "101%", "1.1", "nan", "five"] {
            assert!(share(wrong).is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn stages_are_read_as_people_write_them() {
        let stages = partitioning("8-8d2-7t4-4d2t4").unwrap().stages;
        let degrees: Vec<(i32, i32)> =
            stages.iter().map(|stage| (stage.data_parallel_size, stage.tensor_parallel_size)).collect();
        assert_eq!(degrees, [(1, 1), (2, 1), (1, 4), (2, 4)]);
        assert_eq!((stages[2].first_layer, stages[2].last_layer), (16, 22));
        assert_eq!(stage("3..9t4").unwrap().last_layer, 9);
        assert!(partitioning("8,8").is_err() && stage("3-9").is_err());
    }

    #[test]
    fn durations_have_units() {
        assert_eq!(duration("500ms"), Ok(Duration::from_millis(500)));
        assert_eq!(duration("1h 30m"), Ok(Duration::from_secs(5400)));
        assert_eq!(duration("2.5s"), Ok(Duration::from_millis(2500)));
        assert!(duration("30").is_err_and(|why| why.contains("Write 30s")));
        for wrong in ["", "0", "2.5", "0s", "-1s", "soon", "inf", "1e300"] {
            assert!(duration(wrong).is_err(), "{wrong:?}");
        }
    }
}
