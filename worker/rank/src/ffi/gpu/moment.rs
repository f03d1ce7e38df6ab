//! When a GPU has computed what it was given, and what holds it up.

use std::ffi::c_void;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

use cudarc::driver::result::stream::launch_host_function;
use cudarc::driver::{CudaEvent, sys};

use super::{Gpu, GpuFailure};

/// A moment of what a GPU computes: when it has come so far.
#[derive(Debug, Clone)]
pub struct GpuMoment(Arc<CudaEvent>);

impl GpuMoment {
    /// Seconds from this one to another one, once that is there, which is waited for.
    ///
    /// # Errors
    /// When something failed meanwhile.
    pub fn seconds_to(&self, later: &Self) -> Result<f64, GpuFailure> {
        Ok(f64::from(self.0.elapsed_ms(&later.0)?) / 1e3)
    }
}

/// Holds up what is to be computed until this ends, or for [`Gate::PATIENCE`], so that no one who waits for it waits for ever.
#[derive(Debug)]
pub struct Gate(Arc<Latch>);

#[derive(Debug, Default)]
struct Latch {
    is_open: Mutex<bool>,
    opened: Condvar,
}

impl Gate {
    /// The longest that anything is held up.
    const PATIENCE: Duration = Duration::from_millis(100);
}

impl Drop for Gate {
    fn drop(&mut self) {
        *self.0.is_open.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.0.opened.notify_all();
    }
}

/// Runs on a thread of the driver, in the place of something that is computed.
unsafe extern "C" fn wait_at_gate(latch: *mut c_void) {
    // SAFETY: it was made of one that was given away for this call alone.
    let latch = unsafe { Arc::from_raw(latch.cast::<Latch>()) };
    let is_open = latch.is_open.lock().unwrap_or_else(PoisonError::into_inner);
    drop(latch.opened.wait_timeout_while(is_open, Gate::PATIENCE, |is_open| !*is_open));
}

impl Gpu {
    /// When it has computed all that it was given so far.
    ///
    /// # Errors
    /// What the driver says.
    pub fn moment(&self) -> Result<GpuMoment, GpuFailure> {
        let timed = Some(sys::CUevent_flags::CU_EVENT_DEFAULT);
        Ok(GpuMoment(Arc::new(self.computing.record_event(timed)?)))
    }

    /// Holds up what it is given from now on.
    ///
    /// # Errors
    /// What the driver says.
    pub fn gate(&self) -> Result<Gate, GpuFailure> {
        self.context.bind_to_thread()?;
        let latch = Arc::<Latch>::default();
        let given = Arc::into_raw(latch.clone()).cast_mut().cast();
        // SAFETY: the stream is there as long as this, and what is given away is taken back in the call.
        let held = unsafe { launch_host_function(self.computing.cu_stream(), wait_at_gate, given) };
        if let Err(failure) = held {
            // SAFETY: it was not called, so it is still given away.
            drop(unsafe { Arc::from_raw(given.cast::<Latch>()) });
            return Err(failure.into());
        }
        Ok(Gate(latch))
    }
}
