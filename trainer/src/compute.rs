//! Where a rank computes.

use segue_configs::DeviceKind;
use tch::Device;

use crate::TrainError;
use crate::libtorch::device::{self, Cards};

/// The device that a rank computes on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Compute {
    device: Device,
}

impl Compute {
    /// The processor.
    pub const CPU: Self = Self { device: Device::Cpu };

    /// What `kind` asks for: of several cards the one that the rank's number on its host gives. Comes before any other use of libtorch.
    ///
    /// # Errors
    ///
    /// [`TrainError::NoCard`] where a card is asked for and none can be used.
    pub fn choose(kind: DeviceKind, local_rank: usize) -> Result<Self, TrainError> {
        if kind == DeviceKind::Cpu {
            return Ok(Self::CPU);
        }
        match (device::load(), kind) {
            (Cards::Some(count), _) => Ok(Self { device: Device::Cuda(local_rank % count) }),
            (Cards::None(why), DeviceKind::Cuda) => Err(TrainError::NoCard(why.clone())),
            (Cards::None(_), _) => Ok(Self::CPU),
        }
    }

    /// Lets products of f32 on a card round their factors to TF32, with 10 bits of mantissa, or not. For the whole process.
    pub fn allow_tf32(self, allowed: bool) -> Self {
        crate::libtorch::device::allow_tf32(allowed);
        self
    }

    /// The most bytes that tensors on its card have taken at once so far; `None` on the processor.
    ///
    /// # Errors
    ///
    /// [`TrainError`] where libtorch does not tell.
    pub fn peak_bytes(self) -> Result<Option<u64>, TrainError> {
        crate::libtorch::stream::peak_bytes(self.device)
    }

    /// Where tensors are made.
    pub fn device(self) -> Device {
        self.device
    }
}
