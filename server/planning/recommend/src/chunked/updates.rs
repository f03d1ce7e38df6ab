//! How fast the host updates parameters for each of the ranks that share chunks, and who says so.

use loadmaster_proto::cluster::{HostUpdate, quantity};

use loadmaster_memory::chunks::ChunkCheck;

/// What is known of updates on the host.
#[derive(Debug, Clone, Copy)]
pub(super) struct KnownUpdates<'a> {
    /// What the request says, for one rank alone.
    pub(super) given: Option<f64>,
    /// What a profile's run of one rank measured.
    pub(super) profiled: Option<&'a ChunkCheck>,
    /// What the cluster says of the training's step.
    pub(super) described: Option<HostUpdate>,
    /// How many ranks are updated for at the same time.
    pub(super) ranks: u32,
    /// How many times as long that takes because they outnumber the cores, where nobody measured it; 1 where they do not.
    pub(super) slower: f64,
}

/// Parameters that are updated in a second for each rank.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct UpdateRate {
    pub(super) each: f64,
    /// For people.
    pub(super) told: String,
    /// Whether what ranks share was measured or said, so that nothing else says how much slower they are.
    pub(super) knows_shares: bool,
}

impl KnownUpdates<'_> {
    /// None where nobody knows how fast one rank alone is updated for. Alone as the request says, or else as the profile
    /// measured it beside its passes, or else as the cluster says; the share of that which each of several ranks has is the
    /// cluster's to say, or else the cores'.
    pub(super) fn rate(&self) -> Option<UpdateRate> {
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
            told = format!("{told}, {} for each of {ranks} ranks at once (cluster, {origin})", show(each));
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
        /// Whoever says how fast one rank is: seconds of several at once are as many times longer as the cluster saw, for as
        /// many as it saw together as long as all of it takes, and never shorter than alone.
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
            let says = given.or_else(|| profiled.as_ref().map(|of| of.update_rate)).or(alone).unwrap();
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
                    prop_assert_eq!(rate.told.contains("ranks at once (cluster, measured)"), longer > 1.0);
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
            "600.0 M parameters/s (cluster, measured), 300.0 M parameters/s for each of 3 ranks at once (cluster, measured)"
        );
        let alone = KnownUpdates { ranks: 1, ..known }.rate().unwrap();
        assert_eq!((alone.each, alone.told.as_str()), (600e6, "600.0 M parameters/s (cluster, measured)"));
        let given = KnownUpdates { given: Some(1e8), ..known }.rate().unwrap();
        assert_eq!(given.each, 5e7, "half of alone, as in the cluster");
    }
}
