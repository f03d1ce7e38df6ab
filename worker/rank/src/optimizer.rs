//! The optimizer step: SGD with momentum, `Adam` and `AdamW`, in place, in fp32.
//!
//! They are libtorch's algorithms (a test compares), but update a master copy where the trained tensor
//! is less precise, and hold exactly the tensors that the arithmetic of `TrainingSpec` counts.

use loadmaster_proto::measure::failure::Phase;
use loadmaster_proto::training::Optimizer;
use loadmaster_proto::training::actions::Step;
use tch::{Kind, Tensor};

use crate::collective::divided::{Division, part_of};
use crate::error::RankError;
use crate::ffi::{add_number, add_product, add_quotient, add_scaled, divide, multiply};
use crate::layers::Trained;
use crate::movement::Movement;
use crate::progress;
use crate::tensor::copy_of;

/// What the optimizer keeps of one trained tensor between steps.
#[derive(Debug, Default)]
pub(crate) struct OptimizerState {
    /// SGD's velocity or Adam's first moment.
    pub(crate) first: Option<Tensor>,
    /// Adam's second moment.
    pub(crate) second: Option<Tensor>,
}

/// The optimizer of a stage.
#[derive(Debug)]
pub struct Stepper {
    rule: Optimizer,
    division: Option<Division>,
    states: Vec<OptimizerState>,
    steps: i32,
}

impl Stepper {
    /// An optimizer of `count` trained tensors. Its state is made in the first step.
    pub fn new(rule: Optimizer, count: usize) -> Self {
        let states = std::iter::repeat_with(OptimizerState::default).take(count).collect();
        Self { rule, division: None, states, steps: 0 }
    }

    /// Returns the optimizer of a replica that updates its part of each tensor.
    #[must_use]
    pub(crate) fn dividing(self, division: Option<Division>) -> Self {
        Self { division, ..self }
    }

    /// Updates its part of every tensor that has a gradient, and forgets the gradients. Where replicas divide tensors, each layer's
    /// are whole before the next layer is updated.
    ///
    /// # Errors
    /// Out of memory, for one.
    pub fn step(&mut self, trained: &[Trained], movement: &Movement) -> Result<(), RankError> {
        let _no_grad = tch::no_grad_guard();
        self.steps += 1;
        let mut states = self.states.iter_mut();
        for layer in trained.chunk_by(|one, other| one.layer == other.layer) {
            for (tensor, state) in layer.iter().zip(&mut states) {
                progress::enter(Phase::Step, Some(tensor.layer));
                movement.lock().before(Step::Update { layer: tensor.layer })?;
                let Some(gradient) = tensor.gradient()? else { continue };
                let own = |of: &Tensor| match &self.division {
                    None => Ok(Some(of.shallow_clone())),
                    Some(division) => part_of(of, division.replicas.own()),
                };
                let (Some(mut gradient), Some(mut value)) = (own(&gradient)?, own(&tensor.value)?) else {
                    continue;
                };
                let mut weights = value.shallow_clone();
                if let Some(master) = &tensor.master {
                    gradient = gradient.f_to_kind(Kind::Float)?;
                    weights = master.shallow_clone();
                }
                update(self.rule, self.steps, state, &weights, &gradient)?;
                let states = state.first.iter().chain(&state.second);
                movement.lock().actions.blocks.stepped(tensor.layer, states)?;
                if tensor.master.is_some() {
                    value.f_copy_(&weights)?;
                }
            }
            if let Some(division) = &self.division {
                let values: Vec<Tensor> = layer.iter().map(|tensor| tensor.value.shallow_clone()).collect();
                division.all_gather(&values)?;
            }
        }
        movement.lock().updated()?;
        // After the last update, as trainers do: all gradients live through the whole step.
        for tensor in trained {
            tensor.forget_gradient()?;
        }
        Ok(())
    }

    /// The replicas with which it divides tensors; none where it updates all of them.
    pub(crate) fn division(&self) -> Option<&Division> {
        self.division.as_ref()
    }
}

/// Updates a tensor's weights, in fp32, in the `steps`-th step of a training.
///
/// # Errors
/// Out of memory, for one.
pub(crate) fn update(
    rule: Optimizer,
    steps: i32,
    state: &mut OptimizerState,
    weights: &Tensor,
    gradient: &Tensor,
) -> Result<(), RankError> {
    match rule {
        Optimizer::Sgd { learning_rate, momentum, weight_decay } => {
            decay(weights, gradient, weight_decay)?;
            if momentum == 0.0 {
                return Ok(add_scaled(weights, gradient, -learning_rate)?);
            }
            let velocity = match &mut state.first {
                Some(velocity) => {
                    multiply(velocity, momentum)?;
                    add_scaled(velocity, gradient, 1.0)?;
                    velocity
                }
                empty => empty.insert(copy_of(gradient)?),
            };
            add_scaled(weights, velocity, -learning_rate)?;
        }
        Optimizer::Adam { learning_rate, beta1, beta2, epsilon, weight_decay } => {
            decay(weights, gradient, weight_decay)?;
            let moments = Moments { learning_rate, beta1, beta2, epsilon };
            moments.update(steps, state, weights, gradient)?;
        }
        Optimizer::AdamW { learning_rate, beta1, beta2, epsilon, weight_decay } => {
            if weight_decay != 0.0 {
                multiply(weights, 1.0 - learning_rate * weight_decay)?;
            }
            let moments = Moments { learning_rate, beta1, beta2, epsilon };
            moments.update(steps, state, weights, gradient)?;
        }
    }
    Ok(())
}

/// The numbers of Adam's update, however weights decay.
struct Moments {
    learning_rate: f64,
    beta1: f64,
    beta2: f64,
    epsilon: f64,
}

impl Moments {
    fn update(
        &self,
        steps: i32,
        state: &mut OptimizerState,
        weights: &Tensor,
        gradient: &Tensor,
    ) -> Result<(), RankError> {
        let Self { learning_rate, beta1, beta2, epsilon } = *self;
        let first = zeros_at_first(&mut state.first, weights)?;
        let _ = first.f_lerp_(gradient, 1.0 - beta1)?;
        let second = zeros_at_first(&mut state.second, weights)?;
        multiply(second, beta2)?;
        add_product(second, gradient, gradient, 1.0 - beta2)?;
        // The moments start at zero, which these make up for.
        let first_correction = 1.0 - beta1.powi(steps);
        let second_correction = 1.0 - beta2.powi(steps);
        let denominator = second.f_sqrt()?;
        divide(&denominator, second_correction.sqrt())?;
        add_number(&denominator, epsilon)?;
        if let Some(first) = &state.first {
            add_quotient(weights, first, &denominator, -learning_rate / first_correction)?;
        }
        Ok(())
    }
}

/// Adds the L2 penalty to the gradient, which no one needs afterwards as it was.
fn decay(weights: &Tensor, gradient: &Tensor, weight_decay: f64) -> Result<(), RankError> {
    if weight_decay != 0.0 {
        add_scaled(gradient, weights, weight_decay)?;
    }
    Ok(())
}

fn zeros_at_first<'a>(moment: &'a mut Option<Tensor>, like: &Tensor) -> Result<&'a mut Tensor, RankError> {
    match moment {
        Some(moment) => Ok(moment),
        empty => Ok(empty.insert(like.f_zeros_like()?)),
    }
}
