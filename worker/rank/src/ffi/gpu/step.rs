//! The optimizer's step on a GPU, in one pass over lists of a chunk (PatrickStar, § ADAM of chunks): `shim/gpu/step.cu`.

use std::sync::Arc;

use cudarc::driver::{CudaFunction, CudaModule, LaunchConfig, PushKernelArg};
use cudarc::nvrtc::Ptx;
use tch::{Device, Kind, Tensor};

use super::{Gpu, GpuFailure};

const KERNELS: &str = include_str!("../../../shim/gpu/step.ptx");
/// Threads of a block, and the most blocks: each thread takes element after element.
const THREADS: u32 = 256;
const MOST_BLOCKS: u64 = 1 << 14;

/// A rule, as the kernels know it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StepRule {
    PlainSgd = 0,
    Sgd = 1,
    Adam = 2,
}

/// The numbers of a rule in one step.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct StepNumbers {
    pub rule: StepRule,
    /// Of what a weight moves by.
    pub rate: f64,
    /// The share of the weight that is added to its gradient.
    pub decay: f64,
    /// What is kept of the velocity or the first moment, and of the second.
    pub kept: [f64; 2],
    /// What is added to the root of the second moment.
    pub epsilon: f64,
    /// What a weight is multiplied with before anything else.
    pub shrink: f64,
}

/// The lists of a part of a chunk, element for element, each all of a contiguous tensor on one GPU. What the rule keeps nothing in
/// may be missing.
#[derive(Debug, Clone, Copy)]
pub struct StepLists<'a> {
    pub gradients: &'a Tensor,
    /// Where new parameters are written, in the gradients' format: the same memory, or none of it.
    pub parameters: &'a Tensor,
    pub weights: &'a Tensor,
    pub first: Option<&'a Tensor>,
    pub second: Option<&'a Tensor>,
}

/// The kernels of a GPU.
#[derive(Debug)]
pub struct StepKernels {
    gpu: Gpu,
    of_fp32: CudaFunction,
    of_bf16: CudaFunction,
    _module: Arc<CudaModule>,
}

impl StepKernels {
    /// Lets the driver compile them.
    ///
    /// # Errors
    /// What it says.
    pub fn new(gpu: &Gpu) -> Result<Self, GpuFailure> {
        let module = gpu.context.load_module(Ptx::from_src(KERNELS))?;
        let [of_fp32, of_bf16] = [module.load_function("step_fp32")?, module.load_function("step_bf16")?];
        Ok(Self { gpu: gpu.clone(), of_fp32, of_bf16, _module: module })
    }

    /// Updates all elements, behind all that is to be computed so far. Takes no memory besides.
    ///
    /// # Errors
    /// Lists that are of another length, format or device than the rule needs; what the driver says.
    pub fn update(&self, of: StepNumbers, lists: StepLists<'_>) -> Result<(), GpuFailure> {
        let StepNumbers { rule, rate, decay, kept: [first_kept, second_kept], epsilon, shrink } = of;
        let StepLists { gradients, parameters, weights, first, second } = lists;
        let count = weights.numel();
        let device = weights.device();
        let own = |tensor: &Tensor, kind: Kind| {
            let fits = (tensor.kind(), tensor.numel(), tensor.device()) == (kind, count, device);
            if !fits || !tensor.is_contiguous() || !matches!(device, Device::Cuda(_)) {
                let why = format!(
                    "a defect: {tensor:?} is not a contiguous tensor of {count} elements of {kind:?} on {device:?}"
                );
                return Err(GpuFailure::told(why));
            }
            Ok(tensor.data_ptr() as u64)
        };
        let needs = |tensor: Option<&Tensor>, is_needed: bool| match tensor {
            Some(tensor) if is_needed => own(tensor, Kind::Float),
            None if is_needed => Err(GpuFailure::told("a defect: an optimizer list is missing".to_owned())),
            _ => Ok(0),
        };
        let (kernel, kind) = match gradients.kind() {
            Kind::Float => (&self.of_fp32, Kind::Float),
            _ => (&self.of_bf16, Kind::BFloat16),
        };
        let [gradients, parameters] = [own(gradients, kind)?, own(parameters, kind)?];
        let weights = own(weights, Kind::Float)?;
        let first = needs(first, rule != StepRule::PlainSgd)?;
        let second = needs(second, rule == StepRule::Adam)?;
        if count == 0 {
            return Ok(());
        }
        let (rule, count) = (rule as u32, count as u64);
        let blocks = count.div_ceil(THREADS.into()).min(MOST_BLOCKS);
        let grid = LaunchConfig {
            grid_dim: (u32::try_from(blocks).unwrap_or(u32::MAX), 1, 1),
            block_dim: (THREADS, 1, 1),
            shared_mem_bytes: 0,
        };
        self.gpu.context.bind_to_thread()?;
        let mut launch = self.gpu.computing.launch_builder(kernel);
        launch
            .arg(&rule)
            .arg(&rate)
            .arg(&decay)
            .arg(&first_kept)
            .arg(&second_kept)
            .arg(&epsilon)
            .arg(&shrink);
        launch.arg(&gradients).arg(&parameters).arg(&weights).arg(&first).arg(&second).arg(&count);
        // SAFETY: these are the parameters of the kernel, and every list that it touches was compared with: it has as many numbers,
        // of this format, on this GPU. libtorch gives the memory to no one who does not compute behind this.
        unsafe { launch.launch(grid) }?;
        Ok(())
    }
}
