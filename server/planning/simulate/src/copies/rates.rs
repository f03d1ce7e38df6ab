//! Links as plans keep them.

use std::collections::BTreeSet;

use loadmaster_proto::plan::rates::{CopyRate, CopyRates, SharedCores, SharedRate};

use super::{Cores, Links, Rate, Shared, Way};

impl Links {
    /// What a plan keeps of these ways.
    pub fn rates_of(&self, used: &BTreeSet<Way>) -> CopyRates {
        let ways: Vec<(Way, Rate)> =
            self.ways.iter().filter(|(way, _)| used.contains(way)).map(|(way, rate)| (*way, *rate)).collect();
        let rate = |&(way, rate): &(Way, Rate)| {
            let (from, to) = way.ends();
            let Rate { bytes_per_second, latency_seconds, core_share } = rate;
            CopyRate { from, to, bytes_per_second, latency_seconds, core_share }
        };
        let place = |way: &Way| ways.iter().position(|(known, _)| known == way);
        let shared = |of: &Shared| SharedRate {
            ways: of.ways.iter().filter_map(place).collect(),
            bytes_per_second: of.bytes_per_second,
        };
        let cores = |of: &Cores| SharedCores {
            stages: of.devices.clone(),
            slots: of.cores,
            contention_slowdown: of.contention_slowdown,
            slowdown_seconds_per_byte: of.slowdown_seconds_per_byte,
        };
        CopyRates {
            ways: ways.iter().map(rate).collect(),
            shared: self.shared.iter().map(shared).filter(|of| !of.ways.is_empty()).collect(),
            cores: self.cores.iter().map(cores).collect(),
        }
    }

    /// As a plan kept them; ways between nothing are left out.
    pub fn of_rates(rates: &CopyRates) -> Self {
        let ways: Vec<Option<Way>> = rates.ways.iter().map(|of| Way::between(of.from, of.to)).collect();
        let mut links = Self::default();
        for (way, of) in ways.iter().zip(&rates.ways) {
            if let Some(way) = way {
                let CopyRate { bytes_per_second, latency_seconds, core_share, .. } = *of;
                links.ways.insert(*way, Rate { bytes_per_second, latency_seconds, core_share });
            }
        }
        let shared = |of: &SharedRate| Shared {
            ways: of.ways.iter().filter_map(|&at| *ways.get(at)?).collect(),
            bytes_per_second: of.bytes_per_second,
        };
        links.shared = rates.shared.iter().map(shared).collect();
        let cores = |of: &SharedCores| Cores {
            devices: of.stages.clone(),
            cores: of.slots,
            contention_slowdown: of.contention_slowdown,
            slowdown_seconds_per_byte: of.slowdown_seconds_per_byte,
        };
        links.cores = rates.cores.iter().map(cores).collect();
        links
    }
}

impl Way {
    /// Whose device sends and whose receives; none for the host.
    pub fn ends(self) -> (Option<u32>, Option<u32>) {
        match self {
            Self::ToHost(from) => (Some(from), None),
            Self::FromHost(to) => (None, Some(to)),
            Self::Between { from, to } => (Some(from), Some(to)),
        }
    }

    /// The same between devices with other numbers; none where one of them has none.
    pub fn renamed(self, number: impl Fn(u32) -> Option<u32>) -> Option<Self> {
        Some(match self {
            Self::ToHost(from) => Self::ToHost(number(from)?),
            Self::FromHost(to) => Self::FromHost(number(to)?),
            Self::Between { from, to } => Self::Between { from: number(from)?, to: number(to)? },
        })
    }

    /// The way between these; none from the host to the host.
    pub fn between(from: Option<u32>, to: Option<u32>) -> Option<Self> {
        match (from, to) {
            (Some(from), None) => Some(Self::ToHost(from)),
            (None, Some(to)) => Some(Self::FromHost(to)),
            (Some(from), Some(to)) => Some(Self::Between { from, to }),
            (None, None) => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What is used comes back as it was, with what it shares.
    #[test]
    fn kept_links_are_the_links_that_are_used() {
        let rate = |gb: f64| Rate::new(gb * 1e9, 1e-5);
        let links = Links::default()
            .host(0, rate(12.0), rate(11.0))
            .host(1, rate(12.0), rate(12.0))
            .host(2, rate(9.0), rate(9.0))
            .peer(0, 2, rate(40.0))
            .uplink(&[0, 1], 16e9);
        let between = Way::Between { from: 0, to: 2 };
        let used = BTreeSet::from([Way::ToHost(0), Way::FromHost(0), Way::ToHost(1), between]);
        let mut links = links;
        links.ways.values_mut().for_each(|rate| rate.core_share = 0.25);
        links.cores.push(Cores {
            devices: vec![0, 1, 1],
            cores: 2.5,
            contention_slowdown: 1.25,
            slowdown_seconds_per_byte: 1e-10,
        });
        let again = Links::of_rates(&links.rates_of(&used));
        assert_eq!(again.cores, links.cores);
        assert_eq!(again.ways.keys().copied().collect::<BTreeSet<_>>(), used);
        assert!(again.ways.iter().all(|(way, rate)| links.ways[way] == *rate));
        let shared: Vec<_> = again.shared.iter().map(|of| of.ways.clone()).collect();
        assert_eq!(shared, [vec![Way::ToHost(0), Way::ToHost(1)], vec![Way::FromHost(0)]]);
        assert!(again.shared.iter().all(|of| of.bytes_per_second == 16e9));
        assert_eq!(Links::default().rates_of(&used).ways, []);
    }
}
