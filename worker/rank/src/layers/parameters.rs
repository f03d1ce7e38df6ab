//! Trained tensors and buffers: making them, handing them to layers, and what is kept beside them.

use loadmaster_proto::model::layer::{Buffer, BufferContent, Init, Parameter};
use loadmaster_proto::training::Precision;
use loadmaster_proto::training::shard::{Shard, ShardParameter, Slice};
use tch::{Device, Kind, TchError, Tensor};

use super::affine::{Affine, Convolution, Role, Split};
use super::norm::{BatchNorm, Norm};
use crate::collective::divided::part_of;
use crate::error::RankError;
use crate::ffi::{self, MainGradient, ShimError};
use crate::movement::Movement;
use crate::random::Purpose;
use crate::tensor::{copy_of, kind};

/// A trained tensor.
#[derive(Debug)]
pub struct Trained {
    /// Its layer in the model.
    pub layer: usize,
    /// Its name within the layer.
    pub name: &'static str,
    /// What the layer computes with: a leaf of the autograd graph.
    pub value: Tensor,
    /// The fp32 copy that the optimizer updates, where `value` is less precise: of the part that this replica updates, if it
    /// updates any of it.
    pub master: Option<Tensor>,
    /// Where its gradients are added up, if not beside `value`.
    pub main: Option<MainGradient>,
}

impl Trained {
    /// Other handles of the same.
    pub fn shallow_clone(&self) -> Self {
        Self {
            layer: self.layer,
            name: self.name,
            value: self.value.shallow_clone(),
            master: self.master.as_ref().map(Tensor::shallow_clone),
            main: self.main.clone(),
        }
    }

    /// Its name in the model.
    pub fn global_name(&self) -> String {
        format!("layers.{}.{}", self.layer, self.name)
    }

    /// Its gradient, if a backward pass has left one.
    ///
    /// # Errors
    /// What libtorch says.
    pub fn gradient(&self) -> Result<Option<Tensor>, TchError> {
        if let Some(main) = &self.main {
            return Ok(main.get());
        }
        let gradient = self.value.f_grad()?;
        Ok(gradient.defined().then_some(gradient))
    }

    /// Forgets its gradient, which frees its memory.
    ///
    /// # Errors
    /// What libtorch says.
    pub fn forget_gradient(&self) -> Result<(), ShimError> {
        match &self.main {
            Some(main) => {
                main.clear();
                Ok(())
            }
            None => ffi::clear_gradient(&self.value),
        }
    }

    /// The same in other memory, but for what the optimizer alone works with.
    ///
    /// # Errors
    /// Out of memory, for one.
    pub fn renewed(&self) -> Result<Self, RankError> {
        let value = {
            let _no_grad = tch::no_grad_guard();
            copy_of(&self.value)?
        };
        let value = value.f_set_requires_grad(true)?;
        if let Some(main) = &self.main {
            main.also_of(&value)?;
        }
        Ok(Self { value, ..self.shallow_clone() })
    }

    /// What another layer of the same stage computes with, which has the same parameter. Gradients that are added up
    /// elsewhere are added as soon as each layer's are there, not when both are.
    ///
    /// # Errors
    /// What libtorch says.
    pub fn shared(&self) -> Result<Tensor, RankError> {
        let Some(main) = &self.main else { return Ok(self.value.shallow_clone()) };
        let leaf = self.value.f_detach()?.f_set_requires_grad(true)?;
        main.also_of(&leaf)?;
        Ok(leaf)
    }
}

/// Makes trained tensors at their start.
#[derive(Debug, Clone, Copy)]
pub struct ParameterMaker {
    /// Where.
    pub device: Device,
    /// In which number format.
    pub precision: Precision,
    /// Seed of the training run.
    pub seed: u64,
    /// The part of each tensor that this replica updates, of which it has the fp32 copy.
    pub updated: Shard,
}

