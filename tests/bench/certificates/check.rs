//! Holds an answer to what is true.

use loadmaster_oracle::{Objective, PlanRules, SAME, Shape, Truth, Unit, front};
use loadmaster_proto::wire::v1;

use crate::certificates::ask::{Answer, Refused};
use crate::certificates::asked::plan_rules;
use crate::certificates::judge::{Judged, is_same, judge};
use crate::certificates::question::{Mode, Question};
use crate::certificates::scene::Scene;
use crate::certificates::truth::{Terms, truth};

/// What may be wrong with an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Class {
    /// A request that is right was refused.
    Refused,
    /// The plan breaks a rule of the request, or does not fit.
    Illegal,
    /// Bytes or seconds of the plan are not ours; nothing else is held against such an answer.
    Prices,
    /// No plan was found where there is one.
    FalselyInfeasible,
    /// Another plan is better than one that is called proven.
    FalselyProven,
    /// Another plan is better than the bound.
    Bound,
    /// Another plan is faster, by simulation, than the answer to "which is the fastest?".
    Beaten,
    /// The certificate's value is not the plan's.
    Value,
    /// The gap does not follow from value and bound.
    Gap,
    /// The highest peak is right, the ones below it are not the lowest.
    Leximax,
    /// The front is another one.
    Front,
    /// Missing bytes are not those of the plan that lacks least.
    Lack,
    /// What is told besides is not so.
    Told,
    /// A remedy does not work.
    Remedy,
    /// An answer that was not stopped depends on its deadline.
    Deadline,
    /// A stored plan's timeline is another one.
    Timeline,
    /// A plan that ours does not know of: an error of this program.
    Ours,
}

/// Something wrong with an answer.
#[derive(Debug, Clone)]
pub(crate) struct Finding {
    pub(crate) class: Class,
    pub(crate) what: String,
}

/// What an answer came to.
#[derive(Debug, Clone, Default)]
pub(crate) struct Verdict {
    pub(crate) findings: Vec<Finding>,
    pub(crate) is_plan: bool,
    pub(crate) is_proven: bool,
    pub(crate) is_stopped: bool,
    /// Of a plan that is not proven: the stated gap, if any.
    pub(crate) stated_gap: Option<f64>,
    /// How much worse than the best the answer is, as a share; none where nothing can be said.
    pub(crate) behind: Option<f64>,
    /// Remedies that were tried, and those whose words are not known here.
    pub(crate) remedies: u64,
    pub(crate) unread_remedies: u64,
}

impl Verdict {
    fn wrong(&mut self, class: Class, what: String) {
        self.findings.push(Finding { class, what });
    }
}

/// Holds an answer to the truth.
pub(crate) fn check(
    scene: &Scene,
    question: &Question,
    truth: &Truth,
    answer: &Answer,
    terms: Terms,
) -> Verdict {
    let mut verdict = Verdict::default();
    if truth.is_borderline {
        return verdict;
    }
    match answer {
        Answer::Plan(plan) => {
            verdict.is_plan = true;
            check_plan(&mut verdict, scene, question, truth, plan, terms);
        }
        Answer::Refused(refused) => check_refusal(&mut verdict, question, truth, refused),
    }
    verdict
}

/// A plan's value as its objective counts it.
fn own_value(question: &Question, judged: &Judged) -> Option<f64> {
    match question.objective {
        Objective::MinPeakMemory if question.unit == Some(Unit::Share) => Some(judged.share),
        Objective::MinPeakMemory => Some(judged.highest as f64),
        Objective::MinIterationTime | Objective::Pareto => Some(judged.seconds),
        Objective::MinDevices => Some(judged.devices as f64),
        Objective::MinCost => judged.price,
        Objective::MaxBatch => Some(f64::from(judged.size)),
        Objective::MaxModel => None,
    }
}

