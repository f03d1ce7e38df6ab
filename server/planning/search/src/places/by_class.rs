//! Places on nodes in any order, where nodes that are alike are one class.
//!
//! Which nodes of a class were taken makes no difference, only how many. So a place is the number of nodes taken
//! of each class, the devices taken of the node that is begun, and what the last node's link to the next is. The
//! nodes of a class are taken in the fleet's order, so a place still says which devices they are. Within a
//! stage of several nodes, classes stand in ascending or in descending order: the slowest link of its
//! ring is the same in any.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::ops::Range;

use super::super::topology::{Fleet, Link};
use super::in_order::{push_range, step};
use super::{PlaceId, Places, Spanning, Step};

/// Nodes that are equivalent.
#[derive(Debug)]
struct NodeClass {
    /// Their indices in the fleet, ascending.
    nodes: Vec<usize>,
    devices: u32,
    /// Whether none of a node's devices is left out of the fleet.
    is_whole: bool,
    /// The first node of the first class with the same links to other nodes.
    linked_like: usize,
    /// Which classes have the other parts of its nodes' machines, where machines are taken whole: the number of the first of
    /// them. The k-th nodes of these classes are parts of one machine.
    machines: usize,
}

/// What has been taken. Ordered, because places are numbered in order.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Default)]
struct State {
    /// Devices taken: first, so that every step leads to a greater state.
    devices: u32,
    /// Nodes taken of each class, the begun one among them.
    nodes: Vec<u32>,
    /// The class of the begun node, and how many of its devices are taken.
    begun: Option<(usize, u32)>,
    /// A node whose links are those of the last node taken; none where it is begun, and at both ends.
    last: Option<usize>,
}

/// A stage in the making.
#[derive(Debug, Clone)]
struct Stage {
    state: State,
    nodes: Vec<usize>,
    /// Devices of each.
    on_each: Vec<u32>,
    devices: Vec<Range<u32>>,
    is_whole: bool,
}

/// A step, with the state that it leads to and its devices.
type TakenStep = (State, Step, Vec<Range<u32>>);

/// The order of classes within a stage.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Direction {
    Up,
    Down,
}

struct Classes<'a> {
    fleet: &'a Fleet,
    list: Vec<NodeClass>,
    begins: Vec<u32>,
    total: u32,
    spanning: Spanning,
    /// Whether machines of several nodes are taken whole.
    has_parts: bool,
    directions: &'static [Direction],
    /// Nodes that stages may yet be extended by, over all of them: past that there are too many.
    left: Cell<usize>,
}

impl Places {
    /// Places for stages of these numbers of devices on the fleet's nodes in any order. Nodes with one of the
    /// `singled` devices are like no other. None where there would be more than `most` places, or more than
    /// 16 steps for each.
    pub fn by_class(
        fleet: &Fleet,
        sizes: &[u32],
        spanning: Spanning,
        singled: &[usize],
        most: usize,
    ) -> Option<Self> {
        let mut places = Self::default();
        places.fill_by_class(fleet, sizes, spanning, (singled, false), most).0.map(|_| places)
    }

    /// Fills places that have nothing but links; none where they are too many. Whether they leave no order out:
    /// nothing but the order of the nodes within a stage can be missing, where their links differ. And how often it was
    /// looked where a stage may go on, whatever came of it. With the singled devices comes whether all parts of a machine
    /// follow each other.
    pub(super) fn fill_by_class(
        &mut self,
        fleet: &Fleet,
        sizes: &[u32],
        spanning: Spanning,
        (singled, by_machine): (&[usize], bool),
        most: usize,
    ) -> (Option<bool>, usize) {
        let looks = most.saturating_mul(64);
        let classes = Classes::of(fleet, spanning, (singled, by_machine), looks);
        let listed = self.list_by_class(&classes, sizes, most);
        (listed, looks - classes.left.get())
    }

    fn list_by_class(&mut self, classes: &Classes<'_>, sizes: &[u32], most: usize) -> Option<bool> {
        let counts = classes.list.iter().map(|class| class.nodes.len() + 1);
        if counts.fold(1, usize::saturating_mul) > most {
            return None;
        }
        let mut waiting = BTreeMap::new();
        waiting.insert(classes.first(), ());
        let mut numbers: BTreeMap<State, PlaceId> = BTreeMap::new();
        let mut found: Vec<Vec<TakenStep>> = Vec::new();
        let mut steps = 0;
        while let Some((state, ())) = waiting.pop_first() {
            let mut own: Vec<TakenStep> = Vec::new();
            for &size in sizes.iter().filter(|&&size| size > 0 && size <= classes.total - state.devices) {
                for stage in classes.stages(&state, size) {
                    let Stage { state: next, nodes, on_each, devices, is_whole } = stage;
                    let entry = classes.entry(&state, &nodes);
                    let Some(step) = step(self, classes.fleet, &nodes, on_each, is_whole, entry, 0) else {
                        continue;
                    };
                    if !own.iter().any(|(known, like, _)| *known == next && *like == step) {
                        waiting.insert(next.clone(), ());
                        own.push((next, step, devices));
                    }
                }
            }
            steps += own.len();
            numbers.insert(state, found.len() as PlaceId);
            found.push(own);
            if found.len() + waiting.len() > most || steps > 16 * most || classes.left.get() == 0 {
                return None;
            }
        }
        // Without a way to the end the last place is one that no step leads to.
        if !numbers.contains_key(&classes.last()) {
            found.push(Vec::new());
        }
        for own in found {
            let (steps, devices) = own
                .into_iter()
                .map(|(next, step, devices)| (Step { to: numbers[&next], ..step }, devices))
                .unzip();
            self.steps.push(steps);
            self.devices.push(devices);
        }
        let largest = sizes.iter().copied().max().unwrap_or(0);
        Some(classes.directions.len() == 1 || !classes.may_span(largest))
    }
}