impl ParameterMaker {
    /// The `position`-th parameter of layer `layer`. The same whatever the stage is.
    ///
    /// # Errors
    /// Out of memory, for one.
    pub fn make(&self, layer: usize, position: usize, parameter: &Parameter) -> Result<Trained, RankError> {
        self.trained(layer, parameter.name, self.start(layer, position, parameter)?)
    }

    /// What a shard holds of that parameter: a slice of the same values. The whole is there for a moment,
    /// which a trainer that need not compare with others would avoid: on the host no capacity applies to it.
    ///
    /// # Errors
    /// Out of memory, for one.
    pub fn make_shard(
        &self,
        layer: usize,
        position: usize,
        parameter: &ShardParameter,
    ) -> Result<Trained, RankError> {
        let Some(slice) = &parameter.slice else { return self.make(layer, position, &parameter.whole) };
        let start: Result<Tensor, TchError> =
            ffi::without_host_capacity(|| sliced(&self.start(layer, position, &parameter.whole)?, slice));
        self.trained(layer, parameter.whole.name, start?)
    }

    /// What a shard's slice of a parameter starts with, in fp32. On a CPU slot it is no memory of the device.
    ///
    /// # Errors
    /// Out of memory, for one.
    pub fn start_aside(
        &self,
        layer: usize,
        position: usize,
        parameter: &ShardParameter,
    ) -> Result<Tensor, TchError> {
        ffi::aside(|| {
            let whole = self.start(layer, position, &parameter.whole)?;
            parameter.slice.as_ref().map_or(Ok(whole.shallow_clone()), |slice| sliced(&whole, slice))
        })
    }

    fn start(&self, layer: usize, position: usize, parameter: &Parameter) -> Result<Tensor, TchError> {
        let _no_grad = tch::no_grad_guard();
        Purpose::Parameter { layer, parameter: position }.set(self.seed);
        let mut tensor = Tensor::f_empty(&parameter.shape, (Kind::Float, self.device))?;
        // Each returns another handle of the same tensor.
        drop(match parameter.init {
            Init::Uniform { bound } => tensor.f_uniform_(-bound, bound)?,
            Init::Normal { deviation } => tensor.f_normal_(0.0, deviation)?,
            Init::Zeros => tensor.f_fill_(0.0)?,
            Init::Ones => tensor.f_fill_(1.0)?,
        });
        Ok(tensor)
    }

    fn trained(&self, layer: usize, name: &'static str, start: Tensor) -> Result<Trained, RankError> {
        let (value, master) = match self.precision {
            Precision::Fp32 => (start, None),
            Precision::Bf16 | Precision::Bf16Fp32Gradients if self.updated.degree == 1 => {
                (start.f_to_kind(Kind::BFloat16)?, Some(start))
            }
            Precision::Bf16 | Precision::Bf16Fp32Gradients => {
                let own = part_of(&start, self.updated)?;
                (start.f_to_kind(Kind::BFloat16)?, own.as_ref().map(copy_of).transpose()?)
            }
        };
        let value = value.f_set_requires_grad(true)?;
        let main = self.precision.has_main_gradients().then(|| MainGradient::of(&value)).transpose()?;
        Ok(Trained { layer, name, value, master, main })
    }
}

/// The ranges of a whole tensor that belong to a slice, put together.
fn sliced(whole: &Tensor, slice: &Slice) -> Result<Tensor, TchError> {
    let axis = i64::try_from(slice.axis).unwrap_or(i64::MAX);
    let ranges: Vec<Tensor> = slice
        .ranges
        .iter()
        .map(|range| whole.f_narrow(axis, range.start, range.end - range.start))
        .collect::<Result<_, _>>()?;
    Tensor::f_cat(&ranges, axis)
}

impl ParameterMaker {
    /// A buffer with its content at the start, in the number format that layers compute with.
    ///
    /// # Errors
    /// Out of memory, for one.
    pub fn buffer(&self, buffer: &Buffer) -> Result<Tensor, TchError> {
        let _no_grad = tch::no_grad_guard();
        let (shape, kind) = (buffer.shape.as_slice(), kind(self.precision));
        match buffer.content {
            BufferContent::Zeros => Tensor::f_zeros(shape, (kind, self.device)),
            BufferContent::Ones => Tensor::f_ones(shape, (kind, self.device)),
            BufferContent::Cosines { base } => angles(shape, base, self.device)?.f_cos()?.f_to_kind(kind),
            BufferContent::Sines { base } => angles(shape, base, self.device)?.f_sin()?.f_to_kind(kind),
        }
    }
}

