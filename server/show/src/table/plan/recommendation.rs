//! What a plan was asked for and what was found besides it: a few lines under its stages.

use loadmaster_proto::wire::v1::{
    Baseline, Certificate, IterationEstimate, MemoryFigure, Objective, PipelineLayout, Plan, RestrictionCost,
};

use crate::devices::notation;
use crate::table::grid::Grid;
use crate::table::grid::Side::{Left, Right};
use crate::table::id;
use crate::text::terminal_abilities::Look;
use crate::text::{bytes, percent, plain, plural, predicted_seconds, seconds};

/// Most points of a front that a table lists; pictures show all.
const SHOWN_POINTS: usize = 12;

/// All that is known; nothing of a plan that its user named.
pub fn found(plan: &Plan, look: Look) -> String {
    let mut text = String::new();
    if let Some(iteration) = &plan.iteration {
        text.push_str(&estimate(iteration, look));
    }
    if let Some(certificate) = &plan.certificate {
        text.push_str(&proof(plan, certificate, look));
    }
    if let Some(cost) = &plan.restriction_cost {
        text.push_str(&restriction(plan, cost, look));
    }
    for correction in &plan.calibrations {
        text.push_str(&format!(
            "calibrated {} {} ({})\n",
            times(correction.factor, look),
            plain(&correction.explanation),
            plain(&correction.version)
        ));
    }
    text.push_str(&front(plan, look));
    text.push_str(&alternatives(plan, look));
    text.push_str(&baselines(&plan.baselines, look));
    text
}

/// `iteration  predicted 1.20 s ±5.0 % simulated · 1.18 s by formula · 12.0 % bubble · 26.7 samples/s · links assumed`.
fn estimate(of: &IterationEstimate, look: Look) -> String {
    let dot = look.dot();
    let mut text = format!(
        "iteration  predicted {} simulated {dot} {} by formula {dot} {} bubble {dot} {:.1} samples/s",
        predicted_seconds(
            of.iteration_seconds,
            of.interval.as_ref().map(|interval| interval.margin_ratio),
            look
        ),
        seconds(of.closed_form_seconds),
        percent(of.bubble_ratio),
        of.samples_per_second
    );
    if !of.link_speed_origin.is_empty() {
        text.push_str(&format!(" {dot} links {}", plain(&of.link_speed_origin)));
    }
    if !of.communication_overlap_reason.is_empty() {
        text.push_str(&format!("\noverlap    {}", plain(&of.communication_overlap_reason)));
    }
    text + "\n"
}

/// What is proven of the residency intervals of a plan in chunks.
const FETCHES_FEWEST: &str = "no other residency intervals (times when a chunk is on the device) prefetch fewer bytes \
                              with these chunks and this device memory. This counts every prefetched chunk whole.";

/// The objective, the effort of the search, and rejected plans.
fn proof(plan: &Plan, of: &Certificate, look: Look) -> String {
    let dot = look.dot();
    let mut text = format!("objective  {}: {}", objective(plan), counted(of.objective_value, &of.unit, look));
    if of.deadline_reached {
        text.push_str(" (the search was stopped)");
    }
    text.push_str(&format!(" {dot} {}", plural(of.state_count, "state")));
    if of.search_seconds > 0.0 {
        text.push_str(&format!(" in {}", seconds(of.search_seconds)));
    }
    text.push('\n');
    if of.fewest_fetched_bytes {
        text.push_str(&format!("prefetch   {FETCHES_FEWEST}\n"));
    }
    for rejected in &of.rejected_plans {
        text.push_str(&format!("rejected   {}: {}\n", plain(&rejected.description), plain(&rejected.reason)));
    }
    text
}

