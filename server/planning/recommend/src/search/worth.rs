//! What devices are worth where as few or as cheap ones as possible are asked for.

use loadmaster_proto::plan::Plan;
use loadmaster_proto::plan::objective::Objective;

use crate::problem::Criteria;
use crate::result::RecommendError;
use loadmaster_search::cost::Market;
use loadmaster_search::{Choice, Fleet, KindSet, StageAt, StageCosts as _};

/// Devices of a fleet, by how many they are, or by their price of an hour.
#[derive(Debug, Clone, Copy)]
pub(crate) struct DeviceWorth<'a> {
    pub(crate) fleet: &'a Fleet,
    pub(crate) objective: Objective,
}

impl DeviceWorth<'_> {
    fn is_price(&self) -> bool {
        self.objective == Objective::MinCost
    }

    fn price(&self, kind: usize) -> Option<f64> {
        self.fleet.kinds.get(kind)?.hourly_price
    }

    /// # Errors
    /// The cheapest are asked for, and nobody knows the price of some.
    pub(crate) fn check(&self) -> Result<(), RecommendError> {
        if self.is_price() && self.fleet.nodes.iter().any(|node| self.price(node.kind).is_none()) {
            return Err(RecommendError::NoPrices { objective: self.objective });
        }
        Ok(())
    }

    /// That of so many devices of each kind.
    pub(crate) fn of(&self, counts: &[u32]) -> f64 {
        let each = counts.iter().enumerate().filter(|(_, devices)| **devices > 0);
        let one = |kind| if self.is_price() { self.price(kind).unwrap_or(f64::INFINITY) } else { 1.0 };
        each.map(|(kind, &devices)| f64::from(devices) * one(kind)).sum()
    }

    /// What part of the chain a device of each kind computes in a second: ties go to the faster one. 0 where the profile has no times.
    pub(crate) fn speeds<M: Market>(&self, market: &M, criteria: &Criteria) -> Vec<f64> {
        let kinds = 0..self.fleet.kinds.len();
        let asked = (criteria.schedules.first(), criteria.batches.first(), market.layers().checked_sub(1));
        let (Some(&schedule), Some(&batch), Some(last)) = asked else { return vec![0.0; kinds.len()] };
        let costs = market.costs(schedule, batch, &[Choice::SINGLE], &[]);
        let seconds = |kind| Some(costs.seconds(&StageAt::anywhere(0, last, KindSet::one(kind)))?.passes());
        kinds.map(|kind| seconds(kind).filter(|&seconds| seconds > 0.0).map_or(0.0, f64::recip)).collect()
    }

    /// That of a plan's devices.
    pub(crate) fn of_plan(&self, plan: &Plan) -> f64 {
        let price = plan.found.hourly_price.filter(|_| self.is_price());
        price.unwrap_or_else(|| plan.device_count() as f64)
    }
}
