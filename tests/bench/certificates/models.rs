//! Which of several models is the largest that fits?

use anyhow::Result;
use loadmaster_proto::wire::v1;

use crate::certificates::ask::{Answer, Planner, Stored};
use crate::certificates::check::{Class, Finding, Verdict};
use crate::certificates::instance::Instance;
use crate::certificates::judge::{is_same, judge};
use crate::certificates::scene::Scene;
use crate::certificates::truth::{Terms, Truth};

/// Parameters of a scene's model.
fn parameters(scene: &Scene) -> f64 {
    scene.kinds[0].layers.iter().map(|layer| layer.parameter_count as f64).sum()
}

/// Asks for the largest of the scene's model and its rivals, and holds the answer to which of them have a plan.
pub(crate) async fn verdict(
    planner: &Planner,
    stored: &Stored,
    instance: &Instance,
    truth: &Truth,
    terms: Terms,
) -> Result<Verdict> {
    let Instance { scene, question, rivals, .. } = instance;
    let mut verdict = Verdict::default();
    let mut candidates = vec![(scene, stored.profiles[0].clone(), truth.kept > 0)];
    let mut is_borderline = truth.is_borderline;
    for rival in rivals {
        let stored = planner.store(rival).await?;
        let Ok(truth) = Truth::of(rival, question, terms) else { return Ok(verdict) };
        is_borderline |= truth.is_borderline;
        candidates.push((rival, stored.profiles[0].clone(), truth.kept > 0));
    }
    let request = v1::RecommendPlanRequest {
        profile: String::new(),
        other_profiles: Vec::new(),
        candidate_profiles: candidates.iter().map(|(_, name, _)| name.clone()).collect(),
        ..question.request(scene, &stored.profiles, &stored.cluster)
    };
    let answer = planner.call(request).await?;
    if is_borderline {
        return Ok(verdict);
    }
    let fits = candidates.iter().filter(|(_, _, fits)| *fits);
    let best = fits.map(|(scene, ..)| parameters(scene)).reduce(f64::max);
    let mut wrong = |class, what: String| verdict.findings.push(Finding { class, what });
    let plan = match (&answer, best) {
        (Answer::Plan(plan), _) => plan,
        (Answer::Refused(refused), None) if refused.is_no_plan() => return Ok(verdict),
        (Answer::Refused(refused), Some(best)) if refused.is_no_plan() => {
            wrong(
                Class::FalselyInfeasible,
                format!("{}; a model of {best} parameters fits", refused.message),
            );
            return Ok(verdict);
        }
        (Answer::Refused(refused), _) => {
            wrong(Class::Refused, format!("{:?} {}", refused.code, refused.message));
            return Ok(verdict);
        }
    };
    let Some((chosen, ..)) = candidates.iter().find(|(_, name, _)| *name == plan.profile) else {
        wrong(Class::Illegal, format!("{} is none of the candidates", plan.profile));
        return Ok(verdict);
    };
    let judged = judge(chosen, question, plan, terms);
    if !judged.broken.is_empty() {
        wrong(Class::Illegal, judged.broken.join("; "));
    }
    if !judged.differing.is_empty() {
        wrong(Class::Prices, judged.differing.join("; "));
    }
    let certificate = plan.certificate.clone().unwrap_or_default();
    let value = parameters(chosen);
    let Some(best) = best else {
        wrong(Class::Ours, "no model fits, and one is answered".to_owned());
        return Ok(verdict);
    };
    if !is_same(certificate.value, value) {
        wrong(Class::Value, format!("{:?} of {value:?} parameters", certificate.value));
    }
    if best > value && certificate.proven {
        wrong(Class::FalselyProven, format!("{value:?} parameters were answered, {best:?} fit"));
    }
    if let Some(bound) = certificate.bound.filter(|&bound| bound < best) {
        wrong(Class::Bound, format!("no model of more than {bound:?} parameters fits, and {best:?} do"));
    }
    (verdict.is_plan, verdict.is_proven, verdict.is_stopped) =
        (true, certificate.proven, certificate.stopped);
    if !certificate.proven {
        (verdict.stated_gap, verdict.behind) = (certificate.gap_ratio, Some((best - value) / best));
    }
    Ok(verdict)
}
