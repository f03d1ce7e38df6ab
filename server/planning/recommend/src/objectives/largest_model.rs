//! The largest model that has a plan: of several that have a profile each, or of a family, in chunks (PatrickStar's *model scale*) or
//! without.
//!
//! One profile has measured the layers of one model; those of larger ones are the same, more of them.

use std::sync::Arc;

use loadmaster_proto::error::Invalid;
use loadmaster_proto::model::Model;
use loadmaster_proto::model::zoo::Zoo;
use loadmaster_proto::name::ModelName;
use loadmaster_proto::plan::compatibility::{Setting, Settings};
use loadmaster_proto::plan::findings::{Certificate, Rejected, optimality_gap};
use loadmaster_proto::plan::objective::Objective;
use loadmaster_proto::plan::request::GrownModel;
use loadmaster_proto::plan::{Plan, PlanStage};
use loadmaster_proto::warning::WarningCode;

use crate::plan::NamedPlan;
use crate::problem::ProfiledChain;
use crate::question::{PlainFit, PlanQuestion};
use crate::result::{QuestionError, RecommendError, certified};
use loadmaster_predict::Predictor as _;
use loadmaster_predict::component::Component;
use loadmaster_search::Stop;

/// Most models that a certificate names as rejected.
const NAMED: usize = 3;

/// The answer to the question whose model has the most parameters, from the largest one down, among those that have
/// one; each question comes with its parameters.
///
/// # Errors
/// Those of the smallest model, where none fits, and whatever is wrong with a question.
pub fn largest_model(
    mut questions: Vec<(u64, PlanQuestion)>,
    stop: &Stop,
) -> Result<(NamedPlan, Vec<NamedPlan>), QuestionError> {
    // Of equally large ones the first that was named.
    questions.sort_by_key(|(parameters, _)| std::cmp::Reverse(*parameters));
    // The largest of which it is not proven that it does not fit.
    let mut open: Option<u64> = None;
    let mut rejected: Vec<Rejected> = Vec::new();
    let mut last = None;
    for (parameters, question) in &questions {
        match question.answer(stop) {
            Ok(((_, mut plan), others)) => {
                let is_chosen = question.request.allowed.is_some();
                let states = plan.found.certificate.as_ref().map_or(0, |certificate| certificate.states);
                let value = *parameters as f64;
                let bound = open.map_or(value, |open| open as f64);
                plan.found.certificate = Some(Certificate {
                    gap: Some(optimality_gap(value, bound)),
                    proven: open.is_none(),
                    stopped: is_chosen && stop.is_requested(),
                    states,
                    rejected,
                    fetches_fewest: plan.found.certificate.as_ref().is_some_and(|of| of.fetches_fewest),
                    ..certified(value, Some(bound), Objective::MaxModel.unit())
                });
                // The plans that came next are compared in bytes, not in parameters.
                return Ok(((plan.name()?, plan), others));
            }
            // With actions to choose there may be time for a part of the models alone.
            Err(QuestionError::Recommend(RecommendError::Stopped)) if question.request.allowed.is_some() => {
                open = open.or(Some(*parameters));
                last = Some(RecommendError::Stopped);
            }
            Err(QuestionError::Recommend(
                error @ (RecommendError::NoPlan { .. }
                | RecommendError::Limits { .. }
                | RecommendError::NoRoomInChunks { .. }
                | RecommendError::Neither { .. }),
            )) => {
                if !error.is_proof() {
                    open = open.or(Some(*parameters));
                }
                if rejected.len() < NAMED {
                    rejected.push(Rejected {
                        what: question.chain.profile.to_string(),
                        value: Some(*parameters as f64),
                        reason: error.to_string(),
                    });
                }
                last = Some(error);
            }
            Err(error) => return Err(error),
        }
    }
    // There is at least one candidate.
    Err(last.unwrap_or(RecommendError::Stopped).into())
}

/// Models whose layers a profile has measured.
#[derive(Debug)]
pub struct Family {
    /// The one that was profiled.
    pub zoo: Zoo,
    /// What answers for it, and, by the same recordings, for the others.
    pub component: Component,
}