/// Angles of rotary positions: t / base^(2k / d) for row t and column k of d/2 columns.
fn angles(shape: &[i64], base: f64, device: Device) -> Result<Tensor, TchError> {
    let [rows, columns] = shape else {
        return Err(TchError::Shape(format!(
            "rotary embeddings need the shape [tokens, pairs], not {shape:?}"
        )));
    };
    let options = (Kind::Double, device);
    let exponents = Tensor::f_arange(*columns, options)?.f_div_scalar(-*columns as f64)?;
    let frequencies = Tensor::f_pow_scalar(base, &exponents)?;
    Tensor::f_outer(&Tensor::f_arange(*rows, options)?, &frequencies)
}

/// A layer's tensors, handed out in the order of `LayerKind::parameters` and `LayerKind::buffers`.
#[derive(Debug)]
pub(super) struct Parts {
    layer: usize,
    parameters: std::vec::IntoIter<(Tensor, Option<Split>)>,
    buffers: std::vec::IntoIter<Tensor>,
    /// From where the rows of a table on the host come.
    pub(super) movement: Movement,
}

impl Parts {
    /// Parameters come with those among whom they are split.
    pub(super) fn new(
        layer: usize,
        parameters: Vec<(Tensor, Option<Split>)>,
        buffers: Vec<Tensor>,
        movement: Movement,
    ) -> Self {
        Self { layer, parameters: parameters.into_iter(), buffers: buffers.into_iter(), movement }
    }

    /// The next trained tensor.
    pub(super) fn parameter(&mut self) -> Result<Tensor, RankError> {
        Ok(self.split_parameter()?.0)
    }

    /// The next trained tensor, and among whom it is split.
    pub(super) fn split_parameter(&mut self) -> Result<(Tensor, Option<Split>), RankError> {
        let layer = self.layer;
        let lacking = || RankError::Other(format!("a parameter of layer {layer} is missing"));
        self.parameters.next().ok_or_else(lacking)
    }

    /// The next tensor that is not trained.
    pub(super) fn buffer(&mut self) -> Result<Tensor, RankError> {
        let layer = self.layer;
        let lacking = || RankError::Other(format!("a buffer of layer {layer} is missing"));
        self.buffers.next().ok_or_else(lacking)
    }

    pub(super) fn affine(&mut self, role: Role, has_bias: bool) -> Result<Affine, RankError> {
        let (weight, split) = self.split_parameter()?;
        let bias = if has_bias { Some(self.parameter()?) } else { None };
        Ok(Affine { weight, bias, role, split })
    }

    pub(super) fn convolution(
        &mut self,
        stride: [i64; 2],
        padding: [i64; 2],
        has_bias: bool,
    ) -> Result<Convolution, RankError> {
        let (weight, split) = self.split_parameter()?;
        let bias = if has_bias { Some(self.parameter()?) } else { None };
        Ok(Convolution { weight, bias, stride, padding, split })
    }

    pub(super) fn layer_norm(&mut self, epsilon: f64) -> Result<Norm, RankError> {
        Ok(Norm::Layer { weight: self.parameter()?, bias: self.parameter()?, epsilon })
    }

    pub(super) fn rms_norm(&mut self, epsilon: f64) -> Result<Norm, RankError> {
        Ok(Norm::RootMeanSquare { weight: self.parameter()?, epsilon })
    }

    pub(super) fn batch_norm(&mut self) -> Result<BatchNorm, RankError> {
        Ok(BatchNorm {
            weight: self.parameter()?,
            bias: self.parameter()?,
            running_mean: self.buffer()?,
            running_variance: self.buffer()?,
        })
    }
}
