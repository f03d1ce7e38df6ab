//! Hosts of CPU slots: what slots that share its cores cost each other, and what copies cost.

use serde::{Deserialize, Serialize};

use super::environment::Environment;
use crate::amounts::{is_one, one};
use crate::error::{Invalid, in_range};
use crate::message;
use crate::wire::v1;

/// What copies cost a stage on a CPU slot beside which they were made.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CopyCost {
    /// How fast they were.
    pub bytes_per_second: f64,
    /// What their thread had of a core meanwhile, 0 to 1.
    pub core_share: f64,
    /// How many times as long as without them a core was busy with an iteration. Below 1 where that is a matter of chance.
    pub contention_slowdown: f64,
}

impl CopyCost {
    /// Chance makes no iteration shorter than this.
    const RATIOS: std::ops::RangeInclusive<f64> = 1e-3..=Environment::MOST_SLOWDOWN;
    /// No copy is faster or slower than this, in bytes per second.
    const PACES: std::ops::RangeInclusive<f64> = 1e-3..=1e15;

    /// Of so many bytes, which took their thread so many seconds of a core, within so many seconds, beside an iteration that took no
    /// longer. None of copies that got nowhere.
    pub fn of(bytes: f64, core_seconds: f64, seconds: f64) -> Option<Self> {
        let bytes_per_second = bytes / seconds;
        let core_share = (core_seconds / seconds).clamp(0.0, 1.0);
        Self::PACES.contains(&bytes_per_second).then_some(Self {
            bytes_per_second,
            core_share,
            contention_slowdown: one(),
        })
    }

    /// The same beside an iteration that took so many times as long; none where that cannot be.
    #[must_use]
    pub fn beside(self, contention_slowdown: f64) -> Option<Self> {
        Self::RATIOS.contains(&contention_slowdown).then_some(Self { contention_slowdown, ..self })
    }

    pub(super) fn check(self) -> Result<(), Invalid> {
        in_range("bytes_per_second", self.bytes_per_second, Self::PACES)?;
        in_range("core_share", self.core_share, 0.0..=1.0)?;
        in_range("contention_slowdown", self.contention_slowdown, Self::RATIOS).map(drop)
    }
}

/// A host that CPU slots were profiled on.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Host {
    /// Cores; of different hosts the fewest.
    pub cores: u32,
    /// Threads that each slot computed with; of different ones the most.
    pub threads: u32,
    /// How many times as long passes take while all slots that have room compute, 1 where that was not measured. Layers differ in
    /// that, and cores of a virtual machine from one moment to the next. The mean of the time that was measured, not of the runs,
    /// most of which are of layers that hardly compute.
    #[serde(default = "one", skip_serializing_if = "is_one")]
    pub contention_slowdown: f64,
    /// What a copied byte costs, where that was measured: means as above.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub copies: Option<CopiedByte>,
}

/// What a byte costs that is copied on a host.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct CopiedByte {
    /// The seconds of a core that it takes.
    pub core_seconds: f64,
    /// By how many seconds of a core each step becomes longer beside which it is copied.
    pub slowdown_seconds: f64,
}

impl Host {
    /// Of what was measured, each with the seconds of an iteration there; none where one of the measurements does not say how
    /// many cores there were.
    pub fn of<'a>(measured: impl IntoIterator<Item = (&'a Environment, f64)>) -> Option<Self> {
        let (mut ratios, mut takes, mut costs) = (Vec::new(), Vec::new(), Vec::new());
        let mut hosts = measured.into_iter().map(|(environment, seconds)| {
            ratios.extend(environment.contention_slowdown.map(|ratio| (ratio, seconds)));
            if let Some(CopyCost { bytes_per_second, core_share, contention_slowdown }) =
                environment.copy_cost
            {
                takes.push((core_share / bytes_per_second, seconds));
                costs.push(((contention_slowdown - 1.0) / bytes_per_second, seconds));
            }
            let (cores, threads) = (environment.cores, environment.threads.max(1));
            // Not every version has counted them.
            (cores > 0).then_some(Self { cores, threads, contention_slowdown: one(), copies: None })
        });
        let first = hosts.next()??;
        let all = hosts.try_fold(first, |all, host| {
            let Self { cores, threads, .. } = host?;
            Some(Self { cores: all.cores.min(cores), threads: all.threads.max(threads), ..all })
        })?;
        let copies = mean_by_weight(&takes).zip(mean_by_weight(&costs));
        Some(Self {
            contention_slowdown: mean_by_weight(&ratios).unwrap_or_else(one),
            // No copy makes anything shorter.
            copies: copies.map(|(core_seconds, slowdown)| CopiedByte {
                core_seconds,
                slowdown_seconds: slowdown.max(0.0),
            }),
            ..all
        })
    }
}

