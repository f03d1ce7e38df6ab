//! Neighbours that are made up: what a stage gets from them is noise, what it gives them is dropped.
//!
//! Sizes and lifetimes are those of real neighbours, so the peak is too. A GPU makes its noise up itself: from the host it
//! would come slower than most layers compute.

use tch::{Kind, Tensor};

use super::{Crossing, Forms, Neighbours, unexpected};
use crate::error::RankError;
use crate::random::mix;
use crate::tensor::{Form, to_device, to_host};

/// Made-up neighbours.
#[derive(Debug)]
pub struct Synthetic {
    forms: Forms,
    activations: Vec<Vec<u8>>,
    gradients: Vec<Vec<u8>>,
    tied: Vec<Vec<u8>>,
}

/// Gradients are small, so that the parameters stay sane over many iterations.
fn scale(crossing: Crossing) -> f32 {
    match crossing {
        Crossing::Activation => 1.0,
        Crossing::Gradient | Crossing::TiedGradient => 1e-4,
    }
}

impl Synthetic {
    /// Makes the noise up once: every micro-batch gets the same.
    pub fn new(forms: Forms, seed: u64) -> Self {
        let noise = |crossing: Crossing, salt: u64| -> Vec<Vec<u8>> {
            let forms = if forms.device.is_cuda() { &[] } else { forms.incoming(crossing) };
            let scale = scale(crossing);
            forms.iter().zip(salt..).map(|(form, salt)| noise(form, scale, mix(seed ^ salt))).collect()
        };
        Self {
            activations: noise(Crossing::Activation, 10),
            gradients: noise(Crossing::Gradient, 20),
            tied: noise(Crossing::TiedGradient, 30),
            forms,
        }
    }
}

impl Neighbours for Synthetic {
    fn receive(&mut self, crossing: Crossing, _micro_batch: u32) -> Result<Vec<Tensor>, RankError> {
        let forms = self.forms.incoming(crossing);
        if forms.is_empty() {
            return Err(unexpected(crossing));
        }
        if self.forms.device.is_cuda() {
            let scale = f64::from(scale(crossing));
            let made = forms.iter().map(|Form { kind, shape }| {
                Tensor::f_empty(shape.as_slice(), (*kind, self.forms.device))?.f_uniform_(-scale, scale)
            });
            return Ok(made.collect::<Result<_, _>>()?);
        }
        let noise = match crossing {
            Crossing::Activation => &self.activations,
            Crossing::Gradient => &self.gradients,
            Crossing::TiedGradient => &self.tied,
        };
        let made = noise.iter().zip(forms).map(|(bytes, form)| to_device(bytes, form, self.forms.device));
        Ok(made.collect::<Result<_, _>>()?)
    }

    fn send(
        &mut self,
        _crossing: Crossing,
        _micro_batch: u32,
        tensors: Vec<Tensor>,
    ) -> Result<(), RankError> {
        for tensor in tensors.into_iter().filter(|tensor| !tensor.device().is_cuda()) {
            // Copied as for a real neighbour, for the same time.
            drop(to_host(&tensor)?);
        }
        Ok(())
    }

    fn finish(self: Box<Self>) -> Result<(), RankError> {
        Ok(())
    }
}

/// The bytes of numbers in ±scale: a block of noise, over and over, because gigabytes of good noise take
/// longer than an iteration.
fn noise(form: &Form, scale: f32, seed: u64) -> Vec<u8> {
    const BLOCK: u64 = 1 << 14;
    let bytes = usize::try_from(form.bytes()).unwrap_or(usize::MAX);
    let mut noise = Vec::with_capacity(bytes);
    for index in 0..form.elements().min(BLOCK) {
        // 24 bits are all that an f32 in 0 to 1 can tell apart.
        let unit = (mix(seed.wrapping_add(index)) >> 40) as f32 / (1_u32 << 24) as f32;
        let value = (2.0 * unit - 1.0) * scale;
        match form.kind {
            // A bfloat16 is the upper half of an f32.
            Kind::BFloat16 => noise.extend_from_slice(&((value.to_bits() >> 16) as u16).to_ne_bytes()),
            _ => noise.extend_from_slice(&value.to_ne_bytes()),
        }
    }
    while noise.len() < bytes {
        noise.extend_from_within(..noise.len().min(bytes - noise.len()));
    }
    noise
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn noise_has_the_size_and_range_that_it_should() {
        for (kind, width) in [(Kind::Float, 4), (Kind::BFloat16, 2)] {
            let form = Form { kind, shape: vec![3, 10_007] };
            assert_eq!(noise(&form, 1.0, 5).len(), 30_021 * width);
        }
        let floats = noise(&Form { kind: Kind::Float, shape: vec![1000] }, 0.5, 9);
        let floats: Vec<f32> =
            floats.chunks_exact(4).map(|b| f32::from_ne_bytes([b[0], b[1], b[2], b[3]])).collect();
        assert!(floats.iter().all(|value| value.abs() <= 0.5));
        assert!(floats.iter().any(|&value| value > 0.4) && floats.iter().any(|&value| value < -0.4));
    }
}
