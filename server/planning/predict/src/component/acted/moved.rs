//! How much is away, and to where.

use loadmaster_proto::training::actions::{Absence, Deed, Destination, StageActions, Stripe};

use crate::Away;

/// The stripes of an action's blocks; none where they go to the host.
pub(super) fn stripes<'a>(actions: &'a StageActions, absence: &Absence) -> &'a [Stripe] {
    match actions.actions.get(absence.action).map(|action| &action.deed) {
        Some(Deed::Swap(swap)) => match &swap.to {
            Destination::Host => &[],
            Destination::Peers(stripes) => stripes,
        },
        _ => &[],
    }
}

impl Away {
    /// Of tensors with these bytes.
    pub(super) fn of(absence: Absence, tensors: &[u64], stripes: &[Stripe]) -> Self {
        let mut away = Self {
            absence,
            bytes: tensors.iter().fold(0, |sum, &bytes| sum.saturating_add(bytes)),
            tensors: u32::try_from(tensors.len()).unwrap_or(u32::MAX),
            stripes: stripes.iter().map(|stripe| (stripe.stage, 0)).collect(),
        };
        for &bytes in tensors.iter().filter(|_| !stripes.is_empty()) {
            for ((_, sum), part) in away.stripes.iter_mut().zip(Stripe::split(stripes, bytes)) {
                *sum = sum.saturating_add(part);
            }
        }
        away
    }
}
