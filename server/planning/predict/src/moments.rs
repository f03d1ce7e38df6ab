//! What a device needs besides payloads of chunks, step by step.

use loadmaster_proto::bytes::Bytes;

use super::{Away, Margin, Origin, Pool, StepBytes};

/// What a device holds in each step of [`loadmaster_proto::chunks::stage::Chunks`] besides payloads: `N(t)` of
/// `N(t) + R(t)` (PatrickStar, its memory tracer's *non-model data*). Gradients count until they are in their chunk;
/// parameters and the optimizer's state are the chunks', and so is what an update of chunks on the device takes besides. What
/// micro-batches keep on the host counts until it is gone and from where it is fetched.
#[derive(Debug, Clone, PartialEq)]
pub struct Moments {
    /// Bytes of each step.
    pub curve: Vec<StepBytes>,
    /// The most bytes of each step, with as much scratch memory as kernels may take; those of the curve where that is known.
    pub upper: Vec<u64>,
    /// The real bytes of a step are expected within this share of those of the curve, what kernels may take apart. None where
    /// nobody has measured that.
    pub margin: Option<f64>,
    /// How far from the profile.
    pub origin: Origin,
    /// What is away when, in the order of [`loadmaster_proto::training::actions::StageActions::absences`].
    pub away: Vec<Away>,
    /// What of it is on the host at once; none where nothing is away.
    pub pool: Option<Pool>,
}

impl Moments {
    /// The most bytes that are away on the host at once.
    pub fn pool_bytes(&self) -> Bytes {
        Bytes(self.pool.as_ref().map_or(0, |pool| pool.peak))
    }

    /// Bytes of each step that a device must have beside payloads.
    pub fn needed(&self, margin: Margin) -> Vec<u64> {
        let of = |(step, &upper): (&StepBytes, &u64)| {
            let needed = margin.needed_for(Bytes(step.most.total()), self.margin).0;
            match margin {
                Margin::Known => needed.max(upper),
                Margin::Share(_) => needed,
            }
        };
        self.curve.iter().zip(&self.upper).map(of).collect()
    }
}
