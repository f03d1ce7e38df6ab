//! The `paper` profiling: the profiling partitionings of CAPTURE's Description 1.
//!
//! Line by line one device grows by a layer, the next layer sits alone on the device after it and
//! the rest is split equally. The peak of the growing device against that of the line before is the
//! added memory of its newest layer; the lone layer shows its isolated memory. When the growing
//! device has passed L/G layers it is frozen there and the next device grows.
//!
//! # Where the paper contradicts itself, and what happens here
//!
//! * Line 5 sums to L + 1 layers and line 10 has a parenthesis astray; with `eq(L − (L/G + 3), G − 3)`
//!   and `eq(L − (2·L/G + 2), G − 4)` both are right.
//!
//!
//!
//!
//! * Lines 14 and 15 sum to (G − 2)·L/G + 2 layers, which is L only for L = G. A device that grows
//!   needs two more after it (the lone layer and the rest), so the last two devices can never grow
//!   behind G − 2 or G − 1 frozen ones.
//!
//!   Here the growing sets still restart at *every* multiple of
//!   L/G: the layers before the last blocks are put on fewer devices instead. That keeps the
//!   neighbour sets small, for G > 4 also the largest stage, and makes both profiling modes yield the same
//!   sets.
//! * Line 15 measures the last layer's added memory with one neighbour. One neighbour is the least
//!   accurate set there is; here the last layer joins its block like every other layer.
//! * "`M_i` for layers 0 to L/G + 2" and "`M_a` for layers 1 to L/G" count from 0 and from 1. Only what
//!   the partitionings really show counts here; a test derives it for all L ≤ 40, G ≤ 8.
//! * Line 7 repeats line 4. Every line that shows nothing new is left out, be it because the stages of
//!   an `eq` showed it before. So the bound of L + 1 partitionings per micro-batch size holds for every
//!   G ≥ 3, and for G ≥ 4 there are at most L.
//!
//! # Few devices
//!
//! * G = 3: no device is left for frozen layers, so the first device grows through the whole model
//!   and all layers but the last have all layers before them as neighbours.
//! * G = 2 and G = 1: a layer that is neither first nor last is never alone on a device. That is an
//!   error ([`ProfilingError::CannotIsolate`]), because a profile without `M_i` predicts nothing; a model
//!   of at most G layers is fine.
//! * Where fewer layers are left than devices, the last devices stay idle: a growing stage of two
//!   layers leaves one device without work when L = G.

use std::collections::HashSet;

use loadmaster_proto::training::scenario::Scenario;
use loadmaster_proto::training::stage::{Partitioning, StageConfig};
use loadmaster_proto::training::{Schedule, TrainingSpec};

use super::error::{ProfilingError, check_counts};
use super::neighbours::{Neighbours, block_starts};

/// Most stages of all partitionings together. A model that needs more has more runs than a
/// [layout](crate::profiling::runs::Layout) takes; it is refused before they are written down.
const MAX_STAGES: usize = 20_000_000;

/// The partitionings to run at each profiled micro-batch size.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WholePipelineProfiling {
    /// In Description 1's order, without duplicates; at most L + 1 for three or more devices.
    pub partitionings: Vec<Partitioning>,
    /// The neighbours that each layer's added memory is measured with.
    pub neighbours: Neighbours,
}

impl WholePipelineProfiling {
    /// The same partitionings over sub-meshes of several devices: every stage is shared among its own.
    #[must_use]
    pub fn shared(mut self, scenario: Scenario) -> Self {
        for partitioning in &mut self.partitionings {
            let stages = partitioning.stages().iter();
            let shared = stages.map(|stage| scenario.stage(stage.first_layer, stage.last_layer)).collect();
            if let Ok(shared) = Partitioning::new(shared) {
                *partitioning = shared;
            }
        }
        self
    }
}

