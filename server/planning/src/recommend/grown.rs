//! The largest model of a family that has a plan, in chunks (PatrickStar's *model scale*) or without.
//!
//! One profile has measured the layers of one model; those of larger ones are the same, more of them.

use std::sync::Arc;

use loadmaster_proto::error::Invalid;
use loadmaster_proto::model::Model;
use loadmaster_proto::model::zoo::Zoo;
use loadmaster_proto::name::ModelName;
use loadmaster_proto::plan::certificate::{Certificate, Rejected};
use loadmaster_proto::plan::grown::GrownModel;
use loadmaster_proto::plan::objective::Objective;

use super::answer::{QuestionError, RecommendError};
use super::ask::ProfiledChain;
use super::plan::NamedPlan;
use super::question::PlanQuestion;
use crate::predict::Predictor as _;
use crate::predict::component::Component;
use crate::search::Stop;

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
pub struct Grown {
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
        let zoo = self.zoo.with(parameter, value).map_err(|invalid| invalid.under("grow"))?;
        let model = zoo.build().map_err(|invalid| {
            Invalid::field("grow.last", format!("makes no model of {parameter} {value}: {invalid}"))
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
enum Look {
    /// It has a plan, which is known where more than room was asked for.
    Fits(Option<Box<(NamedPlan, Vec<NamedPlan>)>>),
    /// It lacks memory, or takes too long, and so do larger ones.
    TooLarge,
    /// It has none for another reason: it may be too small for what is asked, or too large.
    Refused,
    /// Time was up.
    Unknown,
}

impl Look {
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

impl PlanQuestion {
    /// The largest model of the family that has a plan. Models grow with the parameter, so about twice as many of them are
    /// looked at as the answer has bits. A search that is stopped answers with the largest so far.
    ///
    /// # Errors
    /// What is wrong with the request, what the profile lacks, or that not even the smallest model has a plan.
    pub fn largest_of(
        &self,
        family: &Family,
        grown: &GrownModel,
        stop: &Stop,
    ) -> Result<Grown, QuestionError> {
        self.check_grown(family)?;
        let GrownModel { parameter, first, last } = grown;
        // What cannot be built is told before anything is looked at.
        family.at(parameter, *last)?;
        let (mut fit, mut not) = (None, last.saturating_add(1));
        // Looks go from small models to models of twice the parameter until one is too large: a search takes longer for large ones.
        let (mut low, mut step, mut too_large) = (*first, 1_u64, None);
        let mut stopped = false;
        while low < not {
            if stop.is_over() {
                if fit.is_none() {
                    return Err(RecommendError::Stopped.into());
                }
                stopped = true;
                break;
            }
            let looked_at = match too_large {
                Some(_) => low + (not - low) / 2,
                None => low.saturating_add(step - 1).min(*last),
            };
            let look = self.look(family, parameter, looked_at, stop)?;
            // It may be too small for what is asked, where no smaller one fits.
            if matches!(look, Look::Fits(_)) || matches!(look, Look::Refused) && fit.is_none() {
                (low, step) = (looked_at.saturating_add(1), step.saturating_mul(2));
            }
            match look {
                Look::Fits(plan) => fit = Some((looked_at, plan)),
                Look::Refused if fit.is_none() => {}
                Look::TooLarge | Look::Refused => (not, too_large) = (looked_at, Some(looked_at)),
                // The next look says that time is up.
                Look::Unknown => {}
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
            value: parameters,
            bound: is_last.then_some(parameters),
            gap: is_last.then_some(0.0),
            proven: is_last,
            stopped,
            unit: Objective::MaxModel.unit().to_owned(),
            states: of_model.as_ref().map_or(0, |certificate| certificate.states),
            rejected,
            fetches_fewest: of_model.is_some_and(|certificate| certificate.fetches_fewest),
        });
        plan.warnings.push(format!(
            "the model is {} with {parameter} {value}, of the range {first} to {last}: the profile has measured its layers in \
             {}",
            zoo.family(),
            self.chain.model_name
        ));
        Ok(Grown { zoo, model, plan: (plan.name()?, plan), others })
    }

    /// # Errors
    /// Names what of the request is of the profiled model alone.
    fn check_grown(&self, family: &Family) -> Result<(), Invalid> {
        let asked = self.chain.predictor.name();
        if asked != family.component.name() {
            let why = format!(
                "is {asked}, which knows nothing of larger models than the profiled one: name component, or leave it out"
            );
            return Err(Invalid::field("predictor", why));
        }
        let may_be_plain = self.request.chunks.as_ref().is_none_or(|asked| asked.or_plain);
        if may_be_plain && self.request.partitioning.is_some() {
            let why = "has the layers of one model, and `grow` makes others of it: leave out one of the two";
            return Err(Invalid::field("partitioning", why));
        }
        Ok(())
    }

    /// Whether one model has a plan: in chunks room is enough where nothing but room is asked for.
    fn look(&self, family: &Family, parameter: &str, value: u64, stop: &Stop) -> Result<Look, QuestionError> {
        let question = match self.of(family, parameter, value) {
            Ok((_, _, question)) => question,
            Err(error) => return Look::at(error, stop),
        };
        let has_limit = self.request.goal.constraints.max_iteration_seconds.is_some();
        if let Some(asked) = self.request.chunks.as_ref().filter(|asked| !has_limit && !asked.or_plain) {
            return match question.has_room_in_chunks(asked, stop) {
                Ok(true) => Ok(Look::Fits(None)),
                Ok(false) => Ok(Look::TooLarge),
                Err(error) => Look::at(error, stop),
            };
        }
        // What others come to is for the plan that is told.
        let mut brief = question;
        (brief.request.brief, brief.request.alternatives) = (true, 0);
        match brief.answer(stop) {
            Ok(answer) => Ok(Look::Fits(Some(Box::new(answer)))),
            Err(error) => Look::at(error, stop),
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
