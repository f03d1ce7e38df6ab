//! The only unsafe code: calls into the C++ shim, wrapped so that the rest of the program is safe.

mod copy;
mod gpu;
mod mapping;
#[cfg(feature = "nccl")]
pub mod nccl;
mod operator;
mod storage;
mod tape;

use std::ffi::{CStr, c_void};
use std::os::raw::c_char;

use tch::Tensor;
use torch_sys::C_tensor;

pub use copy::{Direction, Transfer};
pub use gpu::{
    ComputingHeld, CopyQueue, Gate, Gpu, GpuFailure, GpuMoment, QueuedCopy, SharedMemory, StepKernels,
    StepLists, StepNumbers, StepRule,
};
pub use mapping::{Mapping, Number, Numbers};
pub use operator::{GradientUse, fill, with_backward};
pub use storage::{Finder, Held, Storage, offer};
pub use tape::{
    TAPE_ALLOCATED, TAPE_EDGE, TAPE_FREED, TAPE_REMARK, TAPE_SAVED, TapeEntry, begin_tape, end_tape, remark,
    remark_edge, remark_saved, set_communicating,
};

/// A failure inside libtorch.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct ShimError {
    /// What libtorch says.
    pub message: String,
    /// A device's capacity was exceeded.
    pub out_of_memory: bool,
}

/// Bytes as an allocator counts them.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct MemoryCounts {
    /// Bytes of live tensors.
    pub allocated: u64,
    /// Their highest number since the last reset.
    pub allocated_peak: u64,
    /// Bytes that the allocator holds; 0 where it holds nothing back.
    pub reserved: u64,
    /// Their highest number since the last reset.
    pub reserved_peak: u64,
    /// How often CUDA's allocator has refused a request; 0 on the host, which tells more.
    pub refusals: u64,
}

/// A request that would have exceeded the capacity.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Excess {
    /// Bytes of the request.
    pub asked: u64,
    /// Bytes held at that moment.
    pub held: u64,
    /// Bytes allowed.
    pub allowed: u64,
}

const STATUS_OK: i32 = 0;
const STATUS_OUT_OF_MEMORY: i32 = 2;

#[repr(C)]
struct RawRoot {
    opaque: [u8; 0],
}

#[repr(C)]
struct RawCatch {
    opaque: [u8; 0],
}

#[repr(C)]
struct RawMain {
    opaque: [u8; 0],
}

unsafe extern "C" {
    fn shim_last_error() -> *const c_char;
    safe fn shim_version_loaded() -> u32;
    safe fn shim_version_compiled() -> u32;
    safe fn shim_end(exit_code: i32) -> !;
    safe fn shim_load_cuda() -> i32;
    safe fn shim_open_cuda(device: i32, capacity: u64) -> i32;
    safe fn shim_synchronize(device: i32) -> i32;
    safe fn shim_prepare_to_find(on_cuda: bool) -> i32;
    safe fn shim_track_host_memory();
    safe fn shim_set_host_capacity(bytes: u64) -> u64;
    safe fn shim_host_memory() -> MemoryCounts;
    safe fn shim_allocate_aside(on: bool) -> bool;
    safe fn shim_set_host_aside(bytes: u64) -> i32;
    safe fn shim_put_host_back(bytes: u64);
    safe fn shim_reset_host_peak();
    safe fn shim_take_host_excess(excess: &mut Excess) -> bool;
    safe fn shim_cuda_memory(device: i32, counts: &mut MemoryCounts) -> i32;
    safe fn shim_reset_cuda_peak(device: i32) -> i32;
    fn shim_root_of(outputs: *const *const C_tensor, count: u64, root: *mut *mut RawRoot) -> i32;
    fn shim_root_free(root: *mut RawRoot);
    fn shim_root_backward(root: *mut RawRoot, gradients: *const *mut C_tensor, count: u64) -> i32;
    fn shim_catch_of(
        inputs: *const *const C_tensor,
        count: u64,
        aliases: *mut *mut C_tensor,
        caught: *mut *mut RawCatch,
    ) -> i32;
    fn shim_catch_free(caught: *mut RawCatch);
    fn shim_catch_take(caught: *mut RawCatch, index: u64) -> *mut C_tensor;
    fn shim_on_gradient(
        tensor: *const C_tensor,
        closure: *mut c_void,
        run: unsafe extern "C" fn(*mut c_void) -> bool,
        forget: unsafe extern "C" fn(*mut c_void),
    ) -> i32;
    fn shim_clear_gradient(leaf: *const C_tensor) -> i32;
    fn shim_set_gradient(leaf: *const C_tensor, gradient: *const C_tensor) -> i32;
    safe fn shim_main_gradient_new() -> *mut RawMain;
    fn shim_main_gradient_share(main: *const RawMain) -> *mut RawMain;
    fn shim_main_gradient_free(main: *mut RawMain);
    fn shim_main_gradient_of(main: *const RawMain, leaf: *const C_tensor) -> i32;
    fn shim_main_gradient_get(main: *const RawMain) -> *mut C_tensor;
    fn shim_main_gradient_clear(main: *mut RawMain);
    fn shim_multiply(tensor: *const C_tensor, factor: f64) -> i32;
    fn shim_add_number(tensor: *const C_tensor, number: f64) -> i32;
    fn shim_divide(tensor: *const C_tensor, divisor: f64) -> i32;
    fn shim_add_scaled(tensor: *const C_tensor, other: *const C_tensor, scale: f64) -> i32;
    fn shim_add_product(
        tensor: *const C_tensor,
        first: *const C_tensor,
        second: *const C_tensor,
        scale: f64,
    ) -> i32;
    fn shim_add_quotient(
        tensor: *const C_tensor,
        first: *const C_tensor,
        second: *const C_tensor,
        scale: f64,
    ) -> i32;
}

