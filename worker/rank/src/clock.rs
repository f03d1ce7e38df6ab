//! Clocks: the host's, and a GPU's own.
//!
//! A GPU is given its work by a host that is ahead of it, unless its kernels are so short that they are over before the next
//! one is asked for. A pass that is alone would begin with nothing ahead of it, and be timed with the host's pace. So the GPU
//! times passes that it was given whole: what they take it in the midst of others, and what adds up over layers.

use std::time::Instant;

use crate::error::RankError;
use crate::ffi::{self, Gate, Gpu, GpuMoment};

/// A clock that waits for a device that works asynchronously before it is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Clock {
    asynchronous_device: Option<i32>,
}

impl Clock {
    /// A clock for work on the host or on this CUDA device.
    pub fn new(asynchronous_device: Option<i32>) -> Self {
        Self { asynchronous_device }
    }

    /// The moment when all work so far is done.
    ///
    /// # Errors
    /// When work on the device has failed.
    pub fn now(self) -> Result<Instant, RankError> {
        if let Some(device) = self.asynchronous_device {
            ffi::synchronize(device)?;
        }
        Ok(Instant::now())
    }
}

/// How passes are timed.
#[derive(Debug, Clone, Default)]
pub enum Timer {
    /// By the host, which waits for nothing: of a GPU, when it was given the work.
    #[default]
    Host,
    /// By the GPU, which begins with a pass when it was given all of it.
    Gpu(Gpu),
}

/// A moment of a timer.
#[derive(Debug, Clone)]
pub enum Moment {
    /// Of the host's clock.
    Host(Instant),
    /// Of what a GPU computes.
    Gpu(GpuMoment),
}

impl Timer {
    /// The moment at which what was asked for so far is done.
    ///
    /// # Errors
    /// When the GPU refuses.
    pub fn now(&self) -> Result<Moment, RankError> {
        Ok(match self {
            Self::Host => Moment::Host(Instant::now()),
            Self::Gpu(gpu) => Moment::Gpu(gpu.moment()?),
        })
    }

    /// Holds up what is asked for until the gate ends.
    ///
    /// # Errors
    /// When the GPU refuses.
    pub fn gate(&self) -> Result<Option<Gate>, RankError> {
        Ok(match self {
            Self::Host => None,
            Self::Gpu(gpu) => Some(gpu.gate()?),
        })
    }
}

impl Moment {
    /// Seconds from this moment to a later one, which is waited for.
    ///
    /// # Errors
    /// When the GPU failed meanwhile.
    pub fn seconds_to(&self, later: &Self) -> Result<f64, RankError> {
        match (self, later) {
            (Self::Host(start), Self::Host(end)) => Ok(end.saturating_duration_since(*start).as_secs_f64()),
            (Self::Gpu(start), Self::Gpu(end)) => Ok(start.seconds_to(end)?),
            (Self::Host(_), Self::Gpu(_)) | (Self::Gpu(_), Self::Host(_)) => Err(RankError::Other(
                "a defect: a timer started on one device and ended on another".to_owned(),
            )),
        }
    }
}