/// The mean of values with weights; none of none.
fn mean_by_weight(weighed: &[(f64, f64)]) -> Option<f64> {
    let (sum, weights) = weighed
        .iter()
        .fold((0.0, 0.0), |(sum, weights), (value, weight)| (sum + value * weight, weights + weight));
    let plain = || weighed.iter().map(|(value, _)| value).sum::<f64>() / weighed.len() as f64;
    let mean = if weights > 0.0 { sum / weights } else { plain() };
    (!weighed.is_empty() && mean.is_finite()).then_some(mean)
}

message! {
    CopyCost <=> v1::CopyCost { bytes_per_second, core_share, contention_slowdown } check CopyCost::checked
}

impl CopyCost {
    fn checked(self) -> Result<Self, Invalid> {
        self.check().map(|()| self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A measurement of a version that did not count cores has no data about the host.
    #[test]
    fn hosts_are_known_where_all_measurements_tell() {
        let of =
            |measured: &[(Environment, f64)]| Host::of(measured.iter().map(|(of, seconds)| (of, *seconds)));
        assert_eq!(of(&[(Environment { threads: 2, ..Environment::default() }, 1.0)]), None);
        assert_eq!(of(&[]), None);
        let counted = Environment { threads: 2, cores: 6, ..Environment::default() };
        assert_eq!(
            of(&[(counted.clone(), 1.0)]),
            Some(Host { cores: 6, threads: 2, contention_slowdown: 1.0, copies: None })
        );
        assert_eq!(of(&[(counted.clone(), 1.0), (Environment::default(), 1.0)]), None);
        let crowded = |ratio| Environment { contention_slowdown: Some(ratio), ..counted.clone() };
        let measured = |seconds: [f64; 4]| {
            let environments = [crowded(1.25), counted.clone(), crowded(9.0), crowded(1.0)];
            let measured: Vec<_> = environments.into_iter().zip(seconds).collect();
            of(&measured).map(|host| host.contention_slowdown)
        };
        assert_eq!(measured([1.0; 4]), Some(3.75), "the mean of those that say");
        assert_eq!(measured([4.0, 100.0, 1.0, 3.0]), Some(2.125), "of the time that they took");
        assert_eq!(measured([0.0; 4]), Some(3.75), "whatever that was");
    }

    /// Both means are of bytes, however fast the copies were that were measured, and weigh the time that they were measured for.
    #[test]
    fn what_a_copied_byte_costs_is_that_of_the_time_that_was_measured() {
        let of = |bytes_per_second, core_share, contention_slowdown| Environment {
            cores: 2,
            copy_cost: Some(CopyCost { bytes_per_second, core_share, contention_slowdown }),
            ..Environment::default()
        };
        let told = |of: &[(Environment, f64)]| {
            Host::of(of.iter().map(|(of, seconds)| (of, *seconds))).and_then(|host| host.copies)
        };
        let measured = [(of(1.0, 0.25, 1.5), 3.0), (of(2.0, 1.0, 1.5), 1.0)];
        let both = CopiedByte { core_seconds: 0.3125, slowdown_seconds: 0.4375 };
        assert_eq!(told(&measured), Some(both));
        let [first, _] = measured;
        let faster = told(&[first, (of(1.0, 0.25, 0.5), 9.0)]).unwrap();
        assert_eq!(faster.slowdown_seconds, 0.0, "no copy makes anything shorter");
        assert_eq!(told(&[(Environment { cores: 2, ..Environment::default() }, 1.0)]), None);
    }

    /// What no clock can have shown is refused by name.
    #[test]
    fn copies_cost_what_is_possible() {
        assert_eq!(CopyCost::of(0.0, 1.0, 1.0), None);
        assert_eq!(CopyCost::of(1.0, 1.0, 0.0), None);
        let of = CopyCost::of(3e9, 4.0, 2.0);
        assert_eq!(of.and_then(|of| of.beside(0.75)).map(|of| of.contention_slowdown), Some(0.75));
        assert_eq!(of.and_then(|of| of.beside(0.0)), None);
        assert_eq!(of, Some(CopyCost { bytes_per_second: 1.5e9, core_share: 1.0, contention_slowdown: 1.0 }));
        let good = v1::CopyCost { bytes_per_second: 1e9, core_share: 0.5, contention_slowdown: 1.25 };
        assert!(CopyCost::try_from(good).is_ok());
        for (bent, field) in [
            (v1::CopyCost { bytes_per_second: 0.0, ..good }, "bytes_per_second"),
            (v1::CopyCost { core_share: 1.5, ..good }, "core_share"),
            (v1::CopyCost { core_share: f64::NAN, ..good }, "core_share"),
            (v1::CopyCost { contention_slowdown: 0.0, ..good }, "contention_slowdown"),
        ] {
            assert_eq!(CopyCost::try_from(bent).unwrap_err().violations()[0].field, field);
        }
    }
}
