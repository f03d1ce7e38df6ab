//! Profiles and the memory of their layers.

use loadmaster_proto::wire::v1::profile::State;
use loadmaster_proto::wire::v1::{self, LayerMemory, Profile, ProfilingMode};

use super::grid::Side::{Left, Right};
use super::grid::{Facts, Grid};
use super::operation::runs;
use super::{accounting, id, interference, labels, or_none, training};
use crate::show;
use crate::text::terminal_abilities::Look;
use crate::text::{bytes, count, maybe_bytes, plain, plural, seconds, time, word};

show!(Profile as one);
show!(ListProfilesResponse of profiles as list);

fn one(profile: &Profile, look: Look) -> String {
    let mut facts = Facts::default();
    facts.add("profile", &profile.name);
    facts.add("state", state(profile));
    if let Some(labels) = labels(&profile.labels) {
        facts.add("labels", labels);
    }
    facts.add("model", &profile.model);
    if let Some(spec) = &profile.training {
        facts.add("training", training::line(spec, look));
    }
    facts.add("measured", measured(profile, look));
    facts.add("device kind", or_none(&profile.device_kind, look));
    if !profile.custom_profiler.is_empty() {
        facts.add("command", plain(&profile.custom_profiler));
    }
    if let Some(provenance) = &profile.provenance {
        facts.add("source", plain(&provenance.source));
        facts.add("tool", plain(&format!("{} {}", provenance.tool, provenance.tool_version)));
        facts.add("document", contents(provenance));
    }
    facts.add("runs", made(profile));
    facts.add("device time", device_time(profile));
    for of in &profile.predictor_needs {
        let state = match of.missing.as_slice() {
            [] => "has all that it needs".to_owned(),
            [one] => format!("missing {}", plain(one)),
            several => format!("missing {}", plural(several.len(), "measurement")),
        };
        let predictor = match of.predictor.as_str() {
            "capture" => "capture",
            "component" => "component",
            "chunks" => "chunks",
            _ => "predictor",
        };
        facts.add(predictor, state);
    }
    if profile.host_memory_bytes > 0 {
        facts.add("in chunks", in_chunks(profile));
    }
    facts.add("operation", or_none(&profile.operation, look));
    facts.add("created", time(profile.create_time.as_ref(), look));
    facts.add("ended", time(profile.end_time.as_ref(), look));
    let mut text = facts.render();
    if !profile.layer_memory.is_empty() {
        text.push('\n');
        text.push_str(&layers(&profile.layer_memory, look));
    }
    if profile.environments.len() > 1 {
        text.push_str(
            "warning: the profile was measured in several software environments, so not all of its numbers are \
             comparable:\n",
        );
        for of in &profile.environments {
            text.push_str(&format!("  {}\n", environment(of)));
        }
    }
    let v1::Profile {
        contended_measurement_count: contended_measurements,
        external_cpu_share: others_share,
        oversubscribed_measurement_count: oversubscribed_measurements,
        ..
    } = *profile;
    text.push_str(&interference::warnings(contended_measurements, others_share, oversubscribed_measurements));
    for missing in &profile.missing {
        text.push_str(&format!("missing: {}\n", plain(missing)));
    }
    text
}

/// `23 measurements, reserved accounting, 3f2a…`.
fn contents(provenance: &v1::Provenance) -> String {
    let count = |count: i32, what: &str| (count > 0).then(|| format!("{count} {what}"));
    let parts = [
        count(provenance.measurement_count, "measurements"),
        count(provenance.stage_count, "measured stages"),
        count(provenance.table_layer_count, "layers in its table"),
        Some(format!("{} memory", accounting(provenance.accounting))),
        Some(format!("digest {}", plain(&provenance.digest))),
    ];
    parts.into_iter().flatten().collect::<Vec<_>>().join(", ")
}

