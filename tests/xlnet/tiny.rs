//! Models and texts small enough to look at, in double precision.

use segue_configs::MemoryStart;
use segue_kernels::Parameters;
use segue_layers::Memory;
use segue_random::{Purpose, Stream};
use segue_xlnet::{LeftToRight, Sequence, States, Visibility, Xlnet, XlnetConfig};
use tch::{Device, Kind, Tensor};

/// Words of the tiny models.
pub const WORDS: i64 = 17;

/// Three layers, two heads, memory that starts empty and takes all of a segment.
pub fn tiny() -> XlnetConfig {
    XlnetConfig {
        vocab_size: WORDS as usize,
        d_model: 8,
        n_head: 2,
        d_inner: 12,
        n_layer: 3,
        mem_len: 6,
        reuse_len: 0,
        dropout: 0.0,
        dropatt: 0.0,
        initializer_range: 0.5,
        memory_start: MemoryStart::Empty,
        ..Default::default()
    }
}

/// Fresh weights for a configuration; the output's bias too is drawn.
pub fn parameters(config: &XlnetConfig) -> Parameters {
    segue_kernels::libtorch::set_threads(1);
    let specs = Xlnet::specs(config);
    let drawn = Parameters::initialise(specs.clone(), 5, Kind::Double);
    let values =
        drawn.tensors().iter().zip(&specs).map(|(tensor, spec)| match spec.name.ends_with(".bias") {
            true => {
                (Tensor::arange(tensor.numel() as i64, (Kind::Double, tch::Device::Cpu)) * 0.7).sin() * 0.3
            }
            false => tensor.detach().copy(),
        });
    Parameters::from_tensors(specs.clone(), values.collect(), Kind::Double)
}

/// The model over fresh weights.
pub fn model(config: &XlnetConfig) -> Xlnet {
    Xlnet::new(config, &parameters(config))
}

/// The same as a model of the next token.
pub fn left_to_right(config: &XlnetConfig) -> LeftToRight {
    LeftToRight::new(config, parameters(config))
}

/// A fixed text, `[1, length]`.
pub fn tokens(length: i64) -> Tensor {
    let ids: Vec<i64> = (0..length).map(|i| (i * i * 7 + 3 * i + 1) % WORDS).collect();
    Tensor::from_slice(&ids).view([1, length])
}

/// `[1, n]`.
pub fn row(values: &[i64]) -> Tensor {
    Tensor::from_slice(values).view([1, values.len() as i64])
}

/// A random order of `0..n`, `[1, n]`.
pub fn order(n: usize, seed: u64) -> Vec<i64> {
    let stream = Stream::new(seed, Purpose::Order, &[]);
    let mut order: Vec<i64> = (0..n as i64).collect();
    order.sort_by_key(|i| stream.bits(*i as u64));
    order
}

/// Both streams without a graph: predictions at all positions in the order of `ranks`.
pub fn permuted(model: &Xlnet, ids: &Tensor, ranks: &Tensor, memory: &Memory) -> States {
    let all = Tensor::arange(ids.size()[1], (Kind::Int64, tch::Device::Cpu));
    let targets = all.unsqueeze(0).expand([ids.size()[0], -1], false);
    let visibility = Visibility::Ranks { ranks, halves_at: 0 };
    let sequence = Sequence { visibility, targets: Some(&targets), ..Sequence::new(ids) };
    tch::no_grad(|| model.forward(sequence, memory, None))
}

/// The content stream's states.
pub fn content(states: &States) -> Tensor {
    states.content.as_ref().expect("content was asked for").shallow_clone()
}

/// The query stream's states.
pub fn predictions(states: &States) -> Tensor {
    states.predictions.as_ref().expect("there are targets").shallow_clone()
}

/// A memory of `length` states a layer that differ from lane to lane and layer to layer.
pub fn some_memory(config: &XlnetConfig, lanes: i64, length: i64) -> Memory {
    let mut memory =
        Memory::zeros(config.n_layer, lanes, length, config.d_model as i64, (Kind::Double, Device::Cpu));
    for (i, layer) in memory.layers.iter_mut().enumerate() {
        let values = Tensor::arange(layer.numel() as i64, (Kind::Double, tch::Device::Cpu));
        *layer = (values * (0.9 + 0.1 * i as f64)).sin().view(layer.size().as_slice());
    }
    memory
}

/// Largest difference of two tensors.
pub fn difference(a: &Tensor, b: &Tensor) -> f64 {
    (a - b).abs().max().double_value(&[])
}