/// What shape and framework cost.
fn restriction(plan: &Plan, cost: &RestrictionCost, look: Look) -> String {
    let unit = plan.certificate.as_ref().map_or("", |certificate| certificate.unit.as_str());
    if cost.ratio <= 1.0 {
        let known = if cost.free_optimal { "" } else { " found" };
        return format!(
            "the rules of parallelism layout and framework do not worsen the objective value: without these rules, no \
             plan{known} has a better value\n"
        );
    }
    let mut text = format!(
        "the rules of parallelism layout and framework make the objective value {} worse: without these rules, \
         pipeline layout {} has objective value {}",
        times(cost.ratio, look),
        stages(cost.free_pipeline_layout.as_ref()),
        counted(cost.free_value, unit, look)
    );
    if !cost.free_optimal {
        text.push_str(" (not proven optimal)");
    }
    if !cost.binding_restrictions.is_empty() {
        let placement: Vec<String> = cost.binding_restrictions.iter().map(|rule| plain(rule)).collect();
        text.push_str(&format!("; {}", placement.join("; ")));
    }
    text + "\n"
}

fn front(plan: &Plan, look: Look) -> String {
    if plan.front.is_empty() {
        return String::new();
    }
    let mut grid = Grid::new(
        &[("front", Left), ("peak", Right), ("iteration", Right), ("micro-batch", Right), ("stages", Left)],
        look,
    );
    // Of a long front some points, evenly spread, both ends among them.
    let last = plan.front.len() - 1;
    let shown = plan.front.len().min(SHOWN_POINTS);
    let mut indices: Vec<usize> =
        (0..shown).map(|point| point * last / shown.saturating_sub(1).max(1)).collect();
    indices.dedup();
    for index in indices {
        let Some(point) = plan.front.get(index) else { continue };
        grid.row([
            id(&point.plan),
            peak(point.predicted_peak.as_ref(), look),
            seconds(point.iteration_seconds),
            point.micro_batch_size.to_string(),
            stages(point.pipeline_layout.as_ref()),
        ]);
    }
    let mut text = grid.render();
    if plan.front.len() > SHOWN_POINTS {
        text.push_str(&format!("({} of {} points)\n", SHOWN_POINTS, plan.front.len()));
    }
    text
}

fn alternatives(plan: &Plan, look: Look) -> String {
    if plan.alternatives.is_empty() {
        return String::new();
    }
    let mut grid = Grid::new(
        &[
            ("alternative", Left),
            ("peak", Right),
            ("iteration", Right),
            ("micro-batch", Right),
            ("stages", Left),
        ],
        look,
    );
    for other in &plan.alternatives {
        grid.row([
            id(&other.plan),
            peak(other.predicted_peak.as_ref(), look),
            other.iteration_seconds.map_or_else(|| look.none().to_owned(), seconds),
            other.micro_batch_size.to_string(),
            stages(other.pipeline_layout.as_ref()),
        ]);
    }
    grid.render()
}

fn baselines(baselines: &[Baseline], look: Look) -> String {
    if baselines.is_empty() {
        return String::new();
    }
    let mut grid = Grid::new(
        &[
            ("baseline", Left),
            ("peak", Right),
            ("of plan's", Right),
            ("iteration", Right),
            ("of plan's", Right),
            ("stages", Left),
        ],
        look,
    );
    let ratio = |value: Option<f64>| value.map_or_else(|| look.none().to_owned(), |value| times(value, look));
    for one in baselines {
        let mut cut = stages(one.pipeline_layout.as_ref());
        if !one.note.is_empty() {
            let note = plain(&one.note);
            cut = if cut.is_empty() { note } else { format!("{cut}  {note}") };
        }
        grid.row([
            plain(&one.name),
            peak(one.predicted_peak.as_ref(), look),
            ratio(one.peak_ratio),
            one.iteration_seconds.map_or_else(|| look.none().to_owned(), seconds),
            ratio(one.time_ratio),
            cut,
        ]);
    }
    grid.render()
}

fn peak(figure: Option<&MemoryFigure>, look: Look) -> String {
    figure.map_or_else(|| look.none().to_owned(), |figure| bytes(figure.bytes))
}

fn stages(partitioning: Option<&PipelineLayout>) -> String {
    partitioning.map_or_else(String::new, |of| notation(&of.stages))
}

fn times(factor: f64, look: Look) -> String {
    format!("{factor:.3}{}", if look.unicode { "×" } else { "x" })
}

/// In place of an objective, of a plan whose user named its stages.
pub const STAGES_GIVEN: &str = "stages given";