fn check(status: i32) -> Result<(), ShimError> {
    if status == STATUS_OK {
        return Ok(());
    }
    // SAFETY: the shim returns a zero-terminated string that lives until the next failure on this
    // thread; it is copied before that.
    let message = unsafe { CStr::from_ptr(shim_last_error()) }.to_string_lossy().into_owned();
    Err(ShimError { message, out_of_memory: status == STATUS_OUT_OF_MEMORY })
}

/// Version of the libtorch that is loaded: major, minor, patch.
pub fn loaded_version() -> [u32; 3] {
    split(shim_version_loaded())
}

/// Version of the libtorch that this program was compiled against.
pub fn compiled_version() -> [u32; 3] {
    split(shim_version_compiled())
}

fn split(version: u32) -> [u32; 3] {
    [version >> 16, (version >> 8) & 0xff, version & 0xff]
}

/// Ends the process at once: taking libtorch's tables apart first would take longer than many a run, and
/// threads may still wait for a neighbour whose last word no one needs any more.
pub fn end(exit_code: i32) -> ! {
    shim_end(exit_code)
}

/// Loads libtorch's CUDA half. Before the first tensor.
///
/// # Errors
/// What the loader says.
pub fn load_cuda() -> Result<(), ShimError> {
    check(shim_load_cuda())
}

/// Initialises a CUDA device, so that its allocator has statistics and holds at most `capacity` bytes.
/// Once per process.
///
/// # Errors
/// There is no such device, or its driver refuses.
pub fn open_cuda(device: i32, capacity: u64) -> Result<(), ShimError> {
    check(shim_open_cuda(device, capacity))
}

/// Lets what autograd saves in the device's memory be found from now on, where someone looks for it. Before the first backward pass: libtorch
/// starts its threads once, for one engine.
///
/// # Errors
/// When libtorch refuses.
pub fn prepare_to_find(on_cuda: bool) -> Result<(), ShimError> {
    check(shim_prepare_to_find(on_cuda))
}

/// Waits until a CUDA device has computed all that it was given. Copies beside that go on.
///
/// # Errors
/// When work that was queued has failed.
pub fn synchronize(device: i32) -> Result<(), ShimError> {
    check(shim_synchronize(device))
}

/// Counts host tensors from now on. Before the first tensor.
pub fn track_host_memory() {
    shim_track_host_memory();
}

/// Refuses requests that would make live host tensors exceed this many bytes.
pub fn set_host_capacity(bytes: u64) {
    shim_set_host_capacity(bytes);
}

/// Does what no capacity applies to: what it makes is still counted for as long as it lives.
pub fn without_host_capacity<T>(work: impl FnOnce() -> T) -> T {
    let capacity = shim_set_host_capacity(u64::MAX);
    let done = work();
    shim_set_host_capacity(capacity);
    done
}

