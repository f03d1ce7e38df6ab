//! Which devices have room for a stage's blocks, and how one is split over them.

use loadmaster_proto::training::actions::{Deed, Destination, Stripe};

use super::decision::BlockId;
use super::prices::Prices;
use super::{Decision, Question};
use crate::actions::striping::{Receiver, stripe, whole};

/// The fastest swap of a block to the peers that have room; none where there is none.
pub(super) fn to_peers(
    question: &Question<'_>,
    decided: &Decision,
    prices: &Prices,
    (stage, of): (usize, BlockId),
) -> Option<Deed> {
    let bytes = question.stages.get(stage)?.bytes(of.0, of.1);
    let split = if question.stripes { stripe } else { whole };
    let found = split(bytes, prices.idle(of)?.at_once, &receivers(question, decided, stage))?;
    prices.swap(of, Destination::Peers(found.stripes), found.seconds)
}

/// The other stages whose devices have room and can be reached both ways.
pub(super) fn receivers(question: &Question<'_>, decided: &Decision, stage: usize) -> Vec<Receiver> {
    let device = |stage: usize| decided.mapping.get(stage).copied().unwrap_or(usize::MAX);
    let others = (0..question.stages.len()).filter(|&other| other != stage);
    let receiver = |other: usize| {
        let out = question.node.link(device(stage), device(other))?;
        let link = out.slower(question.node.link(device(other), device(stage))?);
        let free = u64::try_from(-decided.lacks(question, other)).ok()?;
        let spare_bytes =
            Some(free / question.node.guests(device(stage), device(other))).filter(|&of| of > 0)?;
        Some(Receiver { stage: question.place(other).0, link, spare_bytes })
    };
    let mut all: Vec<Receiver> = others.filter_map(receiver).collect();
    all.truncate(Stripe::MAX);
    all
}
