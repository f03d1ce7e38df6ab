//! How far the ranks of a run are, and which of them are suspiciously quiet. Pure.

use std::collections::BTreeMap;
use std::time::Duration;

use loadmaster_proto::run::Phase;
use tokio::time::Instant;

use super::rank_process::Heard;

/// What is known of a run's ranks, by stage.
#[derive(Debug)]
pub(super) struct Watch {
    ranks: BTreeMap<u32, Life>,
}

#[derive(Debug, Clone, Copy)]
struct Life {
    last: Instant,
    fraction: f64,
    phase: Phase,
    ended: bool,
}

impl Watch {
    /// Ranks that were started `now`.
    pub(super) fn new(stages: impl IntoIterator<Item = u32>, now: Instant) -> Self {
        let life = Life { last: now, fraction: 0.0, phase: Phase::Setup, ended: false };
        Self { ranks: stages.into_iter().map(|stage| (stage, life)).collect() }
    }

    /// A rank said something.
    pub(super) fn heard(&mut self, heard: Heard, now: Instant) {
        if let Some(life) = self.ranks.get_mut(&heard.stage_index) {
            life.last = now;
            if let Some((fraction, phase)) = heard.progress {
                life.fraction = if fraction.is_finite() { fraction.clamp(0.0, 1.0) } else { life.fraction };
                life.phase = phase;
            }
        }
    }

    /// A rank ended: its silence means nothing any more.
    pub(super) fn ended(&mut self, stage_index: u32, succeeded: bool) {
        if let Some(life) = self.ranks.get_mut(&stage_index) {
            life.ended = true;
            if succeeded {
                life.fraction = 1.0;
            }
        }
    }

    /// The rank that has been quiet longest, and since when.
    pub(super) fn quietest(&self) -> Option<(u32, Instant)> {
        let living = self.ranks.iter().filter(|(_, life)| !life.ended);
        living.map(|(&stage, life)| (stage, life.last)).min_by_key(|&(_, last)| last)
    }

    /// When a rank will have been quiet for `timeout`.
    pub(super) fn hung_at(&self, timeout: Duration) -> Option<Instant> {
        self.quietest().map(|(_, last)| last + timeout)
    }

    /// Mean of the ranks' fractions, and what the slowest of them does.
    pub(super) fn progress(&self) -> (f64, Phase) {
        let sum: f64 = self.ranks.values().map(|life| life.fraction).sum();
        let slowest = self.ranks.values().min_by(|a, b| a.fraction.total_cmp(&b.fraction));
        (sum / self.ranks.len().max(1) as f64, slowest.map_or(Phase::Setup, |life| life.phase))
    }

    /// A rank's progress, for messages.
    pub(super) fn of(&self, stage_index: u32) -> String {
        self.ranks.get(&stage_index).map_or_else(String::new, |life| {
            format!("at {:.0}%, {}", life.fraction * 100.0, life.phase.as_str())
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn progress_is_the_mean_and_the_phase_is_the_slowest_ranks() {
        let now = Instant::now();
        let mut watch = Watch::new([0, 1], now);
        watch.heard(Heard { stage_index: 0, progress: Some((0.5, Phase::Backward)) }, now);
        assert_eq!(watch.progress(), (0.25, Phase::Setup));
        watch.ended(0, true);
        watch.heard(Heard { stage_index: 1, progress: Some((f64::NAN, Phase::Forward)) }, now);
        assert_eq!(watch.progress(), (0.5, Phase::Forward));
    }

    /// Pins that the rank blamed for a hang is the one that has been quiet longest and still lives.
    #[test]
    fn the_quietest_living_rank_is_the_suspect() {
        let start = Instant::now();
        let later = start + Duration::from_secs(5);
        let mut watch = Watch::new([0, 1, 2], start);
        watch.heard(Heard { stage_index: 0, progress: None }, later);
        watch.ended(1, false);
        assert_eq!(watch.quietest(), Some((2, start)));
        assert_eq!(watch.hung_at(Duration::from_secs(9)), Some(start + Duration::from_secs(9)));
        watch.ended(2, false);
        watch.ended(0, true);
        assert_eq!(watch.quietest(), None);
    }
}