fn check_plan(
    verdict: &mut Verdict,
    scene: &Scene,
    question: &Question,
    truth: &Truth,
    plan: &v1::Plan,
    terms: Terms,
) {
    let judged = judge(scene, question, plan, terms);
    let certificate = plan.certificate.clone().unwrap_or_default();
    (verdict.is_proven, verdict.is_stopped) = (certificate.optimal, certificate.deadline_reached);
    if !judged.broken.is_empty() {
        verdict.wrong(Class::Illegal, judged.broken.join("; "));
    }
    if !judged.differing.is_empty() {
        verdict.wrong(Class::Prices, judged.differing.join("; "));
    }
    if !verdict.findings.is_empty() {
        return;
    }
    // AMP's annealing places ranks in ways that no order of nodes has: it may fit where nothing else does.
    let is_placed_freely = question.mode == Mode::AmpAnnealing;
    if is_placed_freely && truth.best.is_none() {
        return;
    }
    let (Some(best), Some(value)) = (truth.best, own_value(question, &judged)) else {
        verdict.wrong(Class::Ours, format!("{} kept plans, and it answers one", truth.kept));
        return;
    };
    // A maximum's values as those of a minimum.
    let sign = if question.objective.is_maximum() { -1.0 } else { 1.0 };
    let is_less = |one: f64, other: f64| {
        let (one, other) = (sign * one, sign * other);
        one < other - SAME * other.abs().max(one.abs())
    };
    if is_less(value, best) && !is_placed_freely {
        verdict
            .wrong(Class::Ours, format!("{value:?} was answered, {best:?} is the best of {}", truth.plans));
        return;
    }
    let is_beaten = is_less(best, value);
    verdict.behind = Some(if is_beaten { ((value - best) / best).abs() } else { 0.0 });
    let better = || format!("{value:?} was answered, {best:?} is possible: {}", truth.best_plan);
    if is_beaten && certificate.optimal {
        verdict.wrong(Class::FalselyProven, better());
    }
    let is_whole =
        question.mode == Mode::Exact && question.merge_to.is_none_or(|left| left as usize >= scene.layers());
    if is_beaten && question.objective.is_timed() && is_whole && !certificate.deadline_reached {
        verdict.wrong(Class::Beaten, better());
    }
    if !is_same(certificate.objective_value, value) {
        verdict.wrong(
            Class::Value,
            format!("the certificate says {:?}, the plan has {value:?}", certificate.objective_value),
        );
    }
    if let Some(bound) = certificate.best_bound.filter(|&bound| is_less(best, bound)) {
        verdict.wrong(
            Class::Bound,
            format!("no plan is better than {bound:?}, and {best:?} is: {}", truth.best_plan),
        );
    }
    if let Some(bound) = certificate.best_bound.filter(|&bound| is_less(value, bound)) {
        verdict.wrong(Class::Bound, format!("no plan is better than {bound:?}, and this one has {value:?}"));
    }
    check_gap(verdict, &certificate);
    if certificate.optimal
        && question.objective == Objective::MinPeakMemory
        && question.unit != Some(Unit::Share)
        && !question.may_idle
        && !is_beaten
        && truth.peaks.as_ref().is_some_and(|peaks| *peaks != judged.peaks)
    {
        verdict.wrong(Class::Leximax, format!("peaks are {:?}, and can be {:?}", judged.peaks, truth.peaks));
    }
    if question.objective == Objective::Pareto && certificate.optimal {
        check_front(verdict, question, truth, plan);
    }
    check_alternatives(verdict, question, &judged, plan);
    check_restriction(verdict, scene, question, plan, terms);
}

/// The plans that came next are not better, and come in order.
fn check_alternatives(verdict: &mut Verdict, question: &Question, judged: &Judged, plan: &v1::Plan) {
    let is_timed = question.objective.is_timed();
    let values: Vec<f64> = plan
        .alternatives
        .iter()
        .map(
            |other| {
                if is_timed { other.iteration_seconds.unwrap_or(f64::NAN) } else { other.objective_value }
            },
        )
        .collect();
    let Some(mut before) = own_value(question, judged) else { return };
    let sign = if question.objective.is_maximum() { -1.0 } else { 1.0 };
    for value in &values {
        if sign * *value < sign * before - SAME * before.abs() {
            verdict.wrong(
                Class::Told,
                format!("alternatives have {values:?}, after {:?}", own_value(question, judged)),
            );
            return;
        }
        before = *value;
    }
}

