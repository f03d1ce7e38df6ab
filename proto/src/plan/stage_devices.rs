//! The devices of a plan's stages: ranges on the wire, one by one where they are looked at.

use crate::wire::v1;

impl v1::PlanStage {
    /// Its devices in the order of its ranks. A message may say that there are billions: take as many as are needed.
    pub fn placed(&self) -> impl Iterator<Item = v1::PlacedDevice> + '_ {
        self.device_ranges.iter().flat_map(v1::DeviceRange::placed)
    }
}

impl v1::DeviceRange {
    /// Its devices in order.
    pub fn placed(&self) -> impl Iterator<Item = v1::PlacedDevice> + '_ {
        let uuids = self.uuids.iter().cloned().chain(std::iter::repeat_with(String::new));
        (0..self.count.max(0)).zip(uuids).map(|(offset, uuid)| v1::PlacedDevice {
            node: self.node.clone(),
            index: self.first_index.saturating_add(offset),
            uuid,
            kind: self.kind.clone(),
            capacity_bytes: self.capacity_bytes,
        })
    }

    /// Devices in few words: those of one node that follow each other and are alike are one range.
    pub fn of(devices: impl IntoIterator<Item = v1::PlacedDevice>) -> Vec<Self> {
        let mut ranges: Vec<Self> = Vec::new();
        for device in devices {
            match ranges.last_mut().filter(|range| range.goes_on_with(&device)) {
                Some(range) => {
                    range.count += 1;
                    range.uuids.extend(Some(device.uuid).filter(|uuid| !uuid.is_empty()));
                }
                None => ranges.push(Self {
                    node: device.node,
                    first_index: device.index,
                    count: 1,
                    kind: device.kind,
                    capacity_bytes: device.capacity_bytes,
                    uuids: Some(device.uuid).filter(|uuid| !uuid.is_empty()).into_iter().collect(),
                }),
            }
        }
        ranges
    }

    /// Whether a device is the next one of this range. Either all of its devices have a UUID or none has.
    fn goes_on_with(&self, device: &v1::PlacedDevice) -> bool {
        self.node == device.node
            && self.first_index.checked_add(self.count) == Some(device.index)
            && self.kind == device.kind
            && self.capacity_bytes == device.capacity_bytes
            && self.uuids.is_empty() == device.uuid.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn device() -> impl Strategy<Value = v1::PlacedDevice> {
        (0..2_i32, 0..5_i32, 0..2_i64, 0..3_u8).prop_map(|(node, index, capacity_bytes, uuid)| {
            v1::PlacedDevice {
                node: format!("node{node}"),
                index,
                uuid: if uuid == 0 { format!("GPU-{node}-{index}") } else { String::new() },
                kind: "cpu".to_owned(),
                capacity_bytes,
            }
        })
    }

    proptest! {
        /// Ranges say the same as the devices one by one, whatever these are.
        #[test]
        fn ranges_lose_nothing(devices in proptest::collection::vec(device(), 0..20)) {
            let stage = v1::PlanStage {
                device_ranges: v1::DeviceRange::of(devices.clone()),
                ..v1::PlanStage::default()
            };
            prop_assert_eq!(stage.placed().collect::<Vec<_>>(), devices);
        }
    }

    /// A thousand devices of a node are one range.
    #[test]
    fn like_devices_are_one_range() {
        let device = |index| v1::PlacedDevice {
            node: "node0".to_owned(),
            index,
            kind: "cpu".to_owned(),
            ..v1::PlacedDevice::default()
        };
        let ranges = v1::DeviceRange::of((8..1_032).map(device));
        assert_eq!((ranges.len(), ranges[0].first_index, ranges[0].count), (1, 8, 1_024));
    }

    /// A message that says what cannot be yields no endless list and no overflow.
    #[test]
    fn absurd_ranges_end() {
        let range = |count| v1::DeviceRange { first_index: i32::MAX, count, ..v1::DeviceRange::default() };
        assert_eq!(range(-5).placed().count(), 0);
        assert_eq!(range(i32::MAX).placed().take(3).map(|device| device.index).min(), Some(i32::MAX));
    }
}