/// Lays out Description 1 for `layers` layers over `devices` devices.
///
/// # Errors
/// No device, more devices than layers, too few devices to isolate every layer, or a schedule under
/// which the stages of a partitioning are not comparable. 1F1B with more than one micro-batch. Or far more
/// partitionings than anybody would train.
pub fn paper(
    layers: usize,
    devices: usize,
    training: &TrainingSpec,
) -> Result<WholePipelineProfiling, ProfilingError> {
    check_counts(layers, devices)?;
    if devices < 3 && layers > devices {
        let (first_layer, last_layer) = if devices == 1 { (0, layers - 1) } else { (1, layers - 2) };
        return Err(ProfilingError::CannotIsolate { devices, first_layer, last_layer });
    }
    let varies = match training.schedule {
        Schedule::Gpipe => false,
        Schedule::OneFOneB => training.micro_batches > 1,
        Schedule::PipeDream => true,
    };
    if devices > 1 && varies {
        return Err(ProfilingError::InFlightVaries);
    }
    if layers.saturating_mul(devices) > MAX_STAGES {
        return Err(ProfilingError::TooLarge { runs: layers, layers });
    }
    let neighbours = neighbours(layers, devices);
    let starts = block_starts(layers, devices);
    let mut partitionings = Vec::new();
    let mut measured = HashSet::new();
    for growing in growing_stages(&neighbours) {
        let next_alone = (growing.1 + 1, growing.1 + 1);
        let known = measured.contains(&growing) && (next_alone.0 >= layers || measured.contains(&next_alone));
        if known {
            continue; // As line 7, which repeats line 4.
        }
        let Ok(partitioning) = Partitioning::from_sizes(&line(layers, devices, &starts, growing)) else {
            continue; // Impossible: every size is at least 1.
        };
        measured.extend(
            partitioning
                .stages()
                .iter()
                .map(|&StageConfig { first_layer, last_layer, .. }| (first_layer, last_layer)),
        );
        partitionings.push(partitioning);
    }
    Ok(WholePipelineProfiling { partitionings, neighbours })
}

/// The neighbour sets that partitionings over `devices` devices can measure.
fn neighbours(layers: usize, devices: usize) -> Neighbours {
    if devices > 3 {
        return Neighbours::growing(layers, devices);
    }
    // The last layer's own block, because all layers on one device are what partitioning avoids.
    let last = layers.saturating_sub(1);
    let block = Neighbours::growing(layers, devices).first_of(last).unwrap_or(0);
    Neighbours::from_first_layer(layers).with(last, block)
}

/// What the growing device holds, line by line.
fn growing_stages(neighbours: &Neighbours) -> Vec<(usize, usize)> {
    let mut growing = vec![(0, 0)];
    for layer in 1..neighbours.layers() {
        let first = neighbours.first_of(layer).unwrap_or(0);
        growing.extend([(first, layer - 1), (first, layer)]);
    }
    growing
}

/// Layers per stage of the line whose growing device holds `growing`.
fn line(layers: usize, devices: usize, starts: &[usize], growing: (usize, usize)) -> Vec<usize> {
    let (first, last) = growing;
    let after = layers - 1 - last;
    let frozen: Vec<usize> = starts
        .iter()
        .zip(starts.iter().skip(1))
        .filter(|block| *block.1 <= first)
        .map(|(a, b)| b - a)
        .collect();

    // Lines 4, 5, 10 and 11: a second lone layer where the growing device is at its full size or one
    // layer past it. It may save a later line.
    let full = starts.contains(&last) || starts.contains(&(last + 1));
    let wanted = if last > 0 && full { 2 } else { 1 };
    let fits = |before: usize, alone: usize| before + 1 + alone + usize::from(after > alone) <= devices;
    let alone = if after >= wanted && fits(frozen.len(), wanted) { wanted } else { after.min(1) };

    let room = devices - 1 - alone - usize::from(after > alone);
    let mut sizes = if frozen.len() <= room { frozen } else { split_equally(first, room) };
    sizes.push(last + 1 - first);
    sizes.extend(std::iter::repeat_n(1, alone));
    sizes.extend(split_equally(after - alone, devices - sizes.len()));
    sizes
}