/// The largest model of a family that has a plan.
#[derive(Debug)]
pub struct ScaledModel {
    /// Which of the family it is.
    pub zoo: Zoo,
    /// The model.
    pub model: Model,
    /// Its plan.
    pub plan: NamedPlan,
    /// The plans that this names.
    pub others: Vec<NamedPlan>,
}

impl Family {
    /// The model with this value of a parameter.
    ///
    /// # Errors
    /// There is no such parameter, or no such model.
    fn at(&self, parameter: &str, value: u64) -> Result<(Zoo, Model), Invalid> {
        let zoo =
            self.zoo.with(parameter, value).map_err(|invalid| invalid.under("objective.model_scaling"))?;
        let model = zoo.build().map_err(|invalid| {
            Invalid::field(
                "objective.model_scaling.max_value",
                format!("gives no valid model with {parameter} {value}: {invalid}"),
            )
        })?;
        Ok((zoo, model))
    }

    /// What is known of one of its models, where `own` is what is known of the one that was profiled.
    ///
    /// # Errors
    /// Never: a model's id is a valid one.
    pub fn chain(&self, own: &ProfiledChain, model: &Model) -> Result<ProfiledChain, Invalid> {
        Ok(ProfiledChain {
            profile: own.profile.clone(),
            model_name: ModelName::from_id(model.id())?,
            device_kind: own.device_kind.clone(),
            training: own.training,
            layer_names: model.layers().iter().map(|layer| layer.name.clone()).collect(),
            parameters: Some(model.parameter_count()),
            framework: own.framework.clone(),
            predictor: Box::new(self.component.of_model(model)),
            known: Arc::default(),
            host: own.host,
            chunk_check: own.chunk_check.clone(),
            model: Some(model.clone()),
        })
    }
}

/// What is known of a model once it was looked at.
enum ModelOutcome {
    /// It has a plan; none is written where there is only known to be room for one.
    Fits(Option<Box<(NamedPlan, Vec<NamedPlan>)>>),
    /// It lacks memory, or takes too long, and so do larger ones.
    TooLarge,
    /// It has none for another reason: it may be too small for what is asked, or too large.
    Refused,
    /// Time was up.
    Unknown,
}

impl ModelOutcome {
    /// # Errors
    /// What is wrong with the profile, whatever the model.
    fn at(error: QuestionError, stop: &Stop) -> Result<Self, QuestionError> {
        match error {
            QuestionError::Recommend(_) if stop.is_over() => Ok(Self::Unknown),
            QuestionError::Recommend(error) if error.lacks() => Ok(Self::TooLarge),
            QuestionError::Recommend(_) | QuestionError::Invalid(_) => Ok(Self::Refused),
            error @ QuestionError::Prediction(_) => Err(error),
        }
    }
}

/// Which models are still to be looked at, and which of them next.
#[derive(Debug)]
struct Bracket {
    /// The smallest that is not known to fit, or to be too small.
    low: u64,
    /// The smallest that is too large; one more than there are where none is.
    not: u64,
    /// How far on the next look is while none is too large.
    step: u64,
    is_any_too_large: bool,
    /// The two largest that fit, and what part of the memory of the device that has least left each of them takes.
    shares: [Option<(u64, f64)>; 2],
    /// Whether the last look was where peaks said, and whether any was.
    is_guessed: bool,
    has_guessed: bool,
}

impl Bracket {
    fn of(first: u64, last: u64) -> Self {
        let not = last.saturating_add(1);
        Self {
            low: first,
            not,
            step: 1,
            is_any_too_large: false,
            shares: [None; 2],
            is_guessed: false,
            has_guessed: false,
        }
    }

    /// The model to look at; none once it is known which is the largest.
    fn next(&mut self) -> Option<u64> {
        if self.low >= self.not {
            return None;
        }
        // Looks go from small models to models of twice the parameter until one is too large: a look takes longer for large ones.
        let farther = self.low.saturating_add(self.step - 1).min(self.not - 1);
        // Every other look halves what is left, however wrong peaks are.
        let guess =
            self.guess().filter(|guess| !self.is_guessed && (self.is_any_too_large || *guess <= farther));
        self.is_guessed = guess.is_some();
        if guess.is_some() && !std::mem::replace(&mut self.has_guessed, true) {
            // Models much larger than that are not worth a look.
            self.step = 1;
        }
        let halved = || self.low + (self.not - self.low) / 2;
        let next = guess.unwrap_or_else(|| if self.is_any_too_large { halved() } else { farther });
        Some(next)
    }

