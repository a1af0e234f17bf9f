//! Models and texts small enough to look at, in double precision.

use segue_configs::MemoryStart;
use segue_kernels::Parameters;
use segue_layers::Memory;
use segue_transfo_xl::{TransfoXl, TransfoXlConfig};
use tch::{Kind, Tensor};

/// Words of the tiny models.
pub const WORDS: i64 = 17;

/// Three layers, two heads, memory that starts empty.
pub fn tiny() -> TransfoXlConfig {
    TransfoXlConfig {
        vocab_size: WORDS as usize,
        d_model: 8,
        n_head: 2,
        d_inner: 12,
        n_layer: 3,
        mem_len: 64,
        max_klen: 64,
        dropout: 0.0,
        init_std: 0.5,
        memory_start: MemoryStart::Empty,
        ..Default::default()
    }
}

/// Fresh weights for a configuration.
pub fn parameters(config: &TransfoXlConfig) -> Parameters {
    Parameters::initialise(TransfoXl::specs(config), 5, Kind::Double)
}

/// The model over fresh weights.
pub fn model(config: &TransfoXlConfig) -> TransfoXl {
    TransfoXl::new(config, &parameters(config))
}

/// A fixed text, `[1, length]`.
pub fn tokens(length: i64) -> Tensor {
    let ids: Vec<i64> = (0..length).map(|i| (i * i * 7 + 3 * i + 1) % WORDS).collect();
    Tensor::from_slice(&ids).view([1, length])
}

/// Hidden states of `ids` fed in segments of `chunk`, memory carried.
pub fn run(model: &TransfoXl, ids: &Tensor, chunk: i64) -> Tensor {
    continue_from(model, ids, chunk, model.memory_start(ids.size()[0])).0
}

/// The same from a given memory on, and the memory at the end.
pub fn continue_from(model: &TransfoXl, ids: &Tensor, chunk: i64, mut memory: Memory) -> (Tensor, Memory) {
    let mut out = Vec::new();
    let mut start = 0;
    while start < ids.size()[1] {
        let length = chunk.min(ids.size()[1] - start);
        let output = tch::no_grad(|| model.forward(&ids.narrow(1, start, length), &memory, None));
        out.push(output.hidden);
        memory = output.memory;
        start += length;
    }
    (Tensor::cat(&out, 1), memory)
}

/// Largest difference of two tensors.
pub fn difference(a: &Tensor, b: &Tensor) -> f64 {
    (a - b).abs().max().double_value(&[])
}
