//! Where a rank computes.

use segue_configs::DeviceKind;
use tch::Device;

use crate::TrainError;
use crate::libtorch::device::{self, Cards, NoCard};

/// The device that a rank computes on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Compute {
    device: Device,
}

impl Compute {
    /// The processor.
    pub const CPU: Self = Self { device: Device::Cpu };

    /// What `kind` asks for: of several cards the one that the rank's place among those of its host gives. Comes before any other use of libtorch.
    ///
    /// # Errors
    ///
    /// [`TrainError::NoCard`] where a card is asked for and none can be used.
    pub fn choose(kind: DeviceKind, place_on_host: usize) -> Result<Self, TrainError> {
        if kind == DeviceKind::Cpu {
            return Ok(Self::CPU);
        }
        match (device::load(), kind) {
            (Cards::Some(count), _) => Ok(Self { device: Device::Cuda(place_on_host % count) }),
            (Cards::None(why), DeviceKind::Cuda) => Err(TrainError::NoCard(why.clone())),
            (Cards::None(_), _) => Ok(Self::CPU),
        }
    }

    /// Why there is no card for `kind`, which takes a processor then, although there is a driver: what somebody may want to mend.
    pub fn without_card(kind: DeviceKind) -> Option<&'static NoCard> {
        match (kind, device::loaded()) {
            (DeviceKind::Auto, Some(Cards::None(why))) => worth_telling(why),
            _ => None,
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

/// Hosts without a driver have no card to miss.
fn worth_telling(why: &NoCard) -> Option<&NoCard> {
    (!matches!(why, NoCard::Driver(_))).then_some(why)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_card_is_missed_where_there_is_a_driver() {
        for why in [NoCard::Hidden, NoCard::Library("cut off".into()), NoCard::Build("/lib".into())] {
            assert_eq!(worth_telling(&why), Some(&why));
        }
        assert_eq!(worth_telling(&NoCard::Driver("no such file".into())), None);
        assert_eq!(Compute::without_card(DeviceKind::Cpu), None);
    }
}