    /// The largest that fits if peaks go on growing by as much as before.
    fn guess(&self) -> Option<u64> {
        let [(smaller, less), (larger, more)] = [self.shares[0]?, self.shares[1]?];
        let each = (more - less) / larger.checked_sub(smaller).filter(|&by| by > 0)? as f64;
        let by = (1.0 - more) / each;
        let guess = larger.saturating_add(if by.is_finite() && by > 0.0 { by as u64 } else { 0 });
        (each > 0.0).then(|| guess.clamp(self.low, self.not - 1))
    }

    /// A model fits, or is too small.
    fn fits(&mut self, value: u64, share: Option<f64>) {
        (self.low, self.step) = (value.saturating_add(1), self.step.saturating_mul(2));
        if let Some(share) = share {
            self.shares = [self.shares[1], Some((value, share))];
        }
    }

    fn fits_not(&mut self, value: u64) {
        (self.not, self.is_any_too_large) = (value, true);
    }
}

/// What part of its memory the device with the highest peak of a plan takes.
fn share(plan: &Plan) -> Option<f64> {
    let of = |stage: &PlanStage| stage.predicted_peak as f64 / stage.capacity.max(1) as f64;
    plan.stages.iter().map(of).reduce(f64::max)
}

impl PlanQuestion {
    /// The largest model of the family that has a plan. Models grow with the parameter, so about twice as many of them are
    /// looked at as the answer has bits, and fewer where the peaks of smaller models say how large it is about. A search that is
    /// stopped answers with the largest so far.
    ///
    /// # Errors
    /// What is wrong with the request, what the profile lacks, or that not even the smallest model has a plan.
    pub fn largest_of(
        &self,
        family: &Family,
        grown: &GrownModel,
        stop: &Stop,
    ) -> Result<ScaledModel, QuestionError> {
        self.check_scaling(family)?;
        let GrownModel { parameter, first, last } = grown;
        // A model that cannot be built is reported before any search.
        family.at(parameter, *last)?;
        let mut bracket = Bracket::of(*first, *last);
        let (mut fit, mut too_large) = (None, None);
        let mut stopped = false;
        while let Some(value) = bracket.next() {
            if stop.is_over() {
                if fit.is_none() {
                    return Err(RecommendError::Stopped.into());
                }
                stopped = true;
                break;
            }
            match self.look(family, parameter, value, stop)? {
                ModelOutcome::Fits(plan) => {
                    bracket.fits(value, plan.as_ref().and_then(|plan| share(&plan.0.1)));
                    fit = Some((value, plan));
                }
                // It may be too small for what is asked, where no smaller one fits.
                ModelOutcome::Refused if fit.is_none() => bracket.fits(value, None),
                ModelOutcome::TooLarge | ModelOutcome::Refused => {
                    bracket.fits_not(value);
                    too_large = Some(value);
                }
                // The next look says that time is up.
                ModelOutcome::Unknown => {}
            }
        }
        let Some((value, known)) = fit else {
            // The smallest one that lacks something says what.
            let (_, _, smallest) = self.of(family, parameter, too_large.unwrap_or(*first))?;
            return match smallest.answer(stop) {
                Err(error) => Err(error),
                Ok(_) => Err(RecommendError::Stopped.into()),
            };
        };
        let (zoo, model, question) = self.of(family, parameter, value)?;
        let ((_, mut plan), others) = match (question.answer(stop), known) {
            // There was time for a look alone.
            (Err(QuestionError::Recommend(RecommendError::Stopped)), Some(known)) => {
                stopped = true;
                *known
            }
            (answer, _) => answer?,
        };
        let parameters = model.parameter_count() as f64;
        let is_next_known = value < *last && !stop.is_over();
        let rejected =
            if is_next_known { vec![self.next(family, parameter, value + 1, stop)?] } else { Vec::new() };
        let is_last = value == *last;
        let of_model = plan.found.certificate.take();
        plan.found.certificate = Some(Certificate {
            gap: is_last.then_some(0.0),
            proven: is_last,
            stopped,
            states: of_model.as_ref().map_or(0, |certificate| certificate.states),
            rejected,
            fetches_fewest: of_model.is_some_and(|certificate| certificate.fetches_fewest),
            ..certified(parameters, is_last.then_some(parameters), Objective::MaxModel.unit())
        });
        plan.warnings.push(WarningCode::ModelScaled.says(format!(
            "the planned model is {} with {parameter} {value}, from the range {first} to {last}. The layers were \
             profiled in the model {}",
            zoo.family(),
            self.chain.model_name
        )));
        Ok(ScaledModel { zoo, model, plan: (plan.name()?, plan), others })
    }

