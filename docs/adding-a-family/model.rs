//! What is learnt: y = w x, with the loss ½ Σ (w x − y)².

use segue_engine::{Learner, Loss, Turn};
use segue_kernels::noise::Noise;
use segue_kernels::{Init, ParameterSpec, Parameters};
use tch::{Kind, Tensor};

/// The network: one number.
pub struct Slope {
    parameters: Parameters,
}

impl Slope {
    /// Its one parameter, without making it.
    pub fn specs() -> Vec<ParameterSpec> {
        vec![ParameterSpec { name: "w".into(), shape: vec![1], init: Init::Zeros }]
    }

    /// With fresh weights.
    pub fn new(seed: u64) -> Self {
        Self { parameters: Parameters::initialise(Self::specs(), seed, Kind::Float) }
    }

    /// With these weights.
    pub fn over(parameters: Parameters) -> Self {
        Self { parameters }
    }

    /// w.
    pub fn value(&self) -> f64 {
        self.parameters.tensors()[0].double_value(&[0])
    }
}

impl Learner for Slope {
    /// Pairs: `[micro_steps, micro_batch, 2]`.
    type Batch = Tensor;
    /// Pairs know nothing of those before them.
    type Carry = ();

    fn networks(&self) -> Vec<(&'static str, &Parameters)> {
        vec![("model", &self.parameters)]
    }

    fn start(&self, _: i64) {}

    fn loss(&self, _: &Turn, batch: &Tensor, micro_step: usize, (): &(), _: &Noise) -> Loss<()> {
        let pairs = batch.get(micro_step as i64); // [micro_batch, 2]
        let (x, y) = (pairs.select(1, 0), pairs.select(1, 1));
        let sum = (x * &self.parameters.tensors()[0] - y).square().sum(None::<Kind>) * 0.5;
        Loss::of(sum, pairs.size()[0] as f64, None, ())
    }
}
