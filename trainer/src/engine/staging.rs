//! Where the state of a checkpoint waits to be written.

use std::sync::Arc;

use tch::{Device, Tensor, no_grad};

use crate::libtorch::stream::pinned;

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

    /// A copy of `tensor` without its graph. Copies of the same tensors in the same order find their place again.
    pub fn copy(&mut self, tensor: &Tensor) -> Tensor {
        let tensor = tensor.detach();
        if self.shares && tensor.device() == Device::Cpu {
            return tensor;
        }
        let place = self.taken;
        self.taken += 1;
        let fits = |buffer: &&mut Tensor| buffer.size() == tensor.size() && buffer.kind() == tensor.kind();
        match self.buffers.get_mut(place).filter(fits) {
            Some(buffer) => no_grad(|| buffer.copy_(&tensor)),
            None => {
                self.buffers.truncate(place);
                self.buffers.push(on_host(&tensor));
            }
        }
        self.buffers[place].shallow_clone()
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

    #[test]
    fn memory_is_filled_again_once_nobody_holds_it() {
        let mut staging = Staging::default();
        let lease = staging.begin();
        let first = staging.copy(&Tensor::from_slice(&[1f32, 2.0]));
        let held = staging.begin();
        let second = staging.copy(&Tensor::from_slice(&[3f32, 4.0]));
        // The first is being written.
        assert_eq!((values(&first), values(&second)), (vec![1.0, 2.0], vec![3.0, 4.0]));
        drop((lease, held));
        let _lease = staging.begin();
        let third = staging.copy(&Tensor::from_slice(&[5f32, 6.0]));
        assert_eq!((third.data_ptr(), values(&first)), (second.data_ptr(), vec![1.0, 2.0]));
        assert_eq!(values(&third), [5.0, 6.0]);
    }

    #[test]
    fn state_that_is_shared_is_not_copied() {
        let (mut staging, state) = (Staging::sharing(), Tensor::from_slice(&[1f32, 2.0]));
        let _lease = staging.begin();
        assert_eq!(staging.copy(&state).data_ptr(), state.data_ptr());
        assert!(staging.shares() && staging.buffers.is_empty());
    }

    #[test]
    fn what_has_changed_its_shape_gets_memory_of_its_own() {
        let mut staging = Staging::default();
        drop(staging.begin());
        for sizes in [[2, 3], [2, 3], [4, 1], [2, 3]] {
            drop(staging.begin());
            for size in sizes {
                assert_eq!(values(&staging.copy(&Tensor::from_slice(&vec![7f32; size]))), vec![7.0; size]);
            }
        }
        assert_eq!(staging.buffers.len(), 2);
    }
}
