//! Prices of layers and stages that a predictor returned, kept for later requests.
//!
//! Variants of a request, what its restrictions cost, its remedies and the rules that it is compared with ask about the
//! same stages, and so does the next request about the profile. What is kept changes no answer, only when it is worked
//! out.

use std::collections::HashMap;
use std::fmt;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use loadmaster_proto::training::{Schedule, TrainingSpec};

use super::rows::Rows;
use super::sums::Sums;
use crate::Choice;
use loadmaster_predict::{Predictor, Share};

/// Most bytes of prices that are kept of a predictor, but for rows that are filled later. What comes when they are taken
/// is not kept; the next request begins anew.
const MOST_BYTES: usize = 24 << 20;

/// The prices that one predictor returned. Searches that share the cache get the same prices.
#[derive(Default)]
pub struct PriceCache {
    shelf: Mutex<Shelf>,
    /// What they take; rows that are filled after all was forgotten count too. Reading it waits for no search.
    bytes: Arc<AtomicUsize>,
    /// What rows take that are not kept, while a search has them.
    apart: Arc<AtomicUsize>,
}

#[derive(Default)]
struct Shelf {
    /// By share and number of layers.
    sums: HashMap<(Share, usize), Arc<Sums>>,
    /// With the training that they were asked for: others may share its order and its batch.
    rows: HashMap<RowsKey, (TrainingSpec, Arc<Rows>)>,
}

/// Order of the passes, micro-batch size and micro-batches; choice; number of layers.
type RowsKey = (Schedule, u32, u32, Choice, usize);

impl fmt::Debug for PriceCache {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KnownPrices").field("bytes", &self.bytes()).finish_non_exhaustive()
    }
}

impl PriceCache {
    /// About how many bytes they take.
    pub fn bytes(&self) -> usize {
        self.bytes.load(Ordering::Relaxed)
    }

    /// Forgets all where there is no room left: before a request, so that it finds what it asked itself, and behind it, as
    /// rows may have grown beyond what is kept.
    pub(super) fn make_room(&self) {
        self.with(|shelf| {
            if self.is_full() {
                *shelf = Shelf::default();
                self.bytes.store(0, Ordering::Relaxed);
            }
        });
    }

    /// The sums over so many layers at a share.
    pub(super) fn sums(&self, predictor: &dyn Predictor, share: Share, layers: usize) -> Arc<Sums> {
        let key = (share, layers);
        if let Some(known) = self.with(|shelf| shelf.sums.get(&key).cloned()) {
            return known;
        }
        // Not while others wait.
        let sums = Arc::new(Sums::of(predictor, share, layers));
        self.with(|shelf| {
            if !self.is_full() {
                self.bytes.fetch_add(sums.bytes(), Ordering::Relaxed);
                shelf.sums.insert(key, Arc::clone(&sums));
            }
        });
        sums
    }

    /// The rows of a choice under a training, filled as far as they were asked for.
    pub(super) fn rows(&self, training: &TrainingSpec, choice: Choice, layers: usize) -> Arc<Rows> {
        let key = (training.schedule, training.micro_batch_size, training.micro_batches, choice, layers);
        self.with(|shelf| match shelf.rows.get(&key) {
            Some((of, known)) if of == training => Arc::clone(known),
            None if !self.is_full() => {
                let rows = Arc::new(Rows::new(layers, Arc::clone(&self.bytes)));
                shelf.rows.insert(key, (*training, Arc::clone(&rows)));
                rows
            }
            _ => Arc::new(Rows::apart(layers, Arc::clone(&self.apart))),
        })
    }

