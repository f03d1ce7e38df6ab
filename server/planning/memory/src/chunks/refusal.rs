//! Why there is no plan.

use loadmaster_proto::accounting::Accounting;
use loadmaster_proto::amounts::plural;
use loadmaster_proto::bytes::Bytes;
use loadmaster_proto::chunks::activations::ActivationPlace;
use loadmaster_proto::chunks::embedding::EmbeddingPlace;
use loadmaster_proto::chunks::host::HostParameters;
use loadmaster_proto::chunks::packing::ChunkLayout;
use loadmaster_proto::error::Invalid;
use loadmaster_proto::training::RecomputePolicy;
use loadmaster_proto::training::chunk_order::ChunkOrder;

use super::remedies::ChunkRemedy;
use loadmaster_predict::PredictionError;

/// Why a model cannot be trained in chunks.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum NoChunks {
    /// The question makes no sense.
    #[error(transparent)]
    Invalid(#[from] Invalid),
    /// What steps cost is not known.
    #[error(transparent)]
    Unknown(#[from] PredictionError),
    /// There is no room for it.
    #[error(transparent)]
    NoRoom(Box<NoRoom>),
    /// Nothing was found in time.
    #[error("the search was stopped before it found whether the chunks fit")]
    Stopped,
}

/// What lacks for the choice that lacks least.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[error("{}", self.text())]
pub struct NoRoom {
    /// The choice.
    pub choice: ChunkChoice,
    /// Devices that train it together. Missing CPU memory is reported as the sum over all of them, since they have equal
    /// parts.
    pub devices: u32,
    /// What lacks on the device, and in which step: that which lacks most.
    pub device: Option<(usize, Bytes)>,
    /// What lacks on the host, for each device.
    pub host: Option<Bytes>,
    /// Changes of the question with which there is a plan.
    pub remedies: Vec<ChunkRemedy>,
}

/// How chunks are laid out and where they are, but for intervals.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ChunkChoice {
    /// In which order micro-batches pass.
    pub order: ChunkOrder,
    /// What is recomputed.
    pub recompute: RecomputePolicy,
    /// Where the embedding table is when the embedding computes.
    pub embedding: EmbeddingPlace,
    /// Where what layers keep between their passes is.
    pub activations: ActivationPlace,
    /// How tensors lie in chunks.
    pub layout: ChunkLayout,
    /// The chunk size, elements.
    pub chunk_elements: u64,
    /// What the host holds of the parameters.
    pub host_copy: HostParameters,
    /// Chunks whose state is on the device.
    pub on_device: usize,
}

impl NoRoom {
    /// All bytes that lack.
    pub fn missing(&self) -> u64 {
        let device = self.device.map_or(0, |(_, bytes)| bytes.0);
        device.saturating_add(self.host.map_or(0, |bytes| bytes.0))
    }

    /// What lacks of the device and of the host, human-readable.
    pub fn lacks(&self) -> String {
        let device = self.device.map(|(step, bytes)| format!("step {step} needs {bytes} more device memory"));
        let host = self.host.map(|bytes| {
            format!(
                "the chunks need {} more CPU memory (memory accounting: {})",
                self.of_all(bytes),
                Accounting::Host
            )
        });
        let lacks: Vec<String> = device.into_iter().chain(host).collect();
        lacks.join(" and ")
    }

    /// Its remedies, human-readable.
    pub fn remedies_told(&self) -> Vec<String> {
        let told = |remedy: &ChunkRemedy| match *remedy {
            ChunkRemedy::Memory { device, host } => {
                ChunkRemedy::Memory { device, host: self.of_all(host) }.to_string()
            }
            ref other => other.to_string(),
        };
        self.remedies.iter().map(told).collect()
    }

    /// Returns the CPU memory of all devices together, which is how users set it.
    fn of_all(&self, each: Bytes) -> Bytes {
        Bytes(each.0.saturating_mul(u64::from(self.devices)))
    }

    fn text(&self) -> String {
        let remedies = self.remedies_told();
        let remedies = if remedies.is_empty() {
            "no change that was tried helps".to_owned()
        } else {
            remedies.join(", or ")
        };
        format!("{}: {remedies}", self.reason())
    }

    /// What does not fit, without its remedies.
    pub fn reason(&self) -> String {
        let ChunkChoice {
            order,
            recompute,
            embedding,
            activations,
            layout,
            chunk_elements,
            host_copy,
            on_device,
        } = self.choice;
        let embedding = match embedding {
            EmbeddingPlace::Chunk => "",
            EmbeddingPlace::Host => "the embedding in CPU memory, ",
        };
        let activations = match activations {
            ActivationPlace::Device => "",
            ActivationPlace::Host => "activations in CPU memory, ",
        };
        format!(
            "the model does not fit in memory with chunked training. The best tried options are: {} resident on the \
             device, `micro_batch_order` {order}, recompute {recompute}, {embedding}{activations}layout {layout}, \
             {chunk_elements} elements per chunk, `host_parameters` {host_copy}. With these options, {}",
            plural(on_device, "chunk"),
            self.lacks()
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Users set a host's memory for all of its devices together, so errors report that sum.
    #[test]
    fn the_host_is_told_of_all_devices() {
        let choice = ChunkChoice {
            order: ChunkOrder::Layer,
            recompute: RecomputePolicy::None,
            embedding: EmbeddingPlace::Chunk,
            activations: ActivationPlace::Device,
            layout: ChunkLayout::Aligned,
            chunk_elements: 16,
            host_copy: HostParameters::Cast,
            on_device: 0,
        };
        let remedies = vec![ChunkRemedy::Memory { device: Bytes(2 << 20), host: Bytes(3 << 20) }];
        let lack = NoRoom { choice, devices: 4, device: None, host: Some(Bytes(1 << 20)), remedies };
        assert_eq!(lack.lacks(), "the chunks need 4.00 MiB more CPU memory (memory accounting: host)");
        let told = lack.to_string();
        assert!(told.ends_with("allow 2.00 MiB more device memory and 12.00 MiB more CPU memory"), "{told}");
    }
}
