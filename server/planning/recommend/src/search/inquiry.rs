//! One question to the searches, how much may be tried to answer it, and the places of its devices, listed once for all variants.

use std::cell::RefCell;
use std::rc::Rc;

use loadmaster_proto::model::Model;
use loadmaster_proto::plan::objective::Objective;
use loadmaster_proto::training::Optimizer;

use super::device_mapping::KnownOrders;
use super::effort::Effort;
use crate::problem::{Criteria, Variant, variants};
use loadmaster_search::cost::Market;
use loadmaster_search::fleet::{Subset, Subsets};
use loadmaster_search::simulated::Terms;
use loadmaster_search::{Cuts, Fleet, Layouts, Places};

/// A training that a plan is asked for: the model, and the devices that it is to be trained on.
#[derive(Debug, Clone, Copy)]
pub struct Job<'a> {
    /// Names of the layers in order.
    pub names: &'a [String],
    /// The model; none of a chain that is known by name alone.
    pub model: Option<&'a Model>,
    /// All devices that may be used.
    pub fleet: &'a Fleet,
    /// What they are called, in the fleet's order.
    pub devices: &'a [String],
    /// How parameters are updated, for rules that weigh them.
    pub optimizer: &'a Optimizer,
}

impl Job<'_> {
    /// What a device is called.
    pub fn device(&self, device: u32) -> Option<String> {
        self.devices.get(device as usize).cloned()
    }

    /// What some devices are called: the first, and the last where they are several.
    pub fn device_range(&self, devices: &[u32]) -> String {
        let name = |device: Option<&u32>| device.and_then(|&device| self.device(device)).unwrap_or_default();
        match devices {
            [_] => name(devices.first()),
            _ => format!("{} to {}", name(devices.first()), name(devices.last())),
        }
    }
}

/// One question to the searches, and how much may be tried to answer it.
#[derive(Debug)]
pub(crate) struct Inquiry<'a, M> {
    /// What stages cost.
    pub(crate) market: &'a M,
    /// What is trained, and what everything of it is called.
    pub(crate) job: &'a Job<'a>,
    /// The devices of a plan; it takes all of them, unless the criteria let some be idle.
    pub(crate) subset: &'a Subset,
    /// What is asked for.
    pub(crate) criteria: &'a Criteria,
    /// Where the chain may be cut, and what is pinned to which of the subset's devices.
    pub(crate) cuts: &'a Cuts,
    /// How much may be tried.
    pub(crate) effort: &'a Effort,
    /// Orders of the devices of nodes whose links are unlike: the same whatever is asked of them.
    pub(crate) orders: &'a KnownOrders,
}

// Derived, they would ask the market for the same.
impl<M> Clone for Inquiry<'_, M> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<M> Copy for Inquiry<'_, M> {}

impl<'a, M: Market> Inquiry<'a, M> {
    /// Most subsets of the devices that are looked at to say why nothing fits.
    pub(crate) const MOST_ALLOWED: usize = 64;

    /// The same on other devices, with the cuts as restrictions on these.
    pub(crate) fn on(self, subset: &'a Subset, cuts: &'a Cuts) -> Self {
        Self { subset, cuts, ..self }
    }

    /// The same, asked for otherwise.
    pub(crate) fn with(self, criteria: &'a Criteria) -> Self {
        Self { criteria, ..self }
    }

    /// The same with as much to be tried.
    pub(crate) fn within(self, effort: &'a Effort) -> Self {
        Self { effort, ..self }
    }

    /// Its devices, as a fleet.
    pub(crate) fn fleet(self) -> &'a Fleet {
        &self.subset.fleet
    }

    /// Everything that has to be asked of the searches.
    pub(crate) fn variants(self) -> Vec<Variant> {
        variants(self.criteria, self.subset, self.market.layers())
    }

    /// How plans are weighed.
    pub(crate) fn terms(self) -> Terms {
        let criteria = self.criteria;
        Terms {
            overlap: criteria.overlap,
            unit: criteria.unit,
            most_bytes: criteria.constraints.max_peak_bytes,
            is_timed: self.market.has_times()
                && (criteria.objective.is_timed() || criteria.constraints.max_iteration_seconds.is_some()),
            counts_waits: false,
        }
    }

    /// Whether the framework can start its processes on the devices.
    pub(crate) fn may_start(self) -> bool {
        !self.criteria.starts_evenly() || self.subset.is_even()
    }

    /// The subsets of the devices that the framework can start its processes on, those with all pinned devices.
    pub(crate) fn subsets(self) -> Subsets<'a> {
        Subsets::of(self.fleet(), self.cuts, self.criteria.starts_evenly(), self.criteria.keeps_order)
    }

    /// The subsets that a plan may take: all devices, or some of the subsets where devices may be idle.
    pub(crate) fn allowed_subsets(self) -> Vec<Subset> {
        let may_idle = self.criteria.constraints.allow_idle_devices
            || matches!(self.criteria.objective, Objective::MinDevices | Objective::MinCost);
        if !may_idle {
            return vec![self.subset.clone()];
        }
        let (mut subsets, _) = self.subsets().all();
        subsets.truncate(Self::MOST_ALLOWED);
        subsets
    }
}

/// Most places of one search over all orders of nodes; beyond it some good orders are searched.
const MOST_PLACES: usize = 20_000;

/// Most places and steps that are kept for further variants, over all sizes of stages: some 20 MiB.
const MOST_KEPT: usize = 200_000;

/// Places by the numbers of devices that a stage may take. Good for one inquiry: its devices, its pins and its criteria.
#[derive(Debug, Default)]
pub(crate) struct KnownLayouts(RefCell<Vec<(Vec<u32>, Rc<Layouts>)>>);

impl KnownLayouts {
    /// Returns the places for stages of these numbers of devices on those of an inquiry.
    pub(super) fn layouts<M: Market>(&self, inquiry: Inquiry<'_, M>, sizes: &[u32]) -> Rc<Layouts> {
        let mut known = self.0.borrow_mut();
        if let Some((_, layouts)) = known.iter().find(|(known_sizes, _)| known_sizes == sizes) {
            return Rc::clone(layouts);
        }
        let layouts = Rc::new(list(inquiry, sizes));
        let size = |places: &Places| places.count() + places.step_count();
        let size = |layouts: &Layouts| layouts.places.iter().map(size).sum::<usize>();
        let kept: usize = known.iter().map(|(_, layouts)| size(layouts)).sum();
        if kept.saturating_add(size(&layouts)) <= MOST_KEPT {
            known.push((sizes.to_vec(), Rc::clone(&layouts)));
        }
        layouts
    }
}

fn list<M: Market>(inquiry: Inquiry<'_, M>, sizes: &[u32]) -> Layouts {
    let (fleet, criteria) = (inquiry.fleet(), inquiry.criteria);
    let spanning = criteria.spanning_on(fleet);
    if criteria.keeps_order {
        let (places, relaxed) = (vec![Places::in_order(fleet, sizes, spanning)], Default::default());
        return Layouts { places, looks: 0, is_complete: true, relaxed };
    }
    let pinned: Vec<usize> = inquiry.cuts.pins().iter().map(|pin| pin.device).collect();
    Layouts::of(fleet, sizes, spanning, (&pinned, criteria.starts_evenly()), MOST_PLACES)
}