impl<'a> Classes<'a> {
    fn of(
        fleet: &'a Fleet,
        spanning: Spanning,
        (singled, by_machine): (&[usize], bool),
        left: usize,
    ) -> Self {
        let begins = fleet.begins();
        let is_single = |node: usize| {
            let devices = begins[node] as usize..(begins[node] + fleet.nodes[node].devices) as usize;
            singled.iter().any(|device| devices.contains(device))
        };
        let has_tiers = fleet.tiers.iter().any(Option::is_some);
        let are_linked_alike = |one: usize, other: usize| {
            let (one, other) = (&fleet.nodes[one], &fleet.nodes[other]);
            (one.outside, one.one_transfer) == (other.outside, other.one_transfer)
                && (!has_tiers || one.domains == other.domains)
        };
        let are_alike = |one: usize, other: usize| {
            let is_like = fleet.nodes[one].is_like(&fleet.nodes[other]) && are_linked_alike(one, other);
            is_like && !is_single(one) && !is_single(other)
        };
        let mut list: Vec<NodeClass> = Vec::new();
        for parts in machines(fleet, by_machine) {
            let known = list.iter().position(|class| {
                let first = list[class.machines..].iter().take_while(|of| of.machines == class.machines);
                let first: Vec<usize> = first.map(|of| of.nodes[0]).collect();
                first.len() == parts.len()
                    && first.iter().zip(&parts).all(|(&first, &part)| are_alike(first, part))
            });
            let machines = known.map_or(list.len(), |class| list[class].machines);
            for (class, &index) in (machines..).zip(&parts) {
                if known.is_some() {
                    list[class].nodes.push(index);
                    continue;
                }
                let linked =
                    list.iter().map(|class| class.linked_like).find(|&like| are_linked_alike(like, index));
                let node = &fleet.nodes[index];
                list.push(NodeClass {
                    nodes: vec![index],
                    devices: node.devices,
                    is_whole: node.devices == node.whole,
                    linked_like: linked.unwrap_or(index),
                    machines,
                });
            }
        }
        // Where all links are the same, and nodes equally large, the order within a stage changes nothing.
        let all_linked_alike = list
            .windows(2)
            .all(|pair| (pair[0].linked_like, pair[0].devices) == (pair[1].linked_like, pair[1].devices));
        let directions: &[Direction] =
            if all_linked_alike { &[Direction::Up] } else { &[Direction::Up, Direction::Down] };
        let has_parts = list.iter().enumerate().any(|(class, of)| of.machines != class);
        let total = fleet.devices();
        Self { fleet, list, begins, total, spanning, has_parts, directions, left: Cell::new(left) }
    }

    /// Whether a stage of this many devices, or fewer, may take more than one node.
    fn may_span(&self, size: u32) -> bool {
        let smallest = self.list.iter().map(|class| class.devices).min().unwrap_or(0);
        match self.spanning {
            Spanning::Never => false,
            Spanning::WholeNodes => size >= smallest.saturating_mul(2),
            Spanning::Anywhere => size > 1,
        }
    }

    fn first(&self) -> State {
        State { nodes: vec![0; self.list.len()], ..State::default() }
    }

    fn last(&self) -> State {
        let nodes = self.list.iter().map(|class| class.nodes.len() as u32).collect();
        State { devices: self.total, nodes, begun: None, last: None }
    }

    /// The link over which a stage on these nodes gets its input; none for the first stage.
    fn entry(&self, state: &State, nodes: &[usize]) -> Option<Link> {
        let first = *nodes.first()?;
        match (state.begun, state.last) {
            (Some(_), _) => Some(self.fleet.nodes[first].edge()),
            (None, Some(last)) => self.fleet.edge_between(last, first),
            (None, None) => None,
        }
    }

