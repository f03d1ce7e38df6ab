//! Whether a plan that was answered is one of those that were asked for, and whether its numbers are right.

use std::collections::BTreeSet;

use loadmaster_oracle::{
    Batch, Device, Edge, Recompute, SAME, Schedule, Seconds, Shape, Sharding, Space, Stage, Unit,
    groups_through, rings,
};
use loadmaster_proto::wire::v1;

use crate::certificates::asked::plan_rules;
use crate::certificates::places::{fleet, name_of};
use crate::certificates::prices::TablePrices;
use crate::certificates::question::{Mode, Question};
use crate::certificates::scene::{self, Scene};
use crate::certificates::truth::Terms;

/// What an answered plan is worth by our own numbers.
#[derive(Debug, Clone, Default)]
pub(crate) struct Judged {
    /// Rules of the request that it breaks.
    pub(crate) broken: Vec<String>,
    /// Numbers that differ from ours.
    pub(crate) differing: Vec<String>,
    pub(crate) seconds: f64,
    pub(crate) highest: u64,
    pub(crate) share: f64,
    pub(crate) peaks: Vec<f64>,
    pub(crate) devices: usize,
    pub(crate) price: Option<f64>,
    pub(crate) size: u32,
    pub(crate) lack: u64,
    pub(crate) stages: Vec<Seconds>,
    pub(crate) edges: Vec<Edge>,
}

/// Whether two numbers are the same but for rounding.
pub(crate) fn is_same(one: f64, other: f64) -> bool {
    (one - other).abs() <= SAME * one.abs().max(other.abs()) + 1e-11
}

