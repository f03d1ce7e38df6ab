//! What micro-batches have on the host between their passes, as it is told.

use loadmaster_proto::bytes::Bytes;
use loadmaster_proto::measure::offload::{CopyCount, Offload};
use loadmaster_proto::training::actions::StageActions;

use loadmaster_predict::Away;

/// What a stage in chunks moves that does these actions, of which this is away, in an iteration whose passes wait so long for it;
/// none where it does nothing.
pub(super) fn offload(actions: &StageActions, away: &[Away], waited_seconds: f64) -> Option<Offload> {
    let bytes = away.iter().map(|away| away.bytes).fold(0, u64::saturating_add);
    let copies = CopyCount { peer: None, out_bytes: bytes, in_bytes: bytes, waited_seconds };
    (!actions.is_empty()).then(|| Offload {
        host_peak: actions.host_pool,
        hosted_peak: Bytes(0),
        copies: if bytes > 0 { vec![copies] } else { Vec::new() },
    })
}
