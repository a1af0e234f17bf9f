use tch::{Kind, Tensor};

/// Detached hidden states that lanes carry from segment to segment.
#[derive(Debug)]
pub struct Memory {
    /// Inputs of layers 1..=n of past segments: `[lanes, mem, d_model]` each.
    pub layers: Vec<Tensor>,
}

impl Memory {
    /// `mem_len` zero vectors a layer; with `mem_len` 0, nothing.
    pub fn zeros(layers: usize, lanes: i64, mem_len: i64, d_model: i64, kind: Kind) -> Self {
        let layer = || Tensor::zeros([lanes, mem_len, d_model], (kind, tch::Device::Cpu));
        Self { layers: (0..layers).map(|_| layer()).collect() }
    }

    /// Positions held.
    pub fn len(&self) -> i64 {
        self.layers.first().map_or(0, |layer| layer.size()[1])
    }

    /// Whether it holds no position.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The last `mem_len` positions of old memory and new hidden states, cut off from the graph
    /// (thesis 2.1.3: m' is the tail of m ∘ h).
    pub fn extended(&self, hidden: &[Tensor], mem_len: i64) -> Self {
        let layers = self.layers.iter().zip(hidden).map(|(old, new)| {
            let (old, new) = (old.detach(), new.detach());
            let (have, add) = (old.size()[1], new.size()[1]);
            if add >= mem_len {
                return new.narrow(1, add - mem_len, mem_len).contiguous();
            }
            let keep = (mem_len - add).min(have);
            Tensor::cat(&[old.narrow(1, have - keep, keep), new], 1)
        });
        Self { layers: layers.collect() }
    }
}

impl Clone for Memory {
    fn clone(&self) -> Self {
        Self { layers: self.layers.iter().map(Tensor::shallow_clone).collect() }
    }
}
