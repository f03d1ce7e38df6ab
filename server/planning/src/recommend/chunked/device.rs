//! The device that trains in chunks.

use loadmaster_proto::bytes::Bytes;
use loadmaster_proto::cluster::Node;
use loadmaster_proto::error::Invalid;
use loadmaster_proto::plan::PlacedDevice;

use super::ChunksQuestion;
use crate::cost::Factors;
use crate::recommend::ask::ProfiledChain;

/// The device that trains in chunks, with the profile of its kind.
pub(super) struct ChunkDevice<'a> {
    /// As people know it.
    pub(super) name: String,
    /// As its cluster knows it.
    pub(super) placed: PlacedDevice,
    /// Bytes that a plan may take of it.
    pub(super) capacity: Bytes,
    pub(super) chain: &'a ProfiledChain,
    /// What its predictions are multiplied with.
    pub(super) factors: Factors,
    /// Its node, as far as it is described.
    pub(super) node: Option<&'a Node>,
}

impl<'a> ChunksQuestion<'a> {
    /// The largest device that may be used; of equal ones the first.
    ///
    /// # Errors
    /// Several devices, none of which may stay idle.
    pub(super) fn device(&self) -> Result<ChunkDevice<'a>, Invalid> {
        let fleet = self.writer.fleet;
        let count = fleet.fleet.devices();
        let constraints = &self.request.goal.constraints;
        if count > 1 && !constraints.allow_idle_devices {
            let field = if self.request.goal.cluster.is_some() { "cluster" } else { "devices" };
            let why = format!(
                "has {count} devices that a plan must use, and a training in chunks is planned for one: name one, or let \
                 others stay idle with `constraints.allow_idle_devices`"
            );
            return Err(Invalid::field(field, why));
        }
        let places = (0..count).map(|device| (device, fleet.placed(device)));
        let largest = places.reduce(|one, other| if other.1.capacity > one.1.capacity { other } else { one });
        let (position, placed) = largest
            .ok_or_else(|| Invalid::field("devices", "has no device: name one, for example 1x16GiB"))?;
        let of_kind = self.writer.kinds.iter().find(|(chain, _)| chain.device_kind == placed.kind);
        let (chain, factors) = of_kind.copied().unwrap_or((self.writer.chain, Factors::NONE));
        let capacity = constraints.max_peak_bytes.map_or(placed.capacity, |most| most.min(placed.capacity));
        Ok(ChunkDevice {
            name: fleet.names().get(position as usize).cloned().unwrap_or_default(),
            capacity: Bytes(capacity),
            chain,
            factors,
            node: fleet.described(&placed.node),
            placed,
        })
    }
}
