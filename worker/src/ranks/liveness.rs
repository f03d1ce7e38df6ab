//! How far the ranks of a run are, and which of them are suspiciously quiet. Pure.

use std::collections::BTreeMap;
use std::time::Duration;

use loadmaster_proto::measure::failure::Phase;
use tokio::time::Instant;

use super::assignment::RankId;
use super::rank_process::Heard;

/// What is known of a run's ranks.
#[derive(Debug)]
pub(super) struct Liveness {
    ranks: BTreeMap<RankId, Life>,
}

#[derive(Debug, Clone, Copy)]
struct Life {
    last: Instant,
    fraction: f64,
    phase: Phase,
    ended: bool,
}

impl Liveness {
    /// Ranks that were started `now`.
    pub(super) fn new(ranks: impl IntoIterator<Item = RankId>, now: Instant) -> Self {
        let life = Life { last: now, fraction: 0.0, phase: Phase::Setup, ended: false };
        Self { ranks: ranks.into_iter().map(|rank| (rank, life)).collect() }
    }

    /// A rank said something.
    pub(super) fn heard(&mut self, heard: Heard, now: Instant) {
        if let Some(life) = self.ranks.get_mut(&heard.rank) {
            life.last = now;
            if let Some((fraction, phase)) = heard.progress {
                life.fraction = if fraction.is_finite() { fraction.clamp(0.0, 1.0) } else { life.fraction };
                life.phase = phase;
            }
        }
    }

    /// A rank ended: its silence means nothing any more.
    pub(super) fn ended(&mut self, rank: RankId, succeeded: bool) {
        if let Some(life) = self.ranks.get_mut(&rank) {
            life.ended = true;
            if succeeded {
                life.fraction = 1.0;
            }
        }
    }

    /// The rank that has been quiet longest, and since when.
    pub(super) fn quietest(&self) -> Option<(RankId, Instant)> {
        let living = self.ranks.iter().filter(|(_, life)| !life.ended);
        living.map(|(&rank, life)| (rank, life.last)).min_by_key(|&(_, last)| last)
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
    pub(super) fn of(&self, rank: RankId) -> String {
        self.ranks.get(&rank).map_or_else(String::new, |life| {
            format!("at {:.0}%, {}", life.fraction * 100.0, life.phase.as_str())
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rank(stage_index: u32, shard: u32) -> RankId {
        RankId { stage_index, shard, devices: 2 }
    }

    #[test]
    fn progress_is_the_mean_and_the_phase_is_the_slowest_ranks() {
        let now = Instant::now();
        let mut lives = Liveness::new([rank(0, 0), rank(0, 1)], now);
        lives.heard(Heard { rank: rank(0, 0), progress: Some((0.5, Phase::Backward)) }, now);
        assert_eq!(lives.progress(), (0.25, Phase::Setup));
        lives.ended(rank(0, 0), true);
        lives.heard(Heard { rank: rank(0, 1), progress: Some((f64::NAN, Phase::Forward)) }, now);
        assert_eq!(lives.progress(), (0.5, Phase::Forward));
    }

    /// Pins that the rank blamed for a hang is the one that has been quiet longest and still lives.
    #[test]
    fn the_quietest_living_rank_is_the_suspect() {
        let start = Instant::now();
        let later = start + Duration::from_secs(5);
        let mut lives = Liveness::new([rank(0, 0), rank(0, 1), rank(1, 0)], start);
        lives.heard(Heard { rank: rank(0, 0), progress: None }, later);
        lives.ended(rank(0, 1), false);
        assert_eq!(lives.quietest(), Some((rank(1, 0), start)));
        assert_eq!(lives.hung_at(Duration::from_secs(9)), Some(start + Duration::from_secs(9)));
        lives.ended(rank(1, 0), false);
        lives.ended(rank(0, 0), true);
        assert_eq!(lives.quietest(), None);
    }
}
