//! The places of one set of devices, listed once for all variants that ask for the same.

use std::cell::RefCell;
use std::rc::Rc;

use super::inquiry::Inquiry;
use loadmaster_search::cost::Market;
use loadmaster_search::{Layouts, Places};

/// Most places of one search over all orders of nodes; beyond it some good orders are searched.
const MOST_PLACES: usize = 20_000;

/// Most places and steps that are kept for further variants, over all sizes of stages: some 20 MiB.
const MOST_KEPT: usize = 200_000;

/// Places by the numbers of devices that a stage may take. Good for one inquiry: its devices, its pins and its criteria.
#[derive(Debug, Default)]
pub(crate) struct KnownLayouts(RefCell<Vec<(Vec<u32>, Rc<Layouts>)>>);

impl KnownLayouts {
    /// The places for stages of these numbers of devices on those of an inquiry.
    pub(super) fn layouts<M: Market>(&self, inquiry: Inquiry<'_, M>, sizes: &[u32]) -> Rc<Layouts> {
        let mut known = self.0.borrow_mut();
        if let Some((_, layouts)) = known.iter().find(|(of, _)| of == sizes) {
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
