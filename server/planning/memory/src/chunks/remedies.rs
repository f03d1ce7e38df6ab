//! What would make a plan possible where there is none: each remedy was tried.

use std::fmt;

use loadmaster_proto::bytes::Bytes;
use loadmaster_proto::chunks::activations::ActivationPlace;
use loadmaster_proto::chunks::embedding::EmbeddingPlace;
use loadmaster_proto::chunks::host::HostParameters;
use loadmaster_proto::plan::chunked::ChunkPolicy;
use loadmaster_proto::training::RecomputePolicy;
use loadmaster_proto::training::chunk_order::ChunkOrder;

use super::layout_evaluation::LayoutEvaluation;
use super::pass_costs::{PassCosts, StepSequences};
use super::question::{ChunkQuestion, Passes, TriedSizes};
use super::refusal::{NoChunks, NoRoom};
use super::room::{TriedLayout, fits, layouts};

/// A change of a question after which there is a plan.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ChunkRemedy {
    /// Compute layers once more.
    RecomputeLayers,
    /// Let all micro-batches pass a layer before any passes the next.
    LayerOrder,
    /// Make parameters of the fp32 copy while they are fetched.
    MadeCopies,
    /// Take rows of the embedding table on the host.
    HostEmbedding,
    /// Let what layers keep between their passes be on the host.
    HostActivations,
    /// Let chunks leave the device.
    Paged,
    /// Try other chunk sizes.
    OtherSizes,
    /// Choose how many chunks have their state on the device.
    ChosenOnDevice,
    /// Give as much more memory.
    Memory {
        /// Of the device.
        device: Bytes,
        /// Of the host.
        host: Bytes,
    },
}

impl fmt::Display for ChunkRemedy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::RecomputeLayers => write!(f, "recompute layers ({})", RecomputePolicy::Layer),
            Self::LayerOrder => write!(f, "use the order {}", ChunkOrder::Layer),
            Self::MadeCopies => write!(f, "use {} copies", HostParameters::Cast),
            Self::HostEmbedding => write!(f, "put the embedding on the {}", EmbeddingPlace::Host),
            Self::HostActivations => write!(f, "put activations on the {}", ActivationPlace::Host),
            Self::Paged => write!(f, "let chunks leave the device (policy {})", ChunkPolicy::Loadmaster),
            Self::OtherSizes => f.write_str("try other chunk sizes"),
            Self::ChosenOnDevice => {
                f.write_str("let the planner choose how many chunks are resident on the device")
            }
            Self::Memory { device: Bytes(0), host } => write!(f, "allow {host} more CPU memory"),
            Self::Memory { device, host: Bytes(0) } => write!(f, "allow {device} more device memory"),
            Self::Memory { device, host } => {
                write!(f, "allow {device} more device memory and {host} more CPU memory")
            }
        }
    }
}

impl ChunkRemedy {
    /// The question with it.
    #[must_use]
    pub fn applied(&self, question: &ChunkQuestion) -> ChunkQuestion {
        let mut asked = question.clone();
        let choices = &mut asked.choices;
        match *self {
            Self::RecomputeLayers => choices.recomputes = vec![RecomputePolicy::Layer],
            Self::LayerOrder => choices.orders = vec![ChunkOrder::Layer],
            Self::MadeCopies => choices.host_copies = vec![HostParameters::Cast],
            Self::HostEmbedding => choices.embeddings = vec![EmbeddingPlace::Host],
            Self::HostActivations => choices.activations = vec![ActivationPlace::Host],
            Self::Paged => choices.policy = ChunkPolicy::Loadmaster,
            Self::OtherSizes => choices.sizes = TriedSizes::Spread,
            Self::ChosenOnDevice => choices.on_device = None,
            Self::Memory { device, host } => {
                asked.capacity.0 = asked.capacity.0.saturating_add(device.0);
                asked.host_memory.0 = asked.host_memory.0.saturating_add(host.0);
            }
        }
        asked
    }
}

/// The choice that lacks least of those that are looked at before this is over, with remedies; none where there is room for one.
///
/// # Errors
/// The question makes no sense, or what steps cost is not known.
pub(super) fn no_room(
    question: &ChunkQuestion,
    passes: &impl Passes,
    is_over: &dyn Fn() -> bool,
) -> Result<Option<NoRoom>, NoChunks> {
    let grounds = PassCosts::all(question, passes, &question.places(), &mut StepSequences::default())?;
    let layouts = layouts(question, &question.embeddings())?;
    let mut least: Option<NoRoom> = None;
    let mut more: [Option<Bytes>; 2] = [None; 2];
    let less = |known: &mut Option<Bytes>, bytes: Bytes| {
        *known = Some(known.map_or(bytes, |known| known.min(bytes)));
    };
    for tried in &layouts {
        if least.is_some() && is_over() {
            break;
        }
        let TriedLayout { lists, places, .. } = tried;
        for laid in LayoutEvaluation::all(question, tried.of(&grounds), *lists, places)? {
            for &copy in &question.choices.host_copies {
                let Some(lack) = laid.lack(copy) else { return Ok(None) };
                let [device, host] = &mut more;
                // A device alone helps where some choice suffices the host, and the other way around.
                let enough = laid.fewest_for_host(copy).and_then(|count| laid.device_lack(count));
                if let Some((_, bytes)) = enough {
                    less(device, Bytes(bytes));
                }
                let fit = laid.most_that_fit().and_then(|count| laid.lack_with(copy, count)?.host);
                if let Some(bytes) = fit {
                    less(host, bytes);
                }
                if least.as_ref().is_none_or(|least| lack.missing() < least.missing()) {
                    least = Some(lack);
                }
            }
        }
    }
    let Some(mut least) = least else { return Ok(None) };
    let choices = &question.choices;
    let mut tried = Vec::new();
    let mut add = |remedy, is_new: bool| tried.extend(is_new.then_some(remedy));
    add(ChunkRemedy::LayerOrder, !choices.orders.contains(&ChunkOrder::Layer));
    add(ChunkRemedy::RecomputeLayers, !choices.recomputes.contains(&RecomputePolicy::Layer));
    add(ChunkRemedy::MadeCopies, !choices.host_copies.contains(&HostParameters::Cast));
    add(ChunkRemedy::HostEmbedding, !choices.embeddings.contains(&EmbeddingPlace::Host));
    add(ChunkRemedy::HostActivations, !choices.activations.contains(&ActivationPlace::Host));
    add(ChunkRemedy::Paged, !choices.is_paged());
    add(ChunkRemedy::OtherSizes, choices.sizes != TriedSizes::Spread);
    add(ChunkRemedy::ChosenOnDevice, choices.on_device.is_some());
    let [device, host] = more;
    let none = Bytes(0);
    tried.extend(host.map(|host| ChunkRemedy::Memory { device: none, host }));
    tried.extend(device.map(|device| ChunkRemedy::Memory { device, host: none }));
    if device.is_none() && host.is_none() {
        let device = least.device.map_or(none, |(_, bytes)| bytes);
        tried.push(ChunkRemedy::Memory { device, host: least.host.unwrap_or(none) });
    }
    tried.retain(|remedy| fits(&remedy.applied(question), passes, is_over).unwrap_or(false));
    least.remedies = tried;
    Ok(Some(least))
}