/// `single stages for pipelines of 4, micro-batch 2 and 4; data 2, tensor 2 at 4 only`.
fn measured(profile: &Profile, look: Look) -> String {
    let sizes = |sizes: &[i32]| {
        let sizes: Vec<String> = sizes.iter().map(ToString::to_string).collect();
        or_none(&sizes.join(" and "), look)
    };
    let mut text = match profile.profiling_mode() {
        ProfilingMode::WholePipeline => {
            format!("whole partitionings over {}", plural(profile.device_count, "device"))
        }
        ProfilingMode::PerStage => format!("single stages for pipelines of {}", profile.device_count),
        ProfilingMode::Imported => return "elsewhere, and imported".to_owned(),
        ProfilingMode::PerLayer | ProfilingMode::Unspecified => "single layers".to_owned(),
    };
    text.push_str(&format!(", micro-batch {}", sizes(&profile.profiled_micro_batch_sizes)));
    for scenario in &profile.scenarios {
        let made = &scenario.micro_batch_sizes;
        let differs = !made.is_empty() && *made != profile.profiled_micro_batch_sizes;
        match (scenario.parallel_size > 1, differs) {
            (false, false) => continue,
            (false, true) => text.push_str("; one device"),
            (true, _) => {
                let kind = word(scenario.parallelism().as_str_name(), "PARALLELISM_");
                text.push_str(&format!("; {kind} {}", scenario.parallel_size));
            }
        }
        if differs {
            text.push_str(&format!(" at {}", sizes(made)));
        }
    }
    text
}

/// `at most 8.00 GiB of CPU memory, which updates 91,000,000 parameters/s (measured)`.
fn in_chunks(profile: &Profile) -> String {
    let rate = profile.cpu_optimizer_rate.map_or_else(String::new, |rate| {
        format!(", which updates {} parameters/s (measured)", count(rate.round() as i64))
    });
    format!("at most {} of CPU memory{rate}", bytes(profile.host_memory_bytes))
}

/// `12 of 12 runs done, 1 out of memory; 1 repeated smaller; 8 reused`.
fn made(profile: &Profile) -> String {
    let mut text = profile.run_counts.as_ref().map(runs).unwrap_or_default();
    if profile.reduced_batch_run_count > 0 {
        text.push_str(&format!("; {} repeated at a smaller micro-batch", profile.reduced_batch_run_count));
    }
    if profile.reused_run_count > 0 {
        text.push_str(&format!("; {} reused", profile.reused_run_count));
    }
    text
}

fn device_time(profile: &Profile) -> String {
    let spent = seconds(profile.device_seconds);
    if profile.reused_run_count == 0 {
        return spent;
    }
    format!("{spent}; reuse saved {}", seconds(profile.saved_device_seconds))
}

fn environment(of: &v1::Environment) -> String {
    let v1::Environment { device_kind, libtorch_version, cuda_version, driver_version, .. } = of;
    let mut text = format!("{}, libtorch {}", plain(device_kind), plain(libtorch_version));
    for (what, version) in [("CUDA", cuda_version), ("driver", driver_version)] {
        if !version.is_empty() {
            text.push_str(&format!(", {what} {}", plain(version)));
        }
    }
    text.push_str(&format!(", {} threads", of.thread_count));
    if of.core_count > 0 {
        text.push_str(&format!(" on {} cores", of.core_count));
    }
    text
}

fn layers(layers: &[LayerMemory], look: Look) -> String {
    let common = layers
        .first()
        .map(|first| first.accounting)
        .filter(|&common| layers.iter().all(|layer| layer.accounting == common));
    let note = common.map_or_else(String::new, |common| format!(", {}", accounting(common)));
    let mut grid = Grid::new(
        &[
            ("layer", Right),
            ("on", Left),
            ("micro-batch", Right),
            ("in flight", Right),
            (&format!("isolated M_i (measured{note})"), Right),
            (&format!("added M_a (measured{note})"), Right),
            ("added to", Left),
        ],
        look,
    );
    for layer in layers {
        let amount = |count: Option<i64>| {
            let amount = maybe_bytes(count, look);
            match (count, common) {
                (Some(_), None) => format!("{amount} {}", accounting(layer.accounting)),
                (Some(_), Some(_)) | (None, _) => amount,
            }
        };
        // M_a is what this layer adds to the neighbours in front of it, down to the first named.
        let neighbours = match (layer.neighbour_first_layer, layer.layer.checked_sub(1)) {
            (Some(first), Some(last)) if layer.added_bytes.is_some() => format!("{first}..{last}"),
            _ => look.none().to_owned(),
        };
        grid.row([
            layer.layer.to_string(),
            shared(layer),
            layer.micro_batch_size.to_string(),
            layer.in_flight_micro_batch_count.to_string(),
            amount(layer.isolated_bytes),
            amount(layer.added_bytes),
            neighbours,
        ]);
    }
    grid.render()
}

