//! The devices of a request: from a cluster, or named in groups.

use std::sync::Arc;

use loadmaster_proto::error::{Invalid, in_range};
use loadmaster_proto::name::ClusterName;
use loadmaster_proto::plan::constraints::Constraints;
use loadmaster_proto::wire::v1;
use loadmaster_search::fleet::{self, DeviceGroup, Exclusion, FleetError, MAX_DEVICES, PlannedFleet};

use super::device;
use crate::rpc::error::ApiError;
use crate::rpc::plan::Plans;
use crate::rpc::plan::cache::Revisions;

impl Plans {
    /// The devices of a request, and the cluster that they are of; groups without a kind are of the first of `kinds`, those of
    /// the profiles.
    ///
    /// # Errors
    /// No way to name them, a group out of range, or a cluster that does not have what is named.
    pub(in crate::rpc::plan) async fn devices(
        &self,
        request: &v1::RecommendPlanRequest,
        constraints: &Constraints,
        kinds: &[&str],
        revisions: &Revisions,
    ) -> Result<(PlannedFleet, Option<ClusterName>), ApiError> {
        match (request.problem().devices.as_slice(), request.problem().cluster.as_str()) {
            ([], "") => {
                let why = "required, unless `problem.cluster` is set. Add groups of devices with `count`, and with \
                           `capacity_bytes` or `kind`.";
                Err(Invalid::field("problem.devices", why).into())
            }
            (groups, "") => Ok((of_groups(groups, kinds)?, None)),
            (_, name) => {
                let name = ClusterName::parse("cluster", name)?;
                let fleet = self.fleet(&name, &constraints.excluded_devices, revisions).await?;
                Ok((Arc::unwrap_or_clone(fleet), Some(name)))
            }
        }
    }
}

fn of_groups(groups: &[v1::DeviceGroup], kinds: &[&str]) -> Result<PlannedFleet, Invalid> {
    let mut count = 0_u32;
    let groups: Result<Vec<DeviceGroup>, Invalid> = groups
        .iter()
        .enumerate()
        .map(|(index, group)| {
            let path = format!("problem.devices[{index}].count");
            let devices = in_range(&path, group.count, 1..=MAX_DEVICES.cast_signed())?.unsigned_abs();
            count = count.saturating_add(devices);
            in_range("problem.devices", count, 1..=MAX_DEVICES)?;
            let (capacity, kind) = device(index, group, kinds)?;
            Ok(DeviceGroup { count: devices, capacity, kind })
        })
        .collect();
    fleet::of_groups(&groups?, None).map_err(|error| fleet_error("problem.devices", &error))
}

/// What may not be used: `node` or `node/index`.
///
/// # Errors
/// Names the entry that is neither.
pub(in crate::rpc::plan) fn excluded(devices: &[String]) -> Result<Vec<Exclusion>, Invalid> {
    let one = |(index, name): (usize, &String)| {
        let Some((node, device)) = name.rsplit_once('/') else {
            return Ok(Exclusion { node: name.clone(), device: None });
        };
        let device = device.parse().map_err(|_| {
            let why = format!("{name:?} is not a node or device. Use `node`, or `node/index` with a number.");
            Invalid::field(format!("constraints.excluded_devices[{index}]"), why)
        })?;
        Ok(Exclusion { node: node.to_owned(), device: Some(device) })
    };
    devices.iter().enumerate().map(one).collect()
}

pub(in crate::rpc::plan) fn fleet_error(field: &str, error: &FleetError) -> Invalid {
    let field = match error {
        FleetError::Unknown { field: "excluded", .. } => "constraints.excluded_devices",
        FleetError::Unknown { .. } | FleetError::Empty { .. } | FleetError::TooMany { .. } => field,
    };
    Invalid::field(field, error.to_string())
}
