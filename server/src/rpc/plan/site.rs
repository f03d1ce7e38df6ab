//! The devices of a request: from a cluster, or named in groups.

use std::collections::BTreeMap;

use loadmaster_proto::error::{Invalid, in_range};
use loadmaster_proto::name::ClusterName;
use loadmaster_proto::plan::constraints::Constraints;
use loadmaster_proto::wire::v1;

use super::request::capacity;
use crate::rpc::error::ApiError;
use crate::store::Store;
use loadmaster_planning::fleet::{
    self, DeviceGroup, Excluded, FleetError, MAX_DEVICES, PlannedFleet, Selection,
};
use loadmaster_planning::search::{Cuts, Pin};
use loadmaster_proto::plan::PlacedDevice;

/// The devices that a plan may use.
#[derive(Debug, Clone)]
pub(super) struct Site {
    pub(super) planned: PlannedFleet,
    /// What they are called, in the fleet's order.
    pub(super) names: Vec<String>,
    /// The cluster that they are of.
    pub(super) cluster: Option<ClusterName>,
    /// Whether they are named in the pipeline's order.
    pub(super) keeps_order: bool,
}

impl Site {
    /// The devices of a request; groups without a kind are of `kind`.
    ///
    /// # Errors
    /// None or both ways to name them, a group out of range, or a cluster that does not have what is named.
    pub(super) async fn of(
        store: &Store,
        request: &v1::RecommendPlanRequest,
        constraints: &Constraints,
        kind: &str,
    ) -> Result<Self, ApiError> {
        match (request.devices.as_slice(), request.cluster.as_str()) {
            ([], "") => {
                let why = "is required, or cluster: how many devices, and how large?";
                Err(Invalid::field("devices", why).into())
            }
            (groups, "") => Ok(Self::of_groups(groups, constraints, kind)?),
            ([], name) => {
                let name = ClusterName::parse("cluster", name)?;
                let cluster = store.get_cluster(&name).await?.cluster;
                let excluded = excluded(&constraints.excluded_devices)?;
                let selection = Selection { excluded, ..Selection::default() };
                let planned =
                    fleet::fleet(&cluster, &selection).map_err(|error| fleet_error("cluster", &error))?;
                let names = planned
                    .devices()
                    .iter()
                    .map(|device| format!("{}/{}", device.node, device.index))
                    .collect();
                Ok(Self { planned, names, cluster: Some(name), keeps_order: false })
            }
            (_, _) => {
                let why = "and cluster name devices twice: give one of them";
                Err(Invalid::field("devices", why).into())
            }
        }
    }

    fn of_groups(groups: &[v1::DeviceGroup], constraints: &Constraints, kind: &str) -> Result<Self, Invalid> {
        if !constraints.excluded_devices.is_empty() {
            return Err(Invalid::field(
                "constraints.excluded_devices",
                "names devices of a cluster, and the request has none: leave them out of devices",
            ));
        }
        let mut count = 0_u32;
        let groups: Result<Vec<DeviceGroup>, Invalid> = groups
            .iter()
            .enumerate()
            .map(|(index, group)| {
                let path = |field: &str| format!("devices[{index}].{field}");
                let devices =
                    in_range(&path("count"), group.count, 1..=MAX_DEVICES.cast_signed())?.unsigned_abs();
                count = count.saturating_add(devices);
                in_range("devices", count, 1..=MAX_DEVICES)?;
                let own = if group.kind.is_empty() { kind } else { group.kind.as_str() };
                let capacity = capacity(&path("capacity_bytes"), group.capacity_bytes)?;
                Ok(DeviceGroup { count: devices, capacity, kind: own.to_owned() })
            })
            .collect();
        let planned = fleet::of_groups(&groups?, None).map_err(|error| fleet_error("devices", &error))?;
        let names = (0..planned.devices().len()).map(|device| format!("device {device}")).collect();
        Ok(Self { planned, names, cluster: None, keeps_order: true })
    }