/// The objective as the command line spells it.
pub fn objective(plan: &Plan) -> String {
    match plan.objective() {
        Objective::Unspecified => STAGES_GIVEN.to_owned(),
        known => known.as_str_name().trim_start_matches("OBJECTIVE_").to_lowercase().replace('_', "-"),
    }
}

/// A value in its unit.
fn counted(value: f64, unit: &str, look: Look) -> String {
    match unit {
        "bytes" => bytes(value as i64),
        "share" => percent(value),
        "seconds" => seconds(value),
        "per hour" => format!("{value:.2} per hour"),
        "" => look.none().to_owned(),
        other => format!("{value:.0} {}", plain(other)),
    }
}

#[cfg(test)]
mod tests {
    use loadmaster_proto::wire::v1;

    use super::*;

    fn plan() -> Plan {
        let certificate = v1::Certificate {
            objective_value: 1.25,
            best_bound: Some(1.25),
            optimality_gap: Some(0.0),
            optimal: true,
            unit: "seconds".to_owned(),
            state_count: 321,
            rejected_plans: vec![v1::RejectedPlan {
                description: "4-3".to_owned(),
                value: Some(1.5),
                reason: "20.0 % slower".to_owned(),
            }],
            ..v1::Certificate::default()
        };
        v1::Plan {
            objective: v1::Objective::MinIterationTime.into(),
            iteration: Some(v1::IterationEstimate {
                iteration_seconds: 1.3,
                closed_form_seconds: 1.25,
                bubble_ratio: 0.2,
                samples_per_second: 24.6,
                link_speed_origin: "assumed".to_owned(),
                communication_overlap_reason: "blocking: as asked for".to_owned(),
                interval: Some(v1::SecondsInterval { margin_ratio: 0.12, ..v1::SecondsInterval::default() }),
                ..v1::IterationEstimate::default()
            }),
            certificate: Some(certificate),
            ..Plan::default()
        }
    }

    /// Numbers carry their unit and say what they are.
    #[test]
    fn the_answer_is_told_in_a_few_lines() {
        assert_eq!(
            found(&plan(), Look::PLAIN),
            "iteration  predicted 1.30 s +-12.0 % simulated - 1.25 s by formula - 20.0 % bubble - 24.6 samples/s \
             - links assumed\n\
             overlap    blocking: as asked for\n\
             objective  min-iteration-time: 1.25 s - 321 states\n\
             rejected   4-3: 20.0 % slower\n"
        );
    }

    /// That no visits fetch less is told where it is known, and nothing where it is not.
    #[test]
    fn the_fewest_bytes_of_chunks_are_told() {
        let told = format!("prefetch   {FETCHES_FEWEST}\n");
        let mut plan = plan();
        assert!(!found(&plan, Look::PLAIN).contains("fetch"));
        if let Some(certificate) = &mut plan.certificate {
            certificate.fewest_fetched_bytes = true;
        }
        assert!(found(&plan, Look::PLAIN).contains(&told));
    }

    /// The headline says which seconds have no interval, and which have one that is wider than half of them.
    #[test]
    fn intervals_that_are_unknown_or_too_wide_are_in_the_headline() {
        let headline = |interval: Option<f64>| {
            let mut plan = plan();
            let of = |margin| v1::SecondsInterval { margin_ratio: margin, ..v1::SecondsInterval::default() };
            if let Some(iteration) = &mut plan.iteration {
                iteration.interval = interval.map(of);
            }
            found(&plan, Look::PLAIN)
        };
        for (interval, shown) in [
            (None, "predicted 1.30 s (interval unknown) simulated"),
            (Some(0.5), "predicted 1.30 s +-50.0 % simulated"),
            (Some(1.22), "predicted unusable (1.30 s +-122.0 %) simulated"),
        ] {
            let text = headline(interval);
            assert!(text.contains(shown), "{text}");
        }
    }

    /// A plan whose user named its stages has nothing to prove.
    #[test]
    fn a_given_plan_has_no_proof() {
        assert_eq!(found(&Plan::default(), Look::PLAIN), "");
    }
}