    fn with<T>(&self, act: impl FnOnce(&mut Shelf) -> T) -> T {
        // A panic elsewhere cannot leave an entry half written.
        act(&mut self.shelf.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn is_full(&self) -> bool {
        self.bytes() >= MOST_BYTES
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicU32;

    use loadmaster_proto::training::RecomputePolicy;

    use super::super::pricing::{KindOfDevice, PriceTerms, Pricing};
    use super::*;
    use crate::{KindSet, StageAt, StageCosts};
    use loadmaster_predict::{LayerCost, Margin, PeakCurve, Prediction, PredictionError, StageSetting};
    use loadmaster_samples::training;

    const LAYERS: usize = 3;

    /// Counts what it is asked: sums, and rows of curves.
    #[derive(Default)]
    struct Counting {
        sums: AtomicU32,
        rows: AtomicU32,
    }

    impl Predictor for Counting {
        fn name(&self) -> &'static str {
            "counting/1"
        }

        fn layers(&self) -> usize {
            LAYERS
        }

        fn stage(&self, _: &StageSetting) -> Result<Prediction, PredictionError> {
            Err(PredictionError::NoSuchStage { first: 0, last: 0, layers: LAYERS })
        }

        fn sources(&self, _: &StageSetting) -> Vec<String> {
            Vec::new()
        }

        fn layer_costs(&self, _: Share) -> Vec<Option<LayerCost>> {
            self.sums.fetch_add(1, Ordering::Relaxed);
            vec![None; LAYERS]
        }

        fn curves(&self, setting: &StageSetting, end: usize) -> Option<Vec<PeakCurve>> {
            self.rows.fetch_add(1, Ordering::Relaxed);
            // Of everything that curves may depend on.
            let TrainingSpec { micro_batch_size, micro_batches, seed, .. } = setting.training;
            let one = u64::from(micro_batch_size * 1_000 + micro_batches * 10) + seed;
            let curve = |one| PeakCurve {
                least: 0,
                one,
                one_of_last: one,
                each: 1,
                micro_batches,
                margin: None,
                most: None,
            };
            let lasts = setting.stage.first_layer..LAYERS.min(end.saturating_add(1));
            Some(lasts.map(|last| curve(one + last as u64)).collect())
        }
    }

    fn peak(counting: &Counting, known: &Arc<PriceCache>, training: TrainingSpec) -> Option<u64> {
        let kind = KindOfDevice { predictor: counting, known: Arc::clone(known) };
        let recomputing = Choice { recompute: RecomputePolicy::Stage, ..Choice::SINGLE };
        let choices = [Choice::SINGLE, recomputing];
        let margin = Margin::Share(0.0);
        let pricing = Pricing::new(
            &[kind],
            PriceTerms { training, choices: &choices, links: &[], margin, model: None },
        );
        let at = StageAt::anywhere(1, 2, KindSet::one(0));
        Some(pricing.peak(&at, 1)?.bytes)
    }

    /// A repeated question gets the same price without the predictor. Another batch, or another training of the same
    /// batch, is another question.
    #[test]
    fn a_predictor_is_asked_once_for_the_same_stages() {
        let (counting, known) = (Counting::default(), Arc::default());
        let asked = || [&counting.sums, &counting.rows].map(|count| count.load(Ordering::Relaxed));
        let one = training(Schedule::OneFOneB, 4, 8);
        let seeded = TrainingSpec { seed: 5, ..one };
        assert_eq!(peak(&counting, &known, one), Some(4_083));
        assert_eq!(asked(), [1, 1], "both choices share their sums, and only one row was asked for");
        assert_eq!((peak(&counting, &known, one), asked()), (Some(4_083), [1, 1]));
        assert_eq!(
            (peak(&counting, &known, training(Schedule::OneFOneB, 4, 9)), asked()),
            (Some(4_093), [1, 2])
        );
        assert_eq!(
            (peak(&counting, &known, training(Schedule::OneFOneB, 2, 8)), asked()),
            (Some(2_083), [2, 3])
        );
        assert_eq!((peak(&counting, &known, seeded), asked()), (Some(4_087), [2, 4]));
        assert_eq!(
            (peak(&counting, &known, one), asked()),
            (Some(4_083), [2, 4]),
            "the first is what is kept"
        );
        assert_eq!((peak(&counting, &Arc::default(), one), asked()), (Some(4_083), [3, 5]));
    }

    /// What is kept is bounded: beyond it all is asked anew, until a request begins anew.
    #[test]
    fn prices_beyond_the_limit_are_not_kept() {
        let (counting, known) = (Counting::default(), Arc::<PriceCache>::default());
        let one = training(Schedule::Gpipe, 4, 8);
        known.bytes.store(MOST_BYTES, Ordering::Relaxed);
        for _ in 0..3 {
            assert_eq!(peak(&counting, &known, one), Some(4_083));
        }
        assert_eq!(counting.rows.load(Ordering::Relaxed), 3);
        assert_eq!(known.bytes(), MOST_BYTES);
        known.make_room();
        assert_eq!(known.bytes(), 0);
        for _ in 0..3 {
            assert_eq!(peak(&counting, &known, one), Some(4_083));
        }
        let (rows, bytes) = (counting.rows.load(Ordering::Relaxed), known.bytes());
        assert_eq!(rows, 4);
        assert!((1..10_000).contains(&bytes), "{bytes}");
        known.make_room();
        assert_eq!(known.bytes(), bytes, "there is room");
    }
}