/// Does what makes host tensors on this thread that are no memory of the device, although a CPU slot's lie there too: they
/// are counted nowhere.
pub fn aside<T>(work: impl FnOnce() -> T) -> T {
    let before = shim_allocate_aside(true);
    let done = work();
    shim_allocate_aside(before);
    done
}

/// Live host tensors.
pub fn host_memory() -> MemoryCounts {
    shim_host_memory()
}

/// Bytes that count as held while this lives: memory of this device that others use.
#[derive(Debug)]
pub struct SetAside {
    bytes: u64,
}

impl SetAside {
    /// So many.
    ///
    /// # Errors
    /// Out of memory.
    pub fn new(bytes: u64) -> Result<Self, ShimError> {
        check(shim_set_host_aside(bytes))?;
        Ok(Self { bytes })
    }

    /// How many.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }
}

impl Drop for SetAside {
    fn drop(&mut self) {
        shim_put_host_back(self.bytes);
    }
}

/// Makes the highest number of bytes the current one.
pub fn reset_host_peak() {
    shim_reset_host_peak();
}

/// The latest refused request, once.
pub fn take_host_excess() -> Option<Excess> {
    let mut excess = Excess::default();
    shim_take_host_excess(&mut excess).then_some(excess)
}

/// What the caching allocator of a CUDA device holds.
///
/// # Errors
/// When CUDA is not loaded.
pub fn cuda_memory(device: i32) -> Result<MemoryCounts, ShimError> {
    let mut counts = MemoryCounts::default();
    check(shim_cuda_memory(device, &mut counts))?;
    Ok(counts)
}

/// Makes the highest numbers of bytes the current ones.
///
/// # Errors
/// When CUDA is not loaded.
pub fn reset_cuda_peak(device: i32) -> Result<(), ShimError> {
    check(shim_reset_cuda_peak(device))
}

/// A point of the autograd graph where a backward pass can start.
///
/// It keeps alive what the backward pass needs, but not the data of the output tensors.
#[derive(Debug)]
pub struct GradientRoot {
    raw: *mut RawRoot,
    /// Which of the outputs depend on something trained.
    trained: Vec<bool>,
}

impl GradientRoot {
    /// The point where `outputs` were computed; none when nothing that they depend on is trained.
    ///
    /// # Errors
    /// When libtorch refuses.
    pub fn of(outputs: &[Tensor]) -> Result<Option<Self>, ShimError> {
        let trained: Vec<bool> = outputs.iter().map(Tensor::requires_grad).collect();
        let roots = picked(outputs, &trained);
        if roots.is_empty() {
            return Ok(None);
        }
        let mut raw = std::ptr::null_mut();
        // SAFETY: all pointers are valid during the call; on success `raw` is an object of ours.
        check(unsafe { shim_root_of(roots.as_ptr(), roots.len() as u64, &raw mut raw) })?;
        Ok(Some(Self { raw, trained }))
    }

    /// Runs the backward pass with one gradient per output, which adds to the gradients of leaves and
    /// frees the graph on the way. The gradients are freed as soon as nothing needs them any more.
    ///
    /// # Errors
    /// What libtorch says: out of memory, or a gradient of the wrong shape.
    pub fn backward(self, gradients: Vec<Tensor>) -> Result<(), ShimError> {
        let mut trained = self.trained.iter();
        let mut given: Vec<Tensor> =
            gradients.into_iter().filter(|_| trained.next().copied().unwrap_or_default()).collect();
        let pointers: Vec<*mut C_tensor> = given.iter_mut().map(Tensor::as_mut_ptr).collect();
        // SAFETY: `raw` comes from shim_root_of and is freed only on drop. The gradients are ours alone,
        // outlive the call, and what it leaves of them, empty handles, may be dropped as any tensor.
        check(unsafe { shim_root_backward(self.raw, pointers.as_ptr(), pointers.len() as u64) })
    }
}

/// Catches the gradients of the tensors that enter a part of the autograd graph.
#[derive(Debug)]
pub struct GradientCatch {
    raw: *mut RawCatch,
    count: u64,
}

