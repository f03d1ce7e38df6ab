//! How fast copies and updates of chunks are, and where each rate comes from.
//!
//! An update rate on the host counts the ranks that share the chunks: each of them gets a part of what the host updates.

use loadmaster_proto::cluster::device::CPU_KIND;
use loadmaster_proto::cluster::{HostUpdate, quantity};
use loadmaster_proto::error::Invalid;
use loadmaster_proto::plan::rates::LaneRates;
use loadmaster_proto::training::step_kind::StepKind;

use super::ChunksQuestion;
use super::device::ChunkDevices;
use crate::memory_optimizations::{CopyLinks, HostRates, or_other_rates};
use crate::result::QuestionError;
use loadmaster_memory::chunks::{ChunkCheck, ProfiledPasses};
use loadmaster_predict::PredictionError;

/// Rates, and where they come from.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct SourcedRates {
    pub(super) rates: LaneRates,
    /// Human-readable.
    pub(super) told: String,
}

impl ChunksQuestion<'_> {
    /// # Errors
    /// It is not known how fast the host updates.
    pub(super) fn rates(&self, devices: &ChunkDevices<'_>) -> Result<SourcedRates, QuestionError> {
        let kind = devices.kind();
        let places = devices.placed.iter().map(|placed| (devices.node, placed.index)).collect();
        let all = CopyLinks::of(&[places], kind, self.request.copy_pace);
        let links = all.host_way(0);
        let HostRates { up, down, copy_seconds } = all.host_rates();
        let updates = self.host_update(devices)?;
        let (slower, update) = (devices.slower(), updates.each);
        let rates = LaneRates {
            up,
            down,
            copy_seconds,
            update,
            device_update: if kind == CPU_KIND { update } else { self.device_update(devices)? },
            gather: devices.inside.bytes_per_second,
            collective_seconds: devices.inside.latency_seconds,
            // All that updates go over.
            host_memory: (kind != CPU_KIND).then(|| self.step().moved_bytes() as f64 * update),
        };
        let mut told = format!("{}; CPU optimizer step at {}", or_other_rates(&links), updates.told);
        if devices.replicas > 1 {
            let inside = quantity::show_bytes_per_second(rates.gather);
            told = format!("{told}; between ranks {inside} ({})", devices.inside.origin.as_str());
        }
        if slower > 1.0 {
            let ranks = devices.ranks();
            let what = if updates.knows_shares { "passes" } else { "passes and updates" };
            told = format!(
                "{told}; {what} take {slower:.2} times as long, because {ranks} ranks share the CPU cores of the host"
            );
        }
        Ok(SourcedRates { rates, told })
    }

    /// Parameters that the host updates in a second for each rank, all of them at once, and who says so.
    fn host_update(&self, devices: &ChunkDevices<'_>) -> Result<UpdateRate, QuestionError> {
        let known = KnownUpdates {
            given: self.asked.host_update,
            profiled: devices.chain.chunk_check.as_ref(),
            described: devices.node.and_then(|node| node.host_update(self.step())),
            ranks: devices.ranks(),
            slower: devices.slower(),
        };
        known.rate().ok_or_else(|| {
            PredictionError::NotProfiled(format!(
                "{} does not contain the speed of the CPU optimizer step, which chunked training needs, and the \
                 request names no cluster with this speed. Profile with `host_memory_bytes`, name a cluster whose \
                 links were measured, or set `memory.cpu_optimizer_rate`",
                devices.chain.profile
            ))
            .into()
        })
    }

    fn step(&self) -> StepKind {
        let training = &self.context.training;
        StepKind::of(&training.optimizer, training.precision)
    }

    /// Parameters that the device updates in a second, from the steps of plain training.
    fn device_update(&self, devices: &ChunkDevices<'_>) -> Result<f64, QuestionError> {
        let passes = ProfiledPasses {
            predictor: &*devices.chain.predictor,
            model: self.model()?,
            training: self.context.training,
            ranks: 1,
            shards: 1,
            margin: self.context.margin,
            factors: [1.0; 2],
        };
        let seconds: f64 = passes.layer_costs()?.iter().map(|of| of.seconds.step).sum();
        let rate = passes.model.parameter_count() as f64 / seconds;
        if rate.is_finite() && rate > 0.0 {
            return Ok(rate);
        }
        let why = "has no seconds of the optimizer step. Profile with `profiling_mode` PROFILING_MODE_PER_LAYER, or add \
            `update_seconds` of each layer to an imported table";
        Err(Invalid::field("problem.profile", why).into())
    }
}

/// The rates that are known of updates on the host.
#[derive(Debug, Clone, Copy)]
struct KnownUpdates<'a> {
    /// The rate of the request, for one rank alone.
    given: Option<f64>,
    /// The rate that a profile's run of one rank measured.
    profiled: Option<&'a ChunkCheck>,
    /// The rate of the training's step, as the cluster states it.
    described: Option<HostUpdate>,
    /// How many ranks are updated for at the same time.
    ranks: u32,
    /// How many times as long that takes because they outnumber the cores, if it was not measured; 1 where they do not.
    slower: f64,
}

/// Parameters that are updated in a second for each rank.
#[derive(Debug, Clone, PartialEq)]
struct UpdateRate {
    each: f64,
    /// Human-readable.
    told: String,
    /// Whether what ranks share was measured or said, so that nothing else says how much slower they are.
    knows_shares: bool,
}

