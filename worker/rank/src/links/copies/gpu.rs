//! Copies of a GPU: between its memory and pinned memory of the host.

use tch::{Device, Kind, Tensor};

use crate::error::RankError;
use crate::ffi::Direction;
use crate::tensor::Form;
use crate::timing::Clock;

/// A GPU's memory, and pinned memory of the host.
#[derive(Debug)]
pub(super) struct Gpu {
    device: Tensor,
    pinned: Tensor,
    clock: Clock,
}

impl Gpu {
    pub(super) fn new(device: Device, clock: Clock, largest: u64) -> Result<Self, RankError> {
        let Form { kind, shape } = Form::of_bytes(largest);
        let on_device = Tensor::f_ones(shape.as_slice(), (kind, device))?;
        let pinned = Tensor::f_ones(shape.as_slice(), (kind, Device::Cpu))?.f_pin_memory(device)?;
        Ok(Self { device: on_device, pinned, clock })
    }

    /// Seconds of a copy each of these ways, one after the other.
    pub(super) fn seconds(&self, bytes: u64, ways: &[Direction]) -> Result<f64, RankError> {
        let scalars = i64::try_from(bytes / Kind::Float.elt_size_in_bytes() as u64).unwrap_or(i64::MAX);
        let part = |of: &Tensor| of.f_narrow(0, 0, scalars);
        let (device, pinned) = (part(&self.device)?, part(&self.pinned)?);
        let start = self.clock.now()?;
        for way in ways {
            let (mut to, from) = match way {
                Direction::Out => (pinned.shallow_clone(), &device),
                Direction::Back => (device.shallow_clone(), &pinned),
            };
            to.f_copy_(from)?;
        }
        Ok((self.clock.now()? - start).as_secs_f64())
    }
}