    /// # Errors
    /// Names what of the request is of the profiled model alone.
    fn check_scaling(&self, family: &Family) -> Result<(), Invalid> {
        let asked = self.chain.predictor.name();
        let is_other = asked != family.component.name();
        let may_be_plain = self.request.chunks.as_ref().is_none_or(|asked| asked.or_plain);
        Settings::default()
            .when(true, Setting::Grow)
            .says_some(Setting::ProfiledPredictor, is_other.then_some(asked))
            .when(may_be_plain && self.request.partitioning.is_some(), Setting::Partitioning)
            .check()
    }

    /// Whether one model has a plan: room is enough where nothing but room is asked for.
    fn look(
        &self,
        family: &Family,
        parameter: &str,
        value: u64,
        stop: &Stop,
    ) -> Result<ModelOutcome, QuestionError> {
        let question = match self.of(family, parameter, value) {
            Ok((_, _, question)) => question,
            Err(error) => return ModelOutcome::at(error, stop),
        };
        let chunks = self.request.chunks.as_ref();
        let may_be_plain = chunks.is_none_or(|asked| asked.or_plain);
        let plain = if may_be_plain { question.fits_plain(stop) } else { Ok(None) };
        let is_known = match plain {
            Ok(Some(PlainFit::Plan(plan))) => {
                return Ok(ModelOutcome::Fits(Some(Box::new(((plan.name()?, *plan), Vec::new())))));
            }
            Ok(Some(PlainFit::TooLarge)) if chunks.is_none() => return Ok(ModelOutcome::TooLarge),
            Ok(Some(PlainFit::Impossible)) if chunks.is_none() => return Ok(ModelOutcome::Refused),
            Ok(plain) => plain.is_some() || !may_be_plain,
            Err(error) => return ModelOutcome::at(error, stop),
        };
        let has_limit = self.request.goal.constraints.max_iteration_seconds.is_some();
        if let Some(asked) = chunks.filter(|_| is_known && !has_limit) {
            return match question.has_room_in_chunks(asked, stop) {
                Ok(true) => Ok(ModelOutcome::Fits(None)),
                Ok(false) => Ok(ModelOutcome::TooLarge),
                Err(error) => ModelOutcome::at(error, stop),
            };
        }
        // Only the plan that is reported is compared with others.
        let mut brief = question;
        (brief.request.brief, brief.request.alternatives) = (true, 0);
        match brief.answer(stop) {
            Ok(answer) => Ok(ModelOutcome::Fits(Some(Box::new(answer)))),
            Err(error) => ModelOutcome::at(error, stop),
        }
    }

    /// The question for one model of the family.
    fn of(&self, family: &Family, parameter: &str, value: u64) -> Result<(Zoo, Model, Self), QuestionError> {
        let (zoo, model) = family.at(parameter, value)?;
        let constraints = &self.request.goal.constraints;
        constraints.check_layers(model.layers().len()).map_err(|invalid| invalid.under("constraints"))?;
        let chain = family.chain(&self.chain, &model)?;
        let mut question = Self { chain: Arc::new(chain), ..self.clone() };
        question.others.clear();
        Ok((zoo, model, question))
    }