/// The paper's `eq(k, g)`: `layers` over at most `devices` stages of sizes that differ by at most 1,
/// larger ones first.
fn split_equally(layers: usize, devices: usize) -> Vec<usize> {
    let stages = devices.min(layers);
    (0..stages).map(|stage| layers / stages + usize::from(stage < layers % stages)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sizes(layers: usize, devices: usize) -> Vec<Vec<usize>> {
        let profiling = paper(layers, devices, &gpipe()).unwrap();
        profiling.partitionings.iter().map(Partitioning::sizes).collect()
    }

    fn gpipe() -> TrainingSpec {
        crate::tests::training(Schedule::Gpipe, 8, 12)
    }

    /// Description 1 as printed (with its slips corrected), for L = 25 over G = 5: L/G = 5.
    #[test]
    fn the_first_lines_are_those_of_description_1() {
        let expected: [&[usize]; 11] = [
            &[1, 1, 8, 8, 7],
            &[2, 1, 8, 7, 7],
            &[3, 1, 7, 7, 7],
            &[4, 1, 7, 7, 6],
            &[5, 1, 1, 9, 9],
            &[6, 1, 1, 9, 8],
            &[5, 2, 1, 9, 8],
            &[5, 3, 1, 8, 8],
            &[5, 4, 1, 8, 7],
            &[5, 5, 1, 1, 13],
            &[5, 6, 1, 1, 12],
        ];
        assert_eq!(sizes(25, 5)[..11], expected);
    }

    /// Every promise of the profiling, for all L ≤ 40 and G ≤ 8. The partitionings cover the model, need no
    /// more devices than there are, and are all different. They contain `M_i` of every layer, and `M_a` of every
    /// layer but the first with the neighbours that the profiling reports. There are at most L + 1 of them.
    #[test]
    fn isolated_and_added_memory_of_every_layer_can_be_derived() {
        for layers in 1..=40 {
            for devices in 1..=layers.min(8) {
                let case = format!("L = {layers}, G = {devices}");
                let Ok(profiling) = paper(layers, devices, &gpipe()) else {
                    assert!(devices < 3 && devices < layers, "{case}");
                    continue;
                };
                let mut seen = HashSet::new();
                let mut measured = HashSet::new();
                for partitioning in &profiling.partitionings {
                    assert_eq!(partitioning.layer_count(), layers, "{case}");
                    assert!(partitioning.stages().len() <= devices, "{case}: {partitioning}");
                    assert!(seen.insert(partitioning.clone()), "{case}: {partitioning} twice");
                    measured.extend(partitioning.stages().iter().map(|s| (s.first_layer, s.last_layer)));
                }
                for layer in 0..layers {
                    assert!(measured.contains(&(layer, layer)), "{case}: M_i of {layer}");
                    if let Some(first) = profiling.neighbours.first_of(layer) {
                        for last in [layer - 1, layer] {
                            assert!(measured.contains(&(first, last)), "{case}: M_a of {layer}");
                        }
                    }
                }
                let most = if devices > 3 { layers } else { layers + 1 };
                assert!(profiling.partitionings.len() <= most, "{case}");
            }
        }
    }

    /// From four devices on both profiling modes measure the same neighbour sets, so that their metrics
    /// can be compared, and a layer costs at most one run.
    #[test]
    fn four_or_more_devices_measure_the_growing_sets_in_at_most_one_run_per_layer() {
        for (layers, devices, runs) in
            [(30, 4, 29), (15, 4, 14), (27, 4, 26), (24, 5, 23), (40, 8, 37), (8, 8, 8), (6, 4, 5)]
        {
            let profiling = paper(layers, devices, &gpipe()).unwrap();
            assert_eq!(profiling.neighbours, Neighbours::growing(layers, devices));
            assert_eq!(profiling.partitionings.len(), runs, "L = {layers}, G = {devices}");
        }
    }

    /// A profiling that no layout takes is refused before it takes memory.
    #[test]
    fn far_too_many_stages_are_refused_at_once() {
        let refused = paper(10_000, 10_000, &gpipe());
        assert!(matches!(refused, Err(ProfilingError::TooLarge { layers: 10_000, .. })), "{refused:?}");
    }

    /// Freezing blocks keeps the largest stage small where devices allow it: no profiling stage of 8
    /// devices holds a third of the model.
    #[test]
    fn many_devices_keep_profiling_stages_small() {
        let largest = sizes(40, 8).into_iter().flatten().max().unwrap();
        assert!(largest <= 13, "{largest}");
    }

    #[test]
    fn too_few_devices_are_refused_with_the_layers_that_are_never_alone() {
        assert_eq!(
            paper(15, 2, &gpipe()).unwrap_err(),
            ProfilingError::CannotIsolate { devices: 2, first_layer: 1, last_layer: 13 }
        );
        assert_eq!(
            paper(15, 1, &gpipe()).unwrap_err(),
            ProfilingError::CannotIsolate { devices: 1, first_layer: 0, last_layer: 14 }
        );
        assert_eq!(sizes(2, 2), [vec![1, 1], vec![2]]);
        assert_eq!(sizes(1, 1), [[1]]);
    }

    #[test]
    fn counts_that_do_not_match_are_refused() {
        assert_eq!(paper(3, 0, &gpipe()).unwrap_err(), ProfilingError::NoDevices);
        let error = paper(3, 4, &gpipe()).unwrap_err();
        assert_eq!(
            error.to_string(),
            "4 devices are more than 3 layers, so some stage would have no layer. Use fewer devices"
        );
    }

    /// Peaks at different numbers of micro-batches in flight must never be subtracted.
    #[test]
    fn one_f_one_b_is_refused_unless_nothing_is_in_flight_besides_one_micro_batch() {
        let training = TrainingSpec { schedule: Schedule::OneFOneB, ..gpipe() };
        assert_eq!(paper(8, 4, &training).unwrap_err(), ProfilingError::InFlightVaries);
        assert!(paper(8, 4, &TrainingSpec { micro_batches: 1, ..training }).is_ok());
        let endless = TrainingSpec { schedule: Schedule::PipeDream, micro_batches: 1, ..gpipe() };
        assert_eq!(paper(8, 4, &endless).unwrap_err(), ProfilingError::InFlightVaries);
    }
}