    /// Gives devices their hourly prices, by kind.
    pub(super) fn with_prices(mut self, prices: &BTreeMap<String, f64>) -> Self {
        for kind in &mut self.planned.fleet.kinds {
            if let Some(&price) = prices.get(&kind.name) {
                kind.hourly_price = Some(price);
            }
        }
        self
    }

    /// The kinds of its devices, in the fleet's order.
    pub(super) fn kinds(&self) -> impl Iterator<Item = &str> {
        self.planned.fleet.kinds.iter().map(|kind| kind.name.as_str())
    }

    /// Where the chain may be cut, and what is pinned to which device.
    ///
    /// # Errors
    /// A pin names a device that is not there.
    pub(super) fn cuts(&self, constraints: &Constraints, layers: usize) -> Result<Cuts, Invalid> {
        let mut cuts = Cuts::anywhere(layers);
        for &(first, last) in &constraints.keep_together {
            cuts.keep_together(first..=last);
        }
        for &after in &constraints.cut_after {
            cuts.require_after(after);
        }
        for (index, pin) in constraints.pins.iter().enumerate() {
            let device = self.position(&pin.device).ok_or_else(|| {
                let count = self.names.len();
                let why = match self.cluster {
                    Some(_) => {
                        format!("{:?} is not a device that may be used: write `node/index`", pin.device)
                    }
                    None => {
                        format!("{:?} is not a position from 0 to {}", pin.device, count.saturating_sub(1))
                    }
                };
                Invalid::field(format!("constraints.pins[{index}].device"), why)
            })?;
            cuts.pin(Pin { layer: pin.layer, device });
        }
        Ok(cuts)
    }

    fn position(&self, device: &str) -> Option<usize> {
        let named = self.names.iter().position(|name| name == device);
        named.or_else(|| device.parse().ok().filter(|&position: &usize| position < self.names.len()))
    }

    /// A device as plans store it.
    pub(super) fn record(&self, device: u32) -> PlacedDevice {
        let known = self.planned.device(device).cloned().unwrap_or_default();
        let mut begin = 0;
        let node = self.planned.fleet.nodes.iter().find(|node| {
            begin += node.devices;
            device < begin
        });
        let kind = node.and_then(|node| self.planned.fleet.kinds.get(node.kind));
        PlacedDevice {
            node: known.node,
            index: known.index,
            uuid: known.uuid,
            kind: kind.map(|kind| kind.name.clone()).unwrap_or_default(),
            capacity: kind.map_or(0, |kind| kind.capacity.0),
        }
    }

    /// Where the bandwidths come from, for people.
    pub(super) fn links(&self) -> String {
        use loadmaster_planning::search::LinkOrigin;
        let fleet = &self.planned.fleet;
        let nodes = fleet.nodes.iter().flat_map(|node| [node.inside, node.outside]);
        let mut origins: Vec<LinkOrigin> =
            nodes.chain(fleet.tiers.iter().copied().flatten()).map(|link| link.origin).collect();
        origins.sort_unstable();
        origins.dedup();
        origins.into_iter().map(LinkOrigin::as_str).collect::<Vec<_>>().join(" and ")
    }
}

/// `node` or `node/index`.
fn excluded(devices: &[String]) -> Result<Vec<Excluded>, Invalid> {
    let one = |(index, name): (usize, &String)| {
        let Some((node, device)) = name.rsplit_once('/') else {
            return Ok(Excluded { node: name.clone(), device: None });
        };
        let device = device.parse().map_err(|_| {
            let why = format!("is {name:?}: write `node`, or `node/index` with a number");
            Invalid::field(format!("constraints.excluded_devices[{index}]"), why)
        })?;
        Ok(Excluded { node: node.to_owned(), device: Some(device) })
    };
    devices.iter().enumerate().map(one).collect()
}

fn fleet_error(field: &str, error: &FleetError) -> Invalid {
    let field = match error {
        FleetError::Unknown { field: "excluded", .. } => "constraints.excluded_devices",
        FleetError::Unknown { .. } | FleetError::Empty { .. } | FleetError::TooMany { .. } => field,
    };
    Invalid::field(field, error.to_string())
}