impl KnownUpdates<'_> {
    /// Returns none where no rate of one rank alone is known. Alone it is as the request says, or else as the profile
    /// measured it beside its passes, or else as the cluster says. The share of that which each of several ranks has is the
    /// cluster's to say, or else the cores'.
    fn rate(&self) -> Option<UpdateRate> {
        let show = quantity::show_parameters_per_second;
        let origin = self.described.map_or("", |update| update.origin.as_str());
        let (alone, who) = match (self.given, self.profiled, self.described) {
            (Some(rate), _, _) => (rate, "given".to_owned()),
            (None, Some(check), _) => (check.update_rate, format!("measured by {}", check.run)),
            (None, None, Some(update)) => (update.parameters_per_second, format!("cluster, {origin}")),
            (None, None, None) => return None,
        };
        let shared = self.described.filter(|update| update.together_per_second.is_some());
        let share = match shared {
            Some(update) => update.of_each(self.ranks) / update.parameters_per_second,
            None => 1.0 / self.slower,
        };
        let each = alone * share;
        let mut told = format!("{} ({who})", show(alone));
        if shared.is_some() && share < 1.0 {
            let ranks = self.ranks;
            told = format!(
                "{told}, {} for each of {ranks} ranks that update at the same time (cluster, {origin})",
                show(each)
            );
        }
        Some(UpdateRate { each, told, knows_shares: shared.is_some() })
    }
}

#[cfg(test)]
mod tests {
    use loadmaster_proto::cluster::LinkOrigin;
    use loadmaster_proto::measure::chunked::ChunkRun;
    use loadmaster_proto::training::step_kind::StepKind;
    use proptest::prelude::*;

    use super::*;

    fn described(alone: f64, together: Option<f64>) -> HostUpdate {
        HostUpdate {
            step: StepKind::AdamBf16,
            parameters_per_second: alone,
            together_per_second: together,
            origin: LinkOrigin::Measured,
        }
    }

    fn check(update_rate: f64) -> ChunkCheck {
        ChunkCheck { run: "runs/1/measurements/0-0".to_owned(), update_rate, measured: ChunkRun::default() }
    }

    fn rates() -> impl Strategy<Value = Option<f64>> {
        prop::option::of(1e6..1e10_f64)
    }

    proptest! {
        /// Whichever source gives the rate of one rank, ranks that update at the same time are slower by the factor that
        /// the cluster measured, and never faster than one rank alone. Without such a measurement, `slower` is the factor.
        #[test]
        fn ranks_at_once_take_as_much_longer_as_was_measured(
            given in rates(),
            profiled in rates(),
            alone in rates(),
            together_share in prop::option::of(0.2..1.0_f64),
            devices in 1..17_u32,
            ranks in 1..17_u32,
            slower in 1.0..4.0_f64,
        ) {
            let profiled = profiled.map(check);
            // So many devices together reach this share of what they would without each other.
            let described = alone.map(|alone| {
                described(alone, together_share.map(|share| share * alone * f64::from(devices)))
            });
            let known = KnownUpdates { given, profiled: profiled.as_ref(), described, ranks, slower };
            let Some(rate) = known.rate() else {
                prop_assert!(given.is_none() && profiled.is_none() && alone.is_none());
                return Ok(());
            };
            let says = given.or_else(|| profiled.as_ref().map(|check| check.update_rate)).or(alone).unwrap();
            let seconds = |parameters: f64| parameters / rate.each;
            let longer = seconds(1e6) / (1e6 / says);
            let near = |one: f64, other: f64| (one / other - 1.0).abs() < 1e-9;
            match (alone, together_share) {
                (Some(_), Some(share)) => {
                    // One device of all has one part of what they reach, and none is slowed down by itself.
                    let all = f64::from(devices) * share;
                    let expected = if ranks == 1 { 1.0 } else { (f64::from(ranks) / all).max(1.0) };
                    prop_assert!(near(longer, expected), "{longer} times, not {expected}");
                    prop_assert!(rate.knows_shares);
                    prop_assert_eq!(rate.told.contains("ranks that update at the same time (cluster, measured)"), longer > 1.0);
                }
                _ => prop_assert!(near(longer, slower) && !rate.knows_shares),
            }
            let who = match (given, &profiled) {
                (Some(_), _) => "(given)",
                (None, Some(_)) => "(measured by runs/1/measurements/0-0)",
                (None, None) => "(cluster, measured)",
            };
            prop_assert!(rate.told.contains(who), "{}", rate.told);
        }
    }

    #[test]
    fn a_rate_says_who_it_is_of() {
        let described = Some(described(600e6, Some(900e6)));
        let known = KnownUpdates { given: None, profiled: None, described, ranks: 3, slower: 2.0 };
        let rate = known.rate().unwrap();
        assert_eq!(
            rate.told,
            "600.0 M parameters/s (cluster, measured), 300.0 M parameters/s for each of 3 ranks that update at the same time \
             (cluster, measured)"
        );
        let alone = KnownUpdates { ranks: 1, ..known }.rate().unwrap();
        assert_eq!((alone.each, alone.told.as_str()), (600e6, "600.0 M parameters/s (cluster, measured)"));
        let given = KnownUpdates { given: Some(1e8), ..known }.rate().unwrap();
        assert_eq!(given.each, 5e7, "half of alone, as in the cluster");
    }
}