/// Judges a plan; none where it is no plan at all.
pub(crate) fn judge(scene: &Scene, question: &Question, plan: &v1::Plan, terms: Terms) -> Judged {
    let (asked, fleet) = (plan_rules(scene, question), fleet(scene, question));
    // AMP's annealing places ranks anywhere.
    let by_ranks = question.mode == Mode::AmpAnnealing;
    let prices =
        TablePrices { scene, fleet: &fleet, margin: question.margin, sharing: terms.sharing, by_ranks };
    let space = Space { prices: &prices, fleet: &fleet, rules: &asked };
    let mut judged = Judged::default();
    let training = plan.training.unwrap_or_default();
    let batch = Batch { size: training.micro_batch_size as u32, count: training.micro_batch_count as u32 };
    let Some(schedule) = Schedule::from_wire(training.schedule) else {
        judged.broken.push("it has no schedule".to_owned());
        return judged;
    };
    let mut broken = |is_broken: bool, why: String| {
        if is_broken {
            judged.broken.push(why);
        }
    };
    broken(
        !asked.batches.contains(&batch),
        format!("micro-batch {} × {} was not asked for", batch.size, batch.count),
    );
    broken(!asked.schedules.contains(&schedule), format!("{schedule:?} was not asked for"));
    let mut route: Vec<Device> = Vec::new();
    let mut names: Vec<(String, i32)> = Vec::new();
    let mut stages: Vec<Stage> = Vec::new();
    let mut next = 0;
    for stage in &plan.stages {
        let config = stage.config.unwrap_or_default();
        let policy = Recompute::from_wire(stage.recompute).unwrap_or(Recompute::None);
        let sharding = Sharding::from_wire(config.state_sharding).unwrap_or(Sharding::None);
        let own = Stage {
            first: config.first_layer as usize,
            last: config.last_layer as usize,
            data: config.data_parallel_size.max(1) as u32,
            tensor: config.tensor_parallel_size.max(1) as u32,
            policy,
            sharding,
        };
        broken(own.first != next || own.last < own.first, format!("a stage begins with layer {}", own.first));
        next = own.last + 1;
        let may_be = match asked.shardings.as_slice() {
            _ if own.data == 1 => sharding == Sharding::None,
            [] => sharding == Sharding::None,
            named => named.contains(&sharding),
        };
        broken(!may_be, format!("{sharding:?} of {} replicas was not asked for", own.data));
        broken(!asked.policies.contains(&policy), format!("{policy:?} was not asked for"));
        let count = own.devices();
        // One more than there should be shows that there are more.
        let placed: Vec<_> = stage.placed().take(count + 1).collect();
        broken(placed.len() != count, format!("{count} devices are {}", placed.len()));
        for device in placed {
            let name = (device.node, device.index);
            let Some(device) = fleet.find(&name.0, name.1) else {
                judged.broken.push(format!("{name:?} is no device of the request"));
                return judged;
            };
            route.push(device);
            names.push(name);
        }
        stages.push(own);
    }
    broken(next != scene.layers(), format!("{next} layers are covered"));
    broken(names.iter().collect::<BTreeSet<_>>().len() != names.len(), "a device is used twice".to_owned());
    let mut visited: Vec<usize> = route.iter().map(|device| device.node).collect();
    visited.dedup();
    let distinct: BTreeSet<usize> = visited.iter().copied().collect();
    broken(!by_ranks && distinct.len() != visited.len(), format!("nodes are visited as {visited:?}"));
    if matches!(scene.fleet, scene::Fleet::Groups(_)) && !by_ranks {
        let is_in_order = route.is_sorted_by_key(|device| device.slot);
        broken(!is_in_order, "devices are not in the order given".to_owned());
    }
    let total = fleet.devices();
    broken(!asked.may_idle && route.len() != total, format!("{} of {total} devices are used", route.len()));
    let counts: BTreeSet<usize> =
        distinct.iter().map(|&node| route.iter().filter(|device| device.node == node).count()).collect();
    broken(asked.is_even && counts.len() > 1, "nodes have different numbers of processes".to_owned());
    broken(
        stages.len() < asked.stages.0 || stages.len() > asked.stages.1,
        format!("{} stages were not asked for", stages.len()),
    );
    let merged = question.merge_to.map_or(usize::MAX, |left| left as usize);
    broken(stages.len() > merged, format!("{} stages of {merged} merged layers", stages.len()));
    let differ =
        |of: &dyn Fn(&Stage) -> (u32, u32)| stages.windows(2).any(|pair| of(&pair[0]) != of(&pair[1]));
    broken(
        asked.shape == Shape::UniformGrid && differ(&|stage| (stage.data, stage.tensor)),
        "the grid is not uniform".to_owned(),
    );
    broken(
        asked.shape == Shape::EqualDevices && differ(&|stage| (stage.data * stage.tensor, 0)),
        "stages have different numbers of devices".to_owned(),
    );
    broken(
        !asked.policy_per_stage && stages.windows(2).any(|pair| pair[0].policy != pair[1].policy),
        "stages recompute differently".to_owned(),
    );
    let of_replicas: Vec<&Stage> = stages.iter().filter(|stage| stage.data > 1).collect();
    broken(
        of_replicas.windows(2).any(|pair| pair[0].sharding != pair[1].sharding),
        "stages divide different states".to_owned(),
    );
    let degrees = space.degrees(batch);
    let mut from = 0;
    for stage in &stages {
        let to = from + stage.devices();
        if to > route.len() {
            judged.broken.push("stages have more devices than are listed".to_owned());
            return judged;
        }
        let is_way = degrees.contains(&(stage.data, stage.tensor));
        let is_stage = stage.last < scene.layers() && space.may_be_stage(stage.first, stage.last);
        for (is_broken, why) in [
            (!is_way, format!("data{} tensor{} was not asked for", stage.data, stage.tensor)),
            (!is_stage, format!("layers {} to {} may be no stage", stage.first, stage.last)),
            (!fleet.may_take(asked.spanning, &route[from..to]), "a stage spans nodes".to_owned()),
        ] {
            if is_broken {
                judged.broken.push(why);
            }
        }
        for (layer, device) in &question.pins {
            let is_there = names[from..to].contains(&name_of(device));
            if (stage.first..=stage.last).contains(layer) && !is_there {
                judged.broken.push(format!("layer {layer} is not on {device}"));
            }
        }
        from = to;
    }
    if !judged.broken.is_empty() {
        return judged;
    }
    (judged.devices, judged.size) = (route.len(), batch.size);
    judged.price = fleet.price(&route);
    // Annealing mixes stages on nodes, so that the rings of all of them meet there.
    let ends = stages.iter().scan(0, |end, stage| {
        *end += stage.devices();
        Some(*end)
    });
    let of_stages: Vec<&[Device]> =
        ends.zip(&stages).map(|(end, stage)| &route[end - stage.devices()..end]).collect();
    let beside = |index: usize| {
        let own = of_stages[index];
        let spans = own.iter().any(|device| device.node != own[0].node);
        let others = of_stages.iter().zip(&stages).enumerate().filter(|(other, _)| *other != index);
        let groups: Vec<Vec<Device>> =
            others.flat_map(|(_, (on, stage))| rings(on, stage.tensor as usize)).collect();
        let through = |device: &Device| groups_through(device.node, &groups);
        if by_ranks && spans { own.iter().map(through).max().unwrap_or(0) } else { 0 }
    };
    let priced = space.plan((batch, schedule), &route, &stages, beside, |own| {
        let memory = own.memory();
        (judged.highest, judged.share, judged.lack) = (memory.highest, memory.share, memory.lack);
        judged.peaks = own.peaks(Unit::Bytes);
        judged.seconds = own.seconds(question.transfers());
        judged.stages = own.stages.iter().map(|placed| placed.seconds).collect();
        judged.edges = own.edges.to_vec();
        let said = plan.iteration.clone().unwrap_or_default();
        let mut differs = |what: &str, said: f64, ours: f64| {
            if !is_same(said, ours) {
                judged.differing.push(format!("{what}: {said:?} was answered, {ours:?} is ours"));
            }
        };
        for (index, (stage, placed)) in plan.stages.iter().zip(own.stages).enumerate() {
            let seconds = stage.seconds.unwrap_or_default();
            differs(&format!("forward of stage {index}"), seconds.forward_seconds, placed.seconds.forward);
            differs(&format!("backward of stage {index}"), seconds.backward_seconds, placed.seconds.backward);
            differs(&format!("step of stage {index}"), seconds.optimizer_step_seconds, placed.seconds.step);
            let peak = stage.predicted_peak.as_ref().map_or(0, |peak| peak.bytes);
            differs(&format!("peak of stage {index}"), peak as f64, own.peak(index).predicted as f64);
            differs(
                &format!("capacity of stage {index}"),
                stage.capacity_bytes as f64,
                placed.capacity as f64,
            );
            differs(
                &format!("in_flight of stage {index}"),
                f64::from(stage.in_flight_micro_batch_count),
                f64::from(own.in_flight(index)),
            );
        }
        let peak = plan.predicted_peak.as_ref().map_or(0, |peak| peak.bytes);
        differs("the plan's peak", peak as f64, judged.highest as f64);
        differs("iteration_seconds", said.iteration_seconds, judged.seconds);
        differs(
            "transfers",
            f64::from(said.communication_overlap),
            f64::from(question.transfers().to_wire()),
        );
        if let Some(price) = judged.price {
            differs("hourly_price", plan.hourly_price.unwrap_or(f64::NAN), price);
        }
    });
    if priced.is_none() {
        judged.broken.push("a stage has no price".to_owned());
    }
    if judged.lack > 0 {
        judged.broken.push(format!("{} bytes are missing", judged.lack));
    }
    if question.max_peak.is_some_and(|most| judged.highest > most) {
        judged.broken.push(format!("its peak {} is above the limit", judged.highest));
    }
    if judged.differing.is_empty()
        && question.max_seconds.is_some_and(|limit| judged.seconds > limit * (1.0 + SAME))
    {
        judged.broken.push(format!("it takes {} s, which is above the limit", judged.seconds));
    }
    judged
}
