//! Named trainable tensors of a model.

use std::collections::HashMap;

use rayon::prelude::*;
use segue_random::{Purpose, Stream, name_counter};
use tch::{Device, Kind, Tensor};

use crate::Kernels;

/// Type and place of a tensor's values, as libtorch's factories take them.
pub type Options = (Kind, Device);

/// How a parameter starts.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Init {
    /// N(mean, std²).
    Normal {
        /// Centre.
        mean: f64,
        /// Standard deviation.
        std: f64,
    },
    /// Uniform in ±range.
    Uniform {
        /// Half the width.
        range: f64,
    },
    /// All zero.
    Zeros,
}

/// Name, shape and start of one parameter. A model is described by a list of these, so that it can
/// be counted and planned without a byte of weights.
#[derive(Debug, Clone, PartialEq)]
pub struct ParameterSpec {
    /// Dotted name, Hugging Face's.
    pub name: String,
    /// Sizes.
    pub shape: Vec<i64>,
    /// Start.
    pub init: Init,
}

impl ParameterSpec {
    /// Number of values.
    pub fn numel(&self) -> usize {
        self.shape.iter().product::<i64>() as usize
    }
}

/// The leaves of a model's graph, in the order of its specs.
pub struct Parameters {
    specs: Vec<ParameterSpec>,
    tensors: Vec<Tensor>,
    index: HashMap<String, usize>,
    kernels: Kernels,
    recompute: bool,
}

impl Parameters {
    /// Draws every parameter from (seed, its name): the same values in any order and on any rank.
    pub fn initialise(specs: Vec<ParameterSpec>, seed: u64, kind: Kind) -> Self {
        let tensors = specs.iter().map(|spec| draw(spec, seed, kind)).collect();
        Self::from_tensors(specs, tensors, kind)
    }

    /// Parameters with these values, one for each spec.
    pub fn from_tensors(specs: Vec<ParameterSpec>, tensors: Vec<Tensor>, kind: Kind) -> Self {
        assert_eq!(specs.len(), tensors.len());
        let tensors = tensors.into_iter().map(|t| t.to_kind(kind).set_requires_grad(true)).collect();
        let index = specs.iter().enumerate().map(|(i, spec)| (spec.name.clone(), i)).collect();
        Self { specs, tensors, index, kernels: Kernels::default(), recompute: false }
    }

    /// The same leaves for layers that compute with `kernels`.
    pub fn with_kernels(&self, kernels: Kernels) -> Self {
        let tensors = self.tensors.iter().map(Tensor::shallow_clone).collect();
        Self { specs: self.specs.clone(), tensors, index: self.index.clone(), kernels, ..*self }
    }

    /// The same leaves for models whose layers keep no activations: backward makes them again, one layer at a time.
    pub fn with_recompute(self, recompute: bool) -> Self {
        Self { recompute, ..self }
    }

    /// The same values on `device`, leaves of their own where that is another one. They are drawn on the CPU, the same for every device.
    pub fn to(self, device: Device) -> Self {
        if device == self.options().1 {
            return self;
        }
        let moved =
            |tensor: &Tensor| tensor.detach().to_device(device).set_requires_grad(tensor.requires_grad());
        Self { tensors: self.tensors.iter().map(moved).collect(), ..self }
    }

    /// Type and place of the leaves; what is computed with them is made alike.
    pub fn options(&self) -> Options {
        self.tensors.first().map_or((Kind::Float, Device::Cpu), |tensor| (tensor.kind(), tensor.device()))
    }

    /// What layers built over them compute with.
    pub fn kernels(&self) -> Kernels {
        self.kernels
    }

    /// Whether models built over them make their layers again in backward.
    pub fn recompute(&self) -> bool {
        self.recompute
    }

    /// The first `count` of them, which get no gradients from here on, and the others.
    pub fn freeze(mut self, count: usize) -> (Self, Self) {
        let kind = self.tensors.first().map_or(Kind::Float, Tensor::kind);
        let Self { kernels, recompute, .. } = self;
        let part = |specs, tensors| Self { kernels, recompute, ..Self::from_tensors(specs, tensors, kind) };
        let trained = part(self.specs.split_off(count), self.tensors.split_off(count));
        let frozen = part(self.specs, self.tensors);
        frozen.tensors.iter().for_each(|tensor| _ = tensor.set_requires_grad(false));
        (frozen, trained)
    }

    /// The leaf of that name. A model asks only for names it has specified itself.
    pub fn get(&self, name: &str) -> Tensor {
        match self.find(name) {
            Some(tensor) => tensor,
            None => panic!("the model asks for parameter `{name}`, which it has not specified"),
        }
    }

    /// The leaf of that name, where there is one.
    pub fn find(&self, name: &str) -> Option<Tensor> {
        self.index.get(name).map(|&i| self.tensors[i].shallow_clone())
    }

    /// Descriptions, in order.
    pub fn specs(&self) -> &[ParameterSpec] {
        &self.specs
    }

    /// Leaves, in the order of [`Parameters::specs`].
    pub fn tensors(&self) -> &[Tensor] {
        &self.tensors
    }

    /// Number of trained values.
    pub fn count(&self) -> usize {
        self.specs.iter().map(ParameterSpec::numel).sum()
    }
}

/// Values of one parameter. Drawn in parallel: number i depends on i alone.
fn draw(spec: &ParameterSpec, seed: u64, kind: Kind) -> Tensor {
    let stream = Stream::new(seed, Purpose::Weights, &[name_counter(&spec.name)]);
    let n = spec.numel() as u64;
    let values: Vec<f32> = match spec.init {
        Init::Zeros => return Tensor::zeros(&spec.shape, (kind, Device::Cpu)),
        Init::Normal { mean, std } => {
            (0..n).into_par_iter().map(|i| (mean + std * stream.normal(i)) as f32).collect()
        }
        Init::Uniform { range } => {
            (0..n).into_par_iter().map(|i| (range * (2.0 * stream.uniform(i) - 1.0)) as f32).collect()
        }
    };
    Tensor::from_slice(&values).view(spec.shape.as_slice()).to_kind(kind)
}