/// What a restriction is said to cost is the difference to the best plan without it.
fn check_restriction(
    verdict: &mut Verdict,
    scene: &Scene,
    question: &Question,
    plan: &v1::Plan,
    terms: Terms,
) {
    let Some(cost) = &plan.restriction_cost else { return };
    let PlanRules { spanning, schedules, policies, .. } = plan_rules(scene, question);
    let free = Question {
        shape: Some(Shape::PerStageMesh),
        framework: None,
        spanning: Some(spanning),
        schedules,
        policies,
        ..question.clone()
    };
    let Ok(truth) = truth(scene, &free, terms) else { return };
    let Some(best) = truth.best.filter(|_| !truth.is_borderline) else { return };
    let sign = if question.objective.is_maximum() { -1.0 } else { 1.0 };
    let (free_value, best_value) = (sign * cost.free_value, sign * best);
    let slack = SAME * best.abs();
    let is_wrong =
        if cost.free_optimal { !is_same(cost.free_value, best) } else { free_value < best_value - slack };
    if is_wrong {
        let what = format!(
            "without the restriction {:?} is said to be best (proven: {}), {best:?} is: {}",
            cost.free_value, cost.free_optimal, truth.best_plan
        );
        verdict.wrong(Class::Told, what);
    }
}

fn check_gap(verdict: &mut Verdict, certificate: &v1::Certificate) {
    let v1::Certificate {
        objective_value: value,
        best_bound: bound,
        optimality_gap: gap_ratio,
        optimal: proven,
        ..
    } = certificate;
    let expected = bound.map(|bound| if bound == *value { 0.0 } else { ((value - bound) / value).abs() });
    let is_right = match (gap_ratio, expected) {
        (Some(gap), Some(expected)) => is_same(*gap, expected),
        (None, None) => true,
        _ => false,
    };
    if !is_right || (*proven && gap_ratio.is_some_and(|gap| gap > SAME)) {
        let what = format!("value {value:?}, bound {bound:?}, gap {gap_ratio:?}, proven {proven}");
        verdict.wrong(Class::Gap, what);
    }
    if !proven {
        verdict.stated_gap = *gap_ratio;
    }
}

fn check_front(verdict: &mut Verdict, question: &Question, truth: &Truth, plan: &v1::Plan) {
    // Shares of a capacity cannot be read from a point's bytes where capacities differ.
    let is_share = question.unit == Some(Unit::Share);
    let mut answered: Vec<(f64, f64)> = plan
        .front
        .iter()
        .map(|point| {
            (point.iteration_seconds, point.predicted_peak.as_ref().map_or(0.0, |peak| peak.bytes as f64))
        })
        .collect();
    answered.sort_by(|a, b| a.0.total_cmp(&b.0));
    if is_share {
        return;
    }
    let are_points = |one: &[(f64, f64)], other: &[(f64, f64)]| {
        one.len() == other.len() && one.iter().zip(other).all(|(a, b)| is_same(a.0, b.0) && is_same(a.1, b.1))
    };
    if !are_points(&answered, &truth.front) {
        let what = format!(
            "{} points {answered:?}, and there are {}: {:?}",
            answered.len(),
            truth.front.len(),
            truth.front
        );
        verdict.wrong(Class::Front, what);
    } else if front(answered.clone()).len() != answered.len() {
        verdict.wrong(Class::Front, format!("points differ by rounding only: {answered:?}"));
    }
}

