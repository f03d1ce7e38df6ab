//! What others come to on the same devices, by the same steps, costs and lanes.

use loadmaster_proto::bytes::Bytes;
use loadmaster_proto::plan::Plan;
use loadmaster_proto::plan::comparison::{Baseline, Outline};
use loadmaster_proto::training::TrainingSpec;
use loadmaster_proto::training::chunk_order::ChunkOrder;

use super::{ChunkContext, Trained};
use crate::memory_optimizations::outlined;
use crate::result::QuestionError;
use loadmaster_memory::chunks::{self, ChunkPlan, NoChunks};
use loadmaster_search::cost::Batch;

/// Who is compared, by name.
fn others() -> [(&'static str, Vec<chunks::Baseline>); 2] {
    [
        ("zero-offload", ChunkOrder::ALL.map(chunks::Baseline::Static).to_vec()),
        ("patrickstar", vec![chunks::Baseline::PATRICKSTAR]),
    ]
}

impl ChunkContext<'_> {
    /// All of it on each device, ZeRO-Offload and PatrickStar.
    pub(super) fn baselines(&self, plan: &Plan) -> Result<Vec<Baseline>, QuestionError> {
        let TrainingSpec { micro_batch_size, micro_batches, .. } = plan.training;
        let batch = Batch { micro_batch_size, micro_batches };
        let trained = self.trained(batch, self.devices.capacity);
        let mut all = vec![self.plain(&trained, plan)?];
        for (name, rules) in others() {
            if self.question.stop.is_over() {
                let note = "not searched: the search ended".to_owned();
                all.push(self.told(name, None, false, note, plan)?);
                continue;
            }
            let mut fastest: Option<ChunkPlan> = None;
            let mut note = String::new();
            for rule in rules {
                match rule.fastest(&trained.question, &trained.passes) {
                    Ok(found) => {
                        let seconds = found.lanes.iteration_seconds;
                        if fastest.as_ref().is_none_or(|known| seconds < known.lanes.iteration_seconds) {
                            fastest = Some(found);
                        }
                    }
                    Err(NoChunks::Unknown(error)) => return Err(error.into()),
                    Err(NoChunks::NoRoom(lack)) => note = lack.lacks(),
                    Err(why @ (NoChunks::Invalid(_) | NoChunks::Stopped)) => note = why.to_string(),
                }
            }
            let found = fastest.map(|found| (found.peak().0, Some(found.lanes.iteration_seconds)));
            if found.is_some() {
                note.clear();
            }
            all.push(self.told(name, found, true, note, plan)?);
        }
        Ok(all)
    }

    /// All of it on the device, all the time.
    fn plain(&self, trained: &Trained<'_>, plan: &Plan) -> Result<Baseline, QuestionError> {
        let mut least: Option<(u64, Option<f64>)> = None;
        let mut fits = false;
        for &recompute in &trained.question.choices.recomputes {
            let setting = trained.passes.setting(recompute);
            let found = trained.passes.predictor.stage(&setting)?;
            let needed = trained.passes.corrected(trained.passes.margin.needed(&found).0);
            let has_room = needed <= self.devices.capacity.0;
            let seconds = found
                .seconds
                .map(|of| (of.forward + of.backward) * f64::from(setting.training.micro_batches) + of.step)
                .map(|seconds| seconds * trained.passes.factors[1]);
            let peak = trained.passes.corrected(found.bytes.0);
            // What fits is compared by seconds, what does not by its peak.
            let is_better = match least {
                None => true,
                Some(_) if has_room != fits => has_room,
                Some((known, known_seconds)) => {
                    if has_room {
                        seconds < known_seconds
                    } else {
                        peak < known
                    }
                }
            };
            if is_better {
                (least, fits) = (Some((peak, seconds)), has_room);
            }
        }
        let note = match least {
            Some((peak, _)) if !fits => {
                format!("{} too much", Bytes(peak.saturating_sub(self.devices.capacity.0)))
            }
            _ if self.devices.ranks() > 1 => "without what replicas exchange".to_owned(),
            _ => String::new(),
        };
        self.told("plain", least, fits, note, plan)
    }

    fn told(
        &self,
        name: &str,
        found: Option<(u64, Option<f64>)>,
        fits: bool,
        note: String,
        plan: &Plan,
    ) -> Result<Baseline, QuestionError> {
        let outline = plan.outline()?;
        let fits = fits && found.is_some();
        let other = found.map(|(peak, seconds)| Outline { peak, seconds, ..outline });
        Ok(outlined(name.to_owned(), other, fits, note, plan))
    }
}