impl GradientCatch {
    /// Returns the tensors with a gradient that is caught: no gradient lies beside the tensor, and the
    /// tensor itself lives only as long as the graph needs it.
    ///
    /// # Errors
    /// When libtorch refuses.
    pub fn of(inputs: Vec<Tensor>) -> Result<(Vec<Tensor>, Self), ShimError> {
        let pointers: Vec<*const C_tensor> = inputs.iter().map(Tensor::as_ptr).collect();
        let mut aliases = vec![std::ptr::null_mut(); inputs.len()];
        let mut raw = std::ptr::null_mut();
        let count = inputs.len() as u64;
        // SAFETY: the inputs are valid during the call and there is room for as many aliases; on success
        // these and `raw` are objects of ours.
        check(unsafe { shim_catch_of(pointers.as_ptr(), count, aliases.as_mut_ptr(), &raw mut raw) })?;
        // SAFETY: each alias is a new tensor that nothing else frees.
        let aliases = aliases.into_iter().map(|alias| unsafe { Tensor::from_ptr(alias) }).collect();
        Ok((aliases, Self { raw, count }))
    }

    /// What was caught, in the order of the inputs; none unless a backward pass has reached all of them.
    pub fn take(self) -> Option<Vec<Tensor>> {
        (0..self.count)
            .map(|index| {
                // SAFETY: `raw` comes from shim_catch_of and is freed only on drop.
                let gradient = unsafe { shim_catch_take(self.raw, index) };
                // SAFETY: what is not null is a new tensor that nothing else frees.
                (!gradient.is_null()).then(|| unsafe { Tensor::from_ptr(gradient) })
            })
            .collect()
    }
}

impl Drop for GradientCatch {
    fn drop(&mut self) {
        // SAFETY: `raw` comes from shim_catch_of; the graph keeps what it still needs.
        unsafe { shim_catch_free(self.raw) }
    }
}

fn picked(tensors: &[Tensor], chosen: &[bool]) -> Vec<*const C_tensor> {
    tensors.iter().zip(chosen).filter(|&(_, &chosen)| chosen).map(|(tensor, _)| tensor.as_ptr()).collect()
}

impl Drop for GradientRoot {
    fn drop(&mut self) {
        // SAFETY: `raw` comes from shim_root_of and nothing uses it any more.
        unsafe { shim_root_free(self.raw) }
    }
}

/// The fp32 gradient of a leaf that is less precise: what a backward pass computes is added to it and freed.
#[derive(Debug)]
pub struct MainGradient {
    raw: *mut RawMain,
}

// SAFETY: it is a handle; whoever has one uses it where no backward pass runs, or between two nodes of one.
unsafe impl Send for MainGradient {}

impl Clone for MainGradient {
    fn clone(&self) -> Self {
        // SAFETY: `raw` comes from shim_main_gradient_new and is freed only on drop; the new one is ours too.
        Self { raw: unsafe { shim_main_gradient_share(self.raw) } }
    }
}

impl MainGradient {
    /// That of a leaf, which has no gradient of its own from now on.
    ///
    /// # Errors
    /// When libtorch refuses.
    pub fn of(leaf: &Tensor) -> Result<Self, ShimError> {
        let main = Self { raw: shim_main_gradient_new() };
        main.also_of(leaf)?;
        Ok(main)
    }

    /// Adds what backward passes compute of another leaf, which is the same parameter.
    ///
    /// # Errors
    /// When libtorch refuses.
    pub fn also_of(&self, leaf: &Tensor) -> Result<(), ShimError> {
        // SAFETY: both are valid during the call; the leaf's hook has a share of the sum of its own.
        check(unsafe { shim_main_gradient_of(self.raw, leaf.as_ptr()) })
    }

    /// What has been added up; none before the first backward pass.
    pub fn get(&self) -> Option<Tensor> {
        // SAFETY: `raw` comes from shim_main_gradient_new and is freed only on drop.
        let gradient = unsafe { shim_main_gradient_get(self.raw) };
        // SAFETY: what is not null is a new tensor that nothing else frees.
        (!gradient.is_null()).then(|| unsafe { Tensor::from_ptr(gradient) })
    }

    /// Forgets it, which frees its memory.
    pub fn clear(&self) {
        // SAFETY: `raw` comes from shim_main_gradient_new and is freed only on drop; no backward pass runs.
        unsafe { shim_main_gradient_clear(self.raw) }
    }
}

impl Drop for MainGradient {
    fn drop(&mut self) {
        // SAFETY: `raw` comes from shim_main_gradient_new and nothing uses it any more.
        unsafe { shim_main_gradient_free(self.raw) }
    }
}

/// Runs on threads of libtorch.
type Hook = Box<dyn Fn() -> bool + Send + Sync>;

