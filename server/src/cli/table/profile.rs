//! Profiles and the memory of their layers.

use loadmaster_proto::wire::v1::profile::State;
use loadmaster_proto::wire::v1::{Campaign, LayerMemory, Profile};

use super::super::look::Look;
use super::super::progress::runs;
use super::super::text::{maybe_bytes, plain, seconds, time, word};
use super::grid::Side::{Left, Right};
use super::grid::{Facts, Grid};
use super::{id, ledger, or_none, training};

pub(in super::super) fn one(profile: &Profile, look: Look) -> String {
    let mut facts = Facts::default();
    facts.add("profile", &profile.name);
    facts.add("state", state(profile));
    facts.add("model", &profile.model);
    if let Some(spec) = &profile.training {
        facts.add("training", training::line(spec, look));
    }
    let campaign = match profile.campaign() {
        Campaign::Paper => "whole partitionings",
        Campaign::Unspecified | Campaign::Stages => "single stages",
    };
    let sizes: Vec<String> = profile.profiled_micro_batch_sizes.iter().map(ToString::to_string).collect();
    let sizes = sizes.join(" and ");
    facts.add(
        "measured",
        format!("{campaign} for pipelines of {}, micro-batch {}", profile.devices, or_none(&sizes, look)),
    );
    facts.add("device kind", or_none(&profile.device_kind, look));
    if let Some(counts) = &profile.runs {
        facts.add("runs", runs(counts));
    }
    facts.add("device time", seconds(profile.device_seconds));
    facts.add("operation", or_none(&profile.operation, look));
    facts.add("created", time(profile.create_time.as_ref(), look));
    facts.add("ended", time(profile.end_time.as_ref(), look));
    let mut text = facts.render();
    if !profile.layers.is_empty() {
        text.push('\n');
        text.push_str(&layers(&profile.layers, look));
    }
    for missing in &profile.missing {
        text.push_str(&format!("missing: {}\n", plain(missing)));
    }
    text
}

fn layers(layers: &[LayerMemory], look: Look) -> String {
    let common = layers
        .first()
        .map(|first| first.ledger)
        .filter(|&common| layers.iter().all(|layer| layer.ledger == common));
    let note = common.map_or_else(String::new, |common| format!(", {}", ledger(common)));
    let mut grid = Grid::new(
        &[
            ("layer", Right),
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
                (Some(_), None) => format!("{amount} {}", ledger(layer.ledger)),
                (Some(_), Some(_)) | (None, _) => amount,
            }
        };
        // M_a is what this layer adds to the neighbours in front of it, down to the first named.
        let neighbours = match (layer.added_bytes, layer.layer.checked_sub(1)) {
            (Some(_), Some(last)) if layer.neighbour_first_layer >= 0 => {
                format!("{}..{last}", layer.neighbour_first_layer)
            }
            (Some(_) | None, _) => look.none().to_owned(),
        };
        grid.row([
            layer.layer.to_string(),
            layer.micro_batch_size.to_string(),
            layer.in_flight.to_string(),
            amount(layer.isolated_bytes),
            amount(layer.added_bytes),
            neighbours,
        ]);
    }
    grid.render()
}

fn state(profile: &Profile) -> String {
    State::try_from(profile.state).map_or_else(|_| "unknown".to_owned(), |s| word(s.as_str_name(), ""))
}

pub(in super::super) fn list(profiles: &[Profile], look: Look) -> String {
    if profiles.is_empty() {
        return "no profiles\n".to_owned();
    }
    let mut grid = Grid::new(
        &[
            ("profile", Left),
            ("state", Left),
            ("training", Left),
            ("devices", Right),
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
            profile.devices.to_string(),
            or_none(&profile.device_kind, look),
            profile.runs.as_ref().map_or_else(String::new, runs),
            time(profile.create_time.as_ref(), look),
        ]);
    }
    grid.render()
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
                micro_batches: 4,
                ..v1::TrainingSpec::default()
            }),
            devices: 4,
            state: State::Incomplete.into(),
            profiled_micro_batch_sizes: vec![2, 4],
            device_kind: "cpu".to_owned(),
            runs: Some(v1::RunCounts {
                total: 12,
                succeeded: 11,
                out_of_memory: 1,
                ..v1::RunCounts::default()
            }),
            device_seconds: 93.5,
            missing: vec!["layer 1 at micro-batch 4".to_owned()],
            operation: "operations/01".to_owned(),
            layers: vec![
                LayerMemory {
                    layer: 0,
                    micro_batch_size: 2,
                    in_flight: 4,
                    isolated_bytes: Some(3 << 20),
                    added_bytes: None,
                    neighbour_first_layer: -1,
                    ledger: v1::Ledger::Allocated.into(),
                },
                LayerMemory {
                    layer: 1,
                    micro_batch_size: 2,
                    in_flight: 4,
                    isolated_bytes: None,
                    added_bytes: Some(-1024),
                    neighbour_first_layer: 0,
                    ledger: v1::Ledger::Allocated.into(),
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
             measured     single stages for pipelines of 4, micro-batch 2 and 4\n\
             device kind  cpu\n\
             runs         12 of 12 runs done, 1 out of memory\n\
             device time  93.50 s\n\
             operation    operations/01\n\
             created      -\n\
             ended        -\n\
             \n\
             layer  micro-batch  in flight  isolated M_i (measured, allocated)  added M_a (measured, allocated)  added to\n\
             \x20   0            2          4                            3.00 MiB                                -  -\n\
             \x20   1            2          4                                   -                        -1.00 KiB  0..0\n\
             missing: layer 1 at micro-batch 4\n"
        );
    }

    #[test]
    fn profiles_are_listed_one_per_line() {
        assert_eq!(list(&[], Look::PLAIN), "no profiles\n");
        assert_eq!(
            list(&[profile()], Look::PLAIN),
            "profile     state       training                                devices  kind  \
             runs                                 created\n\
             vgg11-1a2b  incomplete  gpipe - micro-batch 8 x 4 - sgd - fp32        4  cpu   \
             12 of 12 runs done, 1 out of memory  -\n"
        );
    }
}
