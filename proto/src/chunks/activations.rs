//! Where what layers keep of a micro-batch is between its passes, of a model that is trained in chunks.
//!
//! Besides chunks a device holds what every layer keeps of a micro-batch from its forward to its backward pass: what autograd
//! saved and the layer's input, or where it is recomputed its input alone. That may be in the memory of the host
//! meanwhile (PatrickStar's *activation offloading*), which makes room for chunks, or for a model that has none otherwise. It is
//! done by [memory optimizations](crate::training::actions), whose points are boundaries between the same steps:
//! what they say of bytes, pools and copies holds here as well. What is special here:
//!
//! * Every layer is a run of its own, so each holds its input, and the tensor at an edge is the upper layer's.
//! * Parameters, gradients and state are the chunks', and no other stage has memory to lend: blocks are those of micro-batches,
//!   and go to the host. All micro-batches do the same.
//! * The pool is taken beside what chunks take of the host, which counts as theirs does.
//! * Copies of both share the two ways of the link, one at a time. What is asked for at a boundary is in the order of its
//!   parts there, and of each part first what actions move, then chunks: activations are needed soon, chunks may come long before.
//! * What is gone of both is gone before anything of both gets memory, so that a boundary needs no more than the steps beside it.

use serde::{Deserialize, Serialize};

use crate::choice;
use crate::error::Invalid;
use crate::training::RecomputePolicy;
use crate::training::actions::{Action, ActionContext, Block, Destination, Optimization, StageActions, Swap};
use crate::wire::v1;

/// Where what layers keep of a micro-batch is between its passes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ActivationPlace {
    /// On the device.
    #[default]
    Device,
    /// On the host, but for what no boundary lies between that it could leave and come back at.
    Host,
}

choice! { ActivationPlace = v1::ActivationPlace { Device, Host } }

/// At which boundaries activations leave and come: see [`Swap`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ActivationPoints {
    /// Steps from the one that leaves something behind to the boundary where it is gone.
    pub release_after: u32,
    /// Steps from the boundary where it is fetched to the step that needs it.
    pub fetch_before: u32,
}

/// What a stage of so many layers does so that what they keep is on the host. How large its pool there must be follows from
/// what they keep, which is not known here.
///
/// ```
/// use loadmaster_proto::chunks::activations::{ActivationPoints, on_host};
/// use loadmaster_proto::training::RecomputePolicy;
/// use loadmaster_proto::training::actions::StagedAction;
///
/// let points = ActivationPoints { release_after: 2, fetch_before: 1 };
/// let [action] = on_host(12, RecomputePolicy::Layer, points).actions.try_into().unwrap();
/// assert_eq!(StagedAction { stage: 0, action }.to_string(), "0/0..11=inputs:host:2,1");
/// ```
pub fn on_host(layers: usize, recompute: RecomputePolicy, points: ActivationPoints) -> StageActions {
    let ActivationPoints { release_after, fetch_before } = points;
    let block = if recompute == RecomputePolicy::None { Block::Activations } else { Block::Inputs };
    let swap = Swap { block, to: Destination::Host, release_after, fetch_before };
    let action = Action {
        first_layer: 0,
        last_layer: layers.saturating_sub(1),
        slots: Vec::new(),
        optimization: Optimization::Swap(swap),
    };
    StageActions { actions: vec![action], ..StageActions::default() }
}

/// Where the activations of a stage are that does this.
pub fn place_of(actions: &StageActions) -> ActivationPlace {
    if actions.is_empty() { ActivationPlace::Device } else { ActivationPlace::Host }
}

/// Checks that a stage that trains in chunks can do this.
///
/// # Errors
/// Names the field of the action, and what would be right.
pub fn check(actions: &StageActions, of: ActionContext<'_>) -> Result<(), Invalid> {
    if !actions.peer_pools.is_empty() {
        let why =
            "chunked training has one stage, which cannot reserve memory for other stages. Remove this field";
        return Err(Invalid::field("peer_pools", why));
    }
    for (index, action) in actions.actions.iter().enumerate() {
        check_action(action).map_err(|invalid| invalid.of_entry(index).of_field("optimizations"))?;
    }
    actions.check(of)
}

fn check_action(action: &Action) -> Result<(), Invalid> {
    let swap = match &action.optimization {
        Optimization::Swap(swap) => swap,
        Optimization::Recompute => {
            let why = "recompute actions cannot be combined with chunked training. Set the recompute policy of the stage \
                    instead";
            return Err(Invalid::field("recompute", why));
        }
    };
    if !action.slots.is_empty() {
        let why =
            "is not supported in chunked training, which treats all micro-batches alike. Remove this field";
        return Err(Invalid::field("micro_batch_slots", why));
    }
    if !matches!(swap.block, Block::Activations | Block::Inputs) {
        let why = format!(
            "{} cannot be swapped in chunked training, which moves whole chunks instead. For layers without \
             recompute, swap {}. For layers with recompute, swap {}",
            swap.block,
            Block::Activations,
            Block::Inputs
        );
        return Err(Invalid::field("swap.block", why));
    }
    match swap.to {
        Destination::Host => Ok(()),
        Destination::Peers(_) => {
            let why =
                "chunked training has one stage, so there is no other stage to swap to. Swap to CPU memory";
            Err(Invalid::field("swap.peer_stripes", why))
        }
    }
}