fn check_refusal(verdict: &mut Verdict, question: &Question, truth: &Truth, refused: &Refused) {
    let told = format!("{:?} {}: {}", refused.code, refused.reason, refused.message);
    if refused.is_stopped() {
        verdict.is_stopped = true;
        if question.search_seconds.is_none_or(|seconds| seconds >= 5.0) {
            verdict.wrong(Class::Refused, told);
        }
        return;
    }
    if !refused.is_no_plan() {
        // A framework that never cuts where a cut is asked for refuses the request; there is no plan, whatever fits.
        let cannot_run =
            question.framework.is_some() && refused.reason == "INVALID_FIELD" && truth.plans == 0;
        if !cannot_run {
            verdict.wrong(Class::Refused, told);
        }
        return;
    }
    if truth.kept > 0 {
        // Searches of papers look at a part of the plans, and say so; a merger was asked to cut at a part of the layers.
        let is_partial = question.mode != Mode::Exact && refused.message.contains("is not proven");
        if !is_partial && question.merge_to.is_none() {
            let class = Class::FalselyInfeasible;
            verdict.wrong(class, format!("{told}; {} plans keep to it: {}", truth.kept, truth.best_plan));
        }
        return;
    }
    if question.merge_to.is_some() {
        return;
    }
    let missing = refused.metadata.get("missing_bytes").map_or("", String::as_str);
    let expected = match (truth.fitting, truth.least_lack) {
        (0, Some(least)) => least.to_string(),
        _ => String::new(),
    };
    if missing != expected {
        let what = format!(
            "{missing:?} bytes are said to be missing, {expected:?} are: {}; {told}",
            truth.nearest_plan
        );
        verdict.wrong(Class::Lack, what);
    }
    if let Some(layer) = refused.metadata.get("layer").filter(|layer| !layer.is_empty()) {
        let index = layer.trim_start_matches('l').parse::<usize>().ok();
        if index.is_none_or(|index| truth.layer_fits.get(index).copied().unwrap_or(true)) {
            verdict.wrong(Class::Told, format!("{layer} fits on no device, and it does: {told}"));
        }
    }
    let fastest = seconds_after(&refused.message, "the fastest plan takes ");
    if let (Some((said, rounding)), Some(fastest)) = (fastest, truth.fastest)
        && question.max_peak.is_none()
        && (said - fastest).abs() > 1.01 * rounding
    {
        verdict.wrong(
            Class::Told,
            format!("the fastest plan takes {said} s, and {fastest} s is possible: {told}"),
        );
    }
}

/// Whether answers that were not stopped are the same, whatever their deadlines.
pub(crate) fn check_deadlines(answers: &[Answer]) -> Vec<Finding> {
    let key = |answer: &Answer| match answer {
        Answer::Plan(plan) => {
            let certificate = plan.certificate.clone().unwrap_or_default();
            let told = format!(
                "{:?} {:?} {:?}",
                certificate.objective_value, certificate.best_bound, certificate.optimal
            );
            let stages: Vec<String> = plan
                .stages
                .iter()
                .map(|stage| format!("{:?} {:?}", stage.config, stage.device_ranges))
                .collect();
            let points: Vec<String> =
                plan.front.iter().map(|point| format!("{:?}", point.pipeline_layout)).collect();
            let batch = plan.training.map(|training| (training.micro_batch_size, training.schedule));
            (!certificate.deadline_reached).then(|| format!("{told} {batch:?} {stages:?} {points:?}"))
        }
        // Remedies are told besides, in a share of the time.
        Answer::Refused(refused) => {
            (!refused.is_stopped()).then(|| format!("{} {:?}", refused.reason, refused.metadata))
        }
    };
    let keys: Vec<String> = answers.iter().filter_map(key).collect();
    let differ = keys.windows(2).find(|pair| pair[0] != pair[1]);
    let finding =
        |pair: &[String]| Finding { class: Class::Deadline, what: format!("{} or {}", pair[0], pair[1]) };
    differ.map(finding).into_iter().collect()
}

/// The seconds that follow some words, as `40.0 ms`, and how far off their last digit may be.
fn seconds_after(text: &str, words: &str) -> Option<(f64, f64)> {
    let (_, rest) = text.split_once(words)?;
    let mut said = rest.split(|c: char| c.is_whitespace() || c == ',');
    let (number, unit) = (said.next()?, said.next()?);
    let unit = match unit {
        "us" => 1e-6,
        "ms" => 1e-3,
        "s" => 1.0,
        _ => return None,
    };
    let digits = number.split_once('.').map_or(0, |(_, digits)| digits.len());
    let last = 10_f64.powi(-i32::try_from(digits).ok()?);
    Some((number.parse::<f64>().ok()? * unit, last / 2.0 * unit))
}