    /// Why the next model has no plan.
    fn next(
        &self,
        family: &Family,
        parameter: &str,
        value: u64,
        stop: &Stop,
    ) -> Result<Rejected, QuestionError> {
        let (_, model, question) = match self.of(family, parameter, value) {
            Ok(next) => next,
            Err(error) => {
                let what = format!("{parameter} {value}");
                return Ok(Rejected { what, value: None, reason: error.to_string() });
            }
        };
        let reason = match question.answer(stop) {
            Err(error) => error.to_string(),
            Ok(_) => "has a plan that was found later".to_owned(),
        };
        let value = Some(model.parameter_count() as f64);
        Ok(Rejected { what: format!("models/{}", model.id()), value, reason })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::fixture::{Fixture, component, gpt, small_gpt};

    /// On devices of whatever memory the largest model is the largest of all that have a plan, each asked about alone.
    #[test]
    fn the_largest_model_is_the_largest_of_all_that_have_a_plan() {
        let (first, last) = (1, 7);
        let grown = GrownModel { parameter: "blocks".to_owned(), first, last };
        let family = Family { zoo: small_gpt(true), component: component(&gpt(true), |_| {}) };
        let question = |devices: u32, capacity: u64| {
            let fixture = Fixture::of(gpt(true), None, Objective::MaxModel, devices, capacity);
            fixture.with(|fixture| fixture.request.allowed = None).question()
        };
        let alone = |devices: u32, capacity: u64, blocks: u64| {
            let (_, _, one) = question(devices, capacity).of(&family, "blocks", blocks).unwrap();
            one.answer(&Stop::default()).map(|((_, plan), _)| plan.peak())
        };
        for devices in [1, 2] {
            for blocks in [1, 4, 7] {
                let least = alone(devices, 1 << 40, blocks).unwrap();
                for capacity in [least - 1, least] {
                    let mut all = (first..=last).filter(|&blocks| alone(devices, capacity, blocks).is_ok());
                    let largest = all.next_back().map(|blocks| family.at("blocks", blocks).unwrap().1);
                    let found = question(devices, capacity).largest_of(&family, &grown, &Stop::default());
                    let found = found.ok().map(|found| found.model);
                    assert_eq!(found, largest, "{devices} devices with {capacity} bytes");
                }
            }
        }
    }

    /// Looks at models of which those from `smallest` to `largest` fit, with peaks that are this share of the memory; what was
    /// found, and after how many looks.
    fn found(
        range: [u64; 2],
        [smallest, largest]: [u64; 2],
        share: impl Fn(u64) -> Option<f64>,
    ) -> (u64, usize) {
        let mut bracket = Bracket::of(range[0], range[1]);
        let (mut found, mut looks) = (0, 0);
        while let Some(value) = bracket.next() {
            assert!((range[0]..=range[1]).contains(&value));
            looks += 1;
            if value > largest {
                bracket.fits_not(value);
            } else if value < smallest {
                assert_eq!(found, 0, "nothing larger is looked at as if it were too small");
                bracket.fits(value, None);
            } else {
                found = found.max(value);
                bracket.fits(value, share(value));
            }
        }
        (found, looks)
    }

    /// Whatever peaks are, the largest model is found, after no more looks than twice the halvings and the doublings.
    #[test]
    fn the_largest_model_is_found_whatever_peaks_are() {
        let shares: [fn(u64) -> Option<f64>; 5] = [
            |_| None,
            |_| Some(0.5),
            |value| Some(value as f64 / 135.9),
            |value| Some((value as f64).sqrt() / 3.0),
            |value| Some(1.0 / value as f64),
        ];
        for last in [1_u64, 2, 3, 7, 50, 300] {
            for largest in 1..=last {
                for share in shares {
                    let (found, looks) = found([1, last], [1, largest], share);
                    assert_eq!(found, largest);
                    let most = 4 * (last.ilog2() as usize + 2);
                    assert!(looks <= most, "{looks} looks for {largest} of {last}");
                }
            }
        }
        assert_eq!(found([1, 300], [20, 135], |_| None).0, 135);
    }

    /// Where peaks grow by as much with every block, what is looked at is not much larger than what fits.
    #[test]
    fn models_much_larger_than_what_fits_are_not_looked_at() {
        let mut bracket = Bracket::of(1, 300);
        let mut looks = Vec::new();
        while let Some(value) = bracket.next() {
            looks.push(value);
            match value {
                0..=135 => bracket.fits(value, Some(0.1 + value as f64 / 151.0)),
                _ => bracket.fits_not(value),
            }
        }
        assert!(looks.len() <= 12 && looks.iter().all(|&value| value <= 140), "{looks:?}");
    }
}