// A panic in either of these two ends the process: Rust lets none out of an `extern "C"` function.

unsafe extern "C" fn run_hook(closure: *mut c_void) -> bool {
    // SAFETY: the shim hands over a pointer made in `on_gradient`, which it has not had forgotten.
    let hook = unsafe { &*closure.cast::<Hook>() };
    hook()
}

unsafe extern "C" fn forget_hook(closure: *mut c_void) {
    // SAFETY: the shim hands over a pointer made in `on_gradient`, once, and runs it no more.
    drop(unsafe { Box::from_raw(closure.cast::<Hook>()) });
}

/// Calls `hook` when a backward pass has completed the gradient of `tensor`. The pass fails where it returns no. It is dropped
/// with the graph of the tensor.
///
/// # Errors
/// When the tensor has no gradient.
pub fn on_gradient(
    tensor: &Tensor,
    hook: impl Fn() -> bool + Send + Sync + 'static,
) -> Result<(), ShimError> {
    let hook: Hook = Box::new(hook);
    // A closure has a wide pointer, the box around it a thin one.
    let closure = Box::into_raw(Box::new(hook)).cast::<c_void>();
    // SAFETY: the tensor is valid during the call; the shim takes the closure, in failure too, to have it forgotten once.
    check(unsafe { shim_on_gradient(tensor.as_ptr(), closure, run_hook, forget_hook) })
}

/// Forgets the gradient of a leaf, which frees its memory.
///
/// # Errors
/// When libtorch refuses.
pub fn clear_gradient(leaf: &Tensor) -> Result<(), ShimError> {
    // SAFETY: the tensor is valid during the call.
    check(unsafe { shim_clear_gradient(leaf.as_ptr()) })
}

/// Makes a tensor the gradient of a leaf.
///
/// # Errors
/// When libtorch refuses.
pub fn set_gradient(leaf: &Tensor, gradient: &Tensor) -> Result<(), ShimError> {
    // SAFETY: both tensors are valid during the call.
    check(unsafe { shim_set_gradient(leaf.as_ptr(), gradient.as_ptr()) })
}

/// `tensor *= factor`, outside autograd.
///
/// # Errors
/// Out of memory: libtorch makes a tensor of the number.
pub fn multiply(tensor: &Tensor, factor: f64) -> Result<(), ShimError> {
    // SAFETY: the tensor is valid during the call.
    check(unsafe { shim_multiply(tensor.as_ptr(), factor) })
}

/// `tensor += number`, outside autograd.
///
/// # Errors
/// As of [`multiply`].
pub fn add_number(tensor: &Tensor, number: f64) -> Result<(), ShimError> {
    // SAFETY: the tensor is valid during the call.
    check(unsafe { shim_add_number(tensor.as_ptr(), number) })
}

/// `tensor /= divisor`, outside autograd.
///
/// # Errors
/// As of [`multiply`].
pub fn divide(tensor: &Tensor, divisor: f64) -> Result<(), ShimError> {
    // SAFETY: the tensor is valid during the call.
    check(unsafe { shim_divide(tensor.as_ptr(), divisor) })
}

/// `tensor += scale · other`, outside autograd.
///
/// # Errors
/// When shapes do not fit.
pub fn add_scaled(tensor: &Tensor, other: &Tensor, scale: f64) -> Result<(), ShimError> {
    // SAFETY: both tensors are valid during the call.
    check(unsafe { shim_add_scaled(tensor.as_ptr(), other.as_ptr(), scale) })
}

/// `tensor += scale · first · second`, outside autograd.
///
/// # Errors
/// When shapes do not fit.
pub fn add_product(tensor: &Tensor, first: &Tensor, second: &Tensor, scale: f64) -> Result<(), ShimError> {
    // SAFETY: all tensors are valid during the call.
    check(unsafe { shim_add_product(tensor.as_ptr(), first.as_ptr(), second.as_ptr(), scale) })
}

/// `tensor += scale · first / second`, outside autograd.
///
/// # Errors
/// When shapes do not fit.
pub fn add_quotient(tensor: &Tensor, first: &Tensor, second: &Tensor, scale: f64) -> Result<(), ShimError> {
    // SAFETY: all tensors are valid during the call.
    check(unsafe { shim_add_quotient(tensor.as_ptr(), first.as_ptr(), second.as_ptr(), scale) })
}