/// How the devices of the stages were used: `1`, or `data 2`.
fn shared(layer: &LayerMemory) -> String {
    match layer.parallelism() {
        v1::Parallelism::Unspecified | v1::Parallelism::None => "1".to_owned(),
        kind => format!("{} {}", word(kind.as_str_name(), "PARALLELISM_"), layer.degree),
    }
}

/// Its campaign, and the devices that it was laid out for.
fn campaign(profile: &Profile) -> String {
    let name = match profile.profiling_mode() {
        ProfilingMode::WholePipeline => "whole-pipeline",
        ProfilingMode::PerStage => "per-stage",
        ProfilingMode::Imported => "imported",
        ProfilingMode::PerLayer | ProfilingMode::Unspecified => "per-layer",
    };
    if profile.device_count > 0 {
        format!("{name}, {}", plural(profile.device_count, "device"))
    } else {
        name.to_owned()
    }
}

fn state(profile: &Profile) -> String {
    State::try_from(profile.state).map_or_else(|_| "unknown".to_owned(), |s| word(s.as_str_name(), ""))
}

fn list(profiles: &[Profile], look: Look) -> String {
    if profiles.is_empty() {
        return "no profiles\n".to_owned();
    }
    grid(profiles, look).render()
}

/// A row for each.
pub fn grid(profiles: &[Profile], look: Look) -> Grid {
    let mut grid = Grid::new(
        &[
            ("profile", Left),
            ("state", Left),
            ("training", Left),
            ("measured", Left),
            ("kind", Left),
            ("runs", Left),
            ("created", Left),
        ],
        look,
    );
    for profile in profiles {
        grid.row([
            id(&profile.name),
            state(profile),
            profile.training.as_ref().map_or_else(String::new, |spec| training::line(spec, look)),
            campaign(profile),
            or_none(&profile.device_kind, look),
            made(profile),
            time(profile.create_time.as_ref(), look),
        ]);
    }
    grid
}

#[cfg(test)]
mod tests {
    use loadmaster_proto::wire::v1;

    use super::*;

    fn profile() -> Profile {
        Profile {
            name: "profiles/vgg11-1a2b".to_owned(),
            model: "models/vgg11-1f".to_owned(),
            training: Some(v1::TrainingSpec {
                micro_batch_size: 8,
                micro_batch_count: 4,
                ..v1::TrainingSpec::default()
            }),
            profiling_mode: ProfilingMode::PerStage.into(),
            device_count: 4,
            scenarios: vec![
                v1::ProfileScenario { parallel_size: 1, ..v1::ProfileScenario::default() },
                v1::ProfileScenario {
                    parallelism: v1::Parallelism::Data.into(),
                    parallel_size: 2,
                    micro_batch_sizes: vec![4],
                },
            ],
            reduced_batch_run_count: 1,
            reused_run_count: 8,
            saved_device_seconds: 40.0,
            predictor_needs: vec![
                v1::PredictorNeeds { predictor: "capture".to_owned(), missing: vec!["a".to_owned(); 2] },
                v1::PredictorNeeds { predictor: "component".to_owned(), missing: Vec::new() },
            ],
            state: State::Incomplete.into(),
            profiled_micro_batch_sizes: vec![2, 4],
            device_kind: "cpu".to_owned(),
            run_counts: Some(v1::RunCounts {
                total_count: 12,
                succeeded_count: 11,
                out_of_memory_count: 1,
                ..v1::RunCounts::default()
            }),
            device_seconds: 93.5,
            missing: vec!["layer 1 at micro-batch 4".to_owned()],
            operation: "operations/01".to_owned(),
            layer_memory: vec![
                LayerMemory {
                    layer: 0,
                    micro_batch_size: 2,
                    in_flight_micro_batch_count: 4,
                    isolated_bytes: Some(3 << 20),
                    added_bytes: None,
                    neighbour_first_layer: None,
                    accounting: v1::MemoryAccounting::Allocated.into(),
                    ..LayerMemory::default()
                },
                LayerMemory {
                    layer: 1,
                    micro_batch_size: 2,
                    in_flight_micro_batch_count: 4,
                    isolated_bytes: None,
                    added_bytes: Some(-1024),
                    neighbour_first_layer: Some(0),
                    accounting: v1::MemoryAccounting::Allocated.into(),
                    parallelism: v1::Parallelism::Data.into(),
                    degree: 2,
                },
            ],
            ..Profile::default()
        }
    }

