//! Where the state of a checkpoint waits to be written.

use std::sync::Arc;

use segue_kernels::TrainError;
use segue_kernels::libtorch::stream::{Event, copy_queued, pinned};
use tch::{Device, Tensor};

/// Held by whatever has tensors of a [`Staging`]: they are written to again once nobody else holds it.
pub type Lease = Arc<()>;

/// Memory for a copy of a run's state, kept from one checkpoint to the next: to fill what is in use takes less than half of the
/// time of filling what the system has to give first.
#[derive(Default)]
pub struct Staging {
    buffers: Vec<Tensor>,
    lease: Lease,
    /// Buffers that the copy under way has taken.
    taken: usize,
    shares: bool,
}

impl Staging {
    /// One that copies nothing that lies in the host's memory, for state that nobody changes before it is written.
    pub fn sharing() -> Self {
        Self { shares: true, ..Self::default() }
    }

    /// Whether what it gives is the state itself.
    pub fn shares(&self) -> bool {
        self.shares
    }

    /// Begins a copy, which goes where the one before lay unless that is still held.
    pub fn begin(&mut self) -> Lease {
        if Arc::strong_count(&self.lease) > 1 {
            // Memory goes with who holds it.
            *self = Self { shares: self.shares, ..Self::default() };
        }
        self.taken = 0;
        self.lease.clone()
    }

    /// Copies of tensors of one device, without their graphs. Those of the same tensors in the same order find their places again. A card is waited for
    /// once.
    pub fn copy<'a>(
        &mut self,
        tensors: impl IntoIterator<Item = &'a Tensor>,
    ) -> Result<Vec<Tensor>, TrainError> {
        let tensors: Vec<&Tensor> = tensors.into_iter().collect();
        let copies = tensors.iter().map(|tensor| self.queue(&tensor.detach())).collect::<Result<_, _>>()?;
        if let Some(first) = tensors.first() {
            debug_assert!(tensors.iter().all(|tensor| tensor.device() == first.device()));
            Event::now(first.device())?.wait()?;
        }
        Ok(copies)
    }

    /// Begins to copy a tensor.
    fn queue(&mut self, tensor: &Tensor) -> Result<Tensor, TrainError> {
        if self.shares && tensor.device() == Device::Cpu {
            return Ok(tensor.shallow_clone());
        }
        let place = self.taken;
        self.taken += 1;
        let fits = |buffer: &&Tensor| buffer.size() == tensor.size() && buffer.kind() == tensor.kind();
        match self.buffers.get(place).filter(fits) {
            Some(buffer) => copy_queued(tensor, buffer)?,
            None => {
                self.buffers.truncate(place);
                self.buffers.push(on_host(tensor));
            }
        }
        Ok(self.buffers[place].shallow_clone())
    }
}

/// A copy where it can be written from. That of a card lies where the card writes by itself, several times as fast as elsewhere, which pays from
/// the second copy into it on.
fn on_host(tensor: &Tensor) -> Tensor {
    match tensor.device() {
        Device::Cpu => tensor.copy(),
        _ => {
            let copy = tensor.to_device(Device::Cpu);
            // Where there is no such memory left the copy stays where it is.
            pinned(&copy).unwrap_or(copy)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn values(tensor: &Tensor) -> Vec<f32> {
        Vec::try_from(tensor).unwrap()
    }

    fn copied(staging: &mut Staging, tensor: &Tensor) -> Tensor {
        staging.copy([tensor]).unwrap().swap_remove(0)
    }

    #[test]
    fn memory_is_filled_again_once_nobody_holds_it() {
        let mut staging = Staging::default();
        let lease = staging.begin();
        let first = copied(&mut staging, &Tensor::from_slice(&[1f32, 2.0]));
        let held = staging.begin();
        let second = copied(&mut staging, &Tensor::from_slice(&[3f32, 4.0]));
        // The first is being written.
        assert_eq!((values(&first), values(&second)), (vec![1.0, 2.0], vec![3.0, 4.0]));
        drop((lease, held));
        let _lease = staging.begin();
        let third = copied(&mut staging, &Tensor::from_slice(&[5f32, 6.0]));
        assert_eq!((third.data_ptr(), values(&first)), (second.data_ptr(), vec![1.0, 2.0]));
        assert_eq!(values(&third), [5.0, 6.0]);
    }

    #[test]
    fn state_that_is_shared_is_not_copied() {
        let (mut staging, state) = (Staging::sharing(), Tensor::from_slice(&[1f32, 2.0]));
        let _lease = staging.begin();
        assert_eq!(copied(&mut staging, &state).data_ptr(), state.data_ptr());
        assert!(staging.shares() && staging.buffers.is_empty());
    }

    #[test]
    fn what_has_changed_its_shape_gets_memory_of_its_own() {
        let mut staging = Staging::default();
        drop(staging.begin());
        for sizes in [[2, 3], [2, 3], [4, 1], [2, 3]] {
            drop(staging.begin());
            let tensors = sizes.map(|size| Tensor::from_slice(&vec![7f32; size]));
            for (copy, size) in staging.copy(&tensors).unwrap().iter().zip(sizes) {
                assert_eq!(values(copy), vec![7.0; size]);
            }
        }
        assert_eq!(staging.buffers.len(), 2);
    }
}