    /// All stages of this many devices.
    fn stages(&self, state: &State, size: u32) -> Vec<Stage> {
        let stage = Stage {
            state: state.clone(),
            nodes: Vec::new(),
            on_each: Vec::new(),
            devices: Vec::new(),
            is_whole: true,
        };
        let mut all = Vec::new();
        if let Some((class, taken)) = state.begun {
            let left = self.list[class].devices - taken;
            if size > left && self.spanning != Spanning::Anywhere {
                return all;
            }
            let begun = self.take(&stage, class, size.min(left));
            self.finish(begun, size - size.min(left), None, &mut all);
            return all;
        }
        for (class, kind) in self.list.iter().enumerate() {
            if !self.has_more(state, class) || size > kind.devices && !self.may_be_spanned(kind) {
                continue;
            }
            let taken = size.min(kind.devices);
            self.finish(self.take(&stage, class, taken), size - taken, Some(class), &mut all);
        }
        all
    }

    /// Ends a stage that has `left` devices to take yet, after a node of class `from`.
    fn finish(&self, stage: Stage, left: u32, from: Option<usize>, all: &mut Vec<Stage>) {
        if left == 0 {
            all.push(stage);
            return;
        }
        for &direction in self.directions {
            self.go_on(&stage, left, from, direction, all);
        }
    }

    fn go_on(
        &self,
        stage: &Stage,
        left: u32,
        from: Option<usize>,
        direction: Direction,
        all: &mut Vec<Stage>,
    ) {
        for (class, kind) in
            self.list.iter().enumerate().filter(|&(class, _)| self.has_more(&stage.state, class))
        {
            if self.left.get() == 0 {
                return;
            }
            self.left.set(self.left.get() - 1);
            if left < kind.devices {
                // A node that stays begun is the last one, of whatever class.
                if self.spanning == Spanning::Anywhere {
                    all.push(self.take(stage, class, left));
                }
                continue;
            }
            if !self.may_be_spanned(kind) {
                continue;
            }
            // Parts of a machine stand together, in whatever order.
            let is_in_order = from.is_none_or(|from| match direction {
                Direction::Up => kind.machines >= self.list[from].machines,
                Direction::Down => kind.machines <= self.list[from].machines,
            });
            if !is_in_order {
                continue;
            }
            let longer = self.take(stage, class, kind.devices);
            if left == kind.devices {
                all.push(longer);
            } else {
                self.go_on(&longer, left - kind.devices, Some(class), direction, all);
            }
        }
    }

    /// Whether a stage may take all devices of such a node and those of others.
    fn may_be_spanned(&self, class: &NodeClass) -> bool {
        match self.spanning {
            Spanning::Never => false,
            Spanning::WholeNodes => class.is_whole,
            Spanning::Anywhere => true,
        }
    }

    /// Whether a node of the class may be taken: there is one, and no machine of other classes has parts that were taken and
    /// parts that were not.
    fn has_more(&self, state: &State, class: usize) -> bool {
        if !self.has_parts {
            return (state.nodes[class] as usize) < self.list[class].nodes.len();
        }
        let own = self.list[class].machines;
        let most_taken = |machines: usize| {
            let parts = self.list.iter().zip(&state.nodes).filter(|(of, _)| of.machines == machines);
            parts.map(|(_, &taken)| taken).max().unwrap_or(0)
        };
        let is_open = |(of, &taken): (&NodeClass, &u32)| taken < most_taken(of.machines);
        let begun = self.list.iter().zip(&state.nodes).find(|&of| is_open(of)).map(|(of, _)| of.machines);
        let may_be_taken = match begun {
            Some(begun) => begun == own && state.nodes[class] < most_taken(own),
            None => true,
        };
        may_be_taken && (state.nodes[class] as usize) < self.list[class].nodes.len()
    }

    /// The stage with devices of one more node, or of the begun one.
    fn take(&self, stage: &Stage, class: usize, devices: u32) -> Stage {
        let mut longer = stage.clone();
        let NodeClass { nodes, devices: all, linked_like, .. } = &self.list[class];
        let state = &mut longer.state;
        let already = match state.begun {
            Some((_, taken)) => taken,
            None => {
                state.nodes[class] += 1;
                0
            }
        };
        let node = nodes[state.nodes[class] as usize - 1];
        let begin = self.begins[node] + already;
        state.devices += devices;
        let is_full = already + devices == *all;
        state.begun = (!is_full).then_some((class, already + devices));
        state.last = (is_full && state.devices < self.total).then_some(*linked_like);
        longer.is_whole &= already == 0 && is_full;
        longer.nodes.push(node);
        longer.on_each.push(devices);
        push_range(&mut longer.devices, begin..begin + devices);
        longer
    }
}

/// The nodes with devices, those of one machine together where that is asked for, in the fleet's order.
fn machines(fleet: &Fleet, by_machine: bool) -> Vec<Vec<usize>> {
    let has_devices = |node: &usize| fleet.nodes[*node].devices > 0;
    let nodes = (0..fleet.nodes.len()).filter(has_devices);
    if !by_machine {
        return nodes.map(|node| vec![node]).collect();
    }
    let numbers = fleet.machines();
    let mut machines = vec![Vec::new(); fleet.nodes.len()];
    nodes.for_each(|node| machines[numbers[node]].push(node));
    machines.retain(|parts| !parts.is_empty());
    machines
}