    #[test]
    fn a_profile_shows_the_memory_of_its_layers() {
        assert_eq!(
            one(&profile(), Look::PLAIN),
            "profile      profiles/vgg11-1a2b\n\
             state        incomplete\n\
             model        models/vgg11-1f\n\
             training     gpipe - micro-batch 8 x 4 - sgd - fp32\n\
             measured     single stages for pipelines of 4, micro-batch 2 and 4; data 2 at 4\n\
             device kind  cpu\n\
             runs         12 of 12 runs done, 1 out of memory; 1 repeated at a smaller micro-batch; 8 reused\n\
             device time  93.50 s; reuse saved 40.00 s\n\
             capture      missing 2 measurements\n\
             component    has all that it needs\n\
             operation    operations/01\n\
             created      -\n\
             ended        -\n\
             \n\
             layer  on      micro-batch  in flight  isolated M_i (measured, allocated)  added M_a (measured, allocated)  added to\n\
             \x20   0  1                 2          4                            3.00 MiB                                -  -\n\
             \x20   1  data 2            2          4                                   -                        -1.00 KiB  0..0\n\
             missing: layer 1 at micro-batch 4\n"
        );
    }

    #[test]
    fn a_profile_with_a_run_in_chunks_says_what_that_took_and_taught() {
        let needs = v1::PredictorNeeds { predictor: "chunks".to_owned(), missing: Vec::new() };
        let asked = Profile { host_memory_bytes: 8 << 30, predictor_needs: vec![needs], ..profile() };
        let text = one(&asked, Look::PLAIN);
        assert!(text.contains("chunks       has all that it needs\n"), "{text}");
        assert!(text.contains("in chunks    at most 8.00 GiB of CPU memory\n"), "{text}");
        let text = one(&Profile { cpu_optimizer_rate: Some(91e6), ..asked }, Look::PLAIN);
        assert!(text.contains(", which updates 91,000,000 parameters/s (measured)\n"), "{text}");
        assert!(!one(&profile(), Look::PLAIN).contains("chunks"));
    }

    /// Pins that who looks at a profile learns that its seconds are not to be trusted, and what to do.
    #[test]
    fn a_disturbed_profile_says_so() {
        let disturbed = Profile {
            contended_measurement_count: 12,
            external_cpu_share: 0.55,
            oversubscribed_measurement_count: 3,
            ..profile()
        };
        let text = one(&disturbed, Look::PLAIN);
        assert!(
            text.contains("other processes used up to 55.0 % of the CPU cores during 12 of the measurements"),
            "{text}"
        );
        assert!(text.contains("`reuse_contended`"), "{text}");
        assert!(text.contains("the ranks of 3 of the measurements had more threads"), "{text}");
        assert!(!one(&profile(), Look::PLAIN).contains("warning"));
    }

    #[test]
    fn profiles_are_listed_one_per_line() {
        assert_eq!(list(&[], Look::PLAIN), "no profiles\n");
        assert_eq!(
            list(&[profile()], Look::PLAIN),
            "profile     state       training                                measured              kind  \
             runs                                                                                created\n\
             vgg11-1a2b  incomplete  gpipe - micro-batch 8 x 4 - sgd - fp32  per-stage, 4 devices  cpu   \
             12 of 12 runs done, 1 out of memory; 1 repeated at a smaller micro-batch; 8 reused  -\n"
        );
    }
}
